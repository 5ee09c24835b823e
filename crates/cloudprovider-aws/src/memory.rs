//! EC2 and the services beside it, in memory: what tests and simulations launch machines in.
//!
//! It misbehaves as EC2 does. Lists lag behind launches and removals, tags come late, offerings run out and come back,
//! a fleet may have fewer machines than were asked for, calls are throttled by EC2's buckets, reservations are used up,
//! spot machines are taken back, and machines fail their status checks. A client token gives the answer that it gave
//! the first time. How long something lags, and which calls fail, is up to a [`Faults`]; without one nothing lags and
//! nothing fails. Time is that of the clock which the cloud is made with.
//!
//! Each call hands the processor back before and after it takes effect, so that a caller can be cut off in between.
//!
//! Left out: what only the console shows, pages of answers, and filters that we do not use, which are refused by name.

mod buckets;
mod calls;
mod content;
mod controls;
mod faults;
mod filters;
mod fleet;
mod fuse;
mod machines;
#[cfg(feature = "provider")]
mod objects;
mod others;
#[cfg(feature = "stand-in")]
pub mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{DurationMs, Timestamp};

use self::buckets::Buckets;
use self::content::Content;
use self::fleet::{Fleet, Pool};
use self::machines::Record;
use crate::instance_types::info::InstanceTypeInfo;
use crate::node_class::spec::Tags;
use crate::pricing::Prices;
use crate::service::ec2::{
    CapacityReservation, ExistingTemplate, Image, PlacementGroup, SecurityGroup, Subnet, TypeInZone,
};
use crate::service::{ClusterDescription, Error, InstanceProfile, Kind, Message, ZonalShift};

pub use self::controls::{REGION, VirtualClock, arn_of, sample};
pub use self::faults::{CallFault, Faults, Lag};
pub use self::fuse::Fuse;
#[cfg(feature = "provider")]
pub use self::objects::Objects;

/// Tells what time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The cloud. Clones are the same one.
#[derive(Clone)]
pub struct Cloud {
    inner: Arc<Inner>,
    fuse: Fuse,
}

struct Inner {
    clock: Clock,
    state: Mutex<State>,
}

impl std::fmt::Debug for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_struct("Cloud").field("machines", &state.machines.len()).field("calls", &state.calls).finish()
    }
}

/// Something with tags.
#[derive(Debug, Clone)]
struct Tagged<T> {
    thing: T,
    tags: Tags,
}

/// A launch template, and from when on it is found.
#[derive(Debug, Clone)]
struct Template {
    existing: ExistingTemplate,
    content: Content,
    shown_from: Timestamp,
}

#[derive(Default)]
struct State {
    subnets: BTreeMap<String, Tagged<Subnet>>,
    security_groups: BTreeMap<String, Tagged<SecurityGroup>>,
    images: BTreeMap<String, Tagged<Image>>,
    reservations: BTreeMap<String, Tagged<CapacityReservation>>,
    placement_groups: BTreeMap<String, Tagged<PlacementGroup>>,
    /// By name.
    templates: BTreeMap<String, Template>,
    machines: BTreeMap<String, Record>,
    /// By client token.
    fleets: BTreeMap<String, Fleet>,
    /// How many machines are left of what is limited.
    stock: BTreeMap<Pool, u32>,
    /// What stock becomes, and when.
    stock_to_come: Vec<(Timestamp, Pool, Option<u32>)>,
    types_in_zones: Vec<TypeInZone>,
    /// Records that are not the built-in ones, by the type's name.
    records: BTreeMap<String, InstanceTypeInfo>,
    prices: Prices,
    spot_role_is_missing: bool,
    /// Whether requests for fleets are answered with neither machines nor errors.
    fleets_are_empty: bool,
    /// Calls that fail, and how, until that is taken back.
    refused_calls: BTreeMap<String, Error>,
    /// How dry runs end: of a `fleet`, and of an `instance`.
    dry_runs: BTreeMap<&'static str, Error>,
    profiles: BTreeMap<String, InstanceProfile>,
    roles: BTreeSet<String>,
    parameters: BTreeMap<String, String>,
    clusters: BTreeMap<String, ClusterDescription>,
    messages: VecDeque<Message>,
    /// None while the cluster is not registered for zonal shifts.
    zonal_shifts: Option<Vec<ZonalShift>>,
    account: String,
    buckets: Buckets,
    faults: Option<Box<dyn Faults>>,
    /// How often each call was made.
    calls: BTreeMap<&'static str, u64>,
    made: u64,
}

