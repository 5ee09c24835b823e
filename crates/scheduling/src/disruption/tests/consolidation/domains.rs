//! Pods that are spread over zones, or kept apart from others by zone, stay in theirs if the scheduler would not let
//! them into each other. So each command can be carried out by itself, one eviction after the other.

use std::collections::BTreeMap;

use super::exact::Random;
use super::*;
use crate::disruption::plan::Place;
use crate::simulation::homes::Homes;
use crate::snapshot::fleet::Moves;

const ZONES: [&str; 3] = ["za", "zb", "zc"];

/// A pool `p` of the usual types in three zones.
fn three_zones() -> Fixture {
    let mut f = Fixture::new();
    for (name, cpu, price) in TYPES {
        f.instance_type(name, cpu, 4 * cpu);
        for zone in ZONES {
            f.offering(zone, "on-demand", price);
        }
    }
    f.pool("p");
    f
}

fn node(f: &mut Fixture, name: &str, (of_type, cpu): (&str, i64), zone: &str) {
    f.node(name).label(labels::ZONE, zone).label(labels::INSTANCE_TYPE, of_type);
    f.label(labels::CAPACITY_TYPE, "on-demand").allocatable(1000 * cpu, gib(4 * cpu)).claim(name).of_pool("p");
}

/// In which zones such pods stay if they run there, by the pods in each zone.
#[track_caller]
fn check_staying(pods: [usize; 3], rule: fn(PodFixture<'_>) -> PodFixture<'_>, staying: [bool; 3]) {
    let mut f = three_zones();
    for (zone, pods) in ZONES.into_iter().zip(pods) {
        node(&mut f, zone, ("large", 8), zone);
        for index in 0..pods {
            rule(f.pod(&format!("{zone}-{index}")).requests(100, gib(1) / 4)).runs();
        }
    }
    let stay = ZONES.into_iter().zip(staying).filter(|(_, stays)| *stays);
    let pods_of = |zone| pods.into_iter().zip(ZONES).filter(move |(_, other)| *other == zone).map(|(pods, _)| pods);
    let expected = stay.flat_map(|(zone, _)| (0..pods_of(zone).sum()).map(move |index| format!("{zone}-{index}")));
    assert_eq!(staying_of(&f, &[]), expected.collect::<Vec<String>>(), "{pods:?}");
}

/// The pods that stay in their zones, by name, while these go anywhere.
fn staying_of(f: &Fixture, free: &[&str]) -> Vec<String> {
    let snapshot = f.snapshot();
    let fleet = fleet(&snapshot);
    let homes = Homes::new(&snapshot, &fleet);
    let names = &snapshot.interner;
    let running = || fleet.nodes.iter().flat_map(|machine| machine.pods.iter().map(move |pod| (machine, &*pod.pod)));
    let goes = running().map(|(_, pod)| pod).filter(|pod| free.contains(&&*pod.name.name));
    let stays = homes.stays(goes, names);
    let mut staying = Vec::new();
    for (machine, pod) in running() {
        let Some(home) = stays.of(pod) else { continue };
        let zone = snapshot.nodes[machine.node].display_name();
        assert_eq!(home.display(names).to_string(), format!("{} In [{zone}]", labels::ZONE), "{}", pod.name);
        staying.push(pod.name.name.to_string());
    }
    staying.sort_unstable();
    staying
}

#[test]
fn a_pod_stays_in_its_zone_if_the_scheduler_would_not_let_it_into_each_other() {
    fn skew_1(pod: PodFixture<'_>) -> PodFixture<'_> {
        pod.label("app", "web").spread(labels::ZONE, 1, "web")
    }
    fn skew_2(pod: PodFixture<'_>) -> PodFixture<'_> {
        pod.label("app", "web").spread(labels::ZONE, 2, "web")
    }
    fn apart(pod: PodFixture<'_>) -> PodFixture<'_> {
        pod.label("app", "web").away_from(labels::ZONE, "web")
    }
    fn together(pod: PodFixture<'_>) -> PodFixture<'_> {
        pod.label("app", "web").near(labels::ZONE, "web")
    }
    fn over_hosts(pod: PodFixture<'_>) -> PodFixture<'_> {
        pod.label("app", "web").spread(labels::HOSTNAME, 1, "web")
    }
    check_staying([2, 2, 2], skew_1, [true; 3]);
    // One of those where there are more may go to each of the others.
    check_staying([3, 2, 2], skew_1, [false, true, true]);
    check_staying([3, 3, 2], skew_1, [true; 3]);
    check_staying([2, 2, 2], skew_2, [false; 3]);
    // More than one of them could go, and others would no more be let back.
    check_staying([3, 2, 2], skew_2, [true; 3]);
    // Whom the scheduler would not let back is asked.
    check_staying([5, 1, 1], skew_1, [false, true, true]);
    check_staying([5, 1, 1], skew_2, [false; 3]);
    check_staying([2, 1, 1], apart, [false, true, true]);
    check_staying([1, 1, 0], apart, [true, true, false]);
    check_staying([2, 0, 0], together, [true, false, false]);
    check_staying([1, 0, 0], together, [false; 3]);
    // Hosts do not count, nor do pods without rules of their own.
    check_staying([2, 1, 1], over_hosts, [false; 3]);
    check_staying([2, 1, 0], |pod| pod.label("app", "web"), [false; 3]);
}

#[test]
fn what_pods_have_to_be_near_to_stays_with_them_or_they_are_asked() {
    let mut f = three_zones();
    for zone in ZONES {
        node(&mut f, zone, ("large", 8), zone);
        if zone == "za" {
            f.pod("cache").label("app", "cache").requests(100, gib(1) / 4).runs();
            f.pod("web").near(labels::ZONE, "cache").requests(100, gib(1) / 4).runs();
        }
        f.pod(&format!("{zone}-other")).label("app", "other").requests(100, gib(1) / 4).runs();
    }
    assert_eq!(staying_of(&f, &[]), ["cache", "web"]);
    assert_eq!(staying_of(&f, &["za-other"]), ["cache", "web"]);
    assert_eq!(staying_of(&f, &["web"]), ["cache", "web"], "nobody has to be near to it");
    assert_eq!(staying_of(&f, &["cache"]), [""; 0]);
}

#[test]
fn pods_that_are_spread_are_asked_if_others_come_that_are_not() {
    let fleet = |rule: fn(PodFixture<'_>) -> PodFixture<'_>| {
        let mut f = three_zones();
        for zone in ZONES {
            node(&mut f, zone, ("large", 8), zone);
            f.pod(&format!("{zone}-web")).label("app", "web").spread(labels::ZONE, 1, "web").runs();
        }
        rule(f.pod("new").requests(100, gib(1) / 4));
        f
    };
    assert_eq!(staying_of(&fleet(|pod| pod), &[]), ["za-web", "zb-web", "zc-web"]);
    assert_eq!(
        staying_of(&fleet(|pod| pod.label("app", "web").spread(labels::ZONE, 1, "web")), &[]),
        ["za-web", "zb-web", "zc-web"]
    );
    assert_eq!(staying_of(&fleet(|pod| pod.label("app", "web")), &[]), [""; 0]);
}

const APPS: [&str; 4] = ["a", "b", "c", "d"];

/// Machines in three zones with pods of four apps, each spread over the zones with a skew of 1.
fn random(seed: u64) -> Fixture {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x2468_ACE0);
    let mut f = three_zones();
    let mut free: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut pods: Vec<(&str, usize)> = Vec::new();
    for app in APPS {
        let first = random.below(3) as usize;
        pods.extend((0..3 + random.below(5) as usize).map(|index| (app, (first + index) % 3)));
    }
    // Two pods at most on machines for four to sixteen.
    let mut on_machine: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (app, zone) in pods {
        let zone = ZONES[zone];
        let machines = free.entry(zone).or_default();
        if machines.is_empty() {
            let name = format!("{zone}-{}", on_machine.len());
            machines.extend([name.clone(), name]);
        }
        let machine = machines.remove(random.below(machines.len() as u64) as usize);
        on_machine.entry(machine).or_default().push(app);
    }
    for (name, apps) in &on_machine {
        let (of_type, cpu, _) = TYPES[random.below(3) as usize];
        node(&mut f, name, (of_type, cpu), &name[..2]);
        for (index, app) in apps.iter().enumerate() {
            let pod = f.pod(&format!("{name}-{index}")).label("app", app).requests(500, gib(1) / 4);
            pod.spread(labels::ZONE, 1, app).runs();
        }
    }
    f
}

/// By app, how many pods are in each zone.
fn counted(snapshot: &Snapshot, fleet: &Fleet) -> BTreeMap<String, BTreeMap<String, i64>> {
    let mut counted: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
    for machine in &fleet.nodes {
        let zone = snapshot.nodes[machine.node].display_name()[..2].to_owned();
        for pod in machine.pods.iter().filter(|pod| matches!(pod.moves, Moves::As(_))) {
            let of_app = counted.entry(app_of(snapshot, &pod.pod)).or_default();
            *of_app.entry(zone.clone()).or_default() += 1;
        }
    }
    counted
}

fn app_of(snapshot: &Snapshot, pod: &model::Pod) -> String {
    let names = &snapshot.interner;
    names.value_name(pod.labels.get(names.find_key("app").unwrap()).unwrap()).to_owned()
}

#[test]
fn each_command_can_be_carried_out_alone_one_eviction_after_the_other() {
    let (mut moves, mut commands) = (0, 0);
    for seed in 0..60 {
        let f = random(seed);
        let (snapshot, plan) = planned(&f, |_, _| ());
        let fleet = snapshot.fleet.as_ref().unwrap();
        let mut random = Random(seed);
        for command in plan.commands.iter().filter(|command| !command.moves.is_empty()) {
            commands += 1;
            let simulated = plan.simulated.as_ref().unwrap();
            let mut counts = counted(&snapshot, fleet);
            let mut left = command.moves.clone();
            while !left.is_empty() {
                moves += 1;
                let next = left.remove(random.below(left.len() as u64) as usize);
                let of_app = counts.get_mut(&app_of(&snapshot, &simulated.snapshot.pods[next.pod].pod)).unwrap();
                *of_app.get_mut(&snapshot.nodes[next.from].display_name()[..2]).unwrap() -= 1;
                let to = match next.to {
                    Place::Node(node) => simulated.snapshot.nodes[node].display_name()[..2].to_owned(),
                    Place::Machine(id) => {
                        let zone = simulated.plan.machines[id].launch.zone;
                        simulated.snapshot.interner.value_name(zone).to_owned()
                    }
                };
                *of_app.entry(to.clone()).or_default() += 1;
                let elsewhere = of_app.iter().filter(|(zone, _)| **zone != to).map(|(_, pods)| *pods).min();
                let is_let_in = of_app[&to] <= 1 + elsewhere.unwrap();
                assert!(is_let_in, "seed {seed}: not let into {to}: {of_app:?}; {}", render(&snapshot, &plan));
            }
        }
    }
    assert!(commands >= 60 && moves >= 150, "{commands} commands, {moves} moves");
}

#[test]
fn a_machine_that_must_go_may_take_its_pods_to_other_zones_and_one_that_need_not_stays() {
    for is_drifted in [false, true] {
        let mut f = Fixture::new();
        for (name, cpu, price) in TYPES {
            f.instance_type(name, cpu, 4 * cpu).offering("zb", "on-demand", price);
        }
        f.pool("p");
        // All that is in one zone would fit beside what is in the other. Nothing can be launched in the first.
        for (name, zone) in [("old", "za"), ("new", "zb")] {
            node(&mut f, name, ("medium", 4), zone);
            for index in 0..2 {
                let pod = f.pod(&format!("{name}-{index}")).label("app", "web").requests(500, gib(1) / 4);
                pod.spread(labels::ZONE, 1, "web").runs();
            }
        }
        let (snapshot, plan) = planned(&f, |fleet, _| {
            if is_drifted {
                fleet.nodes[0].claim.drifted = Some(crate::snapshot::fleet::Drift {
                    since: Timestamp::from_seconds(0),
                    cause: "NodePoolDrifted".into(),
                });
            }
        });
        let mut gone = plan.commands.iter().flat_map(|command| &command.nodes);
        let is_gone = gone.any(|node| snapshot.nodes[*node].display_name() == "old");
        assert_eq!(is_gone, is_drifted, "{}", render(&snapshot, &plan));
    }
}
