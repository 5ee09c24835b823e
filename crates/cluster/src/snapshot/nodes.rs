//! Nodes and NodeClaims become what the planner can place pods on: a machine is one entry, however far it has come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::conditions::{self, node_claim as claim_conditions};
use api::{NodeClaim, labels, taints as api_taints};
use dra_sched::NodeDemand;
use dra_types::KubernetesMinor;
use model::node::ConditionStatus;
use model::pod::Resizing;
use model::{
    IdVec, Interner, NamespacedName, NodeClaimName, NodeName, NodePoolName, Pod, PodShape, Quantity, ResourceVec,
    Taint, collections::NameMap,
};
use scheduling::catalogue::Catalogue;
use scheduling::devices::device_costs;
use scheduling::snapshot::{Excluded, Node, NodeId, NodeLabels, NodeState, RunningPods};

use super::Cluster;
use super::cache::{Cache, KnownNode, Names};
use crate::node_claim::command;
use crate::node_pool::Usage;
use decode::Context;
use decode::aliases;
use decode::resource_list::set;
use decode::{ObjectError, ObjectRef, Problem, Reason};
use decode::{requirements, taints};

/// What is used of each NodePool's limits.
pub(super) type UsageByPool = BTreeMap<NodePoolName, Usage>;

/// All machines: first the Nodes in the cluster's order, then the NodeClaims without a Node.
pub(super) fn nodes(
    cluster: &Cluster,
    context: &mut Context<'_>,
    cache: &mut Cache,
    errors: &mut Vec<ObjectError>,
) -> (IdVec<NodeId, Arc<Node>>, UsageByPool) {
    let names = Names::of(context.interner);
    let mut claims = Claims::decode(cluster, context, cache, errors);
    let mut pods = PodsByNode::new(cluster);
    // Who decides about machines that go looks at commands himself.
    let leaving = match cluster.wants_fleet {
        true => BTreeSet::new(),
        false => command::leaving(cluster.node_claims.iter().map(AsRef::as_ref)),
    };
    let as_it_will_be = |node: Arc<Node>| match node.node_claim.as_ref().is_some_and(|claim| leaving.contains(claim)) {
        true => Arc::new(Node { excluded: Some(Excluded::Deleting), ..Node::clone(&node) }),
        false => node,
    };
    let mut nodes = IdVec::new();
    let mut usage = UsageByPool::new();
    for object in &cluster.nodes {
        let claim = claims.take_for(object);
        let of_claim = claim.as_ref().map(|(object, _)| object);
        let shared = cluster.bound.shared(&object.name);
        let is_plain = pods.is_as_bound(&object.name);
        if is_plain && let Some(known) = cache.nodes.get(object).filter(|known| known.is_of(of_claim, shared)) {
            let node = as_it_will_be(Arc::clone(&known.node));
            count(&node, &known.capacity, &mut usage);
            nodes.push(node);
            continue;
        }
        let running = cache.kinds.running(pods.take(&object.name, context.interner));
        let (decoded, claim) = (claim.as_ref().map(|(_, decoded)| &**decoded), of_claim.cloned());
        let node = Arc::new(of_node(object, decoded, running, context));
        let capacity = match decoded {
            Some(claim) if node.state < NodeState::Launched => joined(&object.capacity, &claim.capacity, node.state),
            Some(claim) => claim.capacity.clone(),
            None => object.capacity.clone(),
        };
        let to_be = as_it_will_be(Arc::clone(&node));
        count(&to_be, &capacity, &mut usage);
        nodes.push(to_be);
        // What is kept holds for any release.
        let resizes = shared.is_some_and(|pods| pods.iter().any(|pod| pod.resizing.is_some()));
        if is_plain && !resizes && Names::of(context.interner) == names {
            cache.nodes.keep(object, KnownNode { claim, pods: shared.cloned(), node, capacity });
        }
    }
    for claim in claims.without_node() {
        let node = of_claim(&claim);
        let capacity = if claim.is_launched { claim.capacity.clone() } else { claim.largest(cluster, context) };
        count(&node, &capacity, &mut usage);
        nodes.push(Arc::new(node));
    }
    (nodes, usage)
}

