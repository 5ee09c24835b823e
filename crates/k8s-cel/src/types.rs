//! Static types and their unification, as cel-go's checker does it.

use std::fmt;
use std::sync::Arc;

use super::value::Value;

#[allow(clippy::enum_variant_names, reason = "CEL calls the type of types `type`")]
/// A type. `Param` is a type variable, in a declaration numbered from 0, in the checker fresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    Dyn,
    /// Like `Dyn`, but cannot be iterated over: an attribute while lists are off.
    Any,
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    Type(Option<Arc<Type>>),
    Optional(Arc<Type>),
    Param(u32),
    /// `device`
    Device,
    Quantity,
    Semver,
    Url,
    Format,
    Ip,
    Cidr,
    /// A type of the authorization library, of which no value can be had.
    Authorization(&'static str),
}

impl Type {
    pub(crate) fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub(crate) fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    /// A single value that an attribute can hold, or one that may turn out to be.
    pub(crate) fn is_attribute(&self) -> bool {
        matches!(self, Self::Bool | Self::Int | Self::String | Self::Semver | Self::Any | Self::Dyn)
    }

    fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || *self == Self::Error
    }

    /// Types that null can be assigned to.
    fn is_nullable(&self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Any
                | Self::Duration
                | Self::Timestamp
                | Self::Optional(_)
                | Self::Device
                | Self::Quantity
                | Self::Semver
                | Self::Url
                | Self::Format
                | Self::Ip
                | Self::Cidr
                | Self::Authorization(_)
        )
    }

    /// Of a size that is known without looking: see the cost estimate.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Double | Self::Duration | Self::Int | Self::Timestamp | Self::Uint => true,
            Self::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// Whether a value has this type at run time; of lists and maps only the first entry is looked at, like upstream.
    pub(crate) fn matches(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Dyn | Self::Any | Self::Param(_), _) => true,
            (Self::List(element), Value::List(list)) => list.first().is_none_or(|first| element.matches(first)),
            (Self::Map(key, of), Value::Map(map)) => {
                map.first().is_none_or(|(first, value)| key.matches(&first) && of.matches(&value))
            }
            (Self::Optional(_), Value::Optional(_)) | (Self::Type(_), Value::Type(_)) => true,
            _ => *self == value.simple_type(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Any => f.write_str("any"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Type(None) => f.write_str("type"),
            Self::Type(Some(of)) => write!(f, "type({of})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Param(number) => write!(f, "_var{number}"),
            Self::Device => f.write_str("kubernetes.DRADevice"),
            Self::Quantity => f.write_str("kubernetes.Quantity"),
            Self::Semver => f.write_str("kubernetes.Semver"),
            Self::Url => f.write_str("kubernetes.URL"),
            Self::Format => f.write_str("kubernetes.NamedFormat"),
            Self::Ip => f.write_str("net.IP"),
            Self::Cidr => f.write_str("net.CIDR"),
            Self::Authorization(name) => write!(f, "kubernetes.authorization.{name}"),
        }
    }
}

/// What type variables stand for. Changes that turn out wrong are taken back through a trail.
#[derive(Default)]
pub(crate) struct Unifier {
    bindings: Vec<Option<Type>>,
    trail: Vec<(usize, Option<Type>)>,
}

impl Unifier {
    pub(crate) fn fresh(&mut self) -> u32 {
        self.bindings.push(None);
        u32::try_from(self.bindings.len() - 1).unwrap_or(u32::MAX)
    }

    fn binding(&self, variable: u32) -> Option<&Type> {
        self.bindings.get(variable as usize).and_then(Option::as_ref)
    }

    fn bind(&mut self, variable: u32, to: Type) {
        if let Some(slot) = self.bindings.get_mut(variable as usize) {
            self.trail.push((variable as usize, slot.replace(to)));
        }
    }

    /// Replaces variables by what they stand for; free ones by dyn if asked.
    pub(crate) fn resolve(&self, of: &Type, free_to_dyn: bool) -> Type {
        match of {
            Type::Param(variable) => match self.binding(*variable) {
                Some(bound) => self.resolve(bound, free_to_dyn),
                None if free_to_dyn => Type::Dyn,
                None => of.clone(),
            },
            Type::List(element) => Type::list(self.resolve(element, free_to_dyn)),
            Type::Map(key, value) => Type::map(self.resolve(key, free_to_dyn), self.resolve(value, free_to_dyn)),
            Type::Optional(value) => Type::optional(self.resolve(value, free_to_dyn)),
            Type::Type(Some(inner)) => Type::Type(Some(Arc::new(self.resolve(inner, free_to_dyn)))),
            _ => of.clone(),
        }
    }

    /// Whether one type can stand where another is wanted; if not, nothing has changed.
    pub(crate) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.assignable_all(&[(from, to)])
    }

    /// Whether all pairs are assignable with one choice of type variables.
    pub(crate) fn assignable_all(&mut self, pairs: &[(&Type, &Type)]) -> bool {
        self.trail.clear();
        let fits = pairs.iter().all(|(from, to)| self.unify(from, to));
        if !fits {
            while let Some((variable, before)) = self.trail.pop() {
                if let Some(slot) = self.bindings.get_mut(variable) {
                    *slot = before;
                }
            }
        }
        fits
    }

    fn unify(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Param(variable) = to {
            let (valid, bound) = self.substitute(from, *variable);
            if valid {
                return true;
            }
            if bound {
                return false;
            }
        }
        if let Type::Param(variable) = from {
            return self.substitute(to, *variable).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        if *from == Type::Null {
            return to.is_nullable();
        }
        if *to == Type::Null {
            return from.is_nullable();
        }
        match (from, to) {
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.unify(a, b),
            (Type::Map(a, b), Type::Map(c, d)) => self.unify(a, c) && self.unify(b, d),
            _ => from == to,
        }
    }

    /// Whether `other` can be what the variable stands for, and whether the variable stood for something before.
    fn substitute(&mut self, other: &Type, variable: u32) -> (bool, bool) {
        if *other == Type::Param(variable) {
            return (true, true);
        }
        if let Some(bound) = self.binding(variable).cloned() {
            if bound == *other {
                return (true, true);
            }
            if self.unify(other, &bound) {
                let general = most_general(other, &bound).clone();
                if !self.occurs(variable, &general) {
                    self.bind(variable, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.occurs(variable, other) {
            return (false, false);
        }
        self.bind(variable, other.clone());
        (true, false)
    }

    fn occurs(&self, variable: u32, within: &Type) -> bool {
        match within {
            Type::Param(other) => {
                *other == variable || self.binding(*other).is_some_and(|bound| self.occurs(variable, bound))
            }
            Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => self.occurs(variable, of),
            Type::Map(key, value) => self.occurs(variable, key) || self.occurs(variable, value),
            _ => false,
        }
    }
}

/// The less specific of two types that fit.
pub(crate) fn most_general<'a>(a: &'a Type, b: &'a Type) -> &'a Type {
    if is_equal_or_less_specific(a, b) { a } else { b }
}

fn is_equal_or_less_specific(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Param(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Param(_)) {
        return false;
    }
    match (a, b) {
        (Type::Optional(a), Type::Optional(b)) | (Type::List(a), Type::List(b)) => is_equal_or_less_specific(a, b),
        (Type::Map(a, b), Type::Map(c, d)) => is_equal_or_less_specific(a, c) && is_equal_or_less_specific(b, d),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}
