//! How instance types and nodes fell, rule after rule.

use std::{fmt::Write as _, sync::Arc};

use model::{Interner, KeyId, NodePoolName, ValueId, ValueSet, pod::HostPort, quantity::Rounding};

use super::{amount, expression};
use crate::plan::device_cost::Wanted;
use crate::tuning::TOLD_TROUBLES;

/// How the offerings of a pool fell, rule after rule; each offering counts at the first rule it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoInstanceType {
    /// Which pool.
    pub node_pool: NodePoolName,
    /// Instance types the pool's catalogue has.
    pub types: usize,
    /// Types that the pool's own requirements exclude.
    pub by_node_pool: usize,
    /// (label, what the pod wants, types that fell at it), in label order.
    pub by_label: Vec<(KeyId, ValueSet, usize)>,
    /// Types too small, daemons included.
    pub by_resources: usize,
    /// Types on which a DaemonSet takes a host port that the pod wants.
    pub by_ports: usize,
    /// The first such port.
    pub port: Option<HostPort>,
    /// Types that hold the pod but whose machines would not give it its devices.
    pub by_devices: usize,
    /// What is the matter with the devices, with the number of types: the nearest to fitting first.
    pub devices: Vec<(Arc<str>, usize)>,
    /// Types that hold the pod but have no launchable offering for it now.
    pub by_offering: usize,
    /// Types that hold the pod but only by reservations that the plan uses up.
    pub by_reservation: usize,
    /// These reservations, by name.
    pub reservations: Vec<ValueId>,
    /// The resource that most of the types lack, how much the pod asks and the most that is there beside daemons.
    pub nearest: Option<Shortage>,
}

/// The smallest shortage of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// What the pod takes, its devices included.
    pub wanted: Wanted,
    /// The most that any otherwise fitting type or node has, in the resource's unit.
    pub most: i64,
    /// What the node with the most allows pods in all; `None` of types.
    pub of: Option<i64>,
}

/// How the existing nodes fell; each counts at the first rule it fails.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExistingNodes {
    /// All of them.
    pub nodes: usize,
    /// Deleting, cordoned, not ready.
    pub excluded: usize,
    /// A taint is not tolerated.
    pub by_taint: usize,
    /// Labels do not match.
    pub by_label: usize,
    /// Room, but a rule that couples the pod with others says no.
    pub by_rules: usize,
    /// Room, but not the devices that it claims.
    pub by_devices: usize,
    /// What is the matter with the devices of that which is nearest to fitting.
    pub devices: Option<Arc<str>>,
    /// No room.
    pub by_resources: usize,
    /// The smallest shortage among those without room.
    pub nearest: Option<Shortage>,
}

impl NoInstanceType {
    pub(super) fn message(&self, names: &Interner) -> String {
        let mut text = format!("none of {} instance types fits", self.types);
        let mut parts = Vec::new();
        if self.by_node_pool > 0 {
            parts.push(format!("{} excluded by the NodePool's requirements", self.by_node_pool));
        }
        for (key, wanted, count) in &self.by_label {
            let lack = if *count == 1 { "does not match" } else { "do not match" };
            parts.push(format!("{count} {lack} {}", expression(*key, wanted, names)));
        }
        if self.by_resources > 0 {
            let mut part = format!("{} too small", self.by_resources);
            if let Some(shortage) = &self.nearest {
                let _ = write!(part, " ({})", shortage.message(names));
            }
            parts.push(part);
        }
        if let Some(port) = &self.port {
            parts.push(format!("{} where a DaemonSet takes host port {port}", self.by_ports));
        }
        if self.by_devices > 0 {
            let mut part = format!("{} without the devices it claims", self.by_devices);
            let told: Vec<&str> = self.devices.iter().take(TOLD_TROUBLES).map(|(text, _)| &**text).collect();
            if !told.is_empty() {
                let _ = write!(part, " ({})", told.join("; or "));
            }
            parts.push(part);
        }
        if self.by_offering > 0 {
            parts.push(format!("{} {} no launchable offering", self.by_offering, has(self.by_offering)));
        }
        if self.by_reservation > 0 {
            let names: Vec<&str> = self.reservations.iter().map(|id| names.value_name(*id)).collect();
            let what = if names.len() == 1 { "reservation" } else { "reservations" };
            parts.push(format!("{} only by {what} {}, used up by this plan", self.by_reservation, names.join(", ")));
        }
        if !parts.is_empty() {
            text.push_str(": ");
            text.push_str(&parts.join(", "));
        }
        text
    }
}

impl Shortage {
    /// An amount that is there.
    fn there(&self, value: i64, names: &Interner) -> String {
        amount(self.wanted.resource, value, Rounding::Down, names)
    }

    pub(super) fn message(&self, names: &Interner) -> String {
        let wanted = self.wanted.missing(names);
        if self.most == 0 {
            return format!("{wanted}, none has any");
        }
        format!("{wanted}, the largest has {} beside daemons", self.there(self.most, names))
    }

    /// As `cpu 17 wanted, the most free is 9 of 15.9`.
    fn on_nodes(&self, names: &Interner) -> String {
        let of = self.of.map(|of| format!(" of {}", self.there(of, names))).unwrap_or_default();
        format!("{}, the most free is {}{of}", self.wanted.missing(names), self.there(self.most, names))
    }
}

impl ExistingNodes {
    pub(super) fn message(&self, names: &Interner) -> String {
        let mut parts = Vec::new();
        for (count, one, several) in [
            (
                self.excluded,
                "takes no pods (deleting, cordoned or not ready)",
                "take no pods (deleting, cordoned or not ready)",
            ),
            (self.by_taint, "has a taint it does not tolerate", "have a taint it does not tolerate"),
            (
                self.by_label,
                "does not match its node selector or affinity",
                "do not match its node selector or affinity",
            ),
            (self.by_rules, "is excluded by rules between pods", "are excluded by rules between pods"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {}", if count == 1 { one } else { several }));
            }
        }
        if self.by_devices > 0 {
            let lack = if self.by_devices == 1 { "does not have" } else { "do not have" };
            let mut part = format!("{} {lack} the devices it claims", self.by_devices);
            if let Some(why) = &self.devices {
                let _ = write!(part, " ({why})");
            }
            parts.push(part);
        }
        if self.by_resources > 0 {
            let mut part = format!("{} {} too little room", self.by_resources, has(self.by_resources));
            if let Some(shortage) = &self.nearest {
                let _ = write!(part, " ({})", shortage.on_nodes(names));
            }
            parts.push(part);
        }
        format!("none of {} existing nodes fits: {}", self.nodes, parts.join(", "))
    }
}

/// The verb of so many things that lack something.
fn has(count: usize) -> &'static str {
    if count == 1 { "has" } else { "have" }
}
