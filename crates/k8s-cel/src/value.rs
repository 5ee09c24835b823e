//! Values at run time.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::error::EvalError;
use super::functions::amount::Amount;
use super::functions::format::NamedFormat;
use super::functions::net::Cidr;
use super::functions::url::Url;
use super::types::Type;
use dra_types::SemanticVersion;

/// A value. Cloning is cheap: whatever is large is shared.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<[Value]>),
    Map(Arc<Map>),
    Type(Type),
    Optional(Option<Arc<Value>>),
    /// Nanoseconds.
    Duration(i64),
    /// Nanoseconds since 1970.
    Timestamp(i128),
    Quantity(Amount),
    /// A quantity that `add` or `sub` made. Upstream makes those of another Go type, which is equal to nothing. It may
    /// be beyond the range of quantities.
    Sum(Amount),
    Semver(Arc<SemanticVersion>),
    Url(Arc<Url>),
    Format(&'static NamedFormat),
    Ip(IpAddr),
    Cidr(Cidr),
    /// What an attribute has whose value is known after launch; only maps hold it, and reading it is an error.
    AfterLaunch,
}

/// A map.
#[derive(Debug)]
pub(crate) enum Map {
    /// A part of the device; keys are strings, iterated by name.
    Text {
        entries: BTreeMap<Arc<str>, Value>,
        /// Reading a key that is missing gives an empty map, though `in` says that it is missing.
        empty_by_default: bool,
    },
    /// A map built by an expression; small.
    Pairs(Vec<(Value, Value)>),
}

impl Map {
    pub(crate) fn text(entries: BTreeMap<Arc<str>, Value>) -> Self {
        Self::Text { entries, empty_by_default: false }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Text { entries, .. } => entries.len(),
            Self::Pairs(pairs) => pairs.len(),
        }
    }

    pub(crate) fn contains(&self, key: &Value) -> bool {
        match self {
            Self::Text { entries, .. } => matches!(key, Value::String(key) if entries.contains_key(key)),
            Self::Pairs(pairs) => pairs.iter().any(|(found, _)| found.equals(key)),
        }
    }

    pub(crate) fn get(&self, key: &Value) -> Option<Value> {
        match self {
            Self::Text { entries, empty_by_default } => {
                let found = match key {
                    Value::String(key) => entries.get(key).cloned(),
                    _ => None,
                };
                found.or_else(|| empty_by_default.then(|| Value::Map(Arc::new(Self::text(BTreeMap::new())))))
            }
            Self::Pairs(pairs) => pairs.iter().find(|(found, _)| found.equals(key)).map(|(_, value)| value.clone()),
        }
    }

    pub(crate) fn first(&self) -> Option<(Value, Value)> {
        match self {
            Self::Text { entries, .. } => {
                entries.first_key_value().map(|(key, of)| (Value::String(key.clone()), of.clone()))
            }
            Self::Pairs(pairs) => pairs.first().cloned(),
        }
    }

    pub(crate) fn pairs(&self) -> Vec<(Value, Value)> {
        match self {
            Self::Text { entries, .. } => {
                entries.iter().map(|(key, value)| (Value::String(key.clone()), value.clone())).collect()
            }
            Self::Pairs(pairs) => pairs.clone(),
        }
    }
}

impl Value {
    /// The value, unless it is known after launch only; the key under which it was found is for the error.
    pub(crate) fn known(self, key: impl FnOnce() -> Arc<str>) -> Result<Self, EvalError> {
        match self {
            Self::AfterLaunch => Err(EvalError::AfterLaunch(key())),
            value => Ok(value),
        }
    }

    pub(crate) fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    pub(crate) fn list(values: Vec<Self>) -> Self {
        Self::List(values.into())
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// Its type, where that has no parameters; lists and maps of dyn.
    pub(crate) fn simple_type(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Type(_) => Type::Type(None),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Duration(_) => Type::Duration,
            Self::Timestamp(_) => Type::Timestamp,
            Self::Quantity(_) | Self::Sum(_) => Type::Quantity,
            Self::Semver(_) => Type::Semver,
            Self::Url(_) => Type::Url,
            Self::Format(_) => Type::Format,
            Self::Ip(_) => Type::Ip,
            Self::Cidr(_) => Type::Cidr,
            Self::AfterLaunch => Type::Dyn,
        }
    }

