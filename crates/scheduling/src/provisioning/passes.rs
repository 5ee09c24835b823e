//! Passes: each changes what is asked, lets the passes after it and the orders plan that, once or several times, and
//! says what the plan means for the request that it was given.

pub(crate) mod attachments;
pub(crate) mod buffers;
pub(crate) mod colocation;
pub(crate) mod gangs;
pub(crate) mod group_domains;
pub(crate) mod preferences;

use crate::plan::Plan;
use crate::provisioning::orders::Planning;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Request;

/// A step between what is asked and the orders of placing.
pub(crate) trait Pass {
    /// A plan for the request, made of plans of what comes after the pass. `None` only if the plan is to be compared
    /// with others, and none was found that keeps the request's limit, or there is no budget for one.
    fn plan(&self, request: &Request<'_>, rest: &mut Rest<'_>) -> Option<Plan>;
}

/// A pass that changes the request once, and plans once.
pub(crate) trait Rewrite {
    /// What is planned instead; `None` if nothing in the request concerns the pass.
    fn rewrite(&self, request: &Request<'_>) -> Option<Request<'static>>;

    /// From a plan for what was rewritten to one for the request.
    fn restore(&self, plan: Plan, request: &Request<'_>) -> Plan;
}

impl<R: Rewrite> Pass for R {
    fn plan(&self, request: &Request<'_>, rest: &mut Rest<'_>) -> Option<Plan> {
        match self.rewrite(request) {
            None => rest.plan(request),
            Some(rewritten) => Some(self.restore(rest.plan(&rewritten)?, request)),
        }
    }
}

/// Plans what was asked in one or several orders of placing; `None` as for [`Pass::plan`].
pub(crate) type Orders = fn(&Problem<'_>, &mut Planning) -> Option<Plan>;

/// What comes after a pass: further passes, and then the orders.
pub(crate) struct Rest<'a> {
    passes: &'a [&'static dyn Pass],
    orders: Orders,
    pub(crate) planning: &'a mut Planning,
}

impl<'a> Rest<'a> {
    /// All passes of a list, and then the orders.
    pub(crate) fn new(passes: &'a [&'static dyn Pass], orders: Orders, planning: &'a mut Planning) -> Self {
        Self { passes, orders, planning }
    }

    /// A plan for the request, as a pass makes one ([`Pass::plan`]).
    pub(crate) fn plan(&mut self, request: &Request<'_>) -> Option<Plan> {
        match self.passes {
            [] => self.plan_compiled(&Problem::new(request)),
            [first, passes @ ..] => first.plan(request, &mut Rest::new(passes, self.orders, self.planning)),
        }
    }

    /// As [`Self::plan`], for the request of a problem: the last pass spares the orders to compile it again.
    pub(crate) fn plan_compiled(&mut self, problem: &Problem<'_>) -> Option<Plan> {
        match self.passes {
            [] => (self.orders)(problem, self.planning),
            [..] => self.plan(problem.request),
        }
    }
}
