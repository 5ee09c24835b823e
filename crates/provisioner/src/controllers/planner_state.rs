//! What plans depend on and only the leader knows: its options, and offerings that turned out to have no machines.
//!
//! The leader keeps it in a ConfigMap beside its Lease, so that `dovetail snapshot` and `dovetail explain` plan as it
//! does. Nothing reads it back: a leader that starts knows its options, and finds out about offerings anew. It is best
//! effort and bounded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cloudprovider::{InstanceType, InstanceTypes, OfferingKey};
use cluster::snapshot_file::HeaderOptions;
use decode::scheduler_config::SchedulerConfig;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use model::{NodePoolName, PriceNanoUsdPerHour, Timestamp};
use scheduling::snapshot::Options as PlanOptions;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::{debug, warn};

use crate::options::Options;
use crate::runtime::controller_loop::{Looks, Rhythm};
use crate::runtime::namespace;
use crate::world::context::Context;

/// The controller's name in logs and metrics.
pub const NAME: &str = "planner-state";
/// The ConfigMap's name.
pub const CONFIG_MAP: &str = "dovetail-planner-state";
/// Its only key.
const KEY: &str = "state.json";
/// The provider is asked about each NodePool, hence the bound.
const RHYTHM: Rhythm = Rhythm {
    first: Duration::ZERO,
    period: Duration::from_secs(5),
    collect: Duration::ZERO,
    bound: Duration::from_secs(300),
};
/// Offerings that are written down; beyond, the ConfigMap would become too large for the API server.
const MAX_OFFERINGS: usize = 5_000;

/// See the [module](self).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannerState {
    /// When it was written.
    pub updated_at: Timestamp,
    /// Options that change a plan.
    pub options: HeaderOptions,
    /// Feature gates, by name.
    pub feature_gates: BTreeMap<String, bool>,
    /// What it is told of kube-scheduler's configuration.
    #[serde(default, skip_serializing_if = "SchedulerConfig::is_empty")]
    pub scheduler_config: SchedulerConfig,
    /// Offerings that are not tried just now.
    pub unavailable: Vec<Unavailable>,
}

/// Offerings without machines, and the NodePools for which that is so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unavailable {
    node_pools: Vec<NodePoolName>,
    offerings: Vec<OfferingKey>,
}

impl PlannerState {
    /// What the options say, and what plans are made by; nothing is known of offerings.
    pub fn of_options(options: &Options, plan_options: &PlanOptions, now: Timestamp) -> Self {
        Self {
            updated_at: now,
            options: HeaderOptions::from(plan_options),
            feature_gates: options.feature_gates.by_name(),
            scheduler_config: options.scheduler_config.clone(),
            unavailable: Vec::new(),
        }
    }

    /// Remembers what NodePools cannot launch now; pools with equal answers are grouped.
    fn set_unavailable<'a>(&mut self, pools: impl IntoIterator<Item = (NodePoolName, &'a [Arc<InstanceType>])>) {
        let mut by_offerings: BTreeMap<Vec<OfferingKey>, Vec<NodePoolName>> = BTreeMap::new();
        for (pool, types) in pools {
            let mut offerings: Vec<OfferingKey> = types
                .iter()
                .flat_map(|it| it.offerings.iter().filter(|it| !it.available).map(|offering| offering.key(&it.name)))
                .collect();
            if !offerings.is_empty() {
                offerings.sort();
                by_offerings.entry(offerings).or_default().push(pool);
            }
        }
        let mut left = MAX_OFFERINGS;
        self.unavailable.clear();
        for (mut offerings, mut node_pools) in by_offerings {
            node_pools.sort();
            offerings.truncate(left);
            left -= offerings.len();
            self.unavailable.push(Unavailable { node_pools, offerings });
        }
    }

    /// Takes away from a NodePool's instance types what the leader does not try just now.
    pub fn apply(&self, node_pool: &str, types: &mut [Arc<InstanceType>]) {
        let is_about = |it: &&Unavailable| it.node_pools.iter().any(|name| name.as_str() == node_pool);
        let gone: Vec<&OfferingKey> = self.unavailable.iter().filter(is_about).flat_map(|it| &it.offerings).collect();
        for instance_type in types {
            if !gone.iter().any(|key| key.instance_type == instance_type.name) {
                continue;
            }
            let instance_type = Arc::make_mut(instance_type);
            for offering in &mut instance_type.offerings {
                offering.available &= !gone.contains(&&offering.key(&instance_type.name));
            }
        }
    }
}

/// Keeps the ConfigMap up to date until the context is stopped.
pub async fn run(context: Context) {
    context.store.wait_until_synced().await;
    // The provider's answers and the price that were written down last.
    let mut written: Option<(Vec<(NodePoolName, u64)>, PriceNanoUsdPerHour)> = None;
    let mut complained = false;
    let mut looks = Looks::new(NAME, RHYTHM, &context.beats, &context.stop);
    while looks.next().await {
        let known = instance_types(&context).await;
        let generations = known.iter().map(|(pool, types)| (pool.clone(), types.generation)).collect();
        let plan_options = context.plan_options();
        let found = (generations, plan_options.disruption.displacement_price);
        if written.as_ref() == Some(&found) {
            continue;
        }
        let mut state = PlannerState::of_options(&context.options, &plan_options, context.clock.now());
        state.set_unavailable(known.iter().map(|(pool, types)| (pool.clone(), &*types.types)));
        match write(&context, &state).await {
            Ok(()) => {
                debug!(
                    unavailable_count = state.unavailable.len(),
                    "wrote the planner's state for `dovetail snapshot`"
                );
                written = Some(found);
                complained = false;
            }
            Err(error) if !complained => {
                warn!(error = format!("{error:#}"), "could not write the planner's state for `dovetail snapshot`");
                complained = true;
            }
            Err(_) => {}
        }
    }
}

