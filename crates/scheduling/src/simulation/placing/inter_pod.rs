//! Placing classes that rules couple with other pods.
//!
//! * Existing nodes come first, round after round, since each copy can make room for the next.
//! * What is left of a class that is spread over the values of one label is dealt out to these at once: as even as the
//!   skew asks for, the copies above the least to the domains that are cheapest for it. So it goes to machines by
//!   counts and not copy by copy. In each domain nodes come first again: what the skew kept off them before may be fine
//!   now, and kube-scheduler would use them.
//! * If some domain can't take its share, and for all other rules, copies go step by step, each where it is cheapest;
//!   where a skew keeps them off nodes that have room, these are looked at again after each step.
//! * A class that has to be together and may begin anywhere is tried in each domain, and goes where most copies find a
//!   place for the least money. Where it has to share a host, the cheapest room for the first copies may be too small
//!   for all of them, so the one machine that takes most is tried too.

use std::{cmp::Ordering, collections::BTreeMap};

use model::{Answer, SearchEnd};
use smallvec::SmallVec;

use super::choose;
use super::choose::Offer;
use super::fill::on_nodes;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::{Alternative, PoolRank};
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::binding::rules_hold_since;
use crate::simulation::packing::mode::Mode;
use crate::simulation::packing::state::BinId;
use crate::simulation::topology::{Checking, DomainId, GroupId, Involvement, Kind, Place, Scope};
use crate::tuning::{LOOKS_AT_NODES, MAX_PRICED};

/// Places up to `wanted` copies and returns how many are left.
pub(crate) fn place(packing: &mut Packing<'_>, class: ClassId, wanted: u32) -> Answer<u32> {
    let problem = packing.problem;
    let mut end = SearchEnd::default();
    let left = if let Some(begins) = begins(packing, class) {
        together(packing, class, wanted, &begins).part_of(&mut end)
    } else {
        let mut left = rounds(wanted, |left| on_nodes(packing, class, left)).part_of(&mut end);
        // With affinity the order matters; see `rules_hold`.
        if let Some(spread) = spread(problem, class).filter(|_| problem.classes[class].affinity_sets.is_empty()) {
            left = by_shares(packing, class, left, spread).part_of(&mut end);
        }
        step_by_step(packing, class, left).part_of(&mut end)
    };
    let left = own_rules_only(packing, class, left).part_of(&mut end);
    Answer::new(left, end)
}

/// Places copies that would break a skew with which other pods were planned. That skew does not keep these copies from
/// being bound; they should only be bound after the others.
fn own_rules_only(packing: &mut Packing<'_>, class: ClassId, wanted: u32) -> Answer<u32> {
    let problem = packing.problem;
    let is_spread =
        |mine: &Involvement| !mine.owner && matches!(problem.topology.groups[mine.group].kind, Kind::Spread { .. });
    if wanted == 0 || !problem.classes[class].involved.iter().any(is_spread) {
        return Answer::finished(wanted);
    }
    packing.checking(Checking::OwnOnly, |packing| step_by_step(packing, class, wanted))
}

fn step_by_step(packing: &mut Packing<'_>, class: ClassId, wanted: u32) -> Answer<u32> {
    let mut end = SearchEnd::default();
    let mut looks = if has_room_that_may_open(packing, class).part_of(&mut end) { LOOKS_AT_NODES } else { 0 };
    let left = rounds(wanted, |left| {
        let mut end = SearchEnd::default();
        let left = on_nodes(packing, class, left).part_of(&mut end);
        let left = if looks == 0 {
            choose::place(packing, class, left)
        } else {
            looks -= 1;
            choose::place_some(packing, class, left)
        };
        Answer::new(left.part_of(&mut end), end)
    });
    Answer::new(left.part_of(&mut end), end)
}

