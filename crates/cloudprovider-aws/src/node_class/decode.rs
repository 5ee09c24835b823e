//! An EC2NodeClass as the rest of this crate sees it: choices are enums, and what one field says of another is
//! resolved.
//!
//! The CRD's rules have one home, the CRD: what is read here first passes the offline admission with it, so an object
//! that was stored under another CRD is refused with the same words, by field.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use api::admission::{Admission, FieldError, FieldErrorKind, Operation, UnsupportedSchema};
use model::{Quantity, Uid};
use serde_json::Value;

use super::alias::Alias;
use super::spec::{
    AmiFamily, AmiSelectorTerm, BlockDeviceMapping, CapacityReservationSelectorTerm, ConnectionTracking,
    EC2NodeClassSpec, InstanceMatchCriteria, InstanceStorePolicy, MetadataOptions, NetworkInterface,
    PlacementGroupSelector, SecurityGroupSelectorTerm, SubnetSelectorTerm, Switch, Tags, VolumeType,
};
use super::status::EC2NodeClassStatus;
use crate::names;

static ADMISSION: LazyLock<Result<Admission, UnsupportedSchema>> = LazyLock::new(|| Admission::new(&[super::crd()]));

/// How machines are launched.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeClass {
    /// Its name.
    pub name: String,
    /// Its UID; empty if no server has seen it.
    pub uid: Uid,
    /// Counts changes of the spec.
    pub generation: i64,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// What it asks for.
    pub spec: NodeClassSpec,
    /// What was found for it.
    pub status: EC2NodeClassStatus,
}

/// What an EC2NodeClass asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeClassSpec {
    /// Selects subnets.
    pub subnets: Vec<SubnetTerm>,
    /// Selects security groups.
    pub security_groups: Vec<SecurityGroupTerm>,
    /// Selects capacity reservations.
    pub capacity_reservations: Vec<CapacityReservationTerm>,
    /// Selects the placement group.
    pub placement_group: Option<PlacementGroupTerm>,
    /// Selects images.
    pub images: ImageSelection,
    /// The family of the images: that of the object, else that of the alias.
    pub ami_family: AmiFamily,
    /// Where the rights of the machines come from.
    pub rights: Rights,
    /// What the user wants machines to be told at boot.
    pub user_data: Option<String>,
    /// The user's tags.
    pub tags: Tags,
    /// The user's settings of the kubelet, as they are written; `kubelet` checks and reads them.
    pub kubelet: serde_json::Map<String, Value>,
    /// The disks; those of the AMI family where empty.
    pub disks: Vec<Disk>,
    /// What is done with disks that an instance type brings along.
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// The network interfaces; one, or as many as there are EFAs, where empty.
    pub network_interfaces: Vec<NetworkInterface>,
    /// Whether machines get a public IPv4 address.
    pub associate_public_ip_address: Option<bool>,
    /// How many IP prefixes the primary network interface gets.
    pub ip_prefix_count: Option<i32>,
    /// How long network interfaces remember connections.
    pub connection_tracking: Option<ConnectionTracking>,
    /// Whether machines report metrics every minute.
    pub detailed_monitoring: Option<bool>,
    /// How the metadata service answers.
    pub metadata_options: MetadataOptions,
    /// A text that is handed to EC2.
    pub context: Option<String>,
    /// Whether machines can start virtual machines.
    pub nested_virtualization: Option<Switch>,
    /// Whether machines can start enclaves.
    pub enclaves: bool,
}

/// Selects subnets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubnetTerm {
    /// The one with this id.
    Id(String),
    /// Those with these tags.
    Tags(Tags),
}

/// Selects security groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityGroupTerm {
    /// The one with this id.
    Id(String),
    /// Those with this name.
    Name(String),
    /// Those with these tags.
    Tags(Tags),
}

/// Selects capacity reservations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CapacityReservationTerm {
    /// The one with this id.
    Id(String),
    /// Those for which all of this holds.
    Properties {
        /// Tags that they have.
        tags: Tags,
        /// Whose they are.
        owner_id: Option<String>,
        /// Which launches use them.
        match_criteria: Option<InstanceMatchCriteria>,
    },
}

/// Selects the placement group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementGroupTerm {
    /// By its id.
    Id(String),
    /// By its name.
    Name(String),
}

/// Selects images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSelection {
    /// Those that AWS publishes for EKS.
    Alias(Alias),
    /// All that one of the terms selects.
    Terms(Vec<ImageTerm>),
}

/// Selects images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageTerm {
    /// The one with this id.
    Id(String),
    /// The one whose id this SSM parameter holds.
    Parameter(String),
    /// Those for which all of this holds.
    Properties {
        /// Their name, with `*` and `?`.
        name: Option<String>,
        /// Whose they are.
        owner: Option<String>,
        /// Tags that they have.
        tags: Tags,
    },
}

