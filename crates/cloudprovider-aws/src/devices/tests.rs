use std::fs;

use serde_json::Value;

use super::*;
use crate::catalogue::instance_types;

fn of(name: &str) -> DynamicResources {
    let info = &instance_types()[name];
    dynamic_resources(info, info.efa_interfaces())
}

fn devices<'a>(all: &'a DynamicResources, driver: &str) -> &'a [DeviceTemplate] {
    let of_driver = all.resource_slice_templates.iter().find(|template| template.spec.driver == driver);
    of_driver.map_or(&[], |template| &template.spec.devices)
}

fn string<'a>(device: &'a DeviceTemplate, attribute: &str) -> &'a str {
    device.attributes.get(attribute).and_then(|value| value.string.as_deref()).unwrap_or_default()
}

#[test]
fn the_templates_of_every_type_are_valid_and_layouts_have_the_counts_that_ec2_says() {
    for (name, info) in instance_types() {
        let all = of(name);
        dra_templates::check(&all).unwrap_or_else(|error| panic!("{name}: {error}"));
        let rooted = |driver: &str| devices(&all, driver).iter().filter(|it| !string(it, PCIE_ROOT).is_empty()).count();
        let has_layout = |table: &Table| table.layouts.iter().any(|layout| layout.of.contains(name));
        for (table, count) in
            [(&*GPUS, devices(&all, "gpu.nvidia.com").len()), (&*ADAPTERS, info.efa_interfaces() as usize)]
        {
            assert_eq!(devices(&all, &table.driver).len(), count, "{name}");
            if has_layout(table) {
                let layout = table.layouts.iter().find(|layout| layout.of.contains(name)).unwrap();
                assert_eq!((rooted(&table.driver), layout.roots.len() * layout.each), (count, count), "{name}");
                assert!(layout.numa.is_empty() || layout.numa.len() == layout.roots.len(), "{name}");
            }
        }
    }
}

#[test]
fn every_type_that_a_table_names_exists() {
    let layouts = GPUS.layouts.iter().chain(&ADAPTERS.layouts).flat_map(|layout| &layout.of);
    let missing: Vec<_> = layouts.filter(|name| !instance_types().contains_key(*name)).collect();
    assert_eq!(missing, Vec::<&String>::new());
}

#[test]
fn gpus_of_a_p5_have_a_root_each_and_four_adapters_beside_them() {
    let all = of("p5.48xlarge");
    let (gpus, adapters) = (devices(&all, "gpu.nvidia.com"), devices(&all, "dra.net"));
    assert_eq!((gpus.len(), adapters.len()), (8, 32));
    for gpu in gpus {
        assert_eq!(adapters.iter().filter(|it| string(it, PCIE_ROOT) == string(gpu, PCIE_ROOT)).count(), 4);
    }
    let [binding] = all.attribute_bindings.as_slice() else { panic!("{:?}", all.attribute_bindings) };
    assert_eq!(binding.attributes, ["gpu.nvidia.com/driverVersion", "gpu.nvidia.com/cudaDriverVersion"]);
    assert_eq!(binding.device_selectors.len(), 8);
}

#[test]
fn gpus_and_adapters_of_a_g6_share_no_root() {
    for name in ["g6.48xlarge", "g6e.48xlarge", "g4dn.metal"] {
        let all = of(name);
        let roots: Vec<_> = devices(&all, "dra.net").iter().map(|it| string(it, PCIE_ROOT)).collect();
        assert!(!roots.is_empty());
        assert!(devices(&all, "gpu.nvidia.com").iter().all(|gpu| !roots.contains(&string(gpu, PCIE_ROOT))), "{name}");
    }
}

#[test]
fn only_adapters_that_are_attached_are_published() {
    let all = dynamic_resources(&instance_types()["p5.48xlarge"], 5);
    assert_eq!(devices(&all, "dra.net").len(), 5);
    assert!(devices(&dynamic_resources(&instance_types()["p5.48xlarge"], 0), "dra.net").is_empty());
}

