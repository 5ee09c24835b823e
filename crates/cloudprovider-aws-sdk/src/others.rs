//! Services of which one call or two are made.

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_arczonalshift::types::{AppliedStatus, AutoshiftAppliedStatus};
use cloudprovider_aws::service::{ClusterDescription, Eks, Error, Message, Sqs, Ssm, Sts, ZonalShift, ZonalShifts};

use crate::ec2::timestamp;
use crate::fault::{fault, incomplete};

/// Systems Manager by the SDK.
#[derive(Debug)]
pub(crate) struct SsmClient(aws_sdk_ssm::Client);

impl SsmClient {
    pub(crate) fn new(config: &SdkConfig) -> Self {
        Self(aws_sdk_ssm::Client::new(config))
    }
}

#[async_trait]
impl Ssm for SsmClient {
    async fn get_parameter(&self, name: &str) -> Result<String, Error> {
        const CALL: &str = "ssm:GetParameter";
        let answer = self.0.get_parameter().name(name).send().await.map_err(|error| fault(CALL, &error))?;
        let value = answer.parameter().and_then(|parameter| parameter.value());
        value.map(str::to_owned).ok_or_else(|| incomplete(CALL, "value"))
    }
}

/// How many messages are received at a time; a queue gives no more.
const MESSAGES: i32 = 10;
/// How long a queue waits for the first message, and hides the messages that it gives.
const WAIT_SECONDS: i32 = 20;

/// One queue of Simple Queue Service by the SDK.
#[derive(Debug)]
pub(crate) struct SqsClient {
    client: aws_sdk_sqs::Client,
    url: String,
}

impl SqsClient {
    /// The queue of a name, in our account.
    pub(crate) async fn of_queue(config: &SdkConfig, name: &str) -> Result<Self, Error> {
        const CALL: &str = "sqs:GetQueueUrl";
        let client = aws_sdk_sqs::Client::new(config);
        let answer = client.get_queue_url().queue_name(name).send().await.map_err(|error| fault(CALL, &error))?;
        let url = answer.queue_url().ok_or_else(|| incomplete(CALL, "URL"))?.to_owned();
        Ok(Self { client, url })
    }
}

#[async_trait]
impl Sqs for SqsClient {
    async fn receive(&self) -> Result<Vec<Message>, Error> {
        let call = self.client.receive_message().queue_url(&self.url).max_number_of_messages(MESSAGES);
        let call = call.wait_time_seconds(WAIT_SECONDS).visibility_timeout(WAIT_SECONDS);
        let answer = call.send().await.map_err(|error| fault("sqs:ReceiveMessage", &error))?;
        // A message without receipt could not be deleted, and one without text says nothing.
        let message = |message: &aws_sdk_sqs::types::Message| {
            Some(Message { receipt: message.receipt_handle()?.to_owned(), body: message.body()?.to_owned() })
        };
        Ok(answer.messages().iter().filter_map(message).collect())
    }

    async fn delete(&self, receipt: &str) -> Result<(), Error> {
        let call = self.client.delete_message().queue_url(&self.url).receipt_handle(receipt);
        call.send().await.map(drop).map_err(|error| fault("sqs:DeleteMessage", &error))
    }
}

/// EKS by the SDK.
#[derive(Debug)]
pub(crate) struct EksClient(aws_sdk_eks::Client);

impl EksClient {
    pub(crate) fn new(config: &SdkConfig) -> Self {
        Self(aws_sdk_eks::Client::new(config))
    }
}

#[async_trait]
impl Eks for EksClient {
    async fn describe_cluster(&self, name: &str) -> Result<ClusterDescription, Error> {
        const CALL: &str = "eks:DescribeCluster";
        let answer = self.0.describe_cluster().name(name).send().await.map_err(|error| fault(CALL, &error))?;
        let cluster = answer.cluster().ok_or_else(|| incomplete(CALL, "cluster"))?;
        let network = cluster.kubernetes_network_config();
        let text = |text: Option<&str>| text.filter(|it| !it.is_empty()).map(str::to_owned);
        Ok(ClusterDescription {
            arn: text(cluster.arn()),
            endpoint: text(cluster.endpoint()).ok_or_else(|| incomplete(CALL, "endpoint"))?,
            version: text(cluster.version()).ok_or_else(|| incomplete(CALL, "version"))?,
            service_ipv4_cidr: network.and_then(|network| text(network.service_ipv4_cidr())),
            service_ipv6_cidr: network.and_then(|network| text(network.service_ipv6_cidr())),
        })
    }
}

/// Security Token Service by the SDK.
#[derive(Debug)]
pub(crate) struct StsClient(aws_sdk_sts::Client);

impl StsClient {
    pub(crate) fn new(config: &SdkConfig) -> Self {
        Self(aws_sdk_sts::Client::new(config))
    }
}

#[async_trait]
impl Sts for StsClient {
    async fn account_id(&self) -> Result<String, Error> {
        const CALL: &str = "sts:GetCallerIdentity";
        let answer = self.0.get_caller_identity().send().await.map_err(|error| fault(CALL, &error))?;
        answer.account().map(str::to_owned).ok_or_else(|| incomplete(CALL, "account"))
    }
}

/// Application Recovery Controller by the SDK.
#[derive(Debug)]
pub(crate) struct ZonalShiftClient(aws_sdk_arczonalshift::Client);

impl ZonalShiftClient {
    pub(crate) fn new(config: &SdkConfig) -> Self {
        Self(aws_sdk_arczonalshift::Client::new(config))
    }
}

#[async_trait]
impl ZonalShifts for ZonalShiftClient {
    async fn get_managed_resource(&self, arn: &str) -> Result<Vec<ZonalShift>, Error> {
        const CALL: &str = "arc-zonal-shift:GetManagedResource";
        let call = self.0.get_managed_resource().resource_identifier(arn);
        let answer = call.send().await.map_err(|error| fault(CALL, &error))?;
        let of_users = answer.zonal_shifts().iter().filter(|it| *it.applied_status() == AppliedStatus::Applied);
        let of_users =
            of_users.map(|it| ZonalShift { zone_id: it.away_from().to_owned(), ends_at: timestamp(it.expiry_time()) });
        let of_aws = answer.autoshifts().iter().filter(|it| *it.applied_status() == AutoshiftAppliedStatus::Applied);
        let of_aws = of_aws.map(|it| ZonalShift { zone_id: it.away_from().to_owned(), ends_at: None });
        Ok(of_users.chain(of_aws).collect())
    }
}
