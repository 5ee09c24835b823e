//! A checked tree made ready to run.
//!
//! The shape is that of cel-go's plan, because run-time cost is counted on it: chains of selections and indexes become
//! one [`Attribute`] with qualifiers, lists of constants and conversions of constants become constants, membership in a
//! list of constants costs nothing. Names of variables become positions in a stack.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::regex::Regex;

use super::ast::{Comprehension, Expr, ExprKind, Literal, op};
use super::checker::Checked;
use super::cost::CallCost;
use super::environment::Purpose;
use super::error::{CompileErrorKind, ErrorAt, EvalError};
use super::functions::conversions::named_type;
use super::functions::{Context, format, regex};
use super::library::{Libraries, Overload};
use super::types::Type;
use super::value::{Map, Value};

#[derive(Debug)]
pub(crate) enum Plan {
    Constant(Value),
    Attribute(Box<Attribute>),
    /// `has(…)`: the last qualifier only tests.
    Presence(Box<Attribute>),
    And(Box<Plan>, Box<Plan>),
    Or(Box<Plan>, Box<Plan>),
    NotStrictlyFalse(Box<Plan>),
    Equals {
        left: Box<Plan>,
        right: Box<Plan>,
        negated: bool,
    },
    /// `x in [constants]`
    Member {
        value: Box<Plan>,
        set: Arc<[Value]>,
    },
    OptionalOr {
        left: Box<Plan>,
        right: Box<Plan>,
        unwrap: bool,
    },
    Call(Box<Call>),
    List(Vec<(Plan, bool)>),
    Map(Vec<(Plan, Plan, bool)>),
    Fold(Box<Fold>),
}

/// A value and the way into it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) qualifiers: Vec<Qualifier>,
}

#[derive(Debug)]
pub(crate) enum Base {
    Device,
    /// `.device` where a variable of a macro has that name: upstream counts nothing for the way into it.
    HiddenDevice,
    /// A variable, by its position in the stack.
    Local(usize),
    Relative(Plan),
    Conditional {
        condition: Plan,
        then: Box<Attribute>,
        otherwise: Box<Attribute>,
    },
}

#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) key: Key,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) enum Key {
    Constant(Value),
    Dynamic(Arc<Attribute>),
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) callee: Arc<Callee>,
    pub(crate) args: Vec<Plan>,
}

/// What is called.
#[derive(Debug)]
pub(crate) struct Callee {
    pub(crate) function: Arc<str>,
    /// One if the types left no choice, else all that have the number of arguments.
    pub(crate) overloads: Vec<&'static Overload>,
    pub(crate) cost: CallCost,
    /// The pattern of a regular expression that is a literal.
    pub(crate) regex: Option<Regex>,
    /// Whether arguments behind one that failed are left alone. Upstream does so where it dispatches dynamically or
    /// over more than two arguments, and then counts nothing for the call.
    pub(crate) stops_at_error: bool,
}

#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Plan,
    /// Whether keys (or positions) and values are both wanted.
    pub(crate) two: bool,
    /// Where the accumulator is; the one or two variables follow.
    pub(crate) base: usize,
    pub(crate) init: Plan,
    pub(crate) condition: Plan,
    pub(crate) step: Plan,
    pub(crate) result: Plan,
}

/// Functions that are evaluated while compiling if their argument is constant.
const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// Functions with several overloads and one implementation for all, which looks at all its arguments.
const DISPATCHED_BY_OPERAND: [&str; 14] = [
    op::ADD,
    op::SUBTRACT,
    op::MULTIPLY,
    op::DIVIDE,
    op::MODULO,
    op::NEGATE,
    op::LESS,
    op::LESS_EQUALS,
    op::GREATER,
    op::GREATER_EQUALS,
    op::IN,
    op::NOT,
    "size",
    "matches",
];

struct Planner<'a> {
    checked: &'a Checked,
    scopes: Vec<(Arc<str>, usize)>,
    depth: usize,
}

type Planned<T> = Result<T, ErrorAt>;

/// Makes a plan.
pub(crate) fn plan(checked: &Checked) -> Planned<Plan> {
    Planner { checked, scopes: Vec::new(), depth: 0 }.plan(&checked.expr)
}

