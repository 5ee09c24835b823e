use super::*;

const CLASS: PodClass = PodClass::numbered(1);

fn brake() -> Brake {
    Brake::new(DurationMs::from_seconds(20))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(1_000_000 + second)
}

fn in_vain(number: usize, before: u32, at: Timestamp) -> InVain {
    InVain {
        class: CLASS,
        before,
        at,
        node_claim: format!("claim-{number}").into(),
        node_pool: "pool".into(),
        instance_type: Some("small".into()),
        room: vec![("cpu".to_owned(), 500)],
        message: format!("machine {number}"),
    }
}

/// The seconds at which machines are launched for a pod that none of them helps, within so many seconds; each machine
/// is initialized after `startup` seconds. At some seconds the controller is started anew.
fn launches(seconds: i64, startup: i64, restarts: &[i64]) -> Vec<i64> {
    let mut brake = brake();
    let mut launches: Vec<(i64, u32)> = Vec::new();
    for second in 0..seconds {
        if restarts.contains(&second) {
            brake = self::brake();
        }
        let (ready, coming): (Vec<_>, Vec<_>) = launches.iter().partition(|(launched, _)| launched + startup <= second);
        for (number, (launched, before)) in ready.into_iter().enumerate() {
            brake.note(&in_vain(number, before, at(launched + startup)), at(second));
        }
        brake.tidy(&BTreeSet::from([CLASS]), at(second), |_| true);
        let may_launch = match brake.allowance(CLASS, at(second)) {
            Allowance::Any | Allowance::One => true,
            Allowance::NoneUntil(_) => false,
        };
        if coming.is_empty() && may_launch {
            launches.push((second, brake.in_vain(CLASS)));
        }
    }
    launches.into_iter().map(|(second, _)| second).collect()
}

/// The most launches within any ten minutes.
fn most_in_ten_minutes(launches: &[i64]) -> usize {
    let within = |from: i64| launches.iter().filter(|&&at| (from..from + 600).contains(&at)).count();
    launches.iter().map(|&from| within(from)).max().unwrap_or(0)
}

#[test]
fn a_pod_that_no_machine_helps_gets_four_in_ten_minutes_at_most() {
    for startup in [0, 3, 60] {
        let day = launches(24 * 3600, startup, &[]);
        assert!((2..=4).contains(&most_in_ten_minutes(&day)), "{startup} s: {day:?}");
        let gaps: Vec<i64> = day.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.is_sorted() && gaps.last() == Some(&(1800 + startup)), "{startup} s: {gaps:?}");
    }
}

#[test]
fn a_restart_does_not_start_the_delays_afresh() {
    let without = launches(7200, 5, &[]);
    let restarts: Vec<i64> = (1..7200).step_by(17).collect();
    assert_eq!(launches(7200, 5, &restarts), without);
}

#[test]
fn after_a_launch_in_vain_one_machine_is_tried_and_when_it_helps_the_others_may_follow() {
    let mut brake = brake();
    assert_eq!(brake.allowance(CLASS, at(0)), Allowance::Any);
    assert!(brake.note(&in_vain(1, 0, at(10)), at(12)));
    assert!(!brake.note(&in_vain(1, 0, at(10)), at(13)), "told once");
    assert_eq!(brake.allowance(CLASS, at(29)), Allowance::NoneUntil(at(30)));
    assert_eq!(brake.allowance(PodClass::numbered(2), at(29)), Allowance::Any, "no other class has to wait");
    assert_eq!(brake.allowance(CLASS, at(30)), Allowance::One);
    brake.note_help(CLASS, 0, at(0), at(30));
    assert_eq!(brake.allowance(CLASS, at(30)), Allowance::One, "one that was launched before says nothing");
    brake.note_help(CLASS, 1, at(35), at(64));
    assert_eq!(brake.allowance(CLASS, at(64)), Allowance::One, "its pod may still be pushed out");
    brake.note_help(CLASS, 1, at(35), at(65));
    assert_eq!(brake.allowance(CLASS, at(65)), Allowance::Any);
    assert_eq!(brake.in_vain(CLASS), 1, "the next one in vain counts on");
    brake.note_help(CLASS, 1, at(35), at(635));
    assert!(brake.is_idle(), "after ten minutes all is well");
}

#[test]
fn machines_that_were_launched_together_count_as_one_launch() {
    let mut brake = brake();
    for number in 0..5 {
        brake.note(&in_vain(number, 0, at(10 + i64::try_from(number).unwrap())), at(20));
    }
    assert_eq!((brake.in_vain(CLASS), brake.allowance(CLASS, at(20))), (1, Allowance::NoneUntil(at(34))));
}

#[test]
fn what_is_remembered_is_bounded_and_forgotten_when_it_does_not_matter_any_more() {
    let mut brake = brake();
    for number in 0..2_000 {
        let launch = InVain { class: PodClass::numbered(number), ..in_vain(1, 0, at(0)) };
        brake.note(&InVain { instance_type: Some(format!("type-{number}").as_str().into()), ..launch }, at(0));
    }
    brake.tidy(&BTreeSet::new(), at(1), |_| true);
    assert_eq!((brake.classes.len(), brake.rooms.len()), (REMEMBERED, REMEMBERED));
    brake.tidy(&BTreeSet::new(), at(1801), |_| false);
    assert!(brake.is_idle() && brake.judged.is_empty());
    brake.tidy(&BTreeSet::new(), at(3601), |_| false);
    assert_eq!(brake.rooms("pool").count(), 0);
}

#[test]
fn what_machines_of_a_deleted_node_pool_did_holds_up_no_other() {
    let mut brake = brake();
    brake.note(&in_vain(1, 4, at(0)), at(0));
    let elsewhere = InVain { class: PodClass::numbered(2), node_pool: "other".into(), ..in_vain(2, 0, at(0)) };
    brake.note(&elsewhere, at(0));
    brake.forget_gone(|_| true);
    assert!(matches!(brake.allowance(CLASS, at(1)), Allowance::NoneUntil(_)));
    brake.forget_gone(|node_pool| node_pool.as_str() == "other");
    assert_eq!((brake.allowance(CLASS, at(1)), brake.rooms("pool").count()), (Allowance::Any, 0));
    assert!(matches!(brake.allowance(elsewhere.class, at(1)), Allowance::NoneUntil(_)), "its NodePool is there");
    brake.note(&in_vain(1, 4, at(0)), at(2));
    assert_eq!(brake.allowance(CLASS, at(2)), Allowance::Any, "a machine that was judged before is not news");
}

#[test]
fn a_node_pool_is_told_of_the_worst_of_its_classes_that_wait() {
    let mut brake = brake();
    brake.note(&in_vain(1, 0, at(0)), at(0));
    brake.note(&InVain { class: PodClass::numbered(2), message: "worse".to_owned(), ..in_vain(2, 4, at(0)) }, at(0));
    let waiting = BTreeSet::from([CLASS, PodClass::numbered(2)]);
    assert_eq!(brake.troubles(&waiting), BTreeMap::from([("pool".into(), (5, "worse".to_owned()))]));
    assert_eq!(
        brake.troubles(&BTreeSet::from([CLASS])),
        BTreeMap::from([("pool".into(), (1, "machine 1".to_owned()))])
    );
    assert!(brake.troubles(&BTreeSet::new()).is_empty());
}
