//! Which machines may open to all pods at once, because the plan holds for every order of binding.
//!
//! **Problem.** A toleration costs a request for each pod. It is needed if kube-scheduler could bind the pods
//! differently and leave a pod without a place or a machine empty. Otherwise it is enough to open the machine.
//!
//! **Rules.** The pods that can be bound to a machine are called its visitors: the classes of waiting pods, planned or
//! not, that its labels and taints admit and that find room beside what is bound there. A machine opens without patches
//! in two cases only:
//!
//! * *All its own* ([`Round::holds_all_its_own`]): its visitors are planned here and nowhere else, and all of them fit
//!   at once. Then each of them fits, in every order.
//! * *One class* ([`Round::holds_one_class`]): its visitors are pods of one class, and so are those of every machine
//!   this class is planned onto; it has room for as many as are planned here and no more. Then pods exchange places
//!   within their class, which is no loss, and each machine ends up with as many as planned. Machines that are closed
//!   or still to come count with their planned pods, whose places are kept.
//!
//! In both cases the classes are plain ([`Class::is_plain`]), all their pods are planned, no other open node has room
//! for one of them, none has to preempt, and the room of DaemonSets stays free whichever pods are bound.
//!
//! Cost: classes times machines, for each machine that is checked. The pods of a machine for which no case is proven
//! are patched.

use model::ResourceVec;

/// Pods that wait and that nothing but their names tells apart.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    /// What each of them takes.
    pub requests: ResourceVec,
    /// Their priority.
    pub priority: i32,
    /// Whether nothing but labels, taints and resources decides where they go, no other pod's rules count them, and
    /// kube-scheduler may bind them as soon as it can.
    pub is_plain: bool,
    /// How many of them no machine was planned for.
    pub unplanned: u32,
    /// Whether a node that lets everybody in, and that none of them is planned onto, has room for one of them.
    pub has_room_elsewhere: bool,
}

/// How far a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing but our taint keeps its pods away.
    Usable,
    /// It lets everybody in, and planned pods have not come yet.
    Open,
    /// Not usable yet; what it will have is not known for certain.
    Coming,
}

/// Whether pods of a class may come to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Labels or taints keep them away.
    Barred,
    /// If there is room for them.
    IfFree,
    /// They would preempt bound pods to make room.
    ByPreemption,
}

/// A machine that waiting pods are planned onto.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// How far it is.
    pub stage: Stage,
    /// What bound pods leave of it.
    pub free: ResourceVec,
    /// What pods of DaemonSets that are not there yet will take of that.
    pub reserved: ResourceVec,
    /// For each class, whether its pods may come. Nothing is known of one that is [`Stage::Coming`].
    pub entries: Vec<Entry>,
    /// For each class, how many of its pods are planned onto this machine.
    pub planned: Vec<u32>,
}

impl Machine {
    fn planned_of(&self, class: usize) -> u32 {
        self.planned.get(class).copied().unwrap_or(0)
    }

    fn entry(&self, class: usize) -> Entry {
        self.entries.get(class).copied().unwrap_or(Entry::Barred)
    }

    /// The classes that are planned onto it.
    fn classes(&self) -> impl Iterator<Item = usize> {
        self.planned.iter().enumerate().filter(|(_, count)| **count > 0).map(|(class, _)| class)
    }
}

/// What waits, and the machines it waits for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Round {
    /// All pods that wait.
    pub classes: Vec<Class>,
    /// All machines that some of them wait for.
    pub machines: Vec<Machine>,
}

impl Round {
    /// For each machine, whether it may open with none of its pods patched.
    pub(crate) fn needs_no_patches(&self) -> Vec<bool> {
        self.machines.iter().map(|machine| self.holds_in_any_order(machine)).collect()
    }

    fn holds_in_any_order(&self, machine: &Machine) -> bool {
        machine.stage == Stage::Usable
            && machine.classes().next().is_some()
            && machine.classes().all(|class| self.is_steady(class))
            && (self.holds_one_class(machine) || self.holds_all_its_own(machine))
    }

    /// Whether pods of that class go nowhere but to machines they are planned onto.
    fn is_steady(&self, index: usize) -> bool {
        let goes_astray = |machine: &Machine| {
            machine.stage == Stage::Open && machine.planned_of(index) == 0 && self.visits(index, machine)
        };
        self.classes.get(index).is_some_and(|class| {
            class.is_plain
                && class.unplanned == 0
                && !class.has_room_elsewhere
                && !self.machines.iter().any(goes_astray)
        })
    }

    /// Whether pods of that class could come to that machine if it were open.
    fn visits(&self, class: usize, machine: &Machine) -> bool {
        match machine.entry(class) {
            Entry::Barred => false,
            Entry::IfFree => self.classes.get(class).is_some_and(|class| class.requests.fits_in(&machine.free)),
            Entry::ByPreemption => true,
        }
    }

    fn visitors(&self, machine: &Machine) -> impl Iterator<Item = usize> {
        (0..self.classes.len()).filter(|class| self.visits(*class, machine))
    }

    fn holds_all_its_own(&self, machine: &Machine) -> bool {
        let is_own = |class: usize| self.machines.iter().filter(|other| other.planned_of(class) > 0).count() == 1;
        let mut needed = machine.reserved.clone();
        let mut priorities = Vec::new();
        for class in machine.classes() {
            let Some(of_class) = self.classes.get(class) else { return false };
            priorities.push(of_class.priority);
            let count = i64::from(machine.planned_of(class));
            if !is_own(class)
                || machine.entry(class) != Entry::IfFree
                || needed.checked_add_multiple(&of_class.requests, count).is_err()
            {
                return false;
            }
        }
        needed.fits_in(&machine.free)
            && priorities.iter().min() == priorities.iter().max()
            && self.visitors(machine).all(|class| machine.planned_of(class) > 0)
    }

    fn holds_one_class(&self, machine: &Machine) -> bool {
        let mut own = machine.classes();
        let (Some(class), None) = (own.next(), own.next()) else { return false };
        let mut members = self.machines.iter().filter(|member| member.planned_of(class) > 0);
        self.spare(class, machine) == Some(0)
            && members.all(|member| match (member.stage, self.spare(class, member)) {
                (_, None) => false,
                (Stage::Open, Some(spare)) => spare == 0,
                // Closed to all but its own.
                (Stage::Usable | Stage::Coming, Some(_)) => true,
            })
    }

    /// How many more pods of that class a machine takes than are planned onto it; `None` if others could come, or not
    /// all of those that are planned, or if they could take what DaemonSets need.
    fn spare(&self, class: usize, machine: &Machine) -> Option<u32> {
        if machine.classes().any(|other| other != class) {
            return None;
        }
        match machine.stage {
            Stage::Coming => return Some(0),
            Stage::Usable | Stage::Open => {}
        }
        let requests = &self.classes.get(class)?.requests;
        let mut beside_reserved = machine.free.clone();
        beside_reserved.saturating_sub_assign(&machine.reserved);
        let room = requests.times_in(&machine.free, u32::MAX);
        let is_left_over =
            machine.reserved.fits_in(&machine.free) && room == requests.times_in(&beside_reserved, u32::MAX);
        let is_alone = machine.entry(class) == Entry::IfFree && self.visitors(machine).all(|other| other == class);
        if is_left_over && is_alone { room.checked_sub(machine.planned_of(class)) } else { None }
    }
}

#[cfg(test)]
mod tests;
