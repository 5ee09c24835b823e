//! Machines whose pods fit on less: removed, or replaced by what costs less than all of them together.
//!
//! 1. `eligible`: which machines may go for that reason, and why each of the others stays.
//! 2. [`search`] proposes sets of machines, unless some that were asked for a moment ago still hold.
//! 3. `confirm`: all sets together are planned by provisioning, beside what methods before have decided. What does not
//!    hold then, or is against a rule (`rules`), is not proposed again, and the search is made anew, up to a bound. So
//!    each command is one that provisioning's rules have made, and the search may pass over some of them.
//! 4. `replacement`: NodeClaims of replacements keep only what is cheaper, whatever is in stock when they are launched.
//!
//! Differs: `consolidation-n-to-m`. In Karpenter one machine at most takes the place of others, and one command is
//! made at a time.

pub(in crate::disruption) mod balanced;
mod confirm;
mod eligible;
mod pay_back;
mod replacement;
mod rules;

use std::collections::BTreeMap;

use model::{NodeClaimName, PriceNanoUsdPerHour};

use self::confirm::{Confirmed, Ground, Rejected, confirm};
use self::eligible::Eligible;
use self::rules::Rules;
use super::Outcome;
use crate::disruption::budgets::Allowances;
use crate::disruption::candidates::{Candidates, Context};
use crate::disruption::reason::{NodeReason, Unconsolidatable};
use crate::disruption::search::{self, Certificate, CouldGo, Found, Left, Question, Search, nano};
use crate::plan::Verdict;
use crate::snapshot::NodeId;
use crate::snapshot::fleet::Reason;
use crate::tuning::{CONSOLIDATION_ROUNDS, PARTIAL_PROPOSALS, SMALL_FLEET, STILL_HOLDS_TRIALS};

const REASON: Reason = Reason::Underutilized;

/// What plans before have left.
#[derive(Clone, Copy)]
pub(crate) struct Earlier<'e> {
    /// Sets of machines that were asked for.
    pub(crate) asked_for: &'e [Vec<NodeClaimName>],
    /// Relaxations that were solved.
    pub(crate) solved: &'e search::Memory,
}

/// What comes of consolidation.
pub(crate) struct Consolidated {
    pub(crate) outcome: Outcome,
    /// What the fleet costs at least, if that was found out.
    pub(crate) bound: Option<PriceNanoUsdPerHour>,
    /// Whether only what was asked for before was looked at.
    pub(crate) is_asked_for: bool,
}

/// What consolidation makes of what methods before have decided: all commands, theirs with the places that their pods
/// have beside its own.
pub(crate) fn extend(
    context: &Context<'_>,
    candidates: &Candidates,
    allowances: &mut Allowances<'_>,
    before: Outcome,
    earlier: Earlier<'_>,
) -> Consolidated {
    let eligible = Eligible::new(context, candidates, &before);
    if eligible.machines.is_empty() {
        let outcome = merged(before, None, eligible.stays.clone(), &eligible);
        return Consolidated { outcome, bound: None, is_asked_for: false };
    }
    let ground = Ground::new(context, &before, &eligible);
    let rules = Rules::new(context, &eligible);
    let earlier_sets = asked_for(context, &eligible, earlier.asked_for);
    let grounds = Grounds { ground: &ground, eligible: &eligible, rules: &rules, allowances: &*allowances };
    if let Some(confirmed) = still_holds(&grounds, &earlier_sets) {
        take(allowances, &eligible, &confirmed);
        let outcome = merged(before, Some(confirmed), eligible.stays.clone(), &eligible);
        return Consolidated { outcome, bound: None, is_asked_for: true };
    }
    let question = Question {
        snapshot: &ground.asked,
        machines: &ground.machines,
        settled: &ground.settled,
        refused: &ground.refused,
        launched_anyway: ground.cost,
        left: left(&eligible, allowances),
        solved: earlier.solved,
        allows: &|set, saving, launched| rules.forbids(set, saving, launched).is_none(),
    };
    let grounds = Grounds { allowances: &*allowances, ..grounds };
    let Decided { confirmed, found, rejected, bound } = search::search(&question, |search| decide(search, &grounds));
    let bound = ground.fleet_bound(&eligible, bound);
    // What is left of budgets is what the reasons of the others tell of.
    if let Some(confirmed) = &confirmed {
        take(allowances, &eligible, confirmed);
    }
    let told = Told { eligible: &eligible, machines: &ground.machines, rules: &rules, allowances, rejected: &rejected };
    let mut stays = eligible.stays.clone();
    stays.extend(found.certificates.iter().filter_map(|(&index, certificate)| told.reason(index, certificate)));
    Consolidated { outcome: merged(before, confirmed, stays, &eligible), bound, is_asked_for: false }
}

