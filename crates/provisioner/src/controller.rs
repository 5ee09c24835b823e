//! The running controller: what is started, in which order, and how it stops.
//!
//! 1. Probes and metrics are served; the API server is asked for its version until it answers.
//! 2. The watches start, with or without leadership, so that a replica that takes over has its store full.
//! 3. With leadership and a full store: the provider's own loop, then the controllers.
//! 4. On SIGTERM or SIGINT nothing new is started; what is under way ends; then the Lease is released. If the Lease is
//!    lost instead, the process ends at once: another replica may act already.
//!
//! A dry run takes no Lease and starts the planner only.
//!
//! Each task that is to run until the end is supervised: if it ends before, so does the process, at once
//! (`supervision`).

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cloudprovider::options::OptionValues;
use cloudprovider::{CloudProvider, RepairPolicies};
use cloudprovider_plugin::{Background, ProviderPlugin, Registry, Setup};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::controllers::disruption::metrics::DisruptionMetrics;
use crate::controllers::disruption::{self, Disruption};
use crate::controllers::node::{eviction, reboot};
use crate::controllers::node_claim::{consistency, disruption_conditions, expiration, garbage_collection};
use crate::controllers::planner_state;
use crate::controllers::pod_deletion_cost::{self, DeletionCostMetrics};
use crate::controllers::provisioning::{self, Provisioner};
use crate::controllers::{
    handover, node, node_claim, node_overlay, node_pool, node_repair, static_capacity, unreadable_pods,
};
use crate::options::Options;
use crate::runtime::beats::Beats;
use crate::runtime::client::{self, Clients};
use crate::runtime::clock::{Clock, WallClock};
use crate::runtime::controller_loop::{Looks, Rhythm};
use crate::runtime::http_server::Tls;
use crate::runtime::jitter::jittered;
use crate::runtime::leader_election::{self, Candidate, Fence, Leadership, Means};
use crate::runtime::metrics::{ByDevices, ByLoop, ByWatch, Metrics, age_seconds};
use crate::runtime::metrics_access::Reviewer;
use crate::runtime::namespace;
use crate::runtime::queue::as_controller;
use crate::runtime::recorder::{self, Recorder};
use crate::runtime::supervision::Supervision;
use crate::world::assignments::Assignments;
use crate::world::catalogues::Catalogues;
use crate::world::cluster_metrics::ClusterMetrics;
use crate::world::context::Context;
use crate::world::health::{self, Endpoints, Ports};
use crate::world::held_devices::HeldDevices;
use crate::world::metered_provider::MeteredProvider;
use crate::world::overlays::Overlays;
use crate::world::pace::Pace;
use crate::world::registration_health::RegistrationHealth;
use crate::world::status_conditions::StatusConditions;
use crate::world::store::rebuild::{self, Feed};
use crate::world::store::{ClusterStore, Delta, Watches};

/// How long controllers may take to finish what is under way.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);
/// How long events that wait may take to be written at the end.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(2);
/// How soon an API server that does not answer is asked again.
const GREET_AGAIN: Duration = Duration::from_secs(2);
/// How long a refusal of the first questions is not believed: an API server that starts has not read its roles yet.
const REFUSED_FOR: Duration = Duration::from_secs(30);
/// How often the gauges of the store are set.
const METRICS_RHYTHM: Rhythm = Rhythm {
    first: Duration::ZERO,
    period: Duration::from_secs(5),
    collect: Duration::ZERO,
    bound: Duration::from_secs(60),
};

/// The provider to run with.
#[derive(Debug)]
pub struct ChosenProvider {
    /// Makes it.
    pub plugin: &'static dyn ProviderPlugin,
    /// The values of its options.
    pub options: OptionValues,
}

