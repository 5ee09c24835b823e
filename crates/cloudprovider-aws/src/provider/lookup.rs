//! Machines as they are: by EC2, and by the journal as long as EC2 does not list them.

use std::collections::BTreeMap;

use cloudprovider::{Error, Instance, InstanceTypes};
use model::DurationMs;

use super::instances::{self, Owner, instance, is_of_cluster};
use super::launcher::{Answered, NotLaunched};
use super::{Ec2CloudProvider, find, transient};
use crate::fleet_answer::{Launched, Outcome};
use crate::launch::batch::launched_at;
use crate::launch::fleet::Purchase;
use crate::names;
use crate::provider_id::MachineId;
use crate::service::ec2::{Machine, MachineState, Query};
use crate::service::{self, Kind as Fault};

/// How long EC2 may not list a machine that it has launched. After this it is gone.
pub(super) const SHOWN_WITHIN: DurationMs = DurationMs::from_seconds(5 * 60);

impl Ec2CloudProvider {
    /// Counts a call that failed. It is worth making again.
    pub(super) fn failed(&self, error: service::Error) -> Error {
        self.inner.market.failed(error)
    }

    /// A machine as EC2 says it is. One that is launched and not listed yet is as it was launched. While traffic is
    /// shifted away from a zone, that EC2 does not list a machine there does not say that it is gone.
    pub(super) async fn machine(&self, id: &MachineId) -> Result<(Machine, Owner), Error> {
        let gone = || Error::NotFound(format!("no instance {}", id.instance));
        let query = Query { ids: vec![id.instance.clone()], filters: Vec::new() };
        let found = match self.inner.ec2.describe_instances(&query).await {
            Ok(found) => found.into_iter().next(),
            Err(error) if error.kind == Fault::NotFound => None,
            Err(error) => return Err(self.failed(error)),
        };
        let found = found.filter(|machine| machine.zone == id.zone);
        let of_launch = self.of_launch(&id.instance).await?;
        let now = self.now();
        let (machine, owner) = match (found, of_launch) {
            // Its tags may not be there yet.
            (Some(mut machine), Some((launched, owner))) => {
                for (key, value) in launched.tags {
                    machine.tags.entry(key).or_insert(value);
                }
                (machine, owner)
            }
            (Some(machine), None) => {
                let owner = Owner::of_tags(&machine);
                (machine, owner)
            }
            (None, Some((launched, owner))) if now.since(launched.launched_at) < SHOWN_WITHIN => (launched, owner),
            (None, _) if self.inner.market.shifted_zone_names().contains(&id.zone) => {
                let (id, zone) = (&id.instance, &id.zone);
                let message =
                    format!("EC2 does not list instance {id}, which is in {zone}, where a zonal shift is active");
                return Err(Error::Transient(message));
            }
            (None, _) => return Err(gone()),
        };
        if machine.state == MachineState::Terminated || !is_of_cluster(&machine, &self.inner.cluster.name) {
            return Err(gone());
        }
        Ok((machine, owner))
    }

    /// A machine as it was launched, if its batch is open, and whose it is.
    async fn of_launch(&self, id: &str) -> Result<Option<(Machine, Owner)>, Error> {
        Ok(self.launched().await?.remove(id))
    }

    /// The machines of all open batches, by id. What became of a batch is found out where it is not known.
    pub(super) async fn launched(&self) -> Result<BTreeMap<String, (Machine, Owner)>, Error> {
        let launcher = &self.inner.launcher;
        let mut all = BTreeMap::new();
        for open in launcher.journal().all().await.map_err(transient)? {
            let answered = match launcher.settle(&open).await {
                Ok(answered) => answered,
                // Nothing was launched, or nobody can tell any more.
                Err(NotLaunched::Refused(_) | NotLaunched::TooLate) => continue,
                Err(NotLaunched::Later(message)) => return Err(Error::Transient(message)),
            };
            for claim in &answered.batch.claims {
                if let Some(Outcome::Launched(launched)) = answered.outcomes.get(&claim.uid) {
                    let owner = Owner { token: Some(claim.uid.clone()), claim: Some(claim.name.clone()) };
                    all.insert(launched.id.clone(), (as_launched(&answered, launched), owner));
                }
            }
        }
        Ok(all)
    }

    /// Machines as the controllers know them, each with its type by its own node class.
    pub(super) async fn instances(&self, machines: Vec<(Machine, Owner)>) -> Result<Vec<Instance>, Error> {
        let mut by_class: BTreeMap<String, Option<InstanceTypes>> = BTreeMap::new();
        let mut instances = Vec::with_capacity(machines.len());
        for (machine, owner) in machines {
            let class = machine.tags.get(names::NODE_CLASS).cloned().unwrap_or_default();
            if !by_class.contains_key(&class) {
                let known = self.types_of_class(&class).await?;
                by_class.insert(class.clone(), known);
            }
            let known = by_class.get(&class).and_then(Option::as_ref);
            let listed = known.and_then(|types| find(&types.types, &machine.instance_type)).cloned();
            let without_class = || {
                let info = self.inner.market.record(&machine.instance_type)?;
                Some(instances::without_class(&info, &self.inner.region))
            };
            let instance_type = listed.or_else(without_class);
            instances.push(instance(&machine, owner, instance_type.as_ref()));
        }
        Ok(instances)
    }

    /// None if the node class is gone, or cannot be read: its machines are still there.
    async fn types_of_class(&self, name: &str) -> Result<Option<InstanceTypes>, Error> {
        let Some(object) = self.inner.objects.node_class(name).await.map_err(transient)? else { return Ok(None) };
        match self.known(&object).await {
            Ok(ready) => self.types(&ready).await.map(Some),
            Err(Error::NodeClassNotReady(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The machines of a query that are of this cluster.
    pub(super) async fn described(&self, query: &Query) -> Result<Vec<Machine>, Error> {
        let mut machines = self.inner.ec2.describe_instances(query).await.map_err(|error| self.failed(error))?;
        machines.retain(|machine| is_of_cluster(machine, &self.inner.cluster.name));
        Ok(machines)
    }
}

/// A machine as it was launched, before EC2 lists it.
pub(super) fn as_launched(answered: &Answered, launched: &Launched) -> Machine {
    let batch = &answered.batch;
    let template = batch.template_of(&launched.instance_type, &launched.zone);
    Machine {
        id: launched.id.clone(),
        state: MachineState::Pending,
        instance_type: launched.instance_type.clone(),
        zone: launched.zone.clone(),
        image_id: launched.image_id.clone().unwrap_or_default(),
        subnet_id: launched.subnet_id.clone(),
        security_group_ids: Vec::new(),
        launched_at: launched_at(&batch.token).unwrap_or_default(),
        is_spot: matches!(batch.request.purchase, Purchase::Spot(_)),
        capacity_reservation_id: template.and_then(|key| key.market.reservation()).map(str::to_owned),
        placement_group_id: None,
        partition: None,
        efa_count: template.map_or(0, |key| key.efa_count),
        tags: batch.request.tags.clone(),
    }
}
