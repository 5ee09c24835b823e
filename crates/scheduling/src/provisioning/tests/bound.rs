//! Bounds that can be told by hand. That no bound is too high is shown by exhaustive search in `oracle.rs`.

use seeded_random::Random;

use super::fixture::{Fixture, gib};
use crate::provisioning::plan;

const DOLLAR: i64 = 1_000_000_000;
const ZONE: &str = api::labels::ZONE;

/// CPUs at a dollar for two, memory to spare.
fn cpus() -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 64).offering("za", "on-demand", DOLLAR);
    f.instance_type("large", 8, 64).offering("za", "on-demand", 4 * DOLLAR);
    f.pool("p");
    f
}

/// In thousandths of a dollar, rounded up: the bound is rounded down by a few nano-dollars.
fn bound(f: &Fixture) -> i64 {
    let plan = plan(&f.snapshot());
    assert!(plan.refusals.is_empty());
    assert!(plan.lower_bound <= plan.price);
    (plan.lower_bound.0 + 999_999) / 1_000_000
}

#[test]
fn the_bound_is_what_the_scarce_resource_costs() {
    let mut f = cpus();
    for index in 0..5 {
        f.pod(&format!("p{index}")).requests(1000, gib(1));
    }
    assert_eq!(bound(&f), 2500, "five of eight CPUs, and memory costs nothing");
}

#[test]
fn two_scarce_resources_share_the_price() {
    let mut f = Fixture::new();
    f.instance_type("even", 4, 4).offering("za", "on-demand", 4 * DOLLAR);
    f.pool("p");
    for index in 0..4 {
        f.pod(&format!("c{index}")).requests(3000, gib(1));
        f.pod(&format!("m{index}")).requests(1000, gib(3));
    }
    assert_eq!(bound(&f), 16_000, "one of each fills a machine");
}

#[test]
fn a_pod_pays_for_its_share_where_it_pays_least() {
    let mut f = cpus();
    f.instance_type("elsewhere", 2, 64).offering("zb", "on-demand", 3 * DOLLAR);
    for index in 0..3 {
        f.pod(&format!("any{index}")).requests(1000, gib(1));
        f.pod(&format!("picky{index}")).requests(1000, gib(1)).select(ZONE, "zb");
    }
    assert_eq!(bound(&f), 6000, "one and a half machines each, of a dollar and of three");
}

#[test]
fn less_than_a_machine_costs_a_machine_where_there_is_no_room() {
    let mut f = cpus();
    f.instance_type("elsewhere", 2, 64).offering("zb", "on-demand", 3 * DOLLAR);
    f.pod("here").requests(100, gib(1)).select(ZONE, "za");
    f.pod("there").requests(100, gib(1)).select(ZONE, "zb");
    assert_eq!(bound(&f), 4000, "these two share none");
    f.pod("anywhere").requests(100, gib(1));
    assert_eq!(bound(&f), 3000, "all could be one part now, and the dearest of its machines is needed");
    f.node("n").allocatable(50, gib(64)).label(ZONE, "za");
    assert_eq!(bound(&f), 3000, "no room for any");
    f.node("m").allocatable(100, gib(64)).label(ZONE, "za");
    assert!(bound(&f) < 1000, "one of them may be there");
}

#[test]
fn pods_that_exclude_each_other_pay_a_machine_each() {
    let mut f = cpus();
    for index in 0..3 {
        f.pod(&format!("p{index}"))
            .requests(100, gib(1))
            .label("app", "alone")
            .away_from(api::labels::HOSTNAME, "alone");
    }
    assert_eq!(bound(&f), 3000);
}

#[test]
fn room_that_is_there_is_worth_what_it_saves() {
    let mut f = cpus();
    f.node("n").allocatable(2000, gib(64));
    for index in 0..6 {
        f.pod(&format!("p{index}")).requests(1000, gib(1));
    }
    assert_eq!(bound(&f), 2000, "two of six are on the node");
    f.node("full of memory").allocatable(0, gib(64));
    assert_eq!(bound(&f), 2000, "room that takes no pod is worth nothing");
}

/// Three families of nine sizes: 2, 4 and 8 GiB for a CPU, at about public prices, with what a kubelet keeps for
/// itself.
fn families() -> Fixture {
    let mut f = Fixture::new();
    for (family, gib_per_cpu, price) in [("c", 2, 42_500_000), ("m", 4, 48_000_000), ("r", 8, 63_000_000)] {
        for cpus in [2, 4, 8, 16, 32, 48, 64, 96] {
            f.instance_type(&format!("{family}{cpus}"), cpus, cpus * gib_per_cpu)
                .kept_by_kubelet(60 + cpus * 3, (255 << 20) + cpus * gib_per_cpu * (20 << 20))
                .offering("za", "on-demand", price * cpus);
        }
    }
    f.pool("p");
    f
}

/// Deployments of 5 to 60 pods until there are `pods`; each asks for so many milli-CPU and MiB.
fn deployments(f: &mut Fixture, random: &mut Random, pods: i64, shape: impl Fn(&mut Random) -> (i64, i64)) {
    let mut made = 0;
    while made < pods {
        let (cpu, memory) = shape(random);
        for _ in 0..5 + random.below(56) {
            f.pod(&format!("p{made}")).requests(cpu, memory << 20);
            made += 1;
        }
    }
}

#[test]
fn plain_mixes_cost_little_more_than_the_bound() {
    type Shape = fn(&mut Random) -> (i64, i64);
    let mixes: [(&str, Shape); 3] = [
        ("balanced", |random| {
            let cpu = *random.pick(&[100, 250, 500, 1000, 2000, 4000]);
            (cpu, cpu * random.pick(&[2, 4, 4, 8]) * 1024 / 1000)
        }),
        ("mixed", |random| {
            let cpu = *random.pick(&[100, 250, 500, 1000, 1500, 3000]);
            (cpu, cpu * random.pick(&[1, 2, 4, 6, 8, 12]) * 1024 / 1000)
        }),
        ("uneven", |random| {
            let steps = |random: &mut Random| (0..6).map(|_| random.below(100)).sum::<i64>() - 300;
            let double = |least: i64, steps: i64| ((least as f64) * (steps as f64 / 60.0).exp2()) as i64;
            let cpu = double(500, steps(random)).clamp(20, 12_000);
            (cpu, double(cpu * 4, steps(random) / 2).clamp(32, 100_000))
        }),
    ];
    for (name, shape) in mixes {
        for seed in 0..3 {
            let mut f = families();
            deployments(&mut f, &mut Random::new(seed), 1000, shape);
            let plan = plan(&f.snapshot());
            assert!(plan.refusals.is_empty());
            let over = plan.price.0 as f64 / plan.lower_bound.0 as f64 - 1.0;
            assert!((0.0..0.03).contains(&over), "{name} {seed}: {} for at least {}", plan.price, plan.lower_bound);
        }
    }
}
