//! Whether a plan of disruption is right.
//!
//! What would be if the machines went is played as any plan is; that it is what would be, that nothing goes which may
//! not, that budgets hold and that the sums are right is looked at here, one machine at a time.

use std::collections::{BTreeMap, BTreeSet};

use api::labels::CAPACITY_TYPE_SPOT as SPOT;
use model::{NodePoolName, PriceNanoUsdPerHour, Uid};
use scheduling::Snapshot;
use scheduling::disruption::plan::{Command, DisruptionPlan, Place, Simulated, TerminateFirst};
use scheduling::disruption::reason::NodeReason;
use scheduling::plan::MachineId;
use scheduling::snapshot::expiration::ExpirationPolicy;
use scheduling::snapshot::fleet::{ConsolidationPolicy, Fleet, FleetNode, Moves, Reason, UnderWay};
use scheduling::snapshot::{Excluded, Limit, NodeId, NodeState};

use crate::launches;

/// What is wrong with the plan; nothing for a right one.
pub fn check_disruption(snapshot: &Snapshot, plan: &DisruptionPlan) -> Vec<String> {
    let Some(fleet) = snapshot.fleet.as_deref() else { return Vec::new() };
    let checking = Checking { snapshot, fleet, plan };
    let mut problems = checking.reasons();
    problems.extend(checking.going());
    problems.extend(checking.budgets());
    problems.extend(checking.replicas());
    for (index, command) in plan.commands.iter().enumerate() {
        let of_command = checking.command(command);
        problems.extend(of_command.into_iter().map(|problem| format!("command {}: {problem}", index + 1)));
    }
    problems.extend(checking.shared_machines());
    if let Some(simulated) = &plan.simulated {
        problems.extend(checking.simulated(simulated));
        problems.extend(checking.whole(simulated));
        problems.extend(super::check(&simulated.snapshot, &simulated.plan));
    }
    problems
}

struct Checking<'a> {
    snapshot: &'a Snapshot,
    fleet: &'a Fleet,
    plan: &'a DisruptionPlan,
}