/// Machines that are going do not count against limits, as in Karpenter: their place will be free.
fn count(node: &Node, capacity: &ResourceVec, usage: &mut UsageByPool) {
    let Some(pool) = &node.node_pool else { return };
    if node.excluded == Some(Excluded::Deleting) {
        return;
    }
    let usage = usage.entry(pool.clone()).or_default();
    usage.capacity.saturating_add_assign(capacity);
    usage.nodes += 1;
}

fn of_node(object: &model::Node, claim: Option<&Claim>, pods: RunningPods, context: &mut Context<'_>) -> Node {
    let state = match claim {
        None => NodeState::Initialized,
        Some(claim) => claim.state_with(object, context),
    };
    let is_deleting = object.deletion_timestamp.is_some() || claim.is_some_and(|claim| claim.is_deleting);
    let is_unready = object.conditions.iter().any(|condition| {
        &*condition.condition_type == conditions::node::READY && condition.status != ConditionStatus::True
    });
    let excluded = if is_deleting {
        Some(Excluded::Deleting)
    } else if object.unschedulable {
        Some(Excluded::Cordoned)
    } else if is_unready && state == NodeState::Initialized && !claim.is_some_and(|claim| claim.is_rebooting) {
        Some(Excluded::NotReady)
    } else if pods.iter().any(|pod| pod.unreadable.is_some()) {
        Some(Excluded::HoldsUnreadablePod)
    } else {
        None
    };
    let registered = claim.filter(|_| state >= NodeState::Launched);
    Node {
        name: Some(object.name.clone()),
        node_claim: claim.map(|claim| claim.name.clone()),
        node_pool: claim.and_then(|claim| claim.node_pool.clone()).or_else(|| pool_of(object, context)),
        state,
        excluded,
        labels: match registered {
            Some(claim) => NodeLabels::Promised(claim.promised.clone()),
            None => NodeLabels::Known(known_labels(object, claim, state, context)),
        },
        taints: match (registered, claim) {
            (Some(claim), _) => claim.taints.clone(),
            (None, claim) => {
                let coming = claim.filter(|claim| state != NodeState::Initialized || claim.is_rebooting);
                lasting_taints(object, coming, context)
            }
        },
        allocatable: match claim {
            Some(claim) => joined(&object.allocatable, &claim.allocatable, state),
            None => object.allocatable.clone(),
        },
        attach_limits: object
            .csi_drivers
            .iter()
            .flatten()
            .filter_map(|driver| Some((Arc::clone(&driver.name), driver.attachable_volumes?)))
            .collect(),
        pods,
        awaits_devices: claim.is_some_and(|claim| claim.awaits_devices),
    }
}

fn of_claim(claim: &Claim) -> Node {
    Node {
        name: None,
        node_claim: Some(claim.name.clone()),
        node_pool: claim.node_pool.clone(),
        state: if claim.is_launched { NodeState::Launched } else { NodeState::Launching },
        excluded: claim.is_deleting.then_some(Excluded::Deleting),
        labels: NodeLabels::Promised(claim.promised.clone()),
        taints: claim.taints.clone(),
        allocatable: claim.allocatable.clone(),
        attach_limits: Vec::new(),
        pods: RunningPods::default(),
        awaits_devices: true,
    }
}

/// A Node's own labels. One that has only just come may not have all that it will carry.
fn known_labels(
    object: &model::Node,
    claim: Option<&Claim>,
    state: NodeState,
    context: &mut Context<'_>,
) -> model::Labels {
    let mut labels = object.labels.clone();
    if claim.is_some() && state != NodeState::Initialized {
        aliases::complete(&mut labels, context.interner);
    }
    labels
}

fn pool_of(object: &model::Node, context: &mut Context<'_>) -> Option<NodePoolName> {
    let key = context.key(labels::NODEPOOL);
    let pool = object.labels.get(key)?;
    Some(NodePoolName::from(context.interner.value_name(pool)))
}

/// Until a node is initialized its kubelet and device plugins may not have said all they will; what they have not said
/// is taken from the NodeClaim.
fn joined(of_node: &ResourceVec, of_claim: &ResourceVec, state: NodeState) -> ResourceVec {
    if state == NodeState::Initialized {
        return of_node.clone();
    }
    let mut joined = of_claim.clone();
    for (resource, amount) in of_node.iter() {
        joined.set(resource, amount);
    }
    joined
}

