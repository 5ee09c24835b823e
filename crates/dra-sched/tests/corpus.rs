//! Real objects of drivers: an allocation that was made is what we give too, and what cannot be aligned is refused with
//! the reason that a person needs.
//!
//! The objects are not part of the repository, see the crate `corpus`.

use std::path::Path;
use std::sync::Arc;

use dra_sched::explain::Explanation;
use dra_sched::{ClusterLedger, InventoryBuilder, Refusal, Verdict, allocate};
use dra_types::{Allocation, Compat, DeviceClass, DeviceId, KubernetesMinor, NodeFacts, ResourceClaim, ResourceSlice};
use model::Budget;
use serde_json::{Value, json};

const GPU_CLASS: &str = "gpu.nvidia.com";

fn read(folder: &Path, file: &str) -> Value {
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn class(name: &str, expression: &str) -> Arc<DeviceClass> {
    let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]}});
    Arc::new(DeviceClass::from_json(&object).unwrap())
}

fn gpus() -> Arc<DeviceClass> {
    class(GPU_CLASS, "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'")
}

fn node(name: &str) -> NodeFacts {
    NodeFacts { name: Some(name.into()), ..NodeFacts::default() }
}

fn builder(slices: &[ResourceSlice], classes: Vec<Arc<DeviceClass>>) -> InventoryBuilder {
    let mut builder = InventoryBuilder::new(Compat::new(KubernetesMinor::V1_36));
    slices.iter().for_each(|slice| builder.slice(Arc::new(slice.clone())));
    classes.into_iter().for_each(|class| builder.class(class));
    builder
}

#[test]
fn the_real_allocation_is_ours_once_the_devices_listed_before_it_are_taken() {
    const NAME: &str = "dra-sched, allocation of a real claim";
    let Some(folder) = corpus::open(NAME, "corpus/dra") else { return };
    const NODE: &str = "ip-192-168-153-160.ec2.internal";
    let slices = [
        "dranet/slice-gpu-efa.resourceslice-dranet-ip-192-168-153-160.ec2.internal-dra.net-zskw8.yaml",
        "nvidia-gpu/slice-gpu-efa.resourceslice-gpu-ip-192-168-153-160.ec2.internal-gpu.nvidia.com-xz4s4.yaml",
    ]
    .map(|file| ResourceSlice::from_json(&read(&folder, file)).unwrap());
    let efa = read(&folder, "dranet/class-gpu-efa.device-class-efa.networking.k8s.aws.yaml");
    let efa = Arc::new(DeviceClass::from_json(&efa).unwrap());
    let file = "dranet/claim-gpu-efa.resource-claim-nccl-test-dra-worker-0-gpu-efa-example.yaml";
    let claim = ResourceClaim::from_json(&read(&folder, file)).unwrap();
    let real: Allocation = claim.allocation.clone().unwrap();

    let mut builder = builder(&slices, vec![gpus(), efa]);
    let wanted = builder.claim_class("gpu-efa", &Arc::new(claim.spec), None);
    let inventory = builder.build();
    let mut ledger = ClusterLedger::default();
    let mut taken = 0;
    for slice in &slices {
        let given = real.results.iter().find(|result| result.device.driver == slice.driver).unwrap();
        let before = slice.devices.iter().take_while(|device| device.name != given.device.device);
        for device in before {
            let (driver, pool) = (slice.driver.clone(), slice.pool.name.clone());
            ledger.hold_device(&inventory, &DeviceId { driver, pool, device: device.name.clone() });
            taken += 1;
        }
    }
    assert!(taken > 0, "the real allocation is not that of an empty node");
    let verdict = allocate(&inventory, &node(NODE), &[wanted], &ledger, &mut Budget::new(10_000));
    let Verdict::Allocated { allocations, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!(allocations[0].results, real.results);
    assert_eq!(allocations[0].node_selector, real.node_selector);
    corpus::note(NAME, &format_args!("{} slices, {taken} devices taken before", slices.len()));
}

#[test]
fn a_gpu_and_a_nic_whose_pcie_roots_are_disjoint_are_refused_with_both_sets_of_roots() {
    const NAME: &str = "dra-sched, alignment that a real machine cannot give";
    let Some(folder) = corpus::open(NAME, "corpus/dra") else { return };
    const NODE: &str = "10.140.65.248";
    let slices = [
        "dranet/slice-BM.GPU.GB200-v3.4.resourceslice-dranet-10.140.65.248-dra.net-jb4n2.yaml",
        "nvidia-gpu/slice-BM.GPU.GB200-v3.4.resourceslice-gpu-10.140.65.248-gpu.nvidia.com-wgq4h.yaml",
    ]
    .map(|file| ResourceSlice::from_json(&read(&folder, file)).unwrap());
    let nics = class("dranet.net", "device.driver == 'dra.net' && device.attributes['dra.net'].rdma == true");
    let mut builder = builder(&slices, vec![gpus(), nics]);
    let aligned = |attribute: &str| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "aligned"},
        "spec": {"devices": {
            "requests": [
                {"name": "gpu", "exactly": {"deviceClassName": GPU_CLASS}},
                {"name": "nic", "exactly": {"deviceClassName": "dranet.net"}},
            ],
            "constraints": [{"matchAttribute": attribute}],
        }}})
    };
    let spec = ResourceClaim::from_json(&aligned("resource.kubernetes.io/pcieRoot")).unwrap().spec;
    let wanted = builder.claim_class("aligned", &Arc::new(spec), None);
    let inventory = builder.build();
    let ledger = ClusterLedger::default();
    let verdict = allocate(&inventory, &node(NODE), &[wanted], &ledger, &mut Budget::new(10_000));
    let Verdict::Refused(refusal @ Refusal::Infeasible(_)) = verdict else { panic!("{verdict:?}") };
    let explanation = Explanation::of(&inventory, &refusal, &|_| None);
    assert_eq!(explanation.code, "NoCommonValue");
    let roots = |request: &str| {
        let of = explanation.values.iter().find(|value| value.request == request).unwrap();
        assert_eq!((of.constraint, of.attribute.as_str()), ("matchAttribute", "resource.kubernetes.io/pcieRoot"));
        of.devices.keys().cloned().collect::<Vec<_>>()
    };
    let (gpu, nic) = (roots("gpu"), roots("nic"));
    assert!(!gpu.is_empty() && !nic.is_empty() && !gpu.iter().any(|root| nic.contains(root)), "{gpu:?} {nic:?}");
    let hint = &explanation.hints[0];
    assert!(hint.starts_with("devices shared resource.kubernetes.io/pcieRoot, but gpu has \"pci"), "{hint}");
    corpus::note(NAME, &format_args!("{} slices", slices.len()));
}
