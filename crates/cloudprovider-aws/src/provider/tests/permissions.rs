//! What the provider asks of AWS, beside what the policies of `deploy/eks/cloudformation.yaml` grant: all of it, and no
//! more.
//!
//! It starts, a node class is looked at, machines of each kind are launched, tagged, watched, rebooted and ended, and
//! all is cleaned up. That no call is left out, the sources of the adapter to the SDK say, which names each.

mod policy;
mod recorder;

use std::collections::BTreeSet;
use std::path::Path;

use super::launches::{create, of_type, one_of};
use super::*;
use crate::background::interruptions::Watch;
use crate::background::zonal_shift::ShiftWatch;
use crate::discovery::findings::MinorVersion;
use crate::instance_types::settings::MachineOptions;
use crate::interruption::Interruption;
use crate::kubernetes_version::KubernetesVersion;
use crate::memory::arn_of;
use crate::node_class::spec::{InstanceMatchCriteria, Tags};
use crate::node_class::status::ReservationType;
use crate::reconcile::{self, NodeClassReconciler};
use crate::service::ec2::{CapacityReservation, PlacementGroup};
use crate::service::{Eks, Sqs, ZonalShifts};
use policy::{Statement, event_patterns, is_like, statements, statements_of};
use recorder::{Ask, Recorder};

const TEMPLATE: &str = include_str!("../../../../../deploy/eks/cloudformation.yaml");
const REGION: &str = "us-east-1";
const ACCOUNT: &str = "123456789012";
/// As the template calls it.
const ROLE: &str = "KarpenterNodeRole-test";

/// A world whose node class names everything that can be asked for.
pub(super) fn world() -> World {
    let world = World::new();
    let tags: Tags = [("cluster".to_owned(), CLUSTER.to_owned())].into();
    let cloud = &world.cloud;
    cloud.make_role(ROLE);
    let reservation = CapacityReservation {
        id: "cr-1".to_owned(),
        owner_id: ACCOUNT.to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1b".to_owned(),
        match_criteria: InstanceMatchCriteria::Targeted,
        reservation_type: ReservationType::Default,
        interruptible: false,
        remaining: 1,
        ends_at: None,
    };
    cloud.add_reservation(reservation, tags.clone());
    let group = PlacementGroup {
        id: "pg-1".to_owned(),
        name: "near".to_owned(),
        strategy: "cluster".to_owned(),
        partitions: None,
    };
    cloud.add_placement_group(group, tags);
    let image = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/recommended/image_id";
    cloud.set_parameter(image, "ami-amd64");
    let by_tag = json!([{ "tags": { "cluster": CLUSTER } }]);
    let mut class = class();
    class["status"] = json!({});
    class["spec"] = json!({
        "role": ROLE, "amiSelectorTerms": [{ "alias": "al2023@latest" }],
        "subnetSelectorTerms": by_tag, "securityGroupSelectorTerms": by_tag,
        "capacityReservationSelectorTerms": by_tag, "placementGroupSelector": { "name": "near" },
    });
    world.objects.set_class(class);
    world
}

/// What the reconciler of node classes goes by.
pub(super) fn settings() -> reconcile::Settings {
    reconcile::Settings {
        cluster: World::cluster(),
        region: REGION.to_owned(),
        kubernetes: KubernetesVersion::new(MinorVersion(33)),
        reserved_capacity: true,
        isolated_vpc: false,
        disable_dry_run: false,
    }
}

/// Who watches machines, the queue and the zones. There is a message, and a shift may be asked for.
pub(super) fn watches<C>(world: &World, provider: &Ec2CloudProvider, cloud: &Arc<C>) -> (Watch, ShiftWatch)
where
    C: Ec2 + Sqs + ZonalShifts + 'static,
{
    world.cloud.shift_away_from([]);
    world.cloud.send("{}");
    let watch = Watch {
        provider: provider.clone(),
        ec2: Arc::clone(cloud) as _,
        queue: Some(Arc::clone(cloud) as _),
        objects: Arc::new(world.objects.clone()),
        clock: world.clock.clock(),
    };
    let shifts = ShiftWatch {
        provider: provider.clone(),
        shifts: Arc::clone(cloud) as _,
        cluster_arn: arn_of(CLUSTER),
        objects: Arc::new(world.objects.clone()),
    };
    (watch, shifts)
}

