//! Why an expression is refused, and why an evaluation fails. Both are data; neither is a verdict on a device.

use std::fmt;
use std::sync::Arc;

/// Why a text is refused, with its place.
///
/// Upstream refuses the same texts; its wording is its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {kind}")]
pub struct CompileError {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// What is wrong.
    pub kind: CompileErrorKind,
}

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileErrorKind {
    /// Longer than the API allows.
    #[error("expression has {length} bytes, more than {limit}")]
    TooLong {
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// Not CEL.
    #[error("syntax error: {0}")]
    Syntax(String),
    /// Nested too deeply.
    #[error("expression recursion limit exceeded: {0}")]
    TooDeep(u32),
    /// Macros made it too large.
    #[error("expression has more than {0} nodes after macros are expanded")]
    TooLarge(usize),
    /// No such variable, field, function or type.
    #[error("undeclared reference to '{0}'")]
    Undeclared(String),
    /// No such field of `device`.
    #[error("undefined field '{0}'")]
    UndefinedField(String),
    /// The types do not fit.
    #[error("{0}")]
    Type(String),
    /// A literal that cannot be what it stands for: a pattern, duration, timestamp, number.
    #[error("{0}")]
    Literal(String),
    /// Admission refuses what may cost too much.
    #[error("too complex: costs up to {0}, exceeds cost limit")]
    TooExpensive(u64),
    /// Neither a bool nor an attribute.
    #[error("must evaluate to bool or the unknown type, not {0}")]
    ResultType(String),
    /// A derived attribute must be something that an attribute can hold.
    #[error("must evaluate to a string, integer, boolean, semver or a list of one of them, not {0}")]
    DerivedType(String),
    /// A number must be one.
    #[error("must evaluate to an integer or a double, not {0}")]
    NumberType(String),
}

/// An error and the byte it is about; becomes a [`CompileError`] once the text is at hand.
#[derive(Debug)]
pub(crate) struct ErrorAt {
    offset: usize,
    kind: CompileErrorKind,
}

impl CompileError {
    pub(crate) fn syntax(reason: String) -> CompileErrorKind {
        CompileErrorKind::Syntax(reason)
    }
}

impl ErrorAt {
    pub(crate) fn new(offset: usize, kind: CompileErrorKind) -> Self {
        Self { offset, kind }
    }

    pub(crate) fn in_text(self, text: &str) -> CompileError {
        let before = text.get(..self.offset).unwrap_or(text);
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        let number = |count: usize| u32::try_from(count + 1).unwrap_or(u32::MAX);
        CompileError { line: number(line), column: number(column), kind: self.kind }
    }
}

/// Why an evaluation failed. Upstream ends the whole pod's scheduling with it, on all nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// A map has no such key, usually an attribute that the device lacks.
    #[error("no such key: {0}")]
    NoSuchKey(Arc<str>),
    /// The attribute's value is known after launch only.
    #[error("attribute {0} has a value that is known only once the machine is there")]
    AfterLaunch(Arc<str>),
    /// A list has no such element.
    #[error("index out of bounds: {0}")]
    IndexOutOfBounds(Arc<str>),
    /// A function is not defined for values of these types.
    #[error("no such overload: {0}")]
    NoSuchOverload(Arc<str>),
    /// An integer operation left 64 bits.
    #[error("integer overflow")]
    Overflow,
    /// A division by 0.
    #[error("division by zero")]
    DivisionByZero,
    /// A remainder by 0.
    #[error("modulus by zero")]
    ModulusByZero,
    /// A function refused its arguments.
    #[error("{0}")]
    Invalid(Arc<str>),
    /// The value is not a bool.
    #[error("CEL result of type {0} could not be converted to bool")]
    NotBool(&'static str),
    /// The value is nothing that an attribute can hold.
    #[error("CEL result of type {0} cannot be the value of an attribute")]
    NotAnAttribute(&'static str),
    /// The value is no number, or none that 64 bits hold.
    #[error("{0} is no number that can be used")]
    NotANumber(Arc<str>),
    /// Upstream's evaluator crashes here, which ends the evaluation even where the other side of `||` decides: it
    /// cannot count the cost of sorting what is no list, nor look up a version or bytes in a list of constants.
    #[error("internal error: the API server's and scheduler's evaluators crash on this")]
    Internal,
    /// The evaluation cost more than is allowed.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimitExceeded,
    /// An attribute of the device has no value that can be read.
    #[error("attribute {attribute}: {reason}")]
    Attribute {
        /// The attribute.
        attribute: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
}

impl EvalError {
    pub(crate) fn invalid(reason: impl fmt::Display) -> Self {
        Self::Invalid(reason.to_string().into())
    }

    pub(crate) fn no_overload(function: &str) -> Self {
        Self::NoSuchOverload(function.into())
    }
}
