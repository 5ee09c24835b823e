//! Consolidation of small random fleets with devices: each plan is checked, carried out, and the end held against
//! everything that could be done.

use scheduling::disruption::plan_disruption;
use seeded_random::Random;

use super::fleets::{after, best_price, price, random_fleet, snapshot};

const CASES: u64 = 40;
/// A saving is a part of what is left to save, so few steps are needed.
const MOST_STEPS: usize = 12;

#[test]
fn small_fleets_with_devices_end_near_the_best_and_every_pod_gets_its_devices() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let first = number("CHECKER_SEED").unwrap_or(0);
    let (mut gaps, mut commands, mut moved, mut optimal) = (Vec::new(), 0, 0, 0);
    for seed in first..first + number("CHECKER_CASES").unwrap_or(CASES) {
        let mut machines = random_fleet(&mut Random::new(seed));
        let best = best_price(&machines);
        for step in 0.. {
            let (snapshot, text) = snapshot(&machines);
            let plan = plan_disruption(&snapshot);
            let context = || {
                let reasons = plan.node_reasons.iter().map(|(_, reason)| reason.message(&snapshot));
                format!("seed {seed}, step {step}: {machines:#?}\n{:#?}\n{text}", reasons.collect::<Vec<_>>())
            };
            let problems = checker::check_disruption(&snapshot, &plan);
            assert!(problems.is_empty(), "{problems:#?}\n{}", context());
            if let Some(bound) = plan.fleet_bound {
                assert!(bound.0 <= best, "{} at least, and {best} will do\n{}", bound.0, context());
            }
            if plan.commands.is_empty() {
                break;
            }
            assert!(step < MOST_STEPS, "it goes on and on: {}", context());
            let (then, with_devices) =
                after(&machines, &snapshot, &plan).unwrap_or_else(|problem| panic!("{problem}\n{}", context()));
            let saving: i64 = plan.commands.iter().map(|command| command.saving.0).sum();
            assert_eq!(price(&machines) - price(&then), saving, "{}", context());
            assert!(saving > 0, "{}", context());
            assert_eq!(plan.fleet_price.before.0, price(&machines), "{}", context());
            commands += plan.commands.len();
            moved += with_devices;
            machines = then;
        }
        let ours = price(&machines);
        assert!(ours >= best, "seed {seed}: {ours} is better than the best, {best}: {machines:#?}");
        optimal += usize::from(ours == best);
        gaps.push((ours - best) * 1_000 / best);
    }
    gaps.sort_unstable();
    let (median, most) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    println!(
        "{optimal} of {} at the best; median {median} ‰, most {most} ‰; {commands} commands, {moved} pods with GPUs moved",
        gaps.len()
    );
    assert!(median <= 30, "{gaps:?}");
    let says_something = std::env::var_os("CHECKER_SEED").is_some() || (commands > 20 && moved > 20);
    assert!(says_something, "{commands} commands, {moved} pods with GPUs moved: the cases say nothing");
}
