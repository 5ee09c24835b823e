//! Room for left-over copies among more pods than an exact search could go through: others move.
//!
//! Where a left-over copy could be but for what is there, copies of one other class leave, as few as make room for it, and are placed again like
//! any others: on nodes, in open machines and in new ones. What they displace in turn may move once more. All of it is undone unless each has
//! a place in the end, so nobody loses one. Those that move are pods that no rule, claim or shared volume concerns.
//!
//! Whoever finds no room by that may have some by longer chains, so it proves nothing.
//!
//! Complexity: (nodes and machines) × classes there for a copy, to the power of the length of the chain; bounded by the budget.

use model::{Budget, OutOfBudget, ResourceVec};

use super::{
    classes::ClassId,
    fill::place,
    patterns,
    problem::Problem,
    state::{BinId, State, Target},
};

/// How many times a copy can displace others.
const MAX_LENGTH: usize = 2;

/// Steps of the search that an attempt is worth: copies are moved and moved back.
const STEPS: u64 = 20;

/// So many assignments are looked through in a step.
const ASSIGNMENTS: u64 = 64;

/// Finds room for copies of a class where others move, and returns how many are left.
pub(crate) fn make_room(
    problem: &Problem<'_>,
    state: &mut State,
    class: ClassId,
    mut left: u32,
    budget: &mut Budget,
) -> u32 {
    let mut chain = Chain { problem, budget };
    // What goes without displacing twice is found before all the rest is tried.
    while left > 0 && (1..=MAX_LENGTH).any(|length| matches!(chain.make_room(state, class, length), Ok(true))) {
        left -= 1;
        // Those that moved may have left room for more.
        left = place(problem, state, class, left);
    }
    left
}

struct Chain<'p, 's, 'b> {
    problem: &'p Problem<'s>,
    budget: &'b mut Budget,
}

/// Copies that could leave a node or machine.
struct Leaving {
    class: ClassId,
    /// The position of the alternative in a machine's pool.
    alternative: usize,
    copies: u32,
}

impl Chain<'_, '_, '_> {
    /// Places one copy where others move; whether that goes.
    fn make_room(&mut self, state: &mut State, class: ClassId, length: usize) -> Result<bool, OutOfBudget> {
        let problem = self.problem;
        let wants_more = problem.classes[class].devices.is_some() || !problem.shared_volumes.of(class).is_empty();
        if length == 0 || wants_more {
            return Ok(false);
        }
        self.budget.spend(1 + state.assignments.len() as u64 / ASSIGNMENTS)?;
        let on_nodes = contents_of_nodes(problem, state);
        for &node in problem.node_order.iter().filter(|&&node| problem.node_accepts(class, node)) {
            let Some(on_node) = on_nodes.get(model::Id::index(node)) else { continue };
            let room = state.room[node].clone();
            for leaving in on_node {
                if self.exchange(state, Target::Node(node), class, leaving, &room, length)? {
                    return Ok(true);
                }
            }
        }
        // Claims and rules over labels decide what machines become.
        if problem.devices.is_some() || problem.keeps_outside {
            return Ok(false);
        }
        for id in (0..state.bins.len()).map(BinId) {
            let Some(bin) = state.bins.get(id.0) else { break };
            let table = &problem.pools[bin.pool];
            if table.by_class[class].is_empty() || bin.shares_volumes() {
                continue;
            }
            let mut room = table.most(&table.members);
            room.saturating_sub_assign(&bin.requests);
            let held = bin.contents.iter().filter(|(held, ..)| *held != class && patterns::is_free(problem, *held));
            let held: Vec<Leaving> =
                held.map(|&(class, alternative, copies)| Leaving { class, alternative, copies }).collect();
            for leaving in &held {
                if self.exchange(state, Target::Bin(id), class, leaving, &room, length)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Places one copy where some of another class leave, and these elsewhere; whether that goes. `room` is free there at most.
    fn exchange(
        &mut self,
        state: &mut State,
        target: Target,
        class: ClassId,
        leaving: &Leaving,
        room: &ResourceVec,
        length: usize,
    ) -> Result<bool, OutOfBudget> {
        let problem = self.problem;
        let wanted = &problem.classes[class].shape.requests;
        let Some(copies) = fewest(wanted, room, &problem.classes[leaving.class].shape.requests, leaving.copies) else {
            return Ok(false);
        };
        self.budget.spend(STEPS)?;
        let mark = state.mark();
        let is_placed = match target {
            Target::Node(node) => {
                state.take_from_node(problem, node, leaving.class, copies);
                let fits = state.copies_on_node(problem, node, class, 1) == 1;
                if fits {
                    state.place_on_node(problem, node, class, 1);
                }
                fits
            }
            Target::Bin(id) => {
                state.take_from_bin(problem, id, (leaving.class, leaving.alternative), copies);
                let pool = state.bins.get(id.0).map(|bin| bin.pool);
                let mut ways = pool.iter().flat_map(|&pool| &problem.pools[pool].by_class[class]);
                let way = ways.find(|way| state.copies_in_bin(problem, id, class, way, 1) == 1);
                if let Some(way) = way {
                    state.place_in_bin(problem, id, class, way, 1);
                }
                way.is_some()
            }
        };
        let mut left = copies;
        let mut result = Ok(false);
        if is_placed {
            left = place(problem, state, leaving.class, copies);
            while left > 0 {
                result = self.make_room(state, leaving.class, length - 1);
                if !matches!(result, Ok(true)) {
                    break;
                }
                left -= 1;
            }
        }
        if is_placed && left == 0 {
            state.commit(mark);
            return Ok(true);
        }
        state.rollback(problem, mark);
        result.map(|_| false)
    }
}

/// How many copies have to leave so that one of another class has room, if so many are there and it is not for want of them.
fn fewest(wanted: &ResourceVec, room: &ResourceVec, each: &ResourceVec, most: u32) -> Option<u32> {
    let missing = wanted.iter().map(|(resource, amount)| (resource, amount.saturating_sub(room.get(resource))));
    let copies = missing.filter(|(_, missing)| *missing > 0).try_fold(1, |copies, (resource, missing)| {
        let each = each.get(resource);
        (each > 0).then(|| copies.max(missing.div_euclid(each) + i64::from(missing.rem_euclid(each) > 0)))
    })?;
    u32::try_from(copies).ok().filter(|copies| *copies <= most)
}

/// By node: copies of this plan that could leave, in the order of placing.
fn contents_of_nodes(problem: &Problem<'_>, state: &State) -> Vec<Vec<Leaving>> {
    let mut contents: Vec<Vec<Leaving>> = Vec::new();
    contents.resize_with(problem.room.len(), Vec::new);
    for assignment in state.assignments.iter().filter(|assignment| assignment.copies > 0) {
        let Target::Node(node) = assignment.target else { continue };
        if !patterns::is_free(problem, assignment.class) {
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
