//! Taints, conditions and labels of another controller on a registered machine: removes leftovers, adds what is
//! missing.
//!
//! A Karpenter that is stopped in the middle of a disruption command leaves the taint `karpenter.sh/disrupted` and a
//! condition. Only that Karpenter knew the command: without it the machine would take no pods, and nothing would remove
//! it. So both are removed, as Karpenter does when it starts. An object that is being deleted keeps them, since the
//! taint is part of the deletion. A reboot is completed by `controllers/node/reboot`, which removes its annotations;
//! the fence of a finished one is removed here.
//!
//! What one of Dovetail's own commands has written stays: its note on the NodeClaim says how to continue, and
//! `disruption` removes all of it, the note last.
//!
//! A Node that is older than Karpenter's label of the node class gets this label, even while it is being deleted: the
//! controllers find their Nodes by it.

use api::conditions::node_claim::{DISRUPTION_REASON, REBOOTING};
use api::{NodeClaim, conditions, taints};
use cluster::node_claim::command::has_note;
use k8s_openapi::api::core::v1::{Node, Taint};

use super::registration;
use crate::runtime::conditions::ConditionSet;
use crate::world::claim;
use crate::world::node_facts;

/// Whether [`tidied`] would change the Node of that NodeClaim.
pub(crate) fn is_untidy(node_claim: &NodeClaim, node: &Node) -> bool {
    node_facts::is_registered(node) && (lacks_class_label(node_claim, node) || has_stale_taint(node_claim, node))
}

/// The Node without leftovers, and with the label of its node class.
pub(crate) fn tidied(node_claim: &NodeClaim, node: &Node) -> Node {
    let mut tidied = node.clone();
    if !node_facts::is_registered(node) {
        return tidied;
    }
    if lacks_class_label(node_claim, node) {
        let (key, value) = registration::class_label(node_claim);
        tidied.metadata.labels.get_or_insert_default().insert(key, value);
    }
    if has_stale_taint(node_claim, node)
        && let Some(of_node) = tidied.spec.as_mut().and_then(|spec| spec.taints.as_mut())
    {
        of_node.retain(|taint| !is_stale(node_claim, taint));
    }
    tidied
}

/// Takes away the condition of that NodeClaim by which a command would go on.
pub(crate) fn clear(node_claim: &NodeClaim, conditions: &mut ConditionSet<'_>) {
    let is_rebooting = conditions.get(REBOOTING).is_some_and(|rebooting| rebooting.status == conditions::TRUE);
    if !has_note(node_claim) && !is_rebooting {
        conditions.clear(DISRUPTION_REASON);
    }
}

fn lacks_class_label(node_claim: &NodeClaim, node: &Node) -> bool {
    let (key, _) = registration::class_label(node_claim);
    node.metadata.labels.as_ref().is_none_or(|of_node| !of_node.contains_key(&key))
}

fn has_stale_taint(node_claim: &NodeClaim, node: &Node) -> bool {
    !claim::is_deleting(node_claim)
        && node.metadata.deletion_timestamp.is_none()
        && node_facts::taints_of(node).iter().any(|taint| is_stale(node_claim, taint))
}

