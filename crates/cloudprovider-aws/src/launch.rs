//! How machines are launched: which launch templates a launch needs, the request for a fleet, and which launches share
//! one.
//!
//! Every machine comes by `CreateFleet` of type `instant`: launch templates say what a machine is, overrides of the
//! request which types and zones it may have. All of this is computed here, and equal input gives equal names and
//! requests; nothing is called. Behaviour follows `pkg/providers/launchtemplate` and `pkg/providers/instance` of
//! karpenter-provider-aws 1.15.

pub mod batch;
pub mod disks;
pub mod fleet;
pub mod placement_group;
pub mod resolve;
pub mod template;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The first digits of what a value hashes to, for names and tokens: 32 hexadecimal ones.
pub(crate) fn digest(value: &impl Serialize) -> String {
    // Values here are made of texts, numbers and lists of such, which all can be written.
    let written = serde_json::to_vec(value).unwrap_or_default();
    Sha256::digest(&written).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
