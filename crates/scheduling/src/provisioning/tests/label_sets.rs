//! What labels say of all offerings at once is what they say of each.

use api::labels;
use model::{IdSet, KeyId, Operator, Requirement, Requirements, ValueId};

use super::fixture::{Fixture, RESERVATION};
use crate::catalogue::OfferingId;
use crate::simulation::compile::catalogue_index::Lookups;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Request;

/// Two types in three zones, with a reservation in one of them and an offering that cannot be had in another.
fn fixture() -> Fixture {
    let mut f = Fixture::new();
    for (name, price) in [("small", 10), ("large", 20)] {
        f.instance_type(name, 2, 4);
        for zone in ["za", "zb", "zc"] {
            f.offering(zone, "on-demand", price).offering(zone, "spot", price / 2);
        }
        f.unavailable().offering("za", "reserved", 0).of_reservation(&format!("cr-{name}"), 1);
    }
    f.pool("p");
    f
}

#[test]
fn offerings_that_agree_with_requirements_are_those_that_do_so_one_by_one() {
    let mut f = fixture();
    let mut asked = vec![Requirements::new()];
    for (key, values) in [
        (labels::ZONE, ["za", "zx"]),
        (labels::CAPACITY_TYPE, ["spot", "reserved"]),
        (labels::INSTANCE_TYPE, ["small", "huge"]),
        (RESERVATION, ["cr-small", "cr-x"]),
        ("example.com/nobody-says", ["a", "b"]),
    ] {
        let mut of_key = Vec::new();
        for (operator, values) in [
            (Operator::In, &values[..]),
            (Operator::In, &values[1..]),
            (Operator::NotIn, &values[..1]),
            (Operator::Exists, &[]),
            (Operator::DoesNotExist, &[]),
        ] {
            of_key.push(Requirement::parse(key, operator, values.iter().copied(), &mut f.names).unwrap());
        }
        let more = |so_far: &Requirements| {
            let names = &f.names;
            let with = |requirement: &Requirement| {
                let both = so_far.iter().chain([requirement]).cloned();
                Requirements::from_requirements(both, names)
            };
            of_key.iter().map(with).collect::<Vec<_>>()
        };
        let with_key: Vec<_> = asked.iter().flat_map(more).collect();
        asked.extend(with_key);
    }
    let snapshot = f.snapshot();
    let request = Request::of(&snapshot);
    let problem = Problem::new(&request);
    let table = problem.pools.iter().next().unwrap();
    let mut lookups = Lookups::default();
    let mut counts = [0; 2];
    for requirements in asked {
        let names = problem.names();
        let agrees =
            |id: &OfferingId| requirements.intersects(&table.catalogue.offerings[*id].requirements, names).is_ok();
        let expected: IdSet<OfferingId> = table.catalogue.offerings.ids().filter(agrees).collect();
        assert_eq!(
            table.agreeing_with(&mut lookups, &requirements, names),
            expected,
            "{}",
            requirements.display(names)
        );
        counts[usize::from(expected.is_empty())] += 1;
    }
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

#[test]
fn members_fall_into_those_that_leave_a_label_the_same_values() {
    let f = fixture();
    let snapshot = f.snapshot();
    let request = Request::of(&snapshot);
    let problem = Problem::new(&request);
    let table = problem.pools.iter().next().unwrap();
    let of_key = |key: &str| -> Vec<(Vec<ValueId>, usize)> {
        let key: KeyId = problem.names().find_key(key).unwrap();
        let groups = table.by_values(key);
        for group in &groups {
            for offering in group.offerings.iter() {
                assert!(table.members.contains(offering));
                let values = &table.catalogue.offerings[offering].requirements.get(key).unwrap().values;
                assert_eq!(values.finite_values(), Some(&*group.values));
            }
        }
        groups.into_iter().map(|group| (group.values, group.offerings.count())).collect()
    };
    let value = |name: &str| vec![problem.names().find_value(name).unwrap()];
    let by_zone = of_key(labels::ZONE);
    assert_eq!(by_zone, [(value("za"), 6), (value("zb"), 4), (value("zc"), 2)]);
    assert_eq!(of_key(RESERVATION).len(), 2, "others say nothing of it");
}
