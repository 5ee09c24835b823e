"""AWS on this computer, for tests of the adapter: moto, and what moto lacks.

Prints its port as a line and serves until its standard input ends. What is added to moto:

* EC2: capacity reservations and placement groups, which are always the same; pages, which moto does not make; machines
  that cannot be had, which are told in the answer to CreateFleet as EC2 tells them.
* Systems Manager: the parameters by which EKS' images are found.
* Pricing: two types.
* Application Recovery Controller: the shifts of one cluster, which is the only resource that is registered.
* Throttling and broken answers, as many as a test asks for by POST /control, and how often each call was made, by
  GET /control.
"""

import datetime
import io
import json
import os
import sys
import tempfile
import threading
import urllib.parse
import xml.etree.ElementTree as xml

REGION = "us-east-1"
ACCOUNT = "123456789012"
NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
IMAGES = [
    {
        "ami_id": f"ami-{number:017x}",
        "name": f"amazon-eks-node-al2023-{architecture}-standard-1.33-v20260101",
        "architecture": architecture,
        "owner_id": "602401143452",
        "owner_alias": "amazon",
        "state": "available",
        "public": True,
        "virtualization_type": "hvm",
        "hypervisor": "xen",
        "root_device_name": "/dev/xvda",
        "root_device_type": "ebs",
        "image_location": "amazon/eks",
        "image_type": "machine",
        "description": "EKS",
        "creation_date": "2026-01-01T00:00:00.000Z",
    }
    for number, architecture in enumerate(["x86_64", "arm64"], 1)
]
PARAMETERS = {
    "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/"
    f"{image['architecture']}/standard/recommended/image_id": image["ami_id"]
    for image in IMAGES
}
SHIFTED = f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/c"
SHIFTS = {
    "arn": SHIFTED,
    "appliedWeights": {},
    "zonalShifts": [
        {
            "appliedStatus": status,
            "awayFrom": zone,
            "comment": "drill",
            "expiryTime": 1798761600,
            "resourceIdentifier": SHIFTED,
            "startTime": 1798718400,
            "zonalShiftId": f"shift-{zone}",
        }
        for zone, status in [("use1-az1", "APPLIED"), ("use1-az2", "NOT_APPLIED")]
    ],
    "autoshifts": [
        {"appliedStatus": status, "awayFrom": zone, "startTime": 1798718400}
        for zone, status in [("use1-az3", "APPLIED"), ("use1-az4", "NOT_APPLIED")]
    ],
}
RESERVATIONS = """
<item><capacityReservationId>cr-1</capacityReservationId><ownerId>123456789012</ownerId><instanceType>m5.large</instanceType>
<availabilityZone>us-east-1a</availabilityZone><instanceMatchCriteria>targeted</instanceMatchCriteria>
<reservationType>default</reservationType><state>active</state><totalInstanceCount>3</totalInstanceCount>
<availableInstanceCount>2</availableInstanceCount></item>
<item><capacityReservationId>cr-2</capacityReservationId><ownerId>123456789012</ownerId><instanceType>p5.48xlarge</instanceType>
<availabilityZone>us-east-1b</availabilityZone><instanceMatchCriteria>targeted</instanceMatchCriteria>
<reservationType>capacity-block</reservationType><state>active</state><totalInstanceCount>1</totalInstanceCount>
<availableInstanceCount>1</availableInstanceCount><endDate>2026-12-31T00:00:00.000Z</endDate></item>
<item><capacityReservationId>cr-3</capacityReservationId><instanceType>m5.large</instanceType>
<instanceMatchCriteria>by-the-moon</instanceMatchCriteria></item>
"""
GROUPS = """
<item><groupId>pg-1</groupId><groupName>apart</groupName><strategy>partition</strategy><state>available</state>
<partitionCount>3</partitionCount></item>
"""
FIXED = {
    "DescribeCapacityReservations": ("capacityReservationSet", RESERVATIONS),
    "DescribePlacementGroups": ("placementGroupSet", GROUPS),
}
PRICES = {"m5.large": "0.0960000000", "c5.large": "0.0850000000"}


