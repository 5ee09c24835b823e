//! Hand-over: kube-scheduler binds pods, and the hand-over makes it bind them where they were planned.
//!
//! A new machine has the taint `dovetail.sh/held` from its registration until its planned pods are bound, or until the
//! order of binding no longer matters. [`engine`] decides the order of steps, as a state machine; [`view`] reads its
//! input from the store; [`economy`] finds machines that need no patches; [`driver`] runs the commands. [`withdrawals`]
//! takes nominations back that kube-scheduler does not follow. `docs/rfcs/0004-hand-over.md` has the reasons for this
//! design.
//!
//! Invariants: no machine stays tainted because a controller ended, since its successor adopts every held machine. No
//! pod is nominated that has another nomination or a scheduling gate, or that another scheduler places.

pub(crate) mod driver;
pub(crate) mod economy;
pub(crate) mod engine;
pub(crate) mod view;
pub(crate) mod withdrawals;

pub(crate) use driver::run;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "hand-over";
