//! Seeded rounds in which machines come and go while nothing works for long.
//!
//! In a round pods are scaled and NodeClaims deleted while the rules of the [fault proxy](crate::fault_proxy) change,
//! connections go silent or break, and controller, API server and etcd are killed. Then the faults end, and everything
//! must become right by itself: all pods bound, one machine for each NodeClaim, nothing launched twice, nothing left
//! behind, nothing stuck, and what a user has to know told. After that all is deleted, under faults too, and all must
//! go.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::events::FAILED_SCHEDULING;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::audit::{History, ensure_nothing_leaked};
use crate::cluster::{Cluster, Corner, node_of};
use crate::controller::{Ends, Supervisor};
use crate::fault_proxy::{Connections, Ending, Fault, FaultProxy, Point, Rule, Verb};
use crate::{Component, eventually, objects};
use seeded_random::Random;

/// How long it may take until all is right, once the faults are over: a Lease has to run out, hung calls to be given
/// up, and what failed many times waits long before it is tried again.
const SETTLES: Duration = Duration::from_secs(240);
/// How long one of our own requests may fail, while its server starts.
const OURS: Duration = Duration::from_secs(60);
/// Between two steps.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(200)..Duration::from_secs(3);
/// How many steps a round has.
const STEPS: std::ops::Range<u64> = 4..9;

/// A cluster on which rounds are played, one after the other.
pub struct Rounds {
    cluster: Cluster,
    client: Client,
    history: History,
    proxy: FaultProxy,
    controller: Supervisor,
}

/// How a round went.
#[derive(Debug)]
pub struct Round {
    /// What was done, in order.
    pub steps: Vec<&'static str>,
    /// Pods in the end.
    pub pods: usize,
    /// NodeClaims in the end.
    pub claims: usize,
    /// Of them, those without any pod.
    pub empty: usize,
    /// How long all took to become right after the last fault.
    pub settled_in: Duration,
    /// How long all took to go.
    pub cleared_in: Duration,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} pods on {} machines ({} empty), right after {:.0} s, gone in {:.0} s: {}",
            self.pods,
            self.claims,
            self.empty,
            self.settled_in.as_secs_f64(),
            self.cleared_in.as_secs_f64(),
            self.steps.join(", ")
        )
    }
}

/// What one step does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Scale,
    DeleteClaims,
    ChangeRules,
    Silence,
    ForgetIdle,
    Cut,
    KillController,
    KillApiServer,
    KillEtcd,
    PauseApiServer,
}

impl Step {
    /// Each as often as it shall come.
    const ALL: [Self; 14] = [
        Self::Scale,
        Self::Scale,
        Self::DeleteClaims,
        Self::DeleteClaims,
        Self::ChangeRules,
        Self::ChangeRules,
        Self::ChangeRules,
        Self::Silence,
        Self::ForgetIdle,
        Self::Cut,
        Self::KillController,
        Self::KillApiServer,
        Self::KillEtcd,
        Self::PauseApiServer,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Scale => "scale",
            Self::DeleteClaims => "delete",
            Self::ChangeRules => "rules",
            Self::Silence => "silence",
            Self::ForgetIdle => "forget idle",
            Self::Cut => "cut",
            Self::KillController => "kill controller",
            Self::KillApiServer => "kill API server",
            Self::KillEtcd => "kill etcd",
            Self::PauseApiServer => "hang API server",
        }
    }
}

impl Rounds {
    /// Boots the cluster, with the controller behind the proxy.
    ///
    /// # Errors
    /// If it does not come up.
    pub async fn new(name: &str, seed: u64) -> Result<Self> {
        let cluster = Cluster::new(name).await?;
        let client = cluster.client().await?;
        let history = History::start(&client);
        let proxy = FaultProxy::start(&cluster.control_plane, seed).await?;
        let mut options = cluster.candidate()?;
        options.kubeconfig = proxy.kubeconfig(&options.kubeconfig)?;
        let controller = Supervisor::start(options);
        Ok(Self { cluster, client, history, proxy, controller })
    }

