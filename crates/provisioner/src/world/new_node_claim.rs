//! NodeClaims to be: what one takes from its NodePool, and how one is created exactly once.
//!
//! The name is chosen here, in the form of the API server's own (`generateName`), and kept when a request is repeated.
//! So an answer that got lost does not lead to a second machine. A request that is not answered is repeated for some
//! minutes: while it may have been carried out, nobody can tell without risk that the machine is still wanted.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use api::node_claim::ResourceRequirements;
use api::{
    NodeClaim, NodeClaimSpec, NodePool, NodeSelectorRequirementWithMinValues, Operator as ApiOperator, annotations,
    finalizers, labels,
};
use cluster::node_pool_hash;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::{Api, PostParams};
use model::{DurationMs, Interner, Operator, Requirements};
use tracing::warn;

use crate::runtime::failpoints;
use crate::runtime::failures::cause_in_words;
use crate::runtime::jitter::jittered;
use crate::runtime::leader_election::NotLeading;
use crate::world::context::Context;

/// The API server's alphabet for generated names: no vowels, nothing that looks like something else.
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const NAME_SUFFIX_LEN: usize = 5;
/// What a generated name may begin with at most.
const NAME_PREFIX_LEN: usize = 58;
/// How often a name that is taken is replaced by another.
const NAME_ATTEMPTS: usize = 5;

/// How often a request is sent that is not answered, and the pause between two.
const UNANSWERED_ATTEMPTS: usize = 4;
const UNANSWERED_PAUSE: Duration = Duration::from_secs(2);

/// What can keep a NodeClaim from being written down.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The NodePool's template cannot be hashed.
    #[error("nodepool {node_pool}: {error}")]
    Hash {
        /// Which.
        node_pool: String,
        /// Why.
        error: api::duration::Error,
    },
    /// The NodePool cannot be resolved.
    #[error(transparent)]
    Decode(#[from] decode::ObjectError),
}

/// Nobody knows whether the API server has created a NodeClaim, or will.
#[derive(Debug, thiserror::Error)]
#[error("no answer to {UNANSWERED_ATTEMPTS} requests to create nodeclaim {name}, last: {}", cause_in_words(.error))]
pub(crate) struct Unanswered {
    name: String,
    error: kube::Error,
}

/// What every NodeClaim of a NodePool has, without a name: its template, labels, hash, owner and finalizer. It asks for
/// nothing yet.
///
/// # Errors
/// If the NodePool's template has a duration that is none, which admission refuses.
pub(crate) fn of_node_pool(
    node_pool: &NodePool,
    default_termination_grace_period: Option<DurationMs>,
) -> Result<NodeClaim, Error> {
    let pool_name = node_pool.metadata.name.clone().unwrap_or_default();
    let template = &node_pool.spec.template;
    let hash = node_pool_hash::hash(node_pool).map_err(|error| Error::Hash { node_pool: pool_name.clone(), error })?;
    let spec = NodeClaimSpec {
        taints: template.spec.taints.clone(),
        startup_taints: template.spec.startup_taints.clone(),
        requirements: Vec::new(),
        resources: ResourceRequirements::default(),
        node_class_ref: template.spec.node_class_ref.clone(),
        termination_grace_period: template
            .spec
            .termination_grace_period
            .clone()
            .or_else(|| default_termination_grace_period.map(|span| api::DurationString(span.to_string()))),
        expire_after: template.spec.expire_after.clone(),
    };
    let class = &template.spec.node_class_ref;
    let mut of_claim = template.metadata.labels.clone();
    of_claim.insert(labels::NODEPOOL.to_owned(), pool_name.clone());
    of_claim.insert(labels::node_class(&class.group, &class.kind), class.name.clone());
    let mut notes = template.metadata.annotations.clone();
    notes.insert(annotations::NODEPOOL_HASH.to_owned(), hash);
    notes.insert(annotations::NODEPOOL_HASH_VERSION.to_owned(), annotations::NODEPOOL_HASH_VERSION_VALUE.to_owned());
    let mut claim = NodeClaim::new("", spec);
    claim.metadata.name = None;
    claim.metadata.generate_name = Some(format!("{pool_name}-"));
    claim.metadata.labels = Some(of_claim);
    claim.metadata.annotations = Some(notes);
    // Karpenter's gets it once the NodeClaim is looked at; with it from the start that is one write less.
    claim.metadata.finalizers = Some(vec![finalizers::TERMINATION.to_owned()]);
    claim.metadata.owner_references = Some(vec![owner(node_pool)]);
    Ok(claim)
}

