//! Whether a machine is still what its NodePool and its provider would launch today: condition `Drifted`.
//!
//! Four causes, in Karpenter's order; the first that is found is the condition's reason
//! (`pkg/controllers/nodeclaim/disruption/drift.go`):
//!
//! 1. the NodePool's template is another, by its hash; requirements are not in it;
//! 2. the machine's labels do not meet the requirements of the template;
//! 3. the provider does not list the instance type any more, or no offering where the machine is;
//! 4. the provider says so.
//!
//! The first two need the objects only, so they are asked first. NodeOverlays have no part in it: an offering counts
//! whatever it costs and whether or not it can be had now.

use std::fmt;
use std::sync::Arc;

use api::conditions::node_claim::{INSTANCE_TYPE_NOT_FOUND, LAUNCHED, NODE_POOL_DRIFTED, REQUIREMENTS_DRIFTED};
use api::labels::ProviderLabels;
use api::{NodeClaim, NodePool, annotations, labels};
use cloudprovider::{CapacityType, InstanceType, Offering};
use decode::{Context, Problem, Reason, requirements};
use model::{DurationMs, Interner, Labels, Timestamp};

use super::{label, timestamp, true_since};
use crate::node_pool_hash;

/// A NodeClaim younger than that is not held against the provider's list: what was launched just now exists, whatever a
/// list says that lags behind.
pub const LISTED_FROM_AGE: DurationMs = DurationMs::from_seconds(3600);

/// Why a machine has drifted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The NodePool's template changed.
    NodePool,
    /// A requirement of the NodePool's template is not met.
    Requirement {
        /// The label that it is about.
        key: String,
        /// The NodeClaim's value; `None` if it lacks the label.
        value: Option<String>,
    },
    /// The provider does not list the instance type, or no offering of it where the machine is.
    InstanceType {
        /// Its name.
        name: String,
    },
    /// The provider has a reason of its own.
    Provider {
        /// In its own words.
        reason: String,
    },
}

impl Cause {
    /// The reason of the condition, by Karpenter's names; the provider's own as it gives it.
    pub fn reason(&self) -> &str {
        match self {
            Self::NodePool => NODE_POOL_DRIFTED,
            Self::Requirement { .. } => REQUIREMENTS_DRIFTED,
            Self::InstanceType { .. } => INSTANCE_TYPE_NOT_FOUND,
            Self::Provider { reason } => reason,
        }
    }
}

/// The message of the condition.
///
/// Differs: `drift-message`. Karpenter's message is the reason again.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodePool => f.write_str("the template of the NodePool has changed"),
            Self::Requirement { key, value: Some(value) } => {
                write!(f, "label {key}={value} does not meet the requirements of the NodePool")
            }
            Self::Requirement { key, value: None } => {
                write!(f, "without a label {key} the requirements of the NodePool are not met")
            }
            Self::InstanceType { name } => {
                write!(f, "the provider does not offer instance type {name} there any more")
            }
            Self::Provider { reason } => write!(f, "the provider says {reason}"),
        }
    }
}

/// Whether anything can have drifted: a machine that is not launched is made by what the NodePool says then.
pub fn is_possible(claim: &NodeClaim) -> bool {
    true_since(claim, LAUNCHED).is_some()
}

/// The cause that the objects tell: causes 1 and 2 of the [module](self).
///
/// A hash of another version than ours says nothing.
///
/// Differs: `drift-by-template`. The hash is compared with the template itself, not with the NodePool's annotation, so
/// the answer does not wait for that to be written.
///
/// # Errors
/// What of the NodePool makes no sense; admission refuses it.
pub fn of_objects(pool: &NodePool, claim: &NodeClaim, rules: &ProviderLabels) -> Result<Option<Cause>, Problem> {
    if is_of_another_template(pool, claim)? {
        return Ok(Some(Cause::NodePool));
    }
    unmet_requirement(pool, claim, rules)
}

fn is_of_another_template(pool: &NodePool, claim: &NodeClaim) -> Result<bool, Problem> {
    let annotation = |key| claim.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
    let is_ours = annotation(annotations::NODEPOOL_HASH_VERSION) == Some(annotations::NODEPOOL_HASH_VERSION_VALUE);
    let Some(hash) = annotation(annotations::NODEPOOL_HASH).filter(|_| is_ours) else { return Ok(false) };
    let invalid = |error: api::duration::Error| Problem {
        field: "spec.template.spec".to_owned(),
        reason: Reason::Invalid(error.to_string()),
    };
    node_pool_hash::matches(pool, hash).map(|matches| !matches).map_err(invalid)
}

fn unmet_requirement(pool: &NodePool, claim: &NodeClaim, rules: &ProviderLabels) -> Result<Option<Cause>, Problem> {
    let mut interner = Interner::new();
    let mut context = Context::with_labels(&mut interner, rules);
    let field = "spec.template.spec.requirements";
    let wanted = requirements::requirements(&pool.spec.template.spec.requirements, field, &mut context)?;
    let of_claim = claim.metadata.labels.iter().flatten();
    let labels: Labels = of_claim.map(|(key, value)| (context.key(key), context.value(key, value))).collect();
    Ok(wanted.first_mismatch(&labels, &interner).map(|key| Cause::Requirement {
        key: interner.key_name(key).to_owned(),
        value: labels.get(key).map(|value| interner.value_name(value).to_owned()),
    }))
}

/// Cause 3 of the [module](self): none for a NodeClaim younger than [`LISTED_FROM_AGE`].
///
/// `types` are all that the provider lists for the NodePool, ordered by name, also those that have run out.
pub fn of_instance_type(
    claim: &NodeClaim,
    types: &[Arc<InstanceType>],
    rules: &ProviderLabels,
    now: Timestamp,
) -> Option<Cause> {
    let created = claim.metadata.creation_timestamp.as_ref().map(timestamp)?;
    if now.since(created) < LISTED_FROM_AGE {
        return None;
    }
    let name = label(claim, labels::INSTANCE_TYPE);
    let listed = types.binary_search_by(|it| it.name.as_str().cmp(name)).ok().and_then(|index| types.get(index));
    let is_offered = listed.is_some_and(|it| it.offerings.iter().any(|offering| may_be_from(claim, offering, rules)));
    (!is_offered).then(|| Cause::InstanceType { name: name.to_owned() })
}

/// Whether the machine may have come from that offering. A reservation that ends leaves its machines running on demand,
/// so a reserved machine may be from an offering on demand as well, and from any reservation.
fn may_be_from(claim: &NodeClaim, offering: &Offering, rules: &ProviderLabels) -> bool {
    let is_reserved = label(claim, labels::CAPACITY_TYPE) == CapacityType::Reserved.as_str();
    let is_of_reservation = |key: &str| rules.of_reservations().any(|known| known == key);
    offering.all_labels().all(|(key, value)| {
        let known = label(claim, key);
        let was_reserved = is_reserved
            && ((key == labels::CAPACITY_TYPE && value == CapacityType::OnDemand.as_str()) || is_of_reservation(key));
        known.is_empty() || known == value || was_reserved
    })
}
