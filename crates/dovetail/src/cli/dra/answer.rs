//! Who gets which devices: pods one after the other, each on the nodes that are asked about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dra_sched::pods::{self, Claims, ExtendedClaim, ExtendedResources, IN_MEMORY_CLAIM, PodFault, Served, WantedClaim};
use dra_sched::{
    BinLedger, ClaimClassId, ClaimId, ClaimUse, ClusterLedger, Copies, Inventory, InventoryBuilder, NodeDemand,
    Refusal, evictions::Eviction, explain::Explanation,
};
use dra_types::{Allocation, AllocationResult, Compat, DeviceId, KubernetesMinor, Pod, ResourceClaim};
use model::{Budget, IdSet, NamespacedName};

use super::api_form;
use super::objects::Objects;
use super::report::{
    ClaimAnswer, ClaimState, CostOfClaim, DeviceAnswer, NodeRefusal, Outcome, PodAnswer, Report, SCHEMA_VERSION,
};

impl Report {
    /// Asks for every pod in its order; `each_alone`: as if no other were pending. The budget is in steps for each pod
    /// and node.
    pub(super) fn new(objects: &Objects, compat: &Compat, each_alone: bool, steps: u64) -> Self {
        let mut run = Run::new(objects, compat, steps);
        let mut ledger = run.ledger();
        let mut pods = Vec::new();
        for index in 0..run.asked.len() {
            if each_alone {
                ledger = run.ledger();
                run.forget();
            }
            pods.push(run.pod(index, &mut ledger));
        }
        Self {
            schema_version: SCHEMA_VERSION,
            kubernetes: compat.kubernetes.to_string(),
            gates: compat.gates.iter().map(dra_types::Gate::name).collect(),
            pods,
            without_devices: run.without_devices,
            notes: run.notes,
        }
    }
}

/// A claim of a pod, ready to be asked for.
#[derive(Debug, Clone)]
struct Ask {
    /// The pod's entry; none of the claim for extended resources.
    entry: Option<Arc<str>>,
    name: String,
    /// What reasons call it.
    full_name: String,
    what: ClaimUse,
}

/// A pod that is asked about.
#[derive(Debug)]
struct Asked<'a> {
    pod: &'a Pod,
    evicted_by: Option<String>,
    claims: Result<Vec<Ask>, PodFault>,
    /// Its claim for extended resources by node: a class, why there can be none, or nothing.
    extended: BTreeMap<Arc<str>, Result<ClaimClassId, Explanation>>,
}

struct Run<'a> {
    objects: &'a Objects,
    inventory: Inventory,
    steps: u64,
    asked: Vec<Asked<'a>>,
    without_devices: usize,
    /// Who has which device, in the cluster and by this run.
    holders: BTreeMap<DeviceId, String>,
    holders_at_start: BTreeMap<DeviceId, String>,
    /// Nodes that are allocated on.
    bins: BTreeMap<Arc<str>, BinLedger>,
    /// What this run gave to claims that exist by name.
    allocated: BTreeMap<ClaimId, Allocation>,
    /// What pods take of nodes, in nano-units.
    used: BTreeMap<Arc<str>, NodeDemand>,
    used_at_start: BTreeMap<Arc<str>, NodeDemand>,
    notes: Vec<String>,
}

fn inventory_of(objects: &Objects, compat: &Compat) -> InventoryBuilder {
    let mut builder = InventoryBuilder::new(*compat);
    objects.classes.values().for_each(|class| builder.class(Arc::clone(class)));
    objects.slices.values().for_each(|slice| builder.slice(Arc::clone(slice)));
    objects.rules.values().for_each(|rule| builder.taint_rule(Arc::clone(rule)));
    builder
}

/// Claims whose pods are ended at once, by name.
fn evictions(objects: &Objects, compat: &Compat) -> BTreeMap<NamespacedName, Eviction> {
    let mut builder = inventory_of(objects, compat);
    let ids: Vec<(ClaimId, &NamespacedName)> =
        objects.claims.iter().map(|(name, claim)| (builder.claim(Arc::clone(claim)), name)).collect();
    let evictions = Eviction::all(&builder.build());
    let named = |eviction: Eviction| {
        let (_, name) = ids.iter().find(|(id, _)| *id == eviction.claim)?;
        Some(((*name).clone(), eviction))
    };
    evictions.into_iter().filter(|eviction| eviction.not_before.is_none()).filter_map(named).collect()
}

