//! Claims and devices, compiled for a search: ids for names, selectors and values by number.
//!
//! Nothing here knows which devices a node sees or which are taken. What a selector, a derived attribute or a
//! constraint says depends on the content of a device alone ([`device::Shape`]), so it is found out once for all
//! devices of one.

pub(crate) mod attributes;
pub(crate) mod claims;
pub(crate) mod derived;
pub(crate) mod device;
pub(crate) mod ids;
pub(crate) mod node_scope;
pub(crate) mod selectors;
