//! What must hold at all times:
//!
//! * Disruption comes to rest: once nothing is to be done nothing is done before something changes, and after a change
//!   there are no more commands than machines several times over.
//! * No command raises the price of the fleet, whatever was launched for it.
//! * No move is undone: unless something has changed meanwhile, no machine is launched for a pod that a command has
//!   moved before the command has paid for itself. That a later command saves still more with it is no undoing: the
//!   price stays below what it was. These moves are counted.
//! * In the end nothing is under way, and every pod runs.

use std::collections::BTreeMap;

use model::Timestamp;

use crate::rules::Decision;
use crate::world::{PodKey, World};

/// Commands that may follow a change, for each machine that there was; and some more.
const COMMANDS_FOR_EACH_MACHINE: usize = 3;
const MORE_COMMANDS: usize = 10;

/// How a pod was moved.
#[derive(Debug, Clone, Copy)]
struct Moved {
    /// How many changes there had been.
    changes: usize,
    /// When it has paid for itself.
    paid_back_at: Timestamp,
}

impl Moved {
    /// Whether it has not paid for itself, and nothing has changed since.
    fn is_fresh(self, changes: usize, now: Timestamp) -> bool {
        self.changes == changes && self.paid_back_at > now
    }
}

#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) violations: Vec<String>,
    /// Pods that were moved again before the last move had paid for itself, with nothing changed meanwhile.
    pub(super) moved_again: usize,
    changes: usize,
    machines_then: usize,
    commands_since: usize,
    is_at_rest: bool,
    /// Pods of machines that go, with what moves them.
    moving: BTreeMap<PodKey, Moved>,
    /// Pods that were moved, with the last command that did.
    moved: BTreeMap<PodKey, Moved>,
}

impl Checks {
    /// Something has happened that disruption may answer to.
    pub(super) fn changed(&mut self, machines: usize) {
        self.changes += 1;
        self.machines_then = machines;
        self.commands_since = 0;
        self.is_at_rest = false;
    }

    /// Disruption has looked at the cluster; whether nothing was to be done and nothing is awaited.
    pub(super) fn looked(&mut self, is_at_rest: bool) {
        self.is_at_rest = is_at_rest;
    }

    /// A command begins, with what it saves by the prices of what was launched.
    pub(super) fn begins(&mut self, now: Timestamp, world: &World, (decision, saving): (&Decision, i64)) {
        let hour = now.0 as f64 / 3_600_000.0;
        let mut violate = |what: String| self.violations.push(format!("hour {hour:.2}: {what}"));
        if self.is_at_rest {
            violate(format!("{:?} go though nothing was to be done and nothing has changed", decision.going));
        }
        if saving <= 0 {
            violate(format!("{:?} go, and the fleet costs {} more", decision.going, -saving));
        }
        self.commands_since += 1;
        if self.commands_since > COMMANDS_FOR_EACH_MACHINE * self.machines_then + MORE_COMMANDS {
            violate(format!("{} commands since the last change", self.commands_since));
        }
        let pays_back_in = decision.evictions_nano_usd * 3_600_000 / i128::from(saving.max(1));
        let pays_back_in = i64::try_from(pays_back_in).unwrap_or(i64::MAX);
        let paid_back_at = Timestamp(now.0.saturating_add(pays_back_in));
        for (pod, _) in decision.going.iter().flat_map(|machine| world.pods_on(*machine)) {
            let before = self.moved.remove(&pod);
            self.moved_again += usize::from(before.is_some_and(|before| before.is_fresh(self.changes, now)));
            self.moving.insert(pod, Moved { changes: self.changes, paid_back_at });
        }
    }

    /// Pods were evicted, each with what takes its place.
    pub(super) fn moved(&mut self, successors: &[(PodKey, PodKey)]) {
        for (before, after) in successors {
            if let Some(moved) = self.moving.remove(before) {
                self.moved.insert(*after, moved);
            }
        }
    }

    /// A machine is launched for these pods, which wait.
    pub(super) fn launched_for(&mut self, now: Timestamp, pods: &[PodKey]) {
        let is_fresh = |pod: &&PodKey| self.moved.get(pod).is_some_and(|moved| moved.is_fresh(self.changes, now));
        if let Some(pod) = pods.iter().find(is_fresh) {
            let hour = now.0 as f64 / 3_600_000.0;
            self.violations
                .push(format!("hour {hour:.2}: a machine is launched for {pod:?}, which was moved to save one"));
        }
    }