/// How many more machines budgets let go.
fn left(eligible: &Eligible<'_>, allowances: &Allowances<'_>) -> Left {
    eligible.pools.iter().map(|pool| allowances.left(pool, REASON)).collect()
}

/// Takes what goes from the budgets, to which it has kept.
fn take(allowances: &mut Allowances<'_>, eligible: &Eligible<'_>, confirmed: &Confirmed) {
    for pool in confirmed.sets.iter().flatten().filter_map(|index| eligible.pool_of(*index)) {
        let _ = allowances.take(pool, REASON);
    }
}

/// The sets of what was asked for whose machines may all go, by position.
fn asked_for(context: &Context<'_>, eligible: &Eligible<'_>, asked_for: &[Vec<NodeClaimName>]) -> Vec<Vec<usize>> {
    if asked_for.is_empty() {
        return Vec::new();
    }
    let claim = |node: NodeId| context.snapshot.nodes.try_get(node)?.node_claim.as_ref();
    let machines = eligible.machines.iter().enumerate();
    let index_of: BTreeMap<&NodeClaimName, usize> =
        machines.filter_map(|(index, machine)| Some((claim(machine.node)?, index))).collect();
    let indices = |set: &Vec<NodeClaimName>| -> Option<Vec<usize>> {
        let mut indices: Vec<usize> = set.iter().map(|name| index_of.get(name).copied()).collect::<Option<_>>()?;
        indices.sort_unstable();
        Some(indices)
    };
    asked_for.iter().filter_map(indices).collect()
}

/// As much as still holds of sets that were asked for.
fn still_holds(grounds: &Grounds<'_>, asked_for: &[Vec<usize>]) -> Option<Confirmed> {
    let Grounds { ground, eligible, rules, allowances } = grounds;
    let mut left = left(eligible, allowances);
    let may_go = |set: &&Vec<usize>| left.take_all(&ground.machines, set);
    let mut sets: Vec<Vec<usize>> = asked_for.iter().filter(may_go).cloned().collect();
    for _ in 0..STILL_HOLDS_TRIALS {
        if sets.is_empty() {
            break;
        }
        match confirm(ground, eligible, rules, &sets) {
            Ok(confirmed) => return Some(confirmed),
            Err(why) => sets = why.rest(&sets),
        }
    }
    None
}

/// By what it is decided what goes.
struct Grounds<'a> {
    ground: &'a Ground<'a, 'a>,
    eligible: &'a Eligible<'a>,
    rules: &'a Rules<'a>,
    allowances: &'a Allowances<'a>,
}

/// What goes, and why the others stay.
struct Decided {
    confirmed: Option<Confirmed>,
    found: Found,
    rejected: Rejected,
    bound: i128,
}

/// Looks for sets until what is found is confirmed, or nothing is.
fn decide(search: &mut Search<'_, '_>, grounds: &Grounds<'_>) -> Decided {
    let Grounds { ground, eligible, rules, allowances } = grounds;
    let mut rejected = Rejected::default();
    let mut confirmed = None;
    let mut found = search.look(&rejected.known());
    for round in 1..=CONSOLIDATION_ROUNDS {
        let is_last = round == CONSOLIDATION_ROUNDS;
        let mut sets = found.sets.clone();
        let mut partial = 0;
        // All of it, or all but a few machines of it, or in the end as much of it as holds.
        while !sets.is_empty() && confirmed.is_none() {
            match confirm(ground, eligible, rules, &sets) {
                Ok(commands) => confirmed = Some(commands),
                Err(why) => {
                    sets = why.rest(&sets);
                    let is_partial = why.is_partial() && partial < PARTIAL_PROPOSALS;
                    rejected.extend(why);
                    if is_partial {
                        partial += 1;
                        continue;
                    }
                    if !is_last {
                        break;
                    }
                    // So that a long list is soon at its end.
                    sets.truncate(sets.len() / 2 + 1);
                }
            }
        }
        if confirmed.is_some() || found.sets.is_empty() {
            break;
        }
        // Who stays is told beside what goes.
        let known = rejected.known();
        found = if is_last { search.decided(&known, &sets) } else { search.look(&known) };
    }
    for set in karpenters_sets(&ground.machines, left(eligible, allowances)) {
        let least = confirmed.as_ref().map_or(0, Confirmed::saving);
        let cost: i128 = set.iter().filter_map(|index| ground.machines.get(*index)).map(|machine| machine.cost).sum();
        if cost > least
            && let Ok(other) = confirm(ground, eligible, rules, &[set])
            && other.saving() > least
        {
            confirmed = Some(other);
        }
    }
    if let Some(Confirmed { sets, .. }) = confirmed.as_ref().filter(|confirmed| confirmed.sets != found.sets) {
        found = search.decided(&rejected.known(), sets);
    }
    Decided { confirmed, found, rejected, bound: search.bound() }
}

