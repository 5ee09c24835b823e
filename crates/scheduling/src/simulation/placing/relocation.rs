//! Relocation: placed copies move, so that left-over copies get room. It is for packings with too many copies for the
//! exact search.
//!
//! If a left-over copy would fit at a place without what is there, copies of one other class leave it, as few as make
//! room, and are placed again like any others: on nodes, in open machines and in new ones. What they displace in turn
//! may move once more. All of it is undone unless every copy has a place in the end, so no pod loses its place. Only
//! pods move that no rule, claim or shared volume concerns.
//!
//! Longer chains may find room where this finds none, so it proves nothing.
//!
//! Complexity: (nodes and machines) × classes there for a copy, to the power of the length of the chain; bounded by the
//! budget.

use model::{Answer, Budget, OutOfBudget, ResourceVec, SearchEnd};

use super::fill::place;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::packing::Packing;
use crate::simulation::packing::state::{BinId, Target};
use crate::tuning::{ASSIGNMENTS_PER_STEP, CHAIN_LENGTH, EXCHANGE_STEPS};

/// Moves copies of other classes to make room for copies of a class, and returns how many are left. Whether the budget
/// for chains lasted is not part of the answer; how the searches for devices ended is.
pub(crate) fn make_room(packing: &mut Packing<'_>, class: ClassId, mut left: u32, budget: &mut Budget) -> Answer<u32> {
    let mut chain = Chain { packing, budget, end: SearchEnd::default() };
    // Short chains are tried before longer ones.
    while left > 0 && (1..=CHAIN_LENGTH).any(|length| matches!(chain.make_room(class, length), Ok(true))) {
        left -= 1;
        // Copies that moved may have left room for more.
        left = place(chain.packing, class, left).part_of(&mut chain.end);
    }
    Answer::new(left, chain.end)
}

struct Chain<'p, 'b> {
    packing: &'b mut Packing<'p>,
    budget: &'b mut Budget,
    /// How the searches ended for the devices of all that was tried.
    end: SearchEnd,
}

/// Copies that could leave a node or machine.
struct Leaving {
    class: ClassId,
    /// The position of the alternative in a machine's pool.
    alternative: usize,
    copies: u32,
}

