//! What is wrong with templates and bindings.

use std::fmt;

use dra_types::FieldError;
use thiserror::Error as ThisError;

/// An error in a template, with its path below `dynamicResources`.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("{place}: {reason}")]
pub struct Error {
    /// The template or binding, and the field there.
    pub place: Place,
    /// What is wrong.
    pub reason: Box<Reason>,
}

/// Where something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a template, by name.
    Template {
        /// Its name.
        name: String,
        /// The field below `spec`, or `metadata.name`.
        field: String,
    },
    /// In a binding, by its place in the list.
    Binding {
        /// Its place.
        index: usize,
        /// The field.
        field: String,
    },
    /// In what a driver's templates yield together.
    Driver(String),
    /// In an entry of `drivers`, by the driver's name.
    DescribedDriver {
        /// The driver.
        name: String,
        /// The field.
        field: &'static str,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template { name, field } if field.starts_with("metadata.") => {
                write!(f, "resourceSliceTemplates[{name}].{field}")
            }
            Self::Template { name, field } => write!(f, "resourceSliceTemplates[{name}].spec.{field}"),
            Self::Binding { index, field } => write!(f, "attributeBindings[{index}].{field}"),
            Self::Driver(driver) => write!(f, "driver {driver}"),
            Self::DescribedDriver { name, field } => write!(f, "drivers[{name}].{field}"),
        }
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Reason {
    /// Nothing is given.
    #[error("is required")]
    Required,
    /// The name is there already.
    #[error("is there twice")]
    Duplicate,
    /// More than one way to say who can use devices.
    #[error("only one of nodeSelector, allNodes and perDeviceNodeSelection can be set")]
    SeveralNodeFields,
    /// As in a ResourceSlice.
    #[error("must have exactly one term")]
    OneTerm,
    /// kube-scheduler takes it for no node.
    #[error("a term without requirements selects no node; allNodes selects every one")]
    EmptyTerm,
    /// A device selects nodes although the template does.
    #[error("devices select nodes only where the template says perDeviceNodeSelection")]
    NotPerDevice,
    /// The scope is unknown.
    #[error("{0:?} is neither Machine nor Domain")]
    UnknownScope(String),
    /// A domain of one machine.
    #[error("Domain needs a nodeSelector or allNodes: devices that only one machine can use belong to no domain")]
    DomainOfOne,
    /// Names would be equal.
    #[error("must contain {{index}}, since there are replicas")]
    NoIndex,
    /// A number of what?
    #[error("contains {{index}}, but there are neither replicas nor replicasFromLabel")]
    IndexWithoutReplicas,
    /// Two counts.
    #[error("replicas and replicasFromLabel exclude each other")]
    TwoCounts,
    /// A negative or huge number.
    #[error("{0} is not a number of devices")]
    Count(i64),
    /// The machine lacks the label that says how many.
    #[error("machines of this instance type have no certain label {0}")]
    LabelMissing(String),
    /// The label does not say how many.
    #[error("label {key} is {value:?}, which is not a number of devices")]
    LabelIsNoCount {
        /// The label.
        key: String,
        /// Its value.
        value: String,
    },
    /// The text does not become an integer.
    #[error("{0:?} is not an integer")]
    NoInteger(String),
    /// Beyond [`super::MAX_DEVICES`].
    #[error("more than {} devices in one pool", super::MAX_DEVICES)]
    TooManyDevices,
    /// A driver without devices.
    #[error("no template is of this driver")]
    NoTemplateOfDriver,
    /// Neither or both ways to name a DaemonSet.
    #[error("needs either a name or matchLabels")]
    NameOrLabels,
    /// No object has such a name.
    #[error("{0:?} is not a name of an object")]
    NoName(String),
    /// No object has such a label.
    #[error("{label:?} is not a label: {why}")]
    NoLabel {
        /// Key and value.
        label: String,
        /// Why.
        why: String,
    },
    /// Nothing of that name.
    #[error("there is no template {0:?}")]
    UnknownTemplate(String),
    /// Nothing of that name.
    #[error("the template has no device {0:?}")]
    UnknownDevice(String),
    /// The value is not unknown.
    #[error("device {device} has a value for {attribute} already")]
    BoundAndGiven {
        /// The device.
        device: String,
        /// The attribute.
        attribute: String,
    },
    /// Two groups.
    #[error("device {device} is in two groups for {attribute}")]
    BoundTwice {
        /// The device.
        device: String,
        /// The attribute.
        attribute: String,
    },
    /// Two devices of one name in one pool.
    #[error("two devices of one pool have the name {0}")]
    DeviceTwice(String),
    /// Two sets of one name in one pool.
    #[error("two counter sets of one pool have the name {0}")]
    CounterSetTwice(String),
    /// A device draws from what is not there.
    #[error("device {device} consumes counter {counter} of counter set {set}, which the pool does not have")]
    UnknownCounter {
        /// The device.
        device: String,
        /// The set.
        set: String,
        /// The counter.
        counter: String,
    },
    /// What one of them leaves of the counters would be up to nodes that the other is not for.
    #[error(
        "devices {} and {} consume counters of set {set} and are for different nodes; devices that share a counter set need \
         the same nodeSelector",
        devices[0], devices[1]
    )]
    CounterSetForSeveralNodes {
        /// The set.
        set: String,
        /// Two of the devices.
        devices: [String; 2],
    },
    /// The API server would refuse the device.
    #[error("device {device}, {field}: {reason}")]
    Device {
        /// The device.
        device: String,
        /// The field of the device.
        field: String,
        /// Why.
        reason: dra_types::Reason,
    },
    /// The API server would refuse what the template yields.
    #[error("{0}")]
    Field(FieldError),
}

impl Reason {
    pub(super) fn at(self, template: &str, field: &str) -> Error {
        Error { place: Place::Template { name: template.to_owned(), field: field.to_owned() }, reason: Box::new(self) }
    }

    pub(super) fn at_driver(self, name: &str, field: &'static str) -> Error {
        Error { place: Place::DescribedDriver { name: name.to_owned(), field }, reason: Box::new(self) }
    }

    pub(super) fn at_binding(self, index: usize, field: &str) -> Error {
        Error { place: Place::Binding { index, field: field.to_owned() }, reason: Box::new(self) }
    }
}
