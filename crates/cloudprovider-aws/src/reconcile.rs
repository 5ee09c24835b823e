//! The reconciler of EC2NodeClasses: what their selectors find, whether machines can be launched with it, and the end
//! of those that are deleted. `pkg/controllers/nodeclass` of karpenter-provider-aws 1.15.
//!
//! Everything is looked at each time, whatever fails: one status says all that is wrong. A call that is throttled or
//! not answered leaves what was found before; one that is refused is named in its condition. What becomes of the
//! findings is decided by [`status`], which calls nothing.

mod look;
mod profile;
mod status;
mod validation;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::NodeClaim;
use model::{DurationMs, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::look::Look;
use self::status::{Decided, Rules, decide};
use self::validation::Verdicts;
use crate::kubernetes_version::KubernetesVersion;
use crate::node_class::{NodeClass, decode, hash};
use crate::provider::cluster::{Cluster, Failure, Part};
use crate::provider::{Clock, Ec2CloudProvider, drift};
use crate::service::{Ec2, Iam, Ssm};
use crate::{names, user_data};

/// How often a node class that is going is looked at while NodeClaims refer to it.
const WAIT: DurationMs = DurationMs::from_seconds(600);
/// How many NodeClaims an event names.
const NAMED: usize = 5;

/// What the reconciler is made with.
pub struct Setup {
    /// The provider, which knows types, launch templates and the cluster's objects.
    pub provider: Ec2CloudProvider,
    /// EC2.
    pub ec2: Arc<dyn Ec2>,
    /// Systems Manager, which knows the images of aliases.
    pub ssm: Arc<dyn Ssm>,
    /// Identity and Access Management, which has instance profiles.
    pub iam: Arc<dyn Iam>,
    /// The cluster's objects.
    pub objects: Arc<dyn Cluster>,
    /// The time.
    pub clock: Clock,
    /// What the cluster and the options say.
    pub settings: Settings,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What the cluster and the options say.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What machines are told of the cluster.
    pub cluster: user_data::Cluster,
    /// The region.
    pub region: String,
    /// The version of Kubernetes, as it is now.
    pub kubernetes: KubernetesVersion,
    /// Whether reservations are used, the gate `ReservedCapacity`.
    pub reserved_capacity: bool,
    /// Whether IAM is out of reach.
    pub isolated_vpc: bool,
    /// Whether node classes are valid without a dry run.
    pub disable_dry_run: bool,
}

/// What is left to do after a node class was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When to look again at the latest; none if it is gone.
    pub again_in: Option<DurationMs>,
    /// Events for the node class: reason and text.
    pub events: Vec<(&'static str, String)>,
    /// What failed and is worth trying again, for the log.
    pub errors: Vec<String>,
}

/// See the [module](self).
pub struct NodeClassReconciler {
    setup: Setup,
    verdicts: Mutex<Verdicts>,
    /// When a profile was first seen that nothing refers to.
    idle_profiles: Mutex<BTreeMap<String, Timestamp>>,
}

impl std::fmt::Debug for NodeClassReconciler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeClassReconciler").field("setup", &self.setup).finish_non_exhaustive()
    }
}

impl NodeClassReconciler {
    /// One that has looked at nothing yet.
    pub fn new(setup: Setup) -> Self {
        Self { setup, verdicts: Mutex::default(), idle_profiles: Mutex::default() }
    }

    /// Looks at a node class, and writes what it is like.
    ///
    /// # Errors
    /// If the cluster's objects cannot be read or written; it is worth trying again.
    pub async fn reconcile(&self, name: &str) -> Result<Outcome, Failure> {
        let Some(object) = self.setup.objects.node_class(name).await? else { return Ok(Outcome::default()) };
        let is_going = object.pointer("/metadata/deletionTimestamp").is_some_and(|it| !it.is_null());
        if is_going {
            return self.finalize(&object, name).await;
        }
        let class = match decode(&object) {
            Ok(class) => class,
            // The server has taken it, under another CRD. There is no status to write that this one would take.
            Err(error) => return Ok(Outcome { errors: vec![error.to_string()], ..Outcome::default() }),
        };
        let object = self.stamp(object, &class).await?;
        let claims = self.setup.objects.node_claims().await?;
        let claims: Vec<_> = claims.into_iter().filter(|claim| is_of(claim, name)).collect();
        self.restamp(&class, &claims).await?;
        let now = (self.setup.clock)();
        let found = self.look(&class, now).await;
        let Decided { mut status, mut verdicts, mut again_in, mut errors } = decide(&class, found, &self.rules(), now);
        let checked = self.validate(&object, &class, &status, &verdicts).await;
        again_in = again_in.min(checked.again_in);
        errors.extend(checked.error);
        verdicts.push((crate::discovery::findings::VALIDATION_SUCCEEDED, checked.verdict));
        status.conditions = status::conditions(&class, &verdicts, self.setup.settings.reserved_capacity, now);
        if status != class.status {
            self.setup.objects.patch_class(&object, &status::patch(&status), Part::Status).await?;
        }
        Ok(Outcome { again_in: Some(again_in), events: Vec::new(), errors })
    }

    fn rules(&self) -> Rules {
        Rules { kubernetes: self.setup.settings.kubernetes.get() }
    }