impl Chain<'_, '_> {
    /// Places one copy by moving others, in a chain of at most this length; whether that worked.
    fn make_room(&mut self, class: ClassId, length: usize) -> Result<bool, OutOfBudget> {
        let problem = self.packing.problem;
        let wants_more = problem.classes[class].devices.is_some() || !problem.shared_volumes.of(class).is_empty();
        if length == 0 || wants_more {
            return Ok(false);
        }
        self.budget.spend(1 + self.packing.state.assignments.len() as u64 / ASSIGNMENTS_PER_STEP)?;
        let on_nodes = contents_of_nodes(self.packing);
        for &node in problem.node_order.iter().filter(|&&node| problem.node_accepts(class, node)) {
            let Some(on_node) = on_nodes.get(model::Id::index(node)) else { continue };
            let room = self.packing.state.room[node].clone();
            for leaving in on_node {
                if self.exchange(Target::Node(node), class, leaving, &room, length)? {
                    return Ok(true);
                }
            }
        }
        // Claims and rules over labels decide what machines become.
        if problem.devices.is_some() || self.packing.run.keeps_outside {
            return Ok(false);
        }
        for id in (0..self.packing.state.bins.len()).map(BinId) {
            let Some(bin) = self.packing.state.bins.get(id.0) else { break };
            let table = &problem.pools[bin.pool];
            if table.by_class[class].is_empty() || bin.shares_volumes() {
                continue;
            }
            let mut room = table.most(&table.members);
            room.saturating_sub_assign(&bin.requests);
            let held = bin.contents.iter().filter(|(held, ..)| *held != class && problem.is_free(*held));
            let held: Vec<Leaving> =
                held.map(|&(class, alternative, copies)| Leaving { class, alternative, copies }).collect();
            for leaving in &held {
                if self.exchange(Target::Bin(id), class, leaving, &room, length)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Places one copy where some of another class leave, and these elsewhere; whether that worked. `room` bounds what
    /// is free there.
    fn exchange(
        &mut self,
        target: Target,
        class: ClassId,
        leaving: &Leaving,
        room: &ResourceVec,
        length: usize,
    ) -> Result<bool, OutOfBudget> {
        let problem = self.packing.problem;
        let wanted = &problem.classes[class].shape.requests;
        let Some(copies) = fewest(wanted, room, &problem.classes[leaving.class].shape.requests, leaving.copies) else {
            return Ok(false);
        };
        // An exchange costs about as much as many steps of the exact search, on whose budget it draws.
        self.budget.spend(EXCHANGE_STEPS)?;
        let mark = self.packing.mark();
        // Resources were only a first test: rules, claims and limits decide whether the copy now has its place.
        let is_placed = match target {
            Target::Node(node) => {
                self.packing.take_from_node(node, leaving.class, copies);
                let fits = self.packing.copies_on_node(node, class, 1).part_of(&mut self.end) == 1;
                if fits {
                    self.packing.place_on_node(node, class, 1);
                }
                fits
            }
            Target::Bin(id) => {
                self.packing.take_from_bin(id, (leaving.class, leaving.alternative), copies);
                let pool = self.packing.state.bins.get(id.0).map(|bin| bin.pool);
                let mut ways = pool.iter().flat_map(|&pool| &problem.pools[pool].by_class[class]);
                let way = ways.find(|way| self.packing.copies_in_bin(id, class, way, 1).part_of(&mut self.end) == 1);
                if let Some(way) = way {
                    self.packing.place_in_bin(id, class, way, 1);
                }
                way.is_some()
            }
        };
        // Those that left are placed like any others. Who finds no room may displace once more, in a shorter chain.
        let mut left = copies;
        let mut result = Ok(false);
        if is_placed {
            left = place(self.packing, leaving.class, copies).part_of(&mut self.end);
            while left > 0 {
                result = self.make_room(leaving.class, length - 1);
                if !matches!(result, Ok(true)) {
                    break;
                }
                left -= 1;
            }
        }
        if is_placed && left == 0 {
            self.packing.commit(mark);
            return Ok(true);
        }
        self.packing.rollback(mark);
        result.map(|_| false)
    }
}

/// How many copies have to leave so that one of another class has room, if so many are there and it is not for want of
/// them.
fn fewest(wanted: &ResourceVec, room: &ResourceVec, each: &ResourceVec, most: u32) -> Option<u32> {
    let missing = wanted.iter().map(|(resource, amount)| (resource, amount.saturating_sub(room.get(resource))));
    let copies = missing.filter(|(_, missing)| *missing > 0).try_fold(1, |copies, (resource, missing)| {
        let each = each.get(resource);
        (each > 0).then(|| copies.max(missing.div_euclid(each) + i64::from(missing.rem_euclid(each) > 0)))
    })?;
    u32::try_from(copies).ok().filter(|copies| *copies <= most)
}

/// By node: copies of this plan that could leave, in the order of placing.
fn contents_of_nodes(packing: &Packing<'_>) -> Vec<Vec<Leaving>> {
    let problem = packing.problem;
    let mut contents: Vec<Vec<Leaving>> = Vec::new();
    contents.resize_with(problem.room.len(), Vec::new);
    for assignment in packing.state.assignments.iter().filter(|assignment| assignment.copies > 0) {
        let Target::Node(node) = assignment.target else { continue };
        if !problem.is_free(assignment.class) {
            continue;
        }
        let Some(on_node) = contents.get_mut(model::Id::index(node)) else { continue };
        match on_node.iter_mut().find(|leaving: &&mut Leaving| leaving.class == assignment.class) {
            Some(leaving) => leaving.copies += assignment.copies,
            None => on_node.push(Leaving { class: assignment.class, alternative: 0, copies: assignment.copies }),
        }
    }
    contents
}
