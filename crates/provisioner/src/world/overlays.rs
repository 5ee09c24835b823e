//! What NodeOverlays make of the provider's answers, before they are compiled for the planner.
//!
//! All overlays are evaluated against all NodePools ([`overlay::evaluate()`]), and only when one of them has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::conditions::node_overlay::{CONFLICT, RUNTIME_VALIDATION};
use api::labels::ProviderLabels;
use api::{NodeOverlay, NodePool};
use cloudprovider::{InstanceType, InstanceTypes};
use dra_types::DriverName;
use model::{DurationMs, InstanceTypeName, NodeOverlayName, NodePoolName, Timestamp, Uid};
use overlay::evaluate::{Corrected, retain_drivers};
use overlay::{Described, Overlay, Pool, Rejection};
use parking_lot::Mutex;

use crate::world::catalogues::{self, Answer};
use crate::world::context::Context;
use crate::world::store::Stored;

/// Generations of corrected instance types have this bit, so that they are none of the provider's.
const CORRECTED: u64 = 1 << 63;
/// After so many machines of a type whose driver did not publish, its devices are not planned with.
const FAILURES: usize = 3;
/// Within this time.
const FAILURES_COUNT_FOR: DurationMs = DurationMs::from_seconds(3600);
/// Pairs of type and driver whose failures are counted.
const MAX_COUNTED: usize = 1000;
/// An instance type and a driver that was to publish devices there.
type OfDriver = (InstanceTypeName, DriverName);

/// Corrects instance types, and remembers what came of it as long as nothing changes.
#[derive(Debug, Default)]
pub struct Overlays {
    known: Mutex<Known>,
    /// When drivers did not publish in time, by instance type.
    failures: Mutex<BTreeMap<OfDriver, Vec<Timestamp>>>,
}

impl Overlays {
    /// Notes that a driver did not publish its devices on a machine of that type in time.
    pub fn device_failure(&self, instance_type: &InstanceTypeName, driver: &DriverName, now: Timestamp) {
        let mut failures = self.failures.lock();
        forget_old(&mut failures, now);
        let of = (instance_type.clone(), driver.clone());
        if failures.len() < MAX_COUNTED || failures.contains_key(&of) {
            failures.entry(of).or_default().push(now);
        }
    }

    /// What the overlays make of these answers. A NodePool that the provider has no answer for has no part in it.
    pub fn evaluate(
        &self,
        overlays: &[Arc<NodeOverlay>],
        answers: &[Answer],
        labels: &ProviderLabels,
        now: Timestamp,
    ) -> Arc<Outcome> {
        let answered: Vec<(NodePoolName, &NodePool, &InstanceTypes)> = answers
            .iter()
            .filter_map(|answer| Some((answer.pool.key(), &*answer.pool, answer.types.as_ref().ok()?)))
            .collect();
        let inputs = Inputs {
            overlays: overlays
                .iter()
                .map(|it| {
                    let uid = it.metadata.uid.as_deref().unwrap_or_default().into();
                    (it.key(), uid, it.metadata.generation.unwrap_or_default())
                })
                .collect(),
            pools: answered
                .iter()
                .map(|(name, pool, types)| (name.clone(), pool.spec.template.metadata.labels.clone(), types.generation))
                .collect(),
            distrusted: self.distrusted(now),
        };
        let mut known = self.known.lock();
        if known.inputs != inputs {
            let distrusted = &inputs.distrusted;
            known.outcome = Arc::new(evaluate(overlays, &answered, labels, distrusted, &mut known.generations));
            known.inputs = inputs;
        }
        Arc::clone(&known.outcome)
    }

    fn distrusted(&self, now: Timestamp) -> BTreeSet<OfDriver> {
        let mut failures = self.failures.lock();
        forget_old(&mut failures, now);
        failures.iter().filter(|(_, times)| times.len() >= FAILURES).map(|(of, _)| of.clone()).collect()
    }
}

#[derive(Debug, Default)]
struct Known {
    inputs: Inputs,
    outcome: Arc<Outcome>,
    generations: u64,
}

/// What an evaluation depends on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Inputs {
    overlays: Vec<(NodeOverlayName, Uid, i64)>,
    /// Name, template labels, and the generation of the provider's answer.
    pools: Vec<(NodePoolName, BTreeMap<String, String>, u64)>,
    /// Devices that are not believed in.
    distrusted: BTreeSet<OfDriver>,
}

