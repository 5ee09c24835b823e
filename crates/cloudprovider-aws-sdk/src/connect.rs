//! Region, credentials and connections.
//!
//! Credentials are found by the SDK's own chain: variables, profile, IRSA, EKS Pod Identity, metadata service. They
//! stay in the SDK, which hides them from its own texts.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use cloudprovider_aws::options::Options;
use cloudprovider_aws::service::{ConnectError, Connector, Services, Sqs};

use crate::ec2::Ec2Client;
use crate::iam::IamClient;
use crate::others::{EksClient, SqsClient, SsmClient, StsClient, ZonalShiftClient};
use crate::pricing::PricingClient;

/// How often a call is made before it has failed. Between tries the SDK waits for a random time that doubles, and it
/// stops trying again where most calls fail.
const ATTEMPTS: u32 = 3;
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a service may be silent. It is longer than a queue lets us wait for a message.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one call may take, tries included.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// AWS by its SDK.
#[derive(Debug, Clone, Copy)]
pub struct Sdk;

#[async_trait]
impl Connector for Sdk {
    async fn connect(&self, options: &Options) -> Result<Services, ConnectError> {
        let config = configuration().await;
        let region = config.region().ok_or(ConnectError::NoRegion)?.to_string();
        let interruption_queue = match &options.interruption_queue {
            Some(name) => Some(Arc::new(SqsClient::of_queue(&config, name).await?) as Arc<dyn Sqs>),
            None => None,
        };
        Ok(Services {
            ec2: Arc::new(Ec2Client::new(&config, region.clone())),
            iam: Arc::new(IamClient::new(&config)),
            ssm: Arc::new(SsmClient::new(&config)),
            eks: Arc::new(EksClient::new(&config)),
            pricing: Arc::new(PricingClient::new(&in_region(&config, pricing_region(&region)), &region)),
            sts: Arc::new(StsClient::new(&config)),
            zonal_shifts: Arc::new(ZonalShiftClient::new(&config)),
            interruption_queue,
            region,
        })
    }
}

async fn configuration() -> SdkConfig {
    let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT)
        .build();
    aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
        .timeout_config(timeouts)
        .load()
        .await
}

fn in_region(config: &SdkConfig, region: &'static str) -> SdkConfig {
    config.to_builder().region(Region::new(region)).build()
}

/// Where the price list of a region is served; as `pkg/providers/pricing` of karpenter-provider-aws 1.15 has it.
fn pricing_region(region: &str) -> &'static str {
    match region.split_once('-').map_or(region, |(start, _)| start) {
        "ap" => "ap-south-1",
        "cn" => "cn-northwest-1",
        "eu" => "eu-central-1",
        _ => "us-east-1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_list_of_a_region_is_served_on_its_continent() {
        for (region, expected) in [
            ("us-west-2", "us-east-1"),
            ("sa-east-1", "us-east-1"),
            ("ap-southeast-2", "ap-south-1"),
            ("eu-west-1", "eu-central-1"),
            ("cn-north-1", "cn-northwest-1"),
        ] {
            assert_eq!(pricing_region(region), expected);
        }
    }
}
