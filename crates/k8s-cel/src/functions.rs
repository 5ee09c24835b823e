//! What functions do. One file a library; [`super::library`] says which function has which overloads.

pub(crate) mod amount;
pub(crate) mod collections;
pub(crate) mod conversions;
pub(crate) mod format;
pub(crate) mod net;
pub(crate) mod operators;
pub(crate) mod optional;
pub(crate) mod quantities;
pub(crate) mod regex;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod url;

use ::regex::Regex;

use super::error::EvalError;
use super::value::Value;

/// What a function gets besides its arguments.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The pattern, compiled, if it was a literal.
    pub(crate) regex: Option<&'a Regex>,
}

/// An implementation. Arguments have the types that the overload declares.
pub(crate) type Function = fn(Context<'_>, &[Value]) -> Result<Value, EvalError>;
