//! Simple selectors as programs over slots: what most selectors read of a device (driver, attributes, capacity) is
//! numbered once for all selectors, found once for each device, and compared without walking maps.
//!
//! Lowered are: reads of a named attribute or capacity, also optional ones with `orValue`; `has` and `in` of them;
//! comparisons and calls with up to two arguments on them, like `compareTo(quantity("4Gi"))`, whose constant parts are
//! evaluated once; membership in a list of constants; `!`, `&&`, `||`. Everything else keeps the general evaluator.
//!
//! Invariant: a program's verdict, error and cost are those of the general evaluator; a property test compares them.

use std::sync::Arc;

use model::collections::NameMap;
use model::{IdVec, define_id};

use super::cost::CallCost;
use super::device::{attribute, reads_lists};
use super::error::EvalError;
use super::eval::{Outcome, apply, equality, evaluate, is_final, member};
use super::functions::amount::Amount;
use super::plan::{Attribute, Base, Callee, Key, Plan, Qualifier};
use super::selector::{Evaluation, MAX_COST, verdict};
use super::value::Value;
use dra_types::{Compat, Device, DriverName, QualifiedName};

define_id! {
    /// Something that a selector reads of devices.
    pub struct SlotId;
}

/// Plans deeper than this keep the general evaluator, which cares for the stack.
const MAX_DEPTH: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SlotKey {
    Driver,
    AllowMultipleAllocations,
    /// By the whole name and its parts.
    Attribute(Name),
    Capacity(Name),
    /// Whether the device has attributes in a domain.
    AttributeDomain(Arc<str>),
    CapacityDomain(Arc<str>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Name {
    qualified: Arc<str>,
    domain: Arc<str>,
    id: Arc<str>,
}

/// What the programs of an inventory read, numbered.
#[derive(Debug, Default)]
pub struct SlotTable {
    ids: NameMap<SlotKey, SlotId>,
    keys: IdVec<SlotId, SlotKey>,
}

/// What a device has in each slot of a table.
#[derive(Debug)]
pub struct SlotRow {
    /// Or why no selector can look at the device.
    values: Result<IdVec<SlotId, Option<Value>>, EvalError>,
}

/// A simple selector.
#[derive(Debug)]
pub struct SlotProgram {
    root: Node,
}

#[derive(Debug)]
enum Node {
    /// Evaluated when it was lowered.
    Known {
        outcome: Outcome,
        cost: u64,
    },
    Read {
        slot: SlotId,
        id: Arc<str>,
        cost: u64,
    },
    /// Gives an optional value.
    ReadOptional {
        slot: SlotId,
        id: Arc<str>,
    },
    /// `has`, `in`.
    Present {
        slot: SlotId,
        cost: u64,
    },
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Equals {
        left: Box<Node>,
        right: Box<Node>,
        negated: bool,
    },
    Member {
        value: Box<Node>,
        set: Arc<[Value]>,
    },
    OptionalOr {
        left: Box<Node>,
        right: Box<Node>,
        unwrap: bool,
    },
    Call {
        callee: Arc<Callee>,
        first: Box<Node>,
        second: Option<Box<Node>>,
    },
}

impl SlotTable {
    fn slot(&mut self, key: SlotKey) -> SlotId {
        if let Some(slot) = self.ids.get(&key) {
            return *slot;
        }
        let slot = self.keys.push(key.clone());
        self.ids.insert(key, slot);
        slot
    }

    /// What a device has in each slot, as a release and its gates read it.
    pub fn row(&self, driver: &DriverName, device: &Device, compat: &Compat) -> SlotRow {
        let lists = reads_lists(compat);
        // A single attribute that cannot be read fails every selector.
        for (name, value) in &device.attributes {
            if let Err(error) = attribute(name, value, lists) {
                return SlotRow { values: Err(error) };
            }
        }
        let read = |key: &SlotKey| match key {
            SlotKey::Driver => Some(Value::string(driver.as_str())),
            SlotKey::AllowMultipleAllocations => Some(Value::Bool(device.allow_multiple_allocations)),
            SlotKey::Attribute(name) => {
                let (name, value) = find(name, driver, |name| device.attributes.get_key_value(name))?;
                attribute(name, value, lists).ok()
            }
            SlotKey::Capacity(name) => find(name, driver, |name| device.capacity.get_key_value(name))
                .map(|(_, capacity)| Value::Quantity(Amount::published(capacity.value))),
            SlotKey::AttributeDomain(domain) => {
                device.attributes.keys().any(|name| name.resolve(driver).0 == &**domain).then_some(Value::Bool(true))
            }
            SlotKey::CapacityDomain(domain) => {
                device.capacity.keys().any(|name| name.resolve(driver).0 == &**domain).then_some(Value::Bool(true))
            }
        };
        SlotRow { values: Ok(self.keys.iter().map(read).collect()) }
    }
}

/// What is filed under a domain and id: under the whole name, or under the bare id if the domain is the driver's. If it
/// is under both, the name that sorts last counts, as in the maps that expressions see.
fn find<'d, T: 'd>(
    name: &Name,
    driver: &DriverName,
    get: impl Fn(&str) -> Option<(&'d QualifiedName, &'d T)>,
) -> Option<(&'d QualifiedName, &'d T)> {
    let is_it = |(found, _): &(&QualifiedName, &T)| found.resolve(driver) == (&*name.domain, &*name.id);
    let bare = (*driver == *name.domain).then(|| get(&name.id)).flatten().filter(is_it);
    let whole = get(&name.qualified).filter(is_it);
    match (whole, bare) {
        (Some(whole), Some(bare)) => Some(if whole.0 > bare.0 { whole } else { bare }),
        (whole, bare) => whole.or(bare),
    }
}

impl SlotProgram {
    /// The program of a plan, if it is a simple one.
    pub(crate) fn lower(plan: &Plan, table: &mut SlotTable) -> Option<Self> {
        Some(Self { root: lower(plan, table, 0)? })
    }

    /// The verdict on a device. None if the cost is beyond the limit: then the general evaluator is to say where it
    /// stops.
    pub fn evaluate(&self, row: &SlotRow) -> Option<Evaluation> {
        let values = match &row.values {
            Ok(values) => values,
            Err(error) => return Some(Evaluation { outcome: Err(error.clone()), cost: 0 }),
        };
        let mut run = Run { values, cost: 0, crashed_at: None };
        let outcome = run.node(&self.root);
        let (outcome, cost) = match run.crashed_at {
            Some(cost) => (Err(EvalError::Internal), cost),
            None => (verdict(outcome), run.cost),
        };
        (cost <= MAX_COST).then_some(Evaluation { outcome, cost })
    }
}

fn lower(plan: &Plan, table: &mut SlotTable, depth: usize) -> Option<Node> {
    if depth > MAX_DEPTH {
        return None;
    }
    let mut boxed = |plan: &Plan| lower(plan, table, depth + 1).map(Box::new);
    Some(match plan {
        Plan::Constant(value) => Node::Known { outcome: Ok(value.clone()), cost: 0 },
        Plan::Attribute(attribute) => read(attribute, table)?,
        Plan::Presence(attribute) => match path(attribute)? {
            Path::Entry { map, domain, id, optional: false } => {
                Node::Present { slot: table.slot(map.entry(domain, id)), cost: 3 }
            }
            Path::Entry { .. } | Path::Field(_) | Path::Domain { .. } | Path::Map(_) => return None,
        },
        Plan::And(left, right) => Node::And(boxed(left)?, boxed(right)?),
        Plan::Or(left, right) => Node::Or(boxed(left)?, boxed(right)?),
        Plan::Equals { left, right, negated } => {
            Node::Equals { left: boxed(left)?, right: boxed(right)?, negated: *negated }
        }
        Plan::Member { value, set } => Node::Member { value: boxed(value)?, set: Arc::clone(set) },
        Plan::OptionalOr { left, right, unwrap } => {
            Node::OptionalOr { left: boxed(left)?, right: boxed(right)?, unwrap: *unwrap }
        }
        Plan::Call(call) => {
            if let Some(present) = contained(&call.callee, &call.args, table) {
                return Some(present);
            }
            // Its accounting may end the evaluation.
            if matches!(call.callee.cost, CallCost::Pairs(_)) {
                return None;
            }
            let (first, second) = match call.args.as_slice() {
                [first] => (lower(first, table, depth + 1)?, None),
                [first, second] => (lower(first, table, depth + 1)?, Some(lower(second, table, depth + 1)?)),
                _ => return None,
            };
            let node =
                Node::Call { callee: Arc::clone(&call.callee), first: Box::new(first), second: second.map(Box::new) };
            fold(node, plan)
        }
        Plan::NotStrictlyFalse(_) | Plan::List(_) | Plan::Map(_) | Plan::Fold(_) => return None,
    })
}

/// A call on known values is known.
fn fold(node: Node, plan: &Plan) -> Node {
    let is_known = |node: &Node| matches!(node, Node::Known { .. });
    match &node {
        Node::Call { first, second, .. } if is_known(first) && second.as_deref().is_none_or(is_known) => {
            // Nothing in it reads the device.
            let (outcome, cost) = evaluate(plan, &Value::Null, MAX_COST);
            if outcome.as_ref().is_err_and(is_final) { node } else { Node::Known { outcome, cost } }
        }
        _ => node,
    }
}

/// `"id" in device.attributes["domain"]`, `"domain" in device.attributes`.
fn contained(callee: &Callee, args: &[Plan], table: &mut SlotTable) -> Option<Node> {
    let [Plan::Constant(Value::String(key)), Plan::Attribute(attribute)] = args else { return None };
    let [overload] = callee.overloads.as_slice() else { return None };
    if overload.id != "in_map" {
        return None;
    }
    Some(match path(attribute)? {
        Path::Domain { map, domain } => Node::Present { slot: table.slot(map.entry(domain, key)), cost: 4 },
        Path::Map(map) => Node::Present { slot: table.slot(map.domain(key)), cost: 3 },
        Path::Entry { .. } | Path::Field(_) => return None,
    })
}

fn read(attribute: &Attribute, table: &mut SlotTable) -> Option<Node> {
    Some(match path(attribute)? {
        Path::Field(key) => Node::Read { slot: table.slot(key), id: "".into(), cost: 2 },
        Path::Entry { map, domain, id, optional: false } => {
            Node::Read { slot: table.slot(map.entry(domain, id)), id: Arc::clone(id), cost: 4 }
        }
        Path::Entry { map, domain, id, optional: true } => {
            Node::ReadOptional { slot: table.slot(map.entry(domain, id)), id: Arc::clone(id) }
        }
        Path::Domain { .. } | Path::Map(_) => return None,
    })
}

#[derive(Clone, Copy)]
enum DeviceMap {
    Attributes,
    Capacity,
}

impl DeviceMap {
    fn entry(self, domain: &Arc<str>, id: &Arc<str>) -> SlotKey {
        let qualified = format!("{domain}/{id}").into();
        let name = Name { qualified, domain: Arc::clone(domain), id: Arc::clone(id) };
        match self {
            Self::Attributes => SlotKey::Attribute(name),
            Self::Capacity => SlotKey::Capacity(name),
        }
    }

    fn domain(self, domain: &Arc<str>) -> SlotKey {
        match self {
            Self::Attributes => SlotKey::AttributeDomain(Arc::clone(domain)),
            Self::Capacity => SlotKey::CapacityDomain(Arc::clone(domain)),
        }
    }
}

/// A way into the device.
enum Path<'p> {
    /// `device.driver`
    Field(SlotKey),
    /// `device.attributes`
    Map(DeviceMap),
    /// `device.attributes["domain"]`
    Domain { map: DeviceMap, domain: &'p Arc<str> },
    /// `device.attributes["domain"].id`, or `.?id`
    Entry { map: DeviceMap, domain: &'p Arc<str>, id: &'p Arc<str>, optional: bool },
}

fn path(attribute: &Attribute) -> Option<Path<'_>> {
    if !matches!(attribute.base, Base::Device) {
        return None;
    }
    let (first, rest) = attribute.qualifiers.split_first()?;
    let map = match &**constant(first).filter(|_| !first.optional)? {
        "driver" if rest.is_empty() => return Some(Path::Field(SlotKey::Driver)),
        "allowMultipleAllocations" if rest.is_empty() => return Some(Path::Field(SlotKey::AllowMultipleAllocations)),
        "attributes" => DeviceMap::Attributes,
        "capacity" => DeviceMap::Capacity,
        _ => return None,
    };
    Some(match rest {
        [] => Path::Map(map),
        [domain] if !domain.optional => Path::Domain { map, domain: constant(domain)? },
        [domain, id] if !domain.optional => {
            Path::Entry { map, domain: constant(domain)?, id: constant(id)?, optional: id.optional }
        }
        _ => return None,
    })
}

fn constant(qualifier: &Qualifier) -> Option<&Arc<str>> {
    match &qualifier.key {
        Key::Constant(Value::String(text)) => Some(text),
        Key::Constant(_) | Key::Dynamic(_) => None,
    }
}

struct Run<'r> {
    values: &'r IdVec<SlotId, Option<Value>>,
    cost: u64,
    /// The cost when the evaluation ended for good; what ran after that does not count.
    crashed_at: Option<u64>,
}

