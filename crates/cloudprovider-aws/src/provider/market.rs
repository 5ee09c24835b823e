//! What can be had in the region, and what is left of it: types and prices, reservations, addresses, stock-outs.
//!
//! Answers of EC2 are kept for as long as they are good, and corrected by what launches take and are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cloudprovider::{CapacityType, Error, OfferingKey};
use model::{DurationMs, InstanceTypeName, PriceNanoUsdPerHour, Timestamp};
use parking_lot::Mutex;

use super::cluster::{Cluster, Expected, Failure};
use super::launcher::Observer;
use super::region::{Region, built_in, sold, types};
use super::subnets::Subnets;
use super::{Clock, transient};
use crate::catalogue;
use crate::fleet_answer::evidence;
use crate::instance_types::info::InstanceTypeInfo;
use crate::launch::batch::Batch;
use crate::launch::fleet::Purchase;
use crate::ledger::{Entry, Ledger, Subject};
use crate::node_class::status::{CapacityReservation, Subnet};
use crate::pricing::{Prices, UnlistedSpot};
use crate::service::ec2::{FleetAnswer, PlacementGroup, Query, SpotPrice};
use crate::service::{Ec2, Kind, PriceList, Pricing, ZonalShift};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::LaunchFailure;

/// How long EC2's word on reservations and placement groups counts.
const FRESH: DurationMs = DurationMs::from_seconds(60);
/// The document that keeps what could not be had over a restart.
const STOCK_OUTS: &str = "dovetail-ec2-stock-outs";

/// See the [module](self).
pub(super) struct RegionMarket {
    ec2: Arc<dyn Ec2>,
    objects: Arc<dyn Cluster>,
    clock: Clock,
    metrics: Metrics,
    state: Mutex<State>,
    /// One at a time asks EC2.
    asking: tokio::sync::Mutex<()>,
}

struct State {
    region: Option<Region>,
    /// When EC2 last told all of it.
    region_told: Option<Timestamp>,
    /// Counts changes of the region.
    of_region: u64,
    prices: Arc<Prices>,
    ledger: Ledger,
    is_restored: bool,
    /// What was written down last.
    written: Option<u64>,
    subnets: Subnets,
    /// Ids of zones, by name.
    zone_ids: BTreeMap<String, String>,
    reservations: BTreeMap<String, Left>,
    placement_groups: BTreeMap<Query, (Timestamp, Option<PlacementGroup>)>,
    /// As they were told last.
    zonal_shifts: Vec<ZonalShift>,
}

/// What is left of a reservation.
#[derive(Debug, Clone, Copy)]
struct Left {
    machines: u32,
    at: Timestamp,
}

