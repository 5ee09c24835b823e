//! From a snapshot to a problem: everything that placing pods does not change.

pub(crate) mod attachments;
pub(crate) mod bare;
pub(crate) mod catalogue_index;
pub(crate) mod classes;
pub(crate) mod daemons;
pub(crate) mod devices;
pub(crate) mod fit_index;
pub(crate) mod limits;
pub(crate) mod pareto_front;
pub(crate) mod pools;
pub(crate) mod problem;
pub(crate) mod request;
pub(crate) mod residual_capacity;
pub(crate) mod supported;
