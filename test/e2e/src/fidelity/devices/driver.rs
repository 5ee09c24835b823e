//! The part of a driver that no fake machine plays: devices with binding conditions are made ready once they are given.
//! And since that writes claims again, this is who knows when each was allocated.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// In which order claims were allocated: versions of the objects, by name.
#[derive(Debug, Default)]
pub(super) struct Order(Mutex<BTreeMap<String, u64>>);

impl Order {
    /// The version in which a claim was first seen with devices.
    pub(super) fn of(&self, claim: &str) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(claim).copied()
    }

    fn note(&self, claim: &ResourceClaim) {
        let mut versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let version = claim.resource_version().and_then(|version| version.parse().ok());
        match (claim.status.as_ref().and_then(|status| status.allocation.as_ref()), version) {
            (Some(_), Some(version)) => {
                versions.entry(claim.name_any()).or_insert(version);
            }
            // It may be allocated once more.
            _ => {
                versions.remove(&claim.name_any());
            }
        }
    }
}

/// Makes the devices of a namespace's claims ready, until it is dropped.
///
/// # Errors
/// If a claim cannot be written, or the watch ends.
pub(super) async fn make_ready(client: Client, namespace: &str, order: &Order) -> Result<Infallible> {
    let claims = Api::<ResourceClaim>::namespaced(client, namespace);
    // A watch that breaks off is taken up again.
    let changes = watcher(claims.clone(), watcher::Config::default()).default_backoff().applied_objects();
    let mut changes = Box::pin(changes.filter_map(async |change| change.ok()));
    loop {
        let claim = changes.next().await.context("the watch of claims ended")?;
        order.note(&claim);
        let Some(devices) = not_ready(&claim) else { continue };
        let patch = Patch::Merge(json!({ "status": { "devices": devices } }));
        match claims.patch_status(&claim.name_any(), &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            written => drop(written.with_context(|| format!("make ready what {} was given", claim.name_any()))?),
        }
    }
}

/// The status of a claim's devices that have conditions, if it does not say yet that these are met.
fn not_ready(claim: &ResourceClaim) -> Option<Vec<Value>> {
    let status = claim.status.as_ref()?;
    let results = status.allocation.as_ref()?.devices.as_ref()?.results.as_ref()?;
    let waited_for =
        results.iter().filter(|result| result.binding_conditions.as_ref().is_some_and(|it| !it.is_empty()));
    let devices: Vec<Value> = waited_for
        .map(|result| {
            let conditions = result.binding_conditions.iter().flatten().map(|condition| {
                json!({ "type": condition, "status": "True", "reason": "Attached", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z" })
            });
            json!({ "driver": result.driver, "pool": result.pool, "device": result.device, "shareID": result.share_id,
                "conditions": conditions.collect::<Vec<_>>() })
        })
        .collect();
    let told = status.devices.as_ref().map_or(0, Vec::len);
    (!devices.is_empty() && told < devices.len()).then_some(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_with_conditions_are_made_ready_once() {
        let claim = |devices: Value| -> ResourceClaim {
            let result = |device: &str, conditions: Value| json!({ "request": "r", "driver": "d", "pool": "p", "device": device, "bindingConditions": conditions });
            let results = [result("plain", json!([])), result("attached", json!(["Attached"]))];
            serde_json::from_value(json!({ "metadata": {}, "spec": {},
                "status": { "allocation": { "devices": { "results": results } }, "devices": devices } }))
            .unwrap()
        };
        let devices = not_ready(&claim(json!([]))).unwrap();
        assert_eq!(devices.len(), 1);
        assert_eq!(
            (&devices[0]["device"], &devices[0]["conditions"][0]["type"]),
            (&json!("attached"), &json!("Attached"))
        );
        let told = json!([{ "driver": "d", "pool": "p", "device": "attached" }]);
        assert_eq!(not_ready(&claim(told)), None);
        assert_eq!(not_ready(&serde_json::from_value(json!({ "metadata": {}, "spec": {} })).unwrap()), None);
    }
}