/// The taints that pods must tolerate. Of a machine that is `coming`, those that will still be there once its node is
/// initialized, or has been rebooted: pods wait for it, and no other is launched for them. Any other may be closed
/// while pods of a disruption command move there; more are planned beside these, and let in as they are.
fn lasting_taints(object: &model::Node, coming: Option<&Claim>, context: &Context<'_>) -> Vec<Taint> {
    let names = &*context.interner;
    let will_go = |taint: &Taint| {
        let key = names.key_name(taint.key);
        let Some(claim) = coming else { return key == api_taints::HELD };
        let is_startup = claim.startup_taints.iter().any(|mine| mine.key == taint.key && mine.effect == taint.effect);
        let is_fence = claim.is_rebooting && key == api_taints::REBOOTING;
        is_startup || is_fence || api_taints::is_known_ephemeral(key, &taint.effect.to_string())
    };
    object.taints.iter().filter(|taint| !will_go(taint)).copied().collect()
}

/// What of a NodeClaim matters to the planner.
#[derive(Debug)]
pub(super) struct Claim {
    name: NodeClaimName,
    node_pool: Option<NodePoolName>,
    node_name: Option<NodeName>,
    provider_id: Option<Arc<str>>,
    is_deleting: bool,
    is_launched: bool,
    is_registered: bool,
    is_initialized: bool,
    is_rebooting: bool,
    /// Whether its drivers may still publish what is expected of them: initialization waits for that, or gives it up.
    awaits_devices: bool,
    /// What its machine's labels satisfy.
    promised: model::Requirements,
    taints: Vec<Taint>,
    startup_taints: Vec<Taint>,
    capacity: ResourceVec,
    allocatable: ResourceVec,
}

impl Claim {
    fn decode(object: &NodeClaim, context: &mut Context<'_>) -> Result<Self, Problem> {
        let metadata = &object.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Err(Problem { field: "metadata.name".to_owned(), reason: Reason::Missing });
        }
        let own_labels = metadata.labels.iter().flatten();
        let status = object.status.as_ref();
        let has = |wanted: &str, value: &str| {
            let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == wanted && condition.status == value)
        };
        let is_true = |wanted: &str| has(wanted, conditions::TRUE);
        let is_false = |wanted: &str| has(wanted, conditions::FALSE);
        let provider_id = status.map(|status| status.provider_id.as_str()).filter(|id| !id.is_empty());
        let is_launched = is_true(claim_conditions::LAUNCHED) || provider_id.is_some();
        let mut promised = requirements::requirements(&object.spec.requirements, "spec.requirements", context)?;
        promised.intersect(&requirements::labels(own_labels, context), context.interner);
        aliases::promise(&mut promised, context.interner);
        let mut resources = |list: &api::ResourceList, field: &str| resource_vec(list, field, context);
        // Before the launch there is only what was planned for it.
        let (capacity, allocatable) = match status.filter(|status| is_launched && !status.allocatable.is_empty()) {
            Some(status) => {
                (resources(&status.capacity, "status.capacity")?, resources(&status.allocatable, "status.allocatable")?)
            }
            None => {
                let requests = resources(&object.spec.resources.requests, "spec.resources.requests")?;
                (requests.clone(), requests)
            }
        };
        Ok(Self {
            name: NodeClaimName::from(name),
            node_pool: metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get(labels::NODEPOOL))
                .map(|pool| NodePoolName::from(pool.as_str())),
            node_name: status
                .map(|status| status.node_name.as_str())
                .filter(|name| !name.is_empty())
                .map(NodeName::from),
            provider_id: provider_id.map(Arc::from),
            is_deleting: metadata.deletion_timestamp.is_some(),
            is_launched,
            is_registered: is_true(claim_conditions::REGISTERED),
            is_initialized: is_true(claim_conditions::INITIALIZED),
            is_rebooting: is_true(claim_conditions::REBOOTING),
            awaits_devices: !is_true(claim_conditions::INITIALIZED) && !is_false(claim_conditions::DEVICES_PUBLISHED),
            promised,
            taints: taints::taints(&object.spec.taints, "spec.taints", context)?,
            startup_taints: taints::taints(&object.spec.startup_taints, "spec.startupTaints", context)?,
            capacity,
            allocatable,
        })
    }

    /// How far a machine with this claim and this Node has come.
    fn state_with(&self, node: &model::Node, context: &mut Context<'_>) -> NodeState {
        let yes = context.interner.value(labels::TRUE);
        let has = |key: &str, context: &mut Context<'_>| node.labels.get(context.key(key)) == Some(yes);
        if self.is_initialized || has(labels::INITIALIZED, context) {
            NodeState::Initialized
        } else if self.is_registered || has(labels::REGISTERED, context) {
            NodeState::Registered
        } else {
            NodeState::Launched
        }
    }

    /// The most that its machine could have, for limits: until it is launched it may become any of its types.
    ///
    /// Differs: `limits-while-launching`. Karpenter counts nothing for such a machine, so that two plans in a row can
    /// exceed a limit.
    fn largest(&self, cluster: &Cluster, context: &mut Context<'_>) -> ResourceVec {
        let mut largest = self.capacity.clone();
        let pool = cluster.node_pools.iter().find(|pool| {
            self.node_pool.as_ref().is_some_and(|name| pool.object.metadata.name.as_deref() == Some(name.as_str()))
        });
        for capacity in pool.into_iter().flat_map(|pool| self.possible(&pool.catalogue, context)) {
            largest.max_assign(capacity);
        }
        largest
    }

    fn possible<'c>(&self, catalogue: &'c Catalogue, context: &Context<'_>) -> Vec<&'c ResourceVec> {
        let names = &*context.interner;
        let offerings = catalogue.offerings.iter();
        offerings
            .filter(|offering| self.promised.intersects(&offering.requirements, names).is_ok())
            .map(|offering| &offering.capacity)
            .collect()
    }
}

