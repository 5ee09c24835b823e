//! The end of machines: two finalizers that wait for each other.
//!
//! Deleting a NodeClaim deletes its Node, and deleting a Node deletes its NodeClaim. The Node's finalizer then stays until
//! the Node is tainted, its pods are evicted, its volumes detached and its machine gone; the NodeClaim's until the Node
//! and the machine are gone. So neither object vanishes before the machine, and a restart goes on where it was.
//!
//! [`node_claim`] and [`node`] are the two sides, each a pure decision and what carries it out; [`drain`] says which pods
//! leave next, [`eviction`] makes one pod leave, [`volumes`] says which attachments are waited for, [`pace`] how often the
//! provider is asked.
//!
//! Failpoints, in order: `terminate.before-node-deletion`, `terminate.before-taint`, `terminate.after-taint`,
//! `terminate.before-eviction`, `terminate.after-eviction`, `terminate.before-instance`, `terminate.after-instance`,
//! `terminate.before-node-finalizer`, `terminate.after-node-finalizer`, `terminate.before-claim-finalizer`.

use std::collections::BTreeMap;

use api::annotations::NODECLAIM_TERMINATION_TIMESTAMP;
use model::Timestamp;

pub mod drain;
pub mod eviction;
pub mod node;
pub mod node_claim;
pub mod pace;
pub mod volumes;

/// When draining stops waiting for anything, as an object's annotations have it. A text that is no time counts as none.
pub fn deadline(annotations: Option<&BTreeMap<String, String>>) -> Option<Timestamp> {
    let text = annotations?.get(NODECLAIM_TERMINATION_TIMESTAMP)?;
    Timestamp::parse(text).ok()
}
