//! What the drivers of running machines have published, held against the overlays that describe them now.
//!
//! A NodeClaim keeps what was found when its machine came up. This here follows the overlay: whoever corrects one sees
//! at once whether it has become right. Machines that are still coming up have no part.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::conditions::node_claim::INITIALIZED;
use api::{NodeClaim, labels};
use dra_templates::Expansion;
use dra_types::{NodeScope, ResourceSlice};
use k8s_openapi::api::core::v1::Node;
use model::{NodeName, NodeOverlayName};

use crate::world::overlays::Outcome;
use crate::world::{claim, machine_devices};

/// A machine that has a Node.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) claim: Arc<NodeClaim>,
    pub(super) node: Arc<Node>,
}

/// What was found on the machines that an overlay describes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Machines {
    /// How many there are.
    pub(super) count: usize,
    /// On how many something differs.
    different: usize,
    /// The first difference, with its NodeClaim.
    first: String,
}

impl Machines {
    pub(super) fn are_as_described(&self) -> bool {
        self.different == 0
    }

    /// `1 of 3 machines differs; nodeclaim/a: gpu.example.com: device gpu-0 was not published`.
    pub(super) fn in_words(&self) -> String {
        let Self { count, different, first } = self;
        let machines = if *count == 1 { "machine" } else { "machines" };
        if *different == 0 {
            let are = if *count == 1 { "is" } else { "are" };
            return format!("{count} {machines} {are} as described");
        }
        let differ = if *different == 1 { "differs" } else { "differ" };
        format!("{different} of {count} {machines} {differ}; {first}")
    }
}

