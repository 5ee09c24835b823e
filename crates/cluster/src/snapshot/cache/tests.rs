//! A snapshot that is made with what is left of the last one is the one that is made without.

mod history;

use proptest::prelude::*;
use scheduling::provisioning;

use super::*;
use history::{Change, Place, Store, change};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_remembered_of_the_last_snapshot_changes_no_byte_of_the_next(
        rounds in prop::collection::vec((prop::collection::vec(change(), 0..6), any::<bool>()), 1..12)
    ) {
        let (mut store, mut cache) = (Store::new(), Cache::default());
        for (changes, learns) in rounds {
            for change in &changes {
                if store.apply(change) {
                    cache = Cache::default();
                }
            }
            let ((cached, errors), (fresh, errors_without)) = (store.cached(&mut cache), store.fresh());
            prop_assert_eq!(errors, errors_without);
            prop_assert_eq!(format!("{cached:?}"), format!("{fresh:?}"));
            let plans = [&cached, &fresh].map(|snapshot| format!("{:?}", provisioning::plan(snapshot)));
            prop_assert_eq!(&plans[0], &plans[1]);
            if learns {
                store.learn(&cached);
            }
        }
    }
}

/// A cluster of nodes with a pod and a NodeClaim each, and what its second snapshot shares with its first after
/// `change`.
#[track_caller]
fn check_shared(change: &[Change], expected: &[bool]) {
    let (mut store, mut cache) = (Store::new(), Cache::default());
    for node in 0..3 {
        store.apply(&Change::Node { node, cpu: 2, ready: true, going: false });
        store.apply(&Change::Claim { claim: node, progress: 3, value: 0 });
        store.apply(&Change::Pod { pod: node, place: Place::Bound(node), kind: 0, phase: 1 });
    }
    // Names that the store does not know yet keep the first from being remembered.
    let (first, _) = store.cached(&mut cache);
    store.learn(&first);
    let (before, _) = store.cached(&mut cache);
    for change in change {
        store.apply(change);
    }
    let (after, _) = store.cached(&mut cache);
    let shared: Vec<bool> = before.nodes.iter().zip(&after.nodes).map(|(a, b)| Arc::ptr_eq(a, b)).collect();
    assert_eq!(shared, expected);
}

#[test]
fn only_nodes_that_something_happened_to_are_made_anew() {
    check_shared(&[], &[true, true, true]);
    check_shared(&[Change::Pod { pod: 7, place: Place::Bound(1), kind: 1, phase: 1 }], &[true, false, true]);
    check_shared(&[Change::PodGone(2)], &[true, true, false]);
    check_shared(&[Change::Node { node: 0, cpu: 3, ready: true, going: false }], &[false, true, true]);
    check_shared(&[Change::Claim { claim: 1, progress: 3, value: 1 }], &[true, false, true]);
    check_shared(&[Change::Pod { pod: 8, place: Place::Nominated(2), kind: 1, phase: 1 }], &[true, true, false]);
    check_shared(&[Change::Pod { pod: 8, place: Place::Waiting, kind: 1, phase: 1 }], &[true, true, true]);
}