impl Checking<'_> {
    fn machine(&self, node: NodeId) -> Option<&FleetNode> {
        self.fleet.nodes.iter().find(|machine| machine.node == node)
    }

    fn pool(&self, node: NodeId) -> Option<&NodePoolName> {
        self.snapshot.nodes.try_get(node)?.node_pool.as_ref()
    }

    fn name(&self, node: NodeId) -> &str {
        self.snapshot.nodes.try_get(node).map_or("", |node| node.display_name())
    }

    /// Nodes of commands, in their order.
    fn leaving(&self) -> Vec<NodeId> {
        self.plan.commands.iter().flat_map(|command| &command.nodes).copied().collect()
    }

    /// One reason for each machine, and the right one for those that go.
    fn reasons(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let told: Vec<NodeId> = self.plan.node_reasons.iter().map(|(node, _)| *node).collect();
        for machine in &self.fleet.nodes {
            let count = told.iter().filter(|node| **node == machine.node).count();
            if count != 1 {
                problems.push(format!("{} has {count} reasons", self.name(machine.node)));
            }
        }
        if told.len() != self.fleet.nodes.len() {
            problems.push(format!("{} reasons for {} machines", told.len(), self.fleet.nodes.len()));
        }
        if !told.is_sorted_by_key(|node| self.name(*node)) {
            problems.push("reasons are not by name".to_owned());
        }
        for (node, reason) in &self.plan.node_reasons {
            let commands = self.plan.commands.iter().enumerate();
            let of: Vec<usize> =
                commands.filter(|(_, command)| command.nodes.contains(node)).map(|(index, _)| index).collect();
            let is_right = match reason {
                NodeReason::Goes { command } => of.as_slice() == [*command],
                _ => of.is_empty(),
            };
            if !is_right {
                problems.push(format!("{} is in commands {of:?}: {reason:?}", self.name(*node)));
            }
        }
        problems
    }

    /// Machines that go and may not.
    fn going(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for command in &self.plan.commands {
            for &node in &command.nodes {
                let Some(machine) = self.machine(node) else {
                    problems.push(format!("{} is none of ours", self.name(node)));
                    continue;
                };
                let why = self.why_it_may_not_go(machine, command);
                problems.extend(why.map(|why| format!("{} goes as {}: {why}", self.name(node), command.reason)));
            }
        }
        problems
    }

    fn why_it_may_not_go(&self, machine: &FleetNode, command: &Command) -> Option<&'static str> {
        let (reason, from_template) = (command.reason, command.static_pool.is_some());
        let node = self.snapshot.nodes.try_get(machine.node)?;
        let pool = node.node_pool.as_ref().and_then(|pool| self.fleet.pools.get(pool));
        let claim = &machine.claim;
        let moves = |is_it: fn(&Moves) -> bool| machine.pods.iter().any(|pod| is_it(&pod.moves));
        let of_policies = machine.unhealthy.as_ref().is_some_and(|unhealthy| unhealthy.drain_bound.is_some());
        let is_forced = match reason {
            Reason::Drifted | Reason::Expired => claim.termination_grace_period.is_some(),
            Reason::Unhealthy => claim.termination_grace_period.is_some() || of_policies,
            Reason::Empty | Reason::Underutilized => false,
        };
        let repairs = reason == Reason::Unhealthy && machine.unhealthy.is_some();
        let is_protected = machine.is_protected && !repairs;
        let is_usable = match node.state {
            NodeState::Initialized => true,
            NodeState::Registered => repairs,
            NodeState::Launched | NodeState::Launching => false,
        };
        let quiet = || claim.consolidatable.is_some() && pool.is_some_and(|pool| pool.consolidate_after.is_some());
        if machine.under_way.is_some() || node.excluded == Some(Excluded::Deleting) {
            Some("something is under way")
        } else if node.name.is_none() || !is_usable {
            Some("it is not initialized")
        } else if pool.is_none_or(|pool| pool.is_static() != from_template || !pool.faults.is_empty()) {
            Some("its nodepool has none to give")
        } else if is_protected || machine.pods.iter().any(|pod| pod.forbidden.is_some() && !is_forced) {
            Some("that is forbidden")
        } else if from_template {
            self.why_it_is_as_wanted(machine, reason)
        } else if !repairs && moves(|moves| matches!(moves, Moves::LeftToOthers(_))) {
            Some("somebody else places one of its pods")
        } else {
            match reason {
                Reason::Empty if moves(|moves| !matches!(moves, Moves::No)) => Some("it has pods that move"),
                Reason::Empty if !quiet() => Some("it has not been quiet"),
                Reason::Drifted | Reason::Expired | Reason::Unhealthy => self.why_it_is_as_wanted(machine, reason),
                Reason::Underutilized if !moves(|moves| !matches!(moves, Moves::No)) => Some("it is empty"),
                Reason::Underutilized if !quiet() => Some("it has not been quiet"),
                Reason::Underutilized if pool.is_some_and(|pool| pool.policy == ConsolidationPolicy::WhenEmpty) => {
                    Some("its nodepool removes empty nodes only")
                }
                Reason::Underutilized if machine.machine.price().is_none() => Some("nobody knows what it costs"),
                Reason::Empty | Reason::Underutilized => None,
            }
        }
    }

    /// Why a machine need not be replaced.
    fn why_it_is_as_wanted(&self, machine: &FleetNode, reason: Reason) -> Option<&'static str> {
        match reason {
            Reason::Drifted if machine.claim.drifted.is_none() && !self.is_expired(machine) => {
                Some("it has not drifted")
            }
            // One that is replaced together with a broken one has a reason of its own.
            Reason::Unhealthy if machine.claim.drifted.is_some() || self.is_expired(machine) => None,
            Reason::Unhealthy => match &machine.unhealthy {
                Some(unhealthy) if unhealthy.hold.is_some() => Some("something keeps it from being repaired"),
                Some(_) => None,
                None => Some("it is not broken"),
            },
            Reason::Expired if !self.is_expired(machine) => Some("it is not past its time, or goes by force"),
            Reason::Underutilized | Reason::Empty => Some("it is not replaced for that"),
            Reason::Drifted | Reason::Expired => None,
        }
    }

    /// Whether a machine is past its time, and disruption is to replace it for that.
    fn is_expired(&self, machine: &FleetNode) -> bool {
        let rules = &self.snapshot.options.disruption.expiration;
        let of_pool = self.pool(machine.node).and_then(|pool| self.fleet.pools.get(pool)).and_then(|it| it.expiration);
        let is_graceful = of_pool.unwrap_or(rules.policy) == ExpirationPolicy::Graceful;
        let now = self.snapshot.now.0;
        is_graceful
            && machine.claim.expires_at.is_some_and(|at| at.0 <= now && now < at.0.saturating_add(rules.graceful_for.0))
    }

    /// Each machine of the commands, one after the other, finds room in every budget that is for its reason.
    fn budgets(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut taken: BTreeMap<&NodePoolName, u32> = BTreeMap::new();
        for command in &self.plan.commands {
            for &node in &command.nodes {
                let Some(name) = self.pool(node) else { continue };
                let Some(pool) = self.fleet.pools.get(name) else { continue };
                let is_initialized =
                    self.snapshot.nodes.try_get(node).is_some_and(|node| node.state == NodeState::Initialized);
                if !is_initialized {
                    continue;
                }
                let unhealthy = self.machine(node).and_then(|machine| machine.unhealthy.as_ref());
                let is_broken = unhealthy.is_some_and(|unhealthy| unhealthy.hold.is_none());
                // A drifted one that shares a replacement with a broken one goes by the budgets for drift.
                let reason = match command.reason {
                    Reason::Unhealthy if !is_broken => Reason::Drifted,
                    reason => reason,
                };
                let unready = if reason == Reason::Unhealthy { 0 } else { pool.unready };
                let before = taken.entry(name).or_default();
                let disrupted = pool.going + unready + *before;
                *before += 1;
                for budget in pool.budgets.iter().filter(|budget| budget.is_for(reason)) {
                    if disrupted >= budget.allowed {
                        problems.push(format!("{} exceeds budgets[{}] of {name}", self.name(node), budget.index));
                    }
                }
            }
        }
        problems
    }

    /// Whether a command moves each pod that has to, and says where to and what it saves.
    fn command(&self, command: &Command) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(pool) = &command.static_pool {
            return self.replacement_by_template(command, pool);
        }
        if command.terminate_first.is_some() {
            return self.termination(command);
        }
        let machines: Vec<&FleetNode> = command.nodes.iter().filter_map(|node| self.machine(*node)).collect();
        let pods = machines.iter().flat_map(|machine| &machine.pods);
        let wanted: BTreeSet<&Uid> =
            pods.filter(|pod| matches!(pod.moves, Moves::As(_))).map(|pod| &pod.pod.uid).collect();
        let Some(simulated) = &self.plan.simulated else {
            if !wanted.is_empty() || !command.moves.is_empty() || !command.replacements.is_empty() {
                problems.push("pods move, and nothing says where to".to_owned());
            }
            return problems;
        };
        let Simulated { snapshot, plan } = &**simulated;
        let mut moved = BTreeSet::new();
        for it in &command.moves {
            let Some(pod) = snapshot.pods.try_get(it.pod).map(|pending| &pending.pod) else { continue };
            let from = self.machine(it.from).map(|machine| &machine.pods).into_iter().flatten();
            if !command.nodes.contains(&it.from) || !from.clone().any(|other| other.pod.uid == pod.uid) {
                problems.push(format!("{} does not run on {}", pod.name, self.name(it.from)));
            }
            if !moved.insert(&pod.uid) {
                problems.push(format!("{} moves twice", pod.name));
            }
            let is_there = match it.to {
                Place::Machine(id) => {
                    let planned = plan.machines.try_get(id).is_some_and(|machine| machine.pods.contains(&it.pod));
                    planned && command.replacements.contains(&id)
                }
                Place::Node(node) => {
                    plan.existing.iter().any(|placement| placement.node == node && placement.pods.contains(&it.pod))
                }
            };
            if !is_there {
                problems.push(format!("{} is not planned where it is to go", pod.name));
            }
            if let Place::Node(node) = it.to {
                problems.extend(self.why_no_destination(node).map(|why| format!("{} goes where {why}", pod.name)));
            }
        }
        if moved != wanted {
            problems.push(format!("{} pods move, {} have to", moved.len(), wanted.len()));
        }
        let before: i64 = machines.iter().filter_map(|machine| machine.machine.price()).map(|price| price.0).sum();
        let after = command.replacements.iter().filter_map(|id| plan.machines.try_get(*id));
        let after: i64 = after.map(|machine| machine.launch.price.0).sum();
        if command.saving != PriceNanoUsdPerHour(before - after) {
            problems.push(format!("it saves {}, not {}", before - after, command.saving.0));
        }
        if command.reason == Reason::Underutilized {
            problems.extend(self.why_no_saving(command, &machines, simulated));
        }
        problems
    }

    /// A command that replaces machines of a static NodePool, one for one, says nothing of pods.
    fn replacement_by_template(&self, command: &Command, pool: &NodePoolName) -> Vec<String> {
        let mut problems = Vec::new();
        if command.terminate_first.is_some() {
            problems.extend(self.termination(command));
        }
        if command.nodes.iter().any(|node| self.pool(*node) != Some(pool)) {
            problems.push(format!("not all of its machines are of nodepool {pool}"));
        }
        if !command.replacements.is_empty() || !command.moves.is_empty() || command.saving.0 != 0 {
            problems.push("it is replaced by its like, and something else is said of it".to_owned());
        }
        problems
    }

    /// A command that launches nothing beforehand may do so, gives a place in a reservation back, and says nothing of
    /// pods.
    fn termination(&self, command: &Command) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.snapshot.options.disruption.may_terminate_first(command.reason) {
            problems.push(format!("nothing that goes for reason {} may go first", command.reason));
        }
        let is_reserved = |node: &NodeId| {
            let offering = self.machine(*node).and_then(|machine| machine.machine.offering);
            let offering = offering.and_then(|(pool, offering, _)| {
                self.snapshot.node_pools.try_get(pool)?.catalogue.offerings.try_get(offering)
            });
            offering.is_some_and(|offering| offering.available && offering.reservation.is_some())
        };
        let needs_reservation = command.terminate_first == Some(TerminateFirst::NoReservedCapacity);
        if needs_reservation && !command.nodes.iter().all(is_reserved) {
            problems.push("it gives no place in a reservation back".to_owned());
        }
        if !command.replacements.is_empty() || !command.moves.is_empty() || command.saving.0 != 0 {
            problems.push("its replacements come afterwards, and something else is said of them".to_owned());
        }
        problems
    }

    /// Machines of static NodePools that go are replaced first, within limits, and none of those that are too many is.
    fn replicas(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, pool) in &self.fleet.pools {
            let Some(replicas) = pool.replicas else { continue };
            let commands = self.plan.commands.iter().filter(|command| command.launches_from() == Some(name));
            let going: usize = commands.map(|command| command.nodes.len()).sum();
            let staying = replicas.active + replicas.pending_disruption;
            let most = staying + replicas.deleting + i64::try_from(going).unwrap_or(i64::MAX);
            if going > 0 && (staying > replicas.wanted || replicas.node_limit.is_some_and(|limit| most > limit)) {
                problems.push(format!("{going} machines of {name} are replaced, and {replicas:?}"));
            }
        }
        problems
    }

    /// A command that is there to save saves something, whatever the provider launches, and replaces spot machines by
    /// spot machines only if that is asked for.
    fn why_no_saving(&self, command: &Command, machines: &[&FleetNode], simulated: &Simulated) -> Option<String> {
        let Simulated { snapshot, plan } = simulated;
        let options = &self.snapshot.options;
        let each = i128::from(options.node_price.0);
        let price = |machine: &&FleetNode| machine.machine.price().map_or(0, |price| i128::from(price.0)) + each;
        let before: i128 = machines.iter().map(price).sum();
        let launched = || command.replacements.iter().filter_map(|id| plan.machines.try_get(*id));
        let mut after = 0;
        for machine in launched() {
            let catalogue = &snapshot.node_pools.try_get(machine.node_pool)?.catalogue;
            let offerings = launches::allowed(snapshot, machine).into_iter();
            let offerings = offerings.filter_map(|id| catalogue.offerings.try_get(id)).filter(|it| it.launchable());
            let offerings: Vec<_> = offerings.collect();
            after += offerings.iter().map(|offering| i128::from(offering.price.0)).max().unwrap_or(0) + each;
            let is_spot = |machine: &&FleetNode| machine.machine.capacity_type.as_deref() == Some(SPOT);
            let may_be_spot = offerings.iter().any(|offering| offering.capacity_type.as_str() == SPOT);
            if may_be_spot && machines.iter().all(is_spot) && !options.disruption.spot_to_spot_consolidation {
                return Some("spot machines are replaced by a spot machine".to_owned());
            }
        }
        (after >= before).then(|| format!("{after} may be launched for {before}"))
    }

    fn why_no_destination(&self, node: NodeId) -> Option<&'static str> {
        let there = self.snapshot.nodes.try_get(node)?;
        let machine = self.machine(node);
        if self.leaving().contains(&node) {
            Some("a command removes the node")
        } else if there.state != NodeState::Initialized || there.excluded.is_some() {
            Some("the node takes no pods now")
        } else if machine.is_some_and(|machine| {
            machine.unhealthy.is_some() || machine.claim.drifted.is_some() || self.is_expired(machine)
        }) {
            Some("the node is to be replaced itself")
        } else {
            None
        }
    }

    /// Machines that take the place of others belong to one command.
    fn shared_machines(&self) -> Vec<String> {
        let mut owners: BTreeMap<MachineId, usize> = BTreeMap::new();
        for machine in self.plan.commands.iter().flat_map(|command| &command.replacements) {
            *owners.entry(*machine).or_default() += 1;
        }
        let shared = owners.iter().filter(|(_, commands)| **commands != 1);
        shared.map(|(machine, commands)| format!("{commands} commands wait for {machine:?}")).collect()
    }

    /// Whether the fleet costs no less afterwards than what it is said to cost at least.
    fn whole(&self, simulated: &Simulated) -> Option<String> {
        let saves = |command: &&Command| command.reason == Reason::Underutilized;
        if !self.plan.commands.iter().any(|command| saves(&command)) {
            return None;
        }
        let fleet = &self.plan.fleet_price;
        let bound = self.plan.fleet_bound?;
        let short = fleet.after.0 < bound.0 && simulated.plan.machines.len() == self.replacements();
        short.then(|| format!("the fleet costs {} afterwards, and {} at least", fleet.after.0, bound.0))
    }

    fn replacements(&self) -> usize {
        self.plan.commands.iter().map(|command| command.replacements.len()).sum()
    }

    /// Whether what was simulated is the snapshot without the machines that go.
    fn simulated(&self, simulated: &Simulated) -> Vec<String> {
        let mut problems = Vec::new();
        let is_going = |machine: &&FleetNode| matches!(machine.under_way, Some(UnderWay::Command(Some(_))));
        let under_way = self.fleet.nodes.iter().filter(is_going).map(|machine| machine.node);
        // Pods of replicas, and of machines that go first, are placed once their machine is drained.
        let is_later = |command: &&Command| command.static_pool.is_some() || command.terminate_first.is_some();
        let later = self.plan.commands.iter().filter(is_later);
        let later: BTreeSet<NodeId> = later.flat_map(|command| &command.nodes).copied().collect();
        let planned = self.leaving().into_iter().filter(|node| !later.contains(node));
        let leaving: BTreeSet<NodeId> = planned.chain(under_way).collect();
        for (id, node) in simulated.snapshot.nodes.iter_enumerated() {
            let Some(before) = self.snapshot.nodes.try_get(id) else {
                problems.push(format!("{} is only simulated", node.display_name()));
                continue;
            };
            let is_as_before = node.pods.iter().map(|pod| &pod.uid).eq(before.pods.iter().map(|pod| &pod.uid))
                && node.allocatable == before.allocatable
                && node.taints == before.taints;
            let is_excluded = match leaving.contains(&id) {
                true => node.excluded == Some(Excluded::Deleting),
                false => before.excluded.is_none() || node.excluded == before.excluded,
            };
            if !is_as_before || !is_excluded {
                problems.push(format!("{} is simulated as what it is not", node.display_name()));
            }
        }
        for (pool, before) in simulated.snapshot.node_pools.iter().zip(&self.snapshot.node_pools) {
            let freed = |limit: Limit| -> i64 {
                let of_pool = leaving.iter().filter(|node| self.pool(**node) == Some(&pool.name));
                let machines = of_pool.filter_map(|node| self.machine(*node));
                machines
                    .map(|machine| match limit {
                        Limit::Nodes => 1,
                        Limit::Resource(resource) => machine.capacity.get(resource),
                    })
                    .sum()
            };
            for (limit, before) in pool.remaining.iter().zip(&before.remaining) {
                if limit.remaining != before.remaining.saturating_add(freed(before.limit)) {
                    problems.push(format!("a limit of {} is simulated with {}", pool.name, limit.remaining));
                }
            }
        }
        problems
    }
}
