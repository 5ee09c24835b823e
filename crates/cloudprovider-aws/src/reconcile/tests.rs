use futures::executor::block_on;
use serde_json::json;

use super::*;
use crate::discovery::findings::MinorVersion;
use crate::instance_types::settings::MachineOptions;
use crate::kubernetes_version::OfEks;
use crate::memory::{CallFault, Cloud, Faults, Lag, Objects, VirtualClock, sample};
use crate::node_class::kubelet::Expressions;
use crate::provider;
use crate::service::ec2::{CapacityReservation, PlacementGroup};
use crate::service::{ClusterDescription, Eks as _};
use crate::telemetry::{Metrics, Telemetry};

const CLUSTER: &str = "test";

/// A cloud, a cluster, and the reconciler of its node classes.
struct World {
    clock: VirtualClock,
    cloud: Cloud,
    objects: Objects,
}

impl World {
    /// With a node class to which these fields of the spec are merged.
    fn new(spec: &Value) -> Self {
        let clock = VirtualClock::at(Timestamp::from_seconds(1_800_000_000));
        let cloud = sample(CLUSTER, clock.clock());
        let world = Self { clock, cloud, objects: Objects::default() };
        world.set_spec(spec, 1);
        world
    }

    fn set_spec(&self, spec: &Value, generation: i64) {
        let by_tag = json!([{"tags": {"cluster": CLUSTER}}]);
        let mut object = self.objects.class("default").unwrap_or_else(|| {
            json!({
                "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
                "metadata": {"name": "default", "uid": "uid-of-class"},
                "spec": {
                    "role": "nodes", "amiFamily": "AL2023", "amiSelectorTerms": by_tag,
                    "subnetSelectorTerms": by_tag, "securityGroupSelectorTerms": by_tag,
                },
            })
        });
        for (field, value) in spec.as_object().unwrap() {
            if value.is_null() {
                object["spec"].as_object_mut().unwrap().remove(field);
            } else {
                object["spec"][field] = value.clone();
            }
        }
        object["metadata"]["generation"] = json!(generation);
        self.objects.set_class(object);
    }

    fn reconciler(&self, change: impl FnOnce(&mut Settings)) -> NodeClassReconciler {
        self.reconciler_with(MachineOptions::default(), change)
    }

    fn reconciler_with(&self, machines: MachineOptions, change: impl FnOnce(&mut Settings)) -> NodeClassReconciler {
        let cluster = user_data::Cluster {
            name: CLUSTER.to_owned(),
            endpoint: "https://test.example.com".to_owned(),
            ca_bundle: Some("Y2E=".to_owned()),
            service_cidr: Some("10.100.0.0/16".to_owned()),
            dns_ip: None,
        };
        let mut settings = Settings {
            cluster: cluster.clone(),
            region: "us-east-1".to_owned(),
            kubernetes: KubernetesVersion::new(MinorVersion(33)),
            reserved_capacity: true,
            isolated_vpc: false,
            disable_dry_run: false,
        };
        change(&mut settings);
        let provider = Ec2CloudProvider::new(provider::Setup {
            ec2: Arc::new(self.cloud.clone()),
            objects: Arc::new(self.objects.clone()),
            cluster,
            region: "us-east-1".to_owned(),
            machines,
            clock: self.clock.clock(),
            seed: 0,
            telemetry: Telemetry::default(),
        });
        NodeClassReconciler::new(Setup {
            provider,
            ec2: Arc::new(self.cloud.clone()),
            ssm: Arc::new(self.cloud.clone()),
            iam: Arc::new(self.cloud.clone()),
            objects: Arc::new(self.objects.clone()),
            clock: self.clock.clock(),
            settings,
        })
    }

    /// What a look leads to, and the conditions after it: those that do not hold, with reason and message.
    fn look(&self, reconciler: &NodeClassReconciler) -> (Outcome, Vec<String>) {
        let outcome = block_on(reconciler.reconcile("default")).unwrap();
        let object = self.objects.class("default").unwrap();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let text = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
        let line = |it: &Value| {
            let [name, status, reason, message] = ["type", "status", "reason", "message"].map(|field| text(it, field));
            (status != "True").then(|| format!("{name}={status} {reason}: {message}"))
        };
        (outcome, conditions.iter().filter_map(line).collect())
    }