impl State {
    /// A number that was not used before.
    fn next_number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    fn lag(&mut self, of: Lag) -> DurationMs {
        self.faults.as_mut().map_or(DurationMs::ZERO, |faults| faults.lag(of))
    }

    /// What goes wrong with a call, beside what it does.
    fn fault(&mut self, call: &'static str, cost: u32, now: Timestamp) -> Result<CallFault, Error> {
        *self.calls.entry(call).or_default() += 1;
        if let Some(error) = self.refused_calls.get(call) {
            return Err(error.clone());
        }
        if !self.buckets.take(call, cost, now) {
            return Err(throttled(call));
        }
        Ok(self.faults.as_mut().map_or(CallFault::None, |faults| faults.of_call(call)))
    }

    /// Lets stock become what it was to become by now.
    fn restock(&mut self, now: Timestamp) {
        let (due, later) = std::mem::take(&mut self.stock_to_come).into_iter().partition(|(at, ..)| *at <= now);
        self.stock_to_come = later;
        let due: Vec<(Timestamp, Pool, Option<u32>)> = due;
        for (_, pool, left) in due {
            self.set_stock(pool, left);
        }
    }

    fn set_stock(&mut self, pool: Pool, left: Option<u32>) {
        match left {
            Some(left) => drop(self.stock.insert(pool, left)),
            None => drop(self.stock.remove(&pool)),
        }
    }
}

impl Cloud {
    /// A cloud with nothing in it, by that clock.
    pub fn new(clock: Clock) -> Self {
        let state = State { prices: Prices::built_in(), account: "123456789012".to_owned(), ..State::default() };
        Self { inner: Arc::new(Inner { clock, state: Mutex::new(state) }), fuse: Fuse::default() }
    }

    /// The cloud as a caller sees it that ends when the fuse blows.
    #[must_use]
    pub fn with_fuse(&self, fuse: Fuse) -> Self {
        Self { inner: Arc::clone(&self.inner), fuse }
    }

    /// What time it is there.
    pub fn now(&self) -> Timestamp {
        (self.inner.clock)()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call that takes so much of the resources which EC2 counts.
    async fn call<T>(
        &self,
        call: &'static str,
        cost: usize,
        act: impl FnOnce(&mut State, Timestamp) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // The request is on its way.
        self.fuse.step().await;
        let answer = self.act(call, u32::try_from(cost).unwrap_or(u32::MAX), act);
        // So is the answer.
        self.fuse.step().await;
        answer
    }

    fn act<T>(
        &self,
        call: &'static str,
        cost: u32,
        act: impl FnOnce(&mut State, Timestamp) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let now = self.now();
        let state = &mut *self.state();
        state.restock(now);
        match state.fault(call, cost, now)? {
            CallFault::None => act(state, now),
            CallFault::Throttled => Err(throttled(call)),
            CallFault::Failed => Err(server_fault(call)),
            CallFault::AnswerLost => act(state, now).and_then(|_| Err(server_fault(call))),
        }
    }
}

fn error(call: &'static str, code: &str, message: impl Into<String>) -> Error {
    Error {
        call,
        kind: crate::service::error::classify(Some(code), Some(400)),
        code: Some(code.to_owned()),
        message: message.into(),
    }
}

fn throttled(call: &'static str) -> Error {
    error(call, "RequestLimitExceeded", "Request limit exceeded.")
}

fn server_fault(call: &'static str) -> Error {
    Error { call, kind: Kind::ServerFault, code: None, message: "no answer".to_owned() }
}

#[cfg(test)]
mod tests;
