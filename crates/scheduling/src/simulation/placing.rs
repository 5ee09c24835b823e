//! Places for the copies of a class: on nodes, on open machines, on new ones; and what is tried when some are left
//! over.

pub(crate) mod backtracking;
pub(crate) mod choose;
pub(crate) mod fill;
pub(crate) mod hosts;
pub(crate) mod inter_pod;
pub(crate) mod relocation;
pub(crate) mod reservations;
mod to_come;