/// Whether nodes have room for the class that only a skew closes, which more copies elsewhere may open.
fn has_room_that_may_open(packing: &mut Packing<'_>, class: ClassId) -> Answer<bool> {
    let problem = packing.problem;
    let is_spread = |mine: &Involvement| {
        let group = &problem.topology.groups[mine.group];
        mine.owner
            && matches!(group.kind, Kind::Spread { .. })
            && !group.depends_on_domain_alone(&packing.state.counts[mine.group])
    };
    if !problem.classes[class].involved.iter().any(is_spread) {
        return Answer::finished(false);
    }
    packing.checking(Checking::AtTheEnd, |packing| {
        let mut end = SearchEnd::default();
        let mut from = 0;
        let has_room = std::iter::from_fn(|| {
            let (position, node) = packing.next_node(from, class)?;
            from = position + 1;
            Some(packing.copies_on_node(node, class, 1).part_of(&mut end))
        })
        .any(|copies| copies > 0);
        Answer::new(has_room, end)
    })
}

/// Repeats a round as long as it places something.
fn rounds(wanted: u32, mut round: impl FnMut(u32) -> Answer<u32>) -> Answer<u32> {
    let mut end = SearchEnd::default();
    let mut left = wanted;
    while left > 0 {
        let after = round(left).part_of(&mut end);
        if after == left {
            break;
        }
        left = after;
    }
    Answer::new(left, end)
}

/// The one spread over values of a label that the class has to keep and is counted in.
#[derive(Clone, Copy)]
struct Spread {
    /// Its position among the class's involvements.
    position: usize,
    group: GroupId,
    max_skew: u32,
}

fn spread(problem: &Problem<'_>, class: ClassId) -> Option<Spread> {
    let involved = problem.classes[class].involved.iter().enumerate();
    let mut spreads = involved.filter(|(_, mine)| mine.owner).filter_map(|(position, mine)| {
        let group = &problem.topology.groups[mine.group];
        match (group.kind, group.scope) {
            (Kind::Spread { max_skew, .. }, Scope::Label(_)) => {
                Some((mine.matched, Spread { position, group: mine.group, max_skew }))
            }
            _ => None,
        }
    });
    match (spreads.next(), spreads.next()) {
        (Some((true, spread)), None) => Some(spread),
        _ => None,
    }
}

/// Deals the copies out over the domains; all of them are placed or none.
fn by_shares(packing: &mut Packing<'_>, class: ClassId, wanted: u32, spread: Spread) -> Answer<u32> {
    // One copy is placed as well step by step.
    if wanted < 2 {
        return Answer::finished(wanted);
    }
    let mut end = SearchEnd::default();
    // Skews are left out here, since the shares keep them.
    let (domains, on_nodes_of) = packing.checking(Checking::AtTheEnd, |packing| {
        let domains = cheapest_first(packing, class, wanted, spread.position).part_of(&mut end);
        (domains, room_on_nodes(packing, class, wanted, spread).part_of(&mut end))
    });
    // Shares are counts only: other rules and limits decide whether they can be placed, so all of it is undone if one
    // domain falls short.
    let mut deal_out = |packing: &mut Packing<'_>, domains: &[DomainId], nodes: bool| {
        let counts: Vec<u32> =
            domains.iter().map(|&domain| packing.state.counts[spread.group].matched(domain)).collect();
        let room = |domain: &DomainId| if nodes { on_nodes_of.get(domain).copied().unwrap_or(0) } else { 0 };
        let rooms: Vec<u32> = domains.iter().map(room).collect();
        let Some(shares) = shares(&counts, &rooms, wanted, spread.max_skew) else { return false };
        let mark = packing.mark();
        let all_placed = domains.iter().zip(&shares).all(|(&domain, &share)| {
            let confined = SmallVec::from_slice(&[(spread.position, domain)]);
            let mode = Mode { checking: Checking::AtTheEnd, confined, ..packing.mode().clone() };
            packing.with(mode, |packing| {
                let left = if nodes { on_nodes(packing, class, share).part_of(&mut end) } else { share };
                left == 0 || choose::place(packing, class, left).part_of(&mut end) == 0
            })
        });
        let is_right = all_placed && rules_hold_since(packing.problem, &packing.state, &mark);
        if is_right {
            packing.commit(mark);
        } else {
            packing.rollback(mark);
        }
        is_right
    };
    // Free room costs nothing, so shares that use most of it are tried before shares by price.
    if !on_nodes_of.is_empty() {
        let (mut first, rest): (Vec<_>, Vec<_>) = domains.iter().partition(|domain| on_nodes_of.contains_key(domain));
        first.extend(rest);
        if deal_out(packing, &first, true) {
            return Answer::new(0, end);
        }
    }
    let left = if deal_out(packing, &domains, false) { 0 } else { wanted };
    Answer::new(left, end)
}