/// Runs the controller until it is told to stop.
///
/// # Errors
/// What keeps it from starting, and the loss of leadership.
pub async fn run(options: Options, provider: ChosenProvider) -> anyhow::Result<()> {
    let options = Arc::new(options);
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone())?;
    let config = client::config().await?;
    let mut metrics = Metrics::new();
    let status_conditions = Arc::new(StatusConditions::register(&mut metrics));
    let of_disruption = DisruptionMetrics::register(&mut metrics);
    let of_deletion_cost = DeletionCostMetrics::register(&mut metrics);
    let cluster_metrics = Arc::new(ClusterMetrics::register(&mut metrics));
    let (metrics, beats, fence) = (Arc::new(metrics), Arc::new(Beats::default()), Fence::closed());
    let (reviewer, metrics_tls) = metrics_security(&config, &options)?;
    let clients = Clients::new(&config, &options, &metrics, &fence)?;

    let clock: Arc<dyn Clock> = Arc::new(WallClock);
    let supervision = Supervision::default();
    end_with_a_task(supervision.clone());
    let store = Arc::new(ClusterStore::supervised(supervision.clone()));
    let endpoints =
        Endpoints { metrics: Arc::clone(&metrics), reviewer, store: Arc::clone(&store), beats: Arc::clone(&beats) };
    let ports = Ports { probes: options.health_probe_port, metrics: options.metrics_port, metrics_tls };
    // Probes answer until the very end.
    let serving = CancellationToken::new();
    health::serve(endpoints, ports, serving.clone()).await?;
    tokio::select! {
        greeted = greet(&clients.lease, &options) => greeted?,
        () = stop.cancelled() => return Ok(()),
    }

    let (recorder, events) = Recorder::new(Arc::clone(&clock), Arc::clone(&metrics));
    let mut of_provider = Registry::default();
    let setup = Setup {
        client: clients.limited.clone(),
        clock: {
            let clock = Arc::clone(&clock);
            Arc::new(move || clock.now())
        },
        namespace: namespace::own_or_kube_system(),
        options: &provider.options,
        reserved_capacity: options.feature_gates.reserved_capacity,
        metrics: &mut of_provider,
        events: Arc::new(recorder.clone()),
        instance_types: None,
    };
    let provider = provider.plugin.build(setup).await?;
    metrics.set_provider(of_provider);
    let repair_policies = repair_policies(&*provider.cloud, &options)?;
    let event_client = (!options.dry_run).then(|| clients.events.clone());
    let beat = beats.beat("events", recorder::BOUND);
    let writing_events = recorder::write_events(events, event_client, Arc::clone(&clock), beat);
    let writing_events = tokio::spawn(supervision.endless("events", stop.clone(), writing_events));
    let held_devices = Arc::new(HeldDevices::new(options.dra_hold_timeout));
    held_devices.observe(&store, &clock);
    let context = Context {
        client: clients.limited,
        urgent_client: clients.urgent,
        eviction_client: clients.evictions,
        store: Arc::clone(&store),
        assignments: Arc::new(Assignments::default()),
        successors: Arc::default(),
        departures: Arc::default(),
        catalogues: Arc::new(Catalogues::default()),
        held_devices,
        overlays: Arc::new(Overlays::default()),
        clock: Arc::clone(&clock),
        cloud: Arc::new(MeteredProvider::new(provider.cloud, Arc::clone(&metrics), Arc::clone(&store), fence.clone())),
        repair_policies,
        pace: Arc::new(Pace::default()),
        recorder,
        metrics,
        cluster_metrics,
        status_conditions,
        beats,
        fence,
        supervision: supervision.clone(),
        background: TaskTracker::new(),
        options: Arc::clone(&options),
        stop: stop.clone(),
    };
    let mut background = JoinSet::new();
    background.spawn(supervision.endless("watches", stop.clone(), watch(&context)));
    background.spawn(supervision.endless("store metrics", stop.clone(), keep_store_metrics(context.clone())));
    observe_bindings(&context);

    // Should it fail, all else is to end in good order.
    let leadership = lead(clients.lease, &context).await.inspect_err(|_| stop.cancel())?;
    let Leading::Yes(leadership) = leadership else {
        serving.cancel();
        return Ok(());
    };
    let parts = Parts { provider: provider.background, disruption: of_disruption, deletion_cost: of_deletion_cost };
    let result = supervise(leadership, &context, parts).await;
    background.shutdown().await;
    drop(context);
    // Its channel closes with the last context.
    let _ = tokio::time::timeout(EVENTS_TIMEOUT, writing_events).await;
    serving.cancel();
    result
}

/// The provider's repair policies, if nodes are to be repaired.
fn repair_policies(cloud: &dyn CloudProvider, options: &Options) -> anyhow::Result<Option<Arc<RepairPolicies>>> {
    if !options.feature_gates.node_repair {
        return Ok(None);
    }
    let gate = || format!("feature gate NodeRepair, provider {}", cloud.name());
    let policies = RepairPolicies::new(cloud.repair_policies()).with_context(gate)?;
    anyhow::ensure!(!policies.is_empty(), "{}: it has no repair policies", gate());
    Ok(Some(Arc::new(policies)))
}