impl<'a> Run<'a> {
    fn new(objects: &'a Objects, compat: &Compat, steps: u64) -> Self {
        let evictions = evictions(objects, compat);
        let mut notes = Vec::new();
        for (claim, eviction) in &evictions {
            notes.push(format!(
                "{} has taint {}, which ends the pods of claim {claim}",
                eviction.device, eviction.taint
            ));
        }
        // What evicted pods held is free again; claims made for them go with them.
        let mut claims: BTreeMap<NamespacedName, Arc<ResourceClaim>> = objects.claims.clone();
        for name in evictions.keys() {
            let Some(claim) = claims.get_mut(name) else { continue };
            if claim.meta.owners.iter().any(|owner| &*owner.kind == "Pod") {
                claims.remove(name);
            } else {
                let claim = Arc::make_mut(claim);
                claim.allocation = None;
                claim.reserved_for.clear();
            }
        }
        let mut builder = inventory_of(objects, compat);
        let waits = |pod: &&Pod| !pod.is_terminal && pod.node_name.is_none();
        let waiting: BTreeSet<(&Arc<str>, &Arc<str>)> =
            objects.pods.iter().filter(waits).map(|pod| (&pod.meta.name.namespace, &pod.meta.name.name)).collect();
        let mut ids: BTreeMap<NamespacedName, ClaimId> = BTreeMap::new();
        for (name, claim) in &claims {
            let id = builder.claim(Arc::clone(claim));
            if pods::is_idle(claim, |consumer| waiting.contains(&(&name.namespace, &consumer.name))) {
                builder.mark_idle(id);
            }
            ids.insert(name.clone(), id);
        }
        let extended = ExtendedResources::new(objects.classes.values().map(|class| &**class), compat);
        let lookup = Claims { claims: &claims, templates: &objects.templates, groups: &objects.groups };
        let mut asked = Vec::new();
        let mut without_devices = 0;
        for pod in &objects.pods {
            let evicted_by = evicted_by(pod, objects, &evictions);
            if pod.is_terminal || pod.node_name.is_some() && evicted_by.is_none() {
                continue;
            }
            let again = evicted_by.is_some().then(|| {
                let mut again = pod.clone();
                again.claim_names.clear();
                again
            });
            let wanted = pods::claims(again.as_ref().unwrap_or(pod), &lookup, compat);
            let wanted = wanted.map(|wanted| {
                let ask = |wanted| ask(wanted, pod, objects, &mut builder, &mut ids);
                wanted.into_iter().map(ask).collect::<Vec<Ask>>()
            });
            let mut by_node = BTreeMap::new();
            let mut known: Vec<(ExtendedClaim, ClaimClassId)> = Vec::new();
            for name in &objects.asked {
                let Some(node) = objects.nodes.get(name) else { continue };
                let served = match extended.serve(pod, &node.allocatable) {
                    Served::Elsewhere => continue,
                    Served::Missing(resource) => Err(Explanation::new(
                        "MissingExtendedResource",
                        format!("the node has no {resource}, and no DeviceClass serves it"),
                    )),
                    Served::Stranded(resource) => Err(Explanation::new(
                        "ExtendedResourceOfPlugin",
                        format!(
                            "a device plugin of the node has {resource}, which a DeviceClass serves too, and the pod has \
                             claims besides: kube-scheduler {} never binds such a pod",
                            compat.kubernetes
                        ),
                    )),
                    Served::Claim(claim) => Ok(match known.iter().find(|(known, _)| *known == claim) {
                        Some((_, class)) => *class,
                        None => {
                            let class = builder.claim_class(IN_MEMORY_CLAIM, &claim.spec, None);
                            known.push((claim, class));
                            class
                        }
                    }),
                };
                by_node.insert(Arc::clone(name), served);
            }
            if wanted.as_ref().is_ok_and(Vec::is_empty) && by_node.is_empty() {
                without_devices += 1;
                continue;
            }
            asked.push(Asked { pod, evicted_by, claims: wanted, extended: by_node });
        }
        // The sort is stable: what is equal stays in the order of writing.
        asked.sort_by_key(|asked| {
            let created = asked.pod.meta.created_at;
            (std::cmp::Reverse(asked.pod.priority), created.is_none(), created)
        });
        let bin = |name: &Arc<str>| {
            let node = objects.nodes.get(name)?;
            Some((Arc::clone(name), BinLedger::node(node.facts.clone())))
        };
        let bins = objects.asked.iter().filter_map(bin).collect();
        let holders = holders(&claims);
        let used = used(objects);
        Self {
            objects,
            inventory: builder.build(),
            steps,
            asked,
            without_devices,
            holders_at_start: holders.clone(),
            holders,
            bins,
            allocated: BTreeMap::new(),
            used_at_start: used.clone(),
            used,
            notes,
        }
    }

