//! Machines as the rest of the program knows them. Pure.

use std::collections::BTreeMap;

use api::labels as kubernetes;
use cloudprovider::{CapacityType, Instance, InstanceState, InstanceType, Offering, ResourceList};
use model::{NodeClaimName, Uid};

use crate::instance_types::Resolver;
use crate::instance_types::info::InstanceTypeInfo;
use crate::launch::batch::launched_at;
use crate::node_class::tags::{CLUSTER_NAME, NODE_CLAIM};
use crate::provider_id::MachineId;
use crate::service::ec2::{Filter, Machine, MachineState, Query};
use crate::{labels, names};

/// The states in which a machine is still there.
const PRESENT: [&str; 5] = ["pending", "running", "stopping", "stopped", "shutting-down"];

/// The query for the machines of a cluster, or for those of them that have a tag of this value.
pub(super) fn query(cluster: &str, tag: Option<(&str, &str)>) -> Query {
    let states = PRESENT.iter().map(|state| (*state).to_owned()).collect();
    let mut filters = vec![
        Filter::new("tag-key", kubernetes::NODEPOOL),
        Filter::new("tag-key", names::NODE_CLASS),
        Filter::new(format!("tag:{CLUSTER_NAME}"), cluster),
        Filter { name: "instance-state-name".to_owned(), values: states },
    ];
    filters.extend(tag.map(|(key, value)| Filter::new(format!("tag:{key}"), value)));
    Query { ids: Vec::new(), filters }
}

/// Whether a machine is one of the cluster. EC2's filters say so too; a machine is removed on the strength of this, so
/// it is looked at twice.
pub(super) fn is_of_cluster(machine: &Machine, cluster: &str) -> bool {
    machine.tags.get(CLUSTER_NAME).is_some_and(|name| name == cluster)
        && machine.tags.contains_key(kubernetes::NODEPOOL)
        && machine.tags.contains_key(names::NODE_CLASS)
        && machine.state != MachineState::Terminated
}

/// Whose machine it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owner {
    /// The token of its launch.
    pub(super) token: Option<Uid>,
    /// The NodeClaim's name.
    pub(super) claim: Option<NodeClaimName>,
}

impl Owner {
    /// What the tags say. A machine has them some time after its launch.
    pub(super) fn of_tags(machine: &Machine) -> Self {
        let tag = |key: &str| machine.tags.get(key).map(String::as_str);
        Self { token: tag(names::NODE_CLAIM_UID).map(Uid::from), claim: tag(NODE_CLAIM).map(NodeClaimName::from) }
    }
}

/// How a machine is paid. One in a reservation was launched into it if its node class says so.
pub(super) fn capacity_type(machine: &Machine) -> CapacityType {
    match (machine.is_spot, &machine.capacity_reservation_id) {
        (true, _) => CapacityType::Spot,
        (false, Some(_)) => CapacityType::Reserved,
        (false, None) => CapacityType::OnDemand,
    }
}

/// The offering that a machine comes from; one without a price if it is offered no more.
pub(super) fn offering_of(machine: &Machine, instance_type: Option<&InstanceType>) -> Offering {
    let capacity_type = capacity_type(machine);
    let is_it = |offering: &&Offering| {
        offering.zone == machine.zone
            && offering.capacity_type == capacity_type
            && offering.reservation.as_ref().map(|it| &it.id) == machine.capacity_reservation_id.as_ref()
    };
    let known = instance_type.and_then(|it| it.offerings.iter().find(is_it));
    known.cloned().unwrap_or_else(|| {
        let mut offering = Offering::new(&machine.zone, capacity_type, Default::default());
        if let Some(id) = &machine.capacity_reservation_id {
            offering.labels.insert(labels::CAPACITY_RESERVATION_ID.to_owned(), id.clone());
        }
        offering
    })
}

/// The labels that a machine has whatever its NodeClaim asks for.
pub(super) fn labels_of(machine: &Machine, instance_type: Option<&InstanceType>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (key, values) in instance_type.iter().flat_map(|it| &it.requirements) {
        if let [value] = values.iter().collect::<Vec<_>>()[..] {
            labels.insert(key.clone(), value.clone());
        }
    }
    let offering = offering_of(machine, instance_type);
    labels.extend(offering.all_labels().map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels.insert(kubernetes::INSTANCE_TYPE.to_owned(), machine.instance_type.clone());
    labels.extend(of_launch(machine));
    labels
}

/// What only the machine itself tells.
pub(super) fn of_launch(machine: &Machine) -> impl Iterator<Item = (String, String)> {
    let tag = |key: &str| machine.tags.get(key).cloned();
    let all = [
        (kubernetes::NODEPOOL, tag(kubernetes::NODEPOOL)),
        (labels::PLACEMENT_GROUP_ID, machine.placement_group_id.clone()),
        (labels::PLACEMENT_GROUP_PARTITION, machine.partition.map(|it| it.to_string())),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)))
}

/// A machine as the controllers know it.
pub(super) fn instance(machine: &Machine, owner: Owner, instance_type: Option<&InstanceType>) -> Instance {
    let offering = offering_of(machine, instance_type);
    let (mut capacity, mut allocatable) =
        instance_type.map(|it| (offering.capacity(it), offering.allocatable(it))).unwrap_or_default();
    keep_what_is_there(&mut capacity, machine);
    keep_what_is_there(&mut allocatable, machine);
    Instance {
        provider_id: MachineId { zone: machine.zone.clone(), instance: machine.id.clone() }.to_provider_id(),
        token: owner.token,
        claim_name: owner.claim,
        labels: labels_of(machine, instance_type),
        annotations: BTreeMap::new(),
        image_id: Some(machine.image_id.clone()),
        capacity,
        allocatable,
        instance_type: machine.instance_type.as_str().into(),
        zone: machine.zone.clone(),
        capacity_type: capacity_type(machine),
        // EC2's own time is known only once it lists the machine, and a machine's age may not change.
        created_at: machine.tags.get(names::LAUNCH_TOKEN).and_then(|it| launched_at(it)).unwrap_or(machine.launched_at),
        state: match machine.state {
            MachineState::Pending | MachineState::Running | MachineState::Stopping | MachineState::Stopped => {
                InstanceState::Running
            }
            MachineState::ShuttingDown | MachineState::Terminated => InstanceState::Terminating,
        },
    }
}

/// Elastic Fabric Adapters are there if they were attached.
fn keep_what_is_there(resources: &mut ResourceList, machine: &Machine) {
    resources
        .retain(|resource, amount| amount.sign() > 0 && (resource != labels::resources::EFA || machine.efa_count > 0));
}

/// A type as it would be without a node class, for machines whose node class is gone.
pub(super) fn without_class(info: &InstanceTypeInfo, region: &str) -> InstanceType {
    let settings = crate::instance_types::settings::NodeSettings::of_family(crate::node_class::AmiFamily::Al2023);
    let options = crate::instance_types::settings::MachineOptions::default();
    Resolver { region, settings: &settings, options: &options }.resolve(info)
}
