//! The hash of a NodePool's template, by which static drift is found.
//!
//! It is the number that Karpenter computes (its hash version `v3`), so that nothing drifts when a cluster changes from
//! one to the other. Karpenter hashes its Go structs by reflection with `mitchellh/hashstructure` v2.0.2, options
//! SlicesAsSets, IgnoreZeroValue and ZeroNil; [`structure`] has that format. Left out of the hash, as there:
//! requirements (compared one by one instead), and how durations are spelled.
//!
//! The test vectors were made by Karpenter v1.14.1 itself; v1.15 hashes the same way.

use std::collections::BTreeMap;

use api::node_pool::NodeClaimTemplate;
use api::{NodePool, annotations, duration};
use k8s_openapi::api::core::v1::Taint;

use structure::{Struct, hash_i64, hash_map, hash_set, hash_str, hash_time};

mod structure;

const VERSION: &str = annotations::NODEPOOL_HASH_VERSION_VALUE;

/// The value of annotation `karpenter.sh/nodepool-hash` for a NodePool and for its new NodeClaims: what the NodePool
/// carries if that is right, else the hash of its template.
///
/// # Errors
/// A duration that is none.
pub fn hash(node_pool: &NodePool) -> Result<String, duration::Error> {
    match written(node_pool) {
        Some(written) if matches(node_pool, written)? => Ok(written.to_owned()),
        Some(_) | None => {
            hash_template(&node_pool.spec.template, EmptyCollections::ABSENT).map(|hash| hash.to_string())
        }
    }
}

/// The hash that a NodePool carries, if it was made our way.
fn written(node_pool: &NodePool) -> Option<&str> {
    let carried = node_pool.metadata.annotations.as_ref()?;
    let written = carried.get(annotations::NODEPOOL_HASH)?;
    has_our_version(carried).then_some(written)
}

fn has_our_version(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(annotations::NODEPOOL_HASH_VERSION).is_some_and(|version| version == VERSION)
}