    fn ledger(&self) -> ClusterLedger {
        ClusterLedger::new(&self.inventory)
    }

    /// Goes back to the start.
    fn forget(&mut self) {
        self.holders.clone_from(&self.holders_at_start);
        self.used.clone_from(&self.used_at_start);
        self.allocated.clear();
    }

    fn pod(&mut self, index: usize, ledger: &mut ClusterLedger) -> PodAnswer {
        let Some(asked) = self.asked.get(index) else {
            return PodAnswer {
                pod: String::new(),
                priority: 0,
                evicted_by: None,
                outcome: Outcome::Invalid { reason: "is not asked about".to_owned() },
            };
        };
        let (pod, evicted_by) = (asked.pod, asked.evicted_by.clone());
        let outcome = match &asked.claims {
            Ok(_) => self.on_nodes(index, ledger),
            Err(fault) => Outcome::Invalid { reason: reason(fault, self.objects) },
        };
        PodAnswer { pod: pod.meta.name.to_string(), priority: pod.priority, evicted_by, outcome }
    }

    fn on_nodes(&mut self, index: usize, ledger: &mut ClusterLedger) -> Outcome {
        let mut best: Option<Fit> = None;
        let mut refusals: Vec<NodeRefusal> = Vec::new();
        let mut undecided: Vec<String> = Vec::new();
        let mut ended = false;
        for name in &self.objects.asked {
            match self.on_node(index, name, ledger) {
                Answer::Fits(fit) => {
                    // As long as it fits where its claims are, none is taken back.
                    if best.as_ref().is_none_or(|best| fit.rank() > best.rank()) {
                        best = Some(*fit);
                    }
                }
                Answer::Undecided => undecided.push(name.to_string()),
                Answer::Refused(why) => {
                    ended |= why.everywhere;
                    match refusals.iter_mut().find(|known| without_names(&known.why) == without_names(&why)) {
                        Some(known) => known.nodes.push(name.to_string()),
                        None => refusals.push(NodeRefusal { nodes: vec![name.to_string()], why: *why }),
                    }
                }
            }
        }
        // An error of the pod ends it on all nodes, whatever others would give.
        if ended {
            refusals.retain(|refusal| refusal.why.everywhere);
            return Outcome::Refused { nodes: refusals };
        }
        match best {
            Some(fit) => self.take(index, fit, ledger),
            None if undecided.is_empty() => Outcome::Refused { nodes: refusals },
            None => Outcome::Undecided { nodes: undecided, steps: self.steps, refused: refusals },
        }
    }

