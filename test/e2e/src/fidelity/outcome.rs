//! A plan, as the NodeClaims tell it, against where the pods are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context, Result};
use api::annotations::PLANNED_PODS;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{CLASS, Scenario};
use crate::cluster::{Corner, node_of};
use crate::fleet::planned_uids;

/// Uids of the pods that a machine was launched for.
pub(super) fn planned_pods(claim: &api::NodeClaim) -> Option<BTreeSet<String>> {
    Some(planned_uids(claim.annotations().get(PLANNED_PODS)?).map(str::to_owned).collect())
}

/// How pods came to be bound.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Pods that waited when the plan was made.
    pub pods: usize,
    /// Pods on the machine that was planned for them.
    pub exact: usize,
    /// Pods on another, where one of their class was planned.
    pub exchanged: usize,
    /// Pods that the plan put onto a machine that was there.
    pub on_existing: usize,
    /// Pods that the plan refused.
    pub refused: usize,
    /// Machines of the plan.
    pub machines: usize,
    /// What is not as planned, in words.
    pub wrong: Vec<String>,
    /// Machines beside the first plan's, machines without pods, and machines without a plan.
    pub stray: Vec<String>,
}

impl Outcome {
    /// Adds another scenario's.
    pub fn add(&mut self, other: Self) {
        self.pods += other.pods;
        self.exact += other.exact;
        self.exchanged += other.exchanged;
        self.on_existing += other.on_existing;
        self.refused += other.refused;
        self.machines += other.machines;
        self.wrong.extend(other.wrong);
        self.stray.extend(other.stray);
    }

    /// Whether all went as planned.
    #[must_use]
    pub fn is_as_planned(&self) -> bool {
        self.wrong.is_empty() && self.stray.is_empty()
    }

    /// What went otherwise, a line each.
    pub fn faults(&self) -> impl Iterator<Item = &str> {
        self.wrong.iter().chain(&self.stray).map(String::as_str)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let planned = (self.pods - self.refused).max(1);
        let share = 100.0 * (self.exact + self.on_existing) as f64 / planned as f64;
        write!(
            f,
            "{} pods on {} machines: {} bound exactly as planned ({share:.1} %), {} of them on machines that were there; {} \
             exchanged with a pod of their class; {} refused",
            self.pods,
            self.machines,
            self.exact + self.on_existing,
            self.on_existing,
            self.exchanged,
            self.refused
        )
    }
}

impl Scenario {
    /// Where each pod in question is and was planned to be, a line each: for whoever looks into a fault.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn places(&self, corner: &Corner) -> Result<Vec<String>> {
        let nodes = corner.nodes().await?;
        let zone = |name: &str| {
            let node = nodes.iter().find(|node| node.name_any() == name);
            node.and_then(|node| node.labels().get("topology.kubernetes.io/zone").cloned()).unwrap_or_default()
        };
        let claims = corner.all_node_claims().await?;
        let planned = |uid: &str| {
            let names = claims.iter().filter(|claim| {
                claim.annotations().get(PLANNED_PODS).is_some_and(|pods| planned_uids(pods).any(|pod| pod == uid))
            });
            names.map(ResourceExt::name_any).collect::<Vec<_>>().join(", ")
        };
        let line = |pod: Pod| {
            let node = node_of(&pod).unwrap_or("no node");
            let planned = planned(&pod.uid().unwrap_or_default());
            format!("{} planned for [{planned}] is on {node} {}", pod.name_any(), zone(node))
        };
        Ok(self.judged(corner).await?.into_iter().map(line).collect())
    }

    /// How the pods that were `waiting` came to be bound; NodeClaims that were there `before` are not judged.
    pub(super) async fn outcome(&self, corner: &Corner, before: &[String], waiting: &[String]) -> Result<Outcome> {
        let pods = self.judged(corner).await?;
        let class_of: BTreeMap<String, String> =
            pods.iter().filter_map(|pod| Some((pod.uid()?, pod.labels().get(CLASS)?.clone()))).collect();
        let mut outcome = Outcome { pods: waiting.len(), ..Outcome::default() };
        let classes = |uids: &BTreeSet<String>| -> BTreeMap<String, usize> {
            uids.iter().filter_map(|uid| class_of.get(uid)).fold(BTreeMap::new(), |mut counts, class| {
                *counts.entry(class.clone()).or_default() += 1;
                counts
            })
        };
        let mut planned_once = BTreeSet::new();
        let claims = corner.all_node_claims().await?;
        // Pods that the plan refused may find room all the same: a spread counts only zones that have nodes by then. Those
        // planned onto machines that were there may have exchanged their places with others.
        let planned_somewhere: BTreeSet<String> = claims.iter().filter_map(planned_pods).flatten().collect();
        let (there, mut claims): (Vec<_>, Vec<_>) =
            claims.into_iter().partition(|claim| before.contains(&claim.name_any()));
        let on_node = |node: &str| -> BTreeSet<String> {
            pods.iter().filter(|pod| node_of(pod) == Some(node)).filter_map(ResourceExt::uid).collect()
        };
        // Pods that were planned for another machine and are on one that was there.
        let moved: usize = there
            .iter()
            .map(|claim| {
                let planned = planned_pods(claim).unwrap_or_default();
                let bound = on_node(claim.status.as_ref().map_or("", |status| &status.node_name));
                let is_moved = |uid: &&String| waiting.contains(uid) && planned_somewhere.contains(*uid);
                bound.difference(&planned).filter(is_moved).count()
            })
            .sum();
        claims.sort_by_key(|claim| claim.creation_timestamp().map(|time| time.0));
        let mut on_planned = 0;
        for claim in claims {
            let name = claim.name_any();
            let Some(planned) = planned_pods(&claim) else {
                outcome.stray.push(format!("{name} has no {PLANNED_PODS}"));
                continue;
            };
            let twice = planned.iter().filter(|uid| !planned_once.insert((*uid).clone())).count();
            if twice == planned.len() {
                outcome.stray.push(format!("{name} was launched for pods that had been planned before"));
            } else if twice > 0 {
                outcome.wrong.push(format!("{name}: {twice} of its pods were planned for another machine too"));
            }
            let node = claim.status.as_ref().context("no status")?.node_name.clone();
            let bound = on_node(&node);
            let (wanted, found) =
                (classes(&planned), classes(&bound.intersection(&planned_somewhere).cloned().collect()));
            if bound.is_empty() {
                outcome.stray.push(format!("{name} is empty"));
            }
            if wanted != found {
                outcome.wrong.push(format!("{name} was planned for {wanted:?} (pods by class), and holds {found:?}"));
            }
            let exact = planned.intersection(&bound).count();
            let of_the_class = wanted.iter().map(|(class, count)| found.get(class).copied().unwrap_or(0).min(*count));
            outcome.machines += 1;
            outcome.exact += exact;
            outcome.exchanged += of_the_class.sum::<usize>().saturating_sub(exact);
            on_planned += bound.iter().filter(|uid| waiting.contains(uid)).count();
        }
        let is_waiting = |pod: &&Pod| pod.uid().is_some_and(|uid| waiting.contains(&uid));
        outcome.refused = pods.iter().filter(is_waiting).filter(|pod| node_of(pod).is_none()).count();
        outcome.exchanged += moved;
        outcome.on_existing = waiting.len().saturating_sub(on_planned + outcome.refused + moved);
        Ok(outcome)
    }
}
