//! Counters of pools and compatibility groups while devices are picked and taken back.

use std::sync::Arc;

use model::{Id, IdVec};
use smallvec::SmallVec;

use super::{BranchIndex, Pick, Search};
use crate::compile::device::Draw;
use crate::compile::ids::{CounterIndex, CounterSetIndex};
use crate::inventory::view::{PoolPosition, Position};
use dra_types::compat::Gate;

/// What is left of a pool's counters.
#[derive(Debug)]
pub(super) struct CountersLeft {
    left: IdVec<CounterIndex, Option<i128>>,
    /// Some counter was short before anything was picked: nothing that draws counters can be picked.
    overdrawn: bool,
}

/// A counter, what a device draws from it, what is left of it.
pub(crate) type DrawWithLeft = ((PoolPosition, CounterIndex), i128, i128);

/// The compatibility groups that all devices drawing from a counter set have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GroupState {
    /// All have none.
    NoGroups,
    Common(Vec<Arc<str>>),
}

impl Search<'_> {
    /// The pool whose counters a pool's devices draw from.
    fn home(&mut self, pool: PoolPosition) -> PoolPosition {
        if !self.inventory.quirks.counters_are_keyed_by_pool_name {
            return pool;
        }
        if let Some(home) = self.homes.get(&pool) {
            return *home;
        }
        let name = |pool: PoolPosition| {
            let pool = &self.view.pools[pool];
            (&self.inventory.pools[pool.pool].id.pool, pool.instance())
        };
        // One of each name is a home, so it does not matter in which order they are looked at.
        let of_same_name = |home: &&PoolPosition| name(**home) == name(pool);
        let home = self.homes.values().find(of_same_name).copied().unwrap_or(pool);
        self.homes.insert(pool, home);
        home
    }

    fn counters_left(&mut self, pool: PoolPosition) -> &mut CountersLeft {
        let (inventory, view, taken) = (self.inventory, self.view, self.taken);
        self.counters.entry(pool).or_insert_with(|| {
            let of = &view.pools[pool];
            let left = of.totals.iter().enumerate().map(|(index, total)| {
                total.map(|total| total - taken.drawn(of.counter(CounterIndex::from_index(index))))
            });
            let mut left: IdVec<CounterIndex, Option<i128>> = left.collect();
            for &device in &of.drawing {
                let entry = &inventory.devices[device];
                if !taken.in_base(of.unit(inventory, device)) {
                    continue;
                }
                for (counter, amount) in entry.draws.iter().flat_map(|draw| &draw.counters) {
                    if let Some(left) = &mut left[*counter] {
                        *left -= amount;
                    }
                }
            }
            let overdrawn = left.iter().flatten().any(|left| *left < 0);
            CountersLeft { left, overdrawn }
        })
    }

    /// Draws what a device draws; false, and nothing drawn, if some counter is short.
    pub(super) fn draw(&mut self, position: Position) -> bool {
        let pool = self.view_device(position).pool;
        let home = self.home(pool);
        if self.counters_left(home).overdrawn {
            return false;
        }
        if self.change_counters(position, -1) {
            return true;
        }
        self.change_counters(position, 1);
        false
    }

    /// Changes counters by what a device draws, `sign` times; whether none is short then.
    pub(super) fn change_counters(&mut self, position: Position, sign: i128) -> bool {
        let pool = self.view_device(position).pool;
        let home = self.home(pool);
        let draws = &self.entry(position).draws;
        let mut enough = true;
        for (counter, amount) in draws.iter().flat_map(|draw| &draw.counters) {
            let Some(counter) = self.counter_at(pool, home, *counter) else { continue };
            if let Some(left) = &mut self.counters_left(home).left[counter] {
                *left += sign * amount;
                enough &= *left >= 0;
            }
        }
        enough
    }

    fn counter_at(&self, pool: PoolPosition, home: PoolPosition, counter: CounterIndex) -> Option<CounterIndex> {
        if pool == home {
            return Some(counter);
        }
        let (of, at) =
            (&self.inventory.pools[self.view.pools[pool].pool], &self.inventory.pools[self.view.pools[home].pool]);
        let (set, name) = &of.counters[counter];
        let same = |(_, (other, other_name)): &(CounterIndex, &(CounterSetIndex, _))| {
            at.sets[*other] == of.sets[*set] && other_name == name
        };
        at.counters.iter_enumerated().find(same).map(|(index, _)| index)
    }

    /// The first counter that is too short for a device now.
    pub(crate) fn short_counter(&mut self, position: Position) -> Option<CounterIndex> {
        // A device that draws nothing asks for no pool's counters: in old releases the pool asked first counts.
        if self.entry(position).draws.is_empty() {
            return None;
        }
        let pool = self.view_device(position).pool;
        let home = self.home(pool);
        let draws: SmallVec<[(CounterIndex, i128); 4]> =
            self.entry(position).draws.iter().flat_map(|draw| draw.counters.iter().copied()).collect();
        if self.counters_left(home).overdrawn {
            return draws.first().map(|(counter, _)| *counter);
        }
        draws.into_iter().find_map(|(counter, amount)| {
            let at = self.counter_at(pool, home, counter)?;
            let left = self.counters_left(home).left[at]?;
            (left < amount).then_some(counter)
        })
    }

    /// What is left of the counters that a device draws from, with what it draws; only for pools with counters of their
    /// own.
    pub(crate) fn draws_with_left(&mut self, position: Position) -> SmallVec<[DrawWithLeft; 4]> {
        if self.entry(position).draws.is_empty() {
            return SmallVec::new();
        }
        let pool = self.view_device(position).pool;
        let home = self.home(pool);
        let draws: SmallVec<[(CounterIndex, i128); 4]> =
            self.entry(position).draws.iter().flat_map(|draw| draw.counters.iter().copied()).collect();
        let with_left = draws.into_iter().filter_map(|(counter, amount)| {
            let at = self.counter_at(pool, home, counter)?;
            let left = self.counters_left(home).left[at]?;
            Some(((home, at), amount, left))
        });
        with_left.collect()
    }

    pub(super) fn join_groups(&mut self, pick: &mut Pick) -> bool {
        if !self.inventory.compat.is_on(Gate::DeviceCompatibilityGroups) {
            return true;
        }
        let pool = self.view_device(pick.position).pool;
        for draw in &self.entry(pick.position).draws {
            let key = (pool, draw.set);
            let current = match self.groups.get(&key) {
                Some(state) => Some(state.clone()),
                None => self.groups_in_use(pool, draw.set),
            };
            let Some(next) = joined(current.as_ref(), draw) else { return false };
            pick.groups.push((key, self.groups.insert(key, next)));
        }
        true
    }

    pub(super) fn leave_groups(&mut self, pick: &mut Pick) {
        while let Some((key, before)) = pick.groups.pop() {
            match before {
                Some(state) => self.groups.insert(key, state),
                None => self.groups.remove(&key),
            };
        }
    }

    /// What devices that are allocated have in common.
    fn groups_in_use(&self, pool: PoolPosition, set: CounterSetIndex) -> Option<GroupState> {
        let mut state: Option<GroupState> = None;
        let of = &self.view.pools[pool];
        for &device in &of.drawing {
            let (entry, unit) = (&self.inventory.devices[device], of.unit(self.inventory, device));
            if !self.taken.is_dedicated(unit) && self.taken.shares(unit).is_none() {
                continue;
            }
            for draw in entry.draws.iter().filter(|draw| draw.set == set) {
                state = Some(folded(state, draw));
            }
        }
        state
    }

    /// Whether compatibility groups let a device in now.
    pub(crate) fn groups_admit(&mut self, position: Position) -> bool {
        let branch = BranchIndex::from_index(0);
        let mut trial = Pick { position, branch, share: None, drew: false, groups: Vec::new() };
        let admitted = self.join_groups(&mut trial);
        self.leave_groups(&mut trial);
        admitted
    }
}

/// The state of a counter set after a device joined; None if it may not.
fn joined(current: Option<&GroupState>, draw: &Draw) -> Option<GroupState> {
    match current {
        None if draw.groups.is_empty() => Some(GroupState::NoGroups),
        None => Some(GroupState::Common(draw.groups.to_vec())),
        Some(GroupState::NoGroups) => draw.groups.is_empty().then_some(GroupState::NoGroups),
        Some(GroupState::Common(common)) => {
            let left: Vec<Arc<str>> = common.iter().filter(|group| draw.groups.contains(group)).cloned().collect();
            (!left.is_empty()).then_some(GroupState::Common(left))
        }
    }
}

/// The state of a counter set that holds a device already, compatible or not.
fn folded(current: Option<GroupState>, draw: &Draw) -> GroupState {
    match current {
        Some(GroupState::Common(common)) if !draw.groups.is_empty() => {
            GroupState::Common(common.into_iter().filter(|group| draw.groups.contains(group)).collect())
        }
        Some(state) => state,
        None if draw.groups.is_empty() => GroupState::NoGroups,
        None => GroupState::Common(draw.groups.to_vec()),
    }
}
