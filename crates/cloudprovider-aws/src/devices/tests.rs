use std::fs;

use serde_json::Value;

use super::*;
use crate::catalogue::instance_types;
use crate::instance_types::drivers::GpuSharing;

fn of(name: &str) -> DynamicResources {
    let info = &instance_types()[name];
    dynamic_resources(info, info.efa_interfaces(), &DriverSettings::default())
}

fn devices<'a>(all: &'a DynamicResources, driver: &str) -> &'a [DeviceTemplate] {
    let of_driver = all.resource_slice_templates.iter().find(|template| template.spec.driver == driver);
    of_driver.map_or(&[], |template| &template.spec.devices)
}

fn string<'a>(device: &'a DeviceTemplate, attribute: &str) -> &'a str {
    device.attributes.get(attribute).and_then(|value| value.string.as_deref()).unwrap_or_default()
}

fn with(name: &str, drivers: DriverSettings) -> DynamicResources {
    dynamic_resources(&instance_types()[name], 0, &drivers)
}

fn cut(name: &str, mig: Mig) -> DynamicResources {
    with(name, DriverSettings { mig, ..DriverSettings::default() })
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
    let attached = |count| dynamic_resources(&instance_types()["p5.48xlarge"], count, &DriverSettings::default());
    assert_eq!(devices(&attached(5), "dra.net").len(), 5);
    assert!(devices(&attached(0), "dra.net").is_empty());
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

#[test]
fn templates_are_valid_however_the_drivers_are_set_up() {
    let cuts = [Mig::Off, Mig::Dynamic, Mig::DynamicOnAmpere];
    let shares = [GpuSharing::Off, GpuSharing::Unlimited, GpuSharing::Memory, GpuSharing::Shares(10)];
    for (name, info) in instance_types().iter().filter(|(_, info)| info.gpu_info.is_some()) {
        for (mig, sharing) in cuts.into_iter().flat_map(|mig| shares.map(|sharing| (mig, sharing))) {
            let all = dynamic_resources(info, info.efa_interfaces(), &DriverSettings { mig, sharing });
            dra_templates::check(&all).unwrap_or_else(|error| panic!("{name}, {mig:?}, {sharing:?}: {error}"));
        }
    }
}

#[test]
fn gpus_are_cut_only_if_the_driver_does_it_and_those_of_ampere_only_in_mig_mode() {
    let count = |name, mig, kind| {
        devices(&cut(name, mig), "gpu.nvidia.com").iter().filter(|it| string(it, "type") == kind).count()
    };
    for (name, gpus) in [("p4d.24xlarge", 8), ("p5.48xlarge", 8), ("p5.4xlarge", 1), ("g6.48xlarge", 8)] {
        assert_eq!((count(name, Mig::Off, "gpu"), count(name, Mig::Off, "mig")), (gpus, 0), "{name}");
    }
    // 7 + 7 + 4 + 3 + 2 + 1 + 1 places on each.
    for (name, gpus) in [("p5.48xlarge", 8), ("p5.4xlarge", 1), ("p5en.48xlarge", 8), ("p6-b200.48xlarge", 8)] {
        assert_eq!((count(name, Mig::Dynamic, "gpu"), count(name, Mig::Dynamic, "mig")), (gpus, 25 * gpus), "{name}");
    }
    assert_eq!((count("p4d.24xlarge", Mig::Dynamic, "gpu"), count("p4d.24xlarge", Mig::Dynamic, "mig")), (8, 0));
    let on = Mig::DynamicOnAmpere;
    assert_eq!((count("p4d.24xlarge", on, "gpu"), count("p4d.24xlarge", on, "mig")), (0, 200));
    assert_eq!((count("g6.48xlarge", on, "gpu"), count("g6.48xlarge", on, "mig")), (8, 0));
}

/// What NVIDIA says of how many of each profile fit on a GPU.
#[test]
fn counters_let_as_many_of_each_profile_be_used_at_once_as_the_gpu_has() {
    for name in ["p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5e.48xlarge", "p6-b200.48xlarge"] {
        let all = cut(name, Mig::DynamicOnAmpere);
        let template = &all.resource_slice_templates[0];
        let amount = |counter: &api::resource_slice_template::Counter| {
            model::Quantity::parse(&counter.value.0).unwrap().to_nano()
        };
        let counters = &template.spec.shared_counters[0].counters;
        let mut profiles: BTreeMap<&str, usize> = BTreeMap::new();
        let mut left: BTreeMap<&str, BTreeMap<&String, i128>> = BTreeMap::new();
        for device in template.spec.devices.iter().filter(|it| it.name.starts_with("gpu-0-mig-")) {
            let profile = string(device, "profile");
            let fitted = profiles.entry(profile).or_default();
            let left =
                left.entry(profile).or_insert_with(|| counters.iter().map(|(key, it)| (key, amount(it))).collect());
            let taken = &device.consumes_counters[0].counters;
            if taken.iter().all(|(key, it)| left[key] >= amount(it)) {
                taken.iter().for_each(|(key, it)| *left.get_mut(key).unwrap() -= amount(it));
                *fitted += 1;
            }
        }
        let mut counts: Vec<_> = profiles.values().copied().collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 1, 1, 2, 3, 4, 7], "{name}: {profiles:?}");
    }
}

