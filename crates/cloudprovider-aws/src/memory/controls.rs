//! What tests do to the cloud, and see of it, that no caller of EC2 can.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cloudprovider::{CapacityType, OfferingKey};
use model::{DurationMs, PriceNanoUsdPerHour, Timestamp};
use serde_json::json;

use super::calls::terminate;
use super::fleet::Pool;
use super::{Clock, Cloud, Faults, State, Tagged, error};
use crate::instance_types::info::InstanceTypeInfo;
use crate::node_class::spec::Tags;
use crate::pricing::UnlistedSpot;
use crate::service::ec2::{
    CapacityReservation, Image, Machine, PlacementGroup, PlannedEvent, SecurityGroup, Subnet, TypeInZone,
};
use crate::service::{ClusterDescription, Error, Message, ZonalShift};

/// A clock that stands still until it is moved. Clones are the same clock.
#[derive(Debug, Clone, Default)]
pub struct VirtualClock(Arc<AtomicI64>);

impl VirtualClock {
    /// One that shows this time.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(now.0)))
    }

    /// What it shows.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    /// Moves it on.
    pub fn advance(&self, by: DurationMs) {
        self.0.fetch_add(by.0, Ordering::SeqCst);
    }

    /// The clock as the cloud takes it.
    pub fn clock(&self) -> Clock {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

/// The region of [`sample`].
pub const REGION: &str = "us-east-1";
/// The types that are sold there: small and large ones, both architectures, GPUs, Elastic Fabric Adapters.
const TYPES: [&str; 9] = [
    "c5.large",
    "c6g.large",
    "g4dn.xlarge",
    "m5.large",
    "m5.metal",
    "m5.xlarge",
    "m6g.large",
    "p4d.24xlarge",
    "t3.medium",
];

/// A cloud with a network in three zones, a security group, images for both architectures, a role and a cluster, all
/// named after that cluster and found by the tag `cluster`.
pub fn sample(cluster: &str, clock: Clock) -> Cloud {
    let cloud = Cloud::new(clock);
    let tags: Tags = [("cluster".to_owned(), cluster.to_owned())].into();
    for letter in ["a", "b", "c"] {
        let zone = format!("{REGION}{letter}");
        let index = letter.bytes().map(|byte| byte - b'a' + 1).sum::<u8>();
        let subnet = Subnet {
            id: format!("subnet-{letter}"),
            zone: zone.clone(),
            zone_id: format!("use1-az{index}"),
            free_addresses: 4000,
        };
        cloud.add_subnet(subnet, tags.clone());
        cloud.add_types(TYPES.map(|name| TypeInZone { instance_type: name.to_owned(), zone: zone.clone() }));
    }
    cloud.add_security_group(SecurityGroup { id: "sg-1".to_owned(), name: "nodes".to_owned() }, tags.clone());
    for (id, architecture) in [("ami-amd64", "x86_64"), ("ami-arm64", "arm64")] {
        let image = Image {
            id: id.to_owned(),
            name: format!("eks-node-{architecture}"),
            architecture: architecture.to_owned(),
            created_at: Timestamp(0),
            deprecated_at: None,
        };
        cloud.add_image(image, tags.clone());
    }
    cloud.make_role("nodes");
    let description = ClusterDescription {
        arn: Some(arn_of(cluster)),
        endpoint: format!("https://{cluster}.eks.amazonaws.com"),
        version: "1.33".to_owned(),
        service_ipv4_cidr: Some("10.100.0.0/16".to_owned()),
        service_ipv6_cidr: None,
    };
    cloud.add_cluster(cluster, description);
    cloud
}

/// The ARN of a cluster of [`sample`].
pub fn arn_of(cluster: &str) -> String {
    format!("arn:aws:eks:{REGION}:123456789012:cluster/{cluster}")
}

fn add<T>(things: &mut std::collections::BTreeMap<String, Tagged<T>>, id: &str, thing: T, tags: Tags) {
    things.insert(id.to_owned(), Tagged { thing, tags });
}

impl Cloud {
    /// Adds a subnet, or replaces it.
    pub fn add_subnet(&self, subnet: Subnet, tags: Tags) {
        add(&mut self.state().subnets, &subnet.id.clone(), subnet, tags);
    }

    /// Takes a subnet away.
    pub fn remove_subnet(&self, id: &str) {
        self.state().subnets.remove(id);
    }

    /// Adds a security group, or replaces it.
    pub fn add_security_group(&self, group: SecurityGroup, tags: Tags) {
        add(&mut self.state().security_groups, &group.id.clone(), group, tags);
    }

    /// Adds an image, or replaces it.
    pub fn add_image(&self, image: Image, tags: Tags) {
        add(&mut self.state().images, &image.id.clone(), image, tags);
    }

    /// Takes an image away.
    pub fn remove_image(&self, id: &str) {
        self.state().images.remove(id);
    }

    /// Adds a capacity reservation, or replaces it; so one can be used up by others.
    pub fn add_reservation(&self, reservation: CapacityReservation, tags: Tags) {
        add(&mut self.state().reservations, &reservation.id.clone(), reservation, tags);
    }

    /// Ends a capacity reservation as its owner would: its machines run on, in none.
    pub fn end_reservation(&self, id: &str) {
        let state = &mut *self.state();
        state.reservations.remove(id);
        state.machines.values_mut().for_each(|record| record.leave_reservation(id));
    }

    /// Adds a placement group, or replaces it.
    pub fn add_placement_group(&self, group: PlacementGroup, tags: Tags) {
        add(&mut self.state().placement_groups, &group.id.clone(), group, tags);
    }

    /// Lets types be sold in zones.
    pub fn add_types(&self, sold: impl IntoIterator<Item = TypeInZone>) {
        self.state().types_in_zones.extend(sold);
    }

    /// Sets what is said of a type, which may be one that is not built in.
    pub fn set_record(&self, record: InstanceTypeInfo) {
        self.state().records.insert(record.instance_type.clone(), record);
    }

    /// Gives spot machines these prices, and no others a price.
    pub fn set_spot_prices(&self, prices: impl IntoIterator<Item = (String, String, PriceNanoUsdPerHour)>) {
        let mut listed = std::collections::BTreeMap::<String, std::collections::BTreeMap<_, _>>::new();
        for (instance_type, zone, price) in prices {
            listed.entry(instance_type).or_default().insert(zone, price);
        }
        self.state().prices.set_spot(listed, UnlistedSpot::NotSold);
    }

    /// Takes prices on demand over those that are known.
    pub fn set_on_demand_prices(&self, prices: impl IntoIterator<Item = (String, PriceNanoUsdPerHour)>) {
        self.state().prices.set_on_demand(prices);
    }

    /// What a machine costs now, as it was bought; one of a reservation what it would on demand. `None` where the cloud
    /// has no price for it.
    pub fn price(&self, machine: &Machine) -> Option<PriceNanoUsdPerHour> {
        let capacity_type = if machine.is_spot { CapacityType::Spot } else { CapacityType::OnDemand };
        self.state().prices.price(&machine.instance_type, &machine.zone, capacity_type)
    }

    /// Adds a role.
    pub fn make_role(&self, name: &str) {
        self.state().roles.insert(name.to_owned());
    }

    /// Takes a role away.
    pub fn drop_role(&self, name: &str) {
        self.state().roles.remove(name);
    }

    /// Sets a parameter of Systems Manager.
    pub fn set_parameter(&self, name: &str, value: &str) {
        self.state().parameters.insert(name.to_owned(), value.to_owned());
    }

    /// Adds a cluster of EKS, or replaces it.
    pub fn add_cluster(&self, name: &str, description: ClusterDescription) {
        self.state().clusters.insert(name.to_owned(), description);
    }

    /// Shifts traffic away from zones, by their ids, and from no others.
    pub fn shift_away_from(&self, shifts: impl IntoIterator<Item = ZonalShift>) {
        self.state().zonal_shifts = Some(shifts.into_iter().collect());
    }

    /// Sets how many machines are left of an offering that is not reserved; none says that there are enough.
    pub fn set_stock(&self, offering: &OfferingKey, left: Option<u32>) {
        self.state().set_stock(pool(offering), left);
    }

    /// Does so at a later time.
    pub fn set_stock_at(&self, at: Timestamp, offering: &OfferingKey, left: Option<u32>) {
        let state = &mut *self.state();
        state.stock_to_come.push((at, pool(offering), left));
        state.stock_to_come.sort_by_key(|(at, ..)| *at);
    }

    /// Takes away, or gives, the role without which there are no spot machines.
    pub fn set_spot_role(&self, is_there: bool) {
        self.state().spot_role_is_missing = !is_there;
    }

    /// Lets requests for fleets be answered with neither machines nor errors, or as usual again.
    pub fn set_fleets_are_empty(&self, are_empty: bool) {
        self.state().fleets_are_empty = are_empty;
    }

    /// Lets a call such as `ec2:CreateTags` fail with a code and a message until [`Self::permit`].
    pub fn refuse(&self, call: &'static str, code: &str, message: &str) {
        self.state().refused_calls.insert(call.to_owned(), error(call, code, message));
    }

    /// Takes [`Self::refuse`] back.
    pub fn permit(&self, call: &'static str) {
        self.state().refused_calls.remove(call);
    }

    /// Lets dry runs of fleets (`fleet`) or machines (`instance`) fail, or succeed.
    pub fn set_dry_run(&self, what: &'static str, error: Option<Error>) {
        let state = &mut *self.state();
        match error {
            Some(error) => drop(state.dry_runs.insert(what, error)),
            None => drop(state.dry_runs.remove(what)),
        }
    }

    /// Lets things go wrong from now on, or not any more.
    pub fn set_faults(&self, faults: Option<Box<dyn Faults>>) {
        self.state().faults = faults;
    }

    /// Puts a message into the queue.
    pub fn send(&self, body: &str) {
        let state = &mut *self.state();
        let receipt = format!("message-{}", state.next_number());
        state.messages.push_back(Message { receipt, body: body.to_owned() });
    }

    /// Takes a spot machine back: the queue has the warning at once, the machine ends two minutes later.
    pub fn reclaim(&self, id: &str) {
        let now = self.now();
        let state = &mut *self.state();
        if let Some(record) = state.machines.get_mut(id).filter(|record| record.facts().is_spot) {
            record.terminate_at(now.saturating_add(DurationMs::from_seconds(120)));
            warn(state, id, now);
        }
    }

    /// Ends a machine as its owner would in the console.
    pub fn terminate(&self, id: &str) {
        let now = self.now();
        terminate(&mut self.state(), id, now);
    }

    /// Lets a machine fail its own checks from now on.
    pub fn impair(&self, id: &str) {
        let now = self.now();
        if let Some(record) = self.state().machines.get_mut(id) {
            record.impaired_since = Some(now);
        }
    }

    /// Lets the host of a machine fail its checks from now on.
    pub fn impair_host(&self, id: &str) {
        let now = self.now();
        if let Some(record) = self.state().machines.get_mut(id) {
            record.host_impaired_since = Some(now);
        }
    }

    /// Plans an event such as `instance-retirement` for a machine, at an untold time.
    pub fn plan_event(&self, id: &str, code: &str) {
        if let Some(record) = self.state().machines.get_mut(id) {
            record.events.push(PlannedEvent { code: code.to_owned(), not_before: None });
        }
    }

    /// The machines that cost money now, as they are, by id.
    pub fn alive(&self) -> Vec<Machine> {
        let now = self.now();
        let state = self.state();
        state.machines.values().filter(|record| record.is_alive(now)).map(|record| record.truth(now)).collect()
    }

    /// What a machine is told when it boots, decoded.
    pub fn user_data(&self, id: &str) -> Option<String> {
        let encoded = self.state().machines.get(id)?.user_data.clone();
        String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
    }

    /// How many machines were launched.
    pub fn launched(&self) -> usize {
        self.state().machines.len()
    }

    /// How often a call was made.
    pub fn calls(&self, call: &str) -> u64 {
        self.state().calls.get(call).copied().unwrap_or(0)
    }

    /// How many launch templates there are.
    pub fn templates(&self) -> usize {
        self.state().templates.len()
    }
}

fn pool(offering: &OfferingKey) -> Pool {
    Pool {
        instance_type: offering.instance_type.to_string(),
        zone: offering.zone.clone(),
        is_spot: offering.capacity_type == CapacityType::Spot,
    }
}

/// The message that EventBridge puts into the queue before a spot machine is taken back.
fn warn(state: &mut State, id: &str, now: Timestamp) {
    let receipt = format!("message-{}", state.next_number());
    let body = json!({
        "version": "0",
        "id": receipt,
        "source": "aws.ec2",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "account": state.account,
        "time": now.to_string(),
        "region": REGION,
        "resources": [],
        "detail": { "instance-id": id, "instance-action": "terminate" },
    });
    state.messages.push_back(Message { receipt, body: body.to_string() });
}
