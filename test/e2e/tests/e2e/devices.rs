//! Pods that claim devices get machines from an empty cluster: overlays say what drivers will publish, the plan counts
//! on it, and the real scheduler allocates what was planned.

use anyhow::{Context, Result, ensure};
use api::{NodeClaim, NodeOverlay};
use e2e::{Controller, eventually, install, objects};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE, node_of, shared};

const ROOT: &str = "resource.kubernetes.io/pcieRoot";

/// Machines of 8 CPUs in this corner have four GPUs and two NICs, a NIC and two GPUs on one PCIe root.
pub(crate) fn overlay(corner: &str) -> Value {
    let selector = |template: &str, device: &str| json!({ "resourceSliceTemplate": template, "device": device });
    let root = |gpus: [&str; 2], nic: &str| {
        let devices = [selector("gpus", gpus[0]), selector("gpus", gpus[1]), selector("nics", nic)];
        json!({ "attributes": [ROOT], "distinctGroups": true, "deviceSelectors": devices })
    };
    let gpu = json!({
        "name": "gpu-{index}", "replicas": 4,
        "attributes": { "model": { "string": "x1" } }, "capacity": { "memory": { "value": "80Gi" } },
    });
    json!({
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": { "name": corner },
        "spec": {
            "requirements": [
                { "key": api::labels::NODEPOOL, "operator": "In", "values": [corner] },
                { "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["8"] },
            ],
            "dynamicResources": {
                "resourceSliceTemplates": [
                    { "metadata": { "name": "gpus" }, "spec": { "driver": driver("gpu", corner), "devices": [gpu] } },
                    { "metadata": { "name": "nics" }, "spec": {
                        "driver": driver("nic", corner), "devices": [{ "name": "nic-{index}", "replicas": 2 }] } },
                ],
                "attributeBindings": [root(["gpu-0", "gpu-1"], "nic-0"), root(["gpu-2", "gpu-3"], "nic-1")],
            },
        },
    })
}

/// Drivers of different corners have nothing to do with each other.
pub(crate) fn driver(kind: &str, corner: &str) -> String {
    format!("{kind}.{corner}.example.com")
}

/// A class for each driver, and a template for two GPUs and a NIC under one root.
pub(crate) fn classes(corner: &str) -> Vec<Value> {
    let class = |kind: &str| {
        let expression = format!("device.driver == '{}'", driver(kind, corner));
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": format!("{kind}-{corner}") },
            "spec": { "selectors": [{ "cel": { "expression": expression } }] },
        })
    };
    let request = |name: &str, kind: &str, count: u32| json!({ "name": name, "exactly": { "deviceClassName": format!("{kind}-{corner}"), "count": count } });
    let template = |name: &str, devices: Value| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": { "name": name, "namespace": corner }, "spec": { "spec": { "devices": devices } },
        })
    };
    let aligned = json!({
        "requests": [request("gpus", "gpu", 2), request("nic", "nic", 1)],
        "constraints": [{ "requests": ["gpus", "nic"], "matchAttribute": ROOT }],
    });
    vec![
        class("gpu"),
        class("nic"),
        template("aligned", aligned),
        template("one", json!({ "requests": [request("gpu", "gpu", 1)] })),
    ]
}

/// A template for so many GPUs, in a request of that name.
pub(crate) fn gpus(corner: &str, name: &str, count: u32) -> Value {
    let request = json!({ "name": "gpus", "exactly": { "deviceClassName": format!("gpu-{corner}"), "count": count } });
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": { "name": name, "namespace": corner }, "spec": { "spec": { "devices": { "requests": [request] } } },
    })
}

pub(crate) fn pod(corner: &str, name: &str, template: &str) -> Value {
    let claims = json!([{ "name": "devices", "resourceClaimTemplateName": template }]);
    let spec = json!({ "resourceClaims": claims, "containers": [{
        "name": "main", "image": "example.org/main",
        "resources": { "requests": { "cpu": "500m" }, "claims": [{ "name": "devices" }] },
    }] });
    objects::with(objects::pod(corner, name, &json!({})), json!({ "spec": spec }))
}

