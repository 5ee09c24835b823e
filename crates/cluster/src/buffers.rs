//! CapacityBuffers: the template or workload that they name, and how much room they keep.
//!
//! A buffer names a PodTemplate, or a workload whose pods it keeps room for. How many pods: the larger of `replicas`
//! and `percentage` of the workload's replicas (rounded up, at least one), no more than fit into `limits` by their
//! requests.

use std::sync::Arc;

use api::capacity_buffer::ACTIVE_CAPACITY;
use api::{CapacityBuffer, ResourceList};
use decode::capacity_buffer::{BufferTemplate, TemplateKey, TemplateKind};
use model::{Interner, NamespacedName, Quantity, ResourceId, ResourceVec, Uid};
use scheduling::snapshot::Buffer;

/// Most pods that one buffer keeps room for.
///
/// Differs: `buffer-strategies`. Karpenter has no bound.
pub const MAX_REPLICAS: u32 = 10_000;

/// A resolved buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The room that it asks for.
    pub buffer: Buffer,
    /// What it is of.
    pub template: TemplateKey,
    /// That object's generation.
    pub generation: i64,
}

/// Why a buffer cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotResolved {
    /// The workload does not exist.
    #[error("scalableRef: {0} was not found")]
    ScalableRefNotFound(TemplateKey),
    /// The PodTemplate does not exist.
    #[error("podTemplateRef: {0} was not found")]
    PodTemplateNotFound(TemplateKey),
    /// Something else is wrong.
    #[error("{0}")]
    Failed(String),
}

impl NotResolved {
    /// The reason of the buffer's condition.
    pub fn reason(&self) -> &'static str {
        use api::conditions::capacity_buffer as reasons;
        match self {
            Self::ScalableRefNotFound(_) => reasons::SCALABLE_REF_NOT_FOUND,
            Self::PodTemplateNotFound(_) => reasons::POD_TEMPLATE_NOT_FOUND,
            Self::Failed(_) => reasons::RESOLUTION_FAILED,
        }
    }
}

/// Namespace and name of a buffer.
pub fn buffer_name(buffer: &CapacityBuffer) -> NamespacedName {
    let metadata = &buffer.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    NamespacedName::new(text(&metadata.namespace), text(&metadata.name))
}

/// Whether Dovetail serves the buffer: not if it has another strategy, or is being deleted.
///
/// Differs: `buffer-strategies`. Karpenter never looks at the strategy.
pub fn is_served(buffer: &CapacityBuffer) -> bool {
    let strategy = buffer.spec.provisioning_strategy.as_deref();
    strategy.is_none_or(|strategy| strategy == ACTIVE_CAPACITY) && buffer.metadata.deletion_timestamp.is_none()
}

/// Works out how much room a buffer asks for.
///
/// # Errors
/// If the object that it names does not exist, or if its fields are not valid.
pub fn resolve<'t>(
    buffer: &CapacityBuffer,
    find: impl Fn(&TemplateKey) -> Option<&'t BufferTemplate>,
    names: &Interner,
) -> Result<Resolved, NotResolved> {
    let name = buffer_name(buffer);
    let spec = &buffer.spec;
    let named =
        |kind, of: &str| TemplateKey { kind, name: NamespacedName::new(Arc::clone(&name.namespace), of.to_owned()) };
    let template = match (&spec.pod_template_ref, &spec.scalable_ref) {
        (Some(of), _) => {
            let key = named(TemplateKind::PodTemplate, &of.name);
            find(&key).ok_or(NotResolved::PodTemplateNotFound(key))?
        }
        (None, Some(of)) => {
            let group = of.api_group.as_deref().unwrap_or_default();
            let kind = TemplateKind::of(group, &of.kind).filter(|kind| *kind != TemplateKind::PodTemplate);
            let kind = kind.ok_or_else(|| {
                let kind = &of.kind;
                NotResolved::Failed(format!(
                    "spec.scalableRef: {kind} of group {group:?} is none of apps Deployment, ReplicaSet, StatefulSet"
                ))
            })?;
            let key = named(kind, &of.name);
            find(&key).ok_or(NotResolved::ScalableRefNotFound(key))?
        }
        (None, None) => return Err(NotResolved::Failed("spec: neither podTemplateRef nor scalableRef".to_owned())),
    };
    let replicas = replicas(buffer, template, names)?;
    Ok(Resolved {
        buffer: Buffer {
            uid: Uid::from(buffer.metadata.uid.clone().unwrap_or_else(|| name.to_string())),
            name,
            template: Arc::clone(&template.template),
            devices: template.devices.clone(),
            replicas,
        },
        template: template.key.clone(),
        generation: template.generation,
    })
}