#[test]
fn neuron_devices_and_adapters_carry_the_published_groups() {
    let group4 = "resource.aws.com/devicegroup4_id";
    let trn1 = of("trn1.32xlarge");
    let neurons = devices(&trn1, "neuron.aws.com");
    assert_eq!(neurons.len(), 16);
    assert_eq!(string(&neurons[0], group4), "88a3c6ad1661fe1d");
    assert_eq!(string(&neurons[1], "resource.aws.com/devicegroup1_id"), "0000:10:1a.0");
    assert_eq!(string(&of("trn2.48xlarge").resource_slice_templates[1].spec.devices[0], group4), "13713e551cd37c19");
    for (index, neuron) in neurons.iter().enumerate() {
        for size in [1, 4, 8, 16] {
            let attribute = format!("resource.aws.com/devicegroup{size}_id");
            let adapter = &devices(&trn1, "dra.net")[index / 2];
            assert_eq!(string(neuron, &attribute), string(adapter, &attribute), "{index} {size}");
        }
    }
    assert!(devices(&of("inf1.xlarge"), "neuron.aws.com").is_empty());
}

/// Attributes that are known only once a machine runs.
const RUNTIME: [&str; 7] = [
    "uuid",
    "driverVersion",
    "cudaDriverVersion",
    "addressingMode",
    "resource.kubernetes.io/pciBusID",
    "dra.net/pciAddress",
    "dra.net/rdmaDevice",
];

/// The devices of a real slice, without what only a running machine tells and without ordinary network adapters.
fn real(path: &std::path::Path) -> Vec<Value> {
    let slice: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut devices = slice["spec"]["devices"].as_array().unwrap().clone();
    devices.retain(|it| it["attributes"]["dra.net/pciDevice"]["string"] != "Elastic Network Adapter (ENA)");
    for device in &mut devices {
        let attributes = device["attributes"].as_object_mut().unwrap();
        attributes.retain(|attribute, _| !RUNTIME.contains(&attribute.as_str()));
        device.as_object_mut().unwrap().remove("name");
    }
    devices
}

/// Order and names aside: GPUs are listed in any order, and the names of adapters are ours.
#[test]
fn real_slices_of_ec2_nodes_have_the_devices_of_the_tables() {
    let test = "ec2-slices";
    let slices = [
        (
            "p4d.24xlarge",
            "gpu.nvidia.com",
            "nvidia-gpu/slice-gpu-efa.resourceslice-gpu-ip-192-168-153-160.ec2.internal-gpu.nvidia.com-xz4s4.yaml",
        ),
        (
            "p4d.24xlarge",
            "dra.net",
            "dranet/slice-gpu-efa.resourceslice-dranet-ip-192-168-153-160.ec2.internal-dra.net-zskw8.yaml",
        ),
        (
            "p5.48xlarge",
            "gpu.nvidia.com",
            "nvidia-gpu/slice-evidence.secure-accelerator-access-gpu-node-1-gpu.nvidia.com-7cbz2.yaml",
        ),
        (
            "p5.48xlarge",
            "gpu.nvidia.com",
            "nvidia-gpu/slice-evidence.secure-accelerator-access-gpu-node-2-gpu.nvidia.com-79gvw.yaml",
        ),
        (
            "p5.48xlarge",
            "gpu.nvidia.com",
            "nvidia-gpu/slice-evidence.secure-accelerator-access-node-a.example.internal-gpu.nvidia.com-sgw47.yaml",
        ),
        (
            "p5.48xlarge",
            "gpu.nvidia.com",
            "nvidia-gpu/slice-evidence.secure-accelerator-access-ip-100-64-171-120.ec2.internal-gpu.nvidia.com-7npv2.yaml",
        ),
    ];
    for (name, driver, file) in slices {
        let Some(path) = corpus::open(test, &format!("corpus/dra/{file}")) else { return };
        let mut planned = serde_json::to_value(devices(&of(name), driver)).unwrap();
        for device in planned.as_array_mut().unwrap() {
            device.as_object_mut().unwrap().remove("name");
        }
        let sorted = |devices: &[Value]| {
            let mut texts: Vec<_> = devices.iter().map(Value::to_string).collect();
            texts.sort();
            texts
        };
        assert_eq!(sorted(&real(&path)), sorted(planned.as_array().unwrap()), "{file}");
    }
    corpus::note(test, &format_args!("{} slices are as the tables have them", slices.len()));
}
