//! Machines that take the place of others.
//!
//! Who waits for them waits for the same: a disruption command before it deletes, the drain of a machine that the cloud
//! takes back before it evicts.

use api::NodeClaim;
use api::conditions::node_claim::{DEVICES_PUBLISHED, INITIALIZED};

use crate::world::{claim, machine_devices};

/// How far a replacement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It is on its way.
    Coming,
    /// It is initialized and has the devices that it was planned with.
    Ready,
    /// Its drivers have not published what was planned, and nobody waits for them any longer.
    WithoutDevices,
}

/// How far the machine of a NodeClaim is as a replacement.
pub(crate) fn readiness(claim: &NodeClaim) -> Readiness {
    if machine_devices::are_given_up(claim) {
        Readiness::WithoutDevices
    } else if claim::is(claim, INITIALIZED)
        && (!machine_devices::are_expected(claim) || claim::is(claim, DEVICES_PUBLISHED))
    {
        Readiness::Ready
    } else {
        Readiness::Coming
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// With conditions by type, status and reason.
    pub(crate) fn claim(name: &str, annotations: &Value, conditions: &[(&str, &str, &str)]) -> NodeClaim {
        let condition = |(kind, status, reason): &(&str, &str, &str)| {
            json!({"type": kind, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-11-25T21:00:00Z"})
        };
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "annotations": annotations},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// Conditions of a replacement, what it is to bring, and what that comes to.
    type Case<'c> = (&'c [(&'c str, &'c str)], Value, Readiness);

    #[test]
    fn a_replacement_is_ready_with_its_devices_and_not_before() {
        let requested =
            |driver: &str| json!({"dovetail.sh/devices": "{\"gpu\":1}", "karpenter.sh/requested-dra-drivers": driver});
        let expected = requested("gpu");
        let cases: [Case<'_>; 7] = [
            (&[], json!({}), Readiness::Coming),
            (&[("Initialized", "Unknown")], json!({}), Readiness::Coming),
            (&[("Initialized", "True")], json!({}), Readiness::Ready),
            (&[("Initialized", "True")], expected.clone(), Readiness::Coming),
            (&[("Initialized", "True")], requested("nic"), Readiness::Ready),
            (&[("Initialized", "True"), ("DevicesPublished", "True")], expected.clone(), Readiness::Ready),
            (&[("Initialized", "True"), ("DevicesPublished", "False")], expected, Readiness::WithoutDevices),
        ];
        for (conditions, annotations, wanted) in cases {
            let with_reasons: Vec<_> = conditions.iter().map(|&(kind, status)| (kind, status, kind)).collect();
            assert_eq!(readiness(&claim("r", &annotations, &with_reasons)), wanted, "{conditions:?}");
        }
    }
}