    fn on_node(&self, index: usize, name: &Arc<str>, ledger: &ClusterLedger) -> Answer {
        let (Some(asked), Some(node), Some(bin)) =
            (self.asked.get(index), self.objects.nodes.get(name), self.bins.get(name))
        else {
            return Answer::Undecided;
        };
        let mut asks: Vec<Ask> = asked.claims.clone().unwrap_or_default();
        match asked.extended.get(name) {
            None => {}
            Some(Ok(class)) => asks.push(Ask {
                entry: None,
                name: IN_MEMORY_CLAIM.to_owned(),
                full_name: IN_MEMORY_CLAIM.to_owned(),
                what: ClaimUse::Extended { class: *class },
            }),
            Some(Err(why)) => return Answer::Refused(Box::new(why.clone())),
        }
        let uses: Vec<ClaimUse> = asks.iter().map(|ask| ask.what).collect();
        let mut budget = Budget::new(self.steps);
        let offer =
            Copies { claims: &uses, copies: 1 }.try_add(&self.inventory, bin, &IdSet::default(), ledger, &mut budget);
        let Some(alternative) = offer.alternatives.into_iter().next() else {
            return match offer.refused.first() {
                Some(refused) => Answer::Refused(Box::new(self.explain(&refused.refusal, &asks))),
                None => Answer::Undecided,
            };
        };
        let demand = alternative.demand(None);
        let mut free = NodeDemand::default();
        for (resource, amount) in &node.allocatable {
            let used = self.used.get(name).and_then(|used| used.0.get(resource)).copied().unwrap_or(0);
            free.0.insert(Arc::clone(resource), amount.to_nano() - used);
        }
        let entries: Vec<Arc<str>> = asks.iter().map_while(|ask| ask.entry.clone()).collect();
        let covered = if self.inventory.compat().kubernetes < KubernetesMinor::V1_37 {
            Ok(())
        } else {
            pods::check_pod_limits(asked.pod, &demand, &alternative.shares(None), &entries)
        };
        if let Err(fault) = covered.and_then(|()| pods::check_node_resources(asked.pod, &demand, &free)) {
            return Answer::refused("NodeResources", fault.to_string());
        }
        let score = alternative.score(None, 0);
        Answer::Fits(Box::new(Fit { node: Arc::clone(name), score, asks, bin: bin.clone(), alternative, demand }))
    }

    fn explain(&self, refusal: &Refusal, asks: &[Ask]) -> Explanation {
        let mut why = Explanation::of(&self.inventory, refusal, &|device| self.holders.get(device).cloned());
        let names: Vec<(&str, &str)> =
            asks.iter().map(|ask| (self.inventory.claim_name(ask.what), ask.full_name.as_str())).collect();
        why.rename_claims(&names);
        why
    }

    /// Charges a pod and says what it got.
    fn take(&mut self, index: usize, mut fit: Fit, ledger: &mut ClusterLedger) -> Outcome {
        let pod = self.asked.get(index).map(|asked| asked.pod.meta.name.to_string()).unwrap_or_default();
        let mut new = fit.alternative.allocations(None, 0).iter();
        let mut claims = Vec::with_capacity(fit.asks.len());
        for ask in &fit.asks {
            let (state, allocation) = match ask.what {
                ClaimUse::Fresh { .. } | ClaimUse::Extended { .. } => (ClaimState::New, new.next().cloned()),
                ClaimUse::Named { claim, .. } => {
                    let in_cluster = self.inventory.allocation(claim);
                    let known = self.allocated.get(&claim).or(in_cluster);
                    let before = known.filter(|_| !fit.alternative.takes_back(claim)).cloned();
                    match before {
                        Some(before) => (ClaimState::Shared, Some(before)),
                        None => {
                            let allocation = new.next().cloned().unwrap_or_default();
                            self.allocated.insert(claim, allocation.clone());
                            (ClaimState::New, Some(allocation))
                        }
                    }
                }
            };
            let allocation = allocation.unwrap_or_default();
            for result in allocation.results.iter().filter(|result| state == ClaimState::New && !result.admin_access) {
                self.holders.insert(result.device.clone(), format!("pod {pod} (claim {})", ask.name));
            }
            let devices = allocation.results.iter().map(device).collect();
            claims.push(ClaimAnswer {
                claim: ask.name.clone(),
                state,
                devices,
                config: allocation.config.iter().map(api_form::config).collect(),
                node_selector: allocation.node_selector.as_deref().map(api_form::node_selector),
            });
        }
        fit.alternative.commit(&self.inventory, &mut fit.bin, ledger);
        if let Some(asked) = self.asked.get(index) {
            let total = pods::total_demand(asked.pod, &fit.demand);
            let used = self.used.entry(Arc::clone(&fit.node)).or_default();
            for (resource, amount) in total.0 {
                *used.0.entry(resource).or_default() += amount;
            }
        }
        let node_resources = fit.demand.0.iter().map(|(name, nano)| (Arc::clone(name), amount(*nano))).collect();
        let costs = fit.alternative.shares(None).into_iter().filter_map(|share| {
            let claim = fit.asks.get(share.place)?.name.clone();
            Some(share.of_pod.into_iter().map(move |(resource, cost)| CostOfClaim {
                claim: claim.clone(),
                resource,
                devices: cost.devices,
                amount: amount(cost.amount),
                each: cost.each.map(amount),
            }))
        });
        let costs_of_claims = costs.flatten().collect();
        Outcome::Allocated { node: fit.node.to_string(), score: fit.score, claims, node_resources, costs_of_claims }
    }
}