#[test]
fn gpus_of_which_nobody_has_shown_a_slice_are_there_without_what_is_not_known() {
    let all = of("g7e.24xlarge");
    let gpus = devices(&all, "gpu.nvidia.com");
    assert_eq!(gpus.len(), 4);
    assert_eq!(gpus[0].attributes.keys().collect::<Vec<_>>(), ["brand", "type"]);
    assert!(gpus[0].capacity.is_empty());
    // They will have a product name, all the same one.
    let bound =
        all.attribute_bindings.iter().find(|it| it.attributes.contains(&"gpu.nvidia.com/productName".to_owned()));
    assert_eq!(bound.unwrap().device_selectors.len(), 4);
}

/// Types that are sold only to some are not built in; a user's file may have their records.
#[test]
fn types_that_a_user_brings_along_have_the_devices_of_their_family() {
    let record = |name: &str, gpu: &str| -> InstanceTypeInfo {
        serde_json::from_value(serde_json::json!({
            "InstanceType": name, "VCpuInfo": {"DefaultVCpus": 144}, "MemoryInfo": {"SizeInMiB": 983_040},
            "NetworkInfo": {"Ipv4AddressesPerInterface": 50, "NetworkCards": []},
            "GpuInfo": {"Gpus": [{"Manufacturer": "NVIDIA", "Name": gpu, "Count": 4, "MemoryInfo": {"SizeInMiB": 189_471}}]},
        }))
        .unwrap()
    };
    let all = dynamic_resources(&record("p6e-gb300r.36xlarge", "GB300"), 0, &DriverSettings::default());
    assert_eq!((devices(&all, "gpu.nvidia.com").len(), devices(&all, "dra.networking.k8s.aws").len()), (4, 8));
    let all = dynamic_resources(&record("p6e-gb200.36xlarge", "GB200"), 16, &DriverSettings::default());
    assert_eq!(devices(&all, "dra.net").len(), 16);
    let Some(path) = corpus::open(
        "ec2-slices",
        "corpus/dra/nvidia-gpu/slice-BM.GPU.GB200-v3.4.resourceslice-gpu-10.140.65.248-gpu.nvidia.com-wgq4h.yaml",
    ) else {
        return;
    };
    // Where the GPUs are is another machine's matter.
    let without_root = |mut device: Value| {
        device["attributes"].as_object_mut().unwrap().remove(PCIE_ROOT);
        device
    };
    let elsewhere: Vec<_> = real(&path).into_iter().map(without_root).collect();
    assert_eq!(elsewhere, as_published(&all, "gpu.nvidia.com"));
}

/// The devices of a driver without their names.
fn as_published(all: &DynamicResources, driver: &str) -> Vec<Value> {
    let mut planned = serde_json::to_value(devices(all, driver)).unwrap();
    for device in planned.as_array_mut().unwrap() {
        device.as_object_mut().unwrap().remove("name");
    }
    planned.as_array().unwrap().clone()
}

