//! Learns from running machines what drivers publish where no template says it, if the user wants that
//! (`--learn-devices`): tells of it, or writes a NodeOverlay.
//!
//! A generated overlay is marked as such, ranks below every other, and is never changed: what drivers publish otherwise
//! later is told as a mismatch, as of any overlay. It is deleted once nothing follows from it any more, because
//! somebody else describes the same or the type is gone. At most [`MAX_GENERATED`] are kept, and [`MAX_AT_ONCE`]
//! written at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::conditions::node_claim::INITIALIZED;
use api::{NodeOverlay, NodePool, events, labels};
use dra_types::ResourceSlice;
use kube::Resource;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use model::{NodeOverlayName, NodePoolName};
use overlay::capture::Source;
use overlay::learn::{self, Gap};
use parking_lot::Mutex;
use tracing::{info, warn};

use super::Machine;
use crate::options::LearnDevices;
use crate::runtime::failures::cause_in_words;
use crate::runtime::recorder::{Event, Severity, reference};
use crate::world::catalogues::Answer;
use crate::world::claim;
use crate::world::context::Context;
use crate::world::overlays::Outcome;
use crate::world::store::{Revision, Stored};

/// Most generated overlays in a cluster.
const MAX_GENERATED: usize = 100;
/// Most that are written or deleted at a time.
const MAX_AT_ONCE: usize = 10;
/// Gaps that have been told, before they are told again.
const MAX_TOLD: usize = 1000;

/// What has been said.
#[derive(Debug, Default)]
pub(super) struct Learning {
    told: Mutex<BTreeSet<Gap>>,
}

/// What is to be done.
#[derive(Debug, Default)]
struct Todo {
    /// Gaps with the overlays that close them, or why there is none.
    gaps: Vec<(Gap, Result<NodeOverlay, String>)>,
    /// Generated overlays that nothing follows from.
    obsolete: Vec<Arc<NodeOverlay>>,
}

impl Learning {
    /// Looks for what no template describes, and does about it what the user wants.
    pub(super) async fn learn(
        &self,
        context: &Context,
        objects: &[Arc<NodeOverlay>],
        answers: &[Answer],
        outcome: &Outcome,
        (machines, slices): (&[Machine], &[Arc<ResourceSlice>]),
    ) {
        let applies = match context.options.learn_devices {
            LearnDevices::Off => return,
            LearnDevices::Propose => false,
            LearnDevices::Apply => !context.options.dry_run,
        };
        let todo = todo(objects, answers, outcome, machines, slices);
        for (gap, made) in &todo.gaps {
            self.tell(context, machines, gap, made.as_ref().err());
        }
        if applies {
            apply(context, objects, todo).await;
        }
    }

    fn tell(&self, context: &Context, machines: &[Machine], gap: &Gap, trouble: Option<&String>) {
        let mut told = self.told.lock();
        if told.len() >= MAX_TOLD {
            told.clear();
        }
        if !told.insert(gap.clone()) {
            return;
        }
        let Gap { driver, instance_type, node_class, node_name, devices } = gap;
        let more = trouble.map(|trouble| format!("; no overlay can be made of them: {trouble}")).unwrap_or_default();
        let message = format!(
            "{driver} has published {devices} device(s) on {instance_type} ({node_class}) that no template describes{more}; \
             see: dovetail overlay capture --node {node_name} --driver {driver}"
        );
        info!(%driver, instance_type, node_class, node = node_name, device_count = devices, "a driver published devices that no template describes");
        let of_node = |machine: &&Machine| machine.node.metadata.name.as_deref() == Some(node_name);
        if let Some(machine) = machines.iter().find(of_node) {
            let event =
                Event::new(reference(&*machine.claim), Severity::Normal, events::DEVICES_NOT_DESCRIBED, message);
            context.recorder.publish(event.with_dedupe(driver.as_str()));
        }
    }
}

/// What a node class is called here: its kind and name, which tell classes of a provider apart.
fn class_of(pool: &NodePool) -> String {
    let class = &pool.spec.template.spec.node_class_ref;
    format!("{}/{}", class.kind, class.name)
}

/// The types that each NodePool can launch, as overlays leave them.
type Types<'a> = BTreeMap<NodePoolName, (&'a NodePool, &'a [Arc<cloudprovider::InstanceType>])>;

fn todo(
    objects: &[Arc<NodeOverlay>],
    answers: &[Answer],
    outcome: &Outcome,
    machines: &[Machine],
    slices: &[Arc<ResourceSlice>],
) -> Todo {
    let types: Types<'_> = answers
        .iter()
        .filter_map(|answer| {
            let name = answer.pool.key();
            let provided = &answer.types.as_ref().ok()?.types;
            let corrected = outcome.described_types.get(&name).map(|corrected| corrected.types.as_slice());
            Some((name, (&*answer.pool, corrected.unwrap_or(provided))))
        })
        .collect();
    Todo { gaps: gaps(&types, machines, slices), obsolete: obsolete(objects, answers, outcome, &types) }
}