/// By domain with such nodes: for how many copies they have room, at most `wanted` each. The caller leaves skews out.
fn room_on_nodes(
    packing: &mut Packing<'_>,
    class: ClassId,
    wanted: u32,
    spread: Spread,
) -> Answer<BTreeMap<DomainId, u32>> {
    let mut end = SearchEnd::default();
    let mut rooms: BTreeMap<DomainId, u32> = BTreeMap::new();
    let mut from = 0;
    while let Some((position, node)) = packing.next_node(from, class) {
        from = position + 1;
        let Place::Domain(domain) = packing.problem.topology.place_of_node(spread.group, node) else { continue };
        let known = rooms.get(&domain).copied().unwrap_or(0);
        if known < wanted {
            let copies = packing.copies_on_node(node, class, wanted - known).part_of(&mut end);
            if copies > 0 {
                rooms.insert(domain, known + copies);
            }
        }
    }
    Answer::new(rooms, end)
}

/// The domains in which the class could get a new machine, by what a copy costs there, then by name. The caller leaves
/// skews out.
fn cheapest_first(packing: &mut Packing<'_>, class: ClassId, wanted: u32, position: usize) -> Answer<Vec<DomainId>> {
    let mut end = SearchEnd::default();
    let mut offers: Vec<(DomainId, Offer<'_>)> = Vec::new();
    for (pool, table) in packing.problem.pools.iter_enumerated() {
        for alternative in &table.by_class[class] {
            let Some(&Place::Domain(domain)) = alternative.places.get(position) else { continue };
            let most = packing.copies_in_new_bin(pool, class, alternative, wanted).part_of(&mut end);
            if most == 0 {
                continue;
            }
            let offer = choose::new_machine(packing, pool, class, alternative, most).part_of(&mut end);
            match offers.iter_mut().find(|(known, _)| *known == domain) {
                // A preferred pool goes first, whatever its price.
                Some((_, known)) if known.pool == pool && offer.cmp(known) == Ordering::Less => *known = offer,
                Some(_) => {}
                None => offers.push((domain, offer)),
            }
        }
    }
    offers.sort_by(|(one, a), (other, b)| a.cost_cmp(b).then(one.cmp(other)));
    Answer::new(offers.into_iter().map(|(domain, _)| domain).collect(), end)
}

/// How many copies go to each domain, given what each has and for how many its nodes have room: most onto nodes, else
/// the earlier domains get as much as the skew allows. `None` if the skew can't be kept.
fn shares(counts: &[u32], rooms: &[u32], wanted: u32, max_skew: u32) -> Option<Vec<u32>> {
    let least_now = counts.iter().copied().min()?;
    let fewest = |least: u32| -> u64 { counts.iter().map(|&count| u64::from(least.saturating_sub(count))).sum() };
    let most = |least: u32| -> u64 {
        let top = least.saturating_add(max_skew);
        counts.iter().map(|&count| u64::from(top.saturating_sub(count))).sum()
    };
    // The lowest least with room for all leaves most to choose.
    let (mut low, mut high) = (least_now, least_now.saturating_add(wanted));
    while low < high {
        let middle = low + (high - low) / 2;
        if most(middle) >= u64::from(wanted) { high = middle } else { low = middle + 1 }
    }
    let with_least = |least: u32| -> Option<Vec<u32>> {
        if fewest(least) > u64::from(wanted) || most(least) < u64::from(wanted) {
            return None;
        }
        let mut shares: Vec<u32> = counts.iter().map(|&count| least.saturating_sub(count)).collect();
        let mut left = wanted - u32::try_from(fewest(least)).ok()?;
        let top = least.saturating_add(max_skew);
        for only_nodes in [true, false] {
            for ((share, &count), &room) in shares.iter_mut().zip(counts).zip(rooms) {
                let room = if only_nodes { room.saturating_sub(*share) } else { u32::MAX };
                let more = top.saturating_sub(count + *share).min(left).min(room);
                *share += more;
                left -= more;
            }
        }
        (left == 0).then_some(shares)
    };
    let onto_nodes =
        |shares: &[u32]| -> u64 { shares.iter().zip(rooms).map(|(&share, &room)| u64::from(share.min(room))).sum() };
    let lowest = with_least(low)?;
    let all: u64 = rooms.iter().map(|&room| u64::from(room)).sum();
    let mut best = (onto_nodes(&lowest), lowest);
    // A higher least lets a domain have more.
    for least in low.saturating_add(1)..=low.saturating_add(wanted) {
        if best.0 >= all.min(u64::from(wanted)) {
            break;
        }
        let Some(shares) = with_least(least) else { break };
        let onto_nodes = onto_nodes(&shares);
        if onto_nodes > best.0 {
            best = (onto_nodes, shares);
        }
    }
    Some(best.1)
}

/// Where a class may begin that has to be together: one entry for each combination of domains.
type Beginning = SmallVec<[(usize, DomainId); 2]>;

/// The ways to begin, if the class has to be near to itself and nothing that it wants is anywhere yet.
fn begins(packing: &Packing<'_>, class: ClassId) -> Option<Vec<Beginning>> {
    let problem = packing.problem;
    let pods = &problem.classes[class];
    let mut positions: Vec<usize> = Vec::new();
    // Kube-scheduler lets the first pod of a group in anywhere if it matches its own terms and no pod does yet.
    for set in &pods.affinity_sets {
        let involvements = || set.involvements.iter().filter_map(|&position| pods.involved.get(position));
        let is_nowhere = involvements().all(|mine| packing.state.counts[mine.group].total() == 0);
        if set.matches_itself && is_nowhere {
            positions.extend(&set.involvements);
        }
    }
    // A rule over the whole cluster leaves no choice.
    positions.retain(|&position| {
        pods.involved
            .get(position)
            .is_some_and(|mine| matches!(problem.topology.groups[mine.group].scope, Scope::Label(_) | Scope::Host))
    });
    if positions.is_empty() {
        return None;
    }
    // Only domains of labels are tried one by one, since there are too many hosts; see `together`.
    let by_label: Vec<usize> = positions
        .into_iter()
        .filter(|&position| {
            pods.involved
                .get(position)
                .is_some_and(|mine| matches!(problem.topology.groups[mine.group].scope, Scope::Label(_)))
        })
        .collect();
    let mut beginnings: Vec<Beginning> = Vec::new();
    let mut add = |place: &dyn Fn(usize) -> Place| {
        let mut beginning = Beginning::new();
        for &position in &by_label {
            let Place::Domain(domain) = place(position) else { return };
            beginning.push((position, domain));
        }
        if !beginnings.contains(&beginning) {
            beginnings.push(beginning);
        }
    };
    // Only domains in which the class can have a place: those of nodes and of machines that take it.
    for &node in problem.node_order.iter().filter(|&&node| problem.node_accepts(class, node)) {
        add(&|position| {
            let mine = pods.involved.get(position);
            mine.map_or(Place::Outside, |mine| problem.topology.place_of_node(mine.group, node))
        });
    }
    for table in &problem.pools {
        for alternative in &table.by_class[class] {
            add(&|position| alternative.places.get(position).copied().unwrap_or(Place::Outside));
        }
    }
    beginnings.sort();
    Some(beginnings)
}

/// Tries each beginning and keeps the one that places most copies for the least addition to the price.
fn together(packing: &mut Packing<'_>, class: ClassId, wanted: u32, beginnings: &[Beginning]) -> Answer<u32> {
    let mut end = SearchEnd::default();
    let mut best: Option<(u32, i128, &Beginning, First)> = None;
    for beginning in beginnings {
        for first in [First::RoomiestNode, First::Cheapest, First::RoomiestMachine] {
            // Only needed where room on one machine is short: another way has not placed all copies.
            if first == First::RoomiestMachine && best.as_ref().is_some_and(|(left, ..)| *left == 0) {
                continue;
            }
            let mark = packing.mark();
            let before = packing.state.price();
            let left = begin(packing, class, wanted, beginning, first).part_of(&mut end);
            let added = packing.state.price() - before;
            packing.rollback(mark);
            if left < wanted && best.as_ref().is_none_or(|(least, cost, ..)| (left, added) < (*least, *cost)) {
                best = Some((left, added, beginning, first));
            }
        }
    }
    let left = match best {
        Some((_, _, beginning, first)) => begin(packing, class, wanted, beginning, first).part_of(&mut end),
        None => wanted,
    };
    Answer::new(left, end)
}

/// Where the first copies go of a class that has to be together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// The node with most room for it, so that a host that all have to share is not too small.
    RoomiestNode,
    /// A machine of the plan, by what copies add to the price.
    Cheapest,
    /// The machine of the plan that takes most.
    RoomiestMachine,
}