    /// How often each fault struck so far.
    #[must_use]
    pub fn struck(&self) -> BTreeMap<&'static str, u64> {
        self.proxy.struck()
    }

    /// Where the logs are.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        self.cluster.control_plane.folder()
    }

    /// Stops the controller, and says how often it had ended before.
    ///
    /// # Errors
    /// If it ended as it must not.
    pub async fn end(self) -> Result<Ends> {
        self.controller.stop().await
    }

    /// Plays one round.
    ///
    /// # Errors
    /// What did not become right.
    pub async fn play(&self, seed: u64) -> Result<Round> {
        let mut random = Random::new(seed);
        let name = format!("round-{seed}");
        let corner = self.corner(&name).await?;
        let mut round = Round {
            steps: Vec::new(),
            pods: 0,
            claims: 0,
            empty: 0,
            settled_in: Duration::ZERO,
            cleared_in: Duration::ZERO,
        };
        let mut wanted = self.scale(&corner, &mut random).await?;
        for _ in 0..random.within(&STEPS) {
            tokio::time::sleep(random.time_within(&PAUSE)).await;
            let step = *random.pick(&Step::ALL);
            round.steps.push(step.name());
            if let Some(now) = self.step(step, &corner, &mut random).await.with_context(|| step.name())? {
                wanted = now;
            }
        }
        // However the scaling went, there are pods to bind after the last fault.
        if wanted == 0 {
            wanted = self.scale_to(&corner, 3, 2).await?;
        }
        self.faults_end();
        let started = Instant::now();
        eventually("all is right after the faults", SETTLES, async || self.is_right(&corner, wanted).await).await?;
        round.settled_in = started.elapsed();
        self.history.nothing_was_launched_twice(&self.client).await?;
        (round.pods, round.claims, round.empty) = count(&corner).await?;

        self.proxy.rules(some_rules(&mut random));
        let started = Instant::now();
        self.scale_to(&corner, 0, 0).await?;
        self.delete_claims(&corner, 1000, &mut random).await?;
        // Faults while all goes, and then their end.
        tokio::time::sleep(random.time_within(&PAUSE)).await;
        self.faults_end();
        eventually("all is gone", SETTLES, async || {
            self.delete_claims(&corner, 1000, &mut Random::new(0)).await?;
            let (claims, nodes) = (corner.node_claims().await?.len(), corner.nodes().await?.len());
            ensure!(claims + nodes == 0, "{claims} NodeClaims, {nodes} Nodes");
            ensure_nothing_leaked(&self.client).await
        })
        .await?;
        round.cleared_in = started.elapsed();
        corner.abandon().await?;
        Ok(round)
    }

    fn faults_end(&self) {
        self.proxy.rules([]);
        self.proxy.forget_idle_after(None);
    }

    /// A namespace with a NodePool, and a pod that nothing can be done for.
    async fn corner(&self, name: &str) -> Result<Corner> {
        eventually("the round's objects are there", OURS, async || {
            let corner = Corner::new(self.client.clone(), name).await?;
            let nowhere = json!({ "spec": { "nodeSelector": { "kubernetes.io/arch": "pdp11" } } });
            corner.apply([objects::with(objects::pod(name, NOWHERE, &json!({ "cpu": "1" })), nowhere)]).await?;
            Ok(corner)
        })
        .await
    }

    /// One step; gives the number of pods that are wanted, if that changed.
    async fn step(&self, step: Step, corner: &Corner, random: &mut Random) -> Result<Option<usize>> {
        let control_plane = &self.cluster.control_plane;
        match step {
            Step::Scale => return self.scale(corner, random).await.map(Some),
            Step::DeleteClaims => self.delete_claims(corner, 300, random).await?,
            Step::ChangeRules => self.proxy.rules(some_rules(random)),
            Step::Silence => {
                let which = [Connections::All, Connections::Half, Connections::OlderThan(Duration::from_secs(5))];
                self.proxy.silence(*random.pick(&which));
            }
            Step::ForgetIdle => self.proxy.forget_idle_after(Some(Duration::from_secs(2))),
            Step::Cut => drop(self.proxy.cut(*random.pick(&[Connections::All, Connections::Half]))),
            Step::KillController => self.controller.kill().await?,
            Step::KillApiServer | Step::KillEtcd => {
                let component = if matches!(step, Step::KillEtcd) { Component::Etcd } else { Component::Apiserver };
                control_plane.kill(component).await?;
                tokio::time::sleep(random.time_within(&PAUSE)).await;
                control_plane.start(component).await?;
            }
            Step::PauseApiServer => {
                control_plane.pause(Component::Apiserver).await?;
                tokio::time::sleep(random.time_within(&PAUSE)).await;
                control_plane.resume(Component::Apiserver).await?;
            }
        }
        Ok(None)
    }

    async fn scale(&self, corner: &Corner, random: &mut Random) -> Result<usize> {
        let (large, small) = (random.below(9), random.below(17));
        self.scale_to(corner, u32::try_from(large)?, u32::try_from(small)?).await
    }

    async fn scale_to(&self, corner: &Corner, large: u32, small: u32) -> Result<usize> {
        let of = |name: &str, replicas, cpu: &str| -> Value {
            objects::deployment(&corner.name, name, replicas, &json!({ "cpu": cpu }))
        };
        eventually("pods are scaled", OURS, async || {
            corner.apply([of("large", large, "1800m"), of("small", small, "300m")]).await
        })
        .await?;
        Ok((large + small) as usize)
    }

    /// Deletes so many of a thousand NodeClaims.
    async fn delete_claims(&self, corner: &Corner, per_mille: u32, random: &mut Random) -> Result<()> {
        let api: Api<api::NodeClaim> = Api::all(self.client.clone());
        let claims = eventually("NodeClaims are listed", OURS, async || corner.node_claims().await).await?;
        for claim in claims {
            if claim.metadata.deletion_timestamp.is_some() || !random.per_mille(per_mille) {
                continue;
            }
            eventually("a NodeClaim is deleted", OURS, async || {
                match api.delete(&claim.name_any(), &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    result => Ok(result.map(drop)?),
                }
            })
            .await?;
        }
        Ok(())
    }

    async fn is_right(&self, corner: &Corner, wanted: usize) -> Result<()> {
        let mut pods = corner.pods().await?;
        pods.retain(|pod| pod.name_any() != NOWHERE);
        let waiting: Vec<_> = pods.iter().filter(|pod| node_of(pod).is_none()).map(ResourceExt::name_any).collect();
        ensure!(pods.len() == wanted && waiting.is_empty(), "{} of {wanted} pods, waiting: {waiting:?}", pods.len());
        let claims = corner.node_claims().await?;
        let going = claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_some());
        let going: Vec<_> = going.map(ResourceExt::name_any).collect();
        ensure!(going.is_empty(), "NodeClaims that are stuck: {going:?}");
        ensure_nothing_leaked(&self.client).await?;
        self.user_is_told(corner).await
    }

    /// The pod that cannot be placed has its event, which is all that a user hears of it.
    async fn user_is_told(&self, corner: &Corner) -> Result<()> {
        let about = ListParams::default().fields(&format!("involvedObject.name={NOWHERE},reason={FAILED_SCHEDULING}"));
        let events: Vec<Event> = Api::namespaced(self.client.clone(), &corner.name).list(&about).await?.items;
        // kube-scheduler gives the same reason.
        let ours =
            |event: &Event| event.message.as_deref().is_some_and(|text| text.starts_with("Failed to schedule pod"));
        ensure!(events.iter().any(ours), "no event on the pod that cannot be placed: {} others", events.len());
        Ok(())
    }
}

