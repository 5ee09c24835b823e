//! Connections go silent, or the API server stops for a while. Nobody is told, and new pods are planned all the same.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use super::audit::nothing_is_leaked;
use crate::cluster::{Cluster, Corner, DEADLINE, scheduled};
use crate::controller::Supervisor;
use crate::fault_proxy::{Connections, FaultProxy};
use crate::{Component, eventually, objects};

/// How soon new pods have to be planned.
pub const BOUND: Duration = Duration::from_secs(60);
/// After what time a connection counts as idle here. Real NATs take minutes.
const IDLE: Duration = Duration::from_secs(3);
const PODS_BEFORE: u32 = 3;
const PODS: u32 = 10;

/// What happens, without a word to the controller.
#[derive(Clone, Copy, Debug)]
pub enum Silence {
    /// Connections on which nothing passed for some seconds are forgotten, as by a NAT; for as long as the scenario
    /// lasts.
    IdleForgotten,
    /// All connections go silent.
    All,
    /// Half of them do.
    Half,
    /// The API server is killed and comes back after so long.
    Killed(Duration),
    /// The API server hangs, with its connections open, and goes on after so long.
    Paused(Duration),
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IdleForgotten => f.write_str("idle connections are forgotten"),
            Self::All => f.write_str("all connections go silent"),
            Self::Half => f.write_str("half of the connections go silent"),
            Self::Killed(span) => write!(f, "the API server is away for {} s", span.as_secs()),
            Self::Paused(span) => write!(f, "the API server hangs for {} s", span.as_secs()),
        }
    }
}

/// Whether kube-scheduler has tried the pod and found no place.
fn is_refused(pod: &Pod) -> bool {
    scheduled(pod).is_some_and(|condition| condition.status == "False")
}

impl Silence {
    /// Plays it on a cluster of its own, and says how long new pods took to be planned, counted from the moment when
    /// kube-scheduler had no place for one of them.
    ///
    /// # Errors
    /// If they were not within [`BOUND`], or anything is wrong afterwards.
    pub async fn play(self, name: &str) -> Result<Duration> {
        let cluster = Cluster::new(name).await?;
        let client = cluster.client().await?;
        let proxy = FaultProxy::start(&cluster.control_plane, 1).await?;
        let mut options = cluster.candidate()?;
        options.kubeconfig = proxy.kubeconfig(&options.kubeconfig)?;
        let controller = Supervisor::start(options);
        let corner = Corner::new(client.clone(), name).await?;
        let web = |replicas| objects::deployment(name, "web", replicas, &json!({ "cpu": "700m" }));
        corner.apply([web(PODS_BEFORE)]).await?;
        corner.bound(PODS_BEFORE as usize).await?;
        ensure!(proxy.open_connections() > 10, "only {} connections: no watches?", proxy.open_connections());

        self.strike(&cluster, &proxy).await?;
        // Our own connection may have been to the server that was killed.
        let before = eventually("the new pods are asked for", DEADLINE, async || {
            let before = corner.node_claims().await?.len();
            corner.apply([web(PODS)]).await?;
            Ok(before)
        })
        .await?;
        // Kubernetes' own controllers take a while too after an API server that was away.
        eventually("kube-scheduler has no place for a new pod", BOUND + DEADLINE, async || {
            let pods = corner.pods().await?;
            ensure!(pods.len() == PODS as usize, "{} pods", pods.len());
            ensure!(pods.iter().any(is_refused) || corner.node_claims().await?.len() > before, "not tried yet");
            Ok(())
        })
        .await?;
        let started = Instant::now();
        eventually("the new pods are planned", BOUND, async || {
            let claims = corner.node_claims().await?;
            ensure!(claims.len() > before, "no NodeClaim beside {before}");
            Ok(())
        })
        .await?;
        let took = started.elapsed();
        eventually("all pods are bound", BOUND + DEADLINE, async || {
            let pods = corner.pods().await?;
            let waiting: Vec<_> =
                pods.iter().filter(|pod| crate::cluster::node_of(pod).is_none()).map(ResourceExt::name_any).collect();
            ensure!(pods.len() == PODS as usize && waiting.is_empty(), "{} pods, waiting: {waiting:?}", pods.len());
            Ok(())
        })
        .await?;
        proxy.forget_idle_after(None);
        nothing_is_leaked(&client).await?;
        controller.stop().await.context("the controller")?;
        Ok(took)
    }

    async fn strike(self, cluster: &Cluster, proxy: &FaultProxy) -> Result<()> {
        match self {
            Self::IdleForgotten => {
                proxy.forget_idle_after(Some(IDLE));
                // The watches of what does not change are idle by then, at least.
                eventually("connections are idle", DEADLINE, async || {
                    let idle = proxy.idle_connections(IDLE);
                    ensure!(idle * 2 > proxy.open_connections(), "{idle} of {}", proxy.open_connections());
                    Ok(())
                })
                .await
            }
            Self::All => {
                ensure!(proxy.silence(Connections::All) > 10, "there are few connections");
                Ok(())
            }
            Self::Half => {
                ensure!(proxy.silence(Connections::Half) > 5, "there are few connections");
                Ok(())
            }
            Self::Killed(span) => {
                cluster.control_plane.kill(Component::Apiserver).await?;
                tokio::time::sleep(span).await;
                cluster.control_plane.start(Component::Apiserver).await
            }
            Self::Paused(span) => {
                cluster.control_plane.pause(Component::Apiserver).await?;
                tokio::time::sleep(span).await;
                cluster.control_plane.resume(Component::Apiserver).await
            }
        }
    }
}