fn begin(packing: &mut Packing<'_>, class: ClassId, wanted: u32, beginning: &Beginning, first: First) -> Answer<u32> {
    let mode = Mode { confined: beginning.clone(), ..packing.mode().clone() };
    let mut end = SearchEnd::default();
    let left = packing.with(mode, |packing| match first {
        First::RoomiestNode => {
            let mut copies = |node| packing.copies_on_node(node, class, wanted).part_of(&mut end);
            let roomiest = packing
                .problem
                .node_order
                .iter()
                .map(|&node| (copies(node), node))
                .filter(|(copies, _)| *copies > 0)
                .fold(None, |best: Option<(u32, _)>, this| match best {
                    Some(best) if best.0 >= this.0 => Some(best),
                    _ => Some(this),
                });
            match roomiest {
                Some((copies, node)) => {
                    packing.place_on_node(node, class, copies);
                    step_by_step(packing, class, wanted - copies).part_of(&mut end)
                }
                None => wanted,
            }
        }
        First::Cheapest => {
            let left = choose::place(packing, class, wanted).part_of(&mut end);
            step_by_step(packing, class, left).part_of(&mut end)
        }
        First::RoomiestMachine => {
            let left = most_on_one(packing, class, wanted).part_of(&mut end);
            step_by_step(packing, class, left).part_of(&mut end)
        }
    });
    Answer::new(left, end)
}