/// What is wrong with a pod. An object that was read and refused is not one that does not exist.
fn reason(fault: &PodFault, objects: &Objects) -> String {
    let missing = match fault {
        PodFault::NoClaim(name) => Some(format!("ResourceClaim {name}")),
        PodFault::NoTemplate(name) => Some(format!("ResourceClaimTemplate {name}")),
        PodFault::NoGroup(name) => Some(format!("PodGroup {name}")),
        PodFault::Deleting(_) | PodFault::OtherPod(_) | PodFault::TooManyConsumers(_) => None,
    };
    match missing.filter(|object| objects.refused.contains(object)) {
        Some(object) => format!("{}; its problem was told", decode::unusable(&object)),
        None => fault.to_string(),
    }
}

enum Answer {
    Fits(Box<Fit>),
    Refused(Box<Explanation>),
    Undecided,
}

impl Answer {
    fn refused(code: &'static str, message: String) -> Self {
        Self::Refused(Box::new(Explanation::new(code, message)))
    }
}

struct Fit {
    node: Arc<str>,
    score: u32,
    asks: Vec<Ask>,
    bin: BinLedger,
    alternative: dra_sched::Alternative,
    demand: NodeDemand,
}

impl Fit {
    /// Which of several nodes kube-scheduler takes, as far as devices decide.
    fn rank(&self) -> (bool, u32) {
        let claims = self.asks.iter().filter_map(|ask| match ask.what {
            ClaimUse::Named { claim, .. } => Some(claim),
            ClaimUse::Fresh { .. } | ClaimUse::Extended { .. } => None,
        });
        (!claims.into_iter().any(|claim| self.alternative.takes_back(claim)), self.score)
    }
}

/// What a refusal says beside the names of a node's own devices and who has them.
fn without_names(why: &Explanation) -> Explanation {
    let mut why = why.clone();
    for fell in why.requests.iter_mut().flat_map(|request| &mut request.fell) {
        fell.example.clear();
        fell.held_by.clear();
    }
    why
}

fn device(result: &AllocationResult) -> DeviceAnswer {
    let consumed = result.consumed_capacity.iter().map(|(name, amount)| (name.to_string(), amount.to_string()));
    DeviceAnswer {
        request: result.request.to_string(),
        driver: result.device.driver.to_string(),
        pool: result.device.pool.to_string(),
        device: result.device.device.to_string(),
        admin_access: result.admin_access,
        shared: result.share_id.is_some(),
        consumed_capacity: consumed.collect(),
        binding_conditions: result.binding_conditions.clone(),
        binding_failure_conditions: result.binding_failure_conditions.clone(),
    }
}

fn amount(nano: i128) -> String {
    let format = model::quantity::Format::DecimalSi;
    model::Quantity::from_nano(nano, format).map_or_else(|_| "too much".to_owned(), |quantity| quantity.to_string())
}