/// Where the rights of machines come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rights {
    /// From a role, for which we make an instance profile.
    Role(String),
    /// From an instance profile of the user's.
    InstanceProfile(String),
}

/// A disk of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The device's name.
    pub device_name: Option<String>,
    /// Whether pods' files are on it.
    pub is_root: bool,
    /// The volume behind it.
    pub volume: Option<Volume>,
}

/// An EBS volume to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Volume {
    /// Its size; that of the snapshot where absent.
    pub size: Option<Quantity>,
    /// What kind it is.
    pub volume_type: Option<VolumeType>,
    /// Operations a second.
    pub iops: Option<i64>,
    /// MiB a second.
    pub throughput: Option<i64>,
    /// Whether it is encrypted.
    pub encrypted: Option<bool>,
    /// The key that encrypts it.
    pub kms_key_id: Option<String>,
    /// Whether it goes with the machine.
    pub delete_on_termination: Option<bool>,
    /// The snapshot that it is made from.
    pub snapshot_id: Option<String>,
    /// MiB a second at which the snapshot is read in.
    pub volume_initialization_rate: Option<i32>,
}

/// An EC2NodeClass that cannot be used, with every reason by field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// The object's name; empty if it has none.
    pub name: String,
    /// What is wrong, at least one thing.
    pub problems: Vec<FieldError>,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { "without a name" } else { &self.name };
        write!(f, "{} {name}", names::NODE_CLASS_KIND)?;
        for (index, problem) in self.problems.iter().enumerate() {
            write!(f, "{} {problem}", if index == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl std::error::Error for DecodeError {}

/// Reads an EC2NodeClass. Fields that the CRD does not know are left out.
///
/// # Errors
/// If the object breaks a rule of the CRD, has no spec, or is of another kind; all reasons are given.
pub fn decode(object: &Value) -> Result<NodeClass, DecodeError> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    read(object).map_err(|problems| DecodeError { name, problems })
}

fn read(object: &Value) -> Result<NodeClass, Vec<FieldError>> {
    let admission = ADMISSION.as_ref().map_err(|error| vec![invalid("", error)])?;
    let object = admission.admit(object, Operation::Restore)?;
    let Some(spec) = object.get("spec") else {
        return Err(vec![FieldError {
            path: "spec".to_owned(),
            kind: FieldErrorKind::Required,
            message: "Required value".to_owned(),
        }]);
    };
    let spec: EC2NodeClassSpec = parsed(spec, "spec")?;
    let status = object.get("status").map_or_else(|| Ok(EC2NodeClassStatus::default()), |it| parsed(it, "status"))?;
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let annotations =
        metadata.get("annotations").map_or_else(|| Ok(BTreeMap::new()), |it| parsed(it, "annotations"))?;
    Ok(NodeClass {
        name: text("name").to_owned(),
        uid: text("uid").into(),
        generation: metadata.get("generation").and_then(Value::as_i64).unwrap_or_default(),
        annotations,
        spec: resolve(spec).map_err(|problem| vec![problem])?,
        status,
    })
}

fn parsed<T: serde::de::DeserializeOwned>(value: &Value, path: &str) -> Result<T, Vec<FieldError>> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let inner = error.path().to_string();
        let path = if inner == "." { path.to_owned() } else { format!("{path}.{inner}") };
        vec![invalid(&path, error.inner())]
    })
}

fn invalid(path: &str, message: impl fmt::Display) -> FieldError {
    FieldError { path: path.to_owned(), kind: FieldErrorKind::Invalid, message: message.to_string() }
}

fn resolve(spec: EC2NodeClassSpec) -> Result<NodeClassSpec, FieldError> {
    let images = images(spec.ami_selector_terms)?;
    let of_alias = match &images {
        ImageSelection::Alias(alias) => Some(alias.family),
        ImageSelection::Terms(_) => None,
    };
    let ami_family = spec.ami_family.or(of_alias).ok_or_else(|| invalid("spec.amiFamily", "Required value"))?;
    let disks = spec.block_device_mappings.into_iter().enumerate();
    Ok(NodeClassSpec {
        subnets: spec.subnet_selector_terms.into_iter().map(SubnetTerm::from).collect(),
        security_groups: spec.security_group_selector_terms.into_iter().map(SecurityGroupTerm::from).collect(),
        capacity_reservations: spec.capacity_reservation_selector_terms.into_iter().map(Into::into).collect(),
        placement_group: spec.placement_group_selector.and_then(placement_group),
        images,
        ami_family,
        rights: rights(spec.role, spec.instance_profile)?,
        user_data: spec.user_data,
        tags: spec.tags,
        kubelet: spec.kubelet.unwrap_or_default(),
        disks: disks.map(|(index, mapping)| disk(index, mapping)).collect::<Result<_, _>>()?,
        instance_store_policy: spec.instance_store_policy,
        network_interfaces: spec.network_interfaces,
        associate_public_ip_address: spec.associate_public_ip_address,
        ip_prefix_count: spec.ip_prefix_count,
        connection_tracking: spec.connection_tracking,
        detailed_monitoring: spec.detailed_monitoring,
        metadata_options: spec.metadata_options,
        context: spec.context,
        nested_virtualization: spec.cpu_options.and_then(|options| options.nested_virtualization),
        enclaves: spec.enclave_options.is_some_and(|options| options.enabled),
    })
}