/// What overlays do.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Why an overlay is not in effect: reason and message. The others are.
    pub refused: BTreeMap<NodeOverlayName, (&'static str, String)>,
    /// The devices that overlays describe, in words.
    pub described: BTreeMap<NodeOverlayName, String>,
    /// Instance types whose devices overlays describe, also where they are not believed in.
    pub described_types: BTreeMap<NodePoolName, Arc<Corrected>>,
    /// What becomes of the provider's answer, by NodePool, where an overlay touches it.
    pub corrected: BTreeMap<NodePoolName, CorrectedTypes>,
}

/// Instance types of a NodePool that overlays have changed.
#[derive(Debug, Clone)]
pub struct CorrectedTypes {
    /// In place of the provider's answer.
    pub types: InstanceTypes,
    /// Types with another price.
    pub with_price: BTreeSet<InstanceTypeName>,
    /// Types with other capacity.
    pub with_capacity: BTreeSet<InstanceTypeName>,
}

/// `8 of gpu.example.com on 3 instance types`.
fn in_words(drivers: &BTreeMap<DriverName, Described>) -> String {
    let of_driver = |(driver, it): (&DriverName, &Described)| {
        let Described { instance_types, fewest, most } = *it;
        let count = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
        let types = if instance_types == 1 { "type" } else { "types" };
        format!("{count} of {driver} on {instance_types} instance {types}")
    };
    let drivers: Vec<String> = drivers.iter().map(of_driver).collect();
    if drivers.is_empty() { "no instance type matches".to_owned() } else { format!("devices: {}", drivers.join(", ")) }
}

fn forget_old(failures: &mut BTreeMap<OfDriver, Vec<Timestamp>>, now: Timestamp) {
    failures.retain(|_, times| {
        times.retain(|time| now < time.saturating_add(FAILURES_COUNT_FOR));
        !times.is_empty()
    });
}

/// The instance types without devices that are not believed in; `None` if there are none such.
fn without_distrusted(types: &[Arc<InstanceType>], distrusted: &BTreeSet<OfDriver>) -> Option<Vec<Arc<InstanceType>>> {
    let mut changed = None;
    for (place, instance_type) in types.iter().enumerate() {
        let drivers: BTreeSet<&str> =
            distrusted.iter().filter(|(of, _)| *of == instance_type.name).map(|(_, driver)| driver.as_str()).collect();
        if drivers.is_empty() {
            continue;
        }
        let types = changed.get_or_insert_with(|| types.to_vec());
        if let Some(instance_type) = types.get_mut(place) {
            let resources = &mut Arc::make_mut(instance_type).dynamic_resources;
            retain_drivers(resources, |driver| !drivers.contains(driver));
        }
    }
    changed
}

fn evaluate(
    objects: &[Arc<NodeOverlay>],
    answered: &[(NodePoolName, &NodePool, &InstanceTypes)],
    labels: &ProviderLabels,
    distrusted: &BTreeSet<OfDriver>,
    generations: &mut u64,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut overlays = Vec::new();
    for object in objects {
        match Overlay::new(object, labels) {
            Ok(overlay) => overlays.push(overlay),
            Err(invalid) => {
                outcome.refused.insert(object.key(), (RUNTIME_VALIDATION, invalid.to_string()));
            }
        }
    }
    let pools: Vec<Pool<'_>> = answered
        .iter()
        .map(|(name, pool, answer)| Pool {
            name,
            template_labels: &pool.spec.template.metadata.labels,
            types: &answer.types,
        })
        .collect();
    let evaluation = overlay::evaluate(&overlays, &pools);
    outcome.refused.extend(evaluation.rejected.into_iter().map(|(name, rejection)| {
        let reason = match &rejection {
            Rejection::Conflict(_) => CONFLICT,
            Rejection::Devices { .. } | Rejection::PartOfAType { .. } => RUNTIME_VALIDATION,
        };
        (name, (reason, rejection.to_string()))
    }));
    outcome.described = evaluation.described.into_iter().map(|(name, drivers)| (name, in_words(&drivers))).collect();
    // NodePools that share the correction share its compilation as well.
    let mut shared: Vec<(Arc<Corrected>, CorrectedTypes)> = Vec::new();
    for ((name, ..), corrected) in answered.iter().zip(evaluation.pools) {
        if !corrected.with_devices.is_empty() {
            outcome.described_types.insert(name.clone(), Arc::clone(&corrected));
        }
        let believed = without_distrusted(&corrected.types, distrusted);
        if corrected.is_unchanged() && believed.is_none() {
            continue;
        }
        let types = believed.as_deref().unwrap_or(&corrected.types).into();
        let known = shared.iter().find(|(of, _)| Arc::ptr_eq(of, &corrected)).map(|(_, types)| types.clone());
        let types = known.unwrap_or_else(|| {
            *generations += 1;
            let types = CorrectedTypes {
                types: InstanceTypes { generation: CORRECTED | *generations, types },
                with_price: corrected.with_price.clone(),
                with_capacity: corrected.with_capacity.clone(),
            };
            shared.push((corrected, types.clone()));
            types
        });
        outcome.corrected.insert(name.clone(), types);
    }
    outcome
}