fn replicas(buffer: &CapacityBuffer, template: &BufferTemplate, names: &Interner) -> Result<u32, NotResolved> {
    let spec = &buffer.spec;
    let of_percentage = |percentage: i32| {
        let percentage = u64::try_from(percentage).unwrap_or(0);
        let share = u64::from(template.replicas).saturating_mul(percentage).div_ceil(100);
        // Differs: `buffer-percentage`. Karpenter keeps room for one pod even at 0 %.
        if percentage == 0 { 0 } else { share.max(1) }
    };
    // A PodTemplate has no replicas to take a share of.
    let percentage = spec.percentage.filter(|_| template.key.kind != TemplateKind::PodTemplate).map(of_percentage);
    let wanted = spec.replicas.map(|replicas| u64::try_from(replicas).unwrap_or(0)).max(percentage);
    let within =
        spec.limits.as_ref().map(|limits| within(limits, &template.template.shape.requests, names)).transpose()?;
    let Some(replicas) = [wanted, within.flatten()].into_iter().flatten().min() else {
        let why = "spec: needs replicas, a percentage of a workload, or limits of something that its pods request";
        return Err(NotResolved::Failed(why.to_owned()));
    };
    match u32::try_from(replicas) {
        Ok(replicas) if replicas <= MAX_REPLICAS => Ok(replicas),
        _ => Err(NotResolved::Failed(format!(
            "spec: room for {replicas} pods is asked for, at most {MAX_REPLICAS} are planned"
        ))),
    }
}

