//! `CreateFleet` of type `instant`.

use model::{DurationMs, PriceNanoUsdPerHour, Timestamp};

use cloudprovider::CapacityType;

use super::content::Content;
use super::machines::{Lags, Record};
use super::{Lag, State, error};
use crate::launch::fleet::{Choice, FleetRequest, Override, Purchase};
use crate::launch::template::Market;
use crate::service::Error;
use crate::service::ec2::{FleetAnswer, FleetError, FleetMachines, Machine, MachineState};

const CALL: &str = "ec2:CreateFleet";
/// How long a client token gives the answer that it gave the first time. EC2 promises a day.
const TOKEN_LIFE: DurationMs = DurationMs::from_seconds(24 * 3600);

/// Machines of one type in one zone that are sold one way. Reservations are counted apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pool {
    pub(super) instance_type: String,
    pub(super) zone: String,
    pub(super) is_spot: bool,
}

/// A request that was answered.
#[derive(Debug, Clone)]
pub(super) struct Fleet {
    request: FleetRequest,
    count: usize,
    answer: FleetAnswer,
    until: Timestamp,
}

/// Something that a request allows.
struct Allowed<'a> {
    template_name: &'a str,
    template: Content,
    machine: &'a Override,
    /// What orders it among others; the least goes first.
    order: (bool, PriceNanoUsdPerHour),
}

pub(super) fn create(
    state: &mut State,
    request: &FleetRequest,
    count: usize,
    token: &str,
    now: Timestamp,
) -> Result<FleetAnswer, Error> {
    state.fleets.retain(|_, fleet| fleet.until > now);
    if let Some(fleet) = state.fleets.get(token) {
        if (&fleet.request, fleet.count) != (request, count) {
            let message = "The client token was used before with other parameters";
            return Err(error(CALL, "IdempotentParameterMismatch", message));
        }
        return Ok(fleet.answer.clone());
    }
    let answer = launch(state, request, count, now)?;
    let until = now.saturating_add(TOKEN_LIFE);
    state.fleets.insert(token.to_owned(), Fleet { request: request.clone(), count, answer: answer.clone(), until });
    Ok(answer)
}

/// Takes machines from what the request allows, in EC2's order, until there are enough.
fn launch(state: &mut State, request: &FleetRequest, count: usize, now: Timestamp) -> Result<FleetAnswer, Error> {
    let number = state.next_number();
    let mut answer = FleetAnswer { fleet_id: Some(format!("fleet-{number:08x}")), ..FleetAnswer::default() };
    let mut left = if state.fleets_are_empty { 0 } else { count };
    for allowed in allowed(state, request, now)? {
        if left == 0 {
            break;
        }
        let (had, lack) = available(state, request, &allowed);
        let taken = had.min(left);
        let ids: Vec<_> = (0..taken).map(|_| add(state, request, &allowed, now)).collect();
        left -= taken;
        if !ids.is_empty() {
            answer.machines.push(FleetMachines {
                ids,
                instance_type: allowed.machine.instance_type.clone(),
                zone: allowed.machine.zone.clone(),
                subnet_id: allowed.machine.subnet_id.clone(),
                image_id: Some(allowed.machine.image_id.clone()),
            });
        }
        if let Some((code, message)) = lack.filter(|_| left > 0) {
            answer.errors.push(FleetError {
                code: code.to_owned(),
                message: message.to_owned(),
                instance_type: Some(allowed.machine.instance_type.clone()),
                zone: Some(allowed.machine.zone.clone()),
                subnet_id: allowed.machine.subnet_id.clone(),
                launch_template: Some(allowed.template_name.to_owned()),
            });
        }
    }
    Ok(answer)
}

/// All that a request allows: what is plentiful before what is limited where EC2 weighs that, then by price.
fn allowed<'a>(state: &State, request: &'a FleetRequest, now: Timestamp) -> Result<Vec<Allowed<'a>>, Error> {
    let mut all = Vec::new();
    for config in &request.configs {
        let template = state.templates.get(&config.launch_template).filter(|template| template.shown_from <= now);
        let Some(template) = template else {
            let message = format!(
                "The specified launch template, with template name {}, does not exist.",
                config.launch_template
            );
            return Err(error(CALL, "InvalidLaunchTemplateName.NotFoundException", message));
        };
        for machine in &config.overrides {
            let order = order(state, request.purchase, machine);
            let template = template.content.clone();
            all.push(Allowed { template_name: &config.launch_template, template, machine, order });
        }
    }
    all.sort_by(|a, b| (a.order, a.machine).cmp(&(b.order, b.machine)));
    Ok(all)
}