impl Planner<'_> {
    fn error(&self, node: &Expr, reason: String) -> ErrorAt {
        let offset = self.checked.parsed_offsets.get(node.id as usize).copied().unwrap_or_default();
        ErrorAt::new(offset as usize, CompileErrorKind::Literal(reason))
    }

    fn plan(&mut self, node: &Expr) -> Planned<Plan> {
        super::with_stack(|| self.plan_within(node))
    }

    fn plan_within(&mut self, node: &Expr) -> Planned<Plan> {
        Ok(match &node.kind {
            ExprKind::Literal(literal) => Plan::Constant(literal_value(literal)),
            ExprKind::Ident(name) => match self.local(name) {
                Some(position) => attribute(Base::Local(position)),
                None => self.global(node, name)?,
            },
            ExprKind::Select { operand, field, test } => {
                let mut attribute = self.attribute(operand)?;
                let key = Key::Constant(Value::String(field.clone()));
                attribute.qualify(|| Qualifier { key: key.share(), optional: false });
                if *test { Plan::Presence(Box::new(attribute)) } else { Plan::Attribute(Box::new(attribute)) }
            }
            ExprKind::Call { function, target, args } => self.call(node, function, target.as_deref(), args)?,
            ExprKind::List(elements) => self.list(elements)?,
            ExprKind::Map(entries) => self.map(entries)?,
            ExprKind::Struct(name) => return Err(self.error(node, format!("unknown type: {name}"))),
            ExprKind::Comprehension(fold) => self.fold(fold)?,
        })
    }

    fn local(&self, name: &str) -> Option<usize> {
        if name.starts_with('.') {
            return None;
        }
        self.scopes.iter().rev().find(|(found, _)| **found == *name).map(|(_, position)| *position)
    }

    /// `device`, another variable, or the name of a type.
    fn global(&self, node: &Expr, name: &str) -> Planned<Plan> {
        let bare = name.strip_prefix('.').unwrap_or(name);
        // Only `.name` passes by the variables of macros.
        let is_hidden = bare.split('.').next().is_some_and(|first| self.local(first).is_some());
        let is_variable = self.checked.environment.variable_type(bare).is_some();
        Ok(match bare {
            _ if is_variable => {
                let base = if is_hidden { Base::HiddenDevice } else { Base::Device };
                let mut attribute = Attribute { base, qualifiers: Vec::new() };
                // Variables besides `device` are entries of one map.
                if let Purpose::Number(_) = self.checked.environment.purpose {
                    let key = Key::Constant(Value::string(bare));
                    attribute.qualifiers.push(Qualifier { key, optional: false });
                }
                Plan::Attribute(Box::new(attribute))
            }
            _ if is_hidden && self.checked.environment.libraries == Libraries::Since1_37 => {
                return Err(self.error(node, format!("reference to undefined type: {name}")));
            }
            _ => Plan::Constant(Value::Type(named_type(bare).unwrap_or(Type::Dyn))),
        })
    }

    /// A node as the start of an attribute.
    fn attribute(&mut self, node: &Expr) -> Planned<Attribute> {
        Ok(match self.plan(node)? {
            Plan::Attribute(attribute) => *attribute,
            other => Attribute { base: Base::Relative(other), qualifiers: Vec::new() },
        })
    }

    fn call(&mut self, node: &Expr, function: &Arc<str>, target: Option<&Expr>, args: &[Expr]) -> Planned<Plan> {
        if let (op::INDEX | op::OPTIONAL_INDEX | op::OPTIONAL_SELECT, [operand, index]) = (&**function, args) {
            return self.index(&**function != op::INDEX, operand, index);
        }
        if let (op::CONDITIONAL, [condition, then, otherwise]) = (&**function, args) {
            let condition = self.plan(condition)?;
            let (then, otherwise) = (self.attribute(then)?, self.attribute(otherwise)?);
            let (then, otherwise) = (Box::new(then), Box::new(otherwise));
            return Ok(attribute(Base::Conditional { condition, then, otherwise }));
        }
        let mut plans = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            plans.push(self.plan(arg)?);
        }
        let overloads = self.checked.overloads_of(node);
        let single = if let [single] = overloads { Some(*single) } else { None };
        let plan = match (&**function, pair(plans)) {
            (op::AND, Ok((left, right))) => Plan::And(left, right),
            (op::OR, Ok((left, right))) => Plan::Or(left, right),
            (op::EQUALS, Ok((left, right))) => Plan::Equals { left, right, negated: false },
            (op::NOT_EQUALS, Ok((left, right))) => Plan::Equals { left, right, negated: true },
            ("or", Ok((left, right))) if target.is_some() => Plan::OptionalOr { left, right, unwrap: false },
            ("orValue", Ok((left, right))) if target.is_some() => Plan::OptionalOr { left, right, unwrap: true },
            (op::IN, Ok((value, list))) => match *list {
                Plan::Constant(Value::List(set)) if single.is_some() && is_set(&set) => {
                    if set.is_empty() {
                        Plan::Constant(Value::Bool(false))
                    } else {
                        Plan::Member { value, set }
                    }
                }
                list => self.function(node, function, vec![*value, list])?,
            },
            (_, Ok((left, right))) => self.function(node, function, vec![*left, *right])?,
            (op::NOT_STRICTLY_FALSE, Err(mut plans)) => match plans.pop() {
                Some(plan) => Plan::NotStrictlyFalse(Box::new(plan)),
                None => Plan::Constant(Value::Bool(true)),
            },
            (_, Err(plans)) => self.function(node, function, plans)?,
        };
        Ok(plan)
    }

    fn function(&mut self, node: &Expr, function: &Arc<str>, args: Vec<Plan>) -> Planned<Plan> {
        let chosen = self.checked.overloads_of(node);
        let single = if let [single] = chosen { Some(*single) } else { None };
        if let Some(name) = function.strip_prefix("format.").filter(|name| *name != "named") {
            let format = format::FORMATS.iter().find(|format| format.name == name);
            let cost = CallCost::of(function, single.map(|overload| overload.id), self.checked.environment.libraries);
            if let Some(format) = format {
                // No constant: upstream counts the call.
                let overloads = Vec::new();
                let callee = Callee { function: function.clone(), overloads, cost, regex: None, stops_at_error: false };
                let args = vec![Plan::Constant(Value::Format(format))];
                return Ok(Plan::Call(Box::new(Call { callee: Arc::new(callee), args })));
            }
        }
        if let ([Plan::Constant(value)], true) = (args.as_slice(), CONVERSIONS.contains(&&**function)) {
            let run = chosen.iter().filter(|overload| overload.params.iter().all(|param| param.matches(value)));
            let converted = match run.filter_map(|overload| overload.run).next() {
                Some(run) => run(Context { regex: None }, std::slice::from_ref(value)),
                None => Err(EvalError::no_overload(function)),
            };
            return converted.map(Plan::Constant).map_err(|error| self.error(node, error.to_string()));
        }
        let regex = match (&**function, args.get(1)) {
            ("matches" | "find" | "findAll", Some(Plan::Constant(Value::String(pattern)))) => {
                let place = match &node.kind {
                    ExprKind::Call { target, args, .. } => args.get(usize::from(target.is_none())).unwrap_or(node),
                    _ => node,
                };
                Some(regex::compile(pattern).map_err(|reason| self.error(place, reason))?)
            }
            _ => None,
        };
        let cost = CallCost::of(function, single.map(|overload| overload.id), self.checked.environment.libraries);
        let overloads = match single {
            Some(single) => vec![single],
            None => chosen.to_vec(),
        };
        let dispatches = single.is_none() && !DISPATCHED_BY_OPERAND.contains(&&**function);
        let stops_at_error = args.len() > 2 || regex.is_some() || dispatches;
        let callee = Callee { function: function.clone(), overloads, cost, regex, stops_at_error };
        Ok(Plan::Call(Box::new(Call { callee: Arc::new(callee), args })))
    }

    fn index(&mut self, optional: bool, operand: &Expr, index: &Expr) -> Planned<Plan> {
        let mut operand = self.attribute(operand)?;
        let key = match self.plan(index)? {
            Plan::Constant(value) => match value {
                Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_) => {
                    Key::Constant(value)
                }
                other => return Err(self.error(index, format!("invalid qualifier type: {}", other.type_name()))),
            },
            Plan::Attribute(attribute) => Key::Dynamic(Arc::new(*attribute)),
            other => Key::Dynamic(Arc::new(Attribute { base: Base::Relative(other), qualifiers: Vec::new() })),
        };
        operand.qualify(|| Qualifier { key: key.share(), optional });
        Ok(Plan::Attribute(Box::new(operand)))
    }

    fn list(&mut self, elements: &[(Expr, bool)]) -> Planned<Plan> {
        let mut plans = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            plans.push((self.plan(element)?, *optional));
        }
        let constants: Option<Vec<Value>> = plans
            .iter()
            .map(|(plan, optional)| match plan {
                Plan::Constant(value) if !optional => Some(value.clone()),
                _ => None,
            })
            .collect();
        Ok(constants.map_or(Plan::List(plans), |values| Plan::Constant(Value::list(values))))
    }

    fn map(&mut self, entries: &[(Expr, Expr, bool)]) -> Planned<Plan> {
        let mut plans = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            plans.push((self.plan(key)?, self.plan(value)?, *optional));
        }
        let constants: Option<Vec<(Value, Value)>> = plans
            .iter()
            .map(|plan| match plan {
                (Plan::Constant(key), Plan::Constant(value), false) => Some((key.clone(), value.clone())),
                _ => None,
            })
            .collect();
        Ok(match constants {
            Some(pairs) => Plan::Constant(Value::Map(Arc::new(pairs_map(pairs)))),
            None => Plan::Map(plans),
        })
    }

    fn fold(&mut self, fold: &Comprehension) -> Planned<Plan> {
        let range = self.plan(&fold.range)?;
        let base = self.depth;
        // Init is evaluated where the fold stands, but after its variables have their places.
        self.depth += 3;
        let init = self.plan(&fold.init)?;
        let outer = self.scopes.len();
        self.scopes.push((fold.accumulator.clone(), base));
        if !fold.is_bind() {
            self.scopes.push((fold.var.clone(), base + 1));
            self.scopes.extend(fold.var2.clone().map(|var2| (var2, base + 2)));
        }
        let condition = self.plan(&fold.condition)?;
        let step = self.plan(&fold.step)?;
        self.scopes.truncate(outer + 1);
        let result = self.plan(&fold.result)?;
        self.scopes.truncate(outer);
        self.depth = base;
        let two = fold.var2.is_some();
        Ok(Plan::Fold(Box::new(Fold { range, two, base, init, condition, step, result })))
    }
}

