//! The loop of events, what it costs, and what must hold at all times.

mod checks;

use std::collections::BTreeMap;

use anyhow::Result;
use model::{DurationMs, Timestamp};
use scheduling::provisioning;
use seeded_random::Random;

use self::checks::Checks;
use crate::rules::{Decision, Destination, Rules, Side};
use crate::trace::{Change, Trace};
use crate::world::{MachineKey, PodKey, World, machine_of, pod_of, wanted};

/// From a launch until the Node is ready.
const COMES_UP_IN: std::ops::Range<i64> = 45_000..90_000;
/// Disruption looks at the cluster so long after something has happened: Karpenter's pause between two rounds.
const LOOKS_EVERY: DurationMs = DurationMs::from_seconds(10);
/// And so often if nothing happens.
const LOOKS_AT_LEAST_EVERY: DurationMs = DurationMs::from_seconds(900);
/// Plans for pods that wait, one after the other, where launches fail.
const LAUNCH_ATTEMPTS: usize = 5;
/// How long pods wait for the next plan if these have all failed.
const NEXT_ATTEMPT: DurationMs = DurationMs::from_seconds(30);

/// What came of a trace.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// What all machines have cost, in nano-dollars.
    pub cost_nano_usd: i128,
    /// How long it took, in milliseconds.
    pub lasted_ms: i64,
    /// Pods that were evicted by commands.
    pub evictions: usize,
    /// Pods that were moved again before the last move had paid for itself, with nothing changed meanwhile.
    pub moved_again: usize,
    /// Commands that were carried out, and machines that were launched for them.
    pub commands: usize,
    /// Machines that were launched for commands.
    pub replacements: usize,
    /// Commands that could not launch what they needed.
    pub rolled_back: usize,
    /// How long pods have waited for a place, all of them together, in milliseconds.
    pub waited_ms: i128,
    /// What was against a rule, as sentences; nothing if all is right.
    pub violations: Vec<String>,
    /// The fleet's price in nano-dollars per hour, from then on.
    pub prices: Vec<(Timestamp, i64)>,
}

impl Outcome {
    /// In nano-dollars per hour.
    pub fn mean_price(&self) -> f64 {
        self.cost_nano_usd as f64 * 3_600_000.0 / self.lasted_ms.max(1) as f64
    }

    /// The mean.
    pub fn evictions_per_day(&self) -> f64 {
        self.evictions as f64 * 86_400_000.0 / self.lasted_ms.max(1) as f64
    }
}

#[derive(Debug)]
enum Event {
    /// The change of that number.
    Change(usize),
    /// A machine's Node is ready.
    Ready(MachineKey),
    /// Pods that wait are planned for.
    Provision,
    /// Disruption looks at the cluster.
    Look,
}

/// A command whose replacements are coming up.
#[derive(Debug)]
struct UnderWay {
    going: Vec<MachineKey>,
    launched: Vec<MachineKey>,
}

struct Run<'t> {
    trace: &'t Trace,
    world: World,
    rules: Rules,
    random: Random,
    now: Timestamp,
    events: BTreeMap<(Timestamp, u64), Event>,
    numbered: u64,
    /// When disruption looks at the cluster next.
    next_look: Option<Timestamp>,
    under_way: Vec<UnderWay>,
    checks: Checks,
    outcome: Outcome,
}