impl RegionMarket {
    pub(super) fn new(ec2: Arc<dyn Ec2>, objects: Arc<dyn Cluster>, clock: Clock, metrics: Metrics) -> Self {
        let state = State {
            region: None,
            region_told: None,
            of_region: 0,
            prices: Arc::new(Prices::built_in()),
            ledger: Ledger::default(),
            is_restored: false,
            written: None,
            subnets: Subnets::default(),
            zone_ids: BTreeMap::new(),
            reservations: BTreeMap::new(),
            placement_groups: BTreeMap::new(),
            zonal_shifts: Vec::new(),
        };
        Self { ec2, objects, clock, metrics, state: Mutex::new(state), asking: tokio::sync::Mutex::default() }
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Counts a call that failed. It is worth making again.
    pub(super) fn failed(&self, error: crate::service::Error) -> Error {
        self.metrics.call_failed(&error);
        transient(error)
    }

    /// Asks what machines cost. Of what is not listed on demand the price stays; spot that is not listed is not sold.
    /// Where a list of prices cannot be had, the others are taken all the same.
    pub(super) async fn refresh_prices(&self, pricing: Option<&dyn Pricing>, region: &str) -> Result<(), Error> {
        let mut prices = Prices::clone(&self.state.lock().prices);
        let mut failed = None;
        for list in [PriceList::Shared, PriceList::BareMetal] {
            let Some(pricing) = pricing else { break };
            match pricing.get_products(region, list).await {
                Ok(listed) => prices.set_on_demand(listed.into_iter().map(|it| (it.instance_type, it.price))),
                Err(error) => failed = Some(self.failed(error)),
            }
        }
        match self.ec2.describe_spot_price_history(self.now()).await {
            Ok(listed) => {
                let mut by_type: BTreeMap<String, BTreeMap<String, PriceNanoUsdPerHour>> = BTreeMap::new();
                for SpotPrice { instance_type, zone, price } in listed {
                    by_type.entry(instance_type).or_default().insert(zone, price);
                }
                // An empty answer would take all of spot away.
                if !by_type.is_empty() {
                    prices.set_spot(by_type, UnlistedSpot::NotSold);
                }
            }
            Err(error) => failed = Some(self.failed(error)),
        }
        self.take_prices(prices);
        failed.map_or(Ok(()), Err)
    }

    fn take_prices(&self, prices: Prices) {
        let state = &mut *self.state.lock();
        if *state.prices != prices {
            state.prices = Arc::new(prices);
            state.of_region += 1;
            if let Some(region) = &mut state.region {
                region.prices = Arc::clone(&state.prices);
            }
        }
    }

    /// What is sold in the region, with a number that tells its states apart. EC2 is asked the first time; later
    /// [`Self::refresh_region`] does.
    pub(super) async fn region(&self) -> Result<(u64, Region), Error> {
        let known = || {
            let state = self.state.lock();
            state.region.clone().map(|region| (state.of_region, region))
        };
        if let Some(known) = known() {
            return Ok(known);
        }
        let _asking = self.asking.lock().await;
        if let Some(known) = known() {
            return Ok(known);
        }
        let failed = self.ask_region().await.err();
        let Some(known) = known() else {
            return Err(failed.unwrap_or_else(|| Error::Transient("EC2 told nothing of the region".to_owned())));
        };
        if let Some(error) = failed {
            tracing::warn!(%error, "EC2 does not tell its instance types, and the built-in ones stand for them");
        }
        Ok(known)
    }

    /// Asks EC2 what it sells, unless it has told all within `fresh`.
    pub(super) async fn refresh_region(&self, fresh: DurationMs) -> Result<(), Error> {
        let _asking = self.asking.lock().await;
        let told = self.state.lock().region_told;
        if told.is_some_and(|at| self.now().since(at) < fresh) {
            return Ok(());
        }
        self.ask_region().await
    }

    /// Asks EC2 which types there are, and where. What it does not tell now is as it was: nothing is known of zones the
    /// first time, and types are those built in.
    async fn ask_region(&self) -> Result<(), Error> {
        let offerings = self.ec2.describe_instance_type_offerings().await;
        let records = self.ec2.describe_instance_types().await;
        let now = self.now();
        let state = &mut *self.state.lock();
        let before = state.region.as_ref();
        let mut failed = None;
        let sold = match (offerings, before) {
            // An empty answer would take all away.
            (Ok(offerings), Some(before)) if offerings.is_empty() => Arc::clone(&before.sold),
            (Ok(offerings), _) => Arc::new(sold(offerings)),
            (Err(error), Some(before)) => {
                failed = Some(self.failed(error));
                Arc::clone(&before.sold)
            }
            (Err(error), None) => return Err(self.failed(error)),
        };
        let types_before = || before.map_or_else(built_in, |before| Arc::clone(&before.types));
        let types = match records {
            Ok(records) if records.is_empty() => types_before(),
            Ok(records) => {
                let (types, incomplete) = types(records);
                self.metrics.incomplete_types(incomplete.iter().map(|it| it.instance_type.as_str()));
                if !incomplete.is_empty() {
                    let records: Vec<_> = incomplete.iter().map(ToString::to_string).collect();
                    tracing::warn!(records = records.join(", "), "EC2's records of some instance types lack something");
                }
                Arc::new(types)
            }
            Err(error) => {
                failed = Some(self.failed(error));
                types_before()
            }
        };
        let region = Region { types, sold, prices: Arc::clone(&state.prices) };
        if before != Some(&region) {
            state.of_region += 1;
            state.region = Some(region);
        }
        match failed {
            Some(error) => Err(error),
            None => {
                state.region_told = Some(now);
                Ok(())
            }
        }
    }

    /// The id of a zone; empty while neither a subnet nor a node class has told it.
    pub(super) fn zone_id(&self, zone: &str) -> String {
        self.state.lock().zone_ids.get(zone).cloned().unwrap_or_default()
    }

    /// Takes in zones, by name and id.
    pub(super) fn take_zones(&self, zones: impl Iterator<Item = (String, String)>) {
        self.state.lock().zone_ids.extend(zones);
    }

    /// Takes in which shifts there are now.
    pub(super) fn take_zonal_shifts(&self, shifts: Vec<ZonalShift>) {
        self.state.lock().zonal_shifts = shifts;
    }

    /// The ids of the zones that traffic is shifted away from.
    pub(super) fn shifted_zones(&self) -> BTreeSet<String> {
        let now = self.now();
        let state = self.state.lock();
        let lasting = state.zonal_shifts.iter().filter(|shift| shift.ends_at.is_none_or(|ends_at| now < ends_at));
        lasting.map(|shift| shift.zone_id.clone()).collect()
    }

    /// Their names, as far as subnets and node classes have told them.
    pub(super) fn shifted_zone_names(&self) -> BTreeSet<String> {
        let ids = self.shifted_zones();
        let state = self.state.lock();
        state.zone_ids.iter().filter(|(_, id)| ids.contains(*id)).map(|(name, _)| name.clone()).collect()
    }

    /// What is known of a type, whether it is sold here or not.
    pub(super) fn record(&self, instance_type: &str) -> Option<InstanceTypeInfo> {
        let state = self.state.lock();
        let told = state.region.as_ref().and_then(|region| region.types.get(instance_type));
        told.or_else(|| catalogue::instance_types().get(instance_type)).cloned()
    }

    /// What could not be had, with a number that tells its states apart.
    pub(super) fn ledger(&self) -> (Ledger, u64) {
        let now = self.now();
        let state = &mut *self.state.lock();
        let generation = state.ledger.generation(now);
        (state.ledger.clone(), generation)
    }

    pub(super) fn forget_stock_outs(&self) {
        self.state.lock().ledger.clear();
    }

    /// Notes that spot machines of a type are taken back in a zone.
    pub(super) fn spot_is_out(&self, instance_type: InstanceTypeName, zone: String) {
        let capacity_type = CapacityType::Spot;
        let offering = OfferingKey { instance_type, zone, capacity_type, reservation_id: None };
        self.state.lock().ledger.out_of_stock(Subject::Offering(offering), self.now());
    }

    /// Notes that machines of a reservation are taken back.
    pub(super) fn reservation_is_out(&self, id: String) {
        let left = Left { machines: 0, at: self.now() };
        self.state.lock().reservations.insert(id, left);
    }

    /// Reads what was written down before a restart, once.
    pub(super) async fn restore(&self) -> Result<(), Failure> {
        if self.state.lock().is_restored {
            return Ok(());
        }
        let document = self.objects.read(STOCK_OUTS).await?;
        let now = self.now();
        let state = &mut *self.state.lock();
        state.is_restored = true;
        // One that cannot be read is written over: at worst a launch is tried in vain.
        let entries = document.and_then(|it| serde_json::from_str::<Vec<Entry>>(&it.text).ok());
        state.ledger.restore(entries.unwrap_or_default(), now);
        Ok(())
    }

    /// Writes down what could not be had, if that has changed.
    pub(super) async fn save(&self) -> Result<(), Failure> {
        let now = self.now();
        let (generation, entries) = {
            let state = &mut *self.state.lock();
            let generation = state.ledger.generation(now);
            if state.written == Some(generation) {
                return Ok(());
            }
            (generation, state.ledger.entries(now))
        };
        let text = serde_json::to_string(&entries).map_err(|error| Failure::Other(error.to_string()))?;
        let before = self.objects.read(STOCK_OUTS).await?;
        let expected = before.as_ref().map_or(Expected::Absent, |before| Expected::Version(&before.version));
        self.objects.write(STOCK_OUTS, &text, expected).await?;
        self.state.lock().written = Some(generation);
        Ok(())
    }

    /// How many machines are left of each reservation. One that EC2 does not know has none.
    pub(super) async fn reservations(&self, of_class: &[CapacityReservation]) -> Result<BTreeMap<String, u32>, Error> {
        let known = |now: Timestamp| {
            let state = self.state.lock();
            let left = |it: &CapacityReservation| {
                let left = state.reservations.get(&it.id).filter(|left| now.since(left.at) < FRESH)?;
                Some((it.id.clone(), left.machines))
            };
            of_class.iter().map(left).collect::<Option<BTreeMap<_, _>>>()
        };
        if let Some(known) = known(self.now()) {
            return Ok(known);
        }
        let _asking = self.asking.lock().await;
        if let Some(known) = known(self.now()) {
            return Ok(known);
        }
        let now = self.now();
        for reservation in of_class {
            let query = Query { ids: vec![reservation.id.clone()], filters: Vec::new() };
            let found = match self.ec2.describe_capacity_reservations(&query).await {
                Ok(found) => found,
                Err(error) if error.kind == Kind::NotFound => Vec::new(),
                Err(error) => return Err(self.failed(error)),
            };
            let machines = found.first().map_or(0, |it| it.remaining);
            self.state.lock().reservations.insert(reservation.id.clone(), Left { machines, at: now });
        }
        Ok(known(now).unwrap_or_default())
    }

    /// The placement group of a query.
    pub(super) async fn placement_group(&self, query: &Query) -> Result<Option<PlacementGroup>, Error> {
        let now = self.now();
        let known = self.state.lock().placement_groups.get(query).filter(|(at, _)| now.since(*at) < FRESH).cloned();
        if let Some((_, group)) = known {
            return Ok(group);
        }
        let found = match self.ec2.describe_placement_groups(query).await {
            Ok(found) => found.into_iter().next(),
            Err(error) if error.kind == Kind::NotFound => None,
            Err(error) => return Err(self.failed(error)),
        };
        let groups = &mut self.state.lock().placement_groups;
        groups.retain(|_, (at, _)| now.since(*at) < FRESH);
        groups.insert(query.clone(), (now, found.clone()));
        Ok(found)
    }

    /// The subnet to use in each zone.
    pub(super) async fn subnets(&self, of_class: &[Subnet]) -> Result<BTreeMap<String, String>, Error> {
        let stale = self.state.lock().subnets.stale(of_class, self.now());
        if !stale.is_empty() {
            let _asking = self.asking.lock().await;
            let stale = self.state.lock().subnets.stale(of_class, self.now());
            if !stale.is_empty() {
                let filter = crate::service::ec2::Filter { name: "subnet-id".to_owned(), values: stale };
                let query = Query { ids: Vec::new(), filters: vec![filter] };
                let found = self.ec2.describe_subnets(&query).await.map_err(|error| self.failed(error))?;
                self.state.lock().subnets.learn(&found, self.now());
            }
        }
        let now = self.now();
        let state = &mut *self.state.lock();
        let zones = of_class.iter().filter_map(|subnet| Some((subnet.zone.clone(), subnet.zone_id.clone()?)));
        state.zone_ids.extend(zones);
        Ok(state.subnets.choose(of_class, |id| state.ledger.is_subnet_out(id, now)))
    }
}

/// Each subnet of a request, and how many addresses a machine of it takes there at the least: one for each pod.
fn addresses(batch: &Batch) -> BTreeMap<&str, u32> {
    let mut least: BTreeMap<&str, u32> = BTreeMap::new();
    for config in &batch.request.configs {
        let pods = batch.templates.get(&config.launch_template).map_or(1, |key| key.max_pods);
        for subnet in config.overrides.iter().filter_map(|it| it.subnet_id.as_deref()) {
            least.entry(subnet).and_modify(|other| *other = pods.min(*other)).or_insert(pods);
        }
    }
    least
}

impl Observer for RegionMarket {
    fn asked(&self, batch: &Batch) {
        let count = u32::try_from(batch.claims.len()).unwrap_or(u32::MAX);
        let subnets = &mut self.state.lock().subnets;
        for (subnet, each) in addresses(batch) {
            subnets.take(subnet, each.saturating_mul(count));
        }
    }

