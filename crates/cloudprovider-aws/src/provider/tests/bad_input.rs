//! What is wrong in what others say: something that people look at names it, and everything else goes on.

use std::collections::BTreeSet;

use expect_test::expect;
use prometheus_client::registry::Registry;

use super::launches::{create, of_type, on_demand};
use super::permissions::{calls_of_adapter, settings, watches, world};
use super::*;
use crate::kubernetes_version::{OfEks, VersionSource as _};
use crate::reconcile::{self, NodeClassReconciler};
use crate::telemetry::Metrics;

/// From the start until nothing is left, as far as things go.
struct Story {
    world: World,
    registry: Registry,
    /// Where something was told of, and what.
    told: Vec<(&'static str, String)>,
    has_launched: bool,
}

impl Story {
    /// One in which the role lacks the right to make a call.
    fn without_right(call: &'static str) -> Self {
        let (mut world, mut registry) = (world(), Registry::default());
        let metrics = Metrics::register(registry.sub_registry_with_prefix("karpenter"));
        metrics.register_own(registry.sub_registry_with_prefix("dovetail"));
        world.telemetry = Telemetry { metrics, ..Telemetry::default() };
        world.cloud.refuse(call, "UnauthorizedOperation", "You may not do this.");
        let mut story = Self { world, registry, told: Vec::new(), has_launched: false };
        let provider = story.world.provider();
        let clock = story.world.clock.clone();
        clock.run(story.play(&provider));
        story
    }

    fn tell<T, E: ToString>(&mut self, place: &'static str, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.told.push((place, error.to_string()))).ok()
    }

