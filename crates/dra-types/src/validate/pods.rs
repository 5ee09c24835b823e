//! What pods say of claims, and which namespaces may have claims with access as administrator.

use std::collections::BTreeSet;

use super::{Problems, outcome};
use crate::claim::{RequestKind, ResourceClaimSpec};
use crate::json::{FieldError, Reason};
use crate::pod::{ClaimSource, Lifetime, Pod, PodClaim, PodGroup};

/// The label of namespaces whose claims may look at devices that others have, with the value `true` (KEP-5018).
pub const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";

/// Checks what a pod says of claims.
///
/// # Errors
/// All rules that are broken.
pub fn pod(pod: &Pod) -> Result<(), Vec<FieldError>> {
    let mut problems = Problems(Vec::new());
    entries(&mut problems, &pod.claims);
    let names: BTreeSet<&str> = pod.claims.iter().map(|claim| &*claim.name).collect();
    let (mut init, mut regular) = (0, 0);
    for container in &pod.containers {
        let (list, index) = match container.lifetime {
            Lifetime::Init | Lifetime::Sidecar => ("initContainers", &mut init),
            Lifetime::Pod => ("containers", &mut regular),
        };
        for (place, used) in container.claims.iter().enumerate() {
            let field = format!("spec.{list}[{index}].resources.claims[{place}].name");
            if used.is_empty() {
                problems.add(&field, Reason::Required);
            } else if !names.contains(&**used) {
                problems.invalid(&field, &format!("{used:?} is not the name of an entry of spec.resourceClaims"));
            }
        }
        *index += 1;
    }
    outcome(problems)
}

/// Checks what a PodGroup says of claims.
///
/// # Errors
/// All rules that are broken.
pub fn pod_group(group: &PodGroup) -> Result<(), Vec<FieldError>> {
    let mut problems = Problems(Vec::new());
    entries(&mut problems, &group.claims);
    outcome(problems)
}

fn entries(problems: &mut Problems, claims: &[PodClaim]) {
    problems.unique("spec.resourceClaims", claims.iter().map(|claim| &*claim.name));
    for (index, claim) in claims.iter().enumerate() {
        let at = format!("spec.resourceClaims[{index}]");
        if claim.name.is_empty() {
            problems.add(&format!("{at}.name"), Reason::Required);
        } else {
            problems.label(&format!("{at}.name"), &claim.name);
        }
        match &claim.source {
            ClaimSource::Claim(name) => problems.subdomain(&format!("{at}.resourceClaimName"), name, 253),
            ClaimSource::Template(name) => problems.subdomain(&format!("{at}.resourceClaimTemplateName"), name, 253),
        }
    }
}

/// Checks that a claim or template asks for access as administrator only where that is allowed. `field` is the path of
/// the spec.
///
/// # Errors
/// The first request that may not.
pub fn admin_access(
    spec: &ResourceClaimSpec,
    field: &str,
    namespace: &str,
    is_allowed: bool,
) -> Result<(), FieldError> {
    let asks = |kind: &RequestKind| matches!(kind, RequestKind::Exactly(request) if request.admin_access);
    match spec.requests.iter().position(|request| asks(&request.kind)) {
        Some(index) if !is_allowed => Err(FieldError::new(
            format_args!("{field}.devices.requests[{index}].exactly.adminAccess"),
            Reason::Invalid(format!(
                "is only allowed in a Namespace with the label {ADMIN_ACCESS}: \"true\"; there is none for {namespace:?} here"
            )),
        )),
        _ => Ok(()),
    }
}