/// The pod that no machine can be had for.
const NOWHERE: &str = "nowhere";

/// Pods, NodeClaims, and those of them whose nodes have no pod.
async fn count(corner: &Corner) -> Result<(usize, usize, usize)> {
    let (pods, claims) = (corner.pods().await?, corner.node_claims().await?);
    let is_empty = |claim: &&api::NodeClaim| {
        let node = claim.status.as_ref().map(|status| status.node_name.as_str());
        !pods.iter().any(|pod| node_of(pod) == node)
    };
    Ok((pods.len(), claims.len(), claims.iter().filter(is_empty).count()))
}

/// One to three rules.
fn some_rules(random: &mut Random) -> Vec<Rule> {
    let writes = [Verb::Create, Verb::Update, Verb::Delete];
    let refuse = |code, retry_after, point| Fault::Refuse { code, retry_after, point };
    let all = [
        Rule::new(Fault::Delay(Duration::from_millis(50)..Duration::from_secs(2))).per_mille(300),
        Rule::new(Fault::Hold(Point::Request)).per_mille(30),
        Rule::new(Fault::Hold(Point::Answer)).verbs(&writes).per_mille(50),
        Rule::new(Fault::CutBody { after_bytes: 0..2000 }).verbs(&[Verb::Read, Verb::Watch]).per_mille(100),
        Rule::new(Fault::CutBody { after_bytes: 0..200 }).verbs(&writes).per_mille(100),
        Rule::new(refuse(429, Some(1), Point::Request)).per_mille(200),
        Rule::new(refuse(500, None, Point::Request)).per_mille(150),
        Rule::new(refuse(503, None, Point::Request)).per_mille(150),
        Rule::new(refuse(504, None, Point::Answer)).verbs(&writes).per_mille(150),
        Rule::new(refuse(409, None, Point::Request)).verbs(&[Verb::Update]).per_mille(250),
        Rule::new(refuse(410, None, Point::Request)).verbs(&[Verb::Watch]).per_mille(400),
        Rule::new(Fault::LoseEvents(Ending::Closed)).per_mille(500),
        Rule::new(Fault::LoseEvents(Ending::Expired)).per_mille(500),
    ];
    (0..=random.below(3)).map(|_| random.pick(&all).clone()).collect()
}
