//! Over what a pod's own rules couple it with others.

use model::{Interner, KeyId, PodShape};

/// The labels over whose domains a pod's own rules couple it with others, but for that of the host.
pub fn coupled_over(shape: &PodShape, names: &Interner) -> impl Iterator<Item = KeyId> {
    let hostname = names.find_key(api::labels::HOSTNAME);
    let of_terms = shape.pod_affinity.required.iter().chain(&shape.pod_anti_affinity.required);
    let keys = shape.hard_spread().map(|spread| spread.topology_key).chain(of_terms.map(|term| term.topology_key));
    keys.filter(move |key| Some(*key) != hostname)
}