fn resource_vec(list: &api::ResourceList, field: &str, context: &mut Context<'_>) -> Result<ResourceVec, Problem> {
    let mut vec = ResourceVec::new();
    for (name, amount) in list {
        let problem = |reason| Problem { field: format!("{field}[{name}]"), reason };
        let amount = Quantity::parse(&amount.0).map_err(|error| problem(error.into()))?;
        set(&mut vec, name, &amount, context.interner).map_err(problem)?;
    }
    Ok(vec)
}

/// The NodeClaims that no Node has been found for.
#[derive(Default)]
struct Claims {
    /// The objects and what they say; none where its Node has been found.
    claims: Vec<Option<(Arc<NodeClaim>, Arc<Claim>)>>,
    /// Places among these.
    by_provider_id: NameMap<Arc<str>, usize>,
    by_node_name: NameMap<NodeName, usize>,
}

impl Claims {
    fn decode(cluster: &Cluster, context: &mut Context<'_>, cache: &mut Cache, errors: &mut Vec<ObjectError>) -> Self {
        let mut claims = Self::default();
        let names = Names::of(context.interner);
        for object in &cluster.node_claims {
            if let Some(known) = cache.claims.get(object) {
                claims.insert(object, Arc::clone(known));
                continue;
            }
            match Claim::decode(object, context) {
                Ok(claim) => {
                    let claim = Arc::new(claim);
                    if Names::of(context.interner) == names {
                        cache.claims.keep(object, Arc::clone(&claim));
                    }
                    claims.insert(object, claim);
                }
                Err(problem) => {
                    let name = NamespacedName::new("", object.metadata.name.as_deref().unwrap_or_default());
                    errors.push(ObjectError { object: ObjectRef { kind: "NodeClaim".into(), name }, problem });
                }
            }
        }
        claims
    }

    fn insert(&mut self, object: &Arc<NodeClaim>, claim: Arc<Claim>) {
        let place = self.claims.len();
        if let Some(provider_id) = &claim.provider_id {
            self.by_provider_id.insert(Arc::clone(provider_id), place);
        }
        if let Some(node_name) = &claim.node_name {
            self.by_node_name.insert(node_name.clone(), place);
        }
        self.claims.push(Some((Arc::clone(object), claim)));
    }