/// All that is asked of IAM from the first look at a node class until nothing is left.
fn asked() -> BTreeSet<Ask> {
    let world = world();
    let recorder = Recorder::new(world.cloud.clone());
    let provider = Ec2CloudProvider::new(Setup {
        ec2: Arc::new(recorder.clone()),
        objects: Arc::new(world.objects.clone()),
        cluster: World::cluster(),
        region: REGION.to_owned(),
        machines: MachineOptions::default(),
        clock: world.clock.clock(),
        seed: 0,
        telemetry: Telemetry::default(),
    });
    let reconciler = NodeClassReconciler::new(reconcile::Setup {
        provider: provider.clone(),
        ec2: Arc::new(recorder.clone()),
        ssm: Arc::new(recorder.clone()),
        iam: Arc::new(recorder.clone()),
        objects: Arc::new(world.objects.clone()),
        clock: world.clock.clock(),
        settings: settings(),
    });
    let (watch, shifts) = watches(&world, &provider, &Arc::new(recorder.clone()));
    world.clock.run(async {
        recorder.connect();
        recorder.describe_cluster(CLUSTER).await.unwrap();
        provider.probe().await.unwrap();
        assert_eq!(watch.handle_messages(&recorder).await.unwrap(), 1);
        watch.check_health().await.unwrap();
        shifts.look(&mut BTreeSet::new()).await.unwrap();
        let outcome = reconciler.reconcile("default").await.unwrap();
        assert_eq!(outcome.errors, [] as [&str; 0]);
        provider.refresh_prices(Some(&recorder)).await.unwrap();
        for (name, capacity_type) in [("kept", "reserved"), ("spare", "spot"), ("used", "on-demand")] {
            let requirements = vec![of_type("m5.large"), one_of(kubernetes::CAPACITY_TYPE, &[capacity_type])];
            let mut claim = world.claim(name, requirements);
            let made = create(&provider, &claim).await.unwrap();
            assert_eq!(made.capacity_type.to_string(), capacity_type);
            let status = claim.status.get_or_insert_default();
            (status.provider_id, status.node_name) = (made.provider_id.to_string(), format!("node-{name}"));
            world.objects.set_claim(claim.clone());
            provider.reboot(&claim, name).await.unwrap();
        }
        provider.tidy().await.unwrap();
        for machine in provider.list().await.unwrap() {
            provider.delete(&machine.provider_id).await.unwrap();
        }
        for name in ["kept", "spare", "used"] {
            world.objects.remove_claim(&format!("uid-of-{name}"));
        }
        let mut class = world.objects.class("default").unwrap();
        class["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        world.objects.set_class(class);
        reconciler.reconcile("default").await.unwrap();
        assert_eq!(world.objects.class("default"), None, "something was left");
    });
    recorder.asks()
}

#[test]
fn every_call_is_granted_and_no_grant_is_unused() {
    let (asked, statements) = (asked(), statements(TEMPLATE));
    let is_granted = |ask: &&Ask| statements.iter().any(|statement| statement.allows(ask));
    let denied: Vec<_> = asked.iter().filter(|ask| !is_granted(ask)).collect();
    assert!(denied.is_empty(), "denied: {denied:#?}");
    let unused: Vec<_> = statements.iter().flat_map(|statement| unused(statement, &asked)).collect();
    assert!(unused.is_empty(), "granted and not used: {unused:#?}");
}

/// What the adapter to the SDK calls, by the names that it gives calls in errors, but for what needs no right.
pub(super) fn calls_of_adapter() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cloudprovider-aws-sdk/src");
    let mut named = named_by_adapter(&folder);
    // Whoever has credentials may ask whose they are.
    assert!(named.remove("sts:GetCallerIdentity"));
    named
}

fn named_by_adapter(folder: &Path) -> BTreeSet<String> {
    const SERVICES: [&str; 8] = ["arc-zonal-shift:", "ec2:", "eks:", "iam:", "pricing:", "sqs:", "ssm:", "sts:"];
    let mut named = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            named.append(&mut named_by_adapter(&path));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let without_tests = text.split("#[cfg(test)]").next().unwrap();
        let texts = without_tests.split('"').filter(|text| SERVICES.iter().any(|service| text.starts_with(service)));
        named.extend(texts.map(str::to_owned));
    }
    named
}

#[test]
fn every_call_of_the_adapter_is_made_here() {
    let mut named = calls_of_adapter();
    // A right, not a call.
    named.insert("iam:PassRole".to_owned());
    let asked: BTreeSet<String> = asked().into_iter().map(|ask| ask.action.to_owned()).collect();
    assert_eq!(asked, named);
}