/// Who is asked about readers of metrics, and what metrics are served with, where the options want them secure.
fn metrics_security(config: &kube::Config, options: &Options) -> anyhow::Result<(Option<Arc<Reviewer>>, Option<Tls>)> {
    if !options.secure_metrics {
        return Ok((None, None));
    }
    let tls = match &options.metrics_tls_folder {
        Some(folder) => Tls::from_folder(folder).context("--metrics-tls-folder")?,
        None => Tls::self_signed()?,
    };
    Ok((Some(Arc::new(Reviewer::new(config.clone())?)), Some(tls)))
}

/// What came of the wait for leadership.
enum Leading {
    /// We lead; without leader election there is no Lease to keep.
    Yes(Option<Box<Leadership>>),
    /// We were stopped before.
    No,
}

async fn lead(client: Client, context: &Context) -> anyhow::Result<Leading> {
    let options = &context.options;
    if options.dry_run {
        // The fence stays closed: nothing is written.
        return Ok(Leading::Yes(None));
    }
    let Some(election) = &options.leader_election else {
        context.fence.open();
        return Ok(Leading::Yes(None));
    };
    let candidate = Candidate {
        namespace: election.namespace.clone().unwrap_or_else(namespace::own_or_kube_system),
        name: election.name.clone(),
        identity: identity(),
    };
    if !election.allow_other_leader {
        leader_election::refuse_other_leader(client.clone(), &candidate, context.clock.as_ref()).await?;
    }
    let means = Means {
        clock: Arc::clone(&context.clock),
        fence: context.fence.clone(),
        beat: context.beats.beat("lease", leader_election::BOUND),
    };
    let leadership = Leadership::acquire(client, candidate, means, &context.stop).await;
    Ok(leadership.map_or(Leading::No, |leadership| Leading::Yes(Some(Box::new(leadership)))))
}

/// Different for each process: two on one host must not take each other's Lease for theirs. It begins with the pod's
/// name where that is known, so that people and Karpenter's tests find the leader's pod.
fn identity() -> String {
    use std::hash::{BuildHasher, RandomState};
    let pod = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    let host = pod.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.or_else(|| std::env::var("HOSTNAME").ok());
    let host = host.as_deref().map_or("dovetail", str::trim);
    format!("{host}_{:016x}", RandomState::new().hash_one(std::process::id()))
}

fn watch(context: &Context) -> impl Future<Output = ()> + use<> {
    let watches = Watches {
        client: context.client.clone(),
        feed: Arc::new(Feed::new(Arc::clone(&context.store))),
        recorder: context.recorder.clone(),
        metrics: Arc::clone(&context.metrics),
        beats: Arc::clone(&context.beats),
        supervision: context.supervision.clone(),
        buffers: context.options.feature_gates.capacity_buffer,
        pod_selectors: !context.options.scheduler_config.is_empty(),
        labels: Arc::new(context.cloud.config().labels.clone()),
        stop: context.stop.clone(),
    };
    rebuild::keep_watching(watches, Arc::clone(&context.store), context.cloud.node_class_kinds().to_vec())
}

/// Ends the process when a task has ended that should not have. At once: what it left half done is not to be acted on.
fn end_with_a_task(supervision: Supervision) {
    tokio::spawn(async move {
        let failure = supervision.failed().await;
        error!(error = %failure, "a task failed, ending at once");
        std::process::exit(1);
    });
}

/// What some controllers bring along.
struct Parts {
    /// The provider's own loop.
    provider: Option<Background>,
    /// Where the disruption controller counts.
    disruption: DisruptionMetrics,
    /// Where the controller of deletion costs counts.
    deletion_cost: DeletionCostMetrics,
}

