//! A few hours of a small cluster, with all that must hold.

use model::DurationMs;
use scheduling::snapshot::DisruptionOptions;
use simulate::rules::Side;
use simulate::run::{Outcome, run};
use simulate::trace::{Kind, Size, Trace};

const SIZE: Size = Size { workloads: 6, replicas: 6, lasts: DurationMs(2 * 3_600_000) };

fn played(kind: Kind, side: Side, seed: u64) -> Outcome {
    run(&Trace::new(kind, SIZE, seed), side, seed).unwrap()
}

#[test]
fn nothing_is_done_twice_or_for_more_money_and_all_comes_to_rest() {
    for kind in Kind::ALL {
        let outcome = played(kind, Side::Ours(DisruptionOptions::default()), 1);
        assert!(outcome.violations.is_empty(), "{kind}: {:#?}", outcome.violations);
        assert!(outcome.mean_price() > 0.0, "{kind}");
    }
}

#[test]
fn both_sides_make_the_fleet_smaller_and_the_same_arguments_give_the_same_outcome() {
    for side in [Side::Ours(DisruptionOptions::default()), Side::Karpenter] {
        let [one, other] = [(); 2].map(|()| played(Kind::ScaleToZero, side, 3));
        assert_eq!(format!("{one:?}"), format!("{other:?}"), "{side:?}");
        assert!(one.commands > 0, "{side:?}");
        assert!(one.prices.windows(2).any(|pair| pair[1].1 < pair[0].1), "{side:?}: {:?}", one.prices);
    }
}
