//! Waiting for pods, with how far it is on the screen.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::eventually;
use e2e::fleet::Fleet;

use super::stage::Stage;

/// Pods of Deployments that are waited for, and whose machines run them.
pub(crate) struct Awaited<'a> {
    pub namespace: &'a str,
    pub node_pool: &'a str,
    pub pods: usize,
}

/// Waits until the scheduler has bound all of them, or time is up. Gives what is there in the end, in the order asked
/// for.
pub(crate) async fn until_bound(stage: &Stage<'_>, awaited: &[Awaited<'_>], timeout: Duration) -> Result<Vec<Fleet>> {
    let screen = stage.screen;
    let started = Instant::now();
    let wanted: usize = awaited.iter().map(|it| it.pods).sum();
    let progress = screen.progress(wanted);
    let settled = eventually("all pods are bound", timeout, async || {
        let fleets = read(stage, awaited).await?;
        let machines: usize = fleets.iter().map(Fleet::claims).sum();
        progress.show(bound(&fleets), machines, fleets.iter().map(Fleet::ready_nodes).sum());
        ensure!(fleets.iter().zip(awaited).all(|(fleet, it)| fleet.is_settled(it.pods)), "{} bound", bound(&fleets));
        Ok(fleets)
    });
    let settled = settled.await;
    drop(progress);
    let fleets = match settled {
        Ok(fleets) => fleets,
        // What is missing then is said by who shows them; an API server that does not answer is an error.
        Err(_) => read(stage, awaited).await?,
    };
    screen.note(&format!("{} of {wanted} pods bound after {:.1} s", bound(&fleets), started.elapsed().as_secs_f64()));
    Ok(fleets)
}

async fn read(stage: &Stage<'_>, awaited: &[Awaited<'_>]) -> Result<Vec<Fleet>> {
    let mut fleets = Vec::with_capacity(awaited.len());
    for it in awaited {
        fleets.push(stage.fleet(it.namespace, it.node_pool).await?);
    }
    Ok(fleets)
}

fn bound(fleets: &[Fleet]) -> usize {
    fleets.iter().map(Fleet::bound).sum()
}