    fn answered(&self, batch: &Batch, answer: Option<&FleetAnswer>) {
        let now = self.now();
        let state = &mut *self.state.lock();
        let asked = u32::try_from(batch.claims.len()).unwrap_or(u32::MAX);
        for (subnet, each) in addresses(batch) {
            let kinds = answer.into_iter().flat_map(|answer| &answer.machines);
            let used: usize = kinds.filter(|it| it.subnet_id.as_deref() == Some(subnet)).map(|it| it.ids.len()).sum();
            let unused = asked.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX));
            state.subnets.give_back(subnet, each.saturating_mul(unused));
        }
        if let Some(answer) = answer {
            state.learn(batch, answer, now);
            for error in &answer.errors {
                let zone = error.zone.as_deref().unwrap_or_default();
                let of_error = error.instance_type.as_deref().and_then(|name| offering(batch, name, zone));
                self.metrics.launch_failed(&LaunchFailure {
                    zone,
                    zone_id: state.zone_ids.get(zone).map_or("", String::as_str),
                    capacity_type: of_error.map_or("", |it| it.capacity_type.as_str()),
                    reason: &error.code,
                });
            }
        }
    }

    fn batched(&self, batches: &[Batch], waited: Duration) {
        self.metrics.batched(batches.iter().map(|batch| batch.claims.len()), waited);
    }
}