/// Plays a trace to its end.
///
/// # Errors
/// What the planner gives does not fit the world. Rules that do not hold are in [`Outcome::violations`].
pub fn run(trace: &Trace, side: Side, seed: u64) -> Result<Outcome> {
    let mut world = World::new(&trace.workloads)?;
    if let Side::Ours(options) = side {
        world.options.disruption = options;
    }
    let mut run = Run {
        trace,
        world,
        rules: Rules::new(side),
        random: Random::new(seed),
        now: Timestamp(0),
        events: BTreeMap::new(),
        numbered: 0,
        next_look: None,
        under_way: Vec::new(),
        checks: Checks::default(),
        outcome: Outcome::default(),
    };
    for (number, (at, _)) in trace.changes.iter().enumerate() {
        run.add(*at, Event::Change(number));
    }
    while let Some(((at, _), event)) = run.events.pop_first() {
        if at > trace.end {
            break;
        }
        run.advance(at);
        run.handle(event)?;
    }
    run.advance(trace.end);
    run.checks.at_the_end(&run.world, run.under_way.len());
    let mut outcome = run.outcome;
    outcome.lasted_ms = trace.end.0;
    outcome.moved_again = run.checks.moved_again;
    outcome.violations = run.checks.violations;
    Ok(outcome)
}

