//! What `/metrics` shows of Nodes, pods and objects on their way out, under Karpenter's names.
//!
//! What is so now is written down whenever metrics are asked for, so that a series goes with its object. Of pods only
//! those are looked at that have yet to start, and the sums of a Node only when its pods have changed, so that a scrape
//! of a large cluster costs what changes and not what there is.
//!
//! Differs: `pod-series`. There is no `pods_state`, of which Karpenter has a series for each pod of the cluster, and of
//! pods that have yet to start at most [`pods::MOST`] are shown. `--disable-cluster-state-observability` removes, as in
//! Karpenter, all series of single Nodes and pods.

use std::fmt;
use std::sync::{Arc, OnceLock};

use api::labels::ProviderLabels;
use model::{Pod, Timestamp, Uid};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::runtime::clock::Clock;
use crate::runtime::metrics::Metrics;
use crate::world::store::ClusterStore;

mod nodes;
mod pods;
mod termination;

/// Shows the cluster once it is told of the store.
#[derive(Debug)]
pub struct ClusterMetrics {
    source: Arc<OnceLock<Source>>,
    pods: Arc<pods::Waiting>,
    terminations: termination::Durations,
}

/// What it is read from.
#[derive(Debug)]
struct Source {
    store: Arc<ClusterStore>,
    clock: Arc<dyn Clock>,
    labels: ProviderLabels,
    /// Whether single Nodes and pods are shown.
    of_each: bool,
}

impl ClusterMetrics {
    /// Shows nothing yet.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let source = Arc::new(OnceLock::new());
        let registry = metrics.registry_mut();
        let pods = Arc::new(pods::Waiting::register(registry.sub_registry_with_prefix("karpenter_pods")));
        let terminations = termination::Durations::register(registry.sub_registry_with_prefix("operator_termination"));
        let now = Now { source: Arc::clone(&source), pods: Arc::clone(&pods), sums: nodes::Sums::default() };
        registry.register_collector(Box::new(now));
        Self { source, pods, terminations }
    }

    /// Shows what is in the store from now on.
    pub(crate) fn observe(
        &self,
        store: &Arc<ClusterStore>,
        clock: &Arc<dyn Clock>,
        labels: &ProviderLabels,
        of_each: bool,
    ) {
        let source = Source { store: Arc::clone(store), clock: Arc::clone(clock), labels: labels.clone(), of_each };
        if self.source.set(source).is_err() {
            return;
        }
        let (pods, time) = (Arc::clone(&self.pods), Arc::clone(clock));
        store.on::<Pod>(move |delta, _| pods.changed(delta, time.now()));
        self.terminations.observe(store, clock);
        // Those that were there before, of which nobody knows when they were seen first.
        let state = store.read();
        state.pods.values().for_each(|pod| self.pods.seen(pod, clock.now()));
    }

    /// Pods have a place in a plan.
    pub(crate) fn placed<'u>(&self, pods: impl IntoIterator<Item = &'u Uid>, now: Timestamp) {
        self.pods.decided(pods, Some(now));
    }

    /// A plan had no place for pods.
    pub(crate) fn refused<'u>(&self, pods: impl IntoIterator<Item = &'u Uid>) {
        self.pods.decided(pods, None);
    }
}

/// What is so now.
#[derive(Debug)]
struct Now {
    source: Arc<OnceLock<Source>>,
    pods: Arc<pods::Waiting>,
    sums: nodes::Sums,
}

impl Collector for Now {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(source) = self.source.get() else { return Ok(()) };
        // Writers need not wait until everything is written down.
        let (state, now) = (source.store.snapshot(), source.clock.now());
        let nodes = self.sums.of(&state);
        nodes::encode_cluster(&nodes, &state, &mut encoder)?;
        termination::encode(&state, now, &mut encoder)?;
        if source.of_each {
            nodes::encode_each(&nodes, &state, (&source.labels, now), &mut encoder)?;
            self.pods.encode(now, &mut encoder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