impl State {
    /// What an answer says of what can be had.
    fn learn(&mut self, batch: &Batch, answer: &FleetAnswer, now: Timestamp) {
        let found = evidence(&answer.errors, &batch.templates);
        let served: BTreeSet<_> = served(batch, answer).collect();
        for offering in passed_over(batch, &served) {
            if !found.offerings.contains(&offering) {
                self.ledger.passed_over(offering, now);
            }
        }
        for offering in served {
            if let Some(left) = offering.reservation_id.as_ref().and_then(|id| self.reservations.get_mut(id)) {
                left.machines = left.machines.saturating_sub(1);
            }
            // One that gave some, and then had no more, is out.
            if !found.offerings.contains(&offering) {
                self.ledger.served(&Subject::Offering(offering), now);
            }
        }
        for id in found.full_reservations {
            self.reservations.insert(id, Left { machines: 0, at: now });
        }
        for subnet in found.subnets {
            self.subnets.exhausted(&subnet);
            self.ledger.out_of_stock(Subject::Subnet(subnet), now);
        }
        for offering in found.offerings {
            self.ledger.out_of_stock(Subject::Offering(offering), now);
        }
        if found.spot_role_is_missing {
            self.ledger.out_of_stock(Subject::Spot, now);
        }
    }
}

fn offering(batch: &Batch, instance_type: &str, zone: &str) -> Option<OfferingKey> {
    let market = &batch.template_of(instance_type, zone)?.market;
    Some(OfferingKey {
        instance_type: instance_type.into(),
        zone: zone.to_owned(),
        capacity_type: market.capacity_type(),
        reservation_id: market.reservation().map(str::to_owned),
    })
}

/// The offerings that machines came from.
fn served<'a>(batch: &'a Batch, answer: &'a FleetAnswer) -> impl Iterator<Item = OfferingKey> + 'a {
    answer.machines.iter().filter_map(|it| offering(batch, &it.instance_type, &it.zone))
}

/// Where EC2 takes the cheapest that it has: those that are cheaper than all that it took. Spot is chosen by more than
/// the price, so nothing is said of it.
fn passed_over(batch: &Batch, served: &BTreeSet<OfferingKey>) -> Vec<OfferingKey> {
    if !matches!(batch.request.purchase, Purchase::OnDemand(_)) {
        return Vec::new();
    }
    let overrides = || batch.request.configs.iter().flat_map(|config| &config.overrides);
    let priced =
        |it: &crate::launch::fleet::Override| Some((it.priority, offering(batch, &it.instance_type, &it.zone)?));
    let all: Vec<_> = overrides().filter_map(priced).collect();
    let Some(least) = all.iter().filter(|(_, it)| served.contains(it)).map(|(price, _)| *price).min() else {
        return Vec::new();
    };
    all.into_iter().filter(|(price, it)| *price < least && it.reservation_id.is_none()).map(|(_, it)| it).collect()
}