class State:
    """What tests have asked for, and what was called."""

    def __init__(self):
        self.lock = threading.Lock()
        self.clear()

    def clear(self):
        self.calls, self.throttled, self.broken, self.refused = {}, {}, {}, set()

    def set(self, wanted):
        with self.lock:
            self.clear()
            self.throttled = dict(wanted.get("throttle", {}))
            self.broken = dict(wanted.get("break", {}))
            self.refused = {tuple(refused) for refused in wanted.get("refuse", [])}

    def called(self, action):
        """Counts a call, and says what becomes of it."""
        with self.lock:
            self.calls[action] = self.calls.get(action, 0) + 1
            for name, left in (("throttled", self.throttled), ("broken", self.broken)):
                if left.get(action, 0) > 0:
                    left[action] -= 1
                    return name
        return "answered"


STATE = State()


def ec2_answer(action, content):
    text = f'<{action}Response xmlns="{NAMESPACE}"><requestId>r</requestId>{content}</{action}Response>'
    return 200, "text/xml", text.encode()


def throttled(query):
    """As EC2 and the services of Query tell it; those of JSON have no status of their own for it."""
    if query:
        text = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit exceeded.</Message></Error>"
        return 503, "text/xml", (text + "</Errors><RequestID>r</RequestID></Response>").encode()
    error = {"__type": "ThrottlingException", "message": "Rate exceeded"}
    return 400, "application/x-amz-json-1.1", json.dumps(error).encode()


def products(request):
    """A page has one product."""
    start = int(request.get("NextToken", 0))
    wanted = {item["Field"]: item["Value"] for item in request["Filters"]}
    listed = sorted(PRICES.items()) if wanted["tenancy"] == "Shared" else []
    page = [
        json.dumps(
            {
                "product": {"attributes": {"instanceType": name, "regionCode": wanted["regionCode"]}},
                "terms": {"OnDemand": {"a": {"priceDimensions": {"b": {"unit": "Hrs", "pricePerUnit": {"USD": price}}}}}},
            }
        )
        for name, price in listed[start : start + 1]
    ]
    answer = {"FormatVersion": "aws_v1", "PriceList": page}
    if start + 1 < len(listed):
        answer["NextToken"] = str(start + 1)
    return 200, "application/x-amz-json-1.1", json.dumps(answer).encode()


def managed_resource(arn):
    if arn == SHIFTED:
        return 200, "application/json", json.dumps(SHIFTS).encode()
    error = {"__type": "AccessDeniedException", "message": f"Resource {arn} is not a managed resource"}
    return 403, "application/json", json.dumps(error).encode()


def page(body, size, token):
    """Of an answer of EC2 with a set of items, a page."""
    answer = xml.fromstring(body)
    sets = [child for child in answer if child.tag.endswith("Set") and len(child)]
    if len(sets) != 1:
        return body
    start, items = int(token or 0), list(sets[0])
    for item in items[:start] + items[start + size :]:
        sets[0].remove(item)
    namespace = answer.tag[1:].partition("}")[0]
    if start + size < len(items):
        xml.SubElement(answer, f"{{{namespace}}}nextToken").text = str(start + size)
    xml.register_namespace("", namespace)
    return xml.tostring(answer)


