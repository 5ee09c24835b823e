//! Hostile and broken objects given to `dovetail dra allocate`: the object concerned is refused by name, with the field
//! and the reason, and other claims get their devices, within the budget.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::scratch::{Ran, Scratch};

/// Far more than any of these takes, and far less than a search without bounds would.
const AT_MOST: Duration = Duration::from_secs(60);

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn class(name: &str) -> Value {
    let expression = format!("device.driver == '{name}.test'");
    object("DeviceClass", name, &json!({"selectors": [{"cel": {"expression": expression}}]}))
}

/// A slice of the driver `<pool>.test`, one of `count` in its pool.
fn slice(name: &str, pool: &str, count: usize, content: Value) -> Value {
    let mut spec = json!({
        "driver": format!("{pool}.test"), "nodeName": "n1",
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
    });
    for (field, value) in content.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    object("ResourceSlice", name, &spec)
}

fn devices(names: std::ops::Range<usize>, fields: &Value) -> Value {
    let device = |index: usize| {
        let mut device = fields.clone();
        device["name"] = format!("d{index}").into();
        device
    };
    json!({"devices": names.map(device).collect::<Vec<_>>()})
}

fn template(name: &str, devices: &Value) -> Value {
    object("ResourceClaimTemplate", name, &json!({"spec": {"devices": devices}}))
}

/// A claim of one request of class `bad` with these further fields.
fn request(fields: Value) -> Value {
    let mut exactly = fields;
    exactly["deviceClassName"] = "bad".into();
    json!({"requests": [{"name": "r", "exactly": exactly}]})
}

fn selector(expression: &str) -> Value {
    request(json!({"selectors": [{"cel": {"expression": expression}}]}))
}

fn pod(name: &str, source: Value) -> Value {
    let mut entry = source;
    entry["name"] = "e".into();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"resourceClaims": [entry], "containers": [{"name": "c"}]}})
}

/// Allocates for the objects together with a pod that is fine. That one must get its device, and in time.
fn allocate(objects: &[Value]) -> Ran {
    let fine = [
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}),
        class("fine"),
        slice("fine", "fine", 1, devices(0..1, &json!({}))),
        template("fine", &json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "fine"}}]})),
        pod("fine", json!({"resourceClaimTemplateName": "fine"})),
    ];
    let documents: Vec<String> = objects.iter().chain(&fine).map(ToString::to_string).collect();
    let started = Instant::now();
    let arguments = ["dra", "allocate", "-f", "-", "--node", "n1", "-o", "json", "--budget", "100000"];
    let ran = Scratch::new().run_with_input(&arguments, &documents.join("\n---\n"));
    assert!(started.elapsed() < AT_MOST, "took {:?}", started.elapsed());
    let report = ran.json();
    let of_fine = report["pods"].as_array().unwrap().iter().find(|pod| pod["pod"] == "default/fine");
    assert_eq!(of_fine.unwrap()["outcome"], "Allocated", "{ran:?}");
    ran
}

/// What is said of pod `bad`: its reason, or those of the node.
fn said(ran: &Ran, name: &str) -> String {
    let report = ran.json();
    let full_name = format!("default/{name}");
    let pod = report["pods"].as_array().unwrap().iter().find(|pod| pod["pod"] == full_name.as_str()).unwrap().clone();
    match pod["outcome"].as_str().unwrap() {
        "Refused" => pod["nodes"][0]["message"].as_str().unwrap().to_owned(),
        "Invalid" => pod["reason"].as_str().unwrap().to_owned(),
        other => other.to_owned(),
    }
}

/// Objects that the pod `bad` depends on; `problem` is a part of standard error (none if empty), `refusal` of what is
/// said.
#[track_caller]
fn check(objects: &[Value], problem: &str, refusal: &str) {
    let mut all = objects.to_vec();
    all.push(pod("bad", json!({"resourceClaimTemplateName": "bad"})));
    let ran = allocate(&all);
    let problems = ran.stderr.lines().filter(|line| line.starts_with("problem: ")).count();
    assert_eq!((ran.code, problems), if problem.is_empty() { (3, 0) } else { (1, 1) }, "{ran:?}");
    assert!(ran.stderr.contains(problem), "{}", ran.stderr);
    let said = said(&ran, "bad");
    assert!(said.contains(refusal), "{said}");
}

const TOLD: &str = "ResourceClaimTemplate default/bad is in the input, but cannot be used; its problem was told";

fn in_template(claim: &Value) -> [Value; 3] {
    [class("bad"), slice("bad", "bad", 1, devices(0..4, &json!({}))), template("bad", claim)]
}

fn in_slices(slices: &[Value], claim: &Value) -> Vec<Value> {
    [&[class("bad"), template("bad", claim)], slices].concat()
}