/// Slices that were made by hand from the driver's source, for two GPUs of each kind.
#[test]
fn parts_of_gpus_are_published_as_in_the_drivers_source() {
    let folder = "corpus/dra/_constructed/nvidia-gpu-dynmig";
    for (name, mig, file) in [
        ("p5.48xlarge", Mig::Dynamic, "slice-h100x2-split-1-gpu0.yaml"),
        ("p4d.24xlarge", Mig::DynamicOnAmpere, "slice-a100x2-migonly-1-gpu0.yaml"),
    ] {
        let Some(path) = corpus::open("ec2-slices", &format!("{folder}/{file}")) else { return };
        let slice: Value = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let mut expected: BTreeMap<String, Value> = BTreeMap::new();
        for mut device in slice["spec"]["devices"].as_array().unwrap().clone() {
            forget(&mut device);
            expected.insert(device["name"].as_str().unwrap().to_owned(), device);
        }
        let all = cut(name, mig);
        let mut planned: BTreeMap<String, Value> = BTreeMap::new();
        for device in
            devices(&all, "gpu.nvidia.com").iter().filter(|it| it.name == "gpu-0" || it.name.starts_with("gpu-0-"))
        {
            let mut value = serde_json::to_value(device).unwrap();
            forget(&mut value);
            planned.insert(device.name.clone(), value);
        }
        assert_eq!(planned.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (name, device) in &planned {
            assert_eq!(device, &expected[name], "{file}: {name}");
        }
    }
}

/// Takes away what only a running machine tells, where a GPU is, and the memory of an A100's profiles, of which
/// versions of NVIDIA's driver say different amounts.
fn forget(device: &mut Value) {
    let is_a100 = device["attributes"]["architecture"]["string"] == "Ampere";
    let attributes = device["attributes"].as_object_mut().unwrap();
    attributes.retain(|key, _| !RUNTIME.contains(&key.as_str()) && key != PCIE_ROOT);
    if is_a100 {
        device["capacity"].as_object_mut().unwrap().remove("memory");
        device["consumesCounters"][0]["counters"].as_object_mut().unwrap().remove("memory");
    }
}

/// As in the test above, for GPUs that several claims may use.
#[test]
fn gpus_that_claims_share_are_published_as_in_the_drivers_source() {
    let folder = "corpus/dra/_constructed/nvidia-gpu";
    for (sharing, file) in [
        (GpuSharing::Memory, "slice-h200-consumable-shares-memory.yaml"),
        (GpuSharing::Unlimited, "slice-h200-consumable-shares-unlimited.yaml"),
    ] {
        let Some(path) = corpus::open("ec2-slices", &format!("{folder}/{file}")) else { return };
        let expected = real(&path).remove(0);
        let all = with("p5e.48xlarge", DriverSettings { sharing, ..DriverSettings::default() });
        let planned = as_published(&all, "gpu.nvidia.com").remove(0);
        for field in ["capacity", "allowMultipleAllocations"] {
            assert_eq!(planned[field], expected[field], "{file}");
        }
    }
}

/// Attributes that are known only once a machine runs.
const RUNTIME: [&str; 8] = [
    "uuid",
    "parentUUID",
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
            "p5.48xlarge",
            "compute-domain.nvidia.com",
            "nvidia-computedomain/slice-evidence.secure-accelerator-access-gpu-node-1-compute-domain.nvidia.com-q9xqc.yaml",
        ),
        (
            "p5.48xlarge",
            "compute-domain.nvidia.com",
            "nvidia-computedomain/slice-evidence.secure-accelerator-access-gpu-node-2-compute-domain.nvidia.com-2n2cq.yaml",
        ),
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
        let planned = as_published(&of(name), driver);
        let sorted = |devices: &[Value]| {
            let mut texts: Vec<_> = devices.iter().map(Value::to_string).collect();
            texts.sort();
            texts
        };
        assert_eq!(sorted(&real(&path)), sorted(&planned), "{file}");
    }
    corpus::note(test, &format_args!("{} slices are as the tables have them", slices.len()));
}
