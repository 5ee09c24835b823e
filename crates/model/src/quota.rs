//! ResourceQuotas: the parts that decide whether ResourceClaims are made.

use std::sync::Arc;

use crate::names::NamespacedName;

/// A ResourceQuota, as far as it limits ResourceClaims of its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceQuota {
    /// Namespace and name.
    pub name: NamespacedName,
    /// What it limits, in the order of the resources' names; nothing for most.
    pub limits: Vec<QuotaLimit>,
}

/// One entry of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaLimit {
    /// What is counted.
    pub resource: QuotaResource,
    /// So many at most.
    pub hard: i64,
    /// So many there are, as the quota's status says; `None` where it has none.
    pub used: Option<i64>,
}

/// What a quota counts of claims.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuotaResource {
    /// `count/resourceclaims.resource.k8s.io`: the claims.
    Claims,
    /// `<class>.deviceclass.resource.k8s.io/devices`: the devices of a class that they ask for.
    Devices(Arc<str>),
    /// `requests.<name>` of an extended resource: the devices of the class that serves it, which pods ask for too.
    Extended(Arc<str>),
}