    fn status(&self) -> Value {
        self.objects.class("default").unwrap()["status"].clone()
    }

    fn profiles(&self) -> Vec<crate::service::InstanceProfile> {
        block_on(self.cloud.list_instance_profiles("/karpenter/us-east-1/test/")).unwrap()
    }
}

#[test]
fn what_the_selectors_find_is_in_the_status_and_the_class_is_ready() {
    let world = World::new(&json!({}));
    let (outcome, wrong) = world.look(&world.reconciler(|_| {}));
    assert_eq!((wrong, outcome.errors), (vec![], vec![]));
    assert_eq!(outcome.again_in, Some(DurationMs::from_seconds(60)));
    let status = world.status();
    let ids = |list: &str| {
        let all = status[list].as_array().unwrap().iter();
        all.map(|it| it["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids("subnets"), ["subnet-a", "subnet-b", "subnet-c"]);
    assert_eq!(ids("securityGroups"), ["sg-1"]);
    assert_eq!(ids("amis"), ["ami-amd64", "ami-arm64"]);
    let types: Vec<_> = status["conditions"].as_array().unwrap().iter().map(|it| it["type"].clone()).collect();
    let expected = [
        "AMIsReady",
        "SubnetsReady",
        "SecurityGroupsReady",
        "InstanceProfileReady",
        "ValidationSucceeded",
        "PlacementGroupReady",
        "CapacityReservationsReady",
        "Ready",
    ];
    assert_eq!(types, expected);
    let object = world.objects.class("default").unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!([names::FINALIZER]));
    assert_eq!(object["metadata"]["annotations"][names::NODE_CLASS_HASH_VERSION], hash::VERSION);
    let profile = world.profiles().remove(0);
    assert_eq!(status["instanceProfile"], profile.name);
    assert_eq!((profile.role.as_deref(), &*profile.path), (Some("nodes"), "/karpenter/us-east-1/test/uid-of-class/"));
    assert_eq!(world.cloud.launched(), 0, "a dry run launches nothing");
}

#[test]
fn a_second_look_writes_nothing_and_tries_nothing_again() {
    let world = World::new(&json!({}));
    let reconciler = world.reconciler(|_| {});
    world.look(&reconciler);
    let before = world.objects.class("default").unwrap();
    let calls =
        ["ec2:CreateFleet", "ec2:RunInstances", "iam:CreateInstanceProfile"].map(|call| world.cloud.calls(call));
    world.clock.advance(DurationMs::from_seconds(300));
    world.look(&reconciler);
    assert_eq!(world.objects.class("default").unwrap(), before);
    let after =
        ["ec2:CreateFleet", "ec2:RunInstances", "iam:CreateInstanceProfile"].map(|call| world.cloud.calls(call));
    assert_eq!(after, calls);
}

#[test]
fn selectors_that_find_nothing_are_each_named_and_everything_else_goes_on() {
    let none = json!([{"tags": {"cluster": "other"}}]);
    let world = World::new(&json!({
        "subnetSelectorTerms": none, "amiSelectorTerms": none, "placementGroupSelector": {"name": "g"},
        "role": "absent",
    }));
    let (_, wrong) = world.look(&world.reconciler(|_| {}));
    assert_eq!(
        wrong,
        [
            "AMIsReady=False AMINotFound: amiSelectorTerms select no image",
            "SubnetsReady=False SubnetsNotFound: subnetSelectorTerms select no subnet",
            "InstanceProfileReady=False RoleNotFound: spec.role: there is no role absent",
            "ValidationSucceeded=False DependenciesNotReady: AMIsReady=False, InstanceProfileReady=False, \
             SubnetsReady=False",
            "PlacementGroupReady=False PlacementGroupNotFound: there is no placement group with name g",
            "Ready=False UnhealthyDependents: AMIsReady=False, SubnetsReady=False, InstanceProfileReady=False, \
             ValidationSucceeded=False, PlacementGroupReady=False",
        ]
    );
    assert_eq!(world.status()["securityGroups"][0]["id"], "sg-1");
    assert_eq!(world.profiles(), []);
    world.cloud.make_role("absent");
    world.cloud.add_placement_group(
        PlacementGroup {
            id: "pg-1".to_owned(),
            name: "g".to_owned(),
            strategy: "cluster".to_owned(),
            partitions: None,
        },
        Default::default(),
    );
    let by_tag = json!([{"tags": {"cluster": CLUSTER}}]);
    world.set_spec(&json!({"subnetSelectorTerms": by_tag, "amiSelectorTerms": by_tag}), 2);
    assert_eq!(world.look(&world.reconciler(|_| {})).1, [] as [&str; 0]);
}

#[test]
fn a_call_that_is_refused_is_named_and_one_that_may_work_out_changes_nothing() {
    let world = World::new(&json!({}));
    let reconciler = world.reconciler(|_| {});
    world.look(&reconciler);
    let before = world.status();
    world.cloud.refuse("ec2:DescribeSubnets", "RequestLimitExceeded", "slow down");
    let (outcome, wrong) = world.look(&reconciler);
    assert_eq!(
        (wrong, outcome.errors),
        (vec![], vec!["ec2:DescribeSubnets: RequestLimitExceeded: slow down".to_owned()])
    );
    assert_eq!(world.status(), before);
    world.cloud.refuse("ec2:DescribeSubnets", "UnauthorizedOperation", "no");
    let (_, wrong) = world.look(&reconciler);
    assert_eq!(wrong[0], "SubnetsReady=False Unauthorized: ec2:DescribeSubnets: UnauthorizedOperation: no");
    // What was found before stays, so that no machine drifts.
    assert_eq!(world.status()["subnets"], before["subnets"]);
    world.cloud.permit("ec2:DescribeSubnets");
    assert_eq!(world.look(&reconciler).1, [] as [&str; 0]);
}

#[test]
fn images_of_an_alias_come_from_its_parameters_as_far_as_they_are_there() {
    let world = World::new(&json!({"amiSelectorTerms": [{"alias": "al2023@latest"}], "amiFamily": null}));
    let reconciler = world.reconciler(|_| {});
    let (_, wrong) = world.look(&reconciler);
    assert_eq!(
        wrong[0],
        "AMIsReady=False AMINotFound: amiSelectorTerms select no image: AWS publishes none as al2023@latest"
    );
    let path = |arch: &str| {
        format!("/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/{arch}/standard/recommended/image_id")
    };
    world.cloud.set_parameter(&path("x86_64"), "ami-amd64");
    world.cloud.set_parameter(&path("arm64"), "not an image");
    assert_eq!(world.look(&reconciler).1, [] as [&str; 0]);
    let amis = world.status()["amis"].clone();
    let keys: Vec<_> = amis[0]["requirements"].as_array().unwrap().iter().map(|it| it["key"].clone()).collect();
    assert_eq!((amis.as_array().unwrap().len(), &amis[0]["id"]), (1, &json!("ami-amd64")));
    assert_eq!(
        keys,
        ["kubernetes.io/arch", "karpenter.k8s.aws/instance-gpu-count", "karpenter.k8s.aws/instance-accelerator-count"]
    );
}

#[test]
fn images_of_an_alias_follow_the_clusters_version() {
    let world = World::new(&json!({"amiSelectorTerms": [{"alias": "al2023@latest"}], "amiFamily": null}));
    for (version, image) in [("1.33", "ami-amd64"), ("1.34", "ami-arm64")] {
        let path =
            format!("/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/x86_64/standard/recommended/image_id");
        world.cloud.set_parameter(&path, image);
    }
    let version = KubernetesVersion::new(MinorVersion(33));
    let reconciler = world.reconciler(|settings| settings.kubernetes = version.clone());
    world.look(&reconciler);
    assert_eq!(world.status()["amis"][0]["id"], "ami-amd64");
    let metrics = Metrics::default();
    let source = OfEks { eks: Arc::new(world.cloud.clone()), cluster: CLUSTER.to_owned(), metrics };
    let description = block_on(world.cloud.describe_cluster(CLUSTER)).unwrap();
    world.cloud.add_cluster(CLUSTER, ClusterDescription { version: "1.34".to_owned(), ..description });
    block_on(version.refresh(&source)).unwrap();
    world.look(&reconciler);
    assert_eq!(world.status()["amis"][0]["id"], "ami-arm64");
}

#[test]
fn what_a_dry_run_refuses_is_told_with_karpenters_reason_and_remembered_for_half_an_hour() {
    let world = World::new(&json!({}));
    let reconciler = world.reconciler(|_| {});
    let unauthorized = |call: &'static str| crate::service::Error {
        call,
        kind: crate::service::Kind::Unauthorized,
        code: Some("UnauthorizedOperation".to_owned()),
        message: "no".to_owned(),
    };
    world.cloud.set_dry_run("instance", Some(unauthorized("ec2:RunInstances")));
    let refused = "ValidationSucceeded=False RunInstancesAuthCheckFailed: could not launch an instance, in a dry run: \
                   ec2:RunInstances: UnauthorizedOperation: no";
    assert_eq!(world.look(&reconciler).1[0], refused);
    world.cloud.set_dry_run("instance", None);
    world.clock.advance(DurationMs::from_seconds(1700));
    assert_eq!(world.look(&reconciler).1[0], refused);
    world.clock.advance(DurationMs::from_seconds(101));
    assert_eq!(world.look(&reconciler).1, [] as [&str; 0]);
    // Another spec is tried at once.
    world.cloud.set_dry_run("fleet", Some(unauthorized("ec2:CreateFleet")));
    world.set_spec(&json!({"detailedMonitoring": true}), 2);
    assert!(world.look(&reconciler).1[0].starts_with("ValidationSucceeded=False CreateFleetAuthCheckFailed: "));
    world.set_spec(&json!({"detailedMonitoring": false}), 3);
    let without = world.reconciler(|settings| settings.disable_dry_run = true);
    assert_eq!(world.look(&without).1, [] as [&str; 0]);
}

#[test]
fn what_is_wrong_in_the_spec_is_told_before_anything_is_tried() {
    for (spec, expected) in [
        (
            json!({"kubelet": {"maxPods": -1}}),
            "ValidationSucceeded=False InvalidKubeletConfiguration: spec.kubelet.maxPods: ",
        ),
        (
            json!({"userData": format!("#!/bin/bash\n{}", "x".repeat(17_000))}),
            "ValidationSucceeded=False UserDataSizeLimitExceeded: EC2NodeClass default: user data has ",
        ),
        (
            json!({"userData": "MIME-Version: 1.0\n\necho"}),
            "ValidationSucceeded=False InvalidUserData: EC2NodeClass default: spec.userData is a MIME message that cannot \
             be read: it has no Content-Type",
        ),
        (
            json!({"amiFamily": "Bottlerocket", "userData": "settings = 1"}),
            "ValidationSucceeded=False InvalidUserData: EC2NodeClass default: spec.userData is not TOML as Bottlerocket",
        ),
    ] {
        let world = World::new(&spec);
        let (_, wrong) = world.look(&world.reconciler(|_| {}));
        assert!(wrong[0].starts_with(expected), "{wrong:?}");
        assert_eq!(wrong.len(), 2, "all else is found: {wrong:?}");
        assert_eq!(world.cloud.calls("ec2:CreateFleet"), 0);
    }
    let world = World::new(&json!({}));
    let mut object = world.objects.class("default").unwrap();
    object["metadata"]["annotations"] = json!({names::NVIDIA_MIG: "sometimes"});
    world.objects.set_class(object);
    let (_, wrong) = world.look(&world.reconciler(|_| {}));
    assert!(wrong[0].starts_with("ValidationSucceeded=False InvalidDriverSettings: "), "{wrong:?}");
    let world = World::new(&json!({}));
    let (_, wrong) = world.look(&world.reconciler(|settings| settings.cluster.service_cidr = None));
    assert!(wrong[0].starts_with("ValidationSucceeded=False ClusterCIDRResolutionFailed: "), "{wrong:?}");
}

#[test]
fn expressions_of_the_kubelet_need_their_gate_and_a_value_on_every_type() {
    let allowed = MachineOptions { expressions: Expressions::Allowed, ..MachineOptions::default() };
    let look = |max_pods: &str, machines| {
        let world = World::new(&json!({"kubelet": {"maxPods": max_pods}}));
        world.look(&world.reconciler_with(machines, |_| {})).1
    };
    let off = look("min(max_pods, 58)", MachineOptions::default());
    assert!(
        off[0].starts_with("ValidationSucceeded=False KubeletExpressionsDisabled: spec.kubelet.maxPods: "),
        "{off:?}"
    );
    assert_eq!(look("min(max_pods, 58)", allowed), [] as [&str; 0]);
    let invalid = look("instance_type", allowed);
    assert!(invalid[0].starts_with("ValidationSucceeded=False KubeletExpressionInvalid: spec.kubelet."), "{invalid:?}");
    let fails = look("64 / (vcpus - 2)", allowed);
    assert!(
        fails[0].starts_with(
            "ValidationSucceeded=False KubeletExpressionEvaluationFailed: spec.kubelet.maxPods: \"64 / (vcpus - 2)\" on "
        ),
        "{fails:?}"
    );
    assert!(fails[0].ends_with(": division by zero"), "{fails:?}");
}

#[test]
fn another_role_gets_another_profile_and_the_old_one_goes_when_nothing_names_it() {
    let world = World::new(&json!({}));
    let reconciler = world.reconciler(|_| {});
    world.look(&reconciler);
    let first = world.status()["instanceProfile"].clone();
    world.cloud.make_role("others");
    world.set_spec(&json!({"role": "path/others"}), 2);
    world.clock.advance(DurationMs::from_seconds(60));
    world.look(&reconciler);
    assert_ne!(world.status()["instanceProfile"], first);
    let named = || {
        let mut names: Vec<_> = world.profiles().into_iter().map(|it| it.name).collect();
        names.sort();
        names
    };
    let claim = |profile: &Value| -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "c", "uid": "c", "annotations": {(names::INSTANCE_PROFILE): profile}},
            "spec": {"requirements": [],
                "nodeClassRef": {"group": names::GROUP, "kind": names::NODE_CLASS_KIND, "name": "default"}},
        }))
        .unwrap()
    };
    world.objects.set_claim(claim(&first));
    let collect = || {
        let classes = [world.objects.class("default").unwrap()];
        block_on(reconciler.collect_profiles(&classes)).unwrap();
    };
    collect();
    world.clock.advance(DurationMs::from_seconds(7200));
    collect();
    assert_eq!(named().len(), 2, "a machine has it still");
    world.objects.remove_claim("c");
    collect();
    assert_eq!(named().len(), 2, "whoever made it may not have said so yet");
    world.clock.advance(DurationMs::from_seconds(3600));
    collect();
    assert_eq!(named(), [world.status()["instanceProfile"].as_str().unwrap()]);
}