/// Whether `written` is the hash of that NodePool's template, however its empty lists and maps are spelled.
///
/// Differs: `empty-lists-hash`. To Go `taints: []` and no `taints` are two values with two hashes, and typed clients in
/// other languages lose the difference. No machine comes out differently, so either counts as the same template.
///
/// # Errors
/// A duration that is none.
pub fn matches(node_pool: &NodePool, written: &str) -> Result<bool, duration::Error> {
    let Ok(written) = written.parse::<u64>() else { return Ok(false) };
    for spelling in EmptyCollections::all() {
        if hash_template(&node_pool.spec.template, spelling)? == written {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Which of the template's collections, if empty, are written out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EmptyCollections {
    labels: bool,
    annotations: bool,
    taints: bool,
    startup_taints: bool,
}

impl EmptyCollections {
    const ABSENT: Self = Self { labels: false, annotations: false, taints: false, startup_taints: false };

    fn all() -> impl Iterator<Item = Self> {
        (0..16_u8).map(|bits| {
            let bit = |place: u8| bits & (1 << place) != 0;
            Self { labels: bit(0), annotations: bit(1), taints: bit(2), startup_taints: bit(3) }
        })
    }
}

fn hash_template(template: &NodeClaimTemplate, written: EmptyCollections) -> Result<u64, duration::Error> {
    let metadata = &template.metadata;
    let mut hashed = Struct::named("NodeClaimTemplate");
    if written.labels || written.annotations || !metadata.is_empty() {
        let mut object_meta = Struct::named("ObjectMeta");
        object_meta.field("Labels", map(&metadata.labels, written.labels));
        object_meta.field("Annotations", map(&metadata.annotations, written.annotations));
        hashed.field("ObjectMeta", Some(object_meta.finish()));
    }
    let spec = &template.spec;
    let class = &spec.node_class_ref;
    let mut class_ref = Struct::named("NodeClassReference");
    class_ref.field("Kind", text(&class.kind));
    class_ref.field("Name", text(&class.name));
    class_ref.field("Group", text(&class.group));

    let mut hashed_spec = Struct::named("NodeClaimTemplateSpec");
    hashed_spec.field("Taints", taints(&spec.taints, written.taints));
    hashed_spec.field("StartupTaints", taints(&spec.startup_taints, written.startup_taints));
    hashed_spec.field("NodeClassRef", Some(class_ref.finish()));
    if let Some(period) = &spec.termination_grace_period {
        let nanos = nanos(period.parse()?);
        let mut wrapped = Struct::named("Duration");
        wrapped.field("Duration", (nanos != 0).then(|| hash_i64(nanos)));
        hashed_spec.field("TerminationGracePeriod", Some(wrapped.finish()));
    }
    if let Some(age) = spec.expire_after.parse()? {
        let mut wrapped = Struct::named("NillableDuration");
        // A pointer in Go: zero is there, and counts.
        wrapped.field("Duration", Some(hash_i64(nanos(age))));
        hashed_spec.field("ExpireAfter", Some(wrapped.finish()));
    }
    hashed.field("Spec", Some(hashed_spec.finish()));
    Ok(hashed.finish())
}

fn nanos(duration: std::time::Duration) -> i64 {
    // The API's durations are Go's, which are i64 nanoseconds.
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn text(value: &str) -> Option<u64> {
    (!value.is_empty()).then(|| hash_str(value))
}

fn map(entries: &BTreeMap<String, String>, written_if_empty: bool) -> Option<u64> {
    (written_if_empty || !entries.is_empty()).then(|| hash_map(entries))
}

fn taints(taints: &[Taint], written_if_empty: bool) -> Option<u64> {
    (written_if_empty || !taints.is_empty()).then(|| hash_set(taints.iter().map(taint)))
}

fn taint(taint: &Taint) -> u64 {
    let mut hashed = Struct::named("Taint");
    hashed.field("Key", text(&taint.key));
    hashed.field("Value", taint.value.as_deref().and_then(text));
    hashed.field("Effect", text(&taint.effect));
    if let Some(added) = &taint.time_added {
        let mut time = Struct::named("Time");
        time.field("Time", Some(hash_time(added.0.as_second(), added.0.subsec_nanosecond())));
        hashed.field("TimeAdded", Some(time.finish()));
    }
    hashed.finish()
}

/// What to write on a NodePool and on its NodeClaims, given what they carry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stamps {
    /// Annotations for the NodePool; none if it has the right ones.
    pub node_pool: Option<Stamp>,
    /// NodeClaims that were stamped by another version of the hash, with what each gets.
    pub claims: Vec<(String, Stamp)>,
}

/// Annotations to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// `karpenter.sh/nodepool-hash`; `None` leaves it.
    pub hash: Option<String>,
    /// `karpenter.sh/nodepool-hash-version`.
    pub version: &'static str,
}

/// What a NodeClaim's stamp depends on.
#[derive(Debug, Clone, Copy)]
pub struct StampedClaim<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its annotations.
    pub annotations: &'a BTreeMap<String, String>,
    /// Whether it has condition `Drifted`: then it keeps its old hash, so that it stays drifted.
    pub drifted: bool,
}

/// Decides which hashes to write. A change of the version never makes anything drift.
///
/// Differs: `late-hash-versions`. Karpenter stamps NodeClaims of another version only together with their NodePool, so
/// one that it sees a moment later keeps a hash that nothing is compared with.
///
/// # Errors
/// A duration that is none.
pub fn decide<'a>(
    node_pool: &NodePool,
    claims: impl IntoIterator<Item = StampedClaim<'a>>,
) -> Result<Stamps, duration::Error> {
    let hash = hash(node_pool)?;
    let node_pool_is_right = written(node_pool) == Some(hash.as_str());
    let mut stamps = Stamps::default();
    let is_new_to_pool = !node_pool.metadata.annotations.as_ref().is_some_and(has_our_version);
    for claim in claims.into_iter().filter(|claim| !has_our_version(claim.annotations)) {
        if is_new_to_pool || claim.annotations.contains_key(annotations::NODEPOOL_HASH_VERSION) {
            let hash = (!claim.drifted).then(|| hash.clone());
            stamps.claims.push((claim.name.to_owned(), Stamp { hash, version: VERSION }));
        }
    }
    if !node_pool_is_right {
        stamps.node_pool = Some(Stamp { hash: Some(hash), version: VERSION });
    }
    Ok(stamps)
}

#[cfg(test)]
mod tests;
