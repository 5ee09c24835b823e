//! The condition `LaunchesEffective` of NodePools: whether machines took in the pods that they were launched for.
//!
//! It is written when a launch was in vain, and set to true when no pod waits for that reason any more. A NodePool that
//! never had the trouble has no such condition; `Ready` does not depend on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::NodePool;
use api::conditions::node_pool::{LAUNCHES_EFFECTIVE, PODS_STILL_WAIT, READY_DEPENDS_ON};
use kube::api::Api;
use model::{NodePoolName, Timestamp};
use tracing::debug;

use crate::runtime::conditions::{ConditionSet, is_false};
use crate::runtime::failures::in_words;
use crate::runtime::patch::{self, Lock};
use crate::world::context::Context;
use crate::world::store::Revision;

/// Writes what NodePools are told. What cannot be written now is written after the next plan.
pub(in crate::controllers::provisioning) async fn write(
    context: &Context,
    troubles: &BTreeMap<NodePoolName, (u32, String)>,
) {
    if context.options.dry_run {
        return;
    }
    let changed: Vec<(Arc<NodePool>, NodePool)> = {
        let state = context.store.read();
        let now = context.clock.now();
        let pools = state.node_pools.iter();
        pools.filter_map(|(name, pool)| Some((Arc::clone(pool), told(pool, troubles.get(name), now)?))).collect()
    };
    let api: Api<NodePool> = Api::all(context.client.clone());
    for (before, after) in changed {
        match patch::status(&api, &before, &after, Lock::Revision).await {
            Ok(Some(answer)) => {
                let revision = Revision::of(&answer.metadata);
                context.store.apply(answer, revision);
            }
            Ok(None) => {}
            Err(error) => debug!(
                node_pool = before.metadata.name,
                error = in_words(&error),
                "could not write a condition, trying later"
            ),
        }
    }
}

/// The NodePool with its condition, if that changes anything.
fn told(node_pool: &NodePool, trouble: Option<&(u32, String)>, now: Timestamp) -> Option<NodePool> {
    let known = node_pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
    if trouble.is_none() && !is_false(known, LAUNCHES_EFFECTIVE) {
        return None;
    }
    let mut after = node_pool.clone();
    let status = after.status.get_or_insert_default();
    let mut conditions = ConditionSet::of(&mut status.conditions, &node_pool.metadata, &READY_DEPENDS_ON, now);
    let is_changed = match trouble {
        Some((in_vain, why)) => {
            let launches = if *in_vain == 1 { "launch was" } else { "launches in a row were" };
            let message = format!("{in_vain} {launches} in vain; {why}");
            conditions.set_false(LAUNCHES_EFFECTIVE, PODS_STILL_WAIT, &message)
        }
        None => conditions.set_true(LAUNCHES_EFFECTIVE),
    };
    is_changed.then_some(after)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool() -> NodePool {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "generation": 1},
            "spec": {"template": {"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []}}},
        }))
        .unwrap()
    }

    fn says(pool: &NodePool) -> (&str, &str) {
        let condition =
            crate::runtime::conditions::find(&pool.status.as_ref().unwrap().conditions, LAUNCHES_EFFECTIVE).unwrap();
        (&condition.status, &condition.message)
    }

    #[test]
    fn a_node_pool_says_that_launches_are_in_vain_and_when_they_help_again() {
        let now = Timestamp::from_seconds(1);
        assert!(told(&pool(), None, now).is_none(), "it never had the trouble");
        let troubled = told(&pool(), Some(&(2, "why".to_owned())), now).unwrap();
        assert_eq!(says(&troubled), ("False", "2 launches in a row were in vain; why"));
        assert!(told(&troubled, Some(&(2, "why".to_owned())), now).is_none(), "that is no news");
        let well = told(&troubled, None, now).unwrap();
        assert_eq!(says(&well), ("True", ""));
        assert!(told(&well, None, now).is_none());
    }
}
