//! Services that write down what IAM is asked for each call, and are those of a cloud in memory otherwise.
//!
//! Which resources IAM looks at for a call, and which tags, is in the service authorization reference of each service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{ACCOUNT, CLUSTER, REGION};
use crate::instance_types::info::InstanceTypeInfo;
use crate::launch::fleet::{FleetRequest, Purchase};
use crate::launch::template::{LaunchTemplate, Market};
use crate::memory::Cloud;
use crate::node_class::spec::Tags;
use crate::service::ec2::{
    CapacityReservation, Ec2, ExistingTemplate, Filter, FleetAnswer, Image, Machine, MachineStatus, PlacementGroup,
    Query, SecurityGroup, SpotPrice, Subnet, TypeInZone,
};
use crate::service::{
    ClusterDescription, Eks, Error, Iam, InstanceProfile, Message, OnDemandPrice, PriceList, Pricing, Sqs, Ssm,
    ZonalShift, ZonalShifts,
};
use model::Timestamp;

/// What IAM is asked: whether an action may be done with a resource, by a request with these keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ask {
    pub(super) action: &'static str,
    pub(super) resource: String,
    pub(super) context: BTreeMap<String, Vec<String>>,
}

/// See the [module](self).
#[derive(Clone)]
pub(super) struct Recorder {
    cloud: Cloud,
    asks: Arc<Mutex<BTreeSet<Ask>>>,
    /// What was put into launch templates, by name.
    templates: Arc<Mutex<BTreeMap<String, LaunchTemplate>>>,
}

type Context = Vec<(String, Vec<String>)>;

fn request_tags(tags: &Tags) -> Context {
    let tag = |(key, value): (&String, &String)| (format!("aws:RequestTag/{key}"), vec![value.clone()]);
    tags.iter().map(tag).chain([("aws:TagKeys".to_owned(), tags.keys().cloned().collect())]).collect()
}

fn resource_tags(tags: &Tags) -> Context {
    tags.iter().map(|(key, value)| (format!("aws:ResourceTag/{key}"), vec![value.clone()])).collect()
}

fn of_ec2(kind: &str, id: &str) -> String {
    // Images and snapshots may be anybody's.
    let account = if matches!(kind, "image" | "snapshot") { "" } else { ACCOUNT };
    format!("arn:aws:ec2:{REGION}:{account}:{kind}/{id}")
}

fn of_iam(kind: &str, name: &str) -> String {
    format!("arn:aws:iam::{ACCOUNT}:{kind}/{name}")
}

impl Recorder {
    pub(super) fn new(cloud: Cloud) -> Self {
        Self { cloud, asks: Arc::default(), templates: Arc::default() }
    }

    pub(super) fn asks(&self) -> BTreeSet<Ask> {
        self.asks.lock().clone()
    }

    fn ask(&self, action: &'static str, resource: impl Into<String>, context: Context) {
        let mut context: BTreeMap<_, _> = context.into_iter().collect();
        context.insert("aws:RequestedRegion".to_owned(), vec![REGION.to_owned()]);
        self.asks.lock().insert(Ask { action, resource: resource.into(), context });
    }

    /// The queue of interruptions is looked for by its name, as the adapter does when it connects.
    pub(super) fn connect(&self) {
        self.of_queue("sqs:GetQueueUrl");
    }

