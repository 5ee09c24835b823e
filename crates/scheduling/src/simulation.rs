//! The simulation of kube-scheduler over nodes that exist and machines to be: what any planner asks.
//!
//! * [`compile`] turns a snapshot into a problem: classes, pool tables, what each node has free. It is immutable.
//! * [`topology`] holds the rules between pods: what they are, and the counts that they look at.
//! * [`homes`] says which pods that move stay in their zones, by these rules.
//! * [`packing`] is what has been placed so far, with a journal to take it back.
//! * [`placing`] finds places for the copies of a class.

pub(crate) mod compile;
pub(crate) mod homes;
pub(crate) mod packing;
pub(crate) mod placing;
pub(crate) mod topology;
