//! What is asked of the provider beside launches: what it knows is kept up to date, and shown.

use std::collections::BTreeSet;

use api::{NodeClaim, labels as kubernetes};
use cloudprovider::{Error, InstanceTypes};
use model::DurationMs;

use super::Ec2CloudProvider;
use super::instances::query;
use crate::interruption::Kind as Interrupted;
use crate::labels;
use crate::service::ec2::Query;
use crate::service::{Pricing, ZonalShift};
use crate::telemetry::Telemetry;

impl Ec2CloudProvider {
    /// Where the provider tells of itself.
    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.inner.telemetry
    }

    /// What finds the machines of the cluster.
    pub(crate) fn all_machines(&self) -> Query {
        query(&self.inner.cluster.name, None)
    }

    /// The instance types of each node class, as they were made last.
    pub(crate) fn known_types(&self) -> Vec<InstanceTypes> {
        self.inner.catalogue.known()
    }

    /// Forgets what could not be had.
    pub fn forget_stock_outs(&self) {
        self.inner.market.forget_stock_outs();
    }

    /// Whether an offering could not be had, and that still counts.
    #[cfg(test)]
    pub(crate) fn is_out_of_stock(&self, key: &cloudprovider::OfferingKey) -> bool {
        self.inner.market.ledger().0.is_out(key, self.now())
    }

    /// Takes in what an interruption says of what can be had: where a machine is taken back there is none for a while.
    pub(crate) fn interrupted(&self, kind: Interrupted, claim: &NodeClaim) {
        let label = |key: &str| claim.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
        match kind {
            Interrupted::SpotInterrupted => {
                let (Some(instance_type), Some(zone)) = (label(kubernetes::INSTANCE_TYPE), label(kubernetes::ZONE))
                else {
                    return;
                };
                self.inner.market.spot_is_out(instance_type.as_str().into(), zone);
            }
            Interrupted::ReservationInterrupted => {
                if let Some(id) = label(labels::CAPACITY_RESERVATION_ID) {
                    self.inner.market.reservation_is_out(id);
                }
            }
            Interrupted::RebalanceRecommended
            | Interrupted::ScheduledChange
            | Interrupted::Stopped
            | Interrupted::Terminated => {}
        }
    }

    /// Takes in which zonal shifts there are now.
    pub(crate) fn take_zonal_shifts(&self, shifts: Vec<ZonalShift>) {
        self.inner.market.take_zonal_shifts(shifts);
    }

    /// Takes in zones, by name and id.
    pub(crate) fn take_zones(&self, zones: impl Iterator<Item = (String, String)>) {
        self.inner.market.take_zones(zones);
    }

    /// The ids of the zones that traffic is shifted away from.
    pub(crate) fn shifted_zones(&self) -> BTreeSet<String> {
        self.inner.market.shifted_zones()
    }

    /// Asks EC2 what the region sells, so that a lack of rights or of a connection is told at once.
    ///
    /// # Errors
    /// If EC2 refuses or does not answer; the text names the call.
    pub async fn probe(&self) -> Result<(), Error> {
        self.inner.market.region().await.map(drop)
    }

    /// Asks EC2 which types it sells where, unless it has told within `fresh`.
    ///
    /// # Errors
    /// The last call that failed; what the other told is taken, and the rest is as it was.
    pub async fn refresh_types(&self, fresh: DurationMs) -> Result<(), Error> {
        self.inner.market.refresh_region(fresh).await
    }

    /// Asks what machines cost. Without a list of prices those on demand stay as they are.
    ///
    /// # Errors
    /// The last call that failed; what the others told is taken.
    pub async fn refresh_prices(&self, pricing: Option<&dyn Pricing>) -> Result<(), Error> {
        self.inner.market.refresh_prices(pricing, &self.inner.region).await
    }
}
