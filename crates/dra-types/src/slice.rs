//! ResourceSlices: what drivers publish.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{NodeName, Quantity, Unsupported};
use serde_json::Value;

use super::device::{Device, read_counters};
use super::json::{ApiVersion, FieldError, Reader, Reason, Unknown, api_version};
use super::meta::ObjectMeta;
use super::names::{CounterName, CounterSetName, DriverName, PoolId, PoolName, QualifiedName};
use super::node_selector::NodeSelector;

/// The pool that a slice is a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its name inside of the driver.
    pub name: PoolName,
    /// Only slices of the highest generation count.
    pub generation: i64,
    /// How many slices make the generation complete.
    pub resource_slice_count: i64,
}

/// From which nodes devices can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NodeScope {
    /// Only from this node.
    Node(NodeName),
    /// From nodes that match.
    Selector(NodeSelector),
    /// From everywhere.
    AllNodes,
    /// Each device says for itself.
    PerDevice,
}

impl NodeScope {
    /// The one scope that is set; None if none is, and an error if several are.
    pub(super) fn exactly_one(
        reader: &Reader<'_>,
        node_name: Option<NodeName>,
        selector: Option<NodeSelector>,
        all_nodes: bool,
        per_device: bool,
    ) -> Result<Option<Self>, FieldError> {
        let mut scopes = [
            node_name.map(Self::Node),
            selector.map(Self::Selector),
            all_nodes.then_some(Self::AllNodes),
            per_device.then_some(Self::PerDevice),
        ]
        .into_iter()
        .flatten();
        let scope = scopes.next();
        if scopes.next().is_some() {
            return Err(reader.error(Reason::Invalid(
                "exactly one of nodeName, nodeSelector, allNodes, perDeviceNodeSelection may be set".to_owned(),
            )));
        }
        Ok(scope)
    }
}

/// A set of counters that devices of the pool draw from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterSet {
    /// Its name inside of the pool.
    pub name: CounterSetName,
    /// How much there is of each counter.
    pub counters: BTreeMap<CounterName, Quantity>,
}

impl CounterSet {
    /// Reads a set by itself.
    ///
    /// # Errors
    /// A value of the wrong type or an unknown field; the error names the field.
    pub fn from_json(object: &Value) -> Result<Self, FieldError> {
        let unknown = Unknown::default();
        let set = Self::read(&Reader::root(object, &unknown))?;
        match unknown.into_paths().into_iter().next() {
            Some(field) => Err(FieldError { field, reason: Reason::Unknown }),
            None => Ok(set),
        }
    }

    fn read(set: &Reader<'_>) -> Result<Self, FieldError> {
        set.object(&["counters", "name"])?;
        Ok(Self { name: set.field("name").string()?, counters: read_counters(&set.field("counters"))? })
    }
}

/// A step on the node that a driver does not need (KEP-5945).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipNodeOperation {
    /// `NodePrepareResources`
    Prepare,
    /// `NodeUnprepareResources`
    Unprepare,
    /// `*`
    All,
    /// Not known.
    Other(Arc<str>),
}

impl From<&str> for SkipNodeOperation {
    fn from(text: &str) -> Self {
        match text {
            "NodePrepareResources" => Self::Prepare,
            "NodeUnprepareResources" => Self::Unprepare,
            "*" => Self::All,
            other => Self::Other(other.into()),
        }
    }
}

/// A ResourceSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSlice {
    /// Who it is. Slices of a pool are ordered by name.
    pub meta: ObjectMeta,
    /// Who published it.
    pub driver: DriverName,
    /// Its pool.
    pub pool: Pool,
    /// From where its devices can be reached; None for a way that is not known, which upstream skips.
    pub node_scope: Option<NodeScope>,
    /// Its devices, in the driver's order.
    pub devices: Vec<Device>,
    /// Counter sets of the pool.
    pub shared_counters: Vec<CounterSet>,
    /// KEP-5677: the attribute that summaries group partitions by. No effect on scheduling.
    pub partition_type_attribute: Option<QualifiedName>,
    /// Copied into results.
    pub skip_node_operations: Vec<SkipNodeOperation>,
    /// Fields that could change an answer and are not understood; devices of such a slice must not be planned with.
    pub unsupported: Vec<Unsupported>,
    /// Other fields that are not known.
    pub unknown_fields: Vec<Arc<str>>,
}

