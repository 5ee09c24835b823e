//! The caller's end: the services of a cloud in another process.

use std::sync::Arc;

use async_trait::async_trait;
use model::Timestamp;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use super::super::content::Content;
use super::{Answer, Asked, Request, address, receive, send};
use crate::instance_types::info::InstanceTypeInfo;
use crate::launch::fleet::FleetRequest;
use crate::launch::template::LaunchTemplate;
use crate::node_class::spec::Tags;
use crate::options::Options;
use crate::service::ec2::{
    CapacityReservation, ExistingTemplate, FleetAnswer, Image, Machine, MachineStatus, PlacementGroup, Query,
    SecurityGroup, SpotPrice, Subnet, TypeInZone,
};
use crate::service::error::classify;
use crate::service::{
    ClusterDescription, ConnectError, Connector, Ec2, Eks, Error, Iam, InstanceProfile, Kind, Message, OnDemandPrice,
    PriceList, Pricing, Services, Sqs, Ssm, Sts, ZonalShift, ZonalShifts,
};

/// Where the region of the cloud of [`sample`](super::super::sample) is.
const REGION: &str = "us-east-1";
/// The status of a refusal, which decides nothing where there is a code.
const REFUSED: u16 = 400;

/// Reaches the cloud that [`VARIABLE`](super::VARIABLE) names.
#[derive(Debug, Clone, Copy)]
pub struct Remote;

#[async_trait]
impl Connector for Remote {
    async fn connect(&self, options: &Options) -> Result<Services, ConnectError> {
        let address = address().ok_or(ConnectError::NoRegion)?;
        let caller = Arc::new(Caller { address });
        Ok(Services {
            region: REGION.to_owned(),
            ec2: Arc::clone(&caller) as _,
            iam: Arc::clone(&caller) as _,
            ssm: Arc::clone(&caller) as _,
            eks: Arc::clone(&caller) as _,
            pricing: Arc::clone(&caller) as _,
            sts: Arc::clone(&caller) as _,
            zonal_shifts: Arc::clone(&caller) as _,
            interruption_queue: options.interruption_queue.is_some().then_some(caller as _),
        })
    }
}

pub(super) struct Caller {
    pub(super) address: String,
}

impl Caller {
    async fn call<T: DeserializeOwned>(&self, call: &'static str, request: Request) -> Result<T, Error> {
        let broken = |message: String| Error { call, kind: Kind::ServerFault, code: None, message };
        let answer = self.exchange(&Asked { call: call.to_owned(), request }).await;
        match answer.map_err(|error| broken(error.to_string()))? {
            Ok(value) => serde_json::from_value(value).map_err(|error| broken(error.to_string())),
            Err(fault) => {
                let kind = classify(fault.code.as_deref(), fault.code.as_ref().map(|_| REFUSED));
                Err(Error { call, kind, code: fault.code, message: fault.message })
            }
        }
    }

    async fn exchange(&self, asked: &Asked) -> std::io::Result<Answer> {
        let stream = TcpStream::connect(&self.address).await?;
        send(&stream, asked).await?;
        Ok(serde_json::from_slice(&receive(&stream).await?)?)
    }
}

#[async_trait]
impl Ec2 for Caller {
    async fn describe_subnets(&self, query: &Query) -> Result<Vec<Subnet>, Error> {
        self.call("ec2:DescribeSubnets", Request::Subnets(query.clone())).await
    }

    async fn describe_security_groups(&self, query: &Query) -> Result<Vec<SecurityGroup>, Error> {
        self.call("ec2:DescribeSecurityGroups", Request::SecurityGroups(query.clone())).await
    }

    async fn describe_images(&self, query: &Query, owners: &[String]) -> Result<Vec<Image>, Error> {
        self.call("ec2:DescribeImages", Request::Images(query.clone(), owners.to_vec())).await
    }

    async fn describe_capacity_reservations(&self, query: &Query) -> Result<Vec<CapacityReservation>, Error> {
        self.call("ec2:DescribeCapacityReservations", Request::Reservations(query.clone())).await
    }

    async fn describe_placement_groups(&self, query: &Query) -> Result<Vec<PlacementGroup>, Error> {
        self.call("ec2:DescribePlacementGroups", Request::PlacementGroups(query.clone())).await
    }

    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeInfo>, Error> {
        self.call("ec2:DescribeInstanceTypes", Request::Types).await
    }

    async fn describe_instance_type_offerings(&self) -> Result<Vec<TypeInZone>, Error> {
        self.call("ec2:DescribeInstanceTypeOfferings", Request::TypeOfferings).await
    }

    async fn describe_spot_price_history(&self, now: Timestamp) -> Result<Vec<SpotPrice>, Error> {
        self.call("ec2:DescribeSpotPriceHistory", Request::SpotPrices(now)).await
    }

    async fn describe_instance_status(&self) -> Result<Vec<MachineStatus>, Error> {
        self.call("ec2:DescribeInstanceStatus", Request::MachineStatus).await
    }

    async fn describe_launch_templates(&self, query: &Query) -> Result<Vec<ExistingTemplate>, Error> {
        self.call("ec2:DescribeLaunchTemplates", Request::Templates(query.clone())).await
    }

