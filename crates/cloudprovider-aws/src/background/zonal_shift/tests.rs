use cloudprovider::events::Event;
use cloudprovider::{CapacityType, CloudProvider as _, Error};
use futures::executor::block_on;
use model::{DurationMs, Timestamp};
use serde_json::json;

use super::*;
use crate::background::fixture::{self, CLUSTER, Told};
use crate::memory::{Cloud, Objects, VirtualClock, arn_of, sample};
use crate::service::ZonalShift;
use crate::telemetry::{Metrics, Telemetry};

/// The zone `us-east-1b`, by its id.
const ZONE_B: &str = "use1-az2";

/// A node class with a subnet in each zone.
fn class() -> Value {
    let subnets = [("a", 1), ("b", 2), ("c", 3)].map(|(letter, number)| {
        json!({
            "id": format!("subnet-{letter}"), "zone": format!("us-east-1{letter}"), "zoneID": format!("use1-az{number}"),
        })
    });
    let selector = json!([{"tags": {"cluster": CLUSTER}}]);
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": names::NODE_CLASS_KIND,
        "metadata": {"name": "default", "uid": "uid-of-class", "generation": 1},
        "spec": {
            "role": "nodes", "amiFamily": "AL2023", "amiSelectorTerms": selector,
            "subnetSelectorTerms": selector, "securityGroupSelectorTerms": selector,
        },
        "status": {
            "subnets": subnets,
            "securityGroups": [{"id": "sg-1", "name": "nodes"}],
            "amis": [{"id": "ami-amd64", "name": "eks-node", "requirements":
                [{"key": kubernetes::ARCH, "operator": "In", "values": ["amd64"]}]}],
            "instanceProfile": "test_profile",
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

struct World {
    cloud: Cloud,
    clock: VirtualClock,
    watch: ShiftWatch,
    told: Arc<Told>,
    zones_told: BTreeSet<String>,
}

fn pool(name: &str, zones: &[&str]) -> NodePool {
    let in_zones = json!([{"key": kubernetes::ZONE, "operator": "In", "values": zones}]);
    let requirements = if zones.is_empty() { json!([]) } else { in_zones };
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name},
        "spec": {"template": {"spec": {
            "requirements": requirements, "expireAfter": "Never",
            "nodeClassRef": {"group": names::GROUP, "kind": names::NODE_CLASS_KIND, "name": "default"},
        }}},
    }))
    .unwrap()
}

impl World {
    fn new() -> Self {
        let clock = VirtualClock::at(Timestamp::from_seconds(1_800_000_000));
        let (cloud, objects) = (sample(CLUSTER, clock.clock()), Objects::default());
        objects.set_pools(vec![pool("anywhere", &[]), pool("elsewhere", &["us-east-1a"])]);
        objects.set_class(class());
        let told = Arc::<Told>::default();
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let telemetry = Telemetry { metrics, events: Arc::clone(&told) as _ };
        let provider = fixture::provider(&cloud, &objects, &clock, telemetry);
        let watch = ShiftWatch {
            provider,
            shifts: Arc::new(cloud.clone()),
            cluster_arn: arn_of(CLUSTER),
            objects: Arc::new(objects),
        };
        Self { cloud, clock, watch, told, zones_told: BTreeSet::new() }
    }

    fn shift_away_from(&self, zone_id: &str, seconds: Option<i64>) {
        let ends_at = seconds.map(|seconds| self.clock.now().saturating_add(DurationMs::from_seconds(seconds)));
        self.cloud.shift_away_from([ZonalShift { zone_id: zone_id.to_owned(), ends_at }]);
    }

    /// What is told by a look.
    fn look(&mut self) -> Result<Vec<String>, Failed> {
        block_on(self.watch.look(&mut self.zones_told))?;
        let line = |event: Event| {
            let name = event.regarding.name.unwrap_or_default();
            format!("{name}: {} {}: {}", event.severity.as_str(), event.reason, event.message)
        };
        Ok(self.told.take(line))
    }

    /// The zones in which machines on demand can be launched.
    fn zones(&self) -> BTreeSet<String> {
        let types = block_on(self.watch.provider.instance_types(&pool("anywhere", &[]))).unwrap();
        let all = types.types.iter().flat_map(|it| &it.offerings);
        let available = all.filter(|it| it.available && it.capacity_type == CapacityType::OnDemand);
        available.map(|it| it.zone.clone()).collect()
    }
}

fn in_region<const N: usize>(zones: [&str; N]) -> BTreeSet<String> {
    zones.map(|letter| format!("us-east-1{letter}")).into()
}

#[test]
fn nothing_is_launched_in_a_zone_that_is_shifted_away_from_and_nodepools_that_used_it_are_told() {
    let mut world = World::new();
    world.cloud.shift_away_from([]);
    assert_eq!(world.look().unwrap(), [] as [&str; 0]);
    assert_eq!(world.zones(), in_region(["a", "b", "c"]));
    world.shift_away_from(ZONE_B, None);
    let text = "traffic is shifted away from zone us-east-1b (use1-az2), nothing is launched there";
    assert_eq!(world.look().unwrap(), [format!("anywhere: Warning ZonalShiftActive: {text}")]);
    assert_eq!(world.look().unwrap(), [] as [&str; 0], "once");
    assert_eq!(world.zones(), in_region(["a", "c"]));
    world.cloud.shift_away_from([]);
    let text = "machines are launched in zone us-east-1b (use1-az2) again";
    assert_eq!(world.look().unwrap(), [format!("anywhere: Normal ZonalShiftCleared: {text}")]);
    assert_eq!(world.zones(), in_region(["a", "b", "c"]));
}

#[test]
fn a_machine_that_is_not_listed_in_a_zone_that_is_shifted_away_from_may_be_there() {
    let mut world = World::new();
    world.shift_away_from(ZONE_B, None);
    world.look().unwrap();
    let look = |world: &World, zone: &str| {
        let id = format!("aws:///{zone}/i-0123456789abcdef0").as_str().into();
        block_on(world.watch.provider.get(&id)).unwrap_err()
    };
    let error = look(&world, "us-east-1b");
    assert!(matches!(&error, Error::Transient(why) if why.ends_with("where a zonal shift is active")), "{error}");
    assert!(matches!(look(&world, "us-east-1a"), Error::NotFound(_)));
    world.cloud.shift_away_from([]);
    world.look().unwrap();
    assert!(matches!(look(&world, "us-east-1b"), Error::NotFound(_)));
}

#[test]
fn a_shift_ends_at_its_time_though_nobody_can_be_asked_and_stands_until_then() {
    let mut world = World::new();
    world.shift_away_from(ZONE_B, Some(60));
    assert_eq!(world.look().unwrap().len(), 1);
    world.cloud.refuse("arc-zonal-shift:GetManagedResource", "InternalServerException", "try again");
    assert!(world.look().is_err());
    assert_eq!(world.zones(), in_region(["a", "c"]));
    world.clock.advance(DurationMs::from_seconds(60));
    assert_eq!(world.zones(), in_region(["a", "b", "c"]));
}

#[test]
fn a_cluster_that_is_not_registered_is_told_of() {
    let error = World::new().look().unwrap_err().to_string();
    assert!(error.contains("is not a managed resource"), "{error}");
}
