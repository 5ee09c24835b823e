use proptest::prelude::*;

use super::*;

#[test]
fn constants_are_what_they_are_called() {
    let interner = Interner::new();
    let names = [
        (ResourceId::CPU, "cpu"),
        (ResourceId::MEMORY, "memory"),
        (ResourceId::EPHEMERAL_STORAGE, "ephemeral-storage"),
        (ResourceId::PODS, "pods"),
    ];
    for (id, name) in names {
        assert_eq!(interner.resource_name(id), name);
        assert_eq!(interner.find_resource(name), Some(id));
    }
    assert_eq!(interner.value_name(ValueId::EMPTY), "");
    assert_eq!((interner.key_count(), interner.value_count(), interner.resource_count()), (0, 1, 4));
}

#[test]
fn values_read_as_integers_by_gos_rules() {
    let mut interner = Interner::new();
    let cases = [
        ("0", Some(0)),
        ("-5", Some(-5)),
        ("+5", Some(5)),
        ("007", Some(7)),
        ("-0", Some(0)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("", None),
        ("-", None),
        ("+", None),
        (" 5", None),
        ("5 ", None),
        ("1_000", None),
        ("0x10", None),
        ("1e3", None),
        ("5.0", None),
        ("٣", None),
        ("a", None),
    ];
    for (text, expected) in cases {
        let id = interner.value(text);
        assert_eq!(interner.value_int(id), expected, "{text:?}");
    }
}

#[test]
fn a_frozen_view_does_not_see_later_names_and_ids_stay_valid() {
    let mut writer = Arc::new(Interner::new());
    let early: Vec<_> =
        (0..CHUNK_LEN + 10).map(|index| Arc::make_mut(&mut writer).key(&format!("early-{index}"))).collect();
    let frozen = Arc::clone(&writer);
    let late: Vec<_> =
        (0..2 * CHUNK_LEN).map(|index| Arc::make_mut(&mut writer).key(&format!("late-{index}"))).collect();

    assert_eq!(frozen.key_count(), early.len());
    assert_eq!(frozen.find_key("late-0"), None);
    for (index, &id) in early.iter().enumerate() {
        assert_eq!(frozen.key_name(id), format!("early-{index}"));
        assert_eq!(writer.key_name(id), format!("early-{index}"));
    }
    for (index, &id) in late.iter().enumerate() {
        assert_eq!(writer.key_name(id), format!("late-{index}"));
    }
}

#[test]
fn a_clone_shares_full_chunks() {
    let mut table = Table::default();
    for index in 0..CHUNK_LEN {
        table.intern(&index.to_string());
    }
    let clone = table.clone();
    assert!(Arc::ptr_eq(&table.full[0], &clone.full[0]));
}

#[test]
#[should_panic(expected = "the interner that gave it out")]
fn an_id_of_a_stranger_is_a_defect() {
    Interner::new().key_name(KeyId::from_index(0));
}

proptest! {
    #[test]
    fn the_same_name_has_the_same_id_and_another_name_another(names in prop::collection::vec("[a-c]{0,3}", 0..600)) {
        let mut interner = Interner::new();
        let ids: Vec<_> = names.iter().map(|name| interner.value(name)).collect();
        for (name, &id) in names.iter().zip(&ids) {
            prop_assert_eq!(interner.value_name(id), name);
            prop_assert_eq!(interner.find_value(name), Some(id));
            prop_assert!(id.index() < interner.value_count());
        }
        let distinct: std::collections::BTreeSet<_> = names.iter().map(String::as_str).chain([""]).collect();
        prop_assert_eq!(interner.value_count(), distinct.len());
    }
}

fn asking(cpu: i64) -> PodShape {
    PodShape { requests: [(ResourceId::CPU, cpu)].into_iter().collect(), ..PodShape::default() }
}

#[test]
fn equal_shapes_are_one_while_a_pod_has_them() {
    let mut interner = Interner::new();
    let (one, other, third) = (interner.shape(asking(1)), interner.shape(asking(2)), interner.shape(asking(1)));
    assert!(Arc::ptr_eq(&one, &third) && !Arc::ptr_eq(&one, &other));
    assert_eq!((*one == asking(1), *other == asking(2)), (true, true));
    let frozen = interner.clone();
    assert!(Arc::ptr_eq(&one, &interner.shape(asking(1))), "a snapshot in between changes nothing");
    drop((one, third, frozen));
    assert_eq!(*interner.shape(asking(1)), asking(1), "one that is out of use is made anew");
}

#[test]
fn shapes_out_of_use_are_dropped() {
    let mut interner = Interner::new();
    let used: Vec<_> = (0..10).map(|cpu| interner.shape(asking(cpu))).collect();
    for cpu in 0..10_000 {
        interner.shape(asking(cpu));
    }
    assert!(interner.shapes.known.len() <= Shapes::MIN_LIMIT, "{}", interner.shapes.known.len());
    assert!((0..).zip(&used).all(|(cpu, shape)| Arc::ptr_eq(shape, &interner.shape(asking(cpu)))));
}
