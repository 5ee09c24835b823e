//! Of pods and PodGroups what devices depend on: claims, resources of containers, the group, and what the status says.
//!
//! Everything else of a pod is the planner's business and is not read; so no field of a pod is unknown here.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{NodeName, Quantity};
use serde_json::Value;

use super::json::{FieldError, Reader, Reason, Unknown};
use super::meta::{ObjectMeta, is_label};

mod whole;

pub use whole::{RequestsAndLimits, is_for_whole_pods};

/// Amounts by resource name.
pub type Resources = BTreeMap<Arc<str>, Quantity>;

/// How long a container runs, as far as the reuse of what it was given is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// A regular container.
    Pod,
    /// An init container with `restartPolicy: Always`.
    Sidecar,
    /// Any other init container: it ends before later ones start.
    Init,
}

/// A container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: Arc<str>,
    /// How long it runs.
    pub lifetime: Lifetime,
    /// What it asks for; a limit without a request is a request.
    pub requests: Resources,
    /// Its limits.
    pub limits: Resources,
    /// Names of the pod's claims that it uses.
    pub claims: Vec<Arc<str>>,
}

/// Where a claim of a pod or PodGroup comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimSource {
    /// A claim that exists by this name.
    Claim(Arc<str>),
    /// A claim that is made from this template.
    Template(Arc<str>),
}

/// An entry of `spec.resourceClaims`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodClaim {
    /// Its name in the pod or group.
    pub name: Arc<str>,
    /// Where it comes from.
    pub source: ClaimSource,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Who it is.
    pub meta: ObjectMeta,
    /// Its priority; 0 if none was set.
    pub priority: i32,
    /// The node it is bound to.
    pub node_name: Option<NodeName>,
    /// Whether it has ended.
    pub is_terminal: bool,
    /// Init containers, then containers, as upstream numbers them.
    pub containers: Vec<Container>,
    /// Its claims.
    pub claims: Vec<PodClaim>,
    /// `status.resourceClaimStatuses`: the claim made for an entry; None if none is needed.
    pub claim_names: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// The claim that was made for its extended resources.
    pub extended_resource_claim: Option<Arc<str>>,
    /// `status.nodeAllocatableResourceClaimStatuses`, from 1.38 on `additionalNodeAllocatableResources`: what its
    /// devices cost of the node, in nano-units.
    pub device_costs: BTreeMap<Arc<str>, i128>,
    /// The PodGroup that it belongs to.
    pub pod_group: Option<Arc<str>>,
    /// Requests of the pod as a whole; the API server completes them ([`Pod::fill_in`]).
    pub pod_requests: Resources,
    /// Limits of the pod as a whole; the API server completes them ([`Pod::fill_in`]).
    pub pod_limits: Resources,
    /// What running the pod costs besides.
    pub overhead: Resources,
}

/// A PodGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodGroup {
    /// Who it is.
    pub meta: ObjectMeta,
    /// Claims that its pods have in common, if theirs are written the same.
    pub claims: Vec<PodClaim>,
    /// `status.resourceClaimStatuses`.
    pub claim_names: BTreeMap<Arc<str>, Option<Arc<str>>>,
}

impl Pod {
    /// Whether the pod may want devices: it has claims, or asks for a resource that a device class could serve.
    pub fn may_want_devices(&self) -> bool {
        let is_extended = |name: &Arc<str>| name.contains('/');
        !self.claims.is_empty() || self.containers.iter().any(|it| it.requests.keys().any(is_extended))
    }

    /// Reads a pod.
    ///
    /// # Errors
    /// A value of the wrong type; the error names the field.
    pub fn from_json(object: &Value) -> Result<Self, FieldError> {
        let unknown = Unknown::default();
        let root = Reader::root(object, &unknown);
        let (spec, status) = (root.field("spec"), root.field("status"));
        let mut containers = Vec::new();
        containers.extend(spec.field("initContainers").list(|container| Container::read(container, true))?);
        containers.extend(spec.field("containers").list(|container| Container::read(container, false))?);
        let whole = spec.field("resources");
        let group = spec.field("schedulingGroup");
        let priority = spec.field("priority").integer()?.unwrap_or(0);
        let non_empty = |text: &&str| !text.is_empty();
        Ok(Self {
            meta: ObjectMeta::read(&root)?,
            priority: i32::try_from(priority).map_err(|_| {
                spec.field("priority").error(Reason::Invalid("must be an integer of 32 bits".to_owned()))
            })?,
            node_name: spec.field("nodeName").text()?.filter(non_empty).map(NodeName::from),
            is_terminal: matches!(status.field("phase").text()?, Some("Succeeded" | "Failed")),
            containers,
            claims: spec.field("resourceClaims").list(PodClaim::read)?,
            claim_names: claim_names(&status)?,
            extended_resource_claim: status
                .field("extendedResourceClaimStatus")
                .field("resourceClaimName")
                .text()?
                .filter(non_empty)
                .map(Arc::from),
            device_costs: device_costs(&status)?,
            pod_group: group.field("podGroupName").text()?.filter(non_empty).map(Arc::from),
            pod_requests: resources(&whole.field("requests"))?,
            pod_limits: resources(&whole.field("limits"))?,
            overhead: resources(&spec.field("overhead"))?,
        })
    }

    /// What the pod's containers ask for together, whatever the pod asks for as a whole.
    pub fn container_requests(&self) -> Resources {
        whole::together(&self.containers, |container| &container.requests)
    }

    /// What the pod's containers are limited to together, as far as they are.
    pub fn container_limits(&self) -> Resources {
        whole::together(&self.containers, |container| &container.limits)
    }

