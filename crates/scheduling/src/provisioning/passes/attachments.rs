//! Volumes as a resource, where some are limited.

use super::Rewrite;
use crate::plan::Plan;
use crate::simulation::compile::attachments::{as_resources, forget};
use crate::simulation::compile::request::Request;

pub(crate) struct Attachments;

impl Rewrite for Attachments {
    fn rewrite(&self, request: &Request<'_>) -> Option<Request<'static>> {
        as_resources(request)
    }

    fn restore(&self, mut plan: Plan, request: &Request<'_>) -> Plan {
        forget(&mut plan, &request.snapshot);
        plan
    }
}