impl Run<'_> {
    fn add(&mut self, at: Timestamp, event: Event) {
        self.numbered += 1;
        self.events.insert((at, self.numbered), event);
    }

    /// Lets time pass.
    fn advance(&mut self, to: Timestamp) {
        let passed = to.since(self.now).0;
        let price = self.world.price().0;
        self.outcome.cost_nano_usd += i128::from(price) * i128::from(passed) / 3_600_000;
        let waiting = self.world.pods.values().filter(|pod| pod.on.is_none()).count();
        self.outcome.waited_ms += i128::from(passed) * waiting as i128;
        if self.outcome.prices.last().is_none_or(|(_, before)| *before != price) {
            self.outcome.prices.push((self.now, price));
        }
        self.now = to;
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        let now = self.now;
        match event {
            Event::Change(number) => {
                self.checks.changed(self.world.machines.len());
                let trace = self.trace;
                match trace.changes.get(number).map(|(_, change)| change) {
                    Some(Change::Scale { workload, replicas }) => self.world.scale(*workload, *replicas, now),
                    Some(Change::Prices { seed }) => self.world.market.move_prices(*seed),
                    Some(Change::StockOut { offering, lasts }) => {
                        self.world.market.run_out(*offering, now.saturating_add(*lasts));
                    }
                    None => {}
                }
            }
            Event::Ready(machine) => {
                self.world.make_ready(machine, now);
                self.finish_what_is_ready();
            }
            Event::Provision => {}
            Event::Look => {
                if self.next_look != Some(now) {
                    // Somebody wanted it sooner.
                    return Ok(());
                }
                return self.look();
            }
        }
        self.settle_pods()?;
        self.look_within(LOOKS_EVERY);
        Ok(())
    }

    /// Binds pods, and launches machines for those that find no room.
    fn settle_pods(&mut self) -> Result<()> {
        self.world.schedule(self.now);
        for _ in 0..LAUNCH_ATTEMPTS {
            if !self.world.wants_machines() {
                return Ok(());
            }
            self.provision()?;
        }
        if self.world.wants_machines() {
            self.add(self.now.saturating_add(NEXT_ATTEMPT), Event::Provision);
        }
        Ok(())
    }

    fn provision(&mut self) -> Result<()> {
        let snapshot = self.world.snapshot(self.now, false)?;
        let plan = provisioning::plan(&snapshot);
        let mut planned: Vec<(PodKey, MachineKey)> = Vec::new();
        for placement in &plan.existing {
            let machine = machine_of(&snapshot, placement.node)?;
            for pod in &placement.pods {
                planned.push((pod_of(&snapshot, *pod)?, machine));
            }
        }
        for machine in plan.machines.iter() {
            let Some(launched) = self.launch(&wanted(&snapshot, machine)?)? else { continue };
            let pods: Vec<PodKey> = machine.pods.iter().map(|pod| pod_of(&snapshot, *pod)).collect::<Result<_>>()?;
            self.checks.launched_for(self.now, &pods);
            planned.extend(pods.into_iter().map(|pod| (pod, launched)));
        }
        for (pod, machine) in planned {
            if let Some(pod) = self.world.pods.get_mut(&pod) {
                pod.planned = Some(machine);
            }
        }
        Ok(())
    }

    fn launch(&mut self, wanted: &crate::market::Wanted) -> Result<Option<MachineKey>> {
        let launched = self.world.launch(wanted, self.now)?;
        if let Some(machine) = launched {
            let comes_up_in = COMES_UP_IN.start + self.random.below(COMES_UP_IN.end - COMES_UP_IN.start);
            self.add(Timestamp(self.now.0 + comes_up_in), Event::Ready(machine));
        }
        Ok(launched)
    }

    /// Lets disruption look at the cluster soon; the first who asks decides when.
    fn look_within(&mut self, span: DurationMs) {
        let at = self.now.saturating_add(span);
        if self.next_look.is_none_or(|next| next <= self.now || next > at) {
            self.next_look = Some(at);
            self.add(at, Event::Look);
        }
    }

    fn look(&mut self) -> Result<()> {
        let now = self.now;
        let mut again = self.world.look_who_is_quiet(now);
        let look = self.rules.look(&mut self.world, now)?;
        let is_idle = look.due.is_empty() && !look.is_proposing && again.is_none() && self.under_way.is_empty();
        let mut has_begun = false;
        for decision in look.due {
            has_begun |= self.begin(decision)?;
        }
        self.settle_pods()?;
        self.checks.looked(is_idle && !self.world.pods.values().any(|pod| pod.on.is_none()));
        again = [again, look.again].into_iter().flatten().min();
        let again = again.map_or(LOOKS_AT_LEAST_EVERY, |at| at.since(now));
        self.look_within(if has_begun { LOOKS_EVERY.min(again) } else { again });
        Ok(())
    }

    /// Launches what a command needs. False if it cannot begin.
    fn begin(&mut self, decision: Decision) -> Result<bool> {
        let may_go = |machine: &MachineKey| self.world.machines.get(machine).is_some_and(|machine| !machine.is_going);
        if !decision.going.iter().all(may_go) {
            return Ok(false);
        }
        let before: i64 = decision.going.iter().map(|machine| self.world.price_of(*machine)).sum();
        let mut launched = Vec::new();
        for wanted in &decision.launches {
            match self.launch(wanted)? {
                Some(machine) => launched.push(machine),
                None => {
                    for machine in launched {
                        self.world.remove(machine, self.now);
                    }
                    self.outcome.rolled_back += 1;
                    return Ok(false);
                }
            }
        }
        let after: i64 = launched.iter().map(|machine| self.world.price_of(*machine)).sum();
        self.outcome.commands += 1;
        self.outcome.replacements += launched.len();
        self.checks.begins(self.now, &self.world, (&decision, before - after));
        for (pod, to) in &decision.moves {
            let machine = match to {
                Destination::Machine(machine) => Some(machine),
                Destination::Launched(position) => launched.get(*position),
            };
            if let Some(machine) = machine {
                self.world.promise(*pod, *machine);
            }
        }
        decision.going.iter().for_each(|machine| self.world.set_going(*machine, true));
        self.under_way.push(UnderWay { going: decision.going, launched });
        self.finish_what_is_ready();
        Ok(true)
    }

    /// Takes machines away whose replacements are all ready.
    fn finish_what_is_ready(&mut self) {
        let is_ready =
            |machine: &MachineKey| self.world.machines.get(machine).is_none_or(|machine| machine.ready_at.is_some());
        let (ready, waiting): (Vec<UnderWay>, Vec<UnderWay>) = std::mem::take(&mut self.under_way)
            .into_iter()
            .partition(|under_way| under_way.launched.iter().all(is_ready));
        self.under_way = waiting;
        for machine in ready.into_iter().flat_map(|under_way| under_way.going) {
            let successors = self.world.remove(machine, self.now);
            self.outcome.evictions += successors.len();
            self.checks.moved(&successors);
        }
    }
}
