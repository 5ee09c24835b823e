//! ResourceClaims and their templates: requests, constraints, configuration, and the allocation in the status.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Quantity, Timestamp, Uid, Unsupported};
use serde_json::Value;

use super::json::{ApiVersion, FieldError, Reader, Unknown, api_version};
use super::meta::ObjectMeta;
use super::names::{DeviceClassName, DeviceId, DriverName, QualifiedName, RequestName};
use super::node_selector::NodeSelector;
use super::slice::{SkipNodeOperation, split_unknown};
use super::taint::DeviceToleration;

/// What a claim asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceClaimSpec {
    /// Its requests, in order.
    pub requests: Vec<DeviceRequest>,
    /// What the devices must have in common, or must not.
    pub constraints: Vec<Constraint>,
    /// Copied into the result.
    pub config: Vec<Config>,
}

/// One request of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Its name.
    pub name: RequestName,
    /// What it asks for.
    pub kind: RequestKind,
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestKind {
    /// These devices.
    Exactly(ExactRequest),
    /// The first of several alternatives that can be had, each with its name.
    FirstAvailable(Vec<(RequestName, ExactRequest)>),
    /// Neither, or both: upstream refuses the claim.
    Neither,
}

/// A request, or an alternative of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExactRequest {
    /// The class; empty is an error of the claim.
    pub device_class_name: DeviceClassName,
    /// All must match, after those of the class.
    pub selectors: Vec<DeviceSelector>,
    /// How many devices.
    pub allocation_mode: AllocationMode,
    /// Whether the devices are only looked at; never true in alternatives.
    pub admin_access: bool,
    /// Taints that are tolerated.
    pub tolerations: Vec<DeviceToleration>,
    /// How much of each capacity.
    pub capacity: BTreeMap<QualifiedName, Quantity>,
    /// KEP-6080: attributes computed for constraints.
    pub derived_attributes: Vec<DerivedAttribute>,
}

/// How many devices a request wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllocationMode {
    /// This many; the API allows only numbers above 0.
    ExactCount(i64),
    /// All that match.
    All,
    /// A mode that upstream does not know: the claim cannot be allocated.
    Other(Arc<str>),
}

/// A condition on devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeviceSelector {
    /// A CEL expression.
    Cel(Arc<str>),
    /// A kind that is not known: upstream refuses the claim.
    Other,
}

impl DeviceSelector {
    pub(crate) fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["cel"])?;
        let cel = reader.field("cel");
        cel.object(&["expression"])?;
        Ok(if cel.is_present() { Self::Cel(cel.field("expression").string()?) } else { Self::Other })
    }
}

/// An attribute computed from a device by CEL (KEP-6080).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedAttribute {
    /// Its name, which shadows a published one in constraints.
    pub name: QualifiedName,
    /// The expression.
    pub expression: Arc<str>,
}

/// What devices of some requests must have in common, or must not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    /// The requests; empty for all. `main` covers all alternatives, `main/sub` one.
    pub requests: Vec<RequestName>,
    /// The rule.
    pub kind: ConstraintKind,
}

/// The rule of a constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConstraintKind {
    /// All have the attribute, with one value.
    MatchAttribute(QualifiedName),
    /// All have the attribute, with different values.
    DistinctAttribute(QualifiedName),
    /// A kind that is not known: upstream refuses the claim.
    Other,
}

/// Opaque configuration for a driver.
#[derive(Debug, Clone, PartialEq)]
pub struct OpaqueConfig {
    /// The driver.
    pub driver: DriverName,
    /// Its parameters, as they are.
    pub parameters: Arc<Value>,
}

impl Eq for OpaqueConfig {}

/// Configuration of some requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The requests; empty for all (always in a class).
    pub requests: Vec<RequestName>,
    /// The configuration; None for a kind that is not known.
    pub opaque: Option<OpaqueConfig>,
}

impl Config {
    /// Reads all but checks no field names.
    pub(super) fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        let opaque = reader.field("opaque");
        opaque.object(&["driver", "parameters"])?;
        Ok(Self {
            requests: reader.field("requests").strings()?,
            opaque: if opaque.is_present() {
                let parameters = opaque.field("parameters").present().cloned().unwrap_or(Value::Null);
                Some(OpaqueConfig { driver: opaque.field("driver").string()?, parameters: Arc::new(parameters) })
            } else {
                None
            },
        })
    }
}

/// Where a configuration of a result comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigSource {
    /// `FromClass`
    Class,
    /// `FromClaim`
    Claim,
    /// Not known.
    Other(Arc<str>),
}

