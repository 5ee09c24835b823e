//! NodeClaims are deleted; who drains their nodes and ends their machines is the controller of terminations.
//!
//! The API server is told which state of a NodeClaim was looked at and refuses to delete any other. It cannot be told
//! which pods: one that is bound between the look and the taint of the drain is evicted with the others.
//! A NodeClaim that stays so keeps none of the others of its action: it only leaves more room for their pods.

use std::sync::Arc;

use api::NodeClaim;
use kube::Client;
use tracing::{error, info};

use super::Committed;
use crate::runtime::beats::Beat;
use crate::runtime::failures::cause_in_words;
use crate::runtime::patch::{Lock, lean};
use crate::world::claim;
use crate::world::preconditions::Stale;
use crate::world::store::{ClusterStore, Revision};

/// Deletes NodeClaims. The store knows at once that they go, so the next plan does not rely on their nodes.
pub(crate) async fn all(
    client: &Client,
    store: &ClusterStore,
    beat: &Beat,
    claims: Vec<Arc<NodeClaim>>,
    committed: &mut Committed,
) {
    for claim in claims {
        beat.busy();
        let name = claim::name(&claim);
        match claim::delete(client, &claim, Lock::Revision).await {
            Ok(going) => {
                info!(node_claim = name, "deleted nodeclaim");
                if let Some(going) = going {
                    let revision = Revision::of(&going.metadata);
                    store.apply(lean(going), revision);
                }
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let reason = Stale::NodeClaimChanged(name.into());
                info!(node_claim = name, stale = %reason, "dropping a planned deletion, planning again");
                committed.stale += 1;
            }
            Err(error) => {
                error!(node_claim = name, error = cause_in_words(&error), "could not delete nodeclaim");
                committed.failed += 1;
            }
        }
    }
}
