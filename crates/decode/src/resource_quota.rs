//! ResourceQuotas: what they say of ResourceClaims.
//!
//! Quotas with scopes count pods only, and none of their entries limits a claim
//! (`pkg/quota/v1/evaluator/core/resource_claims.go`). Everything else that a quota may limit is passed over.

use std::sync::Arc;

use model::quota::{QuotaLimit, QuotaResource, ResourceQuota};
use serde_json::Value;

use crate::error::{ObjectError, Problem};
use crate::field::Field;
use crate::metadata::{Metadata, decode_object};

/// Counts ResourceClaims.
const CLAIMS: &str = "count/resourceclaims.resource.k8s.io";
/// Comes before the name of an extended resource.
const REQUESTS: &str = "requests.";
/// Follows the name of a DeviceClass.
const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";

/// Reads a ResourceQuota.
pub fn resource_quota(object: &Value) -> Result<ResourceQuota, ObjectError> {
    decode_object(object, "ResourceQuota", |root| {
        let name = Metadata::decode(&root.field("metadata")?)?.name;
        let (spec, status) = (root.field("spec")?, root.field("status")?);
        if !spec.field("scopes")?.strings()?.is_empty() || !spec.field("scopeSelector")?.is_absent() {
            return Ok(ResourceQuota { name, limits: Vec::new() });
        }
        // What the quota controller has taken up counts, as at admission.
        let in_force = status.field("hard")?;
        let hard = if in_force.is_absent() { spec.field("hard")? } else { in_force };
        let used = status.field("used")?;
        let mut limits = Vec::new();
        for (resource, amount) in hard.entries()? {
            if let Some(counted) = counted(resource) {
                let used = if used.is_absent() { None } else { amount_of(&used.field(resource)?)? };
                let hard = amount_of(&amount)?.unwrap_or(0);
                limits.push(QuotaLimit { resource: counted, hard, used });
            }
        }
        Ok(ResourceQuota { name, limits })
    })
}

fn counted(resource: &str) -> Option<QuotaResource> {
    if resource == CLAIMS {
        return Some(QuotaResource::Claims);
    }
    if let Some(class) = resource.strip_suffix(DEVICES).filter(|class| !class.is_empty()) {
        return Some(QuotaResource::Devices(Arc::from(class)));
    }
    let extended = resource.strip_prefix(REQUESTS).filter(|name| name.contains('/'))?;
    Some(QuotaResource::Extended(Arc::from(extended)))
}

/// A number of things; beyond what fits it is no limit.
fn amount_of(field: &Field<'_, '_>) -> Result<Option<i64>, Problem> {
    let quantity = field.quantity()?;
    Ok(quantity.map(|quantity| quantity.value().unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_limits_claims_and_devices_by_class_unless_it_has_scopes() {
        let mut object = json!({
            "metadata": {"name": "q", "namespace": "ml"},
            "spec": {"hard": {"pods": "5", "requests.cpu": "4", "requests.example.com/gpu": "0", "count/resourceclaims.resource.k8s.io": "3",
                "gpu.example.com.deviceclass.resource.k8s.io/devices": "6"}},
        });
        let limit = |resource, hard, used| QuotaLimit { resource, hard, used };
        let devices = || QuotaResource::Devices("gpu.example.com".into());
        assert_eq!(
            resource_quota(&object).unwrap().limits,
            [
                limit(QuotaResource::Claims, 3, None),
                limit(devices(), 6, None),
                limit(QuotaResource::Extended("example.com/gpu".into()), 0, None)
            ]
        );
        object["status"] = json!({
            "hard": {"gpu.example.com.deviceclass.resource.k8s.io/devices": "4"},
            "used": {"gpu.example.com.deviceclass.resource.k8s.io/devices": "2"},
        });
        assert_eq!(resource_quota(&object).unwrap().limits, [limit(devices(), 4, Some(2))]);
        object["spec"]["scopes"] = json!(["BestEffort"]);
        assert_eq!(resource_quota(&object).unwrap().limits, []);
    }
}