#[test]
fn a_class_that_is_deleted_waits_for_its_claims_and_takes_what_was_made_for_it_along() {
    let world = World::new(&json!({}));
    let reconciler = world.reconciler(|_| {});
    world.look(&reconciler);
    assert_eq!((world.cloud.templates() > 0, world.profiles().len()), (true, 1));
    for index in 0..7 {
        let name = format!("claim-{index}");
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name, "uid": name},
            "spec": {"requirements": [],
                "nodeClassRef": {"group": names::GROUP, "kind": names::NODE_CLASS_KIND, "name": "default"}},
        });
        world.objects.set_claim(serde_json::from_value(claim).unwrap());
    }
    let mut object = world.objects.class("default").unwrap();
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.objects.set_class(object);
    let waiting = block_on(reconciler.reconcile("default")).unwrap();
    let text = "Waiting on NodeClaim termination for claim-0, claim-1, claim-2, claim-3, claim-4 and 2 others";
    assert_eq!(waiting.events, [("WaitingOnNodeClaimTermination", text.to_owned())]);
    assert_eq!(waiting.again_in, Some(DurationMs::from_seconds(600)));
    (0..7).for_each(|index| world.objects.remove_claim(&format!("claim-{index}")));
    assert_eq!(block_on(reconciler.reconcile("default")).unwrap(), Outcome::default());
    assert_eq!((world.cloud.templates(), world.profiles()), (0, vec![]));
    assert_eq!(world.objects.class("default"), None);
    assert_eq!(block_on(reconciler.reconcile("default")).unwrap(), Outcome::default());
}

