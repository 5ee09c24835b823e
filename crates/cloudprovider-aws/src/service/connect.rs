//! How the services are reached, for whoever makes the provider. The SDK is behind [`Connector`].

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Ec2, Eks, Error, Iam, Pricing, Sqs, Ssm, Sts, ZonalShifts};
use crate::options::Options;

/// All services, as one account sees them in one region.
#[derive(Clone)]
pub struct Services {
    /// The region's name.
    pub region: String,
    /// EC2.
    pub ec2: Arc<dyn Ec2>,
    /// Identity and Access Management.
    pub iam: Arc<dyn Iam>,
    /// Systems Manager.
    pub ssm: Arc<dyn Ssm>,
    /// EKS.
    pub eks: Arc<dyn Eks>,
    /// Pricing.
    pub pricing: Arc<dyn Pricing>,
    /// Security Token Service.
    pub sts: Arc<dyn Sts>,
    /// Application Recovery Controller.
    pub zonal_shifts: Arc<dyn ZonalShifts>,
    /// The queue that tells of interruptions, if the options name one.
    pub interruption_queue: Option<Arc<dyn Sqs>>,
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_queue = self.interruption_queue.is_some();
        f.debug_struct("Services").field("region", &self.region).field("has_queue", &has_queue).finish_non_exhaustive()
    }
}

/// Reaches AWS.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync {
    /// Finds region and credentials, and the interruption queue if the options name one.
    ///
    /// # Errors
    /// If there is no region, no way to make connections, or no such queue.
    async fn connect(&self, options: &Options) -> Result<Services, ConnectError>;
}

/// Why AWS cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody says which region.
    #[error("no region: set AWS_REGION, or give the machine of this process access to its metadata service")]
    NoRegion,
    /// No connection can be made.
    #[error("no connections can be made: {0}")]
    NoClient(String),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] Error),
}
