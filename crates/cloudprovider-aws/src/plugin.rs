//! The provider as the binary's table lists it.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use async_trait::async_trait;
use cloudprovider::Declaration;
use cloudprovider_plugin::{BuildError, Provider, ProviderPlugin, Setup};
use futures::FutureExt as _;
use kube::{Client, Config};
use tracing::{info, warn};

use crate::api_cluster::ApiCluster;
use crate::background::Background;
use crate::background::interruptions::Watch;
use crate::background::zonal_shift::ShiftWatch;
use crate::cluster_facts::{Facts, Told};
use crate::kubernetes_version::{KubernetesVersion, OfEks, VersionSource};
use crate::options::Options;
use crate::provider::Ec2CloudProvider;
use crate::provider::cluster::Cluster;
use crate::provider::offerings::Offerings;
use crate::reconcile::{NodeClassReconciler, Settings};
use crate::service::{Connector, Services};
use crate::telemetry::{Metrics, Telemetry};
use crate::{DECLARATION, provider, reconcile};

/// The provider for EC2.
#[derive(Debug, Clone, Copy)]
pub struct AwsPlugin {
    /// Reaches AWS; none in a build without the SDK, which plans for EC2 and launches nothing.
    pub connector: Option<&'static dyn Connector>,
}

impl AwsPlugin {
    /// The way to AWS, or to what stands in for it in tests.
    fn connector(&self) -> Option<&'static dyn Connector> {
        #[cfg(feature = "stand-in")]
        if self.connector.is_none() && crate::memory::wire::address().is_some() {
            return Some(&crate::memory::wire::Remote);
        }
        self.connector
    }
}

#[async_trait]
impl ProviderPlugin for AwsPlugin {
    fn declaration(&self) -> &'static Declaration {
        &DECLARATION
    }

    /// Connects, after the options are checked, so that a wrong one is told first; then asks about the cluster and the
    /// region, so that what is missing is told before anything runs.
    async fn build(&self, setup: Setup<'_>) -> Result<Provider, BuildError> {
        let options =
            Options::new(setup.options).map_err(|error| BuildError::new("options of the provider aws", error))?;
        let Some(connector) = self.connector() else {
            let why = "this build plans for EC2 offline only, it cannot launch machines there";
            return Err(BuildError::new("provider aws", why));
        };
        if !options.unknown_gates.is_empty() {
            warn!(gates = options.unknown_gates.join(","), "feature gates of the provider that nobody knows");
        }
        let services = connector.connect(&options).await.map_err(|error| BuildError::new("provider aws", error))?;
        let facts = facts(&options, &services, &setup.client).await?;
        let kubernetes = KubernetesVersion::new(facts.kubernetes);
        let metrics = Metrics::register(setup.metrics.sub_registry_with_prefix("karpenter"));
        metrics.register_own(setup.metrics.sub_registry_with_prefix("dovetail"));
        let version_source = version_source(&options, &services, &setup.client, &metrics);
        let namespace = options.records_namespace.clone().unwrap_or(setup.namespace);
        info!(
            region = services.region,
            cluster = facts.cluster.name,
            endpoint = facts.cluster.endpoint,
            kubernetes = format!("1.{}", facts.kubernetes.0),
            namespace,
            "launching machines of EC2"
        );
        let seed = RandomState::new().hash_one(std::process::id());
        let objects = Arc::new(ApiCluster::new(setup.client, &namespace));
        let provider = Ec2CloudProvider::new(provider::Setup {
            ec2: Arc::clone(&services.ec2),
            objects: Arc::clone(&objects) as _,
            cluster: facts.cluster.clone(),
            region: services.region.clone(),
            machines: options.machines,
            clock: Arc::clone(&setup.clock),
            seed,
            telemetry: Telemetry { metrics, events: setup.events },
        });
        let offerings = Box::new(Offerings(provider.clone()));
        setup.metrics.sub_registry_with_prefix("karpenter").register_collector(offerings);
        let unusable = |error| BuildError::new(format!("EC2 of region {} cannot be used", services.region), error);
        provider.probe().await.map_err(unusable)?;
        let shifts = match options.zonal_shift {
            true => Some(watch_shifts(&provider, &services, facts.arn.clone(), Arc::clone(&objects) as _).await?),
            false => None,
        };
        let reconciler = NodeClassReconciler::new(reconcile::Setup {
            provider: provider.clone(),
            ec2: Arc::clone(&services.ec2),
            ssm: services.ssm,
            iam: services.iam,
            objects: Arc::clone(&objects) as _,
            clock: Arc::clone(&setup.clock),
            settings: Settings {
                cluster: facts.cluster,
                region: services.region,
                kubernetes: kubernetes.clone(),
                reserved_capacity: setup.reserved_capacity,
                isolated_vpc: options.isolated_vpc,
                disable_dry_run: options.disable_dry_run,
            },
        });
        let background = Background {
            provider: provider.clone(),
            shifts,
            reconciler,
            objects: Arc::clone(&objects) as _,
            watch: Watch {
                provider: provider.clone(),
                ec2: services.ec2,
                queue: services.interruption_queue,
                objects,
                clock: Arc::clone(&setup.clock),
            },
            kubernetes,
            version_source,
            pricing: (!options.isolated_vpc).then_some(services.pricing),
            clock: setup.clock,
            seed,
        };
        let background = Box::new(move |stop| background.run(stop).boxed());
        Ok(Provider { cloud: Arc::new(provider), background: Some(background) })
    }
}