    /// How many containers use a claim of the pod, init containers included.
    pub fn containers_using(&self, claim: &str) -> u32 {
        let using = self.containers.iter().filter(|container| container.claims.iter().any(|used| **used == *claim));
        u32::try_from(using.count()).unwrap_or(u32::MAX)
    }
}

impl PodGroup {
    /// Reads a PodGroup of `scheduling.k8s.io`.
    ///
    /// # Errors
    /// A value of the wrong type; the error names the field.
    pub fn from_json(object: &Value) -> Result<Self, FieldError> {
        let unknown = Unknown::default();
        let root = Reader::root(object, &unknown);
        Ok(Self {
            meta: ObjectMeta::read(&root)?,
            claims: root.field("spec").field("resourceClaims").list(PodClaim::read)?,
            claim_names: claim_names(&root.field("status"))?,
        })
    }
}

impl PodClaim {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        let non_empty = |text: &&str| !text.is_empty();
        let claim = reader.field("resourceClaimName").text()?.filter(non_empty);
        let template = reader.field("resourceClaimTemplateName").text()?.filter(non_empty);
        let source = match (claim, template) {
            (Some(claim), None) => ClaimSource::Claim(claim.into()),
            (None, Some(template)) => ClaimSource::Template(template.into()),
            (None, None) | (Some(_), Some(_)) => {
                let rule = "exactly one of resourceClaimName and resourceClaimTemplateName must be set";
                return Err(reader.error(Reason::Invalid(rule.to_owned())));
            }
        };
        Ok(Self { name: reader.field("name").string()?, source })
    }
}

impl Container {
    fn read(reader: &Reader<'_>, is_init: bool) -> Result<Self, FieldError> {
        let restarts = reader.field("restartPolicy").text()? == Some("Always");
        let own = reader.field("resources");
        let limits = resources(&own.field("limits"))?;
        let mut requests = resources(&own.field("requests"))?;
        for (name, amount) in &limits {
            requests.entry(Arc::clone(name)).or_insert(*amount);
        }
        Ok(Self {
            name: reader.field("name").string()?,
            lifetime: match (is_init, restarts) {
                (false, _) => Lifetime::Pod,
                (true, true) => Lifetime::Sidecar,
                (true, false) => Lifetime::Init,
            },
            requests,
            limits,
            claims: used_claims(&own.field("claims"))?,
        })
    }
}

/// The names of the claims that a container uses. It may name requests of a claim, or the claim, and each once.
fn used_claims(reader: &Reader<'_>) -> Result<Vec<Arc<str>>, FieldError> {
    let mut used: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    reader.list(|entry| {
        let (name, request) = (entry.field("name").string::<Arc<str>>()?, entry.field("request").string::<Arc<str>>()?);
        if !request.is_empty() && !is_label(&request) {
            let reason = format!("{request:?} is not a lowercase RFC 1123 label");
            return Err(entry.field("request").error(Reason::Invalid(reason)));
        }
        let overlaps = |(other, of): &(Arc<str>, Arc<str>)| {
            *other == name && (of.is_empty() || request.is_empty() || *of == request)
        };
        if !name.is_empty() && used.iter().any(overlaps) {
            return Err(entry.error(Reason::Duplicate(name.to_string())));
        }
        used.push((name, request));
        Ok(())
    })?;
    let mut names: Vec<Arc<str>> = used.into_iter().map(|(name, _)| name).collect();
    names.dedup();
    Ok(names)
}

fn resources(reader: &Reader<'_>) -> Result<Resources, FieldError> {
    reader.map(|amount| Ok(amount.quantity()?.unwrap_or_default()))
}

fn claim_names(status: &Reader<'_>) -> Result<BTreeMap<Arc<str>, Option<Arc<str>>>, FieldError> {
    let entry = |entry: &Reader<'_>| {
        let claim = entry.field("resourceClaimName").text()?.filter(|name| !name.is_empty());
        Ok((entry.field("name").string()?, claim.map(Arc::from)))
    };
    Ok(status.field("resourceClaimStatuses").list(entry)?.into_iter().collect())
}

/// What the scheduler has charged, in the words of 1.36 (`resources`) and of 1.37. What 1.38 calls
/// `additionalNodeAllocatableResources` says the same and comes instead.
fn device_costs(status: &Reader<'_>) -> Result<BTreeMap<Arc<str>, i128>, FieldError> {
    let amount = |reader: &Reader<'_>| Ok(reader.quantity()?.map_or(0, Quantity::to_nano));
    let named = |reader: &Reader<'_>, nano: i128| Ok((reader.field("name").string::<Arc<str>>()?, nano));
    let mut costs: BTreeMap<Arc<str>, i128> = BTreeMap::new();
    let of_1_38 = status.field("additionalNodeAllocatableResources");
    let charged = if of_1_38.is_present() { of_1_38 } else { status.field("nodeAllocatableResourceClaimStatuses") };
    let of_claims = charged.list(|claim| {
        let containers = claim.field("containers").list(|container| container.string::<Arc<str>>())?.len() as i128;
        let mut amounts: Vec<(Arc<str>, i128)> = claim.field("resources").map(amount)?.into_iter().collect();
        amounts.extend(claim.field("mapping").list(|entry| named(entry, amount(&entry.field("quantity"))?))?);
        amounts.extend(claim.field("overhead").list(|entry| {
            let each = amount(&entry.field("perContainer"))?;
            named(entry, amount(&entry.field("perPod"))?.saturating_add(each.saturating_mul(containers)))
        })?);
        Ok(amounts)
    })?;
    for (name, nano) in of_claims.into_iter().flatten() {
        let total = costs.entry(name).or_default();
        *total = total.saturating_add(nano);
    }
    Ok(costs)
}
