//! How machines follow when most of their pods go.
//!
//! All pods are bound while the NodePool keeps its machines. Then the Deployments are scaled to three tenths and the
//! NodePool lets machines go, at the same moment, from which time counts. The fleet is settled when every pod is bound,
//! no machine is going, and for [`QUIET`] no machine came or went and no pod was bound. What is called recreated are
//! pods that were made after that moment: their predecessors had to leave a machine.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::NodeClaim;
use e2e::apply;
use e2e::bench::{self, Pods, Usage};
use e2e::fleet::{Fleet, dollars};
use e2e::following::changes;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};

use crate::workload::{self, Disruption};
use crate::{Arguments, GIVE_UP, NAMESPACE, NODE_POOL, Side, goals, lower_bound, price};

/// Longer than Karpenter waits between two looks at the fleet, its validation of a command included.
const QUIET: Duration = Duration::from_secs(60);
const SHOWN_EVERY: Duration = Duration::from_secs(2);

/// What a scale-down came to.
pub(crate) struct ScaledDown {
    /// Until the last change; nothing if changes went on for all of [`GIVE_UP`].
    pub(crate) settled: Option<Duration>,
    pub(crate) machines_before: usize,
    pub(crate) machines: usize,
    pub(crate) price_nano_usd_per_hour: i64,
    pub(crate) recreated: usize,
    pub(crate) usage: Usage,
}

/// Measures, prints, and holds what was measured against the goals.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let bound = lower_bound(remaining(arguments)).context("the bound of the price")?;
    let karpenter = match &arguments.karpenter {
        Some(binary) => Some(measure(arguments, Side::Karpenter(binary), bound).await?),
        None => None,
    };
    let ours = measure(arguments, Side::Ours, bound).await?;
    goals::print_scale_down(arguments.pods, &ours, karpenter.as_ref());
    Ok(())
}

/// The pods that stay.
fn remaining(arguments: &Arguments) -> usize {
    arguments.pods / 10 * 3
}

async fn measure(arguments: &Arguments, side: Side<'_>, bound_nano_usd_per_hour: i64) -> Result<ScaledDown> {
    let (all, remaining) = (arguments.pods, remaining(arguments));
    eprintln!("booting a control plane");
    let (cluster, client) = bench::boot("bench", &[]).await?;
    apply::apply(&client, workload::surroundings()).await?;
    let controller = side.start_and_wait(&cluster, arguments).await?;
    let pods = Pods { namespace: NAMESPACE, selector: "", wanted: all, give_up: GIVE_UP };
    apply::apply(&client, workload::deployments(all)).await?;
    pods.until_bound(&client, Instant::now()).await?;
    let before = Fleet::read(&client, NAMESPACE, NODE_POOL).await?;
    let usage_before = Usage::of(controller.id())?;

    let started = Instant::now();
    let smaller = workload::deployments(remaining).into_iter().chain([workload::node_pool(Disruption::AtOnce)]);
    let (applied, watched) =
        tokio::join!(apply::apply(&client, smaller), Watched::new(&before, remaining).until_quiet(&client, started));
    applied?;
    let (settled, recreated) = watched?;

    let fleet = Fleet::read(&client, NAMESPACE, NODE_POOL).await?;
    let usage = Usage::of(controller.id())?;
    let measured = ScaledDown {
        settled,
        machines_before: before.claims(),
        machines: fleet.claims(),
        price_nano_usd_per_hour: price(&fleet)?,
        recreated,
        usage: Usage { cpu: usage.cpu.saturating_sub(usage_before.cpu), ..usage },
    };
    measured.print(side, all, remaining, price(&before)?, bound_nano_usd_per_hour);
    side.end(controller, cluster).await?;
    Ok(measured)
}

