//! Random fleets of which a dozen machines and more can go at once, held against the bound.

use super::exact::{Held, Random, after, written};
use super::{TYPES, planned};

/// Half full machines: a pod of one to three on each.
fn random_fleet(seed: u64) -> Vec<Held> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x2545_F491);
    let held = |_| {
        let of_type = usize::try_from(random.below(3)).unwrap();
        let mut left = 1000 * TYPES[of_type].1 * 6 / 10;
        let mut pods = Vec::new();
        for _ in 0..1 + random.below(3) {
            let milli_cpu = [300, 500, 700, 900, 1100, 1500, 2000][usize::try_from(random.below(7)).unwrap()];
            if milli_cpu <= left {
                left -= milli_cpu;
                pods.push(milli_cpu);
            }
        }
        Held { of_type, pods }
    };
    (0..40).map(held).collect()
}

fn price(machines: &[Held]) -> i64 {
    machines.iter().map(|machine| TYPES[machine.of_type].2).sum()
}

/// 2.25 % above it in the mean. Of thirty such fleets it was 2.31 %, and 2.65 % without exchanges at the end of a
/// search.
#[test]
fn large_fleets_are_near_the_bound_after_one_plan() {
    let mut gaps: Vec<i64> = Vec::new();
    for seed in 0..12 {
        let machines = random_fleet(seed);
        let (snapshot, plan) = planned(&written(&machines), |_, _| ());
        let price = price(&after(&machines, &snapshot, &plan));
        let bound = plan.fleet_bound.unwrap().0;
        assert!(price >= bound, "seed {seed}: {price} is below the bound of {bound}");
        gaps.push((price - bound) * 10_000 / bound);
    }
    gaps.sort_unstable();
    let mean = gaps.iter().sum::<i64>() / 12;
    assert!(mean <= 230, "above the bound, in hundredths of a per cent: mean {mean}, all {gaps:?}");
}
