//! Room that CapacityBuffers keep free: planned as virtual pods ([`Snapshot::with_virtual_pods`]), and taken out of the
//! plan again, so that whoever carries it out meets pods of the cluster only.

use super::Rewrite;
use crate::plan::{Plan, virtual_pods};
use crate::simulation::compile::request::Request;

pub(crate) struct Buffers;

impl Rewrite for Buffers {
    fn rewrite(&self, request: &Request<'_>) -> Option<Request<'static>> {
        Some(request.with_snapshot(request.snapshot.with_virtual_pods()?))
    }

    fn restore(&self, plan: Plan, request: &Request<'_>) -> Plan {
        virtual_pods::set_aside(plan, &request.snapshot)
    }
}