    /// A call about the queue of interruptions, which is named after the cluster.
    fn of_queue(&self, action: &'static str) {
        self.ask(action, format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{CLUSTER}"), Context::new());
    }

    /// A call that reads and is about nothing in particular.
    fn read(&self, action: &'static str) {
        self.ask(action, "*", Context::new());
    }

    /// The creation of something with tags, which takes the right to tag it as well.
    fn create(&self, action: &'static str, kind: &str, tags: &Tags) {
        let resource = of_ec2(kind, "*");
        self.ask(action, resource.clone(), request_tags(tags));
        let by = ("ec2:CreateAction".to_owned(), vec![action.trim_start_matches("ec2:").to_owned()]);
        self.ask("ec2:CreateTags", resource, request_tags(tags).into_iter().chain([by]).collect());
    }

    /// What a launch template makes of a launch.
    async fn launch(&self, name: &str, subnet: Option<&str>) {
        let Some(template) = self.templates.lock().get(name).cloned() else { return };
        let mut used = vec![
            ("launch-template", name.to_owned(), resource_tags(&template.tags)),
            ("image", template.image_id.clone(), Context::new()),
            ("snapshot", "of-the-image".to_owned(), Context::new()),
        ];
        let mut bare = |kind, id: &str| used.push((kind, id.to_owned(), Context::new()));
        subnet.into_iter().for_each(|id| bare("subnet", id));
        let groups = template.network_interfaces.iter().flat_map(|interface| &interface.security_groups);
        groups.for_each(|id| bare("security-group", id));
        template.placement.group_id.iter().for_each(|id| bare("placement-group", id));
        if let Market::Reservation(id) | Market::InterruptibleReservation(id) | Market::CapacityBlock(id) =
            &template.market
        {
            bare("capacity-reservation", id);
        }
        for (kind, id, context) in used {
            for action in ["ec2:CreateFleet", "ec2:RunInstances"] {
                self.ask(action, of_ec2(kind, &id), context.clone());
            }
        }
        self.create("ec2:RunInstances", "network-interface", &template.tags);
        let profile = self.cloud.get_instance_profile(&template.instance_profile).await.unwrap();
        let service = ("iam:PassedToService".to_owned(), vec!["ec2.amazonaws.com".to_owned()]);
        self.ask("iam:PassRole", of_iam("role", &profile.role.unwrap()), vec![service]);
    }

    async fn fleet(&self, request: &FleetRequest) {
        self.create("ec2:CreateFleet", "fleet", &request.tags);
        for kind in ["instance", "volume"] {
            self.create("ec2:RunInstances", kind, &request.tags);
        }
        if matches!(request.purchase, Purchase::Spot(_)) {
            self.create("ec2:RunInstances", "spot-instances-request", &request.tags);
        }
        for config in &request.configs {
            for candidate in &config.overrides {
                self.launch(&config.launch_template, candidate.subnet_id.as_deref()).await;
            }
        }
    }

    /// A change of machines.
    async fn change(&self, action: &'static str, ids: &[String], context: Context) {
        for id in ids {
            let by_id = Query { filters: vec![Filter::new("instance-id", id)], ..Query::default() };
            let machines = self.cloud.describe_instances(&by_id).await.unwrap();
            let tags = machines.first().map(|machine| resource_tags(&machine.tags)).unwrap_or_default();
            self.ask(action, of_ec2("instance", id), tags.into_iter().chain(context.clone()).collect());
        }
    }

    /// A call about an instance profile that is there.
    async fn profile(&self, action: &'static str, name: &str) {
        let tags = self.cloud.get_instance_profile(name).await.map(|it| resource_tags(&it.tags)).unwrap_or_default();
        self.ask(action, of_iam("instance-profile", name), tags);
    }
}

#[async_trait]
impl Ec2 for Recorder {
    async fn describe_subnets(&self, query: &Query) -> Result<Vec<Subnet>, Error> {
        self.read("ec2:DescribeSubnets");
        self.cloud.describe_subnets(query).await
    }

    async fn describe_security_groups(&self, query: &Query) -> Result<Vec<SecurityGroup>, Error> {
        self.read("ec2:DescribeSecurityGroups");
        self.cloud.describe_security_groups(query).await
    }

    async fn describe_images(&self, query: &Query, owners: &[String]) -> Result<Vec<Image>, Error> {
        self.read("ec2:DescribeImages");
        self.cloud.describe_images(query, owners).await
    }

    async fn describe_capacity_reservations(&self, query: &Query) -> Result<Vec<CapacityReservation>, Error> {
        self.read("ec2:DescribeCapacityReservations");
        self.cloud.describe_capacity_reservations(query).await
    }

    async fn describe_placement_groups(&self, query: &Query) -> Result<Vec<PlacementGroup>, Error> {
        self.read("ec2:DescribePlacementGroups");
        self.cloud.describe_placement_groups(query).await
    }

    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeInfo>, Error> {
        self.read("ec2:DescribeInstanceTypes");
        self.cloud.describe_instance_types().await
    }

    async fn describe_instance_type_offerings(&self) -> Result<Vec<TypeInZone>, Error> {
        self.read("ec2:DescribeInstanceTypeOfferings");
        self.cloud.describe_instance_type_offerings().await
    }

    async fn describe_spot_price_history(&self, now: Timestamp) -> Result<Vec<SpotPrice>, Error> {
        self.read("ec2:DescribeSpotPriceHistory");
        self.cloud.describe_spot_price_history(now).await
    }

    async fn describe_instance_status(&self) -> Result<Vec<MachineStatus>, Error> {
        self.read("ec2:DescribeInstanceStatus");
        self.cloud.describe_instance_status().await
    }

    async fn describe_launch_templates(&self, query: &Query) -> Result<Vec<ExistingTemplate>, Error> {
        self.read("ec2:DescribeLaunchTemplates");
        self.cloud.describe_launch_templates(query).await
    }

    async fn create_launch_template(&self, name: &str, template: &LaunchTemplate) -> Result<(), Error> {
        self.create("ec2:CreateLaunchTemplate", "launch-template", &template.tags);
        self.templates.lock().insert(name.to_owned(), template.clone());
        self.cloud.create_launch_template(name, template).await
    }

    async fn delete_launch_template(&self, id: &str) -> Result<(), Error> {
        let all = self.cloud.describe_launch_templates(&Query::default()).await?;
        let tags = all.iter().find(|template| template.id == id).map(|it| resource_tags(&it.tags));
        self.ask("ec2:DeleteLaunchTemplate", of_ec2("launch-template", id), tags.unwrap_or_default());
        self.cloud.delete_launch_template(id).await
    }

    async fn create_fleet(&self, request: &FleetRequest, count: usize, token: &str) -> Result<FleetAnswer, Error> {
        self.fleet(request).await;
        self.cloud.create_fleet(request, count, token).await
    }