/// What each NodePool of the provider's can launch now. What cannot be told now is told the next time.
async fn instance_types(context: &Context) -> Vec<(NodePoolName, InstanceTypes)> {
    let kinds = context.cloud.node_class_kinds();
    let pools: Vec<_> = context.store.read().node_pools.values().cloned().collect();
    let mut known = Vec::new();
    for pool in pools {
        let class = &pool.spec.template.spec.node_class_ref;
        if !kinds.iter().any(|kind| kind.group == class.group && kind.kind == class.kind) {
            continue;
        }
        if let Ok(types) = context.cloud.instance_types(&pool).await {
            known.push((NodePoolName::from(pool.metadata.name.as_deref().unwrap_or_default()), types));
        }
    }
    known
}

fn namespace_of(options: &Options) -> String {
    let of_lease = options.leader_election.as_ref().and_then(|election| election.namespace.clone());
    of_lease.unwrap_or_else(namespace::own_or_kube_system)
}

async fn write(context: &Context, state: &PlannerState) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace_of(&context.options));
    let text = serde_json::to_string(state)?;
    let patch = json!({"data": {KEY: text}});
    match api.patch(CONFIG_MAP, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let object = ConfigMap {
                metadata: ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() },
                data: Some(BTreeMap::from([(KEY.to_owned(), text)])),
                ..ConfigMap::default()
            };
            api.create(&PostParams::default(), &object).await.map(drop).context("cannot create the ConfigMap")
        }
        answer => answer.map(drop).context("cannot write the ConfigMap"),
    }
}

/// What the leader of that cluster has written; of several the one that wrote last.
///
/// # Errors
/// Those of the API server, and a ConfigMap that cannot be read.
pub async fn read(client: &Client) -> anyhow::Result<Option<PlannerState>> {
    let api: Api<ConfigMap> = Api::all(client.clone());
    let found = api.list(&ListParams::default().fields(&format!("metadata.name={CONFIG_MAP}"))).await?;
    let mut states = Vec::new();
    for object in found {
        let Some(text) = object.data.as_ref().and_then(|data| data.get(KEY)) else { continue };
        let at = || format!("ConfigMap {}/{CONFIG_MAP}", object.metadata.namespace.as_deref().unwrap_or_default());
        states.push(serde_json::from_str::<PlannerState>(text).with_context(at)?);
    }
    Ok(states.into_iter().max_by_key(|state| state.updated_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types() -> Vec<Arc<InstanceType>> {
        cloudprovider_kwok::catalogue::default_instance_types().into_iter().take(3).map(Arc::new).collect()
    }

    fn state() -> PlannerState {
        PlannerState {
            updated_at: Timestamp::from_seconds(1),
            options: HeaderOptions::default(),
            feature_gates: BTreeMap::from([("NodeRepair".to_owned(), false)]),
            scheduler_config: SchedulerConfig::default(),
            unavailable: Vec::new(),
        }
    }

    #[test]
    fn what_the_leader_does_not_try_is_taken_away_from_that_node_pool_only() {
        let mut of_leader = types();
        Arc::make_mut(&mut of_leader[1]).offerings[2].available = false;
        let (fresh, mut state) = (types(), state());
        state.set_unavailable([("a".into(), &*of_leader), ("b".into(), &*fresh), ("c".into(), &*of_leader)]);
        assert_eq!(state.unavailable.len(), 1, "pools of which the same is true stand together");
        let text = serde_json::to_string(&state).unwrap();
        let state: PlannerState = serde_json::from_str(&text).unwrap();
        for (pool, expected) in [("a", &of_leader), ("b", &fresh), ("c", &of_leader)] {
            let mut seen = types();
            state.apply(pool, &mut seen);
            assert_eq!(seen, *expected, "{pool}");
        }
    }

    #[test]
    fn no_more_is_written_than_an_object_may_hold() {
        let one = Arc::clone(&types()[0]);
        let many: Vec<Arc<InstanceType>> = (0..MAX_OFFERINGS)
            .map(|index| {
                let mut instance_type = InstanceType::clone(&one);
                instance_type.name = format!("a-rather-long-name-of-a-type-{index}").as_str().into();
                instance_type.offerings.iter_mut().for_each(|offering| offering.available = false);
                Arc::new(instance_type)
            })
            .collect();
        let mut state = state();
        state.set_unavailable([("a".into(), &*many)]);
        assert_eq!(state.unavailable[0].offerings.len(), MAX_OFFERINGS);
        assert!(serde_json::to_string(&state).unwrap().len() < 1_000_000);
    }
}
