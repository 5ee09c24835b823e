//! Things go wrong between controller and API server, as the fault proxy has them. `cargo xtask faults` plays more and
//! longer.

use std::time::Duration;

use anyhow::Result;
use e2e::faults::silence::Silence;

/// Longer than a Lease lasts.
const AWAY: Duration = Duration::from_secs(20);

#[tokio::test]
async fn new_pods_are_planned_after_the_api_server_was_away() -> Result<()> {
    Silence::Killed(AWAY).play("away").await.map(drop)
}

#[tokio::test]
async fn new_pods_are_planned_after_the_api_server_hung() -> Result<()> {
    Silence::Paused(AWAY).play("hung").await.map(drop)
}

#[tokio::test]
async fn new_pods_are_planned_though_idle_connections_are_forgotten() -> Result<()> {
    Silence::IdleForgotten.play("idle-silence").await.map(drop)
}

#[tokio::test]
async fn new_pods_are_planned_though_every_connection_goes_silent() -> Result<()> {
    Silence::All.play("silence").await.map(drop)
}

#[tokio::test]
async fn new_pods_are_planned_though_half_of_the_connections_go_silent() -> Result<()> {
    Silence::Half.play("half-silence").await.map(drop)
}