/// Starts the controllers.
fn start(context: &Context, parts: Parts, controllers: &mut JoinSet<()>) {
    let mut spawn = |name, controller: BoxFuture<'static, ()>| {
        let controller = as_controller(name, controller);
        controllers.spawn(context.supervision.endless(name, context.stop.clone(), controller));
    };
    let provisioner = Provisioner::new(context.clone());
    spawn(provisioning::NAME, provisioner.run().boxed());
    if context.options.dry_run {
        return;
    }
    context.status_conditions.observe(&context.store, Arc::clone(&context.clock));
    let of_each = !context.options.disable_cluster_state_observability;
    context.cluster_metrics.observe(&context.store, &context.clock, &context.cloud.config().labels, of_each);
    if let Some(of_provider) = parts.provider {
        spawn("provider", of_provider(context.stop.clone().cancelled_owned().boxed()));
    }
    let health = Arc::new(RegistrationHealth::default());
    let evictions = eviction::Evictions::default();
    let own = || context.clone();
    let of_disruption = Disruption::new(own(), parts.disruption);
    spawn(disruption::NAME, of_disruption.run().boxed());
    spawn(node_pool::NAME, node_pool::run(own(), Arc::clone(&health)).boxed());
    spawn(static_capacity::NAME, static_capacity::run(own()).boxed());
    spawn(node_overlay::NAME, node_overlay::run(own()).boxed());
    spawn(node_claim::NAME, node_claim::run(own(), health).boxed());
    spawn(garbage_collection::NAME, garbage_collection::run(own()).boxed());
    spawn(consistency::NAME, consistency::run(own()).boxed());
    spawn(disruption_conditions::NAME, disruption_conditions::run(own()).boxed());
    spawn(expiration::NAME, expiration::run(own()).boxed());
    spawn(node::NAME, node::run(own(), evictions.clone()).boxed());
    spawn(reboot::NAME, reboot::run(own(), evictions.clone()).boxed());
    spawn(node_repair::NAME, node_repair::run(own()).boxed());
    if context.options.feature_gates.pod_deletion_cost_management {
        spawn(pod_deletion_cost::NAME, pod_deletion_cost::run(own(), parts.deletion_cost).boxed());
    }
    spawn(eviction::NAME, eviction::run(own(), evictions).boxed());
    spawn(unreadable_pods::NAME, unreadable_pods::run(own()).boxed());
    spawn(handover::NAME, handover::run(own()).boxed());
    spawn(planner_state::NAME, planner_state::run(own()).boxed());
}

/// Runs the controllers from the moment that the store is full until the end: an order to stop, or a lost Lease.
async fn supervise(leadership: Option<Box<Leadership>>, context: &Context, parts: Parts) -> anyhow::Result<()> {
    let release = CancellationToken::new();
    let mut keeping = tokio::spawn(keep(leadership, release.clone()));
    let mut controllers = JoinSet::new();
    tokio::select! {
        lost = &mut keeping => end_at_once(&lost),
        () = control(context, parts, &mut controllers) => {}
    }
    context.background.close();
    let finished = async {
        while controllers.join_next().await.is_some() {}
        context.background.wait().await;
    };
    tokio::select! {
        lost = &mut keeping => end_at_once(&lost),
        finished = tokio::time::timeout(SHUTDOWN_TIMEOUT, finished) => {
            if finished.is_err() {
                warn!(timeout = ?SHUTDOWN_TIMEOUT, "some controllers did not finish in time");
            }
        }
    }
    controllers.shutdown().await;
    release.cancel();
    keeping.await.context("leader election failed")??;
    Ok(())
}

/// Keeps the Lease, if there is one, until `release` is cancelled.
async fn keep(leadership: Option<Box<Leadership>>, release: CancellationToken) -> Result<(), leader_election::Error> {
    match leadership {
        Some(leadership) => leadership.keep(release).await,
        None => {
            release.cancelled().await;
            Ok(())
        }
    }
}

/// Fail-stop: nothing is waited for, because another replica may lead by now.
fn end_at_once(lost: &Result<Result<(), leader_election::Error>, tokio::task::JoinError>) -> ! {
    match lost {
        Ok(Err(reason)) => error!(error = %reason, "leadership is lost, ending at once"),
        Ok(Ok(())) | Err(_) => error!("leader election ended by itself, ending at once"),
    }
    std::process::exit(1);
}

/// Starts the controllers once the store is full, and waits for the order to stop.
async fn control(context: &Context, parts: Parts, controllers: &mut JoinSet<()>) {
    tokio::select! {
        () = context.stop.cancelled() => return,
        () = context.store.wait_until_synced() => {}
    }
    start(context, parts, controllers);
    context.stop.cancelled().await;
    info!("stopping");
}

fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => info!("got SIGTERM"),
            _ = interrupt.recv() => info!("got SIGINT"),
        }
        stop.cancel();
    });
    Ok(())
}