fn gaps(
    types: &Types<'_>,
    machines: &[Machine],
    slices: &[Arc<ResourceSlice>],
) -> Vec<(Gap, Result<NodeOverlay, String>)> {
    let mut seen = Vec::new();
    for machine in machines.iter().filter(|machine| claim::is(&machine.claim, INITIALIZED)) {
        let Some((pool, of_pool)) = types.get(claim::node_pool(&machine.claim)) else { continue };
        let name = claim::label(&machine.claim, labels::INSTANCE_TYPE);
        // A type that the provider does not offer any more is not planned with.
        let Some(of_type) = of_pool.iter().find(|it| it.name.as_str() == name) else { continue };
        let templates = &of_type.dynamic_resources.resource_slice_templates;
        let described: BTreeSet<&str> = templates.iter().map(|template| template.spec.driver.as_str()).collect();
        seen.push((machine, of_type, class_of(pool), described));
    }
    let facts: Vec<learn::Machine<'_>> = seen
        .iter()
        .filter_map(|(machine, of_type, node_class, described)| {
            let node_name = machine.node.metadata.name.as_deref()?;
            Some(learn::Machine { node_name, instance_type: of_type.name.as_str(), node_class, described })
        })
        .collect();
    let found = learn::gaps(&facts, slices.iter().map(AsRef::as_ref));
    let all: Vec<&ResourceSlice> = slices.iter().map(AsRef::as_ref).collect();
    let overlay = |gap: &Gap| -> Result<NodeOverlay, String> {
        let of_node = |machine: &Machine| machine.node.metadata.name.as_deref() == Some(&*gap.node_name);
        let Some((machine, of_type, ..)) = seen.iter().find(|(machine, ..)| of_node(machine)) else {
            return Err(format!("node {} is gone", gap.node_name));
        };
        let of_node = machine.node.metadata.labels.clone().unwrap_or_default();
        let source = Source {
            node_name: &gap.node_name,
            labels: &of_node,
            slices: &all,
            label_of_type: &|key| of_type.certain_label(key).map(str::to_owned),
            driver: Some(gap.driver.as_str()),
            without: &[],
        };
        let pools: Vec<&str> = types
            .iter()
            .filter(|(_, (pool, _))| class_of(pool) == gap.node_class)
            .map(|(name, _)| name.as_str())
            .collect();
        learn::overlay(gap, &source, &pools).map(|made| made.overlay).map_err(|error| error.to_string())
    };
    found
        .into_iter()
        .map(|gap| {
            let made = overlay(&gap);
            (gap, made)
        })
        .collect()
}

/// Generated overlays that give no type of any NodePool its templates.
fn obsolete(
    objects: &[Arc<NodeOverlay>],
    answers: &[Answer],
    outcome: &Outcome,
    types: &Types<'_>,
) -> Vec<Arc<NodeOverlay>> {
    // What cannot be told now is no reason to delete anything.
    if answers.is_empty() || answers.iter().any(|answer| answer.types.is_err()) {
        return Vec::new();
    }
    let templates = types.values().flat_map(|(_, types)| types.iter()).flat_map(|of_type| {
        of_type.dynamic_resources.resource_slice_templates.iter().map(|template| template.metadata.name.as_str())
    });
    let serving: BTreeSet<&str> = templates.filter_map(|name| Some(name.split_once('/')?.0)).collect();
    let is_obsolete = |object: &&Arc<NodeOverlay>| {
        let name: NodeOverlayName = object.key();
        learn::is_generated(object) && !outcome.refused.contains_key(&name) && !serving.contains(name.as_str())
    };
    objects.iter().filter(is_obsolete).cloned().collect()
}

async fn apply(context: &Context, objects: &[Arc<NodeOverlay>], todo: Todo) {
    let api: Api<NodeOverlay> = Api::all(context.client.clone());
    for object in todo.obsolete.iter().take(MAX_AT_ONCE) {
        let name = object.key();
        let uid = object.metadata.uid.clone();
        let only_this = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        match api.delete(&name, &only_this).await {
            Ok(_) => info!(node_overlay = %name, "deleted a generated overlay that no longer has an effect"),
            Err(error) => {
                warn!(node_overlay = %name, error = cause_in_words(&error), "could not delete a generated overlay")
            }
        }
    }
    let there: BTreeSet<NodeOverlayName> = objects.iter().map(|object| object.key()).collect();
    let generated = objects.iter().filter(|object| learn::is_generated(object)).count();
    let left = MAX_GENERATED.saturating_sub(generated).min(MAX_AT_ONCE);
    let made = todo.gaps.into_iter().filter_map(|(_, made)| made.ok());
    let new: Vec<NodeOverlay> = made.filter(|made| !there.contains(&made.key())).collect();
    if new.len() > left && generated >= MAX_GENERATED {
        warn!(
            generated,
            "the maximum number of generated overlays is reached; describe devices with your own overlays"
        );
    }
    for made in new.into_iter().take(left) {
        let name = made.key();
        match api.create(&PostParams::default(), &made).await {
            Ok(answer) => {
                info!(node_overlay = %name, "generated an overlay from the devices that a node has published");
                let revision = Revision::of(answer.meta());
                context.store.apply(answer, revision);
            }
            Err(error) => warn!(node_overlay = %name, error = cause_in_words(&error), "could not generate an overlay"),
        }
    }
}

#[cfg(test)]
mod tests;
