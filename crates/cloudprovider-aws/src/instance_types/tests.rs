use std::collections::BTreeMap;
use std::fs;

use api::labels as kubernetes;
use cloudprovider::{CapacityType, Overhead, ResourceList};
use serde::Deserialize;

use super::offerings::{CapacityReservation, Market, Zone};
use super::settings::{BlockDevice, Threshold};
use super::*;
use crate::node_class::AmiFamily;
use crate::node_class::kubelet::{Expressions, Kubelet};
use crate::node_class::spec::{InstanceStorePolicy, InterfaceType, NetworkInterface};
use crate::pricing::Prices;
use crate::{catalogue, labels};

/// A type as Karpenter 1.15 computes it.
#[derive(Debug, Deserialize)]
struct Expected {
    r#type: String,
    labels: BTreeMap<String, String>,
    capacity: BTreeMap<String, String>,
    overhead: ExpectedOverhead,
    allocatable: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExpectedOverhead {
    kube_reserved: BTreeMap<String, String>,
    system_reserved: BTreeMap<String, String>,
    eviction_threshold: BTreeMap<String, String>,
}

fn list(amounts: &BTreeMap<String, String>) -> ResourceList {
    amounts.iter().map(|(resource, amount)| (resource.clone(), Quantity::parse(amount).unwrap())).collect()
}

/// The labels that have one value, but for those that depend on where and how a machine is bought.
fn certain_labels(instance_type: &InstanceType) -> BTreeMap<String, String> {
    let bought = [kubernetes::REGION, kubernetes::ZONE, kubernetes::CAPACITY_TYPE, labels::INSTANCE_TENANCY];
    instance_type
        .requirements
        .iter()
        .filter(|(key, _)| !bought.contains(&key.as_str()))
        .map(|(key, values)| (key.clone(), values.iter().cloned().collect::<Vec<_>>().join(",")))
        .collect()
}

/// What differs, if anything.
fn difference(expected: &Expected, found: &InstanceType) -> Option<String> {
    let overhead = Overhead {
        kube_reserved: list(&expected.overhead.kube_reserved),
        system_reserved: list(&expected.overhead.system_reserved),
        eviction_threshold: list(&expected.overhead.eviction_threshold),
    };
    let mut allocatable = found.allocatable();
    allocatable.retain(|_, amount| !amount.is_zero());
    let name = &expected.r#type;
    if expected.labels != certain_labels(found) {
        Some(format!("{name}: labels: {:?} not {:?}", certain_labels(found), expected.labels))
    } else if list(&expected.capacity) != found.capacity {
        Some(format!("{name}: capacity: {:?} not {:?}", found.capacity, expected.capacity))
    } else if overhead != found.overhead {
        Some(format!("{name}: overhead: {:?} not {:?}", found.overhead, expected.overhead))
    } else if list(&expected.allocatable) != allocatable {
        Some(format!("{name}: allocatable: {allocatable:?} not {:?}", expected.allocatable))
    } else {
        None
    }
}

fn expected_types(text: &str) -> Vec<Expected> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// With images of AL2023 and a node class that says nothing else.
fn plain(info: &InstanceTypeInfo) -> InstanceType {
    resolve(info, &NodeSettings::of_family(AmiFamily::Al2023))
}

fn resolve(info: &InstanceTypeInfo, settings: &NodeSettings) -> InstanceType {
    Resolver { region: "us-east-1", settings, options: &MachineOptions::default() }.resolve(info)
}

fn named(name: &str) -> &'static InstanceTypeInfo {
    &catalogue::instance_types()[name]
}

