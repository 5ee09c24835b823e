//! What a scenario has come to, as the API server tells it: where each pod was planned and is, and who said what of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use api::annotations::PLANNED_PODS;
use k8s_openapi::api::core::v1::{Event, Pod as ApiPod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::CLASS;
use super::devices::kept_out;
use crate::cluster::{Corner, node_of, scheduled};
use crate::fleet::planned_uids;

const ZONE: &str = "topology.kubernetes.io/zone";
/// How what the controller says of a pod that has no place begins. kube-scheduler's events have the same reason.
const REFUSED: &str = "Failed to schedule pod";

/// One reading of a scenario's pods and machines.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Those in question, as the API server lists them.
    pub(super) pods: Vec<Pod>,
    /// As they were created.
    pub(super) machines: Vec<Machine>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) class: String,
    /// Whether it had no node when the plan was made.
    pub(super) has_waited: bool,
    pub(super) node: Option<String>,
    pub(super) refusal: Option<Refusal>,
    /// The last thing that kube-scheduler said of why it has no place.
    pub(super) unschedulable: Option<String>,
}

/// What the controller said of a pod that has no place, knowing the NodePools as they are to be.
#[derive(Debug, Clone)]
pub(super) struct Refusal(pub(super) String);

/// What a refusal comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// There is no place.
    Refused,
    /// There may be one once something else has come.
    Waits,
    /// The budget was over before it was known.
    Undecided,
}

impl Refusal {
    pub(super) fn kind(&self) -> Kind {
        if waits(&self.0) {
            Kind::Waits
        } else if self.0.contains("it was not decided within the budget") {
            Kind::Undecided
        } else {
            Kind::Refused
        }
    }
}

fn waits(message: &str) -> bool {
    message.contains("it waits for something else")
}

#[derive(Debug, Clone, Default)]
pub(super) struct Machine {
    /// Of the NodeClaim.
    pub(super) name: String,
    pub(super) node: Option<String>,
    pub(super) zone: String,
    /// Whether it was launched for the pods in question.
    pub(super) is_new: bool,
    /// Uids of the pods that it was launched for, and those that later plans put there; `None` if it does not say so.
    pub(super) planned: Option<BTreeSet<String>>,
}

impl Machine {
    /// Whether it was launched for the pod, or a plan put that onto it.
    pub(super) fn is_planned(&self, pod: &Pod) -> bool {
        self.planned.iter().flatten().any(|uid| *uid == pod.uid)
    }
}

/// Uids of the pods that a machine was planned for.
pub(super) fn planned_pods(claim: &api::NodeClaim) -> Option<BTreeSet<String>> {
    Some(planned_uids(claim.annotations().get(PLANNED_PODS)?).map(str::to_owned).collect())
}

/// What NodeClaims said of their pods when they were first seen, and which of them named a pod first later.
///
/// A later plan notes the pods that wait for a NodeClaim then. Where pods of one class took each other's places, that
/// is another one than it was launched for.
#[derive(Debug, Default)]
pub(super) struct FirstNotes(RefCell<Notes>);

#[derive(Debug, Default)]
struct Notes {
    first: BTreeMap<String, Option<BTreeSet<String>>>,
    /// By pod that no NodeClaim named when it was first seen.
    later: BTreeMap<String, String>,
}

impl FirstNotes {
    /// What each NodeClaim was planned for: what it said first, and those that it named later and no other before it.
    /// Of several that name a pod in one reading the oldest counts, which is where it has a place on a machine that was
    /// there; the pod may have lost that to another of its class already (seed 2036).
    fn planned(&self, now: &[(String, Option<BTreeSet<String>>)]) -> Vec<Option<BTreeSet<String>>> {
        let Notes { first, later } = &mut *self.0.borrow_mut();
        for (claim, noted) in now {
            first.entry(claim.clone()).or_insert_with(|| noted.clone());
        }
        let of_any: BTreeSet<&String> = first.values().flatten().flatten().collect();
        for (claim, noted) in now {
            for uid in noted.iter().flatten().filter(|uid| !of_any.contains(uid)) {
                later.entry(uid.clone()).or_insert_with(|| claim.clone());
            }
        }
        let planned = now.iter().map(|(claim, noted)| {
            let at_first = first.get(claim).into_iter().flatten().flatten();
            let later = later.iter().filter(|(_, of)| *of == claim).map(|(uid, _)| uid);
            noted.as_ref().map(|_| at_first.chain(later).cloned().collect())
        });
        planned.collect()
    }
}

