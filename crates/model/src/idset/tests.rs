use std::collections::BTreeSet;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use proptest::prelude::*;

use super::*;
use crate::define_id;

define_id! {
    struct ItemId;
}

fn ids(indices: &BTreeSet<usize>) -> IdSet<ItemId> {
    indices.iter().copied().map(ItemId::from_index).collect()
}

fn indices(set: &IdSet<ItemId>) -> BTreeSet<usize> {
    set.iter().map(Id::index).collect()
}

fn any_indices() -> impl Strategy<Value = BTreeSet<usize>> {
    prop::collection::btree_set(0..200usize, 0..20)
}

proptest! {
    #[test]
    fn agrees_with_a_btreeset(a in any_indices(), b in any_indices(), room in 0..300usize) {
        let (set_a, set_b) = (ids(&a), ids(&b));
        prop_assert_eq!(&indices(&set_a), &a);
        prop_assert_eq!(set_a.count(), a.len());
        prop_assert_eq!(set_a.is_empty(), a.is_empty());
        prop_assert_eq!(set_a.first().map(Id::index), a.first().copied());
        prop_assert_eq!(set_a.is_subset(&set_b), a.is_subset(&b));
        prop_assert_eq!(set_a.is_disjoint(&set_b), a.is_disjoint(&b));
        prop_assert_eq!(set_a.intersects(&set_b), !a.is_disjoint(&b));
        prop_assert_eq!(set_a.intersection_count(&set_b), a.intersection(&b).count());
        prop_assert_eq!(set_a == set_b, a == b);

        let changed = |change: fn(&mut IdSet<ItemId>, &IdSet<ItemId>)| {
            let mut set = set_a.clone();
            change(&mut set, &set_b);
            indices(&set)
        };
        prop_assert_eq!(changed(IdSet::intersect_with), &a & &b);
        prop_assert_eq!(changed(IdSet::union_with), &a | &b);
        prop_assert_eq!(changed(IdSet::difference_with), &a - &b);

        // Room that is not used changes neither equality nor hash.
        let mut roomy = IdSet::with_len(room);
        roomy.extend(set_a.iter());
        prop_assert_eq!(&roomy, &set_a);
        prop_assert_eq!(FixedState::default().hash_one(&roomy), FixedState::default().hash_one(&set_a));
    }

    #[test]
    fn insert_and_remove_tell_what_changed(present in any_indices(), index in 0..300usize) {
        let id = ItemId::from_index(index);
        let mut set = ids(&present);
        prop_assert_eq!(set.contains(id), present.contains(&index));
        prop_assert_eq!(set.insert(id), !present.contains(&index));
        prop_assert!(set.contains(id));
        prop_assert!(set.remove(id));
        prop_assert!(!set.remove(id) && !set.contains(id));
    }
}

#[test]
fn full_holds_exactly_the_ids_below_its_length() {
    let set = IdSet::<ItemId>::full(70);
    assert_eq!(indices(&set), (0..70).collect());
    assert!(!set.contains(ItemId::from_index(70)));
    assert!(IdSet::<ItemId>::full(0).is_empty());
}

#[test]
fn a_cleared_set_is_empty() {
    let mut set = IdSet::<ItemId>::full(10);
    set.clear();
    assert_eq!(set, IdSet::new());
}
