//! Device selectors: CEL as the Kubernetes API server and scheduler compile and evaluate it.
//!
//! A [`Selector`] is compiled once per text and asked about [`DeviceView`]s. The steps are those of upstream, because
//! their verdicts must be: text → tokens → tree with macros expanded (`parser`) → types and overloads (`checker`) →
//! worst-case cost (`cost`) → plan (`plan`) → evaluation with its actual cost (`eval`), for simple ones by a program
//! over numbered attributes (`slots`).
//!
//! A [`NumberExpression`] goes the same way, over variables of its own instead of a device.
//!
//! What holds:
//! * A text that upstream refuses to compile is refused, with line and column.
//! * A failed evaluation is an [`EvalError`], never "no match".
//! * Nothing takes unbounded time, memory or stack: text, nesting, nodes, patterns and evaluation units are limited.
//!
//! The parser and evaluator are our own. The `cel` crate has no type checker and counts no cost, its fast parser loses
//! positions, and a long flat chain overflows its evaluator's stack (RFC 0007).
//!
//! Not here: messages of protobuf types, names of the time zone database, lengths of validation messages.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

mod ast;
mod checker;
mod cost;
mod derived;
mod device;
mod environment;
mod error;
mod eval;
mod functions;
mod lexer;
mod library;
mod macros;
mod new_texts;
mod number;
mod parser;
mod plan;
mod selector;
mod slots;
mod types;
mod value;

pub use derived::DerivedExpression;
pub use device::DeviceView;
pub use environment::{VariableType, Variables};
pub use error::{CompileError, CompileErrorKind, EvalError};
pub use new_texts::compiles;
pub use number::{NumberExpression, VariableValue};
pub use selector::{Evaluation, MAX_COST, MAX_LENGTH, Selector};
pub use slots::{SlotProgram, SlotRow, SlotTable};

/// Runs a step of a recursion over an expression with room on the stack.
///
/// Depth is bounded, but the bound is upstream's and is more than a thread with a small stack holds.
fn with_stack<T>(step: impl FnOnce() -> T) -> T {
    const RED_ZONE_BYTES: usize = 256 * 1024;
    const SEGMENT_BYTES: usize = 4 * 1024 * 1024;
    stacker::maybe_grow(RED_ZONE_BYTES, SEGMENT_BYTES, step)
}
