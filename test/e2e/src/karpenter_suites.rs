//! Karpenter's own end-to-end tests, as its module has them, with `dovetail run` as the controller.
//!
//! A [`Suite`] is a program of Karpenter's; its specs are run one to a process, so that each has a time limit of its
//! own and none inherits what another has left. [`Expectations`] say which must pass, and why the others cannot yet;
//! [`run`] plays them on clusters side by side; [`Summary`] holds the results against the expectations.
//!
//! Left out: what makes the specs, which is the module `test/karpenter-suites`.

mod expectations;
mod ginkgo;
mod place;
mod program;
mod run;
mod spec;
mod stand_in;
mod suite;
mod summary;
mod sweep;

pub use self::expectations::{Expectations, Expected};
pub use self::run::{Options, Progress, Run, run};
pub use self::spec::{Played, Spec, Suite, Verdict};
pub use self::suite::Specs;
pub use self::summary::{Judgement, Summary};