/// What Karpenter would look at where there are few machines: each alone, and prefixes by saving per disruption, as far
/// as budgets let them go.
fn karpenters_sets(machines: &[CouldGo], mut left: Left) -> Vec<Vec<usize>> {
    if machines.len() > SMALL_FLEET {
        return Vec::new();
    }
    let mut order = search::by_saving_per_disruption(machines);
    order.retain(|&index| left.take(machines, index));
    let alone = order.iter().map(|&index| vec![index]);
    let prefixes = (2..=order.len()).filter_map(|size| order.get(..size)).map(|prefix| {
        let mut prefix = prefix.to_vec();
        prefix.sort_unstable();
        prefix
    });
    alone.chain(prefixes).collect()
}

/// All commands, and why each machine stays about which something was found out.
fn merged(
    before: Outcome,
    confirmed: Option<Confirmed>,
    mut stays: BTreeMap<NodeId, NodeReason>,
    eligible: &Eligible<'_>,
) -> Outcome {
    // Why a machine does not go that would go for another reason is what people want to know.
    stays.extend(before.stays.clone());
    let Some(Confirmed { commands, simulated, sets, .. }) = confirmed else {
        return Outcome { stays, ..before };
    };
    for &index in sets.iter().flatten() {
        if let Some(node) = eligible.node(index) {
            stays.remove(&node);
        }
    }
    let empty = before.commands.into_iter().filter(|command| command.reason == Reason::Empty);
    Outcome { commands: empty.chain(commands).collect(), stays, simulated: Some(simulated), ..before }
}

/// What certificates come to in words.
struct Told<'a> {
    eligible: &'a Eligible<'a>,
    machines: &'a [CouldGo],
    rules: &'a Rules<'a>,
    allowances: &'a Allowances<'a>,
    rejected: &'a Rejected,
}

impl Told<'_> {
    fn reason(&self, index: usize, certificate: &Certificate) -> Option<(NodeId, NodeReason)> {
        let machine = self.eligible.machines.get(index)?;
        let price = machine.machine.price().unwrap_or_default();
        let reason = match certificate {
            Certificate::NothingToGain { price, bound } => {
                NodeReason::Unconsolidatable(Unconsolidatable::NothingToGain { price: *price, bound: *bound })
            }
            Certificate::WorthItsPrice { most } => {
                NodeReason::Unconsolidatable(Unconsolidatable::WorthItsPrice { price, most: *most })
            }
            Certificate::CannotPay { most, wanted } => {
                NodeReason::Unconsolidatable(Unconsolidatable::CannotPay { most: *most, wanted: *wanted })
            }
            Certificate::NoPlace(pod) => NodeReason::NoPlace {
                reason: REASON,
                pod: pod.clone(),
                verdict: Verdict::DoesNotFit,
                reasons: [].into(),
            },
            Certificate::NoSaving(replacements) => {
                NodeReason::Unconsolidatable(Unconsolidatable::NoSaving { price, replacements: *replacements })
            }
            Certificate::NotAllowed { saving, launched } => {
                let set = [index];
                let wanted = self.machines.get(index).map_or(1, |machine| machine.wanted);
                let does_not_pay = Unconsolidatable::DoesNotPay { saving: nano(*saving), wanted: nano(wanted) };
                let why = (*saving < wanted).then_some(does_not_pay);
                let why = why.or_else(|| self.rejected.alone(index).cloned());
                let why = why.or_else(|| self.rules.forbids(&set, *saving, launched));
                NodeReason::Unconsolidatable(why.unwrap_or(Unconsolidatable::NotConfirmed))
            }
            Certificate::Budget => {
                let node_pool = self.eligible.pool_of(index)?;
                match self.allowances.limit(node_pool, REASON) {
                    Some(limit) => NodeReason::Budget { reason: REASON, node_pool: node_pool.clone(), limit },
                    // What is left goes with the commands.
                    None => NodeReason::Undecided { reason: REASON },
                }
            }
            Certificate::TakesPods => NodeReason::TakesPods,
            Certificate::Undecided => NodeReason::Undecided { reason: REASON },
        };
        Some((machine.node, reason))
    }
}
