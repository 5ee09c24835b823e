//! Machines with GPUs, and pods that claim them.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use bench::catalogues;
use cloudprovider::{CapacityType, InstanceType, Offering};
use model::quantity::Format;
use model::{PriceNanoUsdPerHour, Quantity};
use seeded_random::Random;
use serde_json::{Value, json};

use crate::case::{Case, NAMESPACE};
use crate::cases::pods::pod;

const DRIVER: &str = "gpu.example.com";
/// GPUs of a machine, and what it costs per hour in thousandths of a dollar. Each has 8 vCPUs and 32 GiB for a GPU.
const MACHINES: [(i64, i64); 4] = [(1, 1_000), (2, 1_980), (4, 3_920), (8, 7_760)];
/// So many GPUs are claimed at once, each as often as it is here.
const CLAIMED: [u64; 6] = [1, 1, 1, 2, 2, 4];

/// Adds the machines, and what claims refer to.
pub(super) fn add_to(case: &mut Case) -> Result<()> {
    for (gpus, price) in MACHINES {
        case.instance_types.push(instance_type(gpus, PriceNanoUsdPerHour(price * 1_000_000))?);
    }
    let object = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    };
    let selector = json!({"cel": {"expression": format!("device.driver == '{DRIVER}'")}});
    case.device_objects.push(object("DeviceClass", "gpu", json!({"selectors": [selector]})));
    for count in CLAIMED.into_iter().collect::<BTreeSet<_>>() {
        let request = json!({"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": count}});
        let spec = json!({"spec": {"devices": {"requests": [request]}}});
        case.device_objects.push(object("ResourceClaimTemplate", &template(count), spec));
    }
    Ok(())
}

fn template(gpus: u64) -> String {
    format!("gpus-{gpus}")
}

fn instance_type(gpus: i64, price: PriceNanoUsdPerHour) -> Result<InstanceType> {
    let mut of = catalogues::real_shaped().into_iter().find(|it| it.name.as_str() == "m7i.2xlarge");
    let of = of.as_mut().context("no type to begin with")?;
    let name = format!("gpu.{gpus}x");
    of.name = name.as_str().into();
    of.requirements.insert(api::labels::INSTANCE_TYPE.to_owned(), [name].into());
    let on_demand = |zone: &&str| Offering::new(zone, CapacityType::OnDemand, price);
    of.offerings = catalogues::ZONES.iter().map(on_demand).collect();
    for (resource, amount, format) in [
        (api::resources::CPU, 8 * gpus, Format::DecimalSi),
        (api::resources::MEMORY, (32 << 30) * gpus, Format::BinarySi),
        (api::resources::PODS, 110, Format::DecimalSi),
    ] {
        of.capacity.insert(resource.to_owned(), Quantity::from_i64(amount, format)?);
    }
    let devices = json!([{"name": "gpu-{index}", "replicas": gpus}]);
    let template = json!({"metadata": {"name": "gpus"}, "spec": {"driver": DRIVER, "devices": devices}});
    of.dynamic_resources = serde_json::from_value(json!({"resourceSliceTemplates": [template]}))?;
    Ok(of.clone())
}

/// What a machine of the type publishes.
pub(super) fn slices(node: &str, of: &InstanceType) -> Vec<Value> {
    let templates = of.dynamic_resources.resource_slice_templates.iter();
    let devices = templates.flat_map(|template| &template.spec.devices).filter_map(|device| device.replicas);
    let devices: Vec<Value> =
        devices.flat_map(|count| 0..count).map(|it| json!({"name": format!("gpu-{it}")})).collect();
    if devices.is_empty() {
        return Vec::new();
    }
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    vec![json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-gpus")},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices},
    })]
}

/// Pods that claim GPUs, each with between one and eight vCPUs for one.
pub(super) fn pods(count: usize, random: &mut Random) -> Vec<Value> {
    let mut one = || {
        let gpus = *random.pick(&CLAIMED);
        let (milli_cpu, memory_mib) = (1_000 * (1 + random.below(8)) * gpus, 4_096 * (1 + random.below(8)) * gpus);
        let spec = json!({"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": template(gpus)}]});
        // So that the kubelet's own part of a machine does not make the largest need a larger one.
        let mut pod = pod(json!({"app": "training"}), milli_cpu * 9 / 10, memory_mib * 8 / 10, spec);
        pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpus"}]);
        pod
    };
    (0..count).map(|_| one()).collect()
}