/// A configuration of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultConfig {
    /// Where it comes from.
    pub source: ConfigSource,
    /// The configuration.
    pub config: Config,
}

/// One device given to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationResult {
    /// The request, or `request/subrequest`.
    pub request: RequestName,
    /// The device.
    pub device: DeviceId,
    /// Whether the device is only looked at; then it does not count as allocated.
    pub admin_access: bool,
    /// Copied from the request.
    pub tolerations: Vec<DeviceToleration>,
    /// Copied from the device.
    pub binding_conditions: Vec<Arc<str>>,
    /// Copied from the device.
    pub binding_failure_conditions: Vec<Arc<str>>,
    /// Tells the shares of one device apart; None for a device that is not shared.
    pub share_id: Option<Arc<str>>,
    /// What the share takes of each capacity.
    pub consumed_capacity: BTreeMap<QualifiedName, Quantity>,
    /// Copied from the slice.
    pub skip_node_operations: Vec<SkipNodeOperation>,
}

/// What a claim was given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocation {
    /// The devices, in the order of the requests.
    pub results: Vec<AllocationResult>,
    /// Configuration: of the class first, then of the claim.
    pub config: Vec<ResultConfig>,
    /// Where the claim can be used; None for everywhere.
    pub node_selector: Option<Arc<NodeSelector>>,
    /// When it was allocated, for the time-out of binding.
    pub timestamp: Option<Timestamp>,
}

impl Allocation {
    /// Most devices that a claim's status can hold (`AllocationResultsMaxSize` of the API).
    pub const MAX_RESULTS: usize = 32;
}

/// A user of a claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Consumer {
    /// The API group; empty for pods.
    pub api_group: Arc<str>,
    /// The resource: `pods`, `podgroups`.
    pub resource: Arc<str>,
    /// Its name in the claim's namespace.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Uid,
}

impl Consumer {
    /// Whether it is a pod.
    pub fn is_pod(&self) -> bool {
        self.api_group.is_empty() && &*self.resource == "pods"
    }
}

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    /// `True`
    True,
    /// `False`
    False,
    /// `Unknown`, or anything else.
    Unknown,
}

/// What a driver reports about an allocated device; only its conditions matter, for binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStatus {
    /// The device.
    pub device: DeviceId,
    /// Which share of it.
    pub share_id: Option<Arc<str>>,
    /// Its conditions: type and status.
    pub conditions: Vec<(Arc<str>, ConditionStatus)>,
}

/// A ResourceClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceClaim {
    /// Who it is.
    pub meta: ObjectMeta,
    /// What it asks for.
    pub spec: ResourceClaimSpec,
    /// What it was given, once allocated.
    pub allocation: Option<Allocation>,
    /// Who uses it.
    pub reserved_for: Vec<Consumer>,
    /// Conditions of its devices.
    pub device_status: Vec<DeviceStatus>,
    /// Fields that could change an answer and are not understood; the claim must not be allocated, and if it is
    /// allocated its devices still count.
    pub unsupported: Vec<Unsupported>,
    /// Other fields that are not known.
    pub unknown_fields: Vec<Arc<str>>,
}

/// A ResourceClaimTemplate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimTemplate {
    /// Who it is.
    pub meta: ObjectMeta,
    /// Labels and annotations of the claims made from it.
    pub claim_labels: BTreeMap<Arc<str>, Arc<str>>,
    /// What those claims ask for.
    pub spec: ResourceClaimSpec,
    /// Fields that could change an answer and are not understood; its claims must not be allocated.
    pub unsupported: Vec<Unsupported>,
    /// Other fields that are not known.
    pub unknown_fields: Vec<Arc<str>>,
}

const VERSIONS: &[ApiVersion] = &[ApiVersion::V1, ApiVersion::V1Beta2, ApiVersion::V1Beta1];

impl ResourceClaim {
    /// Versions that are read.
    pub const VERSIONS: &'static [ApiVersion] = VERSIONS;

    /// Reads a claim of any served version.
    ///
    /// # Errors
    /// A value of the wrong type, another kind, or a version that is not served; the error names the field.
    pub fn from_json(object: &Value) -> Result<Self, FieldError> {
        let unknown = Unknown::default();
        let root = Reader::root(object, &unknown);
        let version = api_version(&root, "ResourceClaim", VERSIONS)?;
        root.object(&["apiVersion", "kind", "metadata", "spec", "status"])?;
        let status = root.field("status");
        status.object(&["allocation", "devices", "reservedFor"])?;
        let allocation = status.field("allocation");
        let mut claim = Self {
            meta: ObjectMeta::read(&root)?,
            spec: ResourceClaimSpec::read(&root.field("spec"), version)?,
            allocation: if allocation.is_present() { Some(Allocation::read(&allocation)?) } else { None },
            reserved_for: status.field("reservedFor").list(Consumer::read)?,
            device_status: status.field("devices").list(DeviceStatus::read)?,
            unsupported: Vec::new(),
            unknown_fields: Vec::new(),
        };
        (claim.unsupported, claim.unknown_fields) = split_unknown(unknown);
        Ok(claim)
    }
}

