//! Plans of random small clusters whose pods claim devices: played on machines that publish their slices, and refusals
//! held against a search that tries everything.

mod disruption;
mod fleets;
mod input;
mod node_allocatable;
mod random_clusters;
mod random_pools;

use std::collections::BTreeMap;

use checker::Room;
use model::{NodeClaimName, Uid};
use scheduling::{Snapshot, plan::Verdict, provisioning, snapshot::PodId};
use seeded_random::Random;

use self::{
    input::{node_claim, read, render},
    random_clusters::{instance_types, manifests, object},
};

const CASES: u64 = 100;
/// Of planning twice, up to a machine that can be of two types, each in a zone of its own.
const CASES_AGAIN: u64 = 120;
const CASES_OF_POOLS: u64 = 30;

fn snapshot(random: &mut Random) -> (Snapshot, String) {
    let types = instance_types(random);
    let text = manifests(random);
    (read(&types, &text, &[]), format!("{types}\n{text}"))
}

#[test]
fn planned_pods_get_their_devices_whatever_is_launched_and_no_refusal_is_wrong() {
    let (mut placed, mut refused, mut proved, mut with_devices, mut kept) = (0, 0, 0, 0, 0);
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let first = number("CHECKER_SEED").unwrap_or(0);
    for seed in first..first + number("CHECKER_CASES").unwrap_or(CASES) {
        let (snapshot, text) = snapshot(&mut Random::new(seed));
        let plan = provisioning::plan(&snapshot);
        let problems = checker::check(&snapshot, &plan);
        assert!(problems.is_empty(), "seed {seed}: {problems:#?}\n{}\n{text}", render(&snapshot, &plan));
        let has_place = |pod: PodId| !plan.refusals.iter().any(|refusal| refusal.pod == pod);
        let has_place: Vec<PodId> = snapshot.pods.ids().filter(|&pod| has_place(pod)).collect();
        for refusal in &plan.refusals {
            let is_asked = !matches!(refusal.verdict, Verdict::Unsupported | Verdict::Waits);
            assert!(is_asked, "seed {seed}\n{text}");
            if refusal.verdict == Verdict::OutOfBudget {
                continue;
            }
            let pods = [has_place.clone(), vec![refusal.pod]].concat();
            let room = checker::room_for(&snapshot, &pods, 1_500);
            let name = &snapshot.pods[refusal.pod].pod.name;
            assert!(room != Room::Found, "seed {seed}: {name} fits\n{}\n{text}", render(&snapshot, &plan));
            proved += usize::from(room == Room::None);
        }
        refused += plan.refusals.len();
        kept += plan.buffers.iter().map(|room| room.on_existing() + room.on_new()).sum::<u32>();
        placed += has_place.len();
        with_devices += has_place.iter().filter(|&&pod| snapshot.pods[pod].devices.is_some()).count();
    }
    println!(
        "{placed} placed, {with_devices} of them with claims, {refused} refused, {proved} refusals proved, room for {kept}"
    );
    assert!(
        with_devices > 100 && proved > 50 && kept > 15,
        "{with_devices} with claims, {proved} proved, room for {kept}: the cases say nothing"
    );
}

/// A controller plans again as soon as anything changes, so also before its machines are launched or registered.
#[test]
fn pods_stay_planned_on_the_machines_that_were_created_for_them() {
    let (mut machines, mut pods) = (0, 0);
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let first = number("CHECKER_SEED").unwrap_or(0);
    // In the last two a machine that may land in either zone holds claims in both, and others bring pools for the
    // zones.
    let last = if std::env::var_os("CHECKER_SEED").is_some() { &[][..] } else { &[275, 1612] };
    for seed in (first..first + number("CHECKER_CASES").unwrap_or(CASES_AGAIN)).chain(last.iter().copied()) {
        let random = &mut Random::new(seed);
        let types = instance_types(random);
        let mut text = manifests(random);
        let before = read(&types, &text, &[]);
        let plan = provisioning::plan(&before);
        if plan.refusals.iter().any(|refusal| refusal.verdict == Verdict::OutOfBudget) {
            // With fewer machines to think of, another search may find them a place.
            continue;
        }
        let mut planned_on = Vec::new();
        for (index, machine) in plan.machines.iter().enumerate() {
            let name = format!("machine-{index}");
            object(&mut text, &node_claim(&before, machine, &name, random.percent(60)));
            let uids = machine.pods.iter().map(|&pod| before.pods[pod].pod.uid.clone());
            planned_on.extend(uids.map(|uid| (uid, NodeClaimName::from(name.as_str()))));
        }
        let after = read(&types, &text, &planned_on);
        let again = provisioning::plan(&after);
        let context = || format!("seed {seed}\n{}\n{}\n{text}", render(&before, &plan), render(&after, &again));
        assert!(again.machines.is_empty(), "{}", context());
        let claims: BTreeMap<&Uid, &NodeClaimName> = planned_on.iter().map(|(uid, claim)| (uid, claim)).collect();
        for placement in &again.existing {
            for &pod in &placement.pods {
                let planned = claims.get(&after.pods[pod].pod.uid).copied();
                if planned.is_some() {
                    assert_eq!(after.nodes[placement.node].node_claim.as_ref(), planned, "{}", context());
                    pods += 1;
                }
            }
        }
        machines += plan.machines.len();
    }
    println!("{machines} machines with {pods} pods");
    assert!(std::env::var_os("CHECKER_SEED").is_some() || (machines > 50 && pods > 100), "{machines}, {pods}");
}

/// Which of several pools of a driver comes first is up to names that nobody knows before launch.
#[test]
fn devices_of_several_pools_of_a_driver_are_planned_whatever_their_names() {
    let (mut placed, mut refused) = (0, 0);
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let first = number("CHECKER_SEED").unwrap_or(0);
    for seed in first..first + number("CHECKER_CASES").unwrap_or(CASES_OF_POOLS) {
        let random = &mut Random::new(seed);
        let types = random_pools::instance_types(random);
        let text = random_pools::manifests(random);
        let snapshot = read(&types, &text, &[]);
        let plan = provisioning::plan(&snapshot);
        let problems = checker::check(&snapshot, &plan);
        assert!(problems.is_empty(), "seed {seed}: {problems:#?}\n{}\n{types}\n{text}", render(&snapshot, &plan));
        refused += plan.refusals.len();
        placed += snapshot.pods.ids().count() - plan.refusals.len();
    }
    println!("{placed} placed, {refused} refused");
    assert!(std::env::var_os("CHECKER_SEED").is_some() || placed > 50, "{placed} placed: the cases say nothing");
}