impl Run<'_> {
    fn charge(&mut self, units: u64) {
        self.cost = self.cost.saturating_add(units);
    }

    fn node(&mut self, node: &Node) -> Outcome {
        match node {
            Node::Known { outcome, cost } => {
                self.charge(*cost);
                outcome.clone()
            }
            Node::Read { slot, id, cost } => {
                self.charge(*cost);
                let value = self.values[*slot].clone().ok_or_else(|| EvalError::NoSuchKey(Arc::clone(id)))?;
                value.known(|| Arc::clone(id))
            }
            Node::ReadOptional { slot, id } => {
                let value = self.values[*slot].clone();
                // What is not there is not counted.
                self.charge(if value.is_some() { 4 } else { 3 });
                value.map_or(Ok(Value::Optional(None)), |value| value.known(|| Arc::clone(id)).map(Value::some))
            }
            Node::Present { slot, cost } => {
                self.charge(*cost);
                Ok(Value::Bool(self.values[*slot].is_some()))
            }
            Node::And(left, right) => self.logical(left, right, false),
            Node::Or(left, right) => self.logical(left, right, true),
            Node::Equals { left, right, negated } => {
                let left = self.node(left);
                let right = self.node(right);
                let (units, outcome) = equality(&left, &right, *negated);
                self.charge(units);
                outcome
            }
            Node::Member { value, set } => {
                let value = self.node(value)?;
                let outcome = member(&value, set);
                if outcome.is_err() {
                    self.crashed_at = self.crashed_at.or(Some(self.cost));
                }
                outcome
            }
            Node::OptionalOr { left, right, unwrap } => match self.node(left)? {
                Value::Optional(Some(value)) if *unwrap => Ok((*value).clone()),
                Value::Optional(None) => self.node(right),
                value @ Value::Optional(_) => Ok(value),
                _ => Err(EvalError::no_overload(if *unwrap { "orValue" } else { "or" })),
            },
            Node::Call { callee, first, second } => {
                let first = self.node(first);
                let (units, outcome) = match second {
                    None => apply(callee, &[first]),
                    Some(_) if callee.stops_at_error && first.is_err() => return first,
                    Some(second) => apply(callee, &[first, self.node(second)]),
                };
                self.charge(units);
                outcome
            }
        }
    }

    fn logical(&mut self, left: &Node, right: &Node, decides: bool) -> Outcome {
        let mut failed = None;
        for term in [left, right] {
            match self.node(term) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => {
                    failed = failed.or_else(|| Some(EvalError::no_overload(if decides { "_||_" } else { "_&&_" })))
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decides)), Err)
    }
}