    async fn play(&mut self, provider: &Ec2CloudProvider) {
        let cloud = Arc::new(self.world.cloud.clone());
        let reconciler = NodeClassReconciler::new(reconcile::Setup {
            provider: provider.clone(),
            ec2: Arc::clone(&cloud) as _,
            ssm: Arc::clone(&cloud) as _,
            iam: Arc::clone(&cloud) as _,
            objects: Arc::new(self.world.objects.clone()),
            clock: self.world.clock.clock(),
            settings: settings(),
        });
        self.tell("start", provider.probe().await);
        reconciler.reconcile("default").await.unwrap();
        self.tell_conditions();
        // What fails here is in the log and in the metrics.
        let _ = provider.refresh_types(DurationMs::ZERO).await;
        let _ = provider.refresh_prices(Some(&*cloud)).await;
        self.watch(provider, &cloud).await;
        let mut claim = self.world.claim("a", vec![of_type("m5.large"), on_demand()]);
        if let Some(made) = self.tell("launch", create(provider, &claim).await) {
            self.has_launched = true;
            let status = claim.status.get_or_insert_default();
            (status.provider_id, status.node_name) = (made.provider_id.to_string(), "node-a".to_owned());
            self.world.objects.set_claim(claim.clone());
            let _ = provider.tidy().await;
            self.tell("reboot", provider.reboot(&claim, "a").await);
            self.tell("deletion", provider.delete(&made.provider_id).await);
        }
        self.world.objects.remove_claim("uid-of-a");
        // A template that nobody used for an hour goes.
        tokio::time::advance(Duration::from_secs(7200)).await;
        let _ = provider.tidy().await;
        let classes = self.world.objects.class("default").into_iter().collect::<Vec<_>>();
        let _ = reconciler.collect_profiles(&classes).await;
        let mut class = self.world.objects.class("default").unwrap();
        class["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        self.world.objects.set_class(class);
        self.tell("end of the node class", reconciler.reconcile("default").await);
    }

    /// What goes on beside launches. What fails here, too, is in the log and in the metrics.
    async fn watch(&self, provider: &Ec2CloudProvider, cloud: &Arc<Cloud>) {
        let (watch, shifts) = watches(&self.world, provider, cloud);
        let _ = watch.handle_messages(&**cloud).await;
        let _ = watch.check_health().await;
        let _ = shifts.look(&mut BTreeSet::new()).await;
        let metrics = self.world.telemetry.metrics.clone();
        let version = OfEks { eks: Arc::clone(cloud) as _, cluster: CLUSTER.to_owned(), metrics };
        let _ = version.version().await;
    }

    /// The conditions that do not hold, but for those that only sum up others.
    fn tell_conditions(&mut self) {
        let class = self.world.objects.class("default").unwrap();
        for condition in class["status"]["conditions"].as_array().into_iter().flatten() {
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            if text("status") != "True" && !["DependenciesNotReady", "UnhealthyDependents"].contains(&&*text("reason"))
            {
                self.told.push(("condition", format!("{} {}: {}", text("type"), text("reason"), text("message"))));
            }
        }
    }

    /// How far things went, and where people find the name of the call; `?` before what failed without naming it.
    fn line(&self, call: &str) -> String {
        let mut metrics = String::new();
        prometheus_client::encoding::text::encode(&mut metrics, &self.registry).unwrap();
        let of_call = format!("dovetail_ec2_failed_calls_total{{call=\"{call}\",code=\"UnauthorizedOperation\"}}");
        let is_counted = metrics.lines().any(|line| line.starts_with(&of_call));
        let mut places: Vec<_> = self
            .told
            .iter()
            .map(|(place, text)| {
                let of_condition = text.split(' ').next().filter(|_| *place == "condition");
                let names = if text.contains(call) { "" } else { "?" };
                format!("{names}{}", of_condition.unwrap_or(place))
            })
            .collect();
        places.extend(is_counted.then(|| "metric".to_owned()));
        let how_far = if self.has_launched { "machine" } else { "no machine" };
        format!("{call}: {how_far}; {}", places.join(", "))
    }
}

#[test]
fn a_call_that_is_not_permitted_is_named_and_what_does_not_need_it_goes_on() {
    let mut calls = calls_of_adapter();
    // In memory a profile is made with its tags, and a queue is there without being looked up.
    assert!(calls.remove("iam:TagInstanceProfile") && calls.remove("sqs:GetQueueUrl"));
    let lines: Vec<_> = calls.iter().map(|call| Story::without_right(call.clone().leak()).line(call)).collect();
    expect![[r#"
        arc-zonal-shift:GetManagedResource: machine; metric
        ec2:CreateFleet: no machine; ValidationSucceeded, ?launch
        ec2:CreateLaunchTemplate: no machine; ValidationSucceeded, ?launch
        ec2:CreateTags: machine; metric
        ec2:DeleteLaunchTemplate: machine; end of the node class, metric
        ec2:DescribeCapacityReservations: no machine; CapacityReservationsReady, ?launch
        ec2:DescribeImages: no machine; AMIsReady, ?launch
        ec2:DescribeInstanceStatus: machine; metric
        ec2:DescribeInstanceTypeOfferings: no machine; start, ValidationSucceeded, ?Ready, ?launch, metric
        ec2:DescribeInstanceTypes: machine; metric
        ec2:DescribeInstances: machine; deletion, metric
        ec2:DescribeLaunchTemplates: no machine; ValidationSucceeded, ?launch, end of the node class, metric
        ec2:DescribePlacementGroups: no machine; ValidationSucceeded, PlacementGroupReady, ?launch, metric
        ec2:DescribeSecurityGroups: no machine; SecurityGroupsReady, ?launch
        ec2:DescribeSpotPriceHistory: machine; metric
        ec2:DescribeSubnets: no machine; SubnetsReady, ?launch
        ec2:RebootInstances: machine; reboot
        ec2:RunInstances: no machine; ValidationSucceeded, ?launch
        ec2:TerminateInstances: machine; deletion, metric
        eks:DescribeCluster: machine; metric
        iam:AddRoleToInstanceProfile: no machine; InstanceProfileReady, ?launch
        iam:CreateInstanceProfile: no machine; InstanceProfileReady, ?launch
        iam:DeleteInstanceProfile: machine; end of the node class
        iam:GetInstanceProfile: no machine; InstanceProfileReady, ?launch
        iam:GetRole: no machine; InstanceProfileReady, ?launch
        iam:ListInstanceProfiles: machine; end of the node class
        iam:RemoveRoleFromInstanceProfile: machine; end of the node class
        pricing:GetProducts: machine; metric
        sqs:DeleteMessage: machine; metric
        sqs:ReceiveMessage: machine; metric
        ssm:GetParameter: no machine; AMIsReady, ?launch"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn an_answer_with_neither_machines_nor_errors_is_a_failure_of_its_launches_and_the_next_works() {
    let world = World::new();
    let claim = world.claim("a", vec![of_type("m5.large"), on_demand()]);
    world.cloud.set_fleets_are_empty(true);
    world.clock.run(async {
        let provider = world.provider();
        let Err(Error::CreateFailed { reason, message }) = create(&provider, &claim).await else { panic!("launched") };
        assert_eq!(reason, "LaunchFailed");
        assert_eq!(message, "EC2 answered with fewer machines than were asked for, and no error");
        world.cloud.set_fleets_are_empty(false);
        create(&provider, &claim).await.unwrap();
    });
    assert_eq!(world.alive().len(), 1);
}
