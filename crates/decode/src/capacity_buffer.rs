//! What CapacityBuffers refer to: a PodTemplate, or a workload whose pods they keep room for.

use std::fmt;
use std::sync::Arc;

use dra_types::Pod;
use model::NamespacedName;
use model::workload::PodTemplate;
use serde_json::Value;

use crate::api_resources::{self, Resource};
use crate::context::Context;
use crate::devices::template_devices;
use crate::error::ObjectError;
use crate::metadata::{Metadata, decode_object};
use crate::workload::pod_template;

/// A kind of object that a buffer can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are the kinds' own")]
pub enum TemplateKind {
    PodTemplate,
    Deployment,
    ReplicaSet,
    StatefulSet,
}

impl TemplateKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::PodTemplate, Self::Deployment, Self::ReplicaSet, Self::StatefulSet];

    /// Where the API server has it.
    pub fn resource(self) -> &'static Resource {
        match self {
            Self::PodTemplate => &api_resources::POD_TEMPLATE,
            Self::Deployment => &api_resources::DEPLOYMENT,
            Self::ReplicaSet => &api_resources::REPLICA_SET,
            Self::StatefulSet => &api_resources::STATEFUL_SET,
        }
    }

    /// The kind as manifests spell it.
    pub fn as_str(self) -> &'static str {
        self.resource().kind
    }

    /// The kind of that group and name, if a buffer can name it.
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.resource().is(group, kind))
    }

    /// Where the template's spec is in the object.
    pub fn spec_pointer(self) -> &'static str {
        match self {
            Self::PodTemplate => "/template/spec",
            Self::Deployment | Self::ReplicaSet | Self::StatefulSet => "/spec/template/spec",
        }
    }
}

/// What a buffer names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateKey {
    /// The kind.
    pub kind: TemplateKind,
    /// Namespace and name.
    pub name: NamespacedName,
}

impl fmt::Display for TemplateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

/// A PodTemplate, or a workload as far as a buffer reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferTemplate {
    /// Its kind and name.
    pub key: TemplateKey,
    /// `metadata.generation`.
    pub generation: i64,
    /// How many pods the workload is to have; 0 for a PodTemplate.
    pub replicas: u32,
    /// What its pods look like, without volumes and group.
    pub template: Arc<PodTemplate>,
    /// What devices read of one of its pods; `None` if they can't want any.
    pub devices: Option<Arc<Pod>>,
}

/// Reads a PodTemplate or workload. Volumes are left aside: they are made, or bound, once there are pods. So is the
/// PodGroup that pods are of: what they share comes with the group, and room for one of them is room without it.
pub fn buffer_template(
    object: &Value,
    kind: TemplateKind,
    context: &mut Context<'_>,
) -> Result<BufferTemplate, ObjectError> {
    let mut object = object.clone();
    if let Some(Value::Object(spec)) = object.pointer_mut(kind.spec_pointer()) {
        spec.remove("volumes");
        spec.remove("schedulingGroup");
    }
    let devices = template_devices(&object, kind.as_str(), kind.spec_pointer())?.map(Arc::new);
    decode_object(&object, kind.as_str(), |root| {
        let metadata_field = root.field("metadata")?;
        let metadata = Metadata::decode(&metadata_field)?;
        let spec = root.field("spec")?;
        let (template, replicas) = match kind {
            TemplateKind::PodTemplate => (root.field("template")?, 0),
            TemplateKind::Deployment | TemplateKind::ReplicaSet | TemplateKind::StatefulSet => {
                (spec.field("template")?, spec.field("replicas")?.int32()?.unwrap_or(1))
            }
        };
        Ok(BufferTemplate {
            template: Arc::new(pod_template(&template, &metadata.name.namespace, context)?),
            devices,
            key: TemplateKey { kind, name: metadata.name },
            generation: metadata_field.field("generation")?.int(0, i64::MAX)?.unwrap_or(0),
            replicas: u32::try_from(replicas).unwrap_or(0),
        })
    })
}
