//! A scenario that is played: what its steps do in the cluster.

use std::cell::{Cell, RefCell};

use anyhow::{Context, Result, ensure};
use e2e::cluster::DEADLINE;
use e2e::eventually;
use k8s_openapi::api::core::v1::Event;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::outcome;
use super::prediction::{self, Predictor};
use super::scenario::{Expected, Scenario, Step, id_of};
use super::served;

/// How a scenario went.
pub(super) enum Played {
    /// All its pods got what was predicted, or nothing where that was predicted.
    Agreed { pods: usize },
    /// The server does not have what it needs.
    Skipped { reasons: Vec<String> },
}

pub(super) struct Stage<'a> {
    pub scenario: &'a Scenario,
    client: Client,
    predictor: &'a Predictor,
    markers: Cell<u32>,
    refused: RefCell<Vec<&'a Expected>>,
    pods: Cell<usize>,
    /// Whether the release has the features with its gates: then the scenario must show what it is to show.
    pub is_served: bool,
}

impl<'a> Stage<'a> {
    pub(super) fn new(scenario: &'a Scenario, client: Client, predictor: &'a Predictor, is_served: bool) -> Self {
        let (markers, pods, refused) = (Cell::new(0), Cell::new(0), RefCell::default());
        Self { scenario, client, predictor, markers, refused, pods, is_served }
    }

    /// Makes what is there before the first step. Gives what the server does not have, if that is why it must be left
    /// out.
    pub(super) async fn set_up(&self) -> Result<Vec<String>> {
        self.create(&self.scenario.namespace).await?;
        // A slice whose devices cost something of a node is only taken while the node is there.
        let is_node = |object: &&Value| object["kind"] == "Node";
        for node in self.scenario.at_start().filter(is_node) {
            self.create(node).await?;
        }
        let mut reasons = served::not_served(&self.client, self.scenario).await?;
        if self.list("resource.k8s.io", &self.scenario.read, "ResourceSlice", None).await?.is_none() {
            reasons.push(format!("resource.k8s.io/{} is not served", self.scenario.read));
        }
        if !reasons.is_empty() {
            ensure!(!self.is_served, "the matrix says that this is served, but: {}", reasons.join("; "));
            return Ok(reasons);
        }
        for object in self.scenario.at_start().filter(|object| !is_node(object)) {
            self.create(object).await?;
        }
        for node in self.scenario.nodes() {
            self.node_is_ready(node).await?;
        }
        self.create(&self.marker_class()).await?;
        Ok(reasons)
    }

    /// Plays all steps.
    pub(super) async fn play(&self) -> Result<Played> {
        self.scheduler_has_caught_up().await?;
        for (index, step) in self.scenario.steps.iter().enumerate() {
            self.step(step).await.with_context(|| format!("step {index}"))?;
        }
        Ok(Played::Agreed { pods: self.pods.get() })
    }

    /// To be asked at the very end: what was refused had all the time that other scenarios took.
    pub(super) async fn refused_are_still_without_devices(&self) -> Result<()> {
        let refused: Vec<&Expected> = self.refused.borrow().clone();
        for expected in refused {
            self.has_no_devices(expected).await?;
        }
        Ok(())
    }

    async fn step(&self, step: &'a Step) -> Result<()> {
        match step {
            Step::Pod(expected) => self.pod_comes(expected).await,
            Step::Apply(ids) => {
                for id in ids {
                    self.create_or_change(self.scenario.object(id)?).await?;
                }
                self.scheduler_has_caught_up().await
            }
            Step::Delete(id) => self.delete_pod(id.strip_prefix("Pod/").context("only pods are deleted")?).await,
            Step::Evict { by, pod } => self.evict(by, pod).await,
        }
    }

    /// Predicts, creates, compares.
    async fn pod_comes(&self, expected: &'a Expected) -> Result<()> {
        let manifest = self.scenario.object(&format!("Pod/{}", expected.name))?;
        let mut objects = self.objects().await?;
        objects.push(manifest.clone());
        let report = self.predictor.ask(objects, pinned_to(manifest)).await?;
        self.create(manifest).await?;
        let answer = prediction::of_pod(&report, &self.scenario.name, &expected.name)?;
        self.compare(expected, answer).await.with_context(|| format!("pod {}", expected.name))
    }