/// The devices of each allocated claim, as `driver/pool/device`, by the pod that it is reserved for.
async fn allocations(corner: &Corner) -> Result<Vec<(String, Vec<String>)>> {
    let kind = ApiResource {
        group: "resource.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "resource.k8s.io/v1".to_owned(),
        kind: "ResourceClaim".to_owned(),
        plural: "resourceclaims".to_owned(),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(corner.client.clone(), &corner.name, &kind);
    let mut found = Vec::new();
    for claim in api.list(&Default::default()).await? {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pod = text(&claim.data["status"]["reservedFor"][0]["name"]);
        let results = claim.data["status"]["allocation"]["devices"]["results"].as_array().cloned().unwrap_or_default();
        let device = |it: &Value| [&it["driver"], &it["pool"], &it["device"]].map(text).join("/");
        found.push((pod, results.iter().map(device).collect()));
    }
    found.sort();
    Ok(found)
}

pub(crate) fn condition<'c>(claim: &'c NodeClaim, kind: &str) -> Option<(&'c str, &'c str, &'c str)> {
    let conditions = &claim.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((&found.status, &found.reason, &found.message))
}

#[tokio::test]
async fn pods_with_claims_get_machines_from_an_empty_cluster_and_the_devices_that_were_planned() -> Result<()> {
    let corner = Corner::shared_without_node_pool("devices").await?;
    let name = corner.name.as_str();
    corner.apply([overlay(name)]).await?;
    corner.apply(classes(name)).await?;
    // Three times two GPUs and a NIC: a machine has room for two of them, and the second one for two single GPUs. In
    // one plan: of several, the first could leave single GPUs on both.
    corner.apply(["a", "b", "c"].map(|pod_name| pod(name, pod_name, "aligned"))).await?;
    corner.apply(["d", "e"].map(|pod_name| pod(name, pod_name, "one"))).await?;
    corner.tried(5).await?;
    corner.node_pool(json!({})).await?;
    let overlays: Api<NodeOverlay> = Api::all(corner.client.clone());
    eventually("the overlay says what it describes", DEADLINE, async || {
        let conditions = overlays.get(name).await?.status.unwrap_or_default().conditions;
        let said = conditions.iter().find(|it| it.type_ == "ValidationSucceeded").context("no condition")?;
        let expected =
            format!("devices: 4 of {} on 12 instance types, 2 of {} on 12", driver("gpu", name), driver("nic", name));
        ensure!(said.status == "True" && said.message.starts_with(&expected), "{}", said.message);
        Ok(())
    })
    .await?;
    let pods = corner.bound(5).await?;
    let claims = corner.node_claims().await?;
    ensure!(claims.len() == 2, "{} machines", claims.len());
    check_allocations(&corner, &pods).await?;
    for claim in &claims {
        let devices = claim.annotations().get(api::annotations::DEVICES).context("no devices")?;
        ensure!(*devices == format!("{{\"{}\":4,\"{}\":2}}", driver("gpu", name), driver("nic", name)), "{devices}");
    }
    eventually("the devices are as described", DEADLINE, async || {
        for claim in corner.node_claims().await? {
            for kind in ["Initialized", "DevicesPublished", "DevicesAsDescribed"] {
                let found = condition(&claim, kind);
                ensure!(found.is_some_and(|(status, ..)| status == "True"), "{kind}: {found:?}");
            }
        }
        Ok(())
    })
    .await?;
    let message = "2 machines are as described";
    told(&corner.client, name, "DevicesAsDescribed", ("True", "DevicesAsDescribed", message)).await?;
    check_capture(name, node_of(&pods[0]).context("not bound")?).await
}