#[test]
fn selectors_that_would_burn_time_or_memory_are_refused_with_their_place() {
    let at = "ResourceClaimTemplate default/bad: spec.spec.devices.requests[0].exactly.selectors[0].cel.expression: ";
    let nested = |open: &str, count: usize, close: &str| format!("{}true{}", open.repeat(count), close.repeat(count));
    let bomb = nested("[1,2,3,4,5,6,7,8,9,10].all(a,", 7, ")");
    for (expression, reason) in [
        (nested("(", 5000, ")"), "1:251: expression recursion limit exceeded: 250"),
        (format!("true{}", " || true".repeat(3000)), "1:1: expression has 24004 bytes, more than 10240"),
        (bomb.clone(), "1:1: too complex: costs up to 45555551, exceeds cost limit"),
        ("device.nope".to_owned(), "1:7: undefined field 'nope'"),
    ] {
        check(&in_template(&selector(&expression)), &format!("{at}{reason}"), TOLD);
    }
    let of_class = object("DeviceClass", "bad", &json!({"selectors": [{"cel": {"expression": bomb}}]}));
    check(
        &[of_class, slice("bad", "bad", 1, devices(0..4, &json!({}))), template("bad", &request(json!({})))],
        "DeviceClass bad: spec.selectors[0].cel.expression: 1:1: too complex",
        "device class bad does not exist",
    );
    check(
        &in_template(&selector("device.attributes['bad.test'].absent == 1")),
        "",
        "selector #0 on device bad.test/bad/d0: CEL runtime error: no such key: absent",
    );
}

#[test]
fn contradictory_counters_end_the_claims_of_their_pool_alone() {
    let two = request(json!({"count": 2}));
    let draws = |set: &str| json!({"consumesCounters": [{"counterSet": set, "counters": {"m": {"value": "1"}}}]});
    let set = |name: &str, count: usize, total: &str| {
        slice(name, "bad", count, json!({"sharedCounters": [{"name": "set", "counters": {"m": {"value": total}}}]}))
    };
    let halves = |count: usize, second: &str| {
        let second = draws(second);
        [slice("d", "bad", count, devices(0..64, &draws("set"))), slice("e", "bad", count, devices(64..128, &second))]
    };
    check(
        &in_slices(&[set("c", 2, "1"), slice("d", "bad", 2, devices(0..128, &draws("set")))], &two),
        "ResourceSlice d: spec.devices: has 128 entries, at most 64 are allowed",
        "pool bad.test/bad is incomplete: 1 of 2 slices of generation 1",
    );
    check(
        &in_slices(&[&[set("c", 3, "1")][..], &halves(3, "other")].concat(), &two),
        "",
        "bad.test/bad is invalid: device d64 draws from counter set other, which does not exist",
    );
    check(
        &in_slices(&[&[set("c", 4, "1"), set("c2", 4, "100")][..], &halves(4, "set")].concat(), &two),
        "",
        "bad.test/bad is invalid: duplicate counter set name set",
    );
    check(
        &in_slices(&[&[set("c", 3, "1")][..], &halves(3, "set")].concat(), &two),
        "",
        "the requests together want 2 devices and can use 0",
    );
    check(
        &in_slices(&[&[set("c", 3, "-5")][..], &halves(3, "set")].concat(), &two),
        "",
        "128 need more of counter set/m than is left",
    );
}

#[test]
fn names_that_are_given_twice_are_told() {
    let two = request(json!({"count": 2}));
    let mut twice = devices(0..2, &json!({}));
    twice["devices"][1]["name"] = "d0".into();
    check(
        &in_slices(&[slice("bad", "bad", 1, twice)], &two),
        "ResourceSlice bad: spec.devices[1]: \"d0\" appears more than once",
        "0 of 1 devices are usable, 2 wanted",
    );
    let half = |name: &str| slice(name, "bad", 2, devices(0..2, &json!({})));
    check(
        &in_slices(&[half("a"), half("b")], &request(json!({"count": 4}))),
        "",
        "bad.test/bad is invalid: duplicate device name d0",
    );
    let mut requests = request(json!({}));
    requests["requests"] = json!([requests["requests"][0], requests["requests"][0]]);
    check(
        &in_template(&requests),
        "ResourceClaimTemplate default/bad: spec.spec.devices.requests[1]: \"r\" appears more than once",
        TOLD,
    );
    let ran = allocate(&[class("bad"), class("bad")]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (0, "note: DeviceClass bad is given more than once; the last one counts\n")
    );
}

