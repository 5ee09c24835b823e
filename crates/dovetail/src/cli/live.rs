//! What the planner would see in a live cluster, as the lines of a snapshot file.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use cloudprovider::InstanceType;
use cloudprovider::events::NoEvents;
use cloudprovider::options::OptionValues;
use cloudprovider_plugin::{Registry, Setup};
use cluster::snapshot_file::{self, Header, HeaderOptions, KINDS, MinValuesPolicyName, SCHEMA_VERSION, SnapshotKind};
use decode::scheduler_config::SchedulerConfig;
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use serde_json::Value;

use super::machine_types::MachineTypesArgs;
use super::on_demand::OnDemand;
use super::output;
use provisioner::controllers::planner_state::{self, PlannerState};
use provisioner::options::FeatureGates;
use provisioner::runtime::client;
use provisioner::runtime::clock::{Clock, WallClock};
use provisioner::world::store;

/// Objects asked for at a time.
const PAGE: u32 = 500;

/// How a cluster is read.
#[derive(Debug, Clone, Default)]
pub(super) struct LiveOptions {
    /// The provider, and machines that it can launch, if not its own default ones.
    pub(super) machines: MachineTypesArgs,
    /// What the controller does about minValues, if not what it says itself.
    pub(super) min_values_policy: Option<MinValuesPolicyName>,
    /// Whether the controller ignores pods with resource claims, if not what it says itself.
    pub(super) ignore_dra_requests: Option<bool>,
    /// The controller's feature gates, if not what it says itself.
    pub(super) feature_gates: Option<FeatureGates>,
    /// What the controller is told of kube-scheduler, if not what it says itself.
    pub(super) scheduler_config: Option<SchedulerConfig>,
}

/// Reads a cluster on a runtime of its own.
pub(super) fn read(options: &LiveOptions) -> anyhow::Result<Vec<Value>> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(lines(options))
}

async fn lines(options: &LiveOptions) -> anyhow::Result<Vec<Value>> {
    let client = client::unlimited(client::config().await?)?;
    let version = client.apiserver_version().await.context("cannot reach the API server")?;
    let state = controllers_state(&client).await;
    let of_controller = state.as_ref().map(|state| state.options.clone()).unwrap_or_default();
    let gates = options.feature_gates.as_ref().map(FeatureGates::by_name);
    let mut header = Header {
        schema_version: SCHEMA_VERSION,
        time: WallClock.now(),
        dovetail_version: env!("CARGO_PKG_VERSION").to_owned(),
        server_version: version.git_version,
        seed: 0,
        options: HeaderOptions {
            min_values_policy: options.min_values_policy.unwrap_or(of_controller.min_values_policy),
            ignore_dra_requests: options.ignore_dra_requests.unwrap_or(of_controller.ignore_dra_requests),
            ..of_controller
        },
        feature_gates: gates
            .or_else(|| state.as_ref().map(|state| state.feature_gates.clone()))
            .unwrap_or_else(|| FeatureGates::default().by_name()),
        kubernetes_feature_gates: BTreeMap::new(),
        scheduler_config: options
            .scheduler_config
            .clone()
            .or_else(|| state.as_ref().map(|state| state.scheduler_config.clone()))
            .unwrap_or_default(),
        names_hidden: false,
    };
    if let Some(kubernetes) = header.kubernetes() {
        match store::gates::read(&client, kubernetes).await {
            Ok(compat) => header.kubernetes_feature_gates = Header::gates_by_name(&compat),
            Err(error) => output::note(format_args!(
                "could not read the feature gates of the API server ({error}); using the defaults of Kubernetes {kubernetes}"
            )),
        }
    }
    let mut lines = vec![header.to_line()];
    let mut part = OnDemand::new(!header.scheduler_config.is_empty());
    let mut node_pools = Vec::new();
    for kind in &KINDS {
        if !part.asks_for(kind) {
            continue;
        }
        let Some(objects) = list(&client, kind).await? else {
            output::note(format_args!("the cluster does not serve {} {}", kind.api_version, kind.kind));
            continue;
        };
        match kind.kind {
            "CapacityBuffer" => part.buffers.clone_from(&objects),
            "NodePool" => node_pools.clone_from(&objects),
            "Pod" => part.note_owners(&objects),
            _ => {}
        }
        lines.extend(objects);
    }
    lines.retain(|line| part.is_wanted(line));
    let mut types = instance_types(client, options, &node_pools).await?;
    if let Some(state) = &state {
        types.iter_mut().for_each(|(pool, types)| state.apply(pool, types));
    }
    lines.extend(snapshot_file::instance_type_lines(types.iter().map(|(pool, types)| (pool.as_str(), &**types))));
    Ok(lines)
}

