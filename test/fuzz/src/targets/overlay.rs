//! A NodeOverlay is admitted and checked or refused; what its templates yield on a machine can be published as it is,
//! and the allocator takes it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use api::admission::{Admission, Operation};
use dra_templates::Expansion;
use dra_templates::layout::{Host, pool_name, slices};
use dra_types::ResourceSlice;
use overlay::Overlay;
use serde_json::Value;

use super::offline::TYPES;

static ADMISSION: LazyLock<Admission> =
    LazyLock::new(|| Admission::new(&api::crd::crds()).expect("our own CRDs are supported"));

pub(crate) fn run(bytes: &[u8]) {
    let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return };
    if object["kind"] != "NodeOverlay" || !object["metadata"].is_object() {
        return;
    }
    let admitted = match ADMISSION.admit(&object, Operation::Create) {
        Ok(admitted) => admitted,
        Err(errors) => return assert!(!errors.is_empty()),
    };
    let Ok(object) = decode::node_overlay_object(&admitted) else { return };
    let Ok(overlay) = Overlay::new(&object, &TYPES.labels) else { return };
    for machine in &TYPES.few {
        let Ok(expansion) =
            Expansion::new(&overlay.dynamic_resources, &|key| machine.certain_label(key).map(str::to_owned))
        else {
            continue;
        };
        let labels: BTreeMap<String, String> =
            [("zone".to_owned(), "a".to_owned())].into_iter().chain(certain_labels(machine)).collect();
        let host = Host { node_name: "node-1", labels: &labels };
        for pool in &expansion.pools {
            let Ok(published) = slices(pool, host) else { continue };
            for slice in published {
                let read = ResourceSlice::from_json(&slice);
                assert!(read.is_ok(), "pool {} cannot be published: {read:?}\n{slice}", pool_name(pool, host));
            }
        }
        let templates = expansion.templates();
        let devices = |templates: &dra_sched::Templates| {
            let own = templates.own.iter().map(|template| template.devices.len()).sum::<usize>();
            own + templates.shared.iter().map(|shared| shared.template.devices.len()).sum::<usize>()
        };
        assert_eq!(devices(&templates), expansion.device_counts().values().sum::<usize>());
    }
}

/// The labels that every machine of the type has.
fn certain_labels(machine: &cloudprovider::InstanceType) -> impl Iterator<Item = (String, String)> {
    let keys = [api::labels::INSTANCE_TYPE, api::labels::ARCH, api::labels::OS];
    keys.into_iter().filter_map(|key| Some((key.to_owned(), machine.certain_label(key)?.to_owned())))
}