/// How many pods fit into limits; `None` if they request nothing that is limited.
fn within(limits: &ResourceList, requests: &ResourceVec, names: &Interner) -> Result<Option<u64>, NotResolved> {
    let mut most: Option<u64> = None;
    for (name, limit) in limits {
        let field = |why: String| NotResolved::Failed(format!("spec.limits[{name}]: {why}"));
        let amount = Quantity::parse(&limit.0).map_err(|why| field(why.to_string()))?;
        // What nobody has named, nobody requests.
        let Some(resource) = names.find_resource(name) else { continue };
        let mut limit = ResourceVec::default();
        limit.set_quantity(resource, &amount).map_err(|why| field(why.to_string()))?;
        let each = requests.get(resource);
        if each > 0 && resource != ResourceId::PODS {
            let times = u64::try_from(limit.get(resource).max(0) / each).unwrap_or(0);
            most = Some(most.map_or(times, |most| most.min(times)));
        }
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use decode::Context;
    use decode::capacity_buffer::buffer_template;
    use serde_json::{Value, json};

    use super::*;

    struct Cluster {
        names: Interner,
        templates: Vec<BufferTemplate>,
    }

    /// Deployment `web` of seven pods, PodTemplate `small`.
    fn cluster() -> Cluster {
        let mut names = Interner::new();
        let template = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        });
        let deployment = json!({
            "metadata": {"namespace": "shop", "name": "web", "generation": 3},
            "spec": {"replicas": 7, "template": template},
        });
        let pod_template =
            json!({"metadata": {"namespace": "shop", "name": "small", "generation": 2}, "template": template});
        let context = &mut Context::new(&mut names);
        let templates = vec![
            buffer_template(&deployment, TemplateKind::Deployment, context).unwrap(),
            buffer_template(&pod_template, TemplateKind::PodTemplate, context).unwrap(),
        ];
        Cluster { names, templates }
    }

    fn resolved(spec: Value) -> Result<Resolved, NotResolved> {
        let cluster = cluster();
        let buffer = json!({
            "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
            "metadata": {"namespace": "shop", "name": "spare", "uid": "u"}, "spec": spec,
        });
        let buffer: CapacityBuffer = serde_json::from_value(buffer).unwrap();
        let find = |key: &TemplateKey| cluster.templates.iter().find(|it| it.key == *key);
        resolve(&buffer, find, &cluster.names)
    }

    fn count(spec: Value) -> Result<u32, String> {
        resolved(spec).map(|it| it.buffer.replicas).map_err(|why| format!("{}: {why}", why.reason()))
    }

    #[test]
    fn the_larger_of_replicas_and_percentage_counts_within_the_limits() {
        let web = json!({"apiGroup": "apps", "kind": "Deployment", "name": "web"});
        let small = json!({"name": "small"});
        let table = [
            (json!({"podTemplateRef": small, "replicas": 4}), 4),
            (json!({"podTemplateRef": small, "replicas": 0}), 0),
            (json!({"podTemplateRef": small, "replicas": 4, "limits": {"cpu": "1900m"}}), 3),
            (json!({"podTemplateRef": small, "limits": {"cpu": 4, "memory": "5Gi"}}), 5),
            (json!({"podTemplateRef": small, "replicas": 2, "limits": {"example.com/gpu": 1}}), 2),
            (json!({"scalableRef": web, "percentage": 20}), 2),
            (json!({"scalableRef": web, "percentage": 1}), 1),
            (json!({"scalableRef": web, "percentage": 0}), 0),
            (json!({"scalableRef": web, "percentage": 20, "replicas": 3}), 3),
            (json!({"scalableRef": web, "percentage": 100, "replicas": 3}), 7),
        ];
        for (spec, expected) in table {
            assert_eq!(count(spec.clone()), Ok(expected), "{spec}");
        }
    }

    #[test]
    fn what_cannot_be_resolved_says_why() {
        let table = [
            (
                json!({"podTemplateRef": {"name": "gone"}, "replicas": 1}),
                "PodTemplateNotFound: podTemplateRef: PodTemplate shop/gone was not found",
            ),
            (
                json!({"scalableRef": {"apiGroup": "apps", "kind": "StatefulSet", "name": "web"}, "replicas": 1}),
                "ScalableRefNotFound: scalableRef: StatefulSet shop/web was not found",
            ),
            (
                json!({"scalableRef": {"apiGroup": "batch", "kind": "Job", "name": "web"}, "replicas": 1}),
                "ResolutionFailed: spec.scalableRef: Job of group \"batch\" is none of apps Deployment, ReplicaSet, StatefulSet",
            ),
            (json!({}), "ResolutionFailed: spec: neither podTemplateRef nor scalableRef"),
            (
                json!({"podTemplateRef": {"name": "small"}, "limits": {"example.com/gpu": 1}}),
                "ResolutionFailed: spec: needs replicas, a percentage of a workload, or limits of something that its pods request",
            ),
            (
                json!({"podTemplateRef": {"name": "small"}, "replicas": 10_001}),
                "ResolutionFailed: spec: room for 10001 pods is asked for, at most 10000 are planned",
            ),
        ];
        for (spec, expected) in table {
            assert_eq!(count(spec), Err(expected.to_owned()));
        }
    }

    #[test]
    fn volumes_have_no_part_in_it_and_labels_and_generation_do() {
        let resolved = resolved(json!({"podTemplateRef": {"name": "small"}, "replicas": 1})).unwrap();
        let shape = &resolved.buffer.template.shape;
        assert!(shape.volumes.is_empty() && shape.unsupported.is_empty());
        assert_eq!(shape.requests.get(ResourceId::CPU), 500);
        assert_eq!((resolved.generation, resolved.buffer.template.labels.iter().count()), (2, 1));
        assert_eq!(resolved.template.to_string(), "PodTemplate shop/small");
    }

    #[test]
    fn buffers_of_other_strategies_belong_to_others() {
        let served = |spec: Value| is_served(&CapacityBuffer::new("b", serde_json::from_value(spec).unwrap()));
        assert!(served(json!({})));
        assert!(served(json!({"provisioningStrategy": "buffer.x-k8s.io/active-capacity"})));
        assert!(!served(json!({"provisioningStrategy": "other.example.com/warm-pool"})));
    }

    #[test]
    fn claims_of_the_template_are_those_of_each_pod_and_not_of_a_group() {
        let object = json!({
            "metadata": {"namespace": "shop", "name": "train", "uid": "u"},
            "spec": {"template": {"spec": {
                "schedulingGroup": {"podGroupName": "g"},
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
                "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
            }}},
        });
        let mut names = Interner::new();
        let template = buffer_template(&object, TemplateKind::Deployment, &mut Context::new(&mut names)).unwrap();
        let devices = template.devices.unwrap();
        assert_eq!((&*devices.meta.name.namespace, devices.claims.len()), ("shop", 1));
        assert_eq!((&devices.pod_group, &template.template.shape.scheduling_group), (&None, &None));
        assert!(cluster().templates.iter().all(|template| template.devices.is_none()));
    }
}
