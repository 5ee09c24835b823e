//! The CSINode of a fake machine, which tells how many volumes its CSI drivers attach. A kubelet writes it once drivers
//! have registered; a fake machine has it with its Node, so that no pod comes before its limits are known. It belongs
//! to the Node and goes with it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The CSINode of that Node; `None` if its type limits no driver.
pub(crate) fn csi_node(node: &Node, limits: &BTreeMap<String, u32>) -> Option<CSINode> {
    if limits.is_empty() {
        return None;
    }
    let name = node.metadata.name.clone().unwrap_or_default();
    let driver = |(driver, limit): (&String, &u32)| CSINodeDriver {
        name: driver.clone(),
        node_id: name.clone(),
        allocatable: Some(VolumeNodeResources { count: i32::try_from(*limit).ok() }),
        topology_keys: None,
    };
    Some(CSINode {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: name.clone(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec { drivers: limits.iter().map(driver).collect() },
        ..CSINode::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_tells_the_limits_of_its_type_and_without_any_nothing() {
        let metadata = ObjectMeta { name: Some("n".to_owned()), uid: Some("u".to_owned()), ..ObjectMeta::default() };
        let node = Node { metadata, ..Node::default() };
        assert_eq!(csi_node(&node, &BTreeMap::new()), None);
        let limits = BTreeMap::from([("a.example.com".to_owned(), 3), ("b.example.com".to_owned(), 25)]);
        let made = csi_node(&node, &limits).unwrap();
        let told: Vec<_> = made
            .spec
            .drivers
            .iter()
            .map(|it| (it.name.as_str(), it.node_id.as_str(), it.allocatable.as_ref().unwrap().count))
            .collect();
        assert_eq!(told, [("a.example.com", "n", Some(3)), ("b.example.com", "n", Some(25))]);
        let owner = &made.metadata.owner_references.unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Node", "u"));
    }
}
