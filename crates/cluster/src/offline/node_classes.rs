//! What node classes of the input make of a provider's instance types.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::NodeClassReference;
use cloudprovider::InstanceType;
use decode::manifests::Manifest;

/// Instance types that NodePools share.
pub type Types = Arc<[Arc<InstanceType>]>;

/// The instance types of NodePools by group, kind and name of their node class, for a provider whose node classes
/// change what machines are.
#[derive(Debug, Clone, Default)]
pub struct NodeClassTypes(BTreeMap<[String; 3], Result<Types, Arc<str>>>);

impl NodeClassTypes {
    /// Takes what a node class makes of the types, or why it cannot be used, in place of what an object of its name
    /// made of them.
    pub fn insert(&mut self, node_class: &Manifest, types: Result<Types, Arc<str>>) {
        let name = node_class.object_ref().name.name.to_string();
        self.0.insert([node_class.group.clone(), node_class.kind.clone(), name], types);
    }

    /// What that node class makes of the types, or why it cannot be used; `None` if the input does not have it.
    pub fn of(&self, class: &NodeClassReference) -> Option<&Result<Types, Arc<str>>> {
        self.get(&class.group, &class.kind, &class.name)
    }

    /// What an object makes of the types if it is a node class, or why it cannot be used.
    pub fn of_object(&self, object: &Manifest) -> Option<&Result<Types, Arc<str>>> {
        self.get(&object.group, &object.kind, &object.object_ref().name.name)
    }

    fn get(&self, group: &str, kind: &str, name: &str) -> Option<&Result<Types, Arc<str>>> {
        self.0.get(&[group, kind, name].map(str::to_owned))
    }

    /// Those of the node classes that can be used.
    pub fn usable(&self) -> impl Iterator<Item = &Types> {
        self.0.values().filter_map(|types| types.as_ref().ok())
    }
}
