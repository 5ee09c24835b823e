//! The measurement behind `cargo xtask bench ec2`: the provider for EC2 on an EC2 in memory that sells all types of a
//! region, beside what is the least that can be.
//!
//! * How long it takes to make the instance types of a node class again after prices have changed.
//! * How many calls 1,000 launches take, and how long, within the buckets of tokens that EC2 has for an account. The
//!   least is one call for each kind of launch, and the time in which the buckets give so many calls and machines.

mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use cloudprovider::{CloudProvider, CreateRequest};
use cloudprovider_aws::service::throttling::{LAUNCH_CALLS, LAUNCHED_MACHINES};
use e2e::exit;
use futures::future::join_all;

use self::world::World;

/// The most machines of one call.
const AT_ONCE: u64 = 1000;
/// How long launches that are alike are waited for, and what it takes to write them down and read the answer.
const SLACK: Duration = Duration::from_secs(5);

#[derive(Parser)]
#[command(about = "Rebuild instance types and launch 1,000 machines on an EC2 in memory")]
struct Arguments {
    /// Launches.
    #[arg(long, default_value_t = 1000)]
    launches: u64,
    /// Refreshes of prices; the median counts.
    #[arg(long, default_value_t = 21)]
    refreshes: usize,
    /// Fail if the median takes longer, in milliseconds.
    #[arg(long, default_value_t = 50)]
    at_most_ms: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    exit::code(run(&Arguments::parse()).await)
}

async fn run(arguments: &Arguments) -> Result<bool> {
    let is_quick = rebuilds(arguments).await?;
    let mut is_least = true;
    for kinds in [1, 20] {
        is_least &= launches(arguments.launches, kinds).await?;
    }
    Ok(is_quick && is_least)
}

/// Prices change, and the types of a node class are asked for.
async fn rebuilds(arguments: &Arguments) -> Result<bool> {
    let world = World::new();
    let provider = world.provider();
    let pool = world::node_pool();
    let mut before = provider.instance_types(&pool).await?;
    let mut times = Vec::with_capacity(arguments.refreshes);
    for round in 0..arguments.refreshes.max(1) {
        world.change_prices(round);
        provider.refresh_prices(Some(&world.cloud)).await?;
        let begun = Instant::now();
        let now = provider.instance_types(&pool).await?;
        times.push(begun.elapsed());
        ensure!(now.generation != before.generation, "prices changed, and no type did");
        before = now;
    }
    times.sort();
    let median = times[times.len() / 2];
    let offerings: usize = before.types.iter().map(|it| it.offerings.len()).sum();
    let is_quick = median <= Duration::from_millis(arguments.at_most_ms);
    println!(
        "rebuild   {} types with {offerings} offerings after a change of prices: {:.1} ms, median of {} (must {}): {}",
        before.types.len(),
        median.as_secs_f64() * 1e3,
        times.len(),
        arguments.at_most_ms,
        verdict(is_quick)
    );
    Ok(is_quick)
}

/// So many launches at once, of so many kinds.
async fn launches(count: u64, kinds: u64) -> Result<bool> {
    let world = World::new();
    let provider = world.provider();
    let types = world.types(&provider).await?;
    let of_kind = |index: u64| types.get(usize::try_from(index % kinds).ok()?);
    let claim = |index| world.claim(index, of_kind(index).context("there are not so many types")?);
    let claims: Vec<_> = (0..count).map(claim).collect::<Result<_>>()?;
    let begun = Instant::now();
    let launched = join_all(claims.iter().map(async |claim| {
        let token = claim.metadata.uid.as_deref().unwrap_or_default().into();
        provider.create(CreateRequest { claim, token: &token, instance_types: None }).await
    }));
    for instance in launched.await {
        instance.context("a launch failed")?;
    }
    let took = begun.elapsed();
    let made = world.cloud.calls("ec2:CreateFleet");
    let (least, bound) = bound(count, kinds);
    let is_least = made == least && took <= bound + SLACK;
    println!(
        "launches  {count} of {kinds} kinds: {made} calls of CreateFleet (bound {least}) in {:.1} s (bound {:.1} s): {}",
        took.as_secs_f64(),
        bound.as_secs_f64(),
        verdict(is_least)
    );
    Ok(is_least)
}

/// The least number of calls, and the time in which the buckets give them and their machines.
fn bound(count: u64, kinds: u64) -> (u64, Duration) {
    let calls = kinds.min(count) * count.div_ceil(kinds).div_ceil(AT_ONCE);
    (calls, LAUNCH_CALLS.time_for(calls).max(LAUNCHED_MACHINES.time_for(count)))
}

fn verdict(is_reached: bool) -> &'static str {
    if is_reached { "reached" } else { "MISSED" }
}
