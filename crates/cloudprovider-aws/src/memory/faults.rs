//! What goes wrong, and how late things are seen.

use model::DurationMs;

/// Something that is seen later than it is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lag {
    /// A launched machine, by whoever describes machines.
    Launch,
    /// The tags that a machine was launched with, or was given.
    Tags,
    /// That a machine is another state.
    State,
    /// A launch template, by whoever describes or uses it.
    Template,
}

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// Nothing.
    None,
    /// It is refused because there were too many.
    Throttled,
    /// It does nothing, and there is no answer.
    Failed,
    /// It does what it should, and there is no answer.
    AnswerLost,
}

/// Decides what goes wrong. It is asked in the order of the calls, so one that draws from a seed gives one history.
pub trait Faults: Send {
    /// What goes wrong with a call, such as `ec2:CreateFleet`.
    fn of_call(&mut self, call: &'static str) -> CallFault;
    /// How late something is seen.
    fn lag(&mut self, of: Lag) -> DurationMs;
}