#[test]
fn negative_and_gigantic_numbers_are_refused_where_they_stand() {
    let shared = |total: &str| {
        let fields = json!({"allowMultipleAllocations": true, "capacity": {"m": {"value": total}}});
        slice("bad", "bad", 1, devices(0..1, &fields))
    };
    let asks = |amount: &str| request(json!({"capacity": {"requests": {"m": amount}}}));
    let with = |total: &str, amount: &str| in_slices(&[shared(total)], &asks(amount));
    check(&with("-1", "1"), "", "1 has too little m left");
    check(&with("1", "-8"), "", "capacity of device bad.test/bad/d0: the amount is negative");
    check(
        &with("9999999999999999999Ei", "1"),
        "ResourceSlice bad: spec.devices[0].capacity[m].value: quantity \"9999999999999999999Ei\" exceeds 2^63-1",
        "0 of 1 devices are usable",
    );
    check(
        &with("1", "8Ei"),
        "ResourceClaimTemplate default/bad: spec.spec.devices.requests[0].exactly.capacity.requests[m]: quantity \"8Ei\" exceeds 2^63-1",
        TOLD,
    );
    let count = "ResourceClaimTemplate default/bad: spec.spec.devices.requests[0].exactly.count: ";
    check(&in_template(&request(json!({"count": -1}))), &format!("{count}must be greater than zero"), TOLD);
    check(
        &in_template(&request(json!({"count": 9_223_372_036_854_775_808_u64}))),
        &format!("{count}must be an integer of 64 bits"),
        TOLD,
    );
    check(&in_template(&request(json!({"count": i64::MAX}))), "", "9223372036854775807 devices exceed the limit of 32");
    let mut negative = slice("bad", "bad", 1, devices(0..1, &json!({})));
    negative["spec"]["pool"]["generation"] = json!(-1);
    check(
        &in_slices(&[negative], &request(json!({}))),
        "ResourceSlice bad: spec.pool.generation: must be greater than or equal to zero",
        "0 of 1 devices are usable",
    );
    check(
        &in_slices(&[slice("bad", "bad", 1, devices(0..129, &json!({})))], &request(json!({}))),
        "ResourceSlice bad: spec.devices: has 129 entries, at most 128 are allowed",
        "0 of 1 devices are usable",
    );
}

#[test]
fn fields_that_nobody_knows_end_what_depends_on_them() {
    check(
        &in_slices(&[slice("bad", "bad", 1, devices(0..4, &json!({"bogus": 1})))], &request(json!({}))),
        "",
        "bad.test/bad is not understood: slice bad has spec.devices[0].bogus",
    );
    check(
        &in_template(&request(json!({"bogus": {"x": 1}}))),
        "",
        "spec.spec.devices.requests[0].exactly.bogus is not supported",
    );
    let mut constraint = request(json!({"count": 2}));
    constraint["constraints"] = json!([{"cel": {"expression": "true"}}]);
    check(
        &in_template(&constraint),
        "ResourceClaimTemplate default/bad: spec.spec.devices.constraints[0]: exactly one of `matchAttribute` or `distinctAttribute` is required",
        TOLD,
    );
}

#[test]
fn references_to_nothing_and_in_a_circle_end_the_pod_alone() {
    let owned = |name: &str, owner: &str| {
        let mut claim = object("ResourceClaim", name, &json!({"devices": request(json!({}))}));
        claim["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": format!("uid-{owner}"), "controller": true}]);
        claim
    };
    let crossed = |name: &str, claim: &str| {
        let mut pod = pod(name, json!({"resourceClaimTemplateName": "bad"}));
        pod["metadata"]["uid"] = format!("uid-{name}").into();
        pod["status"] = json!({"resourceClaimStatuses": [{"name": "e", "resourceClaimName": claim}]});
        pod
    };
    let ran = allocate(&[
        class("bad"),
        slice("bad", "bad", 1, devices(0..4, &json!({}))),
        template("bad", &request(json!({}))),
        template("classless", &json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "absent"}}]})),
        owned("of-a", "a"),
        owned("of-b", "b"),
        crossed("a", "of-b"),
        crossed("b", "of-a"),
        pod("no-template", json!({"resourceClaimTemplateName": "absent"})),
        pod("no-claim", json!({"resourceClaimName": "absent"})),
        pod("no-class", json!({"resourceClaimTemplateName": "classless"})),
    ]);
    assert_eq!((ran.code, ran.stderr.as_str()), (3, ""));
    for (pod, expected) in [
        ("a", "resource claim default/of-b was made for another pod"),
        ("b", "resource claim default/of-a was made for another pod"),
        ("no-template", "resource claim template default/absent does not exist"),
        ("no-claim", "resource claim default/absent does not exist"),
        ("no-class", "claim made from default/classless: request r: device class absent does not exist"),
    ] {
        assert_eq!(said(&ran, pod), expected);
    }
}