impl ClaimTemplate {
    /// Versions that are read.
    pub const VERSIONS: &'static [ApiVersion] = VERSIONS;

    /// Reads a template of any served version.
    ///
    /// # Errors
    /// A value of the wrong type, another kind, or a version that is not served; the error names the field.
    pub fn from_json(object: &Value) -> Result<Self, FieldError> {
        let unknown = Unknown::default();
        let root = Reader::root(object, &unknown);
        let version = api_version(&root, "ResourceClaimTemplate", VERSIONS)?;
        root.object(&["apiVersion", "kind", "metadata", "spec"])?;
        let spec = root.field("spec");
        spec.object(&["metadata", "spec"])?;
        let mut template = Self {
            meta: ObjectMeta::read(&root)?,
            claim_labels: ObjectMeta::read(&spec)?.labels,
            spec: ResourceClaimSpec::read(&spec.field("spec"), version)?,
            unsupported: Vec::new(),
            unknown_fields: Vec::new(),
        };
        (template.unsupported, template.unknown_fields) = split_unknown(unknown);
        Ok(template)
    }
}

impl ResourceClaimSpec {
    fn read(spec: &Reader<'_>, version: ApiVersion) -> Result<Self, FieldError> {
        spec.object(&["devices"])?;
        let devices = spec.field("devices");
        devices.object(&["config", "constraints", "requests"])?;
        let config = |config: &Reader<'_>| {
            config.object(&["opaque", "requests"])?;
            Config::read(config)
        };
        Ok(Self {
            requests: devices.field("requests").list(|request| DeviceRequest::read(request, version))?,
            constraints: devices.field("constraints").list(Constraint::read)?,
            config: devices.field("config").list(config)?,
        })
    }
}

const REQUEST_FIELDS: &[&str] =
    &["allocationMode", "capacity", "count", "derivedAttributes", "deviceClassName", "selectors", "tolerations"];

fn and<'a>(fields: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    fields.iter().chain(more).copied().collect()
}

impl DeviceRequest {
    fn read(reader: &Reader<'_>, version: ApiVersion) -> Result<Self, FieldError> {
        let flat = version == ApiVersion::V1Beta1;
        if flat {
            reader.object(&and(REQUEST_FIELDS, &["adminAccess", "firstAvailable", "name"]))?;
        } else {
            reader.object(&["exactly", "firstAvailable", "name"])?;
        }
        let first_available = reader.field("firstAvailable").list(|alternative| {
            alternative.object(&and(REQUEST_FIELDS, &["name"]))?;
            Ok((alternative.field("name").string()?, ExactRequest::read(alternative)?))
        })?;
        let exactly = reader.field("exactly");
        let exactly = if flat {
            // The conversion of v1beta1: a request of its own as soon as one of its fields is set.
            let fields = and(REQUEST_FIELDS, &["adminAccess"]);
            let is_set = fields.iter().any(|field| reader.field(field).is_present());
            is_set.then(|| ExactRequest::read(reader)).transpose()?
        } else if exactly.is_present() {
            exactly.object(&and(REQUEST_FIELDS, &["adminAccess"]))?;
            Some(ExactRequest::read(&exactly)?)
        } else {
            None
        };
        let kind = match (exactly, first_available.is_empty()) {
            (Some(exactly), true) => RequestKind::Exactly(exactly),
            (None, false) => RequestKind::FirstAvailable(first_available),
            (None, true) | (Some(_), false) => RequestKind::Neither,
        };
        Ok(Self { name: reader.field("name").string()?, kind })
    }
}