class Front:
    """Stands before moto."""

    def __init__(self, moto):
        self.moto = moto

    def __call__(self, environ, start_response):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        own = self.answer(environ, body)
        if own:
            status, kind, answer = own
            headers = [("Content-Type", kind)]
        else:
            status, headers, answer = self.ask_moto(environ, body)
        start_response(f"{status} -", [*headers, ("Content-Length", str(len(answer)))])
        return [answer]

    def answer(self, environ, body):
        """What moto is not asked for."""
        if environ["PATH_INFO"] == "/control":
            if environ["REQUEST_METHOD"] == "POST":
                STATE.set(json.loads(body))
            return 200, "application/json", json.dumps(STATE.calls).encode()
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        form = dict(urllib.parse.parse_qsl(body.decode())) if not target and body[:1] != b"{" else {}
        action = form.get("Action") or target.rpartition(".")[2]
        fate = STATE.called(action)
        if fate == "throttled":
            return throttled(bool(form))
        if fate == "broken":
            return 502, "text/html", b"<html>Bad Gateway</html>"
        if action in FIXED:
            name, items = FIXED[action]
            return ec2_answer(action, f"<{name}>{items}</{name}>")
        if environ["PATH_INFO"].startswith("/managedresources/"):
            return managed_resource(environ["PATH_INFO"].split("/", 2)[2])
        if target.startswith("AWSPriceListService."):
            return products(json.loads(body))
        return None

    def ask_moto(self, environ, body):
        told = {}

        def start(status, headers, *_):
            told["status"] = int(status.split(" ")[0])
            told["headers"] = [(name, value) for name, value in headers if name.lower() != "content-length"]

        answer = b"".join(self.moto(environ, start))
        form = dict(urllib.parse.parse_qsl(body.decode())) if body[:7] == b"Action=" else {}
        if told["status"] == 200 and form.get("Version") == "2016-11-15" and "MaxResults" in form:
            answer = page(answer, int(form["MaxResults"]), form.get("NextToken"))
        return told["status"], told["headers"], answer


def refuse_machines():
    """Makes CreateFleet leave out what tests do not want to be had: of a capacity type, type and zone."""
    from moto.core.responses import ActionResult
    from moto.ec2.responses.fleets import Fleets

    create, get = Fleets.create_fleet, Fleets._get_param

    def create_fleet(self):
        paid = get(self, "TargetCapacitySpecification", {}).get("DefaultTargetCapacityType")
        configs, errors = [], []
        for config in get(self, "LaunchTemplateConfigs", []):
            kept = []
            for wanted in config.get("Overrides", []):
                if (paid, wanted.get("InstanceType"), wanted.get("AvailabilityZone")) not in STATE.refused:
                    kept.append(wanted)
                    continue
                template = config["LaunchTemplateSpecification"]
                asked = {"LaunchTemplateSpecification": template, "Overrides": wanted}
                error = {"ErrorCode": "InsufficientInstanceCapacity", "ErrorMessage": "There is no capacity."}
                errors.append({"LaunchTemplateAndOverrides": asked, "Lifecycle": paid, **error})
            if kept:
                configs.append({**config, "Overrides": kept})
        if not configs:
            self.error_on_dryrun()
            return ActionResult({"FleetId": "fleet-none", "Errors": errors, "Instances": []})
        self._get_param = lambda name, *rest, **more: (
            configs if name == "LaunchTemplateConfigs" else get(self, name, *rest, **more)
        )
        answer = create(self)
        answer.result["Errors"] = errors
        return answer

    Fleets.create_fleet = create_fleet


def add_parameters():
    from moto.ssm.models import Parameter, ssm_backends

    backend = ssm_backends[ACCOUNT][REGION]
    for name, value in PARAMETERS.items():
        parameter = Parameter(
            account_id=ACCOUNT,
            name=name,
            value=value,
            parameter_type="String",
            description=None,
            allowed_pattern=None,
            keyid=None,
            last_modified_date=datetime.datetime.now(datetime.timezone.utc),
            version=1,
            data_type="text",
        )
        backend._parameters[name] = [parameter]


def main():
    with tempfile.NamedTemporaryFile("w", suffix=".json") as images:
        json.dump(IMAGES, images)
        images.flush()
        # It is read when moto is imported.
        os.environ["MOTO_AMIS_PATH"] = images.name
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        refuse_machines()
        add_parameters()
        moto = DomainDispatcherApplication(create_backend_app)
        server = make_server("127.0.0.1", 0, Front(moto), threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