/// Whether nothing else would remove that taint.
fn is_stale(node_claim: &NodeClaim, taint: &Taint) -> bool {
    let is_of_no_command = node_facts::same_taint(&taints::disrupted(), taint) && !has_note(node_claim);
    let is_fence = node_facts::same_taint(&taints::rebooting(), taint);
    is_of_no_command || (is_fence && !claim::is(node_claim, REBOOTING))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::node_claim::Draft;

    fn claim(metadata: Value, conditions: Value) -> NodeClaim {
        let mut metadata = metadata;
        metadata["name"] = "a".into();
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata,
            "spec": {"nodeClassRef": {"group": "g.sh", "kind": "Class", "name": "n"}, "requirements": []},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn node(metadata: Value, taints: Value) -> Node {
        serde_json::from_value(json!({"metadata": metadata, "spec": {"taints": taints}})).unwrap()
    }

    fn commands() -> Value {
        json!([
            {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
            {"key": "team", "effect": "NoSchedule"},
            {"key": "karpenter.sh/rebooting", "effect": "NoSchedule"},
            {"key": "karpenter.sh/disrupted", "effect": "NoExecute"},
        ])
    }

    #[test]
    fn taints_of_commands_go_and_others_stay() {
        let registered = || json!({"labels": {"karpenter.sh/registered": "true", "g.sh/class": "n"}});
        let living = claim(json!({}), json!([]));
        let before = node(registered(), commands());
        assert!(is_untidy(&living, &before));
        let after = tidied(&living, &before);
        let left: Vec<String> =
            node_facts::taints_of(&after).iter().map(super::super::initialization::display).collect();
        assert_eq!(left, ["team:NoSchedule", "karpenter.sh/disrupted:NoExecute"]);
        assert!(!is_untidy(&living, &after));
        // A reboot goes on.
        let rebooting = json!([{"type": "Rebooting", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let after = tidied(&claim(json!({}), rebooting), &before);
        assert!(node_facts::has_taint(&after, &taints::rebooting()));
        assert!(!node_facts::has_taint(&after, &taints::disrupted()));
        // On the way out they belong there.
        let leaving = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(!is_untidy(&claim(leaving.clone(), json!([])), &before));
        let mut metadata = registered();
        metadata["deletionTimestamp"] = leaving["deletionTimestamp"].clone();
        assert!(!is_untidy(&living, &node(metadata, commands())));
        // Its note says what comes next.
        let noted = claim(json!({"annotations": {"dovetail.sh/disruption-command": "{}"}}), json!([]));
        let left: Vec<String> =
            node_facts::taints_of(&tidied(&noted, &before)).iter().map(super::super::initialization::display).collect();
        assert_eq!(left, ["karpenter.sh/disrupted:NoSchedule", "team:NoSchedule", "karpenter.sh/disrupted:NoExecute"]);
        // Not ours yet.
        assert!(!is_untidy(&living, &node(json!({}), commands())));
    }

    #[test]
    fn a_node_gets_the_label_of_its_node_class_also_on_its_way_out() {
        for metadata in [json!({}), json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})] {
            let of_claim = claim(metadata, json!([]));
            let before = node(json!({"labels": {"karpenter.sh/registered": "true"}}), json!([]));
            assert!(is_untidy(&of_claim, &before));
            let after = tidied(&of_claim, &before);
            assert_eq!(after.metadata.labels.as_ref().unwrap()["g.sh/class"], "n");
            assert!(!is_untidy(&of_claim, &after));
        }
    }

    #[test]
    fn conditions_of_commands_go_and_how_a_reboot_ended_stays() {
        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let types = |metadata: Value, conditions: Value| -> Vec<String> {
            let mut draft = Draft::new(claim(metadata, conditions).into(), model::Timestamp::default());
            let read = Arc::clone(&draft.read);
            clear(&read, &mut draft.conditions());
            let status = draft.wanted.status.unwrap();
            let ours = status
                .conditions
                .into_iter()
                .filter(|it| [DISRUPTION_REASON, REBOOTING, "Drifted"].contains(&&*it.type_));
            ours.map(|it| it.type_).collect()
        };
        let command = json!([condition("DisruptionReason", "True"), condition("Drifted", "True")]);
        assert_eq!(types(json!({}), command.clone()), ["Drifted"]);
        let noted = json!({"annotations": {"dovetail.sh/disruption-command": "{}"}});
        assert_eq!(types(noted, command), ["DisruptionReason", "Drifted"], "its note says what comes next");
        let reboot = |status: &str| json!([condition("DisruptionReason", "True"), condition("Rebooting", status)]);
        assert_eq!(types(json!({}), reboot("True")).len(), 2, "it goes on");
        assert_eq!(types(json!({}), reboot("False")), ["Rebooting"]);
    }
}