    async fn create_launch_template(&self, name: &str, template: &LaunchTemplate) -> Result<(), Error> {
        let content = Box::new(Content::of(template));
        self.call("ec2:CreateLaunchTemplate", Request::CreateTemplate(name.to_owned(), content)).await
    }

    async fn delete_launch_template(&self, id: &str) -> Result<(), Error> {
        self.call("ec2:DeleteLaunchTemplate", Request::DeleteTemplate(id.to_owned())).await
    }

    async fn create_fleet(&self, request: &FleetRequest, count: usize, token: &str) -> Result<FleetAnswer, Error> {
        self.call("ec2:CreateFleet", Request::CreateFleet(request.clone(), count, token.to_owned())).await
    }

    async fn dry_run_fleet(&self, request: &FleetRequest) -> Result<(), Error> {
        self.call("ec2:CreateFleet", Request::DryRunFleet(request.clone())).await
    }

    async fn dry_run_instance(&self, template: &str, instance_type: &str, subnet_id: &str) -> Result<(), Error> {
        let [template, instance_type, subnet_id] = [template, instance_type, subnet_id].map(str::to_owned);
        self.call("ec2:RunInstances", Request::DryRunInstance(template, instance_type, subnet_id)).await
    }

    async fn describe_instances(&self, query: &Query) -> Result<Vec<Machine>, Error> {
        self.call("ec2:DescribeInstances", Request::Machines(query.clone())).await
    }

    async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<String>, Error> {
        self.call("ec2:TerminateInstances", Request::Terminate(ids.to_vec())).await
    }

    async fn reboot_instance(&self, id: &str) -> Result<(), Error> {
        self.call("ec2:RebootInstances", Request::Reboot(id.to_owned())).await
    }

    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), Error> {
        self.call("ec2:CreateTags", Request::Tag(ids.to_vec(), tags.clone())).await
    }
}

#[async_trait]
impl Ssm for Caller {
    async fn get_parameter(&self, name: &str) -> Result<String, Error> {
        self.call("ssm:GetParameter", Request::Parameter(name.to_owned())).await
    }
}

#[async_trait]
impl Iam for Caller {
    async fn get_instance_profile(&self, name: &str) -> Result<InstanceProfile, Error> {
        self.call("iam:GetInstanceProfile", Request::Profile(name.to_owned())).await
    }

    async fn list_instance_profiles(&self, path: &str) -> Result<Vec<InstanceProfile>, Error> {
        self.call("iam:ListInstanceProfiles", Request::Profiles(path.to_owned())).await
    }

    async fn create_instance_profile(&self, name: &str, path: &str, tags: &Tags) -> Result<(), Error> {
        let request = Request::CreateProfile(name.to_owned(), path.to_owned(), tags.clone());
        self.call("iam:CreateInstanceProfile", request).await
    }

    async fn tag_instance_profile(&self, name: &str, tags: &Tags) -> Result<(), Error> {
        self.call("iam:TagInstanceProfile", Request::TagProfile(name.to_owned(), tags.clone())).await
    }

    async fn add_role(&self, profile: &str, role: &str) -> Result<(), Error> {
        self.call("iam:AddRoleToInstanceProfile", Request::AddRole(profile.to_owned(), role.to_owned())).await
    }

    async fn remove_role(&self, profile: &str, role: &str) -> Result<(), Error> {
        self.call("iam:RemoveRoleFromInstanceProfile", Request::RemoveRole(profile.to_owned(), role.to_owned())).await
    }

    async fn delete_instance_profile(&self, name: &str) -> Result<(), Error> {
        self.call("iam:DeleteInstanceProfile", Request::DeleteProfile(name.to_owned())).await
    }

    async fn role_exists(&self, name: &str) -> Result<bool, Error> {
        self.call("iam:GetRole", Request::RoleExists(name.to_owned())).await
    }
}

#[async_trait]
impl Sqs for Caller {
    async fn receive(&self) -> Result<Vec<Message>, Error> {
        self.call("sqs:ReceiveMessage", Request::Receive).await
    }

    async fn delete(&self, receipt: &str) -> Result<(), Error> {
        self.call("sqs:DeleteMessage", Request::DeleteMessage(receipt.to_owned())).await
    }
}

#[async_trait]
impl Eks for Caller {
    async fn describe_cluster(&self, name: &str) -> Result<ClusterDescription, Error> {
        self.call("eks:DescribeCluster", Request::Cluster(name.to_owned())).await
    }
}

#[async_trait]
impl Pricing for Caller {
    async fn get_products(&self, region: &str, list: PriceList) -> Result<Vec<OnDemandPrice>, Error> {
        self.call("pricing:GetProducts", Request::Products(region.to_owned(), list)).await
    }
}

#[async_trait]
impl Sts for Caller {
    async fn account_id(&self) -> Result<String, Error> {
        self.call("sts:GetCallerIdentity", Request::Account).await
    }
}

#[async_trait]
impl ZonalShifts for Caller {
    async fn get_managed_resource(&self, arn: &str) -> Result<Vec<ZonalShift>, Error> {
        self.call("arc-zonal-shift:GetManagedResource", Request::ManagedResource(arn.to_owned())).await
    }
}