    async fn dry_run_fleet(&self, request: &FleetRequest) -> Result<(), Error> {
        self.fleet(request).await;
        self.cloud.dry_run_fleet(request).await
    }

    async fn dry_run_instance(&self, template: &str, instance_type: &str, subnet_id: &str) -> Result<(), Error> {
        self.launch(template, Some(subnet_id)).await;
        self.cloud.dry_run_instance(template, instance_type, subnet_id).await
    }

    async fn describe_instances(&self, query: &Query) -> Result<Vec<Machine>, Error> {
        self.read("ec2:DescribeInstances");
        self.cloud.describe_instances(query).await
    }

    async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<String>, Error> {
        self.change("ec2:TerminateInstances", ids, Context::new()).await;
        self.cloud.terminate_instances(ids).await
    }

    async fn reboot_instance(&self, id: &str) -> Result<(), Error> {
        self.change("ec2:RebootInstances", &[id.to_owned()], Context::new()).await;
        self.cloud.reboot_instance(id).await
    }

    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), Error> {
        self.change("ec2:CreateTags", ids, request_tags(tags)).await;
        self.cloud.create_tags(ids, tags).await
    }
}

#[async_trait]
impl Iam for Recorder {
    async fn get_instance_profile(&self, name: &str) -> Result<InstanceProfile, Error> {
        self.ask("iam:GetInstanceProfile", of_iam("instance-profile", name), Context::new());
        self.cloud.get_instance_profile(name).await
    }

    async fn list_instance_profiles(&self, path: &str) -> Result<Vec<InstanceProfile>, Error> {
        self.read("iam:ListInstanceProfiles");
        self.cloud.list_instance_profiles(path).await
    }

    async fn create_instance_profile(&self, name: &str, path: &str, tags: &Tags) -> Result<(), Error> {
        // One that is created with tags is tagged.
        for action in ["iam:CreateInstanceProfile", "iam:TagInstanceProfile"] {
            self.ask(action, of_iam("instance-profile", &format!("{}{name}", &path[1..])), request_tags(tags));
        }
        self.cloud.create_instance_profile(name, path, tags).await
    }

    async fn tag_instance_profile(&self, name: &str, tags: &Tags) -> Result<(), Error> {
        self.ask("iam:TagInstanceProfile", of_iam("instance-profile", name), request_tags(tags));
        self.cloud.tag_instance_profile(name, tags).await
    }

    async fn add_role(&self, profile: &str, role: &str) -> Result<(), Error> {
        self.profile("iam:AddRoleToInstanceProfile", profile).await;
        // IAM itself is not the service that the role is for: EC2 is.
        let service = ("iam:PassedToService".to_owned(), vec!["ec2.amazonaws.com".to_owned()]);
        self.ask("iam:PassRole", of_iam("role", role), vec![service]);
        self.cloud.add_role(profile, role).await
    }

    async fn remove_role(&self, profile: &str, role: &str) -> Result<(), Error> {
        self.profile("iam:RemoveRoleFromInstanceProfile", profile).await;
        self.cloud.remove_role(profile, role).await
    }

    async fn delete_instance_profile(&self, name: &str) -> Result<(), Error> {
        self.profile("iam:DeleteInstanceProfile", name).await;
        self.cloud.delete_instance_profile(name).await
    }

    async fn role_exists(&self, name: &str) -> Result<bool, Error> {
        self.ask("iam:GetRole", of_iam("role", name), Context::new());
        self.cloud.role_exists(name).await
    }
}

#[async_trait]
impl Ssm for Recorder {
    async fn get_parameter(&self, name: &str) -> Result<String, Error> {
        self.ask("ssm:GetParameter", format!("arn:aws:ssm:{REGION}::parameter{name}"), Context::new());
        self.cloud.get_parameter(name).await
    }
}

#[async_trait]
impl Pricing for Recorder {
    async fn get_products(&self, region: &str, list: PriceList) -> Result<Vec<OnDemandPrice>, Error> {
        self.read("pricing:GetProducts");
        self.cloud.get_products(region, list).await
    }
}

#[async_trait]
impl Sqs for Recorder {
    async fn receive(&self) -> Result<Vec<Message>, Error> {
        self.of_queue("sqs:ReceiveMessage");
        self.cloud.receive().await
    }

    async fn delete(&self, receipt: &str) -> Result<(), Error> {
        self.of_queue("sqs:DeleteMessage");
        self.cloud.delete(receipt).await
    }
}

#[async_trait]
impl Eks for Recorder {
    async fn describe_cluster(&self, name: &str) -> Result<ClusterDescription, Error> {
        self.ask("eks:DescribeCluster", format!("arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{name}"), Context::new());
        self.cloud.describe_cluster(name).await
    }
}

#[async_trait]
impl ZonalShifts for Recorder {
    async fn get_managed_resource(&self, arn: &str) -> Result<Vec<ZonalShift>, Error> {
        let of_cluster = ("arc-zonal-shift:ResourceIdentifier".to_owned(), vec![arn.to_owned()]);
        self.ask("arc-zonal-shift:GetManagedResource", "*", vec![of_cluster]);
        self.cloud.get_managed_resource(arn).await
    }
}
