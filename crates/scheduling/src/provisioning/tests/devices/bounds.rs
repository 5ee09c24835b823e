//! Bounds where pods compete for devices: by hand, and against the cheapest machines that there are.

use seeded_random::Random;
use serde_json::{Value, json};

use super::{GPU, gpus};
use crate::provisioning::{
    plan,
    tests::fixture::{Fixture, exactly, gib},
};

const DOLLAR: i64 = 1_000_000_000;

/// In thousandths of a dollar, rounded up: the bound is rounded down by a few nano-dollars.
fn bound(f: &Fixture) -> i64 {
    let plan = plan(&f.snapshot());
    assert!(plan.refusals.is_empty());
    assert!(plan.lower_bound <= plan.price);
    (plan.lower_bound.0 + 999_999) / 1_000_000
}

/// Machines of eight GPUs for eight dollars.
fn eight() -> Fixture {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    f.instance_type("gpu-8", 64, 256).offering("a", "on-demand", 8 * DOLLAR);
    f.plain_devices(GPU, 8);
    f.pool("p");
    for count in 1..=4 {
        f.claim_template(&format!("of-{count}"), &json!({"requests": [exactly("r", GPU, count)]}));
    }
    f
}

#[test]
fn pods_that_want_different_numbers_of_devices_share_what_a_machine_has() {
    let mut f = eight();
    for index in 0..2 {
        f.pod(&format!("a{index}")).requests(100, gib(1)).claims_from("of-1");
        f.pod(&format!("b{index}")).requests(100, gib(1)).claims_from("of-3");
        f.pod(&format!("c{index}")).requests(100, gib(1)).claims_from("of-4");
    }
    assert_eq!(bound(&f), 16_000, "sixteen of eight");
}

#[test]
fn a_node_is_worth_no_more_than_the_devices_that_it_has_left() {
    let mut f = eight();
    for index in 0..16 {
        f.pod(&format!("a{index}")).requests(100, gib(1)).claims_from("of-1");
    }
    assert_eq!(bound(&f), 16_000);
    f.node("plain").allocatable(64_000, gib(256));
    assert_eq!(bound(&f), 16_000, "it has none");
    f.node("n").allocatable(64_000, gib(256));
    f.slice("n", GPU, ("nodeName", "n".into()), 4);
    assert_eq!(bound(&f), 12_000);
    f.allocated_claim("of-2", "other", ("n", GPU), (0, 2));
    assert_eq!(bound(&f), 14_000, "two are given out");
}

#[test]
fn what_a_constraint_keeps_apart_is_counted_for_pods_that_want_the_same() {
    let mut f = gpus();
    let together = json!([{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]);
    f.claim_template("pair", &json!({"requests": [exactly("r", GPU, 2)], "constraints": together}));
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    for index in 0..8 {
        f.pod(&format!("a{index}")).requests(100, gib(1)).claims_from("pair");
    }
    assert_eq!(plan(&f.snapshot()).lower_bound.0, 1000, "two machines with four pairs each");
}

/// Machines as GPUs of model A, of model B, and the price in dollars.
const TYPES: [(usize, usize, i64); 4] = [(2, 0, 2), (0, 4, 3), (4, 4, 6), (8, 0, 7)];

/// GPUs of model A, of model B, and of any that pods want.
type Wants = [usize; 3];

fn wants(random: &mut Random) -> Wants {
    let mut wants = [0; 3];
    wants[random.below(3_usize)] = 1 + random.below(3_usize);
    wants
}

fn request(wants: Wants) -> Value {
    let only = |model: &str| json!([{"cel": {"expression": format!("device.attributes['{GPU}'].model == '{model}'")}}]);
    let request = |(index, count): (usize, &usize)| {
        let mut request = exactly(&format!("r{index}"), GPU, *count);
        if let Some(model) = ["A", "B"].get(index) {
            request["exactly"]["selectors"] = only(model);
        }
        request
    };
    let wanted = wants.iter().enumerate().filter(|(_, count)| **count > 0);
    json!({"requests": wanted.map(request).collect::<Vec<_>>()})
}

/// GPUs of two models.
fn models(a: usize, b: usize) -> Value {
    let device = |index: usize| {
        let model = if index < a { "A" } else { "B" };
        json!({"name": format!("d{index}"), "attributes": {"model": {"string": model}}})
    };
    (0..a + b).map(device).collect()
}

/// The cheapest machines for pods beside rooms, by all ways to share the pods out.
fn cheapest(rooms: &mut Vec<((usize, usize), Wants)>, pods: &[Wants], cost: i64, best: &mut i64) {
    if cost >= *best {
        return;
    }
    let Some((pod, rest)) = pods.split_first() else {
        *best = cost;
        return;
    };
    let holds =
        |(a, b): (usize, usize), [of_a, of_b, of_any]: Wants| of_a <= a && of_b <= b && of_a + of_b + of_any <= a + b;
    let with = |wants: Wants| [wants[0] + pod[0], wants[1] + pod[1], wants[2] + pod[2]];
    for index in 0..rooms.len() {
        let (room, before) = rooms[index];
        if holds(room, with(before)) {
            rooms[index].1 = with(before);
            cheapest(rooms, rest, cost, best);
            rooms[index].1 = before;
        }
    }
    for (a, b, price) in TYPES {
        if holds((a, b), *pod) {
            rooms.push(((a, b), *pod));
            cheapest(rooms, rest, cost + price, best);
            rooms.pop();
        }
    }
}

#[test]
fn no_bound_is_above_the_cheapest_machines() {
    let (mut above, mut tight) = (Vec::new(), 0);
    for case in 0..60 {
        let mut random = Random::of_case(11, case);
        let mut f = Fixture::new();
        f.device_class(GPU, None);
        for (index, (a, b, price)) in TYPES.iter().enumerate() {
            f.instance_type(&format!("t{index}"), 64, 256).offering("a", "on-demand", price * DOLLAR);
            f.devices(GPU, &models(*a, *b), &[]);
        }
        f.pool("p");
        let mut rooms = Vec::new();
        for index in 0..random.below(3_usize) {
            let (a, b) = (random.below(4_usize), random.below(3_usize));
            let name = format!("n{index}");
            f.node(&name).allocatable(64_000, gib(256));
            f.slice(&name, GPU, ("nodeName", name.as_str().into()), 0);
            f.republish(&name, &models(a, b));
            rooms.push(((a, b), [0; 3]));
        }
        let pods: Vec<Wants> = (0..2 + random.below(4_usize)).map(|_| wants(&mut random)).collect();
        for (index, wants) in pods.iter().enumerate() {
            f.claim_template(&format!("c{index}"), &request(*wants));
            f.pod(&format!("p{index}")).requests(100, gib(1)).claims_from(&format!("c{index}"));
        }
        let plan = plan(&f.snapshot());
        assert!(plan.refusals.is_empty(), "case {case}");
        let mut best = i64::MAX / DOLLAR;
        cheapest(&mut rooms, &pods, 0, &mut best);
        if plan.lower_bound.0 > best * DOLLAR || plan.price.0 < best * DOLLAR {
            above.push((case, plan.lower_bound, best, plan.price));
        }
        tight += usize::from(plan.lower_bound.0 * 2 >= best * DOLLAR);
    }
    assert!(above.is_empty(), "{above:?}");
    assert!(tight >= 40, "only {tight} of 60 are at least half of the cheapest");
}
