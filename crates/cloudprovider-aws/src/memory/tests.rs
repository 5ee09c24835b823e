use futures::executor::block_on;
use model::PriceNanoUsdPerHour;

use super::*;
use crate::launch::fleet::{Choice, FleetRequest, Override, Purchase, TemplateConfig};
use crate::launch::template::{LaunchTemplate, Market, Placement};
use crate::node_class::spec::MetadataOptions;
use crate::service::ec2::{Ec2, Filter, MachineState, Query};
use crate::service::{Iam, Sqs};
use cloudprovider::{CapacityType, OfferingKey};

const TEMPLATE: &str = "t";

fn template(market: Market) -> LaunchTemplate {
    LaunchTemplate {
        image_id: "ami-amd64".to_owned(),
        user_data: String::new(),
        instance_profile: "p".to_owned(),
        block_devices: Vec::new(),
        network_interfaces: Vec::new(),
        metadata_options: MetadataOptions::default(),
        detailed_monitoring: None,
        nested_virtualization: None,
        enclaves: false,
        placement: Placement::default(),
        market,
        tags: Tags::new(),
    }
}

/// A request for these types in these zones.
fn request(purchase: Purchase, machines: &[(&str, &str)]) -> FleetRequest {
    let machine = |(instance_type, letter): &(&str, &str)| Override {
        instance_type: (*instance_type).to_owned(),
        zone: format!("us-east-1{letter}"),
        subnet_id: Some(format!("subnet-{letter}")),
        image_id: "ami-amd64".to_owned(),
        priority: 0,
    };
    FleetRequest {
        configs: vec![TemplateConfig {
            launch_template: TEMPLATE.to_owned(),
            overrides: machines.iter().map(machine).collect(),
        }],
        purchase,
        tags: [("karpenter.sh/nodepool".to_owned(), "default".to_owned())].into(),
        context: None,
    }
}

fn cloud(clock: &VirtualClock, market: Market) -> Cloud {
    let cloud = sample("test", clock.clock());
    block_on(cloud.create_launch_template(TEMPLATE, &template(market))).unwrap();
    cloud
}

fn offering(instance_type: &str, letter: &str, capacity_type: CapacityType) -> OfferingKey {
    OfferingKey {
        instance_type: instance_type.into(),
        zone: format!("us-east-1{letter}"),
        capacity_type,
        reservation_id: None,
    }
}

/// An answer in short: how many of which, and what was said of others.
fn text(answer: &crate::service::ec2::FleetAnswer) -> Vec<String> {
    let machines = answer.machines.iter().map(|it| format!("{} {} {}", it.ids.len(), it.instance_type, it.zone));
    let errors = answer.errors.iter().map(|it| {
        format!("{} {} {}", it.code, it.instance_type.as_deref().unwrap_or(""), it.zone.as_deref().unwrap_or(""))
    });
    machines.chain(errors).collect()
}

const ON_DEMAND: Purchase = Purchase::OnDemand(Choice::ByPrice);

#[test]
fn a_fleet_takes_the_cheapest_first_and_says_what_had_too_few() {
    let clock = VirtualClock::default();
    let cloud = cloud(&clock, Market::OnDemand);
    cloud.set_stock(&offering("m5.large", "a", CapacityType::OnDemand), Some(2));
    let request = request(ON_DEMAND, &[("m5.xlarge", "a"), ("m5.large", "a")]);
    let answer = block_on(cloud.create_fleet(&request, 3, "1")).unwrap();
    assert_eq!(
        text(&answer),
        ["2 m5.large us-east-1a", "1 m5.xlarge us-east-1a", "InsufficientInstanceCapacity m5.large us-east-1a"]
    );
    cloud.set_stock(&offering("m5.xlarge", "a", CapacityType::OnDemand), Some(1));
    let partial = block_on(cloud.create_fleet(&request, 3, "2")).unwrap();
    assert_eq!(partial.machines.iter().map(|it| it.ids.len()).sum::<usize>(), 1);
    assert_eq!(partial.errors.len(), 2);
}

#[test]
fn stock_comes_back_when_it_was_told_to() {
    let clock = VirtualClock::default();
    let cloud = cloud(&clock, Market::Spot);
    let spot = offering("m5.large", "a", CapacityType::Spot);
    cloud.set_stock(&spot, Some(0));
    cloud.set_stock_at(Timestamp(60_000), &spot, None);
    let request = request(Purchase::Spot(Choice::ByPrice), &[("m5.large", "a")]);
    assert_eq!(block_on(cloud.create_fleet(&request, 1, "1")).unwrap().machines, []);
    clock.advance(DurationMs(60_000));
    assert_eq!(text(&block_on(cloud.create_fleet(&request, 1, "2")).unwrap()), ["1 m5.large us-east-1a"]);
}