    fn ca_bundle(&self) -> &str {
        self.setup.settings.cluster.ca_bundle.as_deref().unwrap_or_default()
    }

    /// Sees to it that a node class has the finalizer and its hash; gives it as it is then.
    async fn stamp(&self, object: Value, class: &NodeClass) -> Result<Value, Failure> {
        let mut metadata = serde_json::Map::new();
        let mut finalizers = finalizers(&object);
        if !finalizers.iter().any(|it| it == names::FINALIZER) {
            finalizers.push(names::FINALIZER.to_owned());
            metadata.insert("finalizers".to_owned(), json!(finalizers));
        }
        let wanted = drift::hash_annotations(&class.spec, self.ca_bundle());
        let missing: serde_json::Map<_, _> = wanted
            .into_iter()
            .filter(|(key, value)| class.annotations.get(*key) != Some(value))
            .map(|(key, value)| (key.to_owned(), Value::String(value)))
            .collect();
        if !missing.is_empty() {
            metadata.insert("annotations".to_owned(), Value::Object(missing));
        }
        if metadata.is_empty() {
            return Ok(object);
        }
        self.setup.objects.patch_class(&object, &json!({ "metadata": metadata }), Part::Object).await
    }

    /// Gives NodeClaims a hash that was made as the node class' is, where theirs was made in another way. One that has
    /// drifted keeps its hash: what is said of it stays true.
    async fn restamp(&self, class: &NodeClass, claims: &[NodeClaim]) -> Result<(), Failure> {
        let [hash, version] = drift::hash_annotations(&class.spec, self.ca_bundle());
        for claim in claims {
            let of_claim = claim.metadata.annotations.as_ref();
            let has = of_claim.and_then(|it| it.get(names::NODE_CLASS_HASH_VERSION));
            if has.is_none_or(|has| has == hash::VERSION) {
                continue;
            }
            let conditions = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
            let has_drifted = api::conditions::is_true(conditions, api::conditions::node_claim::DRIFTED);
            let both = [version.clone(), hash.clone()];
            let kept = if has_drifted { 1 } else { 2 };
            self.setup.objects.annotate(claim, both.get(..kept).unwrap_or(&both)).await?;
        }
        Ok(())
    }

    /// Removes what was made for a node class, and lets it go, once no NodeClaim refers to it.
    async fn finalize(&self, object: &Value, name: &str) -> Result<Outcome, Failure> {
        let mut finalizers = finalizers(object);
        if !finalizers.iter().any(|it| it == names::FINALIZER) {
            return Ok(Outcome::default());
        }
        let claims = self.setup.objects.node_claims().await?;
        let waits_for: Vec<_> =
            claims.iter().filter(|claim| is_of(claim, name)).filter_map(|it| it.metadata.name.as_deref()).collect();
        if !waits_for.is_empty() {
            let more = waits_for.len().saturating_sub(NAMED);
            let named = waits_for.get(..NAMED).unwrap_or(&waits_for).join(", ");
            let more = if more > 0 { format!(" and {more} others") } else { String::new() };
            let text = format!("Waiting on NodeClaim termination for {named}{more}");
            let events = vec![("WaitingOnNodeClaimTermination", text)];
            return Ok(Outcome { again_in: Some(WAIT), events, errors: Vec::new() });
        }
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let failed = |error: crate::service::Error| Failure::Other(format!("EC2NodeClass {name}: {error}"));
        self.remove_profiles(uid).await.map_err(failed)?;
        self.setup.provider.remove_templates(name).await.map_err(failed)?;
        finalizers.retain(|it| it != names::FINALIZER);
        let patch = json!({ "metadata": { "finalizers": finalizers } });
        self.setup.objects.patch_class(object, &patch, Part::Object).await?;
        self.verdicts.lock().forget(name);
        Ok(Outcome::default())
    }
}

fn finalizers(object: &Value) -> Vec<String> {
    let all = object.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether a NodeClaim refers to a node class.
fn is_of(claim: &NodeClaim, class: &str) -> bool {
    let reference = &claim.spec.node_class_ref;
    reference.group == names::GROUP && reference.kind == names::NODE_CLASS_KIND && reference.name == class
}

/// A call that may work out later without anybody doing anything.
fn is_temporary(error: &crate::service::Error) -> bool {
    matches!(error.kind, crate::service::Kind::Throttled | crate::service::Kind::ServerFault)
}

impl NodeClassReconciler {
    /// Looks at everything that a node class selects.
    async fn look(&self, class: &NodeClass, now: Timestamp) -> look::Found {
        let Setup { ec2, ssm, settings, .. } = &self.setup;
        let look = Look { ec2: &**ec2, ssm: &**ssm, kubernetes: settings.kubernetes.get(), now };
        look::Found {
            images: look.images(&class.spec.images).await,
            reservations: look.reservations(&class.spec.capacity_reservations).await,
            placement_group: look.placement_group(class.spec.placement_group.as_ref()).await,
            subnets: look.subnets(&class.spec.subnets).await,
            security_groups: look.security_groups(&class.spec.security_groups).await,
            profile: self.profile(class, now).await,
        }
    }
}

#[cfg(test)]
mod tests;
