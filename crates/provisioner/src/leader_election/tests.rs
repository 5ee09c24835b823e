use model::Timestamp;

use super::*;
use crate::clock::MockClock;

fn lease(holder: &str, renewed_at_s: i64) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        renew_time: Some(MicroTime(jiff::Timestamp::from_second(renewed_at_s).unwrap())),
        lease_transitions: Some(3),
        ..LeaseSpec::default()
    }
}

#[test]
fn a_lease_is_taken_when_nobody_holds_it_and_left_while_its_holder_renews() {
    let seconds = Duration::from_secs;
    for (spec, unchanged_for, step) in [
        (None, seconds(0), Step::Acquire),
        (Some(lease("", 0)), seconds(0), Step::Acquire),
        (Some(LeaseSpec::default()), seconds(0), Step::Acquire),
        (Some(lease("me", 0)), seconds(0), Step::Renew),
        (Some(lease("me", 0)), seconds(100), Step::Renew),
        (Some(lease("other", 0)), seconds(14), Step::Wait),
        (Some(lease("other", 0)), seconds(15), Step::Acquire),
        (Some(LeaseSpec { lease_duration_seconds: Some(60), ..lease("other", 0) }), seconds(59), Step::Wait),
        (Some(LeaseSpec { lease_duration_seconds: Some(-1), ..lease("other", 0) }), seconds(14), Step::Wait),
        (Some(LeaseSpec { lease_duration_seconds: None, ..lease("other", 0) }), seconds(15), Step::Acquire),
    ] {
        assert_eq!(evaluate(spec.as_ref(), "me", unchanged_for), step, "{spec:?} after {unchanged_for:?}");
    }
}

#[test]
fn another_leader_counts_only_while_it_renews() {
    let spec = lease("karpenter-1_x", 1000);
    assert_eq!(live_holder(&spec, 1_014_999), Some("karpenter-1_x"));
    assert_eq!(live_holder(&spec, 1_015_000), None);
    assert_eq!(live_holder(&lease("", 1000), 1_000_000), None);
    assert_eq!(live_holder(&LeaseSpec { renew_time: None, ..spec }, 1_000_000), None);
}

#[test]
fn a_transition_is_counted_when_the_lease_changes_hands() {
    let clock = MockClock::at(Timestamp::from_seconds(2000));
    let candidate = Candidate { namespace: "kube-system".into(), name: "l".into(), identity: "me".into() };
    let held = |by: &str| Lease {
        metadata: ObjectMeta { resource_version: Some("7".into()), ..ObjectMeta::default() },
        spec: Some(lease(by, 1000)),
    };
    let transitions = |current: Option<&Lease>| acquired(current, &candidate, &clock).spec.unwrap().lease_transitions;
    assert_eq!(transitions(None), Some(0));
    assert_eq!(transitions(Some(&held("other"))), Some(4));
    assert_eq!(transitions(Some(&held("me"))), Some(3));
    let written = acquired(Some(&held("other")), &candidate, &clock);
    assert_eq!(written.metadata.resource_version.as_deref(), Some("7"), "a concurrent writer must make it fail");
    let spec = written.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("me"));
    assert_eq!(spec.renew_time.unwrap().0.as_second(), 2000);
}