impl Reading {
    /// Reads a corner. NodeClaims that were there `before` are not new, and pods among `waiting`, all if that is
    /// `None`, have waited.
    pub(super) async fn read(
        corner: &Corner,
        before: &[String],
        waiting: Option<&[String]>,
        notes: &FirstNotes,
    ) -> Result<Self> {
        let said = Said::read(corner).await?;
        let kept_out = kept_out(corner).await?;
        let mut claims = corner.all_node_claims().await?;
        claims.sort_by_key(|claim| claim.creation_timestamp().map(|time| time.0));
        let nodes = corner.nodes().await?;
        let zone_of = |name: &str| {
            let node = nodes.iter().find(|node| node.name_any() == name)?;
            node.labels().get(ZONE).cloned()
        };
        let noted: Vec<_> = claims.iter().map(|claim| (claim.name_any(), planned_pods(claim))).collect();
        let machines = claims.iter().zip(notes.planned(&noted)).map(|(claim, planned)| {
            let node = claim.status.as_ref().map(|status| status.node_name.clone()).filter(|name| !name.is_empty());
            Machine {
                name: claim.name_any(),
                zone: node.as_deref().and_then(zone_of).unwrap_or_default(),
                node,
                is_new: !before.contains(&claim.name_any()),
                planned,
            }
        });
        let pods = corner.pods().await?.into_iter().filter(|pod| pod.labels().contains_key(CLASS));
        let pods = pods.map(|pod| {
            let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
            Pod {
                class: pod.labels().get(CLASS).cloned().unwrap_or_default(),
                has_waited: waiting.is_none_or(|waiting| waiting.contains(&uid)),
                node: node_of(&pod).map(str::to_owned),
                refusal: said
                    .refusals
                    .get(&name)
                    .map(|(_, message)| message)
                    .or_else(|| kept_out.get(&name))
                    .map(|message| Refusal(message.clone())),
                unschedulable: unschedulable(&pod).or_else(|| said.unschedulable.get(&name).map(|it| it.1.clone())),
                name,
                uid,
            }
        });
        Ok(Self { machines: machines.collect(), pods: pods.collect() })
    }

    /// Pods that have no node and are to get one: they were planned, or wait for something that is to come.
    pub(super) fn open(&self) -> impl Iterator<Item = &Pod> {
        let is_refused = |pod: &Pod| pod.refusal.as_ref().is_some_and(|refusal| refusal.kind() != Kind::Waits);
        let is_planned = |pod: &Pod| self.machines_planned_for(pod).next().is_some();
        self.pods.iter().filter(move |pod| pod.node.is_none() && (!is_refused(pod) || is_planned(pod)))
    }

    pub(super) fn pod(&self, uid: &str) -> Option<&Pod> {
        self.pods.iter().find(|pod| pod.uid == uid)
    }

    pub(super) fn pods_on<'r>(&'r self, machine: &'r Machine) -> impl Iterator<Item = &'r Pod> {
        self.pods.iter().filter(|pod| pod.node.is_some() && pod.node == machine.node)
    }

    pub(super) fn machines_planned_for<'r>(&'r self, pod: &'r Pod) -> impl Iterator<Item = &'r Machine> {
        self.machines.iter().filter(|machine| machine.planned.iter().flatten().any(|uid| *uid == pod.uid))
    }

    /// A pod in words: where it was planned, where it is, who said what.
    pub(super) fn describe(&self, pod: &Pod) -> String {
        let planned: Vec<String> = self.machines_planned_for(pod).map(place).collect();
        let planned = if planned.is_empty() { "nowhere".to_owned() } else { planned.join(" and ") };
        let machine = self.machines.iter().find(|machine| machine.node.is_some() && machine.node == pod.node);
        let bound = match (&pod.node, machine) {
            (None, _) => "not bound".to_owned(),
            (Some(_), Some(machine)) => format!("bound to {}", place(machine)),
            (Some(node), None) => format!("bound to {node}"),
        };
        let refusal = pod.refusal.as_ref().map(|it| format!(", refused: \"{}\"", it.0)).unwrap_or_default();
        let unschedulable = pod.unschedulable.as_ref();
        let unschedulable = unschedulable.map(|it| format!(", kube-scheduler said last: \"{it}\"")).unwrap_or_default();
        format!("{} (planned on {planned}, {bound}{refusal}{unschedulable})", pod.name)
    }

    /// All pods that are not where they were planned, in words.
    pub(super) fn displaced(&self) -> Vec<String> {
        let is_there = |pod: &Pod| self.machines_planned_for(pod).any(|it| it.node.is_some() && it.node == pod.node);
        self.pods.iter().filter(|pod| !is_there(pod)).map(|pod| self.describe(pod)).collect()
    }
}

fn place(machine: &Machine) -> String {
    let Machine { name, zone, is_new, .. } = machine;
    format!("{name} in {zone}{}", if *is_new { "" } else { ", which was there before" })
}

/// What was said of pods, by name; the latest counts, so it comes with the version of the event.
#[derive(Default)]
struct Said {
    refusals: BTreeMap<String, (u64, String)>,
    unschedulable: BTreeMap<String, (u64, String)>,
}

impl Said {
    async fn read(corner: &Corner) -> Result<Self> {
        let failed = ListParams::default().fields("reason=FailedScheduling");
        let events: Api<Event> = Api::namespaced(corner.client.clone(), &corner.name);
        let mut said = Self::default();
        for event in events.list(&failed).await?.items {
            let version = event.resource_version().and_then(|it| it.parse().ok()).unwrap_or(0);
            let (Some(pod), Some(message)) = (event.involved_object.name, event.message) else { continue };
            let of = match message.starts_with(REFUSED) {
                true if !waits(&message) && !is_final(&message, &corner.name) => continue,
                true => &mut said.refusals,
                false => &mut said.unschedulable,
            };
            let known = of.entry(pod).or_default();
            if version >= known.0 {
                *known = (version, message);
            }
        }
        Ok(said)
    }
}