/// Says what runs where, with which options, once the API server answers: it may be away for longer than Kubernetes
/// likes to start us again and again.
async fn greet(client: &Client, options: &Options) -> anyhow::Result<()> {
    let mut refused_since = None;
    let (version, groups) = loop {
        let ask = async { Ok::<_, kube::Error>((client.apiserver_version().await?, client.list_api_groups().await?)) };
        match ask.await {
            Ok(answers) => break answers,
            Err(kube::Error::Api(status))
                if status.code < 500
                    && refused_since.get_or_insert_with(tokio::time::Instant::now).elapsed() > REFUSED_FOR =>
            {
                return Err(
                    anyhow::Error::new(kube::Error::Api(status)).context("the API server does not tell its version")
                );
            }
            Err(error) => {
                let causes = format!("{:#}", anyhow::Error::new(error));
                warn!(error = causes, "the API server does not answer, trying again");
            }
        }
        tokio::time::sleep(jittered(GREET_AGAIN)).await;
    };
    let versions_of = |group: &str| -> Vec<String> {
        let found = groups.groups.iter().find(|it| it.name == group);
        found.map(|it| it.versions.iter().map(|version| version.version.clone()).collect()).unwrap_or_default()
    };
    info!(
        version = env!("CARGO_PKG_VERSION"),
        kubernetes = version.git_version,
        karpenter_api = versions_of(api::groups::KARPENTER).join(","),
        resource_api = versions_of("resource.k8s.io").join(","),
        scheduling_api = versions_of("scheduling.k8s.io").join(","),
        dry_run = options.dry_run,
        hand_over = options.hand_over.mode.as_str(),
        feature_gates = %options.feature_gates,
        default_spread_constraints = options.scheduler_config.default_constraints.len(),
        "starting dovetail"
    );
    if versions_of(api::groups::KARPENTER).is_empty() {
        warn!("the CRDs of {} are not installed; see `dovetail crds`", api::groups::KARPENTER);
    }
    if !options.ignored.is_empty() {
        warn!(flags = options.ignored.join(", "), "these options have no meaning here and are ignored");
    }
    if !options.feature_gates.unknown.is_empty() {
        warn!(gates = options.feature_gates.unknown.join(", "), "these feature gates are unknown and are ignored");
    }
    Ok(())
}

/// Measures how long each pod waited to be bound, from now on.
fn observe_bindings(context: &Context) {
    let (metrics, clock) = (Arc::clone(&context.metrics), Arc::clone(&context.clock));
    context.store.on::<model::Pod>(move |delta, _| {
        let Delta { before: Some(before), after: Some(after), .. } = delta else { return };
        if before.node_name.is_none() && after.node_name.is_some() {
            let labels = ByDevices { dynamic_resources: (!after.shape.resource_claims.is_empty()).to_string() };
            let since_creation = age_seconds(clock.now().since(after.created_at));
            metrics.pods_bound_duration_seconds.get_or_create(&labels).observe(since_creation);
        }
    });
}

/// Shows which loops hang, and since when nothing was heard on each watch.
fn observe_beats(context: &Context) {
    let hanging = context.beats.hanging();
    for name in context.beats.loops() {
        let hangs = hanging.iter().any(|silent| silent.name == name);
        let labels = ByLoop { r#loop: name.into() };
        context.metrics.loop_hangs.get_or_create(&labels).set(i64::from(hangs));
    }
    for watch in context.beats.watches() {
        let labels = ByWatch { watch: watch.name.into() };
        context.metrics.watch_silent_seconds.get_or_create(&labels).set(watch.silent_for.as_secs_f64());
    }
}

async fn keep_store_metrics(context: Context) {
    let started = tokio::time::Instant::now();
    let mut looks = Looks::new("store metrics", METRICS_RHYTHM, &context.beats, &context.stop);
    while looks.next().await {
        observe_beats(&context);
        let (nodes, synced) = {
            let state = context.store.read();
            (state.nodes.len(), state.is_synced())
        };
        context.metrics.cluster_state_node_count.set(i64::try_from(nodes).unwrap_or(i64::MAX));
        context.metrics.cluster_state_synced.set(i64::from(synced));
        let unsynced_s = if synced { 0.0 } else { started.elapsed().as_secs_f64() };
        context.metrics.cluster_state_unsynced_time_seconds.set(unsynced_s);
    }
}