#[test]
fn a_client_token_gives_its_first_answer_again_and_takes_no_other_request() {
    let clock = VirtualClock::default();
    let cloud = cloud(&clock, Market::OnDemand);
    let asked = request(ON_DEMAND, &[("m5.large", "a")]);
    let first = block_on(cloud.create_fleet(&asked, 2, "1")).unwrap();
    clock.advance(DurationMs(60_000));
    assert_eq!(block_on(cloud.create_fleet(&asked, 2, "1")).unwrap(), first);
    assert_eq!(cloud.launched(), 2);
    let other = block_on(cloud.create_fleet(&request(ON_DEMAND, &[("m5.large", "b")]), 2, "1")).unwrap_err();
    assert_eq!(other.code.as_deref(), Some("IdempotentParameterMismatch"));
    assert_eq!(block_on(cloud.create_fleet(&asked, 1, "1")).unwrap_err().kind, Kind::Other);
}

/// Everything lags for so long.
struct Late(i64);

impl Faults for Late {
    fn of_call(&mut self, _: &'static str) -> CallFault {
        CallFault::None
    }

    fn lag(&mut self, _: Lag) -> DurationMs {
        DurationMs(self.0)
    }
}

#[test]
fn lists_lag_and_tags_come_late() {
    let clock = VirtualClock::default();
    let cloud = cloud(&clock, Market::OnDemand);
    cloud.set_faults(Some(Box::new(Late(5000))));
    let answer = block_on(cloud.create_fleet(&request(ON_DEMAND, &[("m5.large", "a")]), 1, "1")).unwrap();
    let id = answer.machines[0].ids[0].clone();
    let by_id = Query { ids: vec![id.clone()], filters: Vec::new() };
    let by_tag = |key: &str| Query { ids: Vec::new(), filters: vec![Filter::new("tag-key", key)] };
    assert_eq!(block_on(cloud.describe_instances(&by_id)).unwrap_err().kind, Kind::NotFound);
    assert_eq!(block_on(cloud.describe_instances(&by_tag("karpenter.sh/nodepool"))).unwrap(), []);
    clock.advance(DurationMs(5000));
    assert_eq!(block_on(cloud.describe_instances(&by_tag("karpenter.sh/nodepool"))).unwrap().len(), 1);
    block_on(cloud.create_tags(std::slice::from_ref(&id), &[("Name".to_owned(), "n".to_owned())].into())).unwrap();
    block_on(cloud.terminate_instances(&[id])).unwrap();
    assert_eq!(block_on(cloud.describe_instances(&by_tag("Name"))).unwrap(), []);
    assert_eq!(block_on(cloud.describe_instances(&by_id)).unwrap()[0].state, MachineState::Pending);
    assert_eq!(cloud.alive(), []);
    clock.advance(DurationMs(40_000));
    assert_eq!(block_on(cloud.describe_instances(&by_tag("Name"))).unwrap()[0].state, MachineState::Terminated);
}

