//! What machines were seen to have, by what their Nodes say.

use std::collections::BTreeSet;

use api::{NodeClaim, labels as kubernetes};
use cloudprovider::Error;
use model::{DurationMs, Timestamp, Uid};

use super::{Ec2CloudProvider, transient};
use crate::instance_types::learned::LearnedMemory;

/// How long to wait before Nodes are listed again: a machine that has come up teaches little that another has not.
const PAUSE: DurationMs = DurationMs::from_seconds(60);

/// Memory of machines, and which of them have been looked at.
#[derive(Debug, Default)]
pub(super) struct Learning {
    pub(super) memory: LearnedMemory,
    /// The NodeClaims of those machines.
    seen: BTreeSet<Uid>,
    looked_at: Option<Timestamp>,
}

impl Learning {
    /// Whether one of these NodeClaims has a machine that was not looked at, and it is time to look.
    fn is_due(&mut self, registered: &BTreeSet<Uid>, now: Timestamp) -> bool {
        self.seen.retain(|uid| registered.contains(uid));
        let is_time = self.looked_at.is_none_or(|at| now.since(at) >= PAUSE);
        is_time && !registered.is_subset(&self.seen)
    }
}

/// The type and the image of a NodeClaim's machine, once it is a Node.
fn registered(claim: &NodeClaim) -> Option<(&str, &str)> {
    let status = claim.status.as_ref().filter(|status| !status.node_name.is_empty() && !status.image_id.is_empty())?;
    let instance_type = claim.metadata.labels.as_ref()?.get(kubernetes::INSTANCE_TYPE)?;
    Some((instance_type, &status.image_id))
}

impl Ec2CloudProvider {
    /// Takes in what memory the machines have that have registered since the last time.
    pub(super) async fn learn<'a>(&self, claims: impl Iterator<Item = (&'a Uid, &'a NodeClaim)>) -> Result<(), Error> {
        let claims: Vec<_> = claims.filter_map(|(uid, claim)| Some((uid, claim, registered(claim)?))).collect();
        let all = claims.iter().map(|(uid, ..)| (*uid).clone()).collect();
        if !self.inner.learning.lock().is_due(&all, self.now()) {
            return Ok(());
        }
        let memory = self.inner.objects.node_memory().await.map_err(transient)?;
        let now = self.now();
        let learning = &mut *self.inner.learning.lock();
        learning.looked_at = Some(now);
        for (uid, claim, (instance_type, image)) in claims {
            let provider_id = claim.status.as_ref().map_or("", |status| status.provider_id.as_str());
            if let Some(memory) = memory.get(provider_id)
                && learning.seen.insert(uid.clone())
            {
                learning.memory.observe(&instance_type.into(), image, *memory, now);
            }
        }
        Ok(())
    }
}