/// The overlay that is captured from a node describes what the overlay did that it was launched by.
async fn check_capture(corner: &str, node: &str) -> Result<()> {
    let cluster = &shared().await?.cluster;
    let binary = cluster.controller()?.binary;
    let mut command = std::process::Command::new(binary);
    command.args(["overlay", "capture", "--node", node, "-o", "json"]);
    command.env("KUBECONFIG", cluster.control_plane.kubeconfig());
    let ran = tokio::task::spawn_blocking(move || command.output()).await??;
    ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let captured: Value = serde_json::from_slice(&ran.stdout)?;
    let resources = &captured["spec"]["dynamicResources"];
    let templates = resources["resourceSliceTemplates"].as_array().context("no templates")?;
    let described: Vec<_> = templates.iter().map(|it| (&it["spec"]["driver"], &it["spec"]["devices"])).collect();
    let gpu = json!({
        "name": "gpu-{index}", "replicas": 4,
        "attributes": { "model": { "string": "x1" } }, "capacity": { "memory": { "value": "80Gi" } },
    });
    let expected =
        [(driver("gpu", corner), gpu), (driver("nic", corner), json!({ "name": "nic-{index}", "replicas": 2 }))];
    for ((driver, devices), (expected_driver, device)) in described.iter().zip(&expected) {
        ensure!(**driver == json!(expected_driver) && **devices == json!([device]), "{captured:#}");
    }
    let bindings = resources["attributeBindings"].as_array().context("no bindings")?;
    let names = |binding: &Value| -> Vec<String> {
        let selectors = binding["deviceSelectors"].as_array().cloned().unwrap_or_default();
        selectors.iter().map(|it| it["device"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let bound: Vec<Vec<String>> = bindings.iter().map(names).collect();
    ensure!(
        templates.len() == 2 && bound == [["gpu-0", "gpu-1", "nic-0"], ["gpu-2", "gpu-3", "nic-1"]],
        "{captured:#}"
    );
    Ok(())
}

/// Each claim is allocated on its pod's machine, and the aligned ones under one root.
async fn check_allocations(corner: &Corner, pods: &[Pod]) -> Result<()> {
    let allocations = allocations(corner).await?;
    ensure!(allocations.len() == pods.len(), "{allocations:?}");
    for pod in pods {
        let (_, devices) = allocations.iter().find(|(of, _)| *of == pod.name_any()).with_context(|| pod.name_any())?;
        let node = node_of(pod).context("not bound")?;
        ensure!(devices.iter().all(|device| device.split('/').nth(1) == Some(node)), "{node}: {devices:?}");
        let number = |device: &String| device.rsplit('-').next().and_then(|number| number.parse::<usize>().ok());
        if let [one, other, nic] = devices.as_slice() {
            let roots = [number(one).map(|it| it / 2), number(other).map(|it| it / 2), number(nic)];
            ensure!(roots[0] == roots[1] && roots[1] == roots[2], "{devices:?}");
        }
    }
    Ok(())
}

/// Waits until an overlay's condition has that status, reason and message.
pub(crate) async fn told(client: &kube::Client, overlay: &str, kind: &str, expected: (&str, &str, &str)) -> Result<()> {
    let overlays: Api<NodeOverlay> = Api::all(client.clone());
    eventually(&format!("{overlay} says {kind}={}", expected.0), DEADLINE, async || {
        let conditions = overlays.get(overlay).await?.status.unwrap_or_default().conditions;
        let found = conditions.iter().find(|it| it.type_ == kind).context("no condition")?;
        let is_expected = (found.status.as_str(), found.reason.as_str()) == (expected.0, expected.1)
            && found.message.contains(expected.2);
        ensure!(is_expected, "{found:?}");
        Ok(())
    })
    .await
}

/// Makes DRA drivers of fake machines misbehave.
pub(crate) fn faults(drivers: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "dovetail-kwok-faults", "namespace": install::INSTANCES_NAMESPACE },
        "data": { "faults.json": json!({ "drivers": drivers }).to_string() },
    })
}

#[tokio::test]
async fn a_machine_that_waits_for_its_drivers_says_so_in_karpenters_words() -> Result<()> {
    let cluster = Cluster::new("device-wait").await?;
    let corner = Corner::new(cluster.client().await?, "device-wait").await?;
    let name = corner.name.as_str();
    let never = json!({ "target": { "nodePool": name }, "publishes": "never" });
    corner.apply([faults(json!([never])), overlay(name)]).await?;
    corner.apply(classes(name)).await?;
    corner.apply([pod(name, "first", "one")]).await?;
    let controller = Controller::start_ready(&cluster.controller()?.env("KWOK_READ_FAULTS", "true")).await?;
    waits_for(&corner, &["gpu"]).await?;
    // There is room for it on the machine that is under way.
    corner.apply([pod(name, "later", "aligned")]).await?;
    waits_for(&corner, &["gpu", "nic"]).await?;
    corner.apply([faults(json!([]))]).await?;
    corner.bound(2).await?;
    let claims = corner.node_claims().await?.len();
    ensure!(claims == 1, "{claims} machines");
    controller.terminate().await.map(drop)
}

