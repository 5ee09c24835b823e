//! The request for a fleet: which launch templates, which types in which zones, how they are paid.

use std::collections::BTreeMap;

use model::PriceNanoUsdPerHour;
use serde::{Deserialize, Serialize};

use super::template::{Market, TemplateKey};
use crate::node_class::spec::Tags;

/// A machine that a launch may give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The instance type.
    pub instance_type: String,
    /// The zone's name.
    pub zone: String,
    /// The subnet in that zone; none where the launch template is bound to one.
    pub subnet_id: Option<String>,
    /// What its launch template depends on.
    pub key: TemplateKey,
    /// Its price.
    pub price: PriceNanoUsdPerHour,
    /// Whether it has what most pods have no use for: bare metal, GPUs, accelerators.
    pub kind: MachineKind,
}

/// Whether a type has what most pods have no use for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineKind {
    /// It does not.
    Ordinary,
    /// It is bare metal, or has GPUs or accelerators.
    Exotic,
}

/// A request for one machine, or as many equal ones as a batch has claims.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FleetRequest {
    /// Launch templates by name, each with what may be launched of it. The order is that of names.
    pub configs: Vec<TemplateConfig>,
    /// How machines are paid, and how EC2 chooses.
    pub purchase: Purchase,
    /// Tags of fleet, machines and volumes.
    pub tags: Tags,
    /// A text that is handed to EC2.
    pub context: Option<String>,
}

/// What may be launched of one launch template, at its newest version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TemplateConfig {
    /// The launch template's name.
    pub launch_template: String,
    /// Types and zones.
    pub overrides: Vec<Override>,
}

/// A type in a zone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Override {
    /// The type.
    pub instance_type: String,
    /// The zone. The subnet says it too, but errors repeat what is asked, and they must name the zone.
    pub zone: String,
    /// The subnet.
    pub subnet_id: Option<String>,
    /// The image; an answer repeats it.
    pub image_id: String,
    /// The price in nano-dollars an hour, by which EC2 chooses where it is told to.
    pub priority: i64,
}

/// How machines are paid, and how EC2 chooses among what may be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purchase {
    /// By use, reservations that launch templates name included: by EC2's price, or by ours.
    OnDemand(Choice),
    /// As spare capacity: by capacity and EC2's price, or by capacity and ours.
    Spot(Choice),
    /// From a capacity block; there is no choice.
    CapacityBlock,
    /// From a reservation whose owner may take machines back.
    InterruptibleReservation,
}

/// Whose prices EC2 chooses by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Choice {
    /// EC2's own.
    ByPrice,
    /// Ours, because a NodeOverlay has changed one.
    ByPriority,
}

impl Purchase {
    /// The allocation strategy as EC2 spells it, where there is one.
    pub const fn strategy(self) -> Option<&'static str> {
        match self {
            Self::OnDemand(Choice::ByPrice) => Some("lowest-price"),
            Self::OnDemand(Choice::ByPriority) => Some("prioritized"),
            Self::Spot(Choice::ByPrice) => Some("price-capacity-optimized"),
            Self::Spot(Choice::ByPriority) => Some("capacity-optimized-prioritized"),
            Self::CapacityBlock | Self::InterruptibleReservation => None,
        }
    }
}

/// What a launch asks for beside its candidates.
#[derive(Debug, Clone, Copy)]
pub struct FleetInput<'a> {
    /// Names of launch templates by what they depend on.
    pub launch_templates: &'a BTreeMap<TemplateKey, String>,
    /// Tags of everything that is made for a machine.
    pub tags: &'a Tags,
    /// A text that is handed to EC2.
    pub context: Option<&'a str>,
    /// Whose prices EC2 chooses by.
    pub choice: Choice,
}

/// Of the candidates, those that one request can ask for: all that are paid as the cheapest is.
///
/// A request has one way of paying. Of spot, what costs more than the cheapest machine on demand is left out, since EC2
/// weighs capacity too and would take it; machines with what pods have no use for are left out if the cheapest has
/// nothing of that kind. `has_min_values` says that the NodePool wants variety, which must not be taken from it.
///
/// Differs: `reserved-if-cheapest`. Karpenter takes reservations first, then spot, whatever they cost.
/// Differs: `exotic-if-cheapest`. Karpenter leaves out bare metal and accelerators even where they are the cheapest.
pub fn choose(mut candidates: Vec<Candidate>, has_min_values: bool) -> Vec<Candidate> {
    candidates.sort_by(|a, b| order(a).cmp(&order(b)));
    let on_demand = candidates.iter().find(|candidate| candidate.key.market == Market::OnDemand);
    let most = on_demand.map(|candidate| candidate.price).filter(|_| !has_min_values);
    let Some(cheapest) = candidates.first().cloned() else { return candidates };
    match &cheapest.key.market {
        // One block is one type in one zone.
        Market::CapacityBlock(_) => candidates.truncate(1),
        market => candidates.retain(|candidate| is_paid_alike(&candidate.key.market, market)),
    }
    if let (Market::Spot, Some(most)) = (&cheapest.key.market, most) {
        candidates.retain(|candidate| candidate.price <= most);
    }
    if cheapest.kind == MachineKind::Ordinary && !has_min_values {
        candidates.retain(|candidate| candidate.kind == MachineKind::Ordinary);
    }
    candidates
}

fn order(candidate: &Candidate) -> impl Ord + '_ {
    (candidate.price, &candidate.instance_type, &candidate.zone, &candidate.key)
}

fn is_paid_alike(one: &Market, other: &Market) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

impl FleetRequest {
    /// The request for candidates that are all paid alike; none if there are none, or a launch template is missing.
    pub fn new(candidates: &[Candidate], input: &FleetInput<'_>) -> Option<Self> {
        let purchase = match candidates.first()?.key.market {
            Market::OnDemand | Market::Reservation(_) => Purchase::OnDemand(input.choice),
            Market::Spot => Purchase::Spot(input.choice),
            Market::CapacityBlock(_) => Purchase::CapacityBlock,
            Market::InterruptibleReservation(_) => Purchase::InterruptibleReservation,
        };
        let mut by_template: BTreeMap<&str, Vec<Override>> = BTreeMap::new();
        for candidate in candidates {
            let name = input.launch_templates.get(&candidate.key)?;
            by_template.entry(name).or_default().push(Override {
                instance_type: candidate.instance_type.clone(),
                zone: candidate.zone.clone(),
                subnet_id: candidate.subnet_id.clone(),
                image_id: candidate.key.image_id.clone(),
                priority: candidate.price.0,
            });
        }
        let configs = by_template.into_iter().map(|(name, mut overrides)| {
            overrides.sort();
            overrides.dedup();
            TemplateConfig { launch_template: name.to_owned(), overrides }
        });
        Some(Self {
            configs: configs.collect(),
            purchase,
            tags: input.tags.clone(),
            context: input.context.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests;