    pub(super) fn at_the_end(&mut self, world: &World, under_way: usize) {
        if under_way > 0 || !self.is_at_rest {
            self.violations.push(format!("it has not come to rest in the end; {under_way} commands are under way"));
        }
        let waiting = world.pods.values().filter(|pod| pod.on.is_none()).count();
        if waiting > 0 {
            self.violations.push(format!("{waiting} pods wait in the end"));
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Timestamp;

    use super::*;
    use crate::market::Wanted;
    use crate::trace::Workload;
    use crate::world::MachineKey;

    /// A machine with a pod.
    fn world() -> (World, MachineKey, PodKey) {
        let workload = Workload { name: "app".to_owned(), milli_cpu: 500, memory_mib: 500, zone: None };
        let mut world = World::new(&[workload]).unwrap();
        let wanted = Wanted { types: vec!["c7g.large".into()], zones: Vec::new() };
        let machine = world.launch(&wanted, Timestamp(0)).unwrap().unwrap();
        world.make_ready(machine, Timestamp(0));
        world.scale(0, 1, Timestamp(0));
        world.schedule(Timestamp(0));
        let pod = world.pods_on(machine).map(|(key, _)| key).next().unwrap();
        (world, machine, pod)
    }

    fn goes(machine: MachineKey) -> Decision {
        // A dollar an hour pays it back in two.
        Decision { going: vec![machine], launches: Vec::new(), moves: Vec::new(), evictions_nano_usd: 2_000_000_000 }
    }

    const DOLLAR: i64 = 1_000_000_000;
    const HOUR: i64 = 3_600_000;

    #[test]
    fn a_command_that_costs_more_or_comes_out_of_nothing_is_told() {
        let (world, machine, _) = world();
        let mut checks = Checks::default();
        checks.changed(1);
        checks.begins(Timestamp(0), &world, (&goes(machine), DOLLAR));
        assert!(checks.violations.is_empty(), "{:?}", checks.violations);
        checks.begins(Timestamp(0), &world, (&goes(machine), 0));
        assert!(checks.violations[0].contains("costs 0 more"), "{:?}", checks.violations);
        let mut checks = Checks::default();
        checks.looked(true);
        checks.begins(Timestamp(0), &world, (&goes(machine), DOLLAR));
        assert!(checks.violations[0].contains("nothing has changed"), "{:?}", checks.violations);
        let mut checks = Checks::default();
        checks.changed(1);
        let most = COMMANDS_FOR_EACH_MACHINE + MORE_COMMANDS;
        (0..=most).for_each(|_| checks.begins(Timestamp(9 * HOUR), &world, (&goes(MachineKey(99)), DOLLAR)));
        assert_eq!(checks.violations.len(), 1, "{:?}", checks.violations);
    }

    #[test]
    fn a_move_that_has_not_paid_for_itself_is_neither_undone_nor_followed_by_another_unless_something_has_changed() {
        let again_at = |at: i64, changes: bool| {
            let (mut world, machine, pod) = world();
            let mut checks = Checks::default();
            checks.changed(1);
            checks.begins(Timestamp(0), &world, (&goes(machine), DOLLAR));
            let wanted = Wanted { types: vec!["c7g.large".into()], zones: Vec::new() };
            let other = world.launch(&wanted, Timestamp(0)).unwrap().unwrap();
            world.make_ready(other, Timestamp(0));
            world.promise(pod, other);
            let successors = world.remove(machine, Timestamp(0));
            assert_eq!(successors.iter().map(|(before, _)| *before).collect::<Vec<_>>(), [pod]);
            checks.moved(&successors);
            world.schedule(Timestamp(0));
            if changes {
                checks.changed(1);
            }
            let pods: Vec<PodKey> = successors.iter().map(|(_, after)| *after).collect();
            checks.launched_for(Timestamp(at), &pods);
            checks.begins(Timestamp(at), &world, (&goes(other), DOLLAR));
            (checks.violations.len(), checks.moved_again)
        };
        assert_eq!(again_at(HOUR, false), (1, 1));
        assert_eq!(again_at(HOUR, true), (0, 0));
        assert_eq!(again_at(2 * HOUR, false), (0, 0));
    }

    #[test]
    fn what_is_not_over_in_the_end_is_told() {
        let (mut world, machine, _) = world();
        let mut checks = Checks::default();
        checks.looked(true);
        checks.at_the_end(&world, 0);
        assert!(checks.violations.is_empty(), "{:?}", checks.violations);
        world.remove(machine, Timestamp(0));
        checks.at_the_end(&world, 1);
        assert_eq!(checks.violations.len(), 2, "{:?}", checks.violations);
    }
}