/// Drivers of so many kinds are noted on the one machine, and the message names them and no others.
async fn waits_for(corner: &Corner, kinds: &[&str]) -> Result<()> {
    let name = corner.name.as_str();
    eventually("the machine waits for its drivers", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let claim = claims.first().context("no NodeClaim")?;
        let drivers = claim.annotations().get("karpenter.sh/requested-dra-drivers").context("no annotation")?;
        let expected: Vec<String> = kinds.iter().map(|kind| driver(kind, name)).collect();
        ensure!(*drivers == expected.join(","), "{drivers}");
        let found = condition(claim, "Initialized").context("no condition")?;
        ensure!((found.0, found.1) == ("Unknown", "DRADriverPoolsNotPublished"), "{found:?}");
        for kind in ["gpu", "nic"] {
            ensure!(found.2.contains(&driver(kind, name)) == kinds.contains(&kind), "{found:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn nobody_waits_for_a_driver_that_is_described_and_neither_installed_nor_claimed() -> Result<()> {
    let cluster = Cluster::new("device-unasked").await?;
    let corner = Corner::new(cluster.client().await?, "device-unasked").await?;
    let name = corner.name.as_str();
    let (gpu, nic) = (driver("gpu", name), driver("nic", name));
    corner.apply([faults(json!([{ "driver": nic, "publishes": "never" }])), overlay(name)]).await?;
    corner.apply(classes(name)).await?;
    corner.apply([pod(name, "one", "one")]).await?;
    let controller = Controller::start_ready(&cluster.controller()?.env("KWOK_READ_FAULTS", "true")).await?;
    // Long before the timeout for drivers, which is 15 minutes.
    corner.bound(1).await?;
    eventually("the machine is ready with what its pod claims", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let [claim] = claims.as_slice() else { anyhow::bail!("{} machines", claims.len()) };
        let annotation = |key: &str| claim.annotations().get(key).map(String::as_str);
        ensure!(annotation("karpenter.sh/requested-dra-drivers") == Some(gpu.as_str()), "{:?}", claim.annotations());
        let devices = annotation(api::annotations::DEVICES).context("no devices")?;
        ensure!(devices == format!("{{\"{gpu}\":4,\"{nic}\":2}}"), "{devices}");
        for kind in ["Initialized", "DevicesPublished", "DevicesAsDescribed"] {
            let found = condition(claim, kind);
            ensure!(found.is_some_and(|(status, ..)| status == "True"), "{kind}: {found:?}");
        }
        Ok(())
    })
    .await?;
    let slices: Api<k8s_openapi::api::resource::v1::ResourceSlice> = Api::all(corner.client.clone());
    let published = slices.list(&ListParams::default()).await?;
    let drivers: Vec<&str> = published.iter().map(|slice| slice.spec.driver.as_str()).collect();
    ensure!(drivers.contains(&gpu.as_str()) && !drivers.contains(&nic.as_str()), "{drivers:?}");
    controller.terminate().await.map(drop)
}

#[tokio::test]
async fn drivers_that_publish_nothing_part_or_something_else_are_told_and_pods_are_planned_anew() -> Result<()> {
    let cluster = Cluster::new("device-faults").await?;
    let client = cluster.client().await?;
    // Drivers that are well must have published by then, also on a busy computer.
    let options = cluster.controller()?.env("DRA_PUBLISH_TIMEOUT", "12s").env("KWOK_READ_FAULTS", "true");
    let (silent, partial, wrong) = ("silent-driver", "partial-driver", "wrong-driver");
    let fault = |name: &str, publishes: &str| json!({ "target": { "nodePool": name }, "driver": driver("gpu", name), "publishes": publishes });
    let all = json!([fault(silent, "never"), fault(partial, "partly"), fault(wrong, "wrong")]);
    e2e::apply::apply(&client, [faults(all)]).await?;
    // All of this is there before the controller, which lists it and does not see it come.
    let mut corners = Vec::new();
    for name in [silent, partial, wrong] {
        let corner = Corner::new(client.clone(), name).await?;
        corner.apply([overlay(name)]).await?;
        corner.apply(classes(name)).await?;
        corner.apply([pod(name, "one", "one")]).await?;
        corners.push(corner);
    }
    let controller = Controller::start_ready(&options).await?;
    let [of_silent, of_partial, of_wrong] = corners.as_slice() else { anyhow::bail!("three corners") };
    tells_a_difference(of_wrong).await?;
    // Machine after machine of every type that an overlay describes would be launched, were failures not counted.
    let message = format!("{} has a pool of which slices are missing", driver("gpu", partial));
    gives_up_on(of_partial, &message).await?;
    let message = format!("{} has not published its 4 device(s)", driver("gpu", silent));
    gives_up_on(of_silent, &message).await?;
    eventually("the pod is planned anew", DEADLINE, async || {
        let claims = of_silent.node_claims().await?.len();
        ensure!(claims >= 2, "{claims} NodeClaims");
        Ok(())
    })
    .await?;
    told(&client, silent, "DevicesAsDescribed", ("False", "Mismatch", &message)).await?;
    e2e::apply::apply(&client, [faults(json!([]))]).await?;
    of_silent.bound(1).await?;
    eventually("each of the three is counted", DEADLINE, async || {
        let mismatches = controller.metric("dovetail_device_mismatches_total")?;
        ensure!(mismatches >= 3.0, "{mismatches}");
        Ok(())
    })
    .await?;
    controller.terminate().await.map(drop)
}

/// Another device than described: on the NodeClaim, as an event, and on the overlay.
async fn tells_a_difference(corner: &Corner) -> Result<()> {
    corner.bound(1).await?;
    let gpu = driver("gpu", &corner.name);
    let first = format!("{gpu}: device gpu-0 has \"unexpected\" for attribute model, not \"x1\"");
    let claim = eventually("the difference is told", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let claim = claims.first().context("no NodeClaim")?;
        let found = condition(claim, "DevicesAsDescribed").context("no condition")?;
        ensure!((found.0, found.1) == ("False", "Mismatch") && found.2.starts_with(&first), "{found:?}");
        ensure!(found.2.contains("device gpu-3 was not published"), "{found:?}");
        let events = corner.events(&claim.name_any()).await?;
        ensure!(events.iter().any(|event| event.starts_with("DevicesDiffer: ")), "{events:#?}");
        Ok(claim.name_any())
    })
    .await?;
    let message = format!("1 of 1 machine differs; nodeclaim/{claim}: {first}");
    told(&corner.client, &corner.name, "DevicesAsDescribed", ("False", "Mismatch", &message)).await
}

/// Devices that are not all there in time: on the NodeClaim, which is initialized nevertheless, and as an event.
async fn gives_up_on(corner: &Corner, message: &str) -> Result<()> {
    eventually("the time-out is told", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let timed_out = |claim: &&NodeClaim| {
            condition(claim, "DevicesPublished").is_some_and(|found| found == ("False", "Timeout", message))
        };
        let claim = claims.iter().find(timed_out).with_context(|| format!("of {} none timed out", claims.len()))?;
        ensure!(condition(claim, "Initialized").is_some_and(|(status, ..)| status == "True"), "not initialized");
        let events = corner.events(&claim.name_any()).await?;
        let expected = format!("DevicesNotPublished: its devices are not there after 12s: {message}");
        ensure!(events.contains(&expected), "{events:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn overlays_that_contradict_each_other_or_themselves_say_so() -> Result<()> {
    let corner = Corner::shared("device-overlays").await?;
    let name = corner.name.as_str();
    let named = |suffix: &str, templates: Value| {
        let mut overlay = overlay(name);
        overlay["metadata"]["name"] = json!(format!("{name}-{suffix}"));
        overlay["spec"]["dynamicResources"] = json!({ "resourceSliceTemplates": templates });
        overlay
    };
    let template = |driver: String, device: Value| json!([{ "metadata": { "name": "t" }, "spec": { "driver": driver, "devices": [device] } }]);
    let model = |model: &str| json!({ "name": "gpu-0", "attributes": { "model": { "string": model } } });
    let draws = json!([{ "counterSet": "all", "counters": { "memory": { "value": "1" } } }]);
    corner
        .apply([
            named("a", template(driver("gpu", name), model("x1"))),
            named("b", template(driver("gpu", name), model("x2"))),
            named("counters", template(driver("mig", name), json!({ "name": "slice-0", "consumesCounters": draws }))),
        ])
        .await?;
    let valid = "ValidationSucceeded";
    let message = format!("devices: 1 of {} on 12 instance types", driver("gpu", name));
    told(&corner.client, &format!("{name}-b"), valid, ("True", valid, &message)).await?;
    let message = format!(
        "conflict with another overlay: nodeoverlay/{name}-b of equal weight also sets the devices of {} of instance type",
        driver("gpu", name)
    );
    told(&corner.client, &format!("{name}-a"), valid, ("False", "Conflict", &message)).await?;
    let message = format!(
        "spec.dynamicResources.driver {}: device slice-0 consumes counter memory of counter set all, which the pool does not have",
        driver("mig", name)
    );
    told(&corner.client, &format!("{name}-counters"), valid, ("False", "RuntimeValidation", &message)).await
}

#[tokio::test]
async fn a_pod_whose_claim_no_template_can_meet_learns_why() -> Result<()> {
    let corner = Corner::shared("device-unmet").await?;
    let name = corner.name.as_str();
    corner.apply([overlay(name)]).await?;
    corner.apply(classes(name)).await?;
    corner.apply([gpus(name, "five", 5), pod(name, "greedy", "five")]).await?;
    eventually("the pod learns why", DEADLINE, async || {
        let events = corner.events("greedy").await?;
        let needs =
            format!("needs 5 of gpu-{name} (claim devices, request gpus); 12 of 144 instance types have a template");
        let parts = [
            "without the devices it claims",
            "request gpus: 4 of 6 devices are usable, 5 wanted",
            &needs,
            "too few of them",
        ];
        let tells = |event: &String| parts.iter().all(|part| event.contains(part));
        ensure!(events.iter().any(tells), "{events:#?}");
        Ok(())
    })
    .await?;
    ensure!(corner.node_claims().await?.is_empty(), "no machine would help");
    Ok(())
}

/// Two GPUs that a driver publishes for a node though nobody said that it would.
fn unexpected_slice(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("{name}-{node}") },
        "spec": {
            "driver": driver("gpu", name), "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            "devices": [{ "name": "gpu-0", "attributes": { "model": { "string": "x1" } } },
                        { "name": "gpu-1", "attributes": { "model": { "string": "x1" } } }],
        },
    })
}