/// What watches for zonal shifts, with those that there are now: nothing is to be launched before they are known.
async fn watch_shifts(
    provider: &Ec2CloudProvider,
    services: &Services,
    cluster_arn: Option<String>,
    objects: Arc<dyn Cluster>,
) -> Result<ShiftWatch, BuildError> {
    let what = || "--enable-zonal-shift".to_owned();
    let cluster_arn = cluster_arn.ok_or_else(|| BuildError::new(what(), "EKS does not tell the cluster's ARN"))?;
    let shifts = Arc::clone(&services.zonal_shifts);
    let found = shifts.get_managed_resource(&cluster_arn).await.map_err(|error| BuildError::new(what(), error))?;
    provider.take_zonal_shifts(found);
    Ok(ShiftWatch { provider: provider.clone(), shifts, cluster_arn, objects })
}

/// The API server, of its own version.
struct ApiServer(Client);

#[async_trait]
impl VersionSource for ApiServer {
    async fn version(&self) -> Result<String, String> {
        self.0.apiserver_version().await.map(|it| it.git_version).map_err(|error| error.to_string())
    }
}

/// Who tells the version of Kubernetes, as the options say.
fn version_source(
    options: &Options,
    services: &Services,
    client: &Client,
    metrics: &Metrics,
) -> Box<dyn VersionSource> {
    if options.eks_control_plane {
        let (cluster, metrics) = (options.cluster_name.clone(), metrics.clone());
        Box::new(OfEks { eks: Arc::clone(&services.eks), cluster, metrics })
    } else {
        Box::new(ApiServer(client.clone()))
    }
}

/// Asks EKS and the API server about the cluster.
async fn facts(options: &Options, services: &Services, client: &Client) -> Result<Facts, BuildError> {
    let eks = services.eks.describe_cluster(&options.cluster_name).await;
    if let Err(error) = &eks {
        warn!(cluster = options.cluster_name, %error, "EKS does not tell about the cluster");
    }
    let server_version = ApiServer(client.clone()).version().await;
    // The client was made of the same configuration, which it does not show.
    let certificates = Config::infer().await.ok().and_then(|config| config.root_cert).unwrap_or_default();
    Facts::new(options, Told { eks, server_version, certificates })
        .map_err(|error| BuildError::new(format!("cluster {}", options.cluster_name), error))
}
