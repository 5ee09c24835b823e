use super::*;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;

fn at(ms: i64) -> Timestamp {
    Timestamp(1_700_000_000_000 + ms)
}

fn key(zone: &str, capacity_type: CapacityType) -> OfferingKey {
    OfferingKey { instance_type: "m5.large".into(), zone: zone.to_owned(), capacity_type, reservation_id: None }
}

fn spot(zone: &str) -> Subject {
    Subject::Offering(key(zone, CapacityType::Spot))
}

fn is_out(ledger: &Ledger, zone: &str, ms: i64) -> bool {
    ledger.is_out(&key(zone, CapacityType::Spot), at(ms))
}

/// For how many whole seconds an offering is out after these strikes, one a second.
fn seconds_out(strikes: i64) -> i64 {
    let mut ledger = Ledger::default();
    (0..strikes).for_each(|second| ledger.out_of_stock(spot("a"), at(second * SECOND)));
    let last = strikes - 1;
    (0..).find(|second| !is_out(&ledger, "a", (last + second) * SECOND)).unwrap()
}

#[test]
fn each_stock_out_that_follows_another_counts_for_longer_up_to_a_limit() {
    let out: Vec<_> = [1, 2, 4, 8, 100].into_iter().map(seconds_out).collect();
    assert_eq!(out[0], 181, "the first counts for three minutes");
    assert!(out.is_sorted() && out[1] >= 350 && out[2] >= 530, "{out:?}");
    assert!(out[4] <= 15 * 60 + 1, "{out:?}");
    assert_eq!(seconds_out(1000), out[4]);
}

#[test]
fn what_came_back_is_remembered_for_a_while() {
    let mut ledger = Ledger::default();
    ledger.out_of_stock(spot("a"), at(0));
    assert!(!is_out(&ledger, "a", 4 * MINUTE));
    ledger.out_of_stock(spot("a"), at(4 * MINUTE));
    assert!(is_out(&ledger, "a", 8 * MINUTE), "a second time soon after the first counts for longer");
    let mut other = Ledger::default();
    other.out_of_stock(spot("a"), at(0));
    other.out_of_stock(spot("a"), at(60 * MINUTE));
    assert!(!is_out(&other, "a", 64 * MINUTE), "after an hour it is the first again");
}

#[test]
fn being_passed_over_once_is_no_stock_out_but_twice_is() {
    let mut ledger = Ledger::default();
    ledger.passed_over(key("a", CapacityType::Spot), at(0));
    assert!(!is_out(&ledger, "a", 0));
    ledger.passed_over(key("a", CapacityType::Spot), at(SECOND));
    assert!(is_out(&ledger, "a", SECOND));
    ledger.served(&spot("a"), at(2 * SECOND));
    assert!(!is_out(&ledger, "a", 2 * SECOND));
}

#[test]
fn without_its_role_nothing_of_spot_is_asked_for() {
    let mut ledger = Ledger::default();
    ledger.out_of_stock(Subject::Spot, at(0));
    assert!(is_out(&ledger, "a", 0) && is_out(&ledger, "b", 0));
    assert!(!ledger.is_out(&key("a", CapacityType::OnDemand), at(0)));
    ledger.out_of_stock(Subject::Subnet("subnet-a".to_owned()), at(0));
    assert!(ledger.is_subnet_out("subnet-a", at(0)) && !ledger.is_subnet_out("subnet-b", at(0)));
}

#[test]
fn the_time_that_is_told_is_when_it_can_be_asked_for_again() {
    for strikes in 1..40 {
        let mut ledger = Ledger::default();
        (0..strikes).for_each(|index| ledger.out_of_stock(spot("a"), at(index * 7 * SECOND)));
        let (_, until) = ledger.iter(at(strikes * 7 * SECOND)).next().unwrap();
        let ms = until.since(at(0)).0;
        assert!(is_out(&ledger, "a", ms - 400) && !is_out(&ledger, "a", ms), "{strikes}");
    }
}

#[test]
fn the_generation_changes_exactly_with_the_answers() {
    let mut ledger = Ledger::default();
    let mut random = Random(7);
    let zones = ["a", "b", "c", "d"];
    let (mut now, mut last) = (0, None);
    for _ in 0..3000 {
        now += random.below(40) as i64 * SECOND;
        let zone = zones[random.below(4) as usize];
        match random.below(4) {
            0 => ledger.out_of_stock(spot(zone), at(now)),
            1 => ledger.passed_over(key(zone, CapacityType::Spot), at(now)),
            2 => ledger.served(&spot(zone), at(now)),
            _ => {}
        }
        let answers: Vec<_> = zones.iter().map(|zone| is_out(&ledger, zone, now)).collect();
        let generation = ledger.generation(at(now));
        if let Some((before, of_before)) = last.replace((answers.clone(), generation)) {
            // Two changes within one step may cancel each other.
            assert!(before == answers || of_before != generation, "{answers:?} at {now}");
        }
    }
    let settled = ledger.generation(at(now + 60 * MINUTE));
    assert_eq!(ledger.generation(at(now + 90 * MINUTE)), settled);
}

/// Enough for the order of a test.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[test]
fn what_was_written_down_gives_the_answers_that_it_gave_before() {
    let mut ledger = Ledger::default();
    ledger.out_of_stock(spot("a"), at(0));
    ledger.out_of_stock(Subject::Spot, at(MINUTE));
    ledger.passed_over(key("b", CapacityType::OnDemand), at(MINUTE));
    let text = serde_json::to_string(&ledger.entries(at(2 * MINUTE))).unwrap();
    let mut read = Ledger::default();
    read.restore(serde_json::from_str(&text).unwrap(), at(2 * MINUTE));
    for ms in (2 * MINUTE..6 * MINUTE).step_by(10_000) {
        assert_eq!(read.iter(at(ms)).collect::<Vec<_>>(), ledger.iter(at(ms)).collect::<Vec<_>>());
    }
    ledger.passed_over(key("b", CapacityType::OnDemand), at(2 * MINUTE));
    read.passed_over(key("b", CapacityType::OnDemand), at(2 * MINUTE));
    assert!(read.is_out(&key("b", CapacityType::OnDemand), at(2 * MINUTE)), "half a strike is kept too");
    assert_eq!(read.entries(at(3 * MINUTE)), ledger.entries(at(3 * MINUTE)));
}

#[test]
fn a_full_memory_forgets_what_counts_least() {
    let mut ledger = Ledger::new(2);
    ledger.out_of_stock(spot("a"), at(0));
    ledger.out_of_stock(spot("a"), at(0));
    ledger.out_of_stock(spot("b"), at(0));
    ledger.out_of_stock(spot("c"), at(SECOND));
    assert!(is_out(&ledger, "a", SECOND) && is_out(&ledger, "c", SECOND) && !is_out(&ledger, "b", SECOND));
}

#[test]
fn a_clock_that_was_ahead_keeps_nothing_out_for_longer() {
    let mut ledger = Ledger::default();
    ledger.out_of_stock(spot("a"), at(600 * MINUTE));
    let mut read = Ledger::default();
    read.restore(ledger.entries(at(600 * MINUTE)), at(0));
    assert!(is_out(&read, "a", 2 * MINUTE) && !is_out(&read, "a", 4 * MINUTE));
}