#[tokio::test]
async fn what_a_machine_published_unasked_is_learnt_and_steps_back_before_a_persons_overlay() -> Result<()> {
    let cluster = Cluster::new("device-learning").await?;
    let client = cluster.client().await?;
    let options = cluster.controller()?.env("LEARN_DEVICES", "apply");
    cluster.more_rights(&["settings.learnDevices=apply"]).await?;
    let controller = Controller::start_ready(&options).await?;
    let name = "learner";
    let corner = Corner::new(client.clone(), name).await?;
    corner.apply([objects::pod(name, "plain", &json!({ "cpu": "1" }))]).await?;
    let pods = corner.bound(1).await?;
    let node = pods.first().and_then(node_of).context("a node")?.to_owned();
    corner.apply([unexpected_slice(name, &node)]).await?;
    let overlays: Api<NodeOverlay> = Api::all(client.clone());
    let generated = eventually("an overlay is generated", DEADLINE, async || {
        let all = overlays.list(&ListParams::default().labels(&format!("{}=true", api::labels::GENERATED))).await?;
        all.items.into_iter().next().context("no generated overlay")
    })
    .await?;
    let claims = corner.node_claims().await?;
    let claim = claims.first().context("a NodeClaim")?;
    let is_told = |event: &str| event.starts_with("DevicesNotDescribed: ");
    corner.event("its devices are not described", &claim.name_any(), is_told).await?;
    let generated_name = generated.name_any();
    let says = format!("2 of {} on 1 instance type", driver("gpu", name));
    told(&client, &generated_name, "ValidationSucceeded", ("True", "ValidationSucceeded", &says)).await?;

    // The second of two such pods has no place on the machine that is there.
    corner.apply(classes(name)).await?;
    corner.apply([gpus(name, "both", 2), pod(name, "first", "both"), pod(name, "second", "both")]).await?;
    corner.bound(3).await?;
    ensure!(corner.node_claims().await?.len() == 2, "one more machine, of what was learnt");

    let mut mine = serde_json::to_value(&generated.spec)?;
    mine["dynamicResources"]["resourceSliceTemplates"][0]["spec"]["devices"][0]["attributes"] = json!({});
    let mine = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": "a-persons" }, "spec": mine,
    });
    corner.apply([mine]).await?;
    eventually("the generated overlay is gone", DEADLINE, async || {
        ensure!(overlays.get_opt(&generated_name).await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    told(&client, "a-persons", "ValidationSucceeded", ("True", "ValidationSucceeded", &says)).await?;
    controller.terminate().await.map(drop)
}