    /// The claim of this Node: the one with its provider id, else the one that names it.
    fn take_for(&mut self, node: &model::Node) -> Option<(Arc<NodeClaim>, Arc<Claim>)> {
        let by_id = node.provider_id.as_ref().and_then(|id| self.by_provider_id.get(id.as_str()));
        let place = by_id.or_else(|| self.by_node_name.get(&node.name))?;
        self.claims.get_mut(*place)?.take()
    }

    /// By name.
    fn without_node(self) -> impl Iterator<Item = Arc<Claim>> {
        let mut left: Vec<_> = self.claims.into_iter().flatten().map(|(_, claim)| claim).collect();
        left.sort_by(|a, b| a.name.cmp(&b.name));
        left.into_iter()
    }
}

/// Pods that hold room on a node.
struct PodsByNode<'c> {
    cluster: &'c Cluster,
    /// Of those that were given one by one.
    pods: BTreeMap<&'c NodeName, Vec<&'c Arc<Pod>>>,
    /// Whether devices of some pod cost something of its node.
    has_costs: bool,
}

impl<'c> PodsByNode<'c> {
    fn new(cluster: &'c Cluster) -> Self {
        let mut pods: BTreeMap<&NodeName, Vec<&Arc<Pod>>> = BTreeMap::new();
        for pod in &cluster.pods {
            // Kube-scheduler keeps the room of a nominated pod as if it were bound.
            if let Some(node) = pod.node_name.as_ref().or(pod.nominated_node_name.as_ref()) {
                pods.entry(node).or_default().push(pod);
            }
        }
        let has_costs = cluster.devices.pods.values().any(|devices| !devices.device_costs.is_empty());
        Self { cluster, pods, has_costs }
    }

    /// Whether the pods of a node are those that are bound to it, as they are but for what [`as_counted`] does.
    fn is_as_bound(&self, node: &NodeName) -> bool {
        !self.has_costs && !self.pods.contains_key(node)
    }

    /// Those that have not ended, by name.
    fn take(&mut self, node: &NodeName, names: &Interner) -> Arc<Vec<Arc<Pod>>> {
        let has_ended = |pod: &Arc<Pod>| pod.phase.is_terminal();
        let changes = |pod: &Arc<Pod>| has_ended(pod) || resizing(pod, self.cluster).is_some();
        if self.is_as_bound(node)
            && let Some(shared) = self.cluster.bound.shared(node).filter(|pods| !pods.iter().any(changes))
        {
            return Arc::clone(shared);
        }
        let bound = self.cluster.bound.on(node).iter();
        let all = bound.chain(self.pods.remove(node).into_iter().flatten()).filter(|pod| !has_ended(pod));
        let mut pods: Vec<_> = all.map(|pod| as_counted(pod, self.cluster, names)).collect();
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        Arc::new(pods)
    }
}

/// The pod with the requests that kube-scheduler counts it with on its node: with what its devices cost of the node, as
/// its status says it, and from 1.37 on by the sums that its kubelet tells.
fn as_counted(pod: &Arc<Pod>, cluster: &Cluster, names: &Interner) -> Arc<Pod> {
    let devices = cluster.devices.pods.get(&pod.uid).filter(|devices| !devices.device_costs.is_empty());
    let costs = devices.and_then(|devices| device_costs(devices, &NodeDemand(devices.device_costs.clone()), names));
    let requests = match (resizing(pod, cluster), costs) {
        (None, None) => return Arc::clone(pod),
        (None, Some(costs)) => {
            let mut requests = pod.shape.requests.clone();
            requests.saturating_add_assign(&costs);
            requests
        }
        (Some(resizing), costs) => resizing.requests(&costs.unwrap_or_default()),
    };
    let shape = PodShape { requests, ..PodShape::clone(&pod.shape) };
    Arc::new(Pod { shape: Arc::new(shape), ..Pod::clone(pod) })
}

/// What the kubelet says of the pod's resources, where the release counts by it.
fn resizing<'p>(pod: &'p Pod, cluster: &Cluster) -> Option<&'p Resizing> {
    pod.resizing.as_deref().filter(|_| cluster.devices.compat.kubernetes >= KubernetesMinor::V1_37)
}