#[test]
fn each_rule_puts_messages_into_the_queue_that_are_understood() {
    let patterns = event_patterns(TEMPLATE);
    let mut kinds = BTreeSet::new();
    for (source, detail_type) in patterns {
        // What a rule takes may be of several kinds, or about nothing that matters.
        for state in ["stopping", "terminated"] {
            let body = json!({
                "source": source, "detail-type": detail_type,
                "detail": {
                    "instance-id": "i-1", "state": state, "service": "EC2", "eventTypeCategory": "scheduledChange",
                    "affectedEntities": [{"entityValue": "i-1"}],
                },
            });
            let interruption = Interruption::read(&body.to_string()).unwrap();
            kinds.insert(interruption.unwrap_or_else(|| panic!("{detail_type} is not understood")).kind.as_str());
        }
    }
    let expected = [
        "capacity_reservation_interrupted",
        "instance_stopped",
        "instance_terminated",
        "rebalance_recommendation",
        "scheduled_change",
        "spot_interrupted",
    ];
    assert!(kinds.iter().eq(&expected), "{kinds:?}");
}

/// Actions and resources of a statement that nothing is allowed by.
fn unused(statement: &Statement, asked: &BTreeSet<Ask>) -> Vec<String> {
    let allowed: Vec<&Ask> = asked.iter().filter(|ask| statement.allows(ask)).collect();
    let actions = statement.action.all().iter().filter(|action| !allowed.iter().any(|ask| ask.action == **action));
    let resources = statement.resource.all().iter().filter(|it| !allowed.iter().any(|ask| is_like(it, &ask.resource)));
    actions.chain(resources).map(|it| format!("{}: {it}", statement.sid)).collect()
}

#[test]
fn what_users_of_karpenter_are_told_to_add_is_granted_by_the_template_too() {
    const PAGE: &str = include_str!("../../../../../docs/switching-from-karpenter.md");
    let block = PAGE.split_once("```json").unwrap().1.split_once("```").unwrap().0;
    let (added, template) = (statements_of(&block.replace("my-cluster", CLUSTER)), statements(TEMPLATE));
    let allows = |statements: &[Statement], ask: &Ask| statements.iter().any(|statement| statement.allows(ask));
    let is_new = |ask: &Ask| {
        let keys = ask.context.get("aws:TagKeys");
        let names_claim = keys.is_some_and(|keys| keys.iter().any(|key| key == names::NODE_CLAIM_UID));
        ["ec2:RebootInstances", "iam:GetRole"].contains(&ask.action) || ask.action == "ec2:CreateTags" && names_claim
    };
    let asked = asked();
    let actions: BTreeSet<_> = asked.iter().filter(|ask| is_new(ask)).map(|ask| ask.action).collect();
    assert!(actions.iter().eq(&["ec2:CreateTags", "ec2:RebootInstances", "iam:GetRole"]), "{actions:?}");
    for ask in &asked {
        assert!(!is_new(ask) || allows(&added, ask), "not granted: {ask:#?}");
        assert!(!allows(&added, ask) || allows(&template, ask), "granted here only: {ask:#?}");
    }
    let unused: Vec<_> = added.iter().flat_map(|statement| unused(statement, &asked)).collect();
    assert!(unused.is_empty(), "granted and not used: {unused:#?}");
}

#[test]
fn what_is_not_tagged_as_the_clusters_is_denied() {
    let statements = statements(TEMPLATE);
    let is_allowed = |ask: &Ask| statements.iter().any(|statement| statement.allows(ask));
    let changes = ["ec2:TerminateInstances", "ec2:RebootInstances", "ec2:DeleteLaunchTemplate", "ec2:CreateTags"];
    for ask in asked() {
        let mut of_another = ask.clone();
        for (key, values) in &mut of_another.context {
            if key.contains("Tag/") {
                *values = vec!["other".to_owned()];
            }
        }
        let is_guarded = changes.contains(&ask.action) || ask.context.keys().any(|key| key.contains("Tag/"));
        assert!(is_allowed(&ask) && (!is_guarded || !is_allowed(&of_another)), "{of_another:#?}");
    }
}

#[test]
fn a_star_stands_for_any_text() {
    for (pattern, text, expected) in [
        ("*", "", true),
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "ab", true),
        ("a*c*e", "abcde", true),
        ("a*c", "acb", false),
        ("arn:*:image/*", "arn:aws:ec2::image/ami-1", true),
        ("arn:*:image/*", "arn:aws:ec2::snapshot/1", false),
    ] {
        assert_eq!(is_like(pattern, text), expected, "{pattern} {text}");
    }
}