    async fn compare(&self, expected: &'a Expected, answer: &Value) -> Result<()> {
        let is_refused = answer["outcome"] != "Allocated";
        if self.is_served {
            ensure!(expected.refused.is_some() == is_refused, "is not what the scenario is to show: {answer}");
        }
        self.pods.set(self.pods.get() + 1);
        if is_refused {
            return self.is_refused(expected, answer).await;
        }
        let predicted = outcome::predicted(answer)?;
        if self.is_served {
            outcome::is_as_the_scenario_says(expected, &predicted)?;
        }
        let pod = if expected.conditions.is_empty() {
            self.bound(&expected.name).await?
        } else {
            self.allocated(&expected.name).await?
        };
        let mut given = Vec::new();
        for claim in self.claims_of(&pod).await? {
            given.push(outcome::given(&claim["status"]["allocation"])?);
        }
        ensure!(given == predicted, "predicted {}\ngiven     {}", json!(predicted), json!(given));
        self.node_resources(expected, answer, &pod)?;
        if !expected.conditions.is_empty() {
            ensure!(node_of(&pod).is_none(), "is bound before its conditions are there");
            self.set_conditions(expected, &pod).await?;
        }
        let pod = self.bound(&expected.name).await?;
        let node = node_of(&pod);
        ensure!(answer["node"].as_str() == node, "predicted on {}, bound to {node:?}", answer["node"]);
        let wanted = expected.node.as_deref().filter(|_| self.is_served);
        ensure!(wanted.is_none() || wanted == node, "is to be on {wanted:?}, not {node:?}");
        Ok(())
    }

    fn node_resources(&self, expected: &Expected, answer: &Value, pod: &Value) -> Result<()> {
        let predicted = outcome::quantities(&answer["nodeResources"])?;
        let given = outcome::charged(&pod["status"])?;
        ensure!(predicted == given, "predicted cost {predicted:?}, charged {given:?}");
        if self.is_served {
            let shown = outcome::quantities(&json!(expected.node_resources))?;
            ensure!(predicted == shown, "is to cost {shown:?}, and is predicted {predicted:?}");
        }
        Ok(())
    }

    /// The scheduler has tried the pod, said so, gone on to another one, and given nothing.
    async fn is_refused(&self, expected: &'a Expected, answer: &Value) -> Result<()> {
        if self.is_served {
            let wanted = expected.refused.as_deref();
            let nodes = answer["nodes"].as_array().map_or(&[][..], Vec::as_slice);
            let codes: Vec<&str> = nodes.iter().filter_map(|node| node["code"].as_str()).collect();
            let is_named = match answer["outcome"].as_str() {
                Some("Refused") => !codes.is_empty() && codes.iter().all(|code| Some(*code) == wanted),
                outcome => outcome == wanted,
            };
            ensure!(is_named, "is to be refused by {wanted:?}: {answer}");
        }
        // The scheduler may have tried the pod before all was there, and have said so first.
        let part = expected.event.as_deref().filter(|_| self.is_served).unwrap_or_default();
        eventually("an event about the refusal", DEADLINE, async || {
            let about = format!("involvedObject.name={},reason=FailedScheduling", expected.name);
            let api: Api<Event> = Api::namespaced(self.client.clone(), &self.scenario.name);
            let events = api.list(&ListParams::default().fields(&about)).await?.items;
            let said: Vec<String> = events.into_iter().filter_map(|event| event.message).collect();
            ensure!(said.iter().any(|event| event.contains(part)), "the scheduler says {said:?}, and not {part:?}");
            Ok(())
        })
        .await?;
        self.scheduler_has_caught_up().await?;
        self.has_no_devices(expected).await?;
        self.refused.borrow_mut().push(expected);
        Ok(())
    }

