//! The kinds that devices depend on: `resource.k8s.io`, PodGroups for their claims, and what devices read of pods.
//!
//! Reading is `dra-sched`'s; here an error gets the object's name, and objects that no API server has seen are held to
//! its rules.

use std::collections::BTreeSet;

use dra_types::{
    ClaimTemplate, Compat, DeviceClass, DeviceTaintRule, FieldError, KubernetesMinor, Pod, PodGroup, ResourceClaim,
    ResourceClaimSpec, ResourceSlice,
    validate::{self, Compile},
};
use k8s_cel::compiles;
use serde_json::Value;

use crate::error::{ObjectError, Problem, Reason};
use crate::limits;
use crate::manifests::object_ref;

/// Who has held an object to the API server's rules.
#[derive(Debug, Clone, Copy)]
pub enum Admitted<'a> {
    /// The API server: the object comes from a cluster.
    ByServer,
    /// Nobody yet; the rules are those of a release, and claims in these namespaces may ask for access as
    /// administrator.
    ByNobody(&'a Compat, &'a AdminNamespaces),
}

/// Namespaces with the label that lets claims ask for access as administrator.
#[derive(Debug, Clone, Default)]
pub struct AdminNamespaces(BTreeSet<String>);

impl AdminNamespaces {
    /// Notes what a Namespace says.
    pub fn add(&mut self, namespace: &Value) {
        let labels = namespace.pointer("/metadata/labels");
        let is_allowed = labels.and_then(|labels| labels.get(validate::ADMIN_ACCESS)?.as_str()) == Some("true");
        if let Some(name) = namespace.pointer("/metadata/name").and_then(Value::as_str).filter(|_| is_allowed) {
            self.0.insert(name.to_owned());
        }
    }

    /// Whether claims of the namespace may ask for it.
    pub fn contains(&self, namespace: &str) -> bool {
        self.0.contains(namespace)
    }
}

fn problem(error: FieldError) -> Problem {
    Problem { field: error.field.to_string(), reason: Reason::Invalid(error.reason.to_string()) }
}

/// The first broken rule by its field, with the others told along.
fn first(errors: Vec<FieldError>) -> Problem {
    let mut errors = errors.into_iter();
    let Some(first) = errors.next() else {
        return Problem { field: String::new(), reason: Reason::Invalid("breaks a rule".to_owned()) };
    };
    let mut why = first.reason.to_string();
    for other in errors {
        why.push_str("; ");
        why.push_str(&other.to_string());
    }
    Problem { field: first.field.to_string(), reason: Reason::Invalid(why) }
}

