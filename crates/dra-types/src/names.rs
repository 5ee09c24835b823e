//! Names of drivers, pools, devices and what belongs to them.
//!
//! Shared strings in newtypes; their order is the byte order of the text, which is upstream's order of pools. Reading
//! never checks their form, [`super::validate`] does.

use std::fmt;

use model::define_name;

define_name! {
    /// The name of a DRA driver, `gpu.nvidia.com`.
    DriverName
    /// The name of a pool inside of its driver.
    PoolName
    /// The name of a device inside of its pool.
    DeviceName
    /// The name of a DeviceClass.
    DeviceClassName
    /// The name of a request of a claim, or of a subrequest inside of its request. A reference from a constraint,
    /// configuration or result may be `request/subrequest`, see [`RequestName::split`].
    RequestName
    /// The name of a counter set inside of its pool.
    CounterSetName
    /// The name of a counter inside of its set.
    CounterName
    /// The key of an attribute or capacity: `model` or `gpu.nvidia.com/model`.
    QualifiedName
}

impl RequestName {
    /// Both parts of `request/subrequest`; the second is None for a plain request.
    pub fn split(&self) -> (&str, Option<&str>) {
        match self.0.split_once('/') {
            Some((request, subrequest)) => (request, Some(subrequest)),
            None => (&self.0, None),
        }
    }
}

impl QualifiedName {
    /// The domain, if one is written.
    pub fn domain(&self) -> Option<&str> {
        self.0.split_once('/').map(|(domain, _)| domain)
    }

    /// The part after the domain.
    pub fn id(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, id)| id)
    }

    /// Domain and id, where a name without domain belongs to the driver's.
    pub fn resolve<'a>(&'a self, driver: &'a DriverName) -> (&'a str, &'a str) {
        self.0.split_once('/').unwrap_or((driver.as_str(), &self.0))
    }
}

/// A pool of the cluster. Ordered by driver, then pool, which is the order in which upstream looks at pools.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    /// Its driver.
    pub driver: DriverName,
    /// Its name.
    pub pool: PoolName,
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.driver, self.pool)
    }
}

/// A device of the cluster, as results and allocated state name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// Its driver.
    pub driver: DriverName,
    /// Its pool.
    pub pool: PoolName,
    /// Its name.
    pub device: DeviceName,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}
