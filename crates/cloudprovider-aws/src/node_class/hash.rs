//! The hash by which static drift is told: what of an EC2NodeClass, changed, means that its machines would be launched
//! differently today.
//!
//! What the selectors select is not in it; that is compared with the machine itself. As in Karpenter (hash `v6`), the
//! order of lists does not count, and what is absent, empty, zero or false counts as not there.
//!
//! Differs: `node-class-hash`. The value is not Karpenter's, which depends on how Go lays out its types, and neither is
//! the version: each program finds the other's version on a cluster that was switched over, writes its own hash, and
//! leaves machines alone that have not drifted before.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::decode::{Disk, NodeClassSpec, PlacementGroupTerm, Rights};

/// How [`hash`] is made. It changes with the fields that count or with how they are written down.
pub const VERSION: &str = "dovetail-v1";

/// The hash of an EC2NodeClass: 16 hexadecimal digits. `ca_bundle` is what machines trust the API server by, which is
/// as much a part of how they boot as the spec is.
pub fn hash(spec: &NodeClassSpec, ca_bundle: &str) -> String {
    let counted = counted(spec, ca_bundle);
    let digest = Sha256::digest(counted.to_string().as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The fields that count, in a form that is equal for what counts as equal.
fn counted(spec: &NodeClassSpec, ca_bundle: &str) -> Value {
    let NodeClassSpec {
        subnets: _,
        security_groups: _,
        capacity_reservations: _,
        images: _,
        // Karpenter leaves it out too: prefixes are given to interfaces that run.
        ip_prefix_count: _,
        placement_group,
        ami_family,
        rights,
        user_data,
        tags,
        kubelet,
        disks,
        instance_store_policy,
        network_interfaces,
        associate_public_ip_address,
        connection_tracking,
        detailed_monitoring,
        metadata_options,
        context,
        nested_virtualization,
        enclaves,
    } = spec;
    let placement_group = placement_group.as_ref().map(|group| match group {
        PlacementGroupTerm::Id(id) => json!({ "id": id }),
        PlacementGroupTerm::Name(name) => json!({ "name": name }),
    });
    let rights = match rights {
        Rights::Role(role) => json!({ "role": role }),
        Rights::InstanceProfile(profile) => json!({ "instanceProfile": profile }),
    };
    let fields = json!({
        "amiFamily": ami_family,
        "associatePublicIPAddress": associate_public_ip_address,
        "blockDeviceMappings": disks.iter().map(disk).collect::<Vec<_>>(),
        "caBundle": ca_bundle,
        "connectionTracking": connection_tracking,
        "context": context,
        "detailedMonitoring": detailed_monitoring,
        "enclaves": enclaves,
        "instanceStorePolicy": instance_store_policy,
        "metadataOptions": metadata_options,
        "nestedVirtualization": nested_virtualization,
        "networkInterfaces": network_interfaces,
        "placementGroup": placement_group,
        "rights": rights,
        "userData": user_data,
    });
    let mut counted = canonical(fields).unwrap_or_default();
    // These count as they are written: a tag without a value is a tag, and the order of DNS servers matters.
    if let Some(fields) = counted.as_object_mut() {
        fields.insert("kubelet".to_owned(), Value::Object(kubelet.clone()));
        fields.insert("tags".to_owned(), json!(tags));
    }
    counted
}

fn disk(disk: &Disk) -> Value {
    let volume = disk.volume.as_ref().map(|volume| {
        json!({
            "size": volume.size.map(|size| size.to_string()),
            "volumeType": volume.volume_type,
            "iops": volume.iops,
            "throughput": volume.throughput,
            "encrypted": volume.encrypted,
            "kmsKeyID": volume.kms_key_id,
            "deleteOnTermination": volume.delete_on_termination,
            "snapshotID": volume.snapshot_id,
            "volumeInitializationRate": volume.volume_initialization_rate,
        })
    });
    json!({ "deviceName": disk.device_name, "rootVolume": disk.is_root, "ebs": volume })
}

/// Without what counts as not there, and lists as sets.
fn canonical(value: Value) -> Option<Value> {
    let value = match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter_map(|(key, value)| Some((key, canonical(value)?)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            let mut items: Vec<_> = items.into_iter().filter_map(canonical).collect();
            items.sort_by_cached_key(Value::to_string);
            items.dedup();
            Value::Array(items)
        }
        other => other,
    };
    let counts = match &value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    };
    counts.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_class::decode::decode;

    const FULL: &str = include_str!("../../tests/fixtures/full-node-class.json");

    /// The hash of the full example with one field of its spec set, or taken away by null.
    fn hash_with(field: &str, value: Value) -> String {
        let mut object: Value = serde_json::from_str(FULL).unwrap();
        object["spec"][field] = value;
        hash(&decode(&object).unwrap().spec, "ca")
    }

    fn full() -> String {
        hash(&decode(&serde_json::from_str(FULL).unwrap()).unwrap().spec, "ca")
    }

    #[test]
    fn fields_that_make_machines_different_count() {
        let full = full();
        for (field, value) in [
            ("amiFamily", json!("Custom")),
            ("associatePublicIPAddress", json!(true)),
            ("blockDeviceMappings", json!([{ "deviceName": "/dev/xvda", "ebs": { "volumeSize": "21Gi" } }])),
            ("connectionTracking", json!({ "udpTimeout": 31 })),
            ("context", json!("other")),
            ("cpuOptions", json!({ "nestedVirtualization": "disabled" })),
            ("detailedMonitoring", Value::Null),
            ("enclaveOptions", Value::Null),
            ("instanceStorePolicy", Value::Null),
            ("kubelet", json!({ "maxPods": 111, "clusterDNS": ["10.0.0.10", "10.0.0.11"] })),
            ("metadataOptions", json!({ "httpTokens": "optional" })),
            ("networkInterfaces", Value::Null),
            ("placementGroupSelector", json!({ "id": "pg-1" })),
            ("role", json!("other")),
            ("tags", json!({ "team": "b" })),
            ("tags", json!({ "team": "a", "empty": "" })),
            ("userData", json!("other")),
        ] {
            assert_ne!(hash_with(field, value), full, "{field}");
        }
    }

    #[test]
    fn the_ca_bundle_and_an_instance_profile_count() {
        let spec = decode(&serde_json::from_str(FULL).unwrap()).unwrap().spec;
        assert_ne!(hash(&spec, "other"), hash(&spec, "ca"));
        let by_profile = NodeClassSpec { rights: Rights::InstanceProfile("nodes".to_owned()), ..spec.clone() };
        assert_ne!(hash(&by_profile, "ca"), hash(&spec, "ca"));
    }

    #[test]
    fn selectors_do_not_count_because_what_they_select_does() {
        let full = full();
        for (field, value) in [
            ("subnetSelectorTerms", json!([{ "id": "subnet-1" }])),
            ("securityGroupSelectorTerms", json!([{ "id": "sg-1" }])),
            ("capacityReservationSelectorTerms", json!([{ "id": "cr-1" }])),
            ("amiSelectorTerms", json!([{ "id": "ami-1" }])),
            ("ipPrefixCount", json!(7)),
        ] {
            assert_eq!(hash_with(field, value), full, "{field}");
        }
    }

    #[test]
    fn order_and_absence_do_not_count_but_the_order_of_dns_servers_does() {
        let full = full();
        let swapped = json!([
            { "networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only" },
            { "networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface" },
        ]);
        assert_eq!(hash_with("networkInterfaces", swapped), full);
        assert_eq!(hash_with("associatePublicIPAddress", json!(false)), full);
        assert_eq!(hash_with("associatePublicIPAddress", Value::Null), full);
        let kubelet = json!({ "maxPods": 110, "clusterDNS": ["10.0.0.11", "10.0.0.10"] });
        assert_ne!(hash_with("kubelet", kubelet), full);
    }

    #[test]
    fn sizes_count_as_written_and_the_hash_is_stable_across_releases() {
        let mapping = |size: &str| json!([{ "deviceName": "/dev/xvda", "ebs": { "volumeSize": size } }]);
        assert_ne!(
            hash_with("blockDeviceMappings", mapping("1Ti")),
            hash_with("blockDeviceMappings", mapping("1025Gi"))
        );
        expect_test::expect!["dovetail-v1 e8f2f8ed8ee6e2a5"].assert_eq(&format!("{VERSION} {}", full()));
    }
}
