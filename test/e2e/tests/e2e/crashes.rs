//! The process is killed at each step of launch and termination. Whatever step it was, the next start finds the machine,
//! and no pod is lost.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::faults::audit::nothing_is_leaked;
use e2e::{Controller, eventually, objects};
use futures::future::try_join_all;
use serde_json::json;

use crate::cluster::{Cluster, Corner, DEADLINE, node_of};

const SIGABRT: i32 = 6;
const PODS: usize = 4;
const CLUSTERS: usize = 3;
/// The one step that is taken only where pods are not given tolerations.
const NOMINATION: &str = "hand-over.before-nomination";

#[tokio::test]
async fn a_crash_at_any_step_leaks_no_machine_and_loses_no_pod() -> Result<()> {
    let failpoints = failpoints()?;
    ensure!(failpoints.len() >= 6, "only {failpoints:?}");
    // Most of it is waiting, so some clusters side by side.
    let failpoints: Vec<_> = failpoints.into_iter().collect();
    let chunks = failpoints.chunks(failpoints.len().div_ceil(CLUSTERS));
    try_join_all(chunks.enumerate().map(|(index, failpoints)| async move {
        let cluster = Cluster::new(&format!("crashes-{index}")).await?;
        for failpoint in failpoints {
            survives(&cluster, failpoint).await.with_context(|| failpoint.clone())?;
        }
        anyhow::Ok(())
    }))
    .await?;
    println!("survived a crash at each of {} steps: {failpoints:?}", failpoints.len());
    Ok(())
}

/// The names in `failpoints::hit("…")` all over the sources, so that none is forgotten here.
fn failpoints() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    collect(&go_programs::repository().join("crates"), &mut names)?;
    Ok(names)
}

fn collect(folder: &Path, names: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let calls = text.split("failpoints::hit(\"").skip(1);
            names.extend(calls.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
    Ok(())
}

async fn survives(cluster: &Cluster, failpoint: &str) -> Result<()> {
    let client = cluster.client().await?;
    let name = failpoint.replace(['.', '_'], "-");
    let corner = Corner::new(client.clone(), &name).await?;
    // No lease: a dead holder's would have to run out each time.
    let options = cluster
        .controller()?
        .named(&name)
        .arg("--disable-leader-election")
        .env("BATCH_IDLE_DURATION", "100ms")
        .env("HAND_OVER", if failpoint == NOMINATION { "nominate" } else { "tolerate" });
    let requests = json!({ "cpu": "700m" });
    corner.apply([objects::deployment(&name, "web", u32::try_from(PODS)?, &requests)]).await?;

    let doomed = Controller::start(&options.clone().env("DOVETAIL_FAILPOINTS", &format!("{failpoint}=abort")))?;
    let bound_or_dead = eventually("all pods are bound, or the controller is dead", DEADLINE, async || {
        ensure!(!doomed.runs()? || all_bound(&corner).await?, "neither");
        Ok(())
    });
    bound_or_dead.await?;
    corner.delete_claims().await?;
    let status = doomed.ended(Duration::from_secs(30)).await.context("the failpoint was not hit")?;
    if status.signal() != Some(SIGABRT) || !doomed.log()?.contains(&format!("failpoint {failpoint}")) {
        bail!("it did not end by its failpoint, but with {status}:\n{}", doomed.log()?);
    }

    let next = Controller::start_ready(&options).await?;
    corner.bound(PODS).await?;
    nothing_is_leaked(&client).await?;
    corner.apply([objects::deployment(&name, "web", 0, &requests)]).await?;
    corner.cleared().await?;
    nothing_is_leaked(&client).await?;
    next.terminate().await.map(drop)
}

async fn all_bound(corner: &Corner) -> Result<bool> {
    let pods = corner.pods().await?;
    Ok(pods.len() == PODS && pods.iter().all(|pod| node_of(pod).is_some()))
}