const SPEC_FIELDS: &[&str] = &[
    "allNodes",
    "devices",
    "driver",
    "nodeName",
    "nodeSelector",
    "partitionTypeAttribute",
    "perDeviceNodeSelection",
    "pool",
    "sharedCounters",
    "skipNodeOperations",
];

impl ResourceSlice {
    /// Versions that are read.
    pub const VERSIONS: &'static [ApiVersion] = &[ApiVersion::V1, ApiVersion::V1Beta2, ApiVersion::V1Beta1];

    /// Joins slices of its pool, of which only those of the newest generation describe it: in place of older ones, or
    /// not at all if it is older itself.
    pub fn join_newest<'s>(&'s self, newest: &mut Vec<&'s Self>) {
        let generation = newest.first().map_or(i64::MIN, |first| first.pool.generation);
        if self.pool.generation > generation {
            newest.clear();
        }
        if self.pool.generation >= generation {
            newest.push(self);
        }
    }

    /// Reads a slice of any served version.
    ///
    /// # Errors
    /// A value of the wrong type, another kind, or a version that is not served; the error names the field.
    pub fn from_json(object: &Value) -> Result<Self, FieldError> {
        let unknown = Unknown::default();
        let root = Reader::root(object, &unknown);
        let version = api_version(&root, "ResourceSlice", Self::VERSIONS)?;
        root.object(&["apiVersion", "kind", "metadata", "spec"])?;
        let spec = root.field("spec");
        spec.object(SPEC_FIELDS)?;
        let mut slice = Self::read_spec(ObjectMeta::read(&root)?, &spec, version)?;
        (slice.unsupported, slice.unknown_fields) = split_unknown(unknown);
        Ok(slice)
    }

    fn read_spec(meta: ObjectMeta, spec: &Reader<'_>, version: ApiVersion) -> Result<Self, FieldError> {
        let pool = spec.field("pool");
        pool.object(&["generation", "name", "resourceSliceCount"])?;
        let all_nodes = spec.field("allNodes");
        let all_nodes = match version {
            ApiVersion::V1 | ApiVersion::V1Beta2 => unset_or_true(&all_nodes)?,
            // There it is no pointer, so that false is as good as unset.
            ApiVersion::V1Beta1 | ApiVersion::V1Alpha3 => all_nodes.boolean()?.unwrap_or(false),
        };
        let node_scope = NodeScope::exactly_one(
            spec,
            spec.field("nodeName").text()?.filter(|name| !name.is_empty()).map(NodeName::from),
            NodeSelector::read(&spec.field("nodeSelector"))?,
            all_nodes,
            unset_or_true(&spec.field("perDeviceNodeSelection"))?,
        )?;
        Ok(Self {
            meta,
            driver: spec.field("driver").string()?,
            pool: Pool {
                name: pool.field("name").string()?,
                generation: pool.field("generation").integer()?.unwrap_or(0),
                resource_slice_count: pool.field("resourceSliceCount").integer()?.unwrap_or(0),
            },
            node_scope,
            devices: spec.field("devices").list(|device| {
                unset_or_true(&device.field("allNodes"))?;
                Device::read(device, version)
            })?,
            shared_counters: spec.field("sharedCounters").list(CounterSet::read)?,
            partition_type_attribute: spec.field("partitionTypeAttribute").optional_string()?,
            skip_node_operations: spec.field("skipNodeOperations").strings()?,
            unsupported: Vec::new(),
            unknown_fields: Vec::new(),
        })
    }

    /// Its pool, with the driver.
    pub fn pool_id(&self) -> PoolId {
        PoolId { driver: self.driver.clone(), pool: self.pool.name.clone() }
    }
}

fn unset_or_true(reader: &Reader<'_>) -> Result<bool, FieldError> {
    match reader.boolean()? {
        None => Ok(false),
        Some(true) => Ok(true),
        Some(false) => Err(reader.error(Reason::Invalid("must be unset or true".to_owned()))),
    }
}

/// Unknown fields of a spec or of an allocation could change an answer; those of metadata and of the rest of a status
/// cannot.
pub(super) fn split_unknown(unknown: Unknown) -> (Vec<Unsupported>, Vec<Arc<str>>) {
    let harmless = |path: &Arc<str>| {
        path.starts_with("metadata.")
            || path.starts_with("spec.metadata.")
            || (path.starts_with("status.") && !path.starts_with("status.allocation."))
    };
    let (harmless, changing): (Vec<_>, Vec<_>) = unknown.into_paths().into_iter().partition(harmless);
    (changing.into_iter().map(Unsupported::new).collect(), harmless)
}