fn images(terms: Vec<AmiSelectorTerm>) -> Result<ImageSelection, FieldError> {
    let alias = terms.iter().enumerate().find_map(|(index, term)| Some((index, term.alias.as_deref()?)));
    if let Some((index, alias)) = alias {
        let alias = Alias::parse(alias);
        return alias
            .map(ImageSelection::Alias)
            .map_err(|error| invalid(&format!("spec.amiSelectorTerms[{index}].alias"), error));
    }
    Ok(ImageSelection::Terms(terms.into_iter().map(ImageTerm::from).collect()))
}

fn rights(role: Option<String>, instance_profile: Option<String>) -> Result<Rights, FieldError> {
    match (role, instance_profile) {
        (Some(role), None) => Ok(Rights::Role(role)),
        (None, Some(profile)) => Ok(Rights::InstanceProfile(profile)),
        (Some(_), Some(_)) | (None, None) => {
            Err(invalid("spec", "must specify exactly one of ['role', 'instanceProfile']"))
        }
    }
}

fn disk(index: usize, mapping: BlockDeviceMapping) -> Result<Disk, FieldError> {
    let volume = mapping.ebs.map(|ebs| {
        let size = ebs.volume_size.as_deref().map(volume_size).transpose();
        let size =
            size.map_err(|error| invalid(&format!("spec.blockDeviceMappings[{index}].ebs.volumeSize"), error))?;
        Ok(Volume {
            size,
            volume_type: ebs.volume_type,
            iops: ebs.iops,
            throughput: ebs.throughput,
            encrypted: ebs.encrypted,
            kms_key_id: ebs.kms_key_id,
            delete_on_termination: ebs.delete_on_termination,
            snapshot_id: ebs.snapshot_id.filter(|id| !id.is_empty()),
            volume_initialization_rate: ebs.volume_initialization_rate,
        })
    });
    Ok(Disk {
        device_name: mapping.device_name,
        is_root: mapping.root_volume.unwrap_or_default(),
        volume: volume.transpose()?,
    })
}

/// The CRD's pattern lets a bare `Ti` and `T` pass, which as quantities are nothing.
fn volume_size(text: &str) -> Result<Quantity, String> {
    let size = Quantity::parse(text).map_err(|error| error.to_string())?;
    if size.sign() > 0 { Ok(size) } else { Err(format!("{text:?} is no size")) }
}

fn placement_group(selector: PlacementGroupSelector) -> Option<PlacementGroupTerm> {
    selector.id.map(PlacementGroupTerm::Id).or_else(|| selector.name.map(PlacementGroupTerm::Name))
}

// The CRD lets a term through that has an id beside other fields if another term is good. The id alone counts then, and
// a name before tags, as in Karpenter.

impl From<SubnetSelectorTerm> for SubnetTerm {
    fn from(term: SubnetSelectorTerm) -> Self {
        term.id.map_or(Self::Tags(term.tags), Self::Id)
    }
}

impl From<SecurityGroupSelectorTerm> for SecurityGroupTerm {
    fn from(term: SecurityGroupSelectorTerm) -> Self {
        match (term.id, term.name) {
            (Some(id), _) => Self::Id(id),
            (None, Some(name)) => Self::Name(name),
            (None, None) => Self::Tags(term.tags),
        }
    }
}

impl From<CapacityReservationSelectorTerm> for CapacityReservationTerm {
    fn from(term: CapacityReservationSelectorTerm) -> Self {
        let CapacityReservationSelectorTerm { tags, id, owner_id, instance_match_criteria } = term;
        id.map_or(Self::Properties { tags, owner_id, match_criteria: instance_match_criteria }, Self::Id)
    }
}

impl From<AmiSelectorTerm> for ImageTerm {
    fn from(term: AmiSelectorTerm) -> Self {
        match (term.id, term.ssm_parameter) {
            (Some(id), _) => Self::Id(id),
            (None, Some(parameter)) => Self::Parameter(parameter),
            (None, None) => Self::Properties { name: term.name, owner: term.owner, tags: term.tags },
        }
    }
}

#[cfg(test)]
mod tests;
