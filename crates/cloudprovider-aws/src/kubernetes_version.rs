//! The cluster's version of Kubernetes. It changes while the controller runs, and the images of aliases with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;

use crate::discovery::findings::MinorVersion;
use crate::service::Eks;
use crate::telemetry::Metrics;

/// Tells the version.
#[async_trait]
pub trait VersionSource: Send + Sync {
    /// The version, such as `1.33` or `v1.33.1-eks-abc`.
    ///
    /// # Errors
    /// Why it is not told.
    async fn version(&self) -> Result<String, String>;
}

/// EKS, of a cluster.
pub struct OfEks {
    /// EKS.
    pub eks: Arc<dyn Eks>,
    /// The cluster's name.
    pub cluster: String,
    /// Counts calls that fail.
    pub metrics: Metrics,
}

impl std::fmt::Debug for OfEks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfEks").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

#[async_trait]
impl VersionSource for OfEks {
    async fn version(&self) -> Result<String, String> {
        let description = self.eks.describe_cluster(&self.cluster).await.map_err(|error| {
            self.metrics.call_failed(&error);
            error.to_string()
        })?;
        Ok(description.version)
    }
}

/// The version as it was told last. Clones are the same one.
#[derive(Debug, Clone)]
pub struct KubernetesVersion(Arc<AtomicU32>);

impl KubernetesVersion {
    /// One that was told.
    pub fn new(MinorVersion(minor): MinorVersion) -> Self {
        Self(Arc::new(AtomicU32::new(minor)))
    }

    /// The version.
    pub fn get(&self) -> MinorVersion {
        MinorVersion(self.0.load(Ordering::Relaxed))
    }

    /// Asks for the version; gives it if it is another one.
    ///
    /// # Errors
    /// If it is not told, or is none. What was told before still counts.
    pub async fn refresh(&self, source: &dyn VersionSource) -> Result<Option<MinorVersion>, String> {
        let text = source.version().await?;
        let told = MinorVersion::parse(&text).ok_or_else(|| format!("{text:?} is none"))?;
        let before = self.0.swap(told.0, Ordering::Relaxed);
        Ok((told.0 != before).then_some(told))
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::memory::{VirtualClock, sample};
    use crate::service::ClusterDescription;

    #[test]
    fn the_version_follows_the_cluster_and_stays_where_none_is_told() {
        let cloud = sample("c", VirtualClock::default().clock());
        let source = OfEks { eks: Arc::new(cloud.clone()), cluster: "c".to_owned(), metrics: Metrics::default() };
        let set = |version: &str| {
            let description = block_on(cloud.describe_cluster("c")).unwrap();
            cloud.add_cluster("c", ClusterDescription { version: version.to_owned(), ..description });
        };
        let version = KubernetesVersion::new(MinorVersion(33));
        let kept = version.clone();
        assert_eq!(block_on(version.refresh(&source)), Ok(None));
        set("1.34");
        assert_eq!(block_on(version.refresh(&source)), Ok(Some(MinorVersion(34))));
        set("newest");
        assert_eq!(block_on(version.refresh(&source)), Err("\"newest\" is none".to_owned()));
        cloud.refuse("eks:DescribeCluster", "AccessDeniedException", "no");
        let error = block_on(version.refresh(&source)).unwrap_err();
        assert_eq!(error, "eks:DescribeCluster: AccessDeniedException: no");
        assert_eq!(kept.get(), MinorVersion(34));
    }
}