fn owner(node_pool: &NodePool) -> OwnerReference {
    OwnerReference {
        api_version: NodePool::api_version(&()).into_owned(),
        kind: NodePool::kind(&()).into_owned(),
        name: node_pool.metadata.name.clone().unwrap_or_default(),
        uid: node_pool.metadata.uid.clone().unwrap_or_default(),
        block_owner_deletion: Some(true),
        controller: None,
    }
}

/// Requirements as the API writes them, by key. A minimum stands at the first of the expressions that a key needs.
pub(crate) fn expressions(requirements: &Requirements, names: &Interner) -> Vec<NodeSelectorRequirementWithMinValues> {
    let mut all = Vec::new();
    for requirement in requirements.iter_by_name(names) {
        let mut min_values = requirement.min_values.map(i64::from);
        for expression in requirement.values.to_expressions() {
            all.push(NodeSelectorRequirementWithMinValues {
                key: names.key_name(requirement.key).to_owned(),
                operator: operator(expression.operator()),
                values: expression.values(names),
                min_values: min_values.take(),
            });
        }
    }
    all
}

fn operator(operator: Operator) -> ApiOperator {
    match operator {
        Operator::In => ApiOperator::In,
        Operator::NotIn => ApiOperator::NotIn,
        Operator::Exists => ApiOperator::Exists,
        Operator::DoesNotExist => ApiOperator::DoesNotExist,
        Operator::Gt => ApiOperator::Gt,
        Operator::Lt => ApiOperator::Lt,
        Operator::Gte => ApiOperator::Gte,
        Operator::Lte => ApiOperator::Lte,
    }
}

/// A name as the API server would generate it for this claim.
pub(crate) fn random_name(claim: &NodeClaim) -> String {
    let prefix = claim.metadata.generate_name.as_deref().unwrap_or_default();
    let prefix: String = prefix.chars().take(NAME_PREFIX_LEN).collect();
    // The standard library seeds each state differently.
    let mut random = RandomState::new().hash_one(prefix.as_str());
    let mut name = prefix;
    for _ in 0..NAME_SUFFIX_LEN {
        let letters = NAME_ALPHABET.len() as u64;
        let index = usize::try_from(random % letters).unwrap_or(0);
        name.extend(NAME_ALPHABET.get(index).copied().map(char::from));
        random /= letters;
    }
    name
}

/// Creates a NodeClaim under a name of its own, and gives the API server's answer.
///
/// # Errors
/// Those of the API server; [`Unanswered`] where nobody knows what came of it.
pub(crate) async fn create(context: &Context, mut claim: NodeClaim) -> anyhow::Result<NodeClaim> {
    let api = Api::<NodeClaim>::all(context.client.clone());
    let (mut attempt, mut unanswered) = (1, 0);
    let mut name = random_name(&claim);
    loop {
        claim.metadata.name = Some(name.clone());
        failpoints::hit("provision.before-create");
        match api.create(&PostParams::default(), &claim).await {
            Ok(created) => return Ok(created),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                // Requests are repeated, so this may be the claim we have just asked for.
                if let Some(existing) = api.get_opt(&name).await?.filter(|existing| is_same(existing, &claim)) {
                    return Ok(existing);
                }
                anyhow::ensure!(attempt < NAME_ATTEMPTS, "{attempt} names were taken, last {name}");
                attempt += 1;
                name = random_name(&claim);
            }
            Err(error) if may_be_done(&error) && !context.stop.is_cancelled() => {
                unanswered += 1;
                if unanswered == UNANSWERED_ATTEMPTS {
                    return Err(Unanswered { name, error }.into());
                }
                warn!(
                    node_claim = name,
                    error = cause_in_words(&error),
                    "could not tell whether the nodeclaim was created, asking again"
                );
                tokio::time::sleep(jittered(UNANSWERED_PAUSE)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a request that failed so may have been carried out, or may be yet.
fn may_be_done(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500,
        kube::Error::Service(error) => !error.is::<NotLeading>(),
        _ => true,
    }
}

/// Whether a NodeClaim of the wanted name was made from this very request: claims of two planned machines differ in
/// their pods.
fn is_same(existing: &NodeClaim, wanted: &NodeClaim) -> bool {
    existing.spec == wanted.spec && existing.metadata.annotations == wanted.metadata.annotations
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_request_is_repeated_under_its_name_only_while_nobody_knows_what_came_of_it() {
        let answered = |code| kube::Error::Api(Status { code, ..Status::default() }.boxed());
        let unanswered = crate::runtime::client::TimedOut::Answer(Duration::from_secs(35));
        for (error, expected) in [
            (answered(403), false),
            (answered(422), false),
            (answered(429), false),
            (answered(500), true),
            (answered(504), true),
            (kube::Error::Service(unanswered.into()), true),
            (kube::Error::Service(NotLeading.into()), false),
        ] {
            assert_eq!(may_be_done(&error), expected, "{error}");
        }
    }
}