fn attribute(base: Base) -> Plan {
    Plan::Attribute(Box::new(Attribute { base, qualifiers: Vec::new() }))
}

fn pair(mut plans: Vec<Plan>) -> Result<(Box<Plan>, Box<Plan>), Vec<Plan>> {
    if plans.len() != 2 {
        return Err(plans);
    }
    match (plans.pop(), plans.pop()) {
        (Some(right), Some(left)) => Ok((Box::new(left), Box::new(right))),
        _ => Err(Vec::new()),
    }
}

/// Whether upstream turns a list of constants into a set.
fn is_set(values: &[Value]) -> bool {
    values.iter().all(|value| {
        matches!(
            value,
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_) | Value::Null
        )
    })
}

/// Of equal keys the last counts.
pub(crate) fn pairs_map(pairs: Vec<(Value, Value)>) -> Map {
    let text: Option<BTreeMap<Arc<str>, Value>> = pairs
        .iter()
        .map(|(key, value)| match key {
            Value::String(key) => Some((key.clone(), value.clone())),
            _ => None,
        })
        .collect();
    if let Some(entries) = text {
        return Map::text(entries);
    }
    let mut unique: Vec<(Value, Value)> = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        match unique.iter_mut().find(|(found, _)| found.equals(&key)) {
            Some(entry) => entry.1 = value,
            None => unique.push((key, value)),
        }
    }
    Map::Pairs(unique)
}

impl Attribute {
    /// Adds a qualifier, to both branches of a condition.
    fn qualify(&mut self, make: impl Fn() -> Qualifier + Copy) {
        match &mut self.base {
            Base::Conditional { then, otherwise, .. } if self.qualifiers.is_empty() => {
                then.qualify(make);
                otherwise.qualify(make);
            }
            Base::Conditional { .. } | Base::Device | Base::HiddenDevice | Base::Local(_) | Base::Relative(_) => {
                self.qualifiers.push(make())
            }
        }
    }
}

impl Key {
    /// A second handle of the key, for the other branch of a condition.
    fn share(&self) -> Self {
        match self {
            Self::Constant(value) => Self::Constant(value.clone()),
            Self::Dynamic(attribute) => Self::Dynamic(Arc::clone(attribute)),
        }
    }
}

pub(crate) fn literal_value(literal: &Literal) -> Value {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(text.clone()),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}