    /// The name of its type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Quantity(_) | Self::Sum(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::AfterLaunch => "unknown",
        }
    }

    /// What it counts for in costs; 1 for what has no size.
    pub(crate) fn cost_size(&self) -> u64 {
        let size = match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::Ip(IpAddr::V4(_)) => 4,
            Self::Ip(IpAddr::V6(_)) => 16,
            Self::Cidr(cidr) => usize::from(cidr.prefix_length).div_ceil(8),
            _ => 1,
        };
        size as u64
    }

    /// Whether it is of a type that Kubernetes adds to CEL.
    pub(crate) fn is_own_type(&self) -> bool {
        matches!(
            self,
            Self::Quantity(_)
                | Self::Sum(_)
                | Self::Semver(_)
                | Self::Ip(_)
                | Self::Cidr(_)
                | Self::Format(_)
                | Self::Url(_)
        )
    }

    /// Whether `==` of the two is not an error: Kubernetes' own types compare with nothing else, nor with sums.
    pub(crate) fn compares_with(&self, right: &Self) -> bool {
        let are_alike = self.type_name() == right.type_name() && !matches!(right, Self::Sum(_));
        !self.is_own_type() || matches!(right, Self::Null) || are_alike
    }

    /// Whether lists and maps with these at one place may be equal. Upstream takes an error for equality there.
    fn may_be_equal(&self, right: &Self) -> bool {
        !self.compares_with(right) || self.equals(right)
    }

    /// CEL's equality: numbers by value whatever their type, unlike types are unequal.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Int(_) | Self::Uint(_) | Self::Double(_), Self::Int(_) | Self::Uint(_) | Self::Double(_)) => {
                self.compare_numbers(other) == Some(Ordering::Equal)
            }
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::List(a), Self::List(b)) => a.len() == b.len() && a.iter().zip(&**b).all(|(a, b)| a.may_be_equal(b)),
            (Self::Map(a), Self::Map(b)) => {
                a.len() == b.len()
                    && a.pairs().iter().all(|(key, value)| {
                        b.contains(key) && b.get(key).is_some_and(|other| value.may_be_equal(&other))
                    })
            }
            (Self::Type(a), Self::Type(b)) => same_type_name(a, b),
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.equals(b),
                _ => false,
            },
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Sum(a), Self::Quantity(b)) => a == b,
            (Self::Semver(a), Self::Semver(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a.text == b.text,
            (Self::Format(a), Self::Format(b)) => a.name == b.name,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a), Self::Cidr(b)) => a == b,
            _ => false,
        }
    }

    /// The order of two numbers of any types; None if one is not a number.
    pub(crate) fn compare_numbers(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Uint(a), Self::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Double(a), Self::Int(b)) => compare_double(*a, i128::from(*b)),
            (Self::Double(a), Self::Uint(b)) => compare_double(*a, i128::from(*b)),
            (Self::Int(a), Self::Double(b)) => compare_double(*b, i128::from(*a)).map(Ordering::reverse),
            (Self::Uint(a), Self::Double(b)) => compare_double(*b, i128::from(*a)).map(Ordering::reverse),
            _ => None,
        }
    }

    /// The order of two values of comparable types.
    pub(crate) fn compare(&self, other: &Self) -> Result<Ordering, EvalError> {
        let order = match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::String(a), Self::String(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.cmp(b)),
            (Self::Double(a), _) | (_, Self::Double(a)) if a.is_nan() => {
                return Err(EvalError::invalid("NaN values cannot be ordered"));
            }
            _ => self.compare_numbers(other),
        };
        order.ok_or_else(|| EvalError::no_overload("compare"))
    }
}

/// A double and an integer, exactly.
fn compare_double(double: f64, integer: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // cel-go compares as doubles once the double is inside of the range of the integer type.
    #[allow(clippy::cast_precision_loss, reason = "upstream's comparison")]
    let as_double = integer as f64;
    double.partial_cmp(&as_double)
}

fn same_type_name(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::List(_), Type::List(_))
        | (Type::Map(..), Type::Map(..))
        | (Type::Optional(_), Type::Optional(_))
        | (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}