/// How a refusal tells of a NodePool's limits; a claim's limit of devices is another.
const OF_LIMITS: [&str; 3] = [", the limit of ", "over limits.", "excluded by limits"];

/// Whether the controller said it since it knows the NodePools as they are to be: before, there was none, it was not
/// ready, or its limits were in the way. A pod that contradicts itself is refused whatever they are, and so is one
/// whose claim has no room for it.
fn is_final(message: &str, corner: &str) -> bool {
    // What would help may still tell of limits that excluded nothing and are gone.
    let helps = ["; it would fit one if", "; it would fit a new machine if"]
        .into_iter()
        .filter_map(|words| message.find(words))
        .min();
    let excluded_by = helps.map_or(message, |at| message.get(..at).unwrap_or(message));
    let is_told_of_pool = excluded_by.contains(&format!("nodepool/{corner}"));
    message.contains("no node can satisfy it")
        || message.contains("consumers with the pods planned for it, the most that are allowed")
        || is_told_of_pool
            && !OF_LIMITS.iter().any(|words| excluded_by.contains(words))
            && !excluded_by.contains("is not ready")
}

/// Names of the pods that the controller has refused for good, and of those that quotas keep out.
pub(super) async fn refused(corner: &Corner) -> Result<BTreeSet<String>> {
    let refusals = Said::read(corner).await?.refusals.into_iter();
    let is_final =
        |(name, (_, message)): (String, (u64, String))| (Refusal(message).kind() != Kind::Waits).then_some(name);
    Ok(refusals.filter_map(is_final).chain(kept_out(corner).await?.into_keys()).collect())
}

/// Names of the pods that the controller said something of for want of a place, whatever it knew of the NodePools.
pub(super) async fn planned_in_vain(corner: &Corner) -> Result<BTreeSet<String>> {
    let failed = ListParams::default().fields("reason=FailedScheduling");
    let events: Api<Event> = Api::namespaced(corner.client.clone(), &corner.name);
    let events = events.list(&failed).await?.items.into_iter();
    let of_controller = events.filter(|event| event.message.iter().any(|message| message.starts_with(REFUSED)));
    Ok(of_controller.filter_map(|event| event.involved_object.name).collect())
}

fn unschedulable(pod: &ApiPod) -> Option<String> {
    scheduled(pod).filter(|condition| condition.status == "False")?.message.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uids(uids: &[&str]) -> Option<BTreeSet<String>> {
        Some(uids.iter().map(|uid| (*uid).to_owned()).collect())
    }

    #[test]
    fn pods_that_changed_places_are_planned_where_they_were_first() {
        let notes = FirstNotes::default();
        let claim = |name: &str, pods: &[&str]| (name.to_owned(), uids(pods));
        let planned = notes.planned(&[claim("a", &["1"]), claim("b", &["2"])]);
        assert_eq!(planned, [uids(&["1"]), uids(&["2"])]);
        let planned = notes.planned(&[claim("a", &["1", "3"]), claim("b", &["1"])]);
        assert_eq!(planned, [uids(&["1", "3"]), uids(&["2"])], "3 is a later plan's, 1 took 2's place");
        assert_eq!(notes.planned(&[claim("c", &["4"]), ("d".to_owned(), None)]), [uids(&["4"]), None]);
        let planned = notes.planned(&[claim("a", &["1", "5"]), claim("b", &["5"])]);
        assert_eq!(
            planned,
            [uids(&["1", "3", "5"]), uids(&["2"])],
            "5 lost its place on the older to one of its class"
        );
    }

    #[test]
    fn a_refusal_is_final_if_neither_limits_nor_readiness_excluded_the_pod() {
        let says = |text: &str| is_final(&format!("Failed to schedule pod, it does not fit: {text}"), "random-1");
        assert!(says("nodepool/random-1: machines that would hold it are excluded by a rule"));
        assert!(says("nodepool/random-1: a rule; it would fit one if the limit were higher"));
        assert!(says("nodepool/random-1: none of 9 instance types fits: 64 devices exceed the limit of 32"));
        assert!(says(
            "nodepool/random-1: wants a In [b]; it would fit a new machine if it had that and with 4 more in limits.nodes"
        ));
        assert!(says("no node can satisfy it: zone In [a], zone In [b]"));
        assert!(says(
            "resource claim a/c has 256 consumers with the pods planned for it, the most that are allowed: reserve it"
        ));
        assert!(!says("nodepool/random-1: a machine for it takes at least 1 of nodes, the limit of 0 has 0 left"));
        assert!(!says("nodepool/random-1: is not ready"));
        assert!(!says("there is no NodePool"));
        assert!(!says("nodepool/random-2: a rule"));
    }
}
