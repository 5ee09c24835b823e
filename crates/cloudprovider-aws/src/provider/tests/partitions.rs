//! Placement groups of partitions: what types say of them, who chooses, and that it is known which one it is.

use std::collections::BTreeSet;

use super::launches::{create, of_type, on_demand, one_of};
use super::*;
use crate::labels;
use crate::launch::resolve::asked_partition;

const PARTITION: &str = labels::PLACEMENT_GROUP_PARTITION;

fn group(strategy: &str, partitions: Option<i32>) -> PlacementGroup {
    PlacementGroup { id: "pg-1".to_owned(), name: "apart".to_owned(), strategy: strategy.to_owned(), partitions }
}

/// A world whose node class names a placement group.
fn world(group: PlacementGroup) -> World {
    let world = World::new();
    let mut class = class();
    class["spec"]["placementGroupSelector"] = json!({ "name": group.name });
    world.objects.set_class(class);
    world.cloud.add_placement_group(group, Default::default());
    world
}

/// What m5.large says of partitions.
fn of_types(world: &World) -> Option<BTreeSet<String>> {
    let types = world.clock.run(async { world.provider().instance_types(&node_pool()).await.unwrap() });
    let m5 = find(&types.types, "m5.large").unwrap();
    assert_eq!(m5.certain_label(labels::PLACEMENT_GROUP_ID), Some("pg-1"));
    m5.requirements.get(PARTITION).cloned()
}

#[test]
fn types_leave_the_partition_open_where_the_group_has_some() {
    let names = |count: i32| Some((1..=count).map(|it| it.to_string()).collect::<BTreeSet<_>>());
    assert_eq!(of_types(&world(group("partition", Some(3)))), names(3));
    assert_eq!(of_types(&world(group("cluster", None))), None);
    assert_eq!(of_types(&world(group("spread", Some(3)))), None);
}

/// Labels with values that are allowed, the placement group, and the partition that is asked for.
type Case<'a> = (&'a [(&'a str, &'a [&'a str])], &'a PlacementGroup, Option<i32>);

#[test]
fn a_launch_asks_for_the_first_partition_that_is_allowed_and_for_none_where_nothing_is_said() {
    let asked = |requirements: &[(&str, &[&str])], group: &PlacementGroup| {
        let requirements: Vec<_> = requirements.iter().map(|(key, values)| one_of(key, values)).collect();
        let requirements = cloudprovider::LabelRequirements::parse(&requirements, &provider_labels(&[])).unwrap();
        asked_partition(&requirements, group)
    };
    let (of_twelve, of_none) = (group("partition", Some(12)), group("cluster", None));
    let cases: [Case<'_>; 5] = [
        (&[], &of_twelve, None),
        (&[(PARTITION, &["7"])], &of_twelve, Some(7)),
        // In byte order, as Karpenter has it.
        (&[(PARTITION, &["2", "10"])], &of_twelve, Some(10)),
        (&[(PARTITION, &["13"])], &of_twelve, None),
        (&[(PARTITION, &["1"])], &of_none, None),
    ];
    for (requirements, group, expected) in cases {
        assert_eq!(asked(requirements, group), expected, "{requirements:?}");
    }
}

/// Shows machines late.
struct Late;

impl Faults for Late {
    fn of_call(&mut self, _: &'static str) -> CallFault {
        CallFault::None
    }

    fn lag(&mut self, of: Lag) -> DurationMs {
        DurationMs::from_seconds(if of == Lag::Launch { 20 } else { 0 })
    }
}

#[test]
fn a_machine_has_the_partition_that_was_asked_for_or_the_one_that_ec2_chose_once_ec2_tells_it() {
    let world = world(group("partition", Some(3)));
    world.cloud.set_faults(Some(Box::new(Late)));
    let wanted = |partitions: &[&str]| {
        let asks = (!partitions.is_empty()).then(|| one_of(PARTITION, partitions));
        [of_type("m5.large"), on_demand()].into_iter().chain(asks).collect::<Vec<_>>()
    };
    let claims = [("asks", &["3"][..]), ("asks-not", &[][..])].map(|(name, it)| world.claim(name, wanted(it)));
    world.clock.run(async {
        let provider = world.provider();
        for (claim, waits) in claims.iter().zip([false, true]) {
            let began_at = world.clock.now();
            let made = create(&provider, claim).await.unwrap();
            let name = claim.metadata.name.as_deref();
            assert_eq!(world.clock.now().since(began_at) >= DurationMs::from_seconds(20), waits, "{name:?}");
            let id = MachineId::parse(&made.provider_id).unwrap().instance;
            let machine = world.cloud.alive().into_iter().find(|it| it.id == id).unwrap();
            assert_eq!(made.labels.get(PARTITION), machine.partition.map(|it| it.to_string()).as_ref(), "{name:?}");
            assert!(machine.partition.is_some() && (waits || machine.partition == Some(3)), "{name:?}: {machine:?}");
            assert_eq!(made.labels.get(labels::PLACEMENT_GROUP_ID).map(String::as_str), Some("pg-1"));
        }
    });
}
