//! What a provider says of itself before anything is built: plain data and pure functions.
//!
//! Offline commands plan with a declaration alone. They have no client, no clock and no credentials, so nothing here
//! may need one.

use std::sync::Arc;

use api::crd::CustomResourceDefinition;
use api::labels::{LabelDomain, ProviderLabels};
use serde_json::Value;

use crate::options::{OptionDeclaration, OptionValues};
use crate::{InstanceType, NodeClassKind, RepairPolicy};

/// What the offline commands need to know of a provider.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// The provider's name in lower case, unique among providers; the label `provider` of metrics.
    pub name: &'static str,
    /// The provider's crate as log lines name it, so that the level which the user gave is for it too.
    pub log_target: &'static str,
    /// What the help writes above the options.
    pub options_heading: &'static str,
    /// The options of the controller that only this provider understands.
    pub options: &'static [OptionDeclaration],
    /// The kinds of node classes that it serves.
    pub node_class_kinds: &'static [NodeClassKind],
    /// The CRDs that the provider brings: those of its node classes.
    pub crds: fn() -> Vec<CustomResourceDefinition>,
    /// The domains of labels that are the provider's own, for the CRDs of kinds that are not.
    pub label_domains: &'static [LabelDomain],
    /// The node class of a NodePool that nobody wrote.
    pub default_node_class: DefaultNodeClass,
    /// The options of offline commands by which a user says which machines there are, besides a file of instance types.
    /// They are flags only: a plan does not depend on variables, and `env` is what stands for the value in the help.
    pub catalogue_options: &'static [OptionDeclaration],
    /// The instance types to plan with. Fails if none can be used, or an option has a value that cannot be.
    pub catalogue: fn(&CatalogueInput) -> Result<Catalogue, CatalogueError>,
    /// When a Node counts as broken: what [`CloudProvider::repair_policies`](crate::CloudProvider::repair_policies)
    /// gives.
    pub repair_policies: fn() -> Vec<RepairPolicy>,
    /// The instance types as a node class, given as it is written, changes them; `None` if node classes change nothing
    /// of instance types. Fails if the node class cannot be used.
    pub catalogue_of_node_class: Option<CatalogueOfNodeClass>,
    /// The label rules that hold where machines are of these types.
    pub labels: fn(&[Arc<InstanceType>]) -> ProviderLabels,
}

/// See [`Declaration::catalogue_of_node_class`].
pub type CatalogueOfNodeClass = fn(&CatalogueInput, &Value) -> Result<Catalogue, CatalogueError>;

/// A node class by kind and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultNodeClass {
    /// One of the provider's kinds.
    pub kind: NodeClassKind,
    /// Name of the object.
    pub name: &'static str,
}

/// What a user said of the machines that there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogueInput {
    /// The text of a file of instance types; where absent, they are the provider's own.
    pub instance_types: Option<String>,
    /// The values of [`Declaration::catalogue_options`]. One of [`OptionKind::Path`](crate::options::OptionKind::Path)
    /// is here the text of the file, since providers read no files.
    pub options: OptionValues,
}

/// Which instance types there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// The types that can be used.
    pub instance_types: Vec<InstanceType>,
    /// Why entries of a file were left out, in its order.
    pub left_out: Vec<CatalogueError>,
}

/// Why a file of instance types or one of its entries cannot be used, in the provider's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CatalogueError(pub String);
