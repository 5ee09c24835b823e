//! The functions. Each says what it promises by asserting it.

pub(crate) mod devices;
pub(crate) mod object;
pub(crate) mod offline;
pub(crate) mod overlay;
pub(crate) mod quantity;
pub(crate) mod selector;
