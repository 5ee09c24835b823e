//! What a pod as a whole asks for and is limited to, where it leaves that to the API server.
//!
//! The server fills it in when the pod is created: until 1.36 `defaultHugePagePodLimits` and `defaultPodRequests` of
//! Kubernetes' `pkg/apis/core/v1/defaults.go`, from 1.37 on `DefaultPodLevelResources` of `pkg/api/pod/util.go`. The
//! scheduler then holds containers and devices against it, so that a pod from a manifest must get the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Container, Lifetime, Pod, Resources};
use crate::compat::KubernetesMinor;

/// Whether a pod as a whole can say what it takes of a resource.
pub fn is_for_whole_pods(resource: &str) -> bool {
    can_be_overcommitted(resource) || is_huge_page(resource)
}

fn can_be_overcommitted(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory")
}

fn is_huge_page(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

/// Requests and limits, of a pod as a whole or of its containers together. The amounts may be in any unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestsAndLimits<Name, Amount> {
    /// Requests, by the name of the resource.
    pub requests: BTreeMap<Name, Amount>,
    /// Limits, by the name of the resource.
    pub limits: BTreeMap<Name, Amount>,
}

impl<Name: AsRef<str> + Ord + Clone, Amount: Clone> RequestsAndLimits<Name, Amount> {
    /// Fills in what a pod as a whole leaves open, given what its containers say together. The requests that 1.37 adds
    /// are what the containers sum up to anyway, and count only where devices cost something besides.
    pub fn set_defaults(&mut self, containers: &Self, kubernetes: KubernetesMinor) {
        if self.requests.is_empty() && self.limits.is_empty() {
            return;
        }
        let huge_pages = containers.limits.iter().filter(|(name, _)| is_huge_page(name.as_ref()));
        for (name, amount) in huge_pages.filter(|(name, _)| !self.requests.contains_key(*name)) {
            self.limits.entry(name.clone()).or_insert_with(|| amount.clone());
        }
        if self.limits.is_empty() && kubernetes < KubernetesMinor::V1_37 {
            return;
        }
        // What containers ask for counts of resources without a limit of the whole too.
        let asked = containers.requests.iter().filter(|(name, _)| can_be_overcommitted(name.as_ref()));
        let limited = self.limits.iter().filter(|(name, _)| is_for_whole_pods(name.as_ref()));
        for (name, amount) in asked.chain(limited) {
            self.requests.entry(name.clone()).or_insert_with(|| amount.clone());
        }
    }
}

impl Pod {
    /// Fills in what the API server of a release does when the pod is created; one from a server has been through it.
    pub fn fill_in(&mut self, kubernetes: KubernetesMinor) {
        let mut whole = RequestsAndLimits {
            requests: std::mem::take(&mut self.pod_requests),
            limits: std::mem::take(&mut self.pod_limits),
        };
        let containers = RequestsAndLimits { requests: self.container_requests(), limits: self.container_limits() };
        whole.set_defaults(&containers, kubernetes);
        let RequestsAndLimits { requests, mut limits } = whole;
        if kubernetes >= KubernetesMinor::V1_37 {
            // A resource that every container limits is limited for the whole too.
            let is_limited = |name: &Arc<str>| {
                is_for_whole_pods(name) && self.containers.iter().all(|of| of.limits.contains_key(name))
            };
            for (name, request) in requests.iter().filter(|(name, _)| is_limited(name)) {
                let together = containers.limits.get(name).copied().unwrap_or_default();
                limits.entry(Arc::clone(name)).or_insert_with(|| together.max(*request));
            }
        }
        (self.pod_requests, self.pod_limits) = (requests, limits);
    }
}

/// What containers, init containers first, say together: init containers need their most on top of the sidecars started
/// before them.
pub(super) fn together(containers: &[Container], amounts: impl Fn(&Container) -> &Resources) -> Resources {
    let (mut running, mut sidecars, mut starting) = (Resources::new(), Resources::new(), Resources::new());
    for container in containers {
        match container.lifetime {
            Lifetime::Pod => add(&mut running, amounts(container)),
            Lifetime::Sidecar => {
                add(&mut running, amounts(container));
                add(&mut sidecars, amounts(container));
                raise(&mut starting, &sidecars);
            }
            Lifetime::Init => {
                let mut own = sidecars.clone();
                add(&mut own, amounts(container));
                raise(&mut starting, &own);
            }
        }
    }
    raise(&mut running, &starting);
    running
}

fn add(total: &mut Resources, amounts: &Resources) {
    for (name, amount) in amounts {
        let sum = total.entry(name.clone()).or_default();
        // More than a quantity can say is more than any machine has, and so is the larger of both.
        *sum = sum.checked_add(*amount).unwrap_or(*amount.max(sum));
    }
}

fn raise(total: &mut Resources, other: &Resources) {
    for (name, amount) in other {
        let most = total.entry(name.clone()).or_default();
        *most = *amount.max(most);
    }
}