/// What the running controller has written down about how it plans.
async fn controllers_state(client: &Client) -> Option<PlannerState> {
    match planner_state::read(client).await {
        Ok(Some(state)) => Some(state),
        Ok(None) => {
            output::note(
                "no controller has written down how it plans in this cluster; its defaults are assumed, and that no \
                 offering has run out",
            );
            None
        }
        Err(error) => {
            output::note(format_args!(
                "cannot read ConfigMap {} ({error:#}); the controller's defaults are assumed, and that no offering has \
                 run out",
                planner_state::CONFIG_MAP
            ));
            None
        }
    }
}

/// Every object of a kind, pruned; `None` if the cluster does not know the kind.
async fn list(client: &Client, kind: &SnapshotKind) -> anyhow::Result<Option<Vec<Value>>> {
    let root = if kind.api_version.contains('/') { "/apis" } else { "/api" };
    let request = Request::new(format!("{root}/{}/{}", kind.api_version, kind.plural));
    let mut objects = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page: Result<Value, _> = client.request(request.list(&parameters)?).await;
        let page = match page {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot list {}", kind.plural)),
        };
        let items = page.get("items").and_then(Value::as_array);
        objects.extend(items.into_iter().flatten().map(|object| snapshot_file::prune(object, kind)));
        match page.pointer("/metadata/continue").and_then(Value::as_str).filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token.to_owned()),
            None => return Ok(Some(objects)),
        }
    }
}

/// What each NodePool of the provider's node classes can launch.
async fn instance_types(
    client: Client,
    options: &LiveOptions,
    node_pools: &[Value],
) -> anyhow::Result<Vec<(String, Vec<Arc<InstanceType>>)>> {
    let machines = &options.machines;
    let catalogue = machines.read(&[])?;
    catalogue.left_out.iter().for_each(output::problem);
    let catalogue = catalogue.types.iter().map(|instance_type| InstanceType::clone(instance_type)).collect();
    let setup = Setup {
        namespace: client.default_namespace().to_owned(),
        client,
        clock: Arc::new(|| WallClock.now()),
        options: &OptionValues::default(),
        reserved_capacity: true,
        metrics: &mut Registry::default(),
        events: Arc::new(NoEvents),
        instance_types: Some(catalogue),
    };
    let provider = machines.provider.plugin.build(setup).await?.cloud;
    let mut all = Vec::new();
    for object in node_pools {
        let pool = match decode::node_pool_object(object) {
            Ok(pool) => pool,
            Err(error) => {
                output::problem(error);
                continue;
            }
        };
        let class = &pool.spec.template.spec.node_class_ref;
        let is_ours = |kind: &cloudprovider::NodeClassKind| kind.group == class.group && kind.kind == class.kind;
        if !provider.node_class_kinds().iter().any(is_ours) {
            continue;
        }
        let name = pool.metadata.name.clone().unwrap_or_default();
        let types = provider
            .instance_types(&pool)
            .await
            .with_context(|| format!("cannot tell the instance types of NodePool {name}"))?;
        all.push((name, types.types.to_vec()));
    }
    Ok(all)
}
