//! Pods that lose their devices because of NoExecute taints on what is allocated (KEP-5055).
//!
//! The device taint eviction controller ends the consumers of a claim if a device of its allocation has a NoExecute
//! taint that the result's tolerations do not cover, or cover only for a time. The taint is the device's own or that of
//! a DeviceTaintRule. A planner counts such pods as demand again, and what their claims hold is free once all consumers
//! are gone; the devices stay out of reach by the same taint.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::collections::FastMap;
use model::{DurationMs, Timestamp};

use crate::compile::claims::Claim;
use crate::compile::ids::{ClaimId, DeviceKey};
use crate::inventory::Inventory;
use dra_types::{AllocationResult, DeviceId, DeviceTaint, TaintEffect, compat::Gate};

/// A claim whose consumers lose it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// The claim.
    pub claim: ClaimId,
    /// The tainted device; of several, the one for which the consumers end first.
    pub device: DeviceId,
    /// `key=value:effect`.
    pub taint: Arc<str>,
    /// When the toleration ends; `None` if the consumers end at once.
    pub not_before: Option<Timestamp>,
}

impl Eviction {
    /// Allocated claims whose consumers will be ended, in input order.
    pub fn all(inventory: &Inventory) -> Vec<Self> {
        if !inventory.compat.is_on(Gate::DeviceTaints) {
            return Vec::new();
        }
        let taints = taints_by_device(inventory);
        let of_claim = |(claim, entry): (ClaimId, &Claim)| {
            let results = entry.object.allocation.iter().flat_map(|allocation| &allocation.results);
            let of_result = |result: &AllocationResult| {
                let taints = inventory.device_key(&result.device).and_then(|key| taints.get(&key).copied());
                evictions(claim, result, taints.unwrap_or_default())
            };
            let evictions = results.flat_map(of_result);
            evictions.min_by_key(|eviction| eviction.not_before)
        };
        inventory.claims.iter_enumerated().filter_map(of_claim).collect()
    }

    /// Claims whose consumers are ended by a point in time, for [`crate::ClusterLedger::without`].
    pub fn claims_by(inventory: &Inventory, by: Timestamp) -> BTreeSet<ClaimId> {
        let due = |eviction: &Self| eviction.not_before.is_none_or(|time| time <= by);
        Self::all(inventory).into_iter().filter(due).map(|eviction| eviction.claim).collect()
    }
}

/// Taints of what is published in the newest generation.
fn taints_by_device(inventory: &Inventory) -> FastMap<DeviceKey, &[DeviceTaint]> {
    let mut newest: FastMap<DeviceKey, (i64, &[DeviceTaint])> = FastMap::default();
    for entry in &inventory.devices {
        let generation = inventory.slices[entry.slice].slice.pool.generation;
        let known = newest.entry(entry.key).or_insert((generation, &entry.taints));
        if generation > known.0 {
            *known = (generation, &entry.taints);
        }
    }
    newest.into_iter().map(|(key, (_, taints))| (key, taints)).collect()
}

fn evictions(claim: ClaimId, result: &AllocationResult, taints: &[DeviceTaint]) -> Vec<Eviction> {
    let eviction = |taint: &DeviceTaint| {
        Some(Eviction {
            claim,
            device: result.device.clone(),
            taint: format!("{}={}:{}", taint.key, taint.value, taint.effect.as_str()).into(),
            not_before: ends(result, taint)?,
        })
    };
    taints.iter().filter_map(eviction).collect()
}