impl ScaledDown {
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    fn print(&self, side: Side<'_>, all: usize, remaining: usize, price_before: i64, bound: i64) {
        println!("case       {all} pods become {remaining}");
        println!("controller {}", side.name());
        match self.settled {
            Some(settled) => println!("settled    after {:.1} s", settled.as_secs_f64()),
            None => println!("settled    not within {} s", GIVE_UP.as_secs()),
        }
        println!(
            "machines   {} became {}, ${}/h became ${}/h, {:.1} % above the bound of ${}/h",
            self.machines_before,
            self.machines,
            dollars(price_before),
            dollars(self.price_nano_usd_per_hour),
            100.0 * (self.price_nano_usd_per_hour as f64 / bound.max(1) as f64 - 1.0),
            dollars(bound)
        );
        println!("recreated  {} pods", self.recreated);
        println!(
            "used       {:.2} CPU s, at most {} MB\n",
            self.usage.cpu.as_secs_f64(),
            self.usage.peak_rss_bytes / 1_000_000
        );
    }
}

/// What is seen of the fleet.
struct Watched {
    wanted: usize,
    pods_before: BTreeSet<String>,
    /// Pods that are not going, and those of them that are bound.
    pods: BTreeSet<String>,
    bound: BTreeSet<String>,
    recreated: BTreeSet<String>,
    machines: BTreeSet<String>,
    going: BTreeSet<String>,
    last_change: Instant,
}

impl Watched {
    fn new(before: &Fleet, wanted: usize) -> Self {
        Self {
            wanted,
            pods_before: before.pod_uids(),
            pods: BTreeSet::new(),
            bound: BTreeSet::new(),
            recreated: BTreeSet::new(),
            machines: before.machine_names(),
            going: BTreeSet::new(),
            last_change: Instant::now(),
        }
    }

    /// When the last change was, if it ended, and how many pods were made anew.
    async fn until_quiet(mut self, client: &Client, started: Instant) -> Result<(Option<Duration>, usize)> {
        let mut pods = changes(Api::<Pod>::namespaced(client.clone(), NAMESPACE), watcher::Config::default()).boxed();
        let mut machines = changes(Api::<NodeClaim>::all(client.clone()), watcher::Config::default()).boxed();
        let mut show = tokio::time::interval(SHOWN_EVERY);
        loop {
            tokio::select! {
                Some((pod, is_there)) = pods.next() => self.pod(&pod, is_there),
                Some((claim, is_there)) = machines.next() => self.machine(&claim, is_there),
                _ = show.tick() => eprintln!(
                    "{} of {} pods bound, {} machines, {} going, {} pods recreated, {:.0} s",
                    self.bound.len(), self.wanted, self.machines.len(), self.going.len(), self.recreated.len(),
                    started.elapsed().as_secs_f64(),
                ),
            }
            let is_whole = self.bound.len() == self.wanted && self.pods.len() == self.wanted && self.going.is_empty();
            if is_whole && self.last_change.elapsed() >= QUIET {
                return Ok((Some(self.last_change.duration_since(started)), self.recreated.len()));
            }
            if started.elapsed() >= GIVE_UP {
                if self.bound.len() < self.wanted {
                    bail!("{} of {} pods are bound after {} s", self.bound.len(), self.wanted, GIVE_UP.as_secs());
                }
                return Ok((None, self.recreated.len()));
            }
        }
    }

    fn pod(&mut self, pod: &Pod, is_there: bool) {
        let Some(uid) = pod.uid() else { return };
        let is_there = is_there && pod.metadata.deletion_timestamp.is_none();
        let is_bound = is_there && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if is_there && !self.pods_before.contains(&uid) {
            self.recreated.insert(uid.clone());
        }
        set(&mut self.pods, &uid, is_there);
        if set(&mut self.bound, &uid, is_bound) {
            self.last_change = Instant::now();
        }
    }

    fn machine(&mut self, claim: &NodeClaim, is_there: bool) {
        let is_going = is_there && claim.metadata.deletion_timestamp.is_some();
        let name = claim.name_any();
        let changed = set(&mut self.machines, &name, is_there);
        if set(&mut self.going, &name, is_going) || changed {
            self.last_change = Instant::now();
        }
    }
}

/// Whether that changed the set.
fn set(names: &mut BTreeSet<String>, name: &str, is_in: bool) -> bool {
    if is_in { names.insert(name.to_owned()) } else { names.remove(name) }
}