/// Places copies on the one machine that takes most of them, and returns how many are left: on a new one or on one of
/// those opened last, by what they add to the price, or on another open one if that takes more.
fn most_on_one(packing: &mut Packing<'_>, class: ClassId, wanted: u32) -> Answer<u32> {
    let mut end = SearchEnd::default();
    let ways = || {
        let pools = packing.problem.pools.iter_enumerated();
        pools.flat_map(|(pool, table)| table.by_class[class].iter().map(move |alternative| (pool, alternative)))
    };
    let mut best: Option<(u32, i128, OneMachine<'_>)> = None;
    let last = packing.state.bins.len();
    // Trying a placement for its price costs a rollback, so only a new machine and those opened last are priced. Others
    // count only if they take more copies.
    let priced = last.saturating_sub(MAX_PRICED)..last;
    for id in std::iter::once(None).chain(priced.clone().rev().chain(0..priced.start).map(|id| Some(BinId(id)))) {
        let is_priced = id.is_none_or(|id| priced.contains(&id.0));
        if !is_priced && best.is_some_and(|(most, ..)| most == wanted) {
            break;
        }
        let of = id.and_then(|id| Some(packing.state.bins.get(id.0)?.pool));
        for (pool, alternative) in ways().filter(|(pool, _)| of.is_none_or(|of| of == *pool)) {
            let machine = OneMachine { id, pool, alternative };
            let copies = match id {
                Some(id) => packing.copies_in_bin(id, class, alternative, wanted),
                None => packing.copies_in_new_bin(pool, class, alternative, wanted),
            };
            let copies = copies.part_of(&mut end);
            // More copies on one machine come first, since whoever has to share a host is refused otherwise; then the
            // preferred pool, then the price.
            let is_better = |added: i128| {
                best.is_none_or(|(most, least, of)| {
                    copies > most || (copies == most && (pool, added) < (of.pool, least) && is_priced)
                })
            };
            // Nothing is placed for a machine that would lose even if it added nothing to the price.
            if copies == 0 || !is_better(i128::MIN) {
                continue;
            }
            let mark = packing.mark();
            let before = packing.state.price();
            machine.put(packing, class, copies);
            let added = packing.state.price() - before;
            packing.rollback(mark);
            if is_better(added) {
                best = Some((copies, added, machine));
            }
        }
    }
    let Some((copies, _, machine)) = best else { return Answer::new(wanted, end) };
    machine.put(packing, class, copies);
    Answer::new(wanted - copies, end)
}

/// A machine to share, open or new.
#[derive(Clone, Copy)]
struct OneMachine<'p> {
    id: Option<BinId>,
    pool: PoolRank,
    alternative: &'p Alternative,
}

