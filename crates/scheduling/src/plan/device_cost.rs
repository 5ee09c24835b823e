//! What a pod's devices cost of the machine's own resources (KEP-5517), and how a person is told.

use std::{fmt::Write as _, sync::Arc};

use dra_sched::told_devices;
use model::{Interner, ResourceId, ResourceVec, quantity::Rounding};

use crate::devices::DeviceCost;
use crate::plan::reason::amount;
use crate::snapshot::PodId;

/// A pod whose devices cost something of its machine or node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDeviceCosts {
    /// Which pod.
    pub pod: PodId,
    /// By the pod's claims, then by resource name.
    pub costs: Arc<[DeviceCost]>,
}

/// As `16 for claim c (2 devices × 8)`.
fn message(cost: &DeviceCost, names: &Interner) -> String {
    let amount = |value| amount(cost.resource, value, Rounding::Up, names);
    let what = match &cost.claim {
        Some(claim) => format!("claim {claim}"),
        None => "its extended resources".to_owned(),
    };
    let devices = told_devices(cost.devices, cost.each.map(amount));
    format!("{} for {what} ({devices})", amount(cost.amount))
}

/// What a pod takes of a resource, its devices included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which resource.
    pub resource: ResourceId,
    /// All that it takes, in the resource's unit.
    pub amount: i64,
    /// What the pod's devices cost, of any resource; `None` if nothing of this one.
    pub costs: Option<Arc<[DeviceCost]>>,
}

impl Wanted {
    /// What its devices cost of it.
    fn of_devices(&self) -> impl Iterator<Item = &DeviceCost> {
        self.costs.iter().flat_map(|costs| &**costs).filter(|cost| cost.resource == self.resource)
    }

    fn amount(&self, amount_of: i64, names: &Interner) -> String {
        amount(self.resource, amount_of, Rounding::Up, names)
    }

    /// Of what it is made up, ` = 1 requested + 16 for claim c (2 devices × 8)`; nothing where devices cost nothing.
    fn made_up(&self, names: &Interner) -> String {
        let for_devices = self.of_devices().fold(0_i64, |sum, cost| sum.saturating_add(cost.amount));
        if for_devices == 0 {
            return String::new();
        }
        let mut text = format!(" = {} requested", self.amount(self.amount.saturating_sub(for_devices), names));
        for cost in self.of_devices() {
            let _ = write!(text, " + {}", message(cost, names));
        }
        text
    }

    /// As `cpu 17 wanted = 1 requested + 16 for claim c (2 devices × 8)`.
    pub(crate) fn missing(&self, names: &Interner) -> String {
        let (name, made_up) = (names.resource_name(self.resource), self.made_up(names));
        format!("{name} {} wanted{made_up}", self.amount(self.amount, names))
    }

    /// As `cpu 17 = 1 requested + 16 for claim c (2 devices × 8)`.
    pub fn message(&self, names: &Interner) -> String {
        let (name, made_up) = (names.resource_name(self.resource), self.made_up(names));
        format!("{name} {}{made_up}", self.amount(self.amount, names))
    }
}

impl PodDeviceCosts {
    /// Adds them to what the pod requests, or to what others take too.
    pub fn add_to(&self, total: &mut ResourceVec) {
        for cost in self.costs.iter() {
            total.set(cost.resource, total.get(cost.resource).saturating_add(cost.amount));
        }
    }

    /// What the pod takes of each resource of which its devices cost some, by resource name; it requests so much.
    pub fn wanted(&self, requests: &ResourceVec, names: &Interner) -> Vec<Wanted> {
        let mut resources: Vec<ResourceId> = self.costs.iter().map(|cost| cost.resource).collect();
        resources.sort_by_key(|resource| names.resource_name(*resource));
        resources.dedup();
        let mut total = requests.clone();
        self.add_to(&mut total);
        let costs = || Some(Arc::clone(&self.costs));
        let wanted = |resource| Wanted { resource, amount: total.get(resource), costs: costs() };
        resources.into_iter().map(wanted).collect()
    }
}
