//! Scenarios of disruption, some at a time: most of their time they wait.

use std::time::Instant;

use anyhow::Result;
use e2e::cluster::Cluster;
use e2e::controller::Supervisor;
use e2e::fidelity::{DisruptionOutcome, DisruptionScenario, Stage};
use futures::StreamExt;

/// Scenarios at a time.
const SIDE_BY_SIDE: usize = 4;

/// Plays so many scenarios; whether no rule was broken and every fleet came to rest.
pub(crate) async fn run(seed: u64, scenarios: u64) -> Result<bool> {
    let started = Instant::now();
    let cluster = Cluster::new("fidelity-disruption").await?;
    let client = cluster.client().await?;
    let controller = Supervisor::start(cluster.controller()?);
    let stage = Stage { cluster: &cluster, client: &client, controller: &controller };
    let (mut total, mut passed, mut failed) = (DisruptionOutcome::default(), 0, 0);
    let playing = (seed..seed.saturating_add(scenarios)).map(async |seed| {
        let outcome = DisruptionScenario::random(seed).play(&stage).await;
        (seed, outcome)
    });
    let mut played = futures::stream::iter(playing).buffer_unordered(SIDE_BY_SIDE);
    while let Some((seed, outcome)) = played.next().await {
        let outcome = outcome?;
        if outcome.faults.is_empty() {
            passed += 1
        } else {
            failed += 1
        }
        for fault in &outcome.faults {
            println!("seed {seed}: {fault}");
        }
        total.add(outcome);
        if (passed + failed) % 5 == 0 {
            eprintln!("{} of {scenarios} scenarios, {failed} failed", passed + failed);
        }
    }
    drop(played);
    controller.stop().await?;
    println!("Kubernetes {}, {:.0} s", cluster.control_plane.version(), started.elapsed().as_secs_f64());
    println!("{total}");
    println!("{passed} passed, {failed} failed of seeds {seed} and later");
    Ok(failed == 0)
}
