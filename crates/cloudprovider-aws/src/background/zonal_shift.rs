//! Zones that traffic is shifted away from, by Application Recovery Controller: nothing is launched there, and the
//! machines that are there stay. `pkg/providers/arczonalshift` and its controller in karpenter-provider-aws 1.15.
//!
//! Differs: `zonal-shift-as-told`. Karpenter keeps a shift that was cancelled until its end while there is another, and
//! does not look at shifts that AWS begins of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{NodePool, labels as kubernetes};
use cloudprovider::LabelRequirements;
use cloudprovider::events::Severity;
use serde_json::Value;
use tracing::{info, warn};

use super::interruptions::Failed;
use crate::declaration::provider_labels;
use crate::names;
use crate::node_class::status::Subnet;
use crate::provider::Ec2CloudProvider;
use crate::provider::cluster::Cluster;
use crate::service::ZonalShifts;
use crate::telemetry::events::{ZONAL_SHIFT_ACTIVE, ZONAL_SHIFT_CLEARED, tell_of_pool};

/// How often it is asked which shifts there are. Karpenter's own.
const EVERY: Duration = Duration::from_secs(30);

/// Who asks.
pub(crate) struct ShiftWatch {
    /// What launches machines.
    pub(crate) provider: Ec2CloudProvider,
    /// Application Recovery Controller.
    pub(crate) shifts: Arc<dyn ZonalShifts>,
    /// The cluster's ARN.
    pub(crate) cluster_arn: String,
    /// The cluster's objects.
    pub(crate) objects: Arc<dyn Cluster>,
}

impl ShiftWatch {
    /// Never ends.
    pub(crate) async fn run(&self) {
        let mut told = BTreeSet::new();
        loop {
            if let Err(error) = self.look(&mut told).await {
                warn!(%error, "could not find out which zones traffic is shifted away from, and those of before stand");
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Asks which shifts there are, and tells of zones that are not as they were `told` last.
    pub(crate) async fn look(&self, told: &mut BTreeSet<String>) -> Result<(), Failed> {
        let found = self.shifts.get_managed_resource(&self.cluster_arn).await;
        let found = found.map_err(|error| Failed::call(error, self.provider.telemetry()))?;
        self.provider.take_zonal_shifts(found);
        let shifted = self.provider.shifted_zones();
        if shifted == *told {
            return Ok(());
        }
        let (pools, classes) = (self.objects.node_pools().await?, self.objects.node_classes().await?);
        let zones = zones_by_class(&classes);
        self.provider.take_zones(zones.values().flatten().map(|(id, name)| (name.clone(), id.clone())));
        for (id, is_active) in changes(told, &shifted) {
            info!(zone_id = id, is_active, "zonal shift");
            for pool in &pools {
                let Some(zone) = affected(pool, &zones, id) else { continue };
                let notice = if is_active {
                    let text = format!("traffic is shifted away from zone {zone} ({id}), nothing is launched there");
                    (Severity::Warning, ZONAL_SHIFT_ACTIVE, text)
                } else {
                    let text = format!("machines are launched in zone {zone} ({id}) again");
                    (Severity::Normal, ZONAL_SHIFT_CLEARED, text)
                };
                tell_of_pool(&*self.provider.telemetry().events, (pool, id), notice);
            }
        }
        *told = shifted;
        Ok(())
    }
}

/// Zones that are shifted away from now and were not before, and the other way round.
fn changes<'s>(before: &'s BTreeSet<String>, now: &'s BTreeSet<String>) -> impl Iterator<Item = (&'s String, bool)> {
    now.difference(before).map(|id| (id, true)).chain(before.difference(now).map(|id| (id, false)))
}

/// Of each node class, the names of the zones that it has subnets in, by their ids.
type Zones = BTreeMap<String, BTreeMap<String, String>>;

fn zones_by_class(classes: &[Value]) -> Zones {
    let name = |class: &Value| class.pointer("/metadata/name")?.as_str().map(str::to_owned);
    let zones = |class: &Value| {
        let subnets = class.pointer("/status/subnets").and_then(Value::as_array).into_iter().flatten();
        let read = subnets.filter_map(|it| serde_json::from_value::<Subnet>(it.clone()).ok());
        read.filter_map(|subnet| Some((subnet.zone_id?, subnet.zone))).collect()
    };
    classes.iter().filter_map(|class| Some((name(class)?, zones(class)))).collect()
}

/// The zone's name, if machines of a NodePool may be launched there.
fn affected(pool: &NodePool, zones: &Zones, id: &str) -> Option<String> {
    let spec = &pool.spec.template.spec;
    let class = &spec.node_class_ref;
    let is_ours = class.group == names::GROUP && class.kind == names::NODE_CLASS_KIND;
    let zone = zones.get(&class.name).filter(|_| is_ours)?.get(id)?;
    let requirements = LabelRequirements::parse(&spec.requirements, &provider_labels(&[])).ok()?;
    requirements.allow_value(kubernetes::ZONE, Some(zone)).then(|| zone.clone())
}

#[cfg(test)]
mod tests;
