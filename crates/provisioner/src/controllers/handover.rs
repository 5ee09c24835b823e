//! Hand-over: kube-scheduler binds the pods, and this makes it likely that it binds them where they were planned.
//!
//! A new machine carries our taint `dovetail.sh/held` from its registration until its planned pods are there, or may
//! come in any order. [`engine`] decides on the order of things and knows nothing but time; [`view`] reads from the
//! store what the engine looks at; [`economy`] says where nobody has to be patched; [`driver`] runs it. [`withdrawals`]
//! are nominations that came to nothing. Why it is done this way is told in `docs/rfcs/0004-hand-over.md`.
//!
//! Invariants: no machine stays closed for lack of us, in that a starting controller takes up whatever is held, whoever
//! held it; and nothing is ever nominated that somebody else has nominated, that is gated, or that another scheduler
//! places.

pub(crate) mod driver;
pub(crate) mod economy;
pub(crate) mod engine;
pub(crate) mod view;
pub(crate) mod withdrawals;

pub(crate) use driver::run;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "hand-over";