fn read<T>(
    object: &Value,
    kind: &str,
    admitted: Admitted<'_>,
    read: impl FnOnce(&Value) -> Result<T, FieldError>,
    validate: impl FnOnce(&T, Compile<'_>) -> Result<(), Vec<FieldError>>,
) -> Result<T, ObjectError> {
    let named = |problem| ObjectError { object: object_ref(object, kind), problem };
    limits::check(object).map_err(named)?;
    let decoded = read(object).map_err(|error| named(problem(error)))?;
    match admitted {
        Admitted::ByServer => {}
        Admitted::ByNobody(compat, _) => {
            validate(&decoded, &compiles(compat)).map_err(|errors| named(first(errors)))?
        }
    }
    Ok(decoded)
}

/// Reads a DeviceClass.
pub fn device_class(object: &Value, admitted: Admitted<'_>) -> Result<DeviceClass, ObjectError> {
    read(object, "DeviceClass", admitted, DeviceClass::from_json, validate::class)
}

/// Reads a ResourceSlice.
pub fn resource_slice(object: &Value, admitted: Admitted<'_>) -> Result<ResourceSlice, ObjectError> {
    read(object, "ResourceSlice", admitted, ResourceSlice::from_json, |slice, _| validate::slice(slice))
}

/// Reads a ResourceClaim.
pub fn resource_claim(object: &Value, admitted: Admitted<'_>) -> Result<ResourceClaim, ObjectError> {
    let claim = read(object, "ResourceClaim", admitted, ResourceClaim::from_json, validate::claim)?;
    admit(object, "ResourceClaim", admitted, ("spec", &claim.spec))?;
    Ok(claim)
}

/// Reads a ResourceClaimTemplate.
pub fn resource_claim_template(object: &Value, admitted: Admitted<'_>) -> Result<ClaimTemplate, ObjectError> {
    let template = read(object, "ResourceClaimTemplate", admitted, ClaimTemplate::from_json, validate::claim_template)?;
    admit(object, "ResourceClaimTemplate", admitted, ("spec.spec", &template.spec))?;
    Ok(template)
}

/// What the API server demands of a claim that depends on its namespace or on the release.
fn admit(
    object: &Value,
    kind: &str,
    admitted: Admitted<'_>,
    (field, spec): (&str, &ResourceClaimSpec),
) -> Result<(), ObjectError> {
    let Admitted::ByNobody(compat, namespaces) = admitted else { return Ok(()) };
    let object = object_ref(object, kind);
    let namespace = &object.name.namespace;
    let mut checked = validate::admin_access(spec, field, namespace, namespaces.contains(namespace));
    if compat.kubernetes >= KubernetesMinor::V1_37 {
        checked = checked.and_then(|()| validate::domains_in_lower_case(spec, field));
    }
    checked.map_err(|error| ObjectError { object: object.clone(), problem: problem(error) })
}

/// Reads a DeviceTaintRule. One with a field that is not understood cannot be used.
pub fn device_taint_rule(object: &Value, admitted: Admitted<'_>) -> Result<DeviceTaintRule, ObjectError> {
    let validate = |rule: &DeviceTaintRule, _: Compile<'_>| validate::device_taint_rule(rule);
    let rule = read(object, "DeviceTaintRule", admitted, DeviceTaintRule::from_json, validate)?;
    match rule.unsupported.first() {
        None => Ok(rule),
        Some(field) => Err(ObjectError {
            object: object_ref(object, "DeviceTaintRule"),
            problem: Problem {
                field: field.construct.to_string(),
                reason: Reason::Invalid("is not understood".to_owned()),
            },
        }),
    }
}

/// Reads of a PodGroup the claims that its pods have in common.
pub fn pod_group_claims(object: &Value, admitted: Admitted<'_>) -> Result<PodGroup, ObjectError> {
    read(object, "PodGroup", admitted, PodGroup::from_json, |group, _| validate::pod_group(group))
}

/// A kind that devices depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// `DeviceClass`
    DeviceClass,
    /// `ResourceSlice`
    ResourceSlice,
    /// `ResourceClaim`
    ResourceClaim,
    /// `ResourceClaimTemplate`
    ResourceClaimTemplate,
    /// `DeviceTaintRule`
    DeviceTaintRule,
    /// `PodGroup`, for its claims.
    PodGroup,
}

impl DeviceKind {
    /// The kind of a name, if it is one of these.
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        match (group, kind) {
            ("resource.k8s.io", "DeviceClass") => Some(Self::DeviceClass),
            ("resource.k8s.io", "ResourceSlice") => Some(Self::ResourceSlice),
            ("resource.k8s.io", "ResourceClaim") => Some(Self::ResourceClaim),
            ("resource.k8s.io", "ResourceClaimTemplate") => Some(Self::ResourceClaimTemplate),
            ("resource.k8s.io", "DeviceTaintRule") => Some(Self::DeviceTaintRule),
            ("scheduling.k8s.io", "PodGroup") => Some(Self::PodGroup),
            _ => None,
        }
    }

    /// Whether its objects are in namespaces.
    pub fn is_namespaced(self) -> bool {
        match self {
            Self::ResourceClaim | Self::ResourceClaimTemplate | Self::PodGroup => true,
            Self::DeviceClass | Self::ResourceSlice | Self::DeviceTaintRule => false,
        }
    }
}