#[test]
fn claims_of_another_program_are_given_our_hash_unless_they_have_drifted() {
    let world = World::new(&json!({}));
    let claim = |name: &str, drifted: &str| {
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "uid": name,
                "annotations": {(names::NODE_CLASS_HASH): "1", (names::NODE_CLASS_HASH_VERSION): "v6"}},
            "spec": {"requirements": [],
                "nodeClassRef": {"group": names::GROUP, "kind": names::NODE_CLASS_KIND, "name": "default"}},
            "status": {"conditions": [{"type": "Drifted", "status": drifted, "reason": "r", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        world.objects.set_claim(serde_json::from_value(claim).unwrap());
    };
    claim("fresh", "False");
    claim("drifted", "True");
    world.look(&world.reconciler(|_| {}));
    let annotations = |name: &str| world.objects.claim(name).unwrap().metadata.annotations.unwrap();
    let of_class = world.objects.class("default").unwrap()["metadata"]["annotations"][names::NODE_CLASS_HASH].clone();
    assert_eq!(annotations("fresh")[names::NODE_CLASS_HASH], of_class.as_str().unwrap());
    assert_eq!(annotations("drifted")[names::NODE_CLASS_HASH], "1");
    for name in ["fresh", "drifted"] {
        assert_eq!(annotations(name)[names::NODE_CLASS_HASH_VERSION], hash::VERSION);
    }
}

#[test]
fn a_reservation_that_is_about_to_change_is_looked_at_in_time() {
    let world = World::new(&json!({"capacityReservationSelectorTerms": [{"id": "cr-1"}, {"id": "cr-2"}]}));
    let end = world.clock.now().saturating_add(DurationMs::from_seconds(30));
    world.cloud.add_reservation(
        CapacityReservation {
            id: "cr-1".to_owned(),
            owner_id: "123456789012".to_owned(),
            instance_type: "m5.large".to_owned(),
            zone: "us-east-1a".to_owned(),
            match_criteria: crate::node_class::spec::InstanceMatchCriteria::Targeted,
            reservation_type: crate::node_class::status::ReservationType::Default,
            interruptible: false,
            remaining: 1,
            ends_at: Some(end),
        },
        Default::default(),
    );
    let reconciler = world.reconciler(|_| {});
    let (outcome, wrong) = world.look(&reconciler);
    // The other one does not exist, which is no fault.
    assert_eq!((outcome.again_in, wrong), (Some(DurationMs::from_seconds(30)), vec![]));
    assert_eq!(world.status()["capacityReservations"][0]["id"], "cr-1");
    world.clock.advance(DurationMs::from_seconds(30));
    world.look(&reconciler);
    assert_eq!(world.status().get("capacityReservations").and_then(Value::as_array).map_or(0, Vec::len), 0);
}

/// The n-th call fails in one of the ways.
struct Nth(u64, CallFault);

impl Faults for Nth {
    fn of_call(&mut self, _: &'static str) -> CallFault {
        let is_it = self.0 == 0;
        self.0 = self.0.wrapping_sub(1);
        if is_it { self.1 } else { CallFault::None }
    }

    fn lag(&mut self, _: Lag) -> DurationMs {
        DurationMs::ZERO
    }
}

#[test]
fn whichever_call_fails_the_class_becomes_ready_and_has_one_profile() {
    for fault in [CallFault::Throttled, CallFault::Failed, CallFault::AnswerLost] {
        for call in 0..20 {
            let world = World::new(&json!({}));
            let reconciler = world.reconciler(|_| {});
            world.cloud.set_faults(Some(Box::new(Nth(call, fault))));
            world.look(&reconciler);
            world.clock.advance(DurationMs::from_seconds(10));
            let (_, wrong) = world.look(&reconciler);
            assert_eq!(wrong, [] as [&str; 0], "call {call}, {fault:?}");
            assert_eq!(world.profiles().len(), 1, "call {call}, {fault:?}");
        }
    }
}