impl ExactRequest {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        let capacity = reader.field("capacity");
        capacity.object(&["requests"])?;
        let derived = |derived: &Reader<'_>| {
            derived.object(&["expression", "name"])?;
            Ok(DerivedAttribute {
                name: derived.field("name").string()?,
                expression: derived.field("expression").string()?,
            })
        };
        let count = reader.field("count").integer()?.unwrap_or(0);
        let mode = reader.field("allocationMode");
        let allocation_mode = match mode.text()?.unwrap_or_default() {
            "" | "ExactCount" => AllocationMode::ExactCount(if count == 0 { 1 } else { count }),
            "All" if count != 0 => {
                let field = reader.field("count");
                return Err(field.error(super::json::Reason::Invalid("must be 0 with mode All".to_owned())));
            }
            "All" => AllocationMode::All,
            other => AllocationMode::Other(other.into()),
        };
        Ok(Self {
            device_class_name: reader.field("deviceClassName").string()?,
            selectors: reader.field("selectors").list(DeviceSelector::read)?,
            allocation_mode,
            admin_access: reader.field("adminAccess").boolean()?.unwrap_or(false),
            tolerations: reader.field("tolerations").list(DeviceToleration::read)?,
            capacity: capacity.field("requests").map(|item| Ok(item.quantity()?.unwrap_or_default()))?,
            derived_attributes: reader.field("derivedAttributes").list(derived)?,
        })
    }
}

impl Constraint {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["distinctAttribute", "matchAttribute", "requests"])?;
        let matching: Option<QualifiedName> = reader.field("matchAttribute").optional_string()?;
        let distinct: Option<QualifiedName> = reader.field("distinctAttribute").optional_string()?;
        let kind = match (matching, distinct) {
            // The API server takes both, and the allocator looks at this one first.
            (Some(name), _) => ConstraintKind::MatchAttribute(name),
            (None, Some(name)) => ConstraintKind::DistinctAttribute(name),
            (None, None) => ConstraintKind::Other,
        };
        Ok(Self { requests: reader.field("requests").strings()?, kind })
    }
}

fn device_id(reader: &Reader<'_>) -> Result<DeviceId, FieldError> {
    Ok(DeviceId {
        driver: reader.field("driver").string()?,
        pool: reader.field("pool").string()?,
        device: reader.field("device").string()?,
    })
}

impl Allocation {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["allocationTimestamp", "devices", "nodeSelector"])?;
        let devices = reader.field("devices");
        devices.object(&["config", "results"])?;
        let config = |config: &Reader<'_>| {
            config.object(&["opaque", "requests", "source"])?;
            let source = match config.field("source").text()?.unwrap_or_default() {
                "FromClass" => ConfigSource::Class,
                "FromClaim" => ConfigSource::Claim,
                other => ConfigSource::Other(other.into()),
            };
            Ok(ResultConfig { source, config: Config::read(config)? })
        };
        Ok(Self {
            results: devices.field("results").list(AllocationResult::read)?,
            config: devices.field("config").list(config)?,
            node_selector: NodeSelector::read(&reader.field("nodeSelector"))?.map(Arc::new),
            timestamp: reader.field("allocationTimestamp").time()?,
        })
    }
}

const RESULT_FIELDS: &[&str] = &[
    "adminAccess",
    "bindingConditions",
    "bindingFailureConditions",
    "consumedCapacity",
    "device",
    "driver",
    "pool",
    "request",
    "shareID",
    "skipNodeOperations",
    "tolerations",
];

impl AllocationResult {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(RESULT_FIELDS)?;
        Ok(Self {
            request: reader.field("request").string()?,
            device: device_id(reader)?,
            admin_access: reader.field("adminAccess").boolean()?.unwrap_or(false),
            tolerations: reader.field("tolerations").list(DeviceToleration::read)?,
            binding_conditions: reader.field("bindingConditions").strings()?,
            binding_failure_conditions: reader.field("bindingFailureConditions").strings()?,
            share_id: reader.field("shareID").optional_string()?,
            consumed_capacity: reader
                .field("consumedCapacity")
                .map(|amount| Ok(amount.quantity()?.unwrap_or_default()))?,
            skip_node_operations: reader.field("skipNodeOperations").strings()?,
        })
    }
}

impl Consumer {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["apiGroup", "name", "resource", "uid"])?;
        Ok(Self {
            api_group: reader.field("apiGroup").string()?,
            resource: reader.field("resource").string()?,
            name: reader.field("name").string()?,
            uid: reader.field("uid").string()?,
        })
    }
}

impl DeviceStatus {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["conditions", "data", "device", "driver", "networkData", "pool", "shareID"])?;
        let condition = |condition: &Reader<'_>| {
            let status = match condition.field("status").text()?.unwrap_or_default() {
                "True" => ConditionStatus::True,
                "False" => ConditionStatus::False,
                _ => ConditionStatus::Unknown,
            };
            Ok((condition.field("type").string()?, status))
        };
        Ok(Self {
            device: device_id(reader)?,
            share_id: reader.field("shareID").optional_string()?,
            conditions: reader.field("conditions").list(condition)?,
        })
    }
}
