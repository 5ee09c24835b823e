//! What is told of pods that are left out of plans, of launches in vain, and of a planner that panics.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::events;
use model::{Pod, Timestamp, Uid};
use tracing::{error, warn};

use super::{Report, SHOWN};
use crate::controllers::provisioning::brake::InVain;
use crate::controllers::provisioning::pod_class::PodClass;
use crate::controllers::provisioning::round::LeftOut;
use crate::runtime::metrics::ByNodePool;
use crate::runtime::panics::Panicked;
use crate::runtime::recorder::{Event, Severity, pod_reference, reference};
use crate::world::context::Context;

impl Report {
    /// The planner panicked with pods of these classes.
    pub(in crate::controllers::provisioning) fn panicked(&self, culprits: &[(PodClass, Panicked)]) {
        for (class, panicked) in culprits {
            self.metrics.planner_panics.inc();
            let Panicked { message, place, backtrace } = panicked;
            error!(
                %class,
                place,
                backtrace,
                "the planner panicked and its pods are set aside; this is a defect, please report it: {message}"
            );
        }
    }

    /// Machines turned out to have been launched in vain.
    pub(in crate::controllers::provisioning) fn in_vain(&self, context: &Context, launches: &[InVain]) {
        for launch in launches {
            let InVain { node_pool, message, before, .. } = launch;
            let by_pool = ByNodePool { nodepool: node_pool.to_string() };
            self.metrics.ineffective_launches.get_or_create(&by_pool).inc();
            warn!(%node_pool, in_a_row = before + 1, "launched in vain: {message}");
            let Some(pool) = context.store.read().node_pools.get(node_pool).cloned() else { continue };
            let event = Event::new(reference(&*pool), Severity::Warning, events::LAUNCH_IN_VAIN, message.clone());
            context.recorder.publish(event);
        }
    }

    /// Pods were left out of a plan.
    pub(in crate::controllers::provisioning) fn left_out(&self, context: &Context, left_out: &LeftOut) {
        let gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.metrics.braked_pods.set(gauge(left_out.braked.len()));
        self.metrics.set_aside_pods.set(gauge(left_out.aside.len()));
        let mut now: BTreeMap<Uid, &'static str> = BTreeMap::new();
        let mut before = self.left_out.lock();
        let braked = "it waits for the next launch, because one for it was in vain";
        let aside = "the planner panics with it, which is a defect of this program; please report it";
        for (what, pods) in [(braked, &left_out.braked), (aside, &left_out.aside)] {
            let mut new = Vec::new();
            for (pod, until, why) in pods {
                context.recorder.publish(event(pod, what, *until, why));
                now.insert(pod.uid.clone(), what);
                if before.get(&pod.uid) != Some(&what) {
                    new.push((pod, why));
                }
            }
            if let Some((_, why)) = new.first() {
                let shown: Vec<String> = new.iter().take(SHOWN).map(|(pod, _)| pod.name.to_string()).collect();
                error!(
                    pod_count = new.len(),
                    pods = shown.join(", "),
                    reason = &***why,
                    "could not schedule pod, {what}"
                );
            }
        }
        *before = now;
    }

    pub(super) fn nothing_left_out(&self) {
        self.metrics.braked_pods.set(0);
        self.metrics.set_aside_pods.set(0);
        self.left_out.lock().clear();
    }
}

fn event(pod: &Arc<Pod>, what: &'static str, until: Timestamp, why: &str) -> Event {
    let message = format!("Failed to schedule pod, {what}: {why}; it is planned again at {until}");
    let event = Event::new(pod_reference(pod), Severity::Warning, events::FAILED_SCHEDULING, message);
    event.with_dedupe(what)
}