/// Makes one claim of a pod ready. A claim that a group's pods will share is made here, once.
fn ask(
    wanted: WantedClaim,
    pod: &Pod,
    objects: &Objects,
    builder: &mut InventoryBuilder,
    ids: &mut BTreeMap<NamespacedName, ClaimId>,
) -> Ask {
    let containers = pod.containers_using(wanted.entry());
    let entry_of_pod = Some(Arc::clone(wanted.entry()));
    let reservation = wanted.reservation(builder);
    match wanted {
        WantedClaim::Existing { claim, .. } => {
            // `pods::claims` has found the claim among those that have ids.
            let id = *ids.get(&claim).expect("an existing claim has an id");
            let what = ClaimUse::Named { claim: id, containers, reservation };
            Ask { entry: entry_of_pod, name: claim.name.to_string(), full_name: claim.to_string(), what }
        }
        WantedClaim::Fresh { entry, template } => {
            let name = format!("made from {template}");
            let template = objects.templates.get(&template).expect("a template that is wanted exists");
            let unsupported = template.unsupported.first().map(|field| Arc::clone(&field.construct));
            let class = builder.claim_class(&name, &Arc::new(template.spec.clone()), unsupported);
            Ask {
                entry: entry_of_pod,
                name: entry.to_string(),
                full_name: name,
                what: ClaimUse::Fresh { class, containers },
            }
        }
        WantedClaim::OfGroup { entry, group, template } => {
            let name = NamespacedName::new(Arc::clone(&group.namespace), format!("{}-{entry}", group.name));
            let id = *ids.entry(name.clone()).or_insert_with(|| {
                let template = objects.templates.get(&template).expect("a template that is wanted exists");
                let mut meta = template.meta.clone();
                meta.name = name.clone();
                builder.claim(Arc::new(ResourceClaim {
                    meta,
                    spec: template.spec.clone(),
                    allocation: None,
                    reserved_for: Vec::new(),
                    device_status: Vec::new(),
                    unsupported: template.unsupported.clone(),
                    unknown_fields: Vec::new(),
                }))
            });
            let what = ClaimUse::Named { claim: id, containers, reservation };
            Ask { entry: entry_of_pod, name: name.name.to_string(), full_name: name.to_string(), what }
        }
    }
}

/// The taint that ends a pod that runs.
fn evicted_by(pod: &Pod, objects: &Objects, evictions: &BTreeMap<NamespacedName, Eviction>) -> Option<String> {
    pod.node_name.as_ref()?;
    evictions.iter().find_map(|(name, eviction)| {
        let claim = objects.claims.get(name)?;
        let of_group = pod.pod_group.as_ref();
        let uses = claim.meta.name.namespace == pod.meta.name.namespace
            && claim.reserved_for.iter().any(|consumer| match &*consumer.resource {
                "pods" => consumer.name == pod.meta.name.name,
                "podgroups" => of_group.is_some_and(|group| *group == consumer.name),
                _ => false,
            });
        uses.then(|| format!("{} on {}", eviction.taint, eviction.device))
    })
}

fn holders(claims: &BTreeMap<NamespacedName, Arc<ResourceClaim>>) -> BTreeMap<DeviceId, String> {
    let mut holders = BTreeMap::new();
    for (name, claim) in claims {
        let consumers: BTreeSet<&str> = claim.reserved_for.iter().map(|consumer| &*consumer.name).collect();
        let by = match consumers.len() {
            0 => String::new(),
            1..=3 => format!(" of {}", consumers.into_iter().collect::<Vec<_>>().join(", ")),
            count => format!(" of {count} pods"),
        };
        for result in claim.allocation.iter().flat_map(|allocation| &allocation.results) {
            if !result.admin_access {
                holders.insert(result.device.clone(), format!("claim {name}{by}"));
            }
        }
    }
    holders
}

/// What pods that run take of their nodes.
fn used(objects: &Objects) -> BTreeMap<Arc<str>, NodeDemand> {
    let mut used: BTreeMap<Arc<str>, NodeDemand> = BTreeMap::new();
    for pod in objects.pods.iter().filter(|pod| !pod.is_terminal) {
        let Some(node) = &pod.node_name else { continue };
        let of_node = used.entry(Arc::from(node.as_str())).or_default();
        for (resource, amount) in pods::total_demand(pod, &NodeDemand(pod.device_costs.clone())).0 {
            *of_node.0.entry(resource).or_default() += amount;
        }
    }
    used
}