/// Reads of a DaemonSet what devices will depend on in its pods, as a pod of its name and uid; `None` if they can't
/// want any.
pub fn daemon_set_devices(object: &Value) -> Result<Option<Pod>, ObjectError> {
    template_devices(object, "DaemonSet", "/spec/template/spec")
}

/// Reads of any object that makes pods what devices will depend on in them; `spec` points at what these look like.
pub(crate) fn template_devices(object: &Value, kind: &'static str, spec: &str) -> Result<Option<Pod>, ObjectError> {
    let pod = |object: &Value| {
        let spec = object.pointer(spec).cloned().unwrap_or_default();
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        Pod::from_json(&serde_json::json!({"metadata": metadata, "spec": spec}))
    };
    let pod = read(object, kind, Admitted::ByServer, pod, |_, _| Ok(()))?;
    Ok(pod.may_want_devices().then_some(pod))
}

/// Whether a pod of the API server may want devices: a quick look, without which [`pod_devices`] finds the same.
pub fn may_want_devices(pod: &Value) -> bool {
    let is_extended = |(name, _): (&String, &Value)| name.contains('/');
    let wants_any = |container: &Value| {
        let resources = container.get("resources");
        let lists = ["requests", "limits"].map(|list| resources.and_then(|it| it.get(list)).and_then(Value::as_object));
        lists.into_iter().flatten().flatten().any(is_extended)
    };
    let spec = pod.get("spec");
    let list = |field: &str| spec.and_then(|it| it.get(field)).and_then(Value::as_array).into_iter().flatten();
    list("resourceClaims").next().is_some() || list("initContainers").chain(list("containers")).any(wants_any)
}

/// Reads of a pod of the API server what devices depend on; `None` if it can't want any.
pub fn pod_devices(object: &Value) -> Result<Option<Pod>, ObjectError> {
    pod_devices_as(object, Admitted::ByServer)
}

/// Reads of a pod, whoever has admitted it, what devices depend on; `None` if it can't want any.
pub fn pod_devices_as(object: &Value, admitted: Admitted<'_>) -> Result<Option<Pod>, ObjectError> {
    let mut pod = read(object, "Pod", admitted, Pod::from_json, |pod, _| validate::pod(pod))?;
    if let Admitted::ByNobody(compat, _) = admitted {
        pod.fill_in(compat.kubernetes);
    }
    Ok(pod.may_want_devices().then_some(pod))
}

#[cfg(test)]
mod tests {
    use dra_types::Compat;
    use serde_json::json;

    use super::*;

    #[test]
    fn attributes_of_constraints_are_in_lower_case_from_1_37_on_and_tolerations_are_not_counted() {
        let toleration = json!({"key": "a/b", "operator": "Exists"});
        let claim = |attribute: &str| {
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "n"},
                "spec": {"devices": {
                    "requests": [{"name": "r", "exactly": {
                        "deviceClassName": "gpu", "tolerations": vec![toleration.clone(); 34],
                    }}],
                    "constraints": [{"matchAttribute": attribute}],
                }},
            })
        };
        let read = |attribute: &str, kubernetes| {
            let (compat, namespaces) = (Compat::new(kubernetes), AdminNamespaces::default());
            let read = resource_claim(&claim(attribute), Admitted::ByNobody(&compat, &namespaces));
            read.err().map(|error| error.to_string())
        };
        let refused = "ResourceClaim n/c: spec.devices.constraints[0].matchAttribute: \"EXAMPLE.com\" must be in lower \
                       case from 1.37 on";
        assert_eq!(read("example.com/Root", KubernetesMinor::V1_37), None);
        assert_eq!(read("EXAMPLE.com/root", KubernetesMinor::V1_36), None);
        assert_eq!(read("EXAMPLE.com/root", KubernetesMinor::V1_37), Some(refused.to_owned()));
    }
}