#[test]
fn all_published_types_are_as_karpenter_computes_them() {
    let test = "ec2-instance-types";
    let Some(path) = corpus::open(test, "vectors/ec2-instance-types.jsonl") else { return };
    let expected = expected_types(&fs::read_to_string(path).unwrap());
    let differences: Vec<_> = expected.iter().filter_map(|it| difference(it, &plain(named(&it.r#type)))).collect();
    assert_eq!(differences, Vec::<String>::new());
    assert!(expected.len() > 600, "{}", expected.len());
    corpus::note(test, &format_args!("{} instance types are equal", expected.len()));
}

/// The records are EC2's own, as moto (Apache-2.0) has them; what is expected of them was computed apart from this
/// code, from the formulas that Karpenter documents.
#[test]
fn a_record_of_ec2_becomes_the_type_that_is_expected() {
    let records: Vec<InstanceTypeInfo> = serde_json::from_str(include_str!("tests/records.json")).unwrap();
    let expected = expected_types(include_str!("tests/expected.jsonl"));
    assert_eq!(records.len(), expected.len());
    for (record, expected) in records.into_iter().zip(&expected) {
        let found = plain(&catalogue::supplement(record));
        assert_eq!(difference(expected, &found), None);
    }
}

#[test]
fn built_in_types_are_what_ec2s_records_say() {
    let records: Vec<InstanceTypeInfo> = serde_json::from_str(include_str!("tests/records.json")).unwrap();
    for mut record in records.into_iter().map(catalogue::supplement) {
        let mut built_in = named(&record.instance_type).clone();
        // The built-in form has one word for both.
        for info in [&mut record, &mut built_in] {
            info.nitro_enclaves_support.take_if(|support| support == "unsupported");
            for card in &mut info.network_info.network_cards {
                if card.interface_types.is_empty() {
                    card.interface_types.insert("interface".to_owned());
                }
            }
        }
        assert_eq!(built_in, record);
    }
}

fn amount(instance_type: &InstanceType, resource: &str) -> String {
    instance_type.capacity.get(resource).map_or_else(String::new, Quantity::to_string)
}

#[test]
fn pods_and_reserved_memory_depend_on_the_family_of_the_images() {
    let of = |family| {
        let mut settings = NodeSettings::of_family(family);
        settings.kubelet.max_pods = Some(30);
        settings.kubelet.pods_per_core = 2;
        let it = resolve(named("m5.xlarge"), &settings);
        (amount(&it, "pods"), it.overhead.kube_reserved["memory"].to_string())
    };
    // 58 pods have addresses: 58 × 11 + 255 = 893.
    assert_eq!(of(AmiFamily::Al2023), ("8".to_owned(), "893Mi".to_owned()));
    assert_eq!(of(AmiFamily::Custom), ("8".to_owned(), "893Mi".to_owned()));
    assert_eq!(of(AmiFamily::Bottlerocket), ("30".to_owned(), "585Mi".to_owned()));
    assert_eq!(of(AmiFamily::Windows2022), ("8".to_owned(), "343Mi".to_owned()));
    let windows = resolve(named("m5.xlarge"), &NodeSettings::of_family(AmiFamily::Windows2022));
    assert_eq!(amount(&windows, "pods"), "110");
}

#[test]
fn windows_runs_on_amd64_with_its_own_addresses_and_disk() {
    let settings = NodeSettings::of_family(AmiFamily::Windows2025);
    let intel = resolve(named("m5.xlarge"), &settings);
    assert_eq!(intel.certain_label(kubernetes::OS), Some("windows"));
    assert_eq!(intel.certain_label(kubernetes::WINDOWS_BUILD), Some("10.0.26100"));
    assert_eq!(amount(&intel, labels::resources::PRIVATE_IPV4_ADDRESS), "14");
    assert_eq!(amount(&intel, "ephemeral-storage"), "50Gi");
    let graviton = resolve(named("m6g.xlarge"), &settings);
    assert_eq!(graviton.certain_label(kubernetes::OS), None);
    assert_eq!(amount(&graviton, labels::resources::PRIVATE_IPV4_ADDRESS), "");
}

#[test]
fn the_disk_of_pods_is_found_by_policy_then_root_volume_then_device() {
    let device = |name: &str, size: Option<&str>, is_root_volume| BlockDevice {
        name: name.to_owned(),
        size: size.map(|size| Quantity::parse(size).unwrap()),
        is_root_volume,
    };
    let storage = |family, devices: Vec<BlockDevice>, policy| {
        let mut settings = NodeSettings::of_family(family);
        settings.block_devices = devices;
        settings.instance_store_policy = policy;
        amount(&resolve(named("m5d.xlarge"), &settings), "ephemeral-storage")
    };
    let both = || vec![device("/dev/xvda", Some("30Gi"), false), device("/dev/xvdb", Some("40Gi"), false)];
    assert_eq!(storage(AmiFamily::Al2023, both(), None), "30Gi");
    assert_eq!(storage(AmiFamily::Bottlerocket, both(), None), "40Gi");
    assert_eq!(storage(AmiFamily::Custom, both(), None), "40Gi");
    assert_eq!(storage(AmiFamily::Windows2019, both(), None), "50Gi");
    let with_root = || [both(), vec![device("/dev/xvdc", Some("1Ti"), true)]].concat();
    assert_eq!(storage(AmiFamily::Al2023, with_root(), None), "1Ti");
    let unsized_root = vec![device("/dev/xvda", None, true)];
    assert_eq!(storage(AmiFamily::Al2023, unsized_root, None), "20Gi");
    assert_eq!(storage(AmiFamily::Al2023, with_root(), Some(InstanceStorePolicy::Raid0)), "150G");
    let mut settings = NodeSettings::of_family(AmiFamily::Al2023);
    settings.instance_store_policy = Some(InstanceStorePolicy::Raid0);
    assert_eq!(amount(&resolve(named("m5.xlarge"), &settings), "ephemeral-storage"), "20Gi");
}

#[test]
fn what_the_kubelet_is_told_replaces_what_is_computed() {
    let quantity = |text| Quantity::parse(text).unwrap();
    let mut settings = NodeSettings::of_family(AmiFamily::Al2023);
    settings.kubelet.kube_reserved = ResourceList::from([("memory".to_owned(), quantity("1Gi"))]);
    settings.kubelet.system_reserved = ResourceList::from([("cpu".to_owned(), quantity("100m"))]);
    settings.kubelet.eviction_memory = Some(Threshold::NanoPercent(5_000_000_000));
    settings.kubelet.eviction_storage = Some(Threshold::Amount(quantity("3Gi")));
    let it = resolve(named("m5.large"), &settings);
    assert_eq!(it.overhead.kube_reserved["memory"].to_string(), "1Gi");
    assert_eq!(it.overhead.kube_reserved["cpu"].to_string(), "70m");
    assert_eq!(it.overhead.system_reserved["cpu"].to_string(), "100m");
    // 5 % of 7577 MiB, rounded up to a byte.
    assert_eq!(it.overhead.eviction_threshold["memory"], quantity("397253018"));
    assert_eq!(it.overhead.eviction_threshold["ephemeral-storage"].to_string(), "3Gi");
}

/// With settings of the kubelet that may be expressions.
fn computed(family: AmiFamily, kubelet: &serde_json::Value) -> NodeSettings {
    let object = serde_json::json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "role": "nodes", "amiFamily": family.to_string(),
            "amiSelectorTerms": [{"id": "ami-1"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}],
            "kubelet": kubelet,
        },
    });
    let class = crate::node_class::decode::decode(&object).unwrap();
    let kubelet = Kubelet::read(&class.spec.kubelet, family, Expressions::Allowed).unwrap();
    NodeSettings::of_node_class(&class, &kubelet, None).unwrap()
}

#[test]
fn expressions_are_computed_for_each_type_in_the_unit_of_the_field() {
    let settings = computed(
        AmiFamily::Al2023,
        &serde_json::json!({
            "maxPods": "min(max_pods, vcpus * 8)",
            "kubeReserved": {
                "cpu": "vcpus * 33", "memory": "memory_mib / 100", "ephemeral-storage": "vcpus",
                "pid": "max_pods * 10",
            },
            "systemReserved": {
                "memory": "instance_type.startsWith('m5.') ? default_enis * 100 + ips_per_eni : 0", "cpu": "100m",
            },
        }),
    );
    // m5.large has 2 processors, 8192 MiB, 3 interfaces of 10 addresses, so room for 29 pods.
    let it = resolve(named("m5.large"), &settings);
    let text = |of: &ResourceList, resource: &str| of[resource].to_string();
    assert_eq!(amount(&it, "pods"), "16");
    let reserved = ["cpu", "memory", "ephemeral-storage", "pid"].map(|it_is| text(&it.overhead.kube_reserved, it_is));
    assert_eq!(reserved, ["70m", "96Mi", "2Gi", "160"]);
    assert_eq!(["cpu", "memory"].map(|it_is| text(&it.overhead.system_reserved, it_is)), ["100m", "320Mi"]);
    let it = resolve(named("c5.4xlarge"), &settings);
    assert_eq!(amount(&it, "pods"), "128");
    let reserved = ["cpu", "memory"].map(|it_is| text(&it.overhead.kube_reserved, it_is));
    assert_eq!(
        (reserved, text(&it.overhead.system_reserved, "memory").as_str()),
        (["530m", "336Mi"].map(str::to_owned), "0")
    );
    // On Windows what there would be without it is 110, and processors limit what is counted for the rest.
    let windows = computed(
        AmiFamily::Windows2022,
        &serde_json::json!({"maxPods": "max_pods", "podsPerCore": 10, "kubeReserved": {"pid": "max_pods"}}),
    );
    let it = resolve(named("m5.large"), &windows);
    assert_eq!((amount(&it, "pods").as_str(), text(&it.overhead.kube_reserved, "pid").as_str()), ("20", "20"));
}

#[test]
fn an_expression_that_fails_on_a_type_is_named_and_changes_nothing_there() {
    let plain = resolve(named("m5.large"), &NodeSettings::of_family(AmiFamily::Al2023));
    for (kubelet, field, why) in [
        (
            serde_json::json!({"maxPods": "110 / (vcpus - 2)"}),
            "maxPods",
            "\"110 / (vcpus - 2)\" on m5.large: division by zero",
        ),
        (serde_json::json!({"maxPods": "-vcpus"}), "maxPods", "\"-vcpus\" on m5.large: -2 is not from 0 to 2147483647"),
        (
            serde_json::json!({"kubeReserved": {"memory": "vcpus * 4611686018427387903"}}),
            "kubeReserved[memory]",
            "\"vcpus * 4611686018427387903\" on m5.large: 9223372036854775806 is too large",
        ),
        (
            serde_json::json!({"systemReserved": {"cpu": "1 - vcpus"}}),
            "systemReserved[cpu]",
            "\"1 - vcpus\" on m5.large: -1 is negative",
        ),
    ] {
        let settings = computed(AmiFamily::Al2023, &kubelet);
        let resolver = Resolver { region: "us-east-1", settings: &settings, options: &MachineOptions::default() };
        let failed = resolver.failed_expression(named("m5.large"));
        assert_eq!(failed, Some((field.to_owned(), why.to_owned())));
        let it = resolver.resolve(named("m5.large"));
        assert_eq!((it.capacity, it.overhead), (plain.capacity.clone(), plain.overhead.clone()));
    }
}

fn interface(network_card_index: i32, device_index: i32, interface_type: InterfaceType) -> NetworkInterface {
    NetworkInterface { network_card_index, device_index, interface_type }
}

#[test]
fn interfaces_of_the_node_class_decide_fabric_adapters_and_addresses() {
    let mut settings = NodeSettings::of_family(AmiFamily::Al2023);
    settings.network_interfaces = vec![
        interface(0, 0, InterfaceType::Interface),
        interface(0, 1, InterfaceType::EfaOnly),
        interface(1, 1, InterfaceType::EfaOnly),
    ];
    let it = resolve(named("p5.48xlarge"), &settings);
    assert_eq!(amount(&it, labels::resources::EFA), "2");
    // One interface of two is left: 49 addresses and two pods.
    assert_eq!(amount(&it, "pods"), "51");
    assert_eq!(compatibility::check(named("p5.48xlarge"), &settings), Ok(()));
    let refused = |name: &str| compatibility::check(named(name), &settings).unwrap_err().to_string();
    assert_eq!(refused("m5.large"), "networkInterfaces: it has no network card 1");
    assert_eq!(refused("m3.large"), "networkInterfaces: it has no Elastic Network Adapter");
    settings.network_interfaces =
        vec![interface(0, 0, InterfaceType::Interface), interface(0, 7, InterfaceType::EfaOnly)];
    let refused = |name: &str| compatibility::check(named(name), &settings).unwrap_err().to_string();
    assert_eq!(refused("m5.large"), "networkInterfaces: its network card 0 has no device index 7");
    assert_eq!(refused("m5.12xlarge"), "networkInterfaces: 1 of type efa-only, it has 0");
}

#[test]
fn what_a_type_cannot_do_is_named() {
    let mut settings = NodeSettings::of_family(AmiFamily::Al2023);
    let check =
        |settings: &NodeSettings, name| compatibility::check(named(name), settings).map_err(|it| it.to_string());
    assert_eq!(check(&settings, "a1.large"), Err("images of AL2023 do not boot on it".to_owned()));
    settings.ami_family = AmiFamily::Bottlerocket;
    assert_eq!(check(&settings, "a1.large"), Ok(()));
    settings.demands.connection_tracking = true;
    assert_eq!(check(&settings, "m3.large"), Err("connectionTracking: its hypervisor is not Nitro".to_owned()));
    settings.demands.placement_strategy = Some("cluster".to_owned());
    let refused = Err("it cannot be in a placement group of strategy cluster".to_owned());
    assert_eq!(check(&settings, "t3.large"), refused);
    settings.demands.enclaves = true;
    assert_eq!(check(&settings, "m5.large"), Err("enclaveOptions: it does not support Nitro enclaves".to_owned()));
    settings.demands.nested_virtualization = true;
    let refused = Err("cpuOptions: it does not support nested virtualization".to_owned());
    assert_eq!(check(&settings, "m5.large"), refused);
    let mut mac = named("m5.large").clone();
    mac.processor_info.supported_architectures = vec!["arm64_mac".to_owned()];
    let refused = compatibility::check(&mac, &settings).unwrap_err().to_string();
    assert_eq!(refused, "Kubernetes does not run on its processor");
}

#[test]
fn learned_memory_takes_the_place_of_the_estimate() {
    let settings = NodeSettings::of_family(AmiFamily::Al2023);
    let resolver = Resolver { region: "us-east-1", settings: &settings, options: &MachineOptions::default() };
    let seen = Quantity::parse("7800Mi").unwrap();
    let mut it = resolver.resolve(named("m5.large"));
    set_memory(&mut it, seen);
    assert_eq!(it.capacity["memory"], seen);
    assert_eq!(it.allocatable()["memory"], Quantity::parse("7126Mi").unwrap());
}

#[test]
fn the_controllers_options_take_memory_and_interfaces() {
    let settings = NodeSettings::of_family(AmiFamily::Al2023);
    let options = MachineOptions { vm_memory_overhead_nano: 0, reserved_enis: 1, ..MachineOptions::default() };
    let resolver = Resolver { region: "us-east-1", settings: &settings, options: &options };
    let it = resolver.resolve(named("m5.large"));
    assert_eq!(amount(&it, "memory"), "8Gi");
    assert_eq!(amount(&it, "pods"), "20");
    assert_eq!(it.overhead.kube_reserved["memory"].to_string(), "574Mi");
}

fn zone(name: &str, has_subnet: bool) -> Zone {
    Zone { name: name.to_owned(), id: Some(format!("id-{name}")), has_subnet, is_shifted: false }
}

#[test]
fn offerings_are_zones_by_capacity_types_and_reservations() {
    let settings = NodeSettings::of_family(AmiFamily::Al2023);
    let info = named("m5.large");
    let reservation = |id: &str, instance_type: &str, remaining, is_expiring| CapacityReservation {
        id: id.to_owned(),
        instance_type: instance_type.to_owned(),
        zone: "a".to_owned(),
        kind: "default".to_owned(),
        is_interruptible: false,
        is_expiring,
        remaining,
    };
    let market = Market {
        zones: &[zone("a", true), zone("b", false)],
        prices: &Prices::built_in(),
        reservations: &[
            reservation("cr-1", "m5.large", 0, false),
            reservation("cr-2", "m5.large", 3, true),
            reservation("cr-3", "m5.xlarge", 3, false),
        ],
        is_out_of_stock: &|key| key.capacity_type == CapacityType::Spot,
    };
    let mut it = resolve(info, &settings);
    market.add_offerings(&mut it, info, &settings);
    let told: Vec<_> = it
        .offerings
        .iter()
        .map(|offering| {
            (offering.key(&it.name).to_string(), offering.available, offering.launchable(), offering.price.0)
        })
        .collect();
    let expected = [
        ("m5.large/a/spot", false, false, 96_000_000),
        ("m5.large/a/on-demand", true, true, 96_000_000),
        ("m5.large/b/spot", false, false, 96_000_000),
        ("m5.large/b/on-demand", false, false, 96_000_000),
        ("m5.large/a/reserved/cr-1", true, false, 9),
        ("m5.large/a/reserved/cr-2", false, false, 9),
    ];
    assert_eq!(
        told,
        expected.map(|(key, available, launchable, price)| (key.to_owned(), available, launchable, price))
    );
    let values = |key: &str| it.requirements[key].iter().cloned().collect::<Vec<_>>().join(",");
    assert_eq!(values(kubernetes::CAPACITY_TYPE), "on-demand,reserved,spot");
    assert_eq!(values(kubernetes::ZONE), "a,b");
    assert_eq!(values(labels::ZONE_ID), "id-a,id-b");
    assert_eq!(values(labels::CAPACITY_RESERVATION_ID), "cr-1,cr-2");
}

#[test]
fn what_has_no_price_or_does_not_fit_the_node_class_is_listed_and_not_available() {
    let market = Market {
        zones: &[zone("a", true)],
        prices: &Prices::default(),
        reservations: &[],
        is_out_of_stock: &|_| false,
    };
    let settings = NodeSettings::of_family(AmiFamily::Al2023);
    let mut unpriced = plain(named("m5.large"));
    market.add_offerings(&mut unpriced, named("m5.large"), &settings);
    assert_eq!(unpriced.offerings.iter().map(|it| it.available).collect::<Vec<_>>(), [false, false]);
    let market = Market { prices: &Prices::built_in(), ..market };
    let mut graviton = plain(named("a1.large"));
    market.add_offerings(&mut graviton, named("a1.large"), &settings);
    assert_eq!(graviton.offerings.iter().map(|it| it.available).collect::<Vec<_>>(), [false, false]);
}

#[test]
fn a_node_class_is_read_with_all_that_changes_machines() {
    let object = serde_json::json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "role": "nodes",
            "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}],
            "blockDeviceMappings": [{"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "100Gi"}}],
            "enclaveOptions": {"enabled": true},
            "kubelet": {
                "maxPods": 42,
                "systemReserved": {"cpu": "250m"},
                "evictionHard": {"memory.available": "2.5%", "nodefs.available": "1Gi"},
            },
        },
    });
    let class = crate::node_class::decode::decode(&object).unwrap();
    let kubelet = Kubelet::read(&class.spec.kubelet, class.spec.ami_family, Expressions::Disabled).unwrap();
    let settings = NodeSettings::of_node_class(&class, &kubelet, Some("spread".to_owned())).unwrap();
    let quantity = |text| Quantity::parse(text).unwrap();
    let mut expected = NodeSettings::of_family(AmiFamily::Bottlerocket);
    expected.block_devices =
        vec![BlockDevice { name: "/dev/xvdb".to_owned(), size: Some(quantity("100Gi")), is_root_volume: false }];
    expected.kubelet.max_pods = Some(42);
    expected.kubelet.system_reserved = ResourceList::from([("cpu".to_owned(), quantity("250m"))]);
    expected.kubelet.eviction_memory = Some(Threshold::NanoPercent(2_500_000_000));
    expected.kubelet.eviction_storage = Some(Threshold::Amount(quantity("1Gi")));
    expected.demands.enclaves = true;
    expected.demands.placement_strategy = Some("spread".to_owned());
    assert_eq!(settings, expected);
    assert_eq!(amount(&resolve(named("m5.large"), &settings), "ephemeral-storage"), "100Gi");
}