impl OneMachine<'_> {
    fn put(self, packing: &mut Packing<'_>, class: ClassId, copies: u32) {
        match self.id {
            Some(id) => packing.place_in_bin(id, class, self.alternative, copies),
            None => packing.open_bin(self.pool, class, self.alternative, copies),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn shares_keep_the_skew_and_favour_the_first_domains() {
        type Case<'c> = (&'c [u32], u32, u32, Option<&'c [u32]>);
        let cases: [Case<'_>; 9] = [
            (&[0, 0, 0], 9, 1, Some(&[3, 3, 3])),
            (&[0, 0, 0], 10, 1, Some(&[4, 3, 3])),
            (&[0, 0, 0], 2, 1, Some(&[1, 1, 0])),
            (&[0, 0, 0], 7, 3, Some(&[3, 3, 1])),
            (&[0, 0, 0], 3, 3, Some(&[3, 0, 0])),
            (&[5, 0, 0], 4, 1, Some(&[0, 2, 2])),
            (&[5, 4, 4], 3, 1, Some(&[1, 1, 1])),
            (&[2], 7, 1, Some(&[7])),
            (&[], 7, 1, None),
        ];
        for (counts, wanted, max_skew, expected) in cases {
            let rooms = vec![0; counts.len()];
            let shares = shares(counts, &rooms, wanted, max_skew);
            assert_eq!(shares.as_deref(), expected, "{counts:?} {wanted} {max_skew}");
        }
    }

    #[test]
    fn shares_use_the_room_on_nodes_as_far_as_some_way_to_keep_the_skew_can() {
        let mut seen = [0, 0];
        for numbers in 0..3_u32.pow(8) {
            let digit = |position: u32| numbers / 3_u32.pow(position) % 3;
            let counts = [digit(0), digit(1), digit(2)];
            let rooms = [2 * digit(3), digit(4), 0];
            let (wanted, max_skew) = (1 + 3 * digit(5) + digit(6), 1 + digit(7));
            let keeps_skew = |shares: &[u32; 3]| {
                let after = [0, 1, 2].map(|at: usize| counts[at] + shares[at]);
                let least = after.iter().min().unwrap();
                // What was too full before is no obstacle as long as it gets no more.
                after.iter().zip(shares).all(|(&count, &share)| share == 0 || count <= least + max_skew)
            };
            let onto_nodes = |shares: &[u32]| shares.iter().zip(&rooms).map(|(&share, &room)| share.min(room)).sum();
            let all = (0..=wanted).flat_map(|one| (0..=wanted - one).map(move |two| [one, two, wanted - one - two]));
            let best: Option<u32> = all.filter(keeps_skew).map(|shares| onto_nodes(&shares)).max();
            let found = shares(&counts, &rooms, wanted, max_skew);
            assert!(found.as_ref().is_none_or(|found| keeps_skew(&[found[0], found[1], found[2]])));
            let found = found.map(|found| onto_nodes(&found));
            assert_eq!(found, best, "{counts:?} {rooms:?} {wanted} {max_skew}");
            seen[usize::from(found.is_some_and(|found| found > 0))] += 1;
        }
        assert!(seen.iter().all(|&cases| cases > 100), "{seen:?}");
    }
}
