//! What the controller serves over HTTP.

use anyhow::{Result, ensure};
use e2e::{eventually, objects};
use serde_json::json;

use crate::cluster::{Corner, DEADLINE, shared};

#[tokio::test]
async fn the_metrics_that_karpenters_suites_sample_are_there() -> Result<()> {
    let corner = Corner::shared("metrics").await?;
    corner.apply([objects::pod(&corner.name, "one", &json!({ "cpu": "1" }))]).await?;
    corner.bound(1).await?;
    let controller = &shared().await?.controller;
    // The Go names too: the suites know no other.
    for name in ["process_resident_memory_bytes", "process_cpu_seconds_total", "go_gc_heap_live_bytes"] {
        ensure!(controller.metric(name)? > 0.0, "{name} is zero or missing");
    }
    eventually("launches are counted by NodePool", DEADLINE, async || {
        let counted = controller.metrics()?.lines().any(|line| {
            line.starts_with("karpenter_nodeclaims_created_total{")
                && line.contains("nodepool=\"metrics\"")
                && !line.ends_with(" 0")
        });
        ensure!(counted, "{}", controller.metrics()?);
        Ok(())
    })
    .await?;
    ensure!(controller.is_ready(), "/readyz");
    Ok(())
}
