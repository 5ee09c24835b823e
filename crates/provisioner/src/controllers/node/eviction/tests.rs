use super::*;
use crate::world::test_pods::pod;

const NOW: Timestamp = Timestamp::from_seconds(10_000);

fn after(seconds: i64) -> Timestamp {
    NOW.saturating_add(DurationMs::from_seconds(seconds))
}

#[test]
fn what_happens_to_a_pod_depends_on_its_state_and_the_deadline() {
    let plain = pod("a");
    let mut ended = pod("a");
    ended.phase = model::pod::PodPhase::Failed;
    let mut leaving = pod("a");
    leaving.deletion_timestamp = Some(after(20));
    let mut protected = pod("a");
    protected.do_not_disrupt = DoNotDisrupt::Always;
    let cases = [
        (&plain, None, Step::Evict),
        (&plain, Some(31), Step::Evict),
        (&plain, Some(29), Step::Delete { grace_s: 29 }),
        (&plain, Some(-5), Step::Delete { grace_s: 1 }),
        (&ended, Some(-5), Step::Drop),
        (&leaving, None, Step::Drop),
        (&leaving, Some(20), Step::Drop),
        (&leaving, Some(10), Step::Delete { grace_s: 10 }),
        (&protected, None, Step::Wait),
        (&protected, Some(31), Step::Wait),
        (&protected, Some(29), Step::Delete { grace_s: 29 }),
    ];
    for (pod, deadline, expected) in cases {
        assert_eq!(decide(pod, deadline.map(after), NOW), expected, "{pod:?} {deadline:?}");
    }
}

#[test]
fn what_the_annotation_says_is_told_when_the_pod_shall_leave() {
    let told = |do_not_disrupt, started: Option<i64>| {
        let mut pod = pod("a");
        pod.do_not_disrupt = do_not_disrupt;
        pod.started_at = started.map(after);
        about_protection(&pod, NOW).map(|event| (event.reason, event.message))
    };
    let minute = DoNotDisrupt::For(DurationMs::from_seconds(60));
    assert_eq!(told(DoNotDisrupt::Never, Some(-90)), None);
    assert_eq!(told(DoNotDisrupt::Always, Some(-90)), None);
    assert_eq!(told(minute, None), None);
    let (reason, message) = told(DoNotDisrupt::Invalid, Some(-90)).unwrap();
    assert_eq!(reason, "InvalidDoNotDisruptAnnotation");
    assert!(message.contains("karpenter.sh/do-not-disrupt") && message.contains("30m"), "{message}");
    let (reason, message) = told(minute, Some(-59)).unwrap();
    assert_eq!(reason, "DoNotDisruptUntil");
    assert!(message.contains("until 1970-01-01T02:46:41Z"), "{message}");
    let (reason, message) = told(minute, Some(-60)).unwrap();
    assert_eq!(reason, "DoNotDisruptGracePeriodElapsed");
    assert!(message.contains("since 1970-01-01T02:46:40Z"), "{message}");
}

fn request(deadline: Option<i64>) -> Request {
    Request { node: "n".into(), deadline: deadline.map(after), give_up_at: None, reason: "Drifted".to_owned() }
}

#[test]
fn of_two_deadlines_the_earlier_one_holds() {
    let evictions = Evictions::default();
    let key = PodKey { name: NamespacedName::new("default", "a"), uid: "u".into() };
    for (added, expected) in
        [(None, None), (Some(20), Some(20)), (Some(30), Some(20)), (None, Some(20)), (Some(10), Some(10))]
    {
        assert!(evictions.add(key.clone(), request(added)));
        assert_eq!(evictions.get(&key), Some(request(expected)));
    }
    assert_eq!(evictions.queue.len(), 1);
}

#[test]
fn the_queue_is_bounded_and_takes_more_once_there_is_room() {
    let evictions = Evictions::default();
    let key = |index: usize| PodKey { name: NamespacedName::new("default", format!("p{index}")), uid: "u".into() };
    for index in 0..CAPACITY {
        assert!(evictions.add(key(index), request(None)));
    }
    assert!(!evictions.add(key(CAPACITY), request(None)));
    evictions.remove(&key(0));
    assert!(evictions.add(key(CAPACITY), request(None)));
}

#[test]
fn refused_evictions_are_tried_later_and_later_but_not_past_the_moment_for_force() {
    let evictions = Evictions::default();
    let key = PodKey { name: NamespacedName::new("default", "a"), uid: "u".into() };
    evictions.add(key.clone(), request(None));
    let delays: Vec<u128> = (0..9).map(|_| evictions.refused(&key).as_millis()).collect();
    assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    let ten_seconds = Duration::from_secs(10);
    assert_eq!(wait(&pod("a"), &request(Some(32)), NOW, ten_seconds), Duration::from_millis(2001));
    assert_eq!(wait(&pod("a"), &request(Some(3600)), NOW, ten_seconds), ten_seconds);
    assert_eq!(wait(&pod("a"), &request(None), NOW, ten_seconds), ten_seconds);
}

#[test]
fn only_refusals_by_budgets_are_told_from_other_errors() {
    assert!(refusal(429, "Cannot evict pod").is_some_and(|text| text.contains("violates a PDB")));
    assert!(
        refusal(
            500,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        .is_some()
    );
    assert_eq!(refusal(500, "etcd is down"), None);
    assert_eq!(refusal(403, "forbidden"), None);
}

#[test]
fn who_rides_a_reboot_is_let_alone_unless_the_node_goes_as_well() {
    let evictions = Evictions::default();
    let key = PodKey { name: NamespacedName::new("default", "p"), uid: "u".into() };
    let until = |give_up_at: i64| Request { give_up_at: Some(after(give_up_at)), ..request(None) };
    assert!(evictions.add(key.clone(), until(60)));
    let is_given_up = |seconds: i64| evictions.get(&key).unwrap().is_given_up(after(seconds));
    assert_eq!([is_given_up(59), is_given_up(60)], [false, true]);
    assert!(evictions.add(key.clone(), request(None)), "a drain without end");
    assert!(!is_given_up(60));
    assert!(evictions.add(key.clone(), request(Some(90))));
    assert!(!is_given_up(60));
}