    async fn has_no_devices(&self, expected: &Expected) -> Result<()> {
        let pod = self.pod(&expected.name).await?;
        ensure!(node_of(&pod).is_none(), "{} was predicted to get nothing, and is bound", expected.name);
        if expected.stranded {
            return Ok(());
        }
        for claim in self.made_claims_of(&pod).await? {
            let consumers = claim["status"]["reservedFor"].as_array().into_iter().flatten();
            let is_reserved = consumers.into_iter().any(|consumer| consumer["name"] == expected.name.as_str());
            ensure!(!is_reserved, "{} was predicted to get nothing, and has {claim:#}", expected.name);
        }
        Ok(())
    }

    async fn bound(&self, name: &str) -> Result<Value> {
        eventually(&format!("pod {name} is bound"), DEADLINE, async || {
            let pod = self.pod(name).await?;
            let conditions = &pod["status"]["conditions"];
            ensure!(node_of(&pod).is_some(), "it waits: {conditions}");
            Ok(pod)
        })
        .await
    }

    async fn allocated(&self, name: &str) -> Result<Value> {
        eventually(&format!("pod {name} has its devices"), DEADLINE, async || {
            let pod = self.pod(name).await?;
            let claims = self.claims_of(&pod).await?;
            ensure!(claims.iter().all(|claim| !claim["status"]["allocation"].is_null()), "{claims:#?}");
            Ok(pod)
        })
        .await
    }