/// When a taint ends the consumers of a result: None never, `Some(None)` at once.
fn ends(result: &AllocationResult, taint: &DeviceTaint) -> Option<Option<Timestamp>> {
    if taint.effect != TaintEffect::NoExecute {
        return None;
    }
    let tolerating = result.tolerations.iter().filter(|toleration| toleration.tolerates(taint));
    let mut seconds: Option<i64> = None;
    let mut is_tolerated = false;
    for toleration in tolerating {
        is_tolerated = true;
        // The shortest time counts; a toleration without a time does not extend another.
        if let Some(limit) = toleration.toleration_seconds {
            seconds = Some(seconds.map_or(limit, |known| known.min(limit)));
        }
    }
    match (is_tolerated, seconds) {
        (false, _) => Some(None),
        (true, None) => None,
        (true, Some(seconds)) if seconds <= 0 => Some(None),
        (true, Some(seconds)) => {
            // Nobody knows when a taint without a time was added, so nobody knows when its toleration ends.
            let added = taint.time_added?;
            Some(Some(added.saturating_add(DurationMs::from_seconds(seconds))))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Eviction;
    use crate::fixture::{builder_for, claim, compat, devices, exactly, local, names};
    use crate::ledger::ClusterLedger;
    use dra_types::{Compat, DeviceTaintRule, Gate, ResourceClaim};
    use model::Timestamp;
    use std::sync::Arc;

    fn allocated(name: &str, device: &str, tolerations: &Value) -> Arc<ResourceClaim> {
        let result =
            json!({"request": "r", "driver": "gpu", "pool": "n1", "device": device, "tolerations": tolerations});
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [exactly("r", "gpu", 1)]}},
            "status": {"allocation": {"devices": {"results": [result]}}},
        });
        Arc::new(ResourceClaim::from_json(&object).unwrap())
    }

    fn rule(device: &str, effect: &str) -> Arc<DeviceTaintRule> {
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": format!("rule-{device}")},
            "spec": {"deviceSelector": {"driver": "gpu", "device": device},
                "taint": {"key": "broken", "value": "yes", "effect": effect, "timeAdded": "1970-01-01T00:01:40Z"}},
        });
        Arc::new(DeviceTaintRule::from_json(&object).unwrap())
    }

    /// The time in seconds at which the consumers of a claim on a device end; None if they stay.
    fn ends(compat: Compat, effect: &str, tolerations: &Value) -> Option<Option<i64>> {
        let mut builder = builder_for(compat, &["gpu"]);
        builder.slice(local("gpu", &devices(2, |_| json!({}))));
        builder.taint_rule(rule("d00", effect));
        builder.claim(allocated("c", "d00", tolerations));
        builder.claim(allocated("untouched", "d01", &json!([])));
        let evictions = Eviction::all(&builder.build());
        assert!(evictions.len() <= 1);
        evictions.first().map(|eviction| eviction.not_before.map(|time| time.0 / 1000))
    }

    #[test]
    fn consumers_of_a_device_with_a_no_execute_taint_end_when_their_tolerations_do() {
        let tolerates = |seconds: Value| json!({"key": "broken", "operator": "Exists", "tolerationSeconds": seconds});
        let other = json!({"key": "other", "operator": "Exists"});
        for (effect, tolerations, expected) in [
            ("NoExecute", json!([]), Some(None)),
            ("NoSchedule", json!([]), None),
            ("None", json!([]), None),
            ("NoExecute", json!([other]), Some(None)),
            ("NoExecute", json!([tolerates(Value::Null)]), None),
            ("NoExecute", json!([tolerates(json!(30))]), Some(Some(130))),
            ("NoExecute", json!([tolerates(json!(30)), tolerates(json!(10)), tolerates(Value::Null)]), Some(Some(110))),
            ("NoExecute", json!([tolerates(json!(0))]), Some(None)),
        ] {
            assert_eq!(ends(compat(), effect, &tolerations), expected, "{effect} {tolerations}");
        }
    }

    #[test]
    fn without_the_gate_for_rules_nobody_ends() {
        let all = compat();
        let off = Compat::with_gates(all.kubernetes, all.gates.with(Gate::DeviceTaintRules, false));
        assert_eq!(ends(off, "NoExecute", &json!([])), None);
    }

    #[test]
    fn what_evicted_claims_held_is_free_but_tainted_devices_stay_out_of_reach() {
        let mut builder = builder_for(compat(), &["gpu"]);
        builder.slice(local("gpu", &devices(2, |_| json!({}))));
        builder.taint_rule(rule("d00", "NoExecute"));
        let claimed = allocated("c", "d00", &json!([]));
        builder.claim(claimed);
        let one = claim(&mut builder, "one", &json!({"requests": [exactly("r", "gpu", 1)]}));
        let tolerant = json!({"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2,
            "tolerations": [{"operator": "Exists"}]}});
        let both = claim(&mut builder, "both", &json!({"requests": [tolerant]}));
        let inventory = builder.build();
        let released = Eviction::claims_by(&inventory, Timestamp(0));
        assert_eq!(released.len(), 1);
        let ask = |class, ledger: &ClusterLedger| names(&crate::fixture::ask_with(&inventory, &[class], ledger).0);
        assert!(ask(both, &ClusterLedger::new(&inventory)).is_empty());
        let ledger = ClusterLedger::without(&inventory, &released);
        assert_eq!(ask(both, &ledger), ["d00", "d01"]);
        assert_eq!(ask(one, &ledger), ["d01"]);
    }
}