/// The first call of that name is done, and its answer lost.
struct LostOnce(Option<&'static str>);

impl Faults for LostOnce {
    fn of_call(&mut self, call: &'static str) -> CallFault {
        if self.0.take_if(|it| *it == call).is_some() { CallFault::AnswerLost } else { CallFault::None }
    }

    fn lag(&mut self, _: Lag) -> DurationMs {
        DurationMs::ZERO
    }
}

#[test]
fn an_answer_that_is_lost_is_given_again_for_its_token() {
    let clock = VirtualClock::default();
    let cloud = cloud(&clock, Market::OnDemand);
    cloud.set_faults(Some(Box::new(LostOnce(Some("ec2:CreateFleet")))));
    let asked = request(ON_DEMAND, &[("m5.large", "a")]);
    assert_eq!(block_on(cloud.create_fleet(&asked, 1, "1")).unwrap_err().kind, Kind::ServerFault);
    assert_eq!((cloud.launched(), text(&block_on(cloud.create_fleet(&asked, 1, "1")).unwrap()).len()), (1, 1));
    assert_eq!(cloud.launched(), 1);
}

#[test]
fn calls_beyond_what_the_buckets_hold_are_throttled() {
    let clock = VirtualClock::default();
    let cloud = cloud(&clock, Market::OnDemand);
    let asked = request(ON_DEMAND, &[("m5.large", "a")]);
    let kinds: Vec<_> = (0..6)
        .map(|index| block_on(cloud.create_fleet(&asked, 1, &index.to_string())).map(drop).map_err(|it| it.kind))
        .collect();
    assert_eq!(kinds, [Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Err(Kind::Throttled)]);
}

#[test]
fn a_reservation_is_used_up_and_a_subnet_runs_out_of_addresses() {
    let clock = VirtualClock::default();
    let cloud = cloud(&clock, Market::Reservation("cr-1".to_owned()));
    let reservation = CapacityReservation {
        id: "cr-1".to_owned(),
        owner_id: "1".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        match_criteria: crate::node_class::spec::InstanceMatchCriteria::Targeted,
        reservation_type: crate::node_class::status::ReservationType::Default,
        interruptible: false,
        remaining: 1,
        ends_at: None,
    };
    cloud.add_reservation(reservation, Tags::new());
    let asked = request(ON_DEMAND, &[("m5.large", "a")]);
    let answer = block_on(cloud.create_fleet(&asked, 2, "1")).unwrap();
    assert_eq!(text(&answer), ["1 m5.large us-east-1a", "ReservationCapacityExceeded m5.large us-east-1a"]);
    let id = answer.machines[0].ids[0].clone();
    block_on(cloud.terminate_instances(&[id])).unwrap();
    let mut subnet = block_on(cloud.describe_subnets(&Query::default())).unwrap().remove(0);
    subnet.free_addresses = 0;
    cloud.add_subnet(subnet, Tags::new());
    let answer = block_on(cloud.create_fleet(&asked, 1, "2")).unwrap();
    assert_eq!(text(&answer), ["InsufficientFreeAddressesInSubnet m5.large us-east-1a"]);
}

#[test]
fn spot_machines_are_taken_back_two_minutes_after_the_warning_and_impaired_ones_are_told_of() {
    let clock = VirtualClock::default();
    let cloud = cloud(&clock, Market::Spot);
    let asked = request(Purchase::Spot(Choice::ByPrice), &[("m5.large", "a")]);
    let answer = block_on(cloud.create_fleet(&asked, 1, "1")).unwrap();
    let id = answer.machines[0].ids[0].clone();
    cloud.impair(&id);
    cloud.reclaim(&id);
    let messages = block_on(cloud.receive()).unwrap();
    assert!(messages[0].body.contains(&id) && messages[0].body.contains("Spot Instance Interruption Warning"));
    block_on(Sqs::delete(&cloud, &messages[0].receipt)).unwrap();
    assert_eq!(block_on(cloud.receive()).unwrap(), []);
    let status = block_on(cloud.describe_instance_status()).unwrap();
    assert_eq!((status[0].id.as_str(), status[0].instance_impaired_since), (id.as_str(), Some(clock.now())));
    clock.advance(DurationMs(119_999));
    assert_eq!(cloud.alive().len(), 1);
    clock.advance(DurationMs(1));
    assert_eq!(cloud.alive().len(), 0);
}

#[test]
fn prices_decide_and_priorities_do_where_they_are_asked_for() {
    let clock = VirtualClock::default();
    let cloud = cloud(&clock, Market::Spot);
    let price = |name: &str, price| (name.to_owned(), "us-east-1a".to_owned(), PriceNanoUsdPerHour(price));
    cloud.set_spot_prices([price("m5.large", 50), price("c5.large", 40)]);
    let mut asked = request(Purchase::Spot(Choice::ByPrice), &[("m5.large", "a"), ("c5.large", "a")]);
    assert_eq!(text(&block_on(cloud.create_fleet(&asked, 1, "1")).unwrap()), ["1 c5.large us-east-1a"]);
    asked.purchase = Purchase::Spot(Choice::ByPriority);
    asked.configs[0].overrides[1].priority = 9;
    assert_eq!(text(&block_on(cloud.create_fleet(&asked, 1, "2")).unwrap()), ["1 m5.large us-east-1a"]);
}

#[test]
fn a_profile_has_one_role_and_is_deleted_without_it() {
    let cloud = sample("test", VirtualClock::default().clock());
    block_on(cloud.create_instance_profile("p", "/karpenter/", &Tags::new())).unwrap();
    assert_eq!(block_on(cloud.add_role("p", "missing")).unwrap_err().kind, Kind::NotFound);
    block_on(Iam::add_role(&cloud, "p", "nodes")).unwrap();
    assert!(block_on(Iam::add_role(&cloud, "p", "nodes")).is_err());
    assert_eq!(block_on(cloud.delete_instance_profile("p")).unwrap_err().code.as_deref(), Some("DeleteConflict"));
    block_on(cloud.remove_role("p", "nodes")).unwrap();
    block_on(cloud.delete_instance_profile("p")).unwrap();
    assert_eq!(block_on(cloud.list_instance_profiles("/karpenter/")).unwrap(), []);
}

#[test]
fn a_filter_that_is_not_known_is_refused_by_name() {
    let cloud = sample("test", VirtualClock::default().clock());
    let query = Query { ids: Vec::new(), filters: vec![Filter::new("colour", "red")] };
    let refused = block_on(cloud.describe_subnets(&query)).unwrap_err();
    assert_eq!(refused.to_string(), "ec2:DescribeSubnets: InvalidParameterValue: The filter 'colour' is invalid");
}