/// What a NodePool can launch as overlays leave it, for the provider's last choice; `None` if none touches it.
pub(crate) async fn corrected(context: &Context, node_pool: &str) -> Option<InstanceTypes> {
    let objects = context.node_overlays();
    let answers = catalogues::answers(context).await;
    let outcome = context.overlays.evaluate(&objects, &answers, &context.cloud.config().labels, context.clock.now());
    outcome.corrected.get(node_pool).map(|corrected| corrected.types.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn overlay(name: &str, generation: i64, spec: Value) -> Arc<NodeOverlay> {
        let object = json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
            "metadata": {"name": name, "uid": name, "generation": generation}, "spec": spec,
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn answer(pool: &str, generation: u64) -> Answer {
        let types = cloudprovider_kwok::catalogue::default_instance_types().into_iter().take(3).map(Arc::new);
        let object = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": pool},
            "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}}}},
        });
        Answer {
            pool: Arc::new(serde_json::from_value(object).unwrap()),
            types: Ok(InstanceTypes { generation, types: types.collect() }),
        }
    }

    #[test]
    fn what_overlays_change_has_a_generation_of_its_own_that_lasts_as_long_as_its_inputs() {
        let overlays = Overlays::default();
        let labels = ProviderLabels::default();
        let of_a = json!({"requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"]}], "price": "1"});
        let objects = [overlay("o", 1, of_a.clone()), overlay("bad", 1, json!({"requirements": [], "price": "x"}))];
        let answers = [answer("a", 7), answer("b", 7)];
        let first = overlays.evaluate(&objects, &answers, &labels, Timestamp(0));
        assert_eq!(first.corrected.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(first.refused[&NodeOverlayName::from("bad")].0, "RuntimeValidation");
        let again = overlays.evaluate(&objects, &answers, &labels, Timestamp(0));
        assert!(Arc::ptr_eq(&first, &again), "nothing has changed");
        let generation = |outcome: &Outcome| outcome.corrected[&NodePoolName::from("a")].types.generation;
        let changed = [overlay("o", 2, of_a)];
        let second = overlays.evaluate(&changed, &answers, &labels, Timestamp(0));
        assert_ne!(generation(&first), generation(&second));
        let third = overlays.evaluate(&changed, &[answer("a", 8), answer("b", 7)], &labels, Timestamp(0));
        assert_ne!(generation(&second), generation(&third));
        assert!(generation(&third) & CORRECTED != 0);
    }

    #[test]
    fn devices_that_did_not_come_three_times_in_an_hour_are_not_planned_with_for_the_rest_of_it() {
        let overlays = Overlays::default();
        let labels = ProviderLabels::default();
        let device = json!({"name": "gpu-0"});
        let templates = json!([
            {"metadata": {"name": "g"}, "spec": {"driver": "gpu.example.com", "devices": [device]}},
            {"metadata": {"name": "n"}, "spec": {"driver": "nic.example.com", "devices": [device]}},
        ]);
        let spec = json!({"requirements": [], "dynamicResources": {"resourceSliceTemplates": templates}});
        let (objects, answers) = ([overlay("o", 1, spec)], [answer("a", 7)]);
        let first = match &answers[0].types {
            Ok(types) => types.types[0].name.clone(),
            Err(error) => panic!("{error}"),
        };
        let drivers = |now: Timestamp| {
            let outcome = overlays.evaluate(&objects, &answers, &labels, now);
            let types = outcome.corrected[&NodePoolName::from("a")].types.types.clone();
            let of_first = types.iter().find(|it| it.name == first).unwrap();
            let templates = &of_first.dynamic_resources.resource_slice_templates;
            let others = types.iter().filter(|it| it.name != first);
            assert!(others.into_iter().all(|it| it.dynamic_resources.resource_slice_templates.len() == 2));
            templates.iter().map(|template| template.spec.driver.clone()).collect::<Vec<_>>()
        };
        let minutes = |count: i64| Timestamp(count * 60_000);
        for (at, expected) in [(0, 2), (10, 2), (20, 1)] {
            overlays.device_failure(&first, &"gpu.example.com".into(), minutes(at));
            assert_eq!(drivers(minutes(at)).len(), expected, "{at}");
        }
        assert_eq!(drivers(minutes(59)), ["nic.example.com"]);
        assert_eq!(drivers(minutes(61)).len(), 2, "the first failure is an hour old");
    }
}
