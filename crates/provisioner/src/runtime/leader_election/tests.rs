use model::Timestamp;

use super::*;
use crate::runtime::clock::MockClock;

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

/// What comes of a write of the Lease, after that many seconds.
#[derive(Clone, Copy)]
enum Answer {
    Written,
    Conflict,
    Never,
}

/// Keeps a Lease whose writes get these answers; says after how many milliseconds it was lost.
async fn kept(writes: &[(u64, Answer)], fence: Fence) -> u128 {
    use http::{Method, Request, Response, StatusCode};
    use kube::client::Body;

    let ours =
        Lease { metadata: ObjectMeta { name: Some("l".into()), ..ObjectMeta::default() }, spec: Some(lease("me", 0)) };
    let (text, writes) = (
        serde_json::to_vec(&ours).unwrap(),
        parking_lot::Mutex::new(std::collections::VecDeque::from(writes.to_vec())),
    );
    let server = tower::service_fn(move |request: Request<Body>| {
        let (after_s, answer) = match *request.method() {
            Method::GET => (0, Answer::Written),
            _ => writes.lock().pop_front().unwrap_or((0, Answer::Never)),
        };
        let text = text.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(after_s)).await;
            let (code, body) = match answer {
                Answer::Written => (StatusCode::OK, text),
                Answer::Conflict => {
                    (StatusCode::CONFLICT, br#"{"status":"Failure","reason":"Conflict","code":409}"#.to_vec())
                }
                Answer::Never => return std::future::pending().await,
            };
            Response::builder().status(code).body(Body::from(body))
        }
    });
    let started = Instant::now();
    fence.open_until(started + RENEW_DEADLINE);
    let leadership = Leadership {
        candidate: Candidate { namespace: "ns".into(), name: "l".into(), identity: "me".into() },
        api: Api::namespaced(Client::new(server, "ns"), "ns"),
        clock: Arc::new(MockClock::at(Timestamp::from_seconds(2000))),
        held: ours,
        renewed_at: started,
        fence,
        beat: Beat::unobserved(),
    };
    leadership.keep(CancellationToken::new()).await.unwrap_err();
    started.elapsed().as_millis()
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_given_up_ten_seconds_after_the_last_successful_write_began() {
    let slow = [(3, Answer::Written), (3, Answer::Written)];
    // Written from 2 to 5 and from 7 to 10.
    assert_eq!(kept(&slow, Fence::closed()).await, 17_000);
    assert_eq!(kept(&[], Fence::closed()).await, 10_000, "calls that hang are cut off by what is left");
    let late = [(4, Answer::Written), (6, Answer::Written)];
    assert_eq!(kept(&late, Fence::closed()).await, 12_000, "an answer after five seconds is none");
}

#[tokio::test(start_paused = true)]
async fn to_read_that_the_lease_is_ours_renews_nothing() {
    let conflict = [(0, Answer::Conflict), (0, Answer::Written)];
    // Both at two seconds.
    assert_eq!(kept(&conflict, Fence::closed()).await, 12_000);
    assert_eq!(kept(&[(0, Answer::Conflict), (0, Answer::Never)], Fence::closed()).await, 10_000);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_begun_in_the_last_second_of_a_leadership_or_after_it() {
    let fence = Fence::closed();
    let watching = tokio::spawn({
        let fence = fence.clone();
        async move {
            let started = Instant::now();
            tokio::time::sleep(Duration::from_millis(1)).await;
            while fence.check().is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            started.elapsed().as_millis()
        }
    });
    assert_eq!(kept(&[], fence.clone()).await, 10_000);
    let closed_after = watching.await.unwrap();
    assert!((9_000..9_020).contains(&closed_after), "{closed_after}");
    assert_eq!(fence.check(), Err(NotLeading));
}