    /// Plays the driver.
    async fn set_conditions(&self, expected: &Expected, pod: &Value) -> Result<()> {
        for claim in self.claims_of(pod).await? {
            let name = claim["metadata"]["name"].as_str().context("a claim without a name")?;
            let devices: Vec<Value> = claim["status"]["allocation"]["devices"]["results"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|result| {
                    let conditions = expected.conditions.iter().map(|condition| {
                        json!({
                            "type": condition, "status": "True", "reason": "Test", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z",
                        })
                    });
                    json!({
                        "driver": result["driver"], "pool": result["pool"], "device": result["device"],
                        "conditions": conditions.collect::<Vec<_>>(),
                    })
                })
                .collect();
            let patch = Patch::Merge(json!({ "status": { "devices": devices } }));
            let api = self.api("resource.k8s.io", "v1", "ResourceClaim", Some(&self.scenario.name));
            api.patch_status(name, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    async fn evict(&self, by: &str, expected: &'a Expected) -> Result<()> {
        let rule = self.scenario.object(by)?;
        let manifest = self.scenario.object(&format!("Pod/{}", expected.name))?;
        let mut objects = self.objects().await?;
        objects.push(rule.clone());
        let report = self.predictor.ask(objects, pinned_to(manifest)).await?;
        let answer = prediction::of_pod(&report, &self.scenario.name, &expected.name)?;
        ensure!(!answer["evictedBy"].is_null(), "is not predicted to be evicted: {answer:#}");
        let before = self.pod(&expected.name).await?["metadata"]["uid"].clone();
        self.create(rule).await?;
        self.is_gone(&expected.name, &before).await?;
        self.create(manifest).await?;
        self.compare(expected, answer).await
    }

    async fn delete_pod(&self, name: &str) -> Result<()> {
        let uid = self.pod(name).await?["metadata"]["uid"].clone();
        let api = self.api("", "v1", "Pod", Some(&self.scenario.name));
        api.delete(name, &DeleteParams::default()).await?;
        self.is_gone(name, &uid).await?;
        self.refused.borrow_mut().retain(|refused| refused.name != name);
        Ok(())
    }

    /// Waits until a pod and all that it held is gone.
    async fn is_gone(&self, name: &str, uid: &Value) -> Result<()> {
        eventually(&format!("pod {name} is gone"), DEADLINE, async || {
            let api = self.api("", "v1", "Pod", Some(&self.scenario.name));
            let left = api.get_opt(name).await?.and_then(|pod| pod.metadata.uid);
            ensure!(left.as_deref() != uid.as_str(), "it is there");
            let claims = self.list("resource.k8s.io", "v1", "ResourceClaim", Some(&self.scenario.name)).await?;
            for claim in claims.unwrap_or_default() {
                let users = [&claim["metadata"]["ownerReferences"], &claim["status"]["reservedFor"]];
                let mut users = users.into_iter().filter_map(Value::as_array).flatten();
                ensure!(!users.any(|user| user["uid"] == *uid), "its claim {} is there", id_of(&claim));
            }
            Ok(())
        })
        .await
    }

    /// The claims behind a pod's entries, in their order, then that for its extended resources.
    async fn claims_of(&self, pod: &Value) -> Result<Vec<Value>> {
        let claims = self.made_claims_of(pod).await?;
        let entries = pod["spec"]["resourceClaims"].as_array().map_or(0, Vec::len);
        let extended = usize::from(pod["status"]["extendedResourceClaimStatus"].is_object());
        ensure!(claims.len() == entries + extended, "{} of {entries} + {extended} claims are made", claims.len());
        Ok(claims)
    }

    /// Those of the pod's claims that exist.
    async fn made_claims_of(&self, pod: &Value) -> Result<Vec<Value>> {
        let namespace = Some(self.scenario.name.as_str());
        let group = match pod["spec"]["schedulingGroup"]["podGroupName"].as_str() {
            Some(name) => {
                let version = self.predictor.kubernetes.pod_group_version();
                let groups = self.list("scheduling.k8s.io", version, "PodGroup", namespace).await?;
                let of_name = |group: &Value| group["metadata"]["name"] == name;
                groups.unwrap_or_default().into_iter().find(of_name).unwrap_or_default()
            }
            None => Value::Null,
        };
        let made_for = |entry: &Value| -> Option<String> {
            let statuses = [&pod["status"], &group["status"]].map(|status| status["resourceClaimStatuses"].as_array());
            let mut statuses = statuses.into_iter().flatten().flatten();
            let made = statuses.find(|status| status["name"] == entry["name"]);
            let name = entry["resourceClaimName"].as_str().or_else(|| made?["resourceClaimName"].as_str());
            name.map(str::to_owned)
        };
        let entries = pod["spec"]["resourceClaims"].as_array().into_iter().flatten();
        let extended = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"].as_str();
        let names = entries.filter_map(made_for).chain(extended.map(str::to_owned)).collect::<Vec<_>>();
        let api = self.api("resource.k8s.io", "v1", "ResourceClaim", namespace);
        let mut claims = Vec::new();
        for name in names {
            if let Some(claim) = api.get_opt(&name).await? {
                claims.push(serde_json::to_value(claim)?);
            }
        }
        Ok(claims)
    }

    async fn pod(&self, name: &str) -> Result<Value> {
        let api = self.api("", "v1", "Pod", Some(&self.scenario.name));
        Ok(serde_json::to_value(api.get(name).await?)?)
    }

    /// Everything that devices depend on, as the server has it now.
    async fn objects(&self) -> Result<Vec<Value>> {
        let of_scenario = Some(self.scenario.name.as_str());
        let read = self.scenario.read.as_str();
        let kubernetes = self.predictor.kubernetes;
        let mut objects = vec![self.scenario.namespace.clone()];
        for (group, version, kind, namespace) in [
            ("", "v1", "Node", None),
            ("", "v1", "Pod", of_scenario),
            ("resource.k8s.io", read, "DeviceClass", None),
            ("resource.k8s.io", read, "ResourceSlice", None),
            ("resource.k8s.io", read, "ResourceClaim", of_scenario),
            ("resource.k8s.io", read, "ResourceClaimTemplate", of_scenario),
            ("resource.k8s.io", kubernetes.taint_rule_version(), "DeviceTaintRule", None),
            ("scheduling.k8s.io", kubernetes.pod_group_version(), "PodGroup", of_scenario),
        ] {
            let listed = self.list(group, version, kind, namespace).await?.unwrap_or_default();
            let is_ours =
                |object: &Value| kind != "Node" || self.scenario.nodes().any(|node| object["metadata"]["name"] == node);
            objects.extend(listed.into_iter().filter(is_ours));
        }
        Ok(objects)
    }

    /// None if the server does not serve it.
    async fn list(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> Result<Option<Vec<Value>>> {
        let listed = match self.api(group, version, kind, namespace).list(&ListParams::default()).await {
            Ok(listed) => listed,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let whole = |object: DynamicObject| {
            let mut object = serde_json::to_value(object)?;
            object["apiVersion"] = json!(api_version);
            object["kind"] = json!(kind);
            Ok(object)
        };
        listed.items.into_iter().map(whole).collect::<Result<Vec<Value>>>().map(Some)
    }

    fn api(&self, group: &str, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    async fn create(&self, object: &Value) -> Result<()> {
        let kept = create(&self.client, object, &PostParams::default()).await.with_context(|| id_of(object))?;
        let dropped = served::dropped(object, &kept);
        ensure!(dropped.is_empty(), "{}: the server drops {}", id_of(object), dropped.join(", "));
        Ok(())
    }

    async fn create_or_change(&self, object: &Value) -> Result<()> {
        match create(&self.client, object, &PostParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let name = object["metadata"]["name"].as_str().context("no name")?;
                let api = api_of(&self.client, object)?;
                api.patch(name, &PatchParams::default(), &Patch::Merge(object)).await?;
                Ok(())
            }
            result => result.map(drop).with_context(|| id_of(object)),
        }
    }

    async fn node_is_ready(&self, name: &str) -> Result<()> {
        eventually(&format!("node {name} is ready"), DEADLINE, async || {
            let node = serde_json::to_value(self.api("", "v1", "Node", None).get(name).await?)?;
            let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            let is_ready =
                conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
            let taints = &node["spec"]["taints"];
            ensure!(is_ready && taints.is_null(), "ready: {is_ready}, taints: {taints}");
            Ok(())
        })
        .await
    }

    fn marker_class(&self) -> Value {
        let name = format!("{}-marker", self.scenario.name);
        let expression = format!("device.driver == \"marker.{}.test\"", self.scenario.name);
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": name },
            "spec": { "selectors": [{ "cel": { "expression": expression } }] },
        })
    }

    /// Has the scheduler place a pod on a device that was published just now: what was written before, it has seen, and
    /// pods that came before have had their turn.
    async fn scheduler_has_caught_up(&self) -> Result<()> {
        let number = self.markers.get() + 1;
        self.markers.set(number);
        let (scenario, name) = (&self.scenario.name, format!("marker-{number}"));
        let node = self.scenario.nodes().next().context("no Node")?;
        let class = format!("{scenario}-marker");
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("{class}-{number}") },
            "spec": {
                "driver": format!("marker.{scenario}.test"), "nodeName": node,
                "pool": { "name": format!("{node}-{number}"), "generation": 1, "resourceSliceCount": 1 },
                "devices": [{ "name": "marker" }],
            },
        });
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": { "name": name, "namespace": scenario },
            "spec": { "devices": { "requests": [{ "name": "marker", "exactly": { "deviceClassName": class } }] } },
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": scenario },
            "spec": {
                "nodeSelector": { "kubernetes.io/hostname": node },
                "terminationGracePeriodSeconds": 0,
                "resourceClaims": [{ "name": "marker", "resourceClaimName": name }],
                "containers": [{
                    "name": "main", "image": "example.org/main", "resources": { "claims": [{ "name": "marker" }] },
                }],
            },
        });
        for object in [&slice, &claim, &pod] {
            self.create(object).await?;
        }
        self.bound(&name).await.map(drop)
    }
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty())
}

/// The node that a manifest wants by name.
fn pinned_to(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeSelector"]["kubernetes.io/hostname"].as_str()
}

fn api_of(client: &Client, object: &Value) -> Result<Api<DynamicObject>> {
    let text = |field: &str| object[field].as_str().with_context(|| format!("{} has no {field}", id_of(object)));
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Ok(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// Creates an object, and gives it as the server keeps it.
pub(super) async fn create(client: &Client, object: &Value, parameters: &PostParams) -> kube::Result<Value> {
    let api = match api_of(client, object) {
        Ok(api) => api,
        Err(error) => return Err(kube::Error::Service(error.into())),
    };
    let sent: DynamicObject = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    let kept = api.create(parameters, &sent).await?;
    serde_json::to_value(kept).map_err(kube::Error::SerdeError)
}
