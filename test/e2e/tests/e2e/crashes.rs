//! The process is killed at each step of launch, hand-over and termination. Whatever step it was, its successor
//! finishes what was begun. `cargo xtask faults --crashes` plays more of it: each step's first, second and fifth time,
//! and each with a standby that takes over.

use anyhow::{Context, Result, ensure};
use e2e::faults::crashes::{Crash, Stage, Successor, failpoints};
use futures::future::try_join_all;

/// Most of it is waiting, so some clusters side by side.
const CLUSTERS: usize = 3;
/// The how manieth time a step is taken, in turn.
const HITS: [u32; 3] = [1, 2, 5];
/// Steps that a standby finishes: one before the machine is there, and one after.
const BY_STANDBY: [&str; 2] = ["provision.after-create", "launch.after-create"];

#[tokio::test]
async fn a_crash_at_any_step_leaks_no_machine_and_loses_no_pod() -> Result<()> {
    let failpoints = failpoints()?;
    ensure!(failpoints.len() >= 6, "only {failpoints:?}");
    let crashes: Vec<Crash> = failpoints
        .into_iter()
        .zip(HITS.into_iter().cycle())
        .map(|(failpoint, hit)| Crash { failpoint, hit, successor: Successor::Restart })
        .collect();
    let chunks = crashes.chunks(crashes.len().div_ceil(CLUSTERS));
    try_join_all(chunks.enumerate().map(|(index, crashes)| play(format!("crashes-{index}"), crashes))).await.map(drop)
}

#[tokio::test]
async fn a_standby_finishes_what_a_dead_leader_began() -> Result<()> {
    let crash = |name: &str| Crash { failpoint: name.to_owned(), hit: 2, successor: Successor::Standby };
    play("standby".to_owned(), &BY_STANDBY.map(crash)).await
}

async fn play(cluster: String, crashes: &[Crash]) -> Result<()> {
    let stage = Stage::new(&cluster).await?;
    for crash in crashes {
        stage.survives(crash).await.with_context(|| crash.to_string())?;
    }
    Ok(())
}