/// Looks at every machine that is up, in the order of the names of their NodeClaims. Overlays without machines have no
/// entry.
pub(super) fn look(
    outcome: &Outcome,
    machines: &[Machine],
    slices: &[Arc<ResourceSlice>],
) -> BTreeMap<NodeOverlayName, Machines> {
    let mut local: BTreeMap<&NodeName, Vec<&ResourceSlice>> = BTreeMap::new();
    let mut shared: Vec<&ResourceSlice> = Vec::new();
    for slice in slices {
        match &slice.node_scope {
            Some(NodeScope::Node(name)) => local.entry(name).or_default().push(slice),
            Some(NodeScope::Selector(_) | NodeScope::AllNodes | NodeScope::PerDevice) | None => shared.push(slice),
        }
    }
    let mut ordered: Vec<&Machine> = machines.iter().filter(|it| claim::is(&it.claim, INITIALIZED)).collect();
    ordered.sort_by(|a, b| claim::name(&a.claim).cmp(claim::name(&b.claim)));
    let mut found: BTreeMap<NodeOverlayName, Machines> = BTreeMap::new();
    for Machine { claim: node_claim, node } in ordered {
        let described = outcome.described_types.get(claim::node_pool(node_claim));
        let name = claim::label(node_claim, labels::INSTANCE_TYPE);
        let instance_type = described.and_then(|it| it.types.iter().find(|it| it.name.as_str() == name));
        let Some(resources) = instance_type.map(|it| &it.dynamic_resources) else { continue };
        let of_node = node.metadata.labels.as_ref();
        let label = |key: &str| of_node.and_then(|labels| labels.get(key)).cloned();
        let Ok(expansion) = Expansion::new(resources, &label) else { continue };
        let name = node.metadata.name.as_deref().map(NodeName::from);
        let of_machine = name.as_ref().and_then(|name| local.get(name)).into_iter().flatten().chain(&shared);
        let different = machine_devices::differences(&expansion, node, &of_machine.copied().collect::<Vec<_>>());
        // Templates bear the name of their overlay; the provider's bear none.
        let templates = resources.resource_slice_templates.iter();
        let by_overlay: BTreeMap<&str, Vec<&str>> = templates
            .filter_map(|template| Some((template.metadata.name.split_once('/')?.0, template.spec.driver.as_str())))
            .fold(BTreeMap::new(), |mut known, (overlay, driver)| {
                known.entry(overlay).or_insert_with(Vec::new).push(driver);
                known
            });
        for (overlay, drivers) in by_overlay {
            let machines = found.entry(overlay.into()).or_default();
            machines.count += 1;
            let first = drivers.iter().filter_map(|driver| different.get(*driver)).find_map(|texts| texts.first());
            if let Some(first) = first {
                if machines.different == 0 {
                    machines.first = format!("nodeclaim/{}: {first}", claim::name(node_claim));
                }
                machines.different += 1;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use cloudprovider_kwok::catalogue::default_instance_types;
    use overlay::evaluate::Corrected;
    use serde_json::{Value, json};

    use super::*;

    const TYPE: &str = "m-8x-amd64-linux";

    /// Instance types that overlay `mine` describes the GPUs of, and the provider the NICs.
    fn outcome() -> Outcome {
        let template = |name: &str, driver: &str| {
            json!({"metadata": {"name": name}, "spec": {"driver": driver, "devices": [
                {"name": "device-{index}", "replicas": 2, "attributes": {"model": {"string": "x1"}}}]}})
        };
        let resources = json!({"resourceSliceTemplates": [template("mine/gpus", "gpu"), template("nics", "nic")]});
        let mut of_type = default_instance_types().into_iter().find(|it| it.name == *TYPE).unwrap();
        of_type.dynamic_resources = serde_json::from_value(resources).unwrap();
        let corrected = Corrected { types: vec![Arc::new(of_type)], ..Corrected::default() };
        Outcome { described_types: BTreeMap::from([("pool".into(), Arc::new(corrected))]), ..Outcome::default() }
    }

    fn machine(name: &str, initialized: &str) -> Machine {
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "labels": {labels::NODEPOOL: "pool", labels::INSTANCE_TYPE: TYPE}},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}},
            "status": {"conditions": [{"type": "Initialized", "status": initialized, "reason": "r", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        let node = json!({"metadata": {"name": name, "labels": {labels::INSTANCE_TYPE: TYPE}}});
        let claim = Arc::new(serde_json::from_value(claim).unwrap());
        Machine { claim, node: Arc::new(serde_json::from_value(node).unwrap()) }
    }

    fn slice(node: &str, driver: &str, models: &[&str]) -> Arc<ResourceSlice> {
        let device = |(number, model): (usize, &&str)| json!({"name": format!("device-{number}"), "attributes": {"model": {"string": model}}});
        let devices: Vec<Value> = models.iter().enumerate().map(device).collect();
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-{driver}")},
            "spec": {"driver": driver, "nodeName": node, "devices": devices,
                     "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}},
        });
        Arc::new(ResourceSlice::from_json(&object).unwrap())
    }

    #[test]
    fn machines_that_differ_from_an_overlay_are_counted_and_the_first_difference_is_told() {
        let machines = [machine("c", "True"), machine("b", "True"), machine("a", "True"), machine("young", "Unknown")];
        let told = |slices: &[Arc<ResourceSlice>]| {
            let found = look(&outcome(), &machines, slices);
            assert_eq!(found.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["mine"]);
            found.into_values().next().unwrap().in_words()
        };
        let right = |node| slice(node, "gpu", &["x1", "x1"]);
        // The NICs are missing everywhere, but no overlay speaks of them.
        assert_eq!(told(&[right("a"), right("b"), right("c")]), "3 machines are as described");
        assert_eq!(
            told(&[right("a"), slice("b", "gpu", &["x1", "x2"]), right("c")]),
            "1 of 3 machines differs; nodeclaim/b: gpu: device device-1 has \"x2\" for attribute model, not \"x1\""
        );
        assert_eq!(
            told(&[slice("b", "gpu", &["x1"]), right("c")]),
            "2 of 3 machines differ; nodeclaim/a: gpu has not published its 2 device(s)"
        );
    }

    #[test]
    fn overlays_without_machines_have_nothing_to_tell() {
        assert_eq!(look(&outcome(), &[machine("young", "False")], &[]), BTreeMap::new());
        assert_eq!(look(&Outcome::default(), &[machine("a", "True")], &[]), BTreeMap::new());
    }
}