fn order(state: &State, purchase: Purchase, machine: &Override) -> (bool, PriceNanoUsdPerHour) {
    let capacity_type = if is_spot(purchase) { CapacityType::Spot } else { CapacityType::OnDemand };
    let price = match purchase {
        Purchase::OnDemand(Choice::ByPriority) | Purchase::Spot(Choice::ByPriority) => {
            Some(PriceNanoUsdPerHour(machine.priority))
        }
        _ => state.prices.price(&machine.instance_type, &machine.zone, capacity_type),
    };
    let is_scarce = is_spot(purchase) && state.stock.contains_key(&pool(machine, true));
    (is_scarce, price.unwrap_or(PriceNanoUsdPerHour(i64::MAX)))
}

fn is_spot(purchase: Purchase) -> bool {
    matches!(purchase, Purchase::Spot(_))
}

fn pool(machine: &Override, is_spot: bool) -> Pool {
    Pool { instance_type: machine.instance_type.clone(), zone: machine.zone.clone(), is_spot }
}

type Lack = (&'static str, &'static str);

/// How many there are, and what is said when that is not enough.
fn available(state: &State, request: &FleetRequest, allowed: &Allowed<'_>) -> (usize, Option<Lack>) {
    let machine = allowed.machine;
    let count = |left: u32| usize::try_from(left).unwrap_or(usize::MAX);
    if !state.images.contains_key(&machine.image_id) {
        return (0, Some(("InvalidAMIID.NotFound", "The image id does not exist")));
    }
    if is_spot(request.purchase) && state.spot_role_is_missing {
        let message = "The provided credentials do not have permission to create the service-linked role";
        return (0, Some(("AuthFailure.ServiceLinkedRoleCreationNotPermitted", message)));
    }
    let subnet = machine.subnet_id.as_ref().and_then(|id| state.subnets.get(id));
    let addresses = subnet.map_or(usize::MAX, |subnet| count(subnet.thing.free_addresses));
    let no_addresses = ("InsufficientFreeAddressesInSubnet", "There are not enough free addresses in the subnet");
    let (left, lack) = match allowed.template.market.reservation() {
        Some(id) => match state.reservations.get(id).map(|it| &it.thing) {
            Some(it) if it.instance_type == machine.instance_type && it.zone == machine.zone => {
                (count(it.remaining), ("ReservationCapacityExceeded", "The reservation has no capacity left"))
            }
            _ => (0, ("InvalidCapacityReservationState.Unavailable", "The capacity reservation cannot be used")),
        },
        None => {
            let stock = state.stock.get(&pool(machine, is_spot(request.purchase)));
            let message = "We currently do not have sufficient capacity in the Availability Zone you requested";
            (stock.map_or(usize::MAX, |left| count(*left)), ("InsufficientInstanceCapacity", message))
        }
    };
    if addresses < left { (addresses, Some(no_addresses)) } else { (left, Some(lack)) }
}

/// Makes one machine; gives its id.
fn add(state: &mut State, request: &FleetRequest, allowed: &Allowed<'_>, now: Timestamp) -> String {
    let number = state.next_number();
    // Ids tell nothing of the order in which machines were made.
    let id = format!("i-{:017x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 4);
    let (machine, template) = (allowed.machine, &allowed.template);
    if let Some(subnet) = machine.subnet_id.as_ref().and_then(|id| state.subnets.get_mut(id)) {
        subnet.thing.free_addresses = subnet.thing.free_addresses.saturating_sub(1);
    }
    let reservation = template.market.reservation();
    match reservation.and_then(|id| state.reservations.get_mut(id)) {
        Some(reservation) => reservation.thing.remaining = reservation.thing.remaining.saturating_sub(1),
        None => {
            if let Some(left) = state.stock.get_mut(&pool(machine, is_spot(request.purchase))) {
                *left = left.saturating_sub(1);
            }
        }
    }
    let group = template.placement.group_id.as_ref().and_then(|id| state.placement_groups.get(id));
    // One after the other, where nobody asks for one.
    let partitions = group.and_then(|group| group.thing.partitions).and_then(|count| u64::try_from(count).ok());
    let chosen = partitions.filter(|count| *count > 0).and_then(|count| i32::try_from(number % count + 1).ok());
    let launched = Machine {
        id: id.clone(),
        state: MachineState::Pending,
        instance_type: machine.instance_type.clone(),
        zone: machine.zone.clone(),
        image_id: machine.image_id.clone(),
        subnet_id: machine.subnet_id.clone(),
        security_group_ids: template.security_groups.clone(),
        launched_at: now,
        is_spot: template.market == Market::Spot,
        capacity_reservation_id: reservation.map(str::to_owned),
        placement_group_id: template.placement.group_id.clone(),
        partition: template.placement.partition.or(chosen),
        efa_count: template.efa_count,
        tags: request.tags.clone(),
    };
    let lags = Lags { launch: state.lag(Lag::Launch), state: state.lag(Lag::State), tags: state.lag(Lag::Tags) };
    state.machines.insert(id.clone(), Record::launched(launched, template.user_data.clone(), lags));
    id
}

/// Whether what a request names is there.
pub(super) fn check(state: &State, request: &FleetRequest, now: Timestamp) -> Result<(), Error> {
    allowed(state, request, now).map(drop)
}
