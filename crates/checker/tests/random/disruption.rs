//! Plans of disruption of random fleets.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{DurationMs, Timestamp};
use scheduling::Snapshot;
use scheduling::disruption::plan::{Command, DisruptionPlan};
use scheduling::disruption::plan_disruption;
use scheduling::disruption::reason::NodeReason;
use scheduling::snapshot::SchedulerNames;
use scheduling::snapshot::fleet::{Reason, RepairHold, Unhealthy};
use seeded_random::Random;

use crate::fleets::{NOW, calm, manifests};
use crate::{check_cases, ensure, read};

fn snapshot(text: &str) -> Snapshot {
    read(text, |cluster| {
        cluster.wants_fleet = true;
        cluster.now = Timestamp::parse(NOW).unwrap();
        cluster.options.scheduler_names = SchedulerNames::Only(["default-scheduler".into()].into());
    })
}

/// Some of the machines are broken.
fn with_broken(mut snapshot: Snapshot, random: &mut Random) -> Snapshot {
    let fleet = snapshot.fleet.as_mut().map(Arc::make_mut);
    for machine in fleet.into_iter().flat_map(|fleet| &mut fleet.nodes) {
        machine.unhealthy = random.one_in(8).then(|| Unhealthy {
            condition: "Ready=False (Test)".into(),
            since: Timestamp::default(),
            score: DurationMs(i64::from(random.below(3))),
            drain_bound: random.one_in(2).then_some(DurationMs::ZERO),
            hold: random.one_in(4).then_some(RepairHold::DoNotRepair),
        });
    }
    snapshot
}

/// All that a plan says, in words and numbers.
fn bytes(snapshot: &Snapshot, plan: &DisruptionPlan) -> String {
    let simulated = plan.simulated.as_ref().map(|simulated| format!("{:#?}", simulated.plan));
    let reasons: Vec<String> = plan.node_reasons.iter().map(|(_, reason)| reason.message(snapshot)).collect();
    format!("{:#?}\n{reasons:#?}\n{:#?}\n{simulated:#?}", plan.commands, plan.pools)
}

#[test]
fn nothing_goes_that_may_not_budgets_hold_and_every_pod_that_moves_is_let_in() {
    let (mut commands, mut repairs, mut moved, mut replaced, mut codes) = (0, 0, 0, 0, BTreeSet::new());
    check_cases(|seed| {
        let text = manifests(&mut Random::new(seed));
        let snapshot = with_broken(snapshot(&text), &mut Random::new(seed));
        let plan = plan_disruption(&snapshot);
        let problems = checker::check_disruption(&snapshot, &plan);
        ensure(problems.is_empty(), || format!("{problems:#?}\n{}\n{text}", bytes(&snapshot, &plan)))?;
        commands += plan.commands.len();
        repairs += plan.commands.iter().filter(|command| command.reason == Reason::Unhealthy).count();
        moved += plan.commands.iter().map(|command| command.moves.len()).sum::<usize>();
        replaced += plan.commands.iter().map(|command| command.replacements.len()).sum::<usize>();
        codes.extend(plan.node_reasons.iter().map(|(_, reason)| reason.code()));
        Ok(())
    });
    println!("{commands} commands, {moved} pods move, {replaced} replacements; {codes:?}");
    assert!(repairs > 20, "{repairs} repairs: the cases say nothing of these");
    assert!(commands > 200 && moved > 50 && replaced > 20, "{commands} {moved} {replaced}: the cases say nothing");
    for code in [
        "Goes",
        "Budget",
        "NoPlace",
        "NotQuiet",
        "ConsolidationOff",
        "PolicyWhenEmpty",
        "Deleting",
        "CommandUnderWay",
        "NotInitialized",
        "StaticNodePool",
        "DoNotDisrupt",
        "Nominated",
        "PodDoNotDisrupt",
        "PodDisruptionBudget",
        "PodLeftToOthers",
    ] {
        assert!(codes.contains(code), "no machine has the reason {code}: the cases say nothing of it");
    }
}

#[test]
fn what_goes_to_save_saves_and_keeps_every_rule_and_every_pod_is_let_in() {
    let (mut commands, mut moved, mut replaced, mut codes) = (0, 0, 0, BTreeSet::new());
    check_cases(|seed| {
        let text = calm(&manifests(&mut Random::new(seed)));
        let mut snapshot = snapshot(&text);
        if seed % 3 != 0 {
            // Any saving pays; by the default few of these small machines are worth their evictions.
            snapshot.options.disruption.eviction_price_nano_usd = 0;
        }
        let plan = plan_disruption(&snapshot);
        let problems = checker::check_disruption(&snapshot, &plan);
        ensure(problems.is_empty(), || format!("{problems:#?}\n{}\n{text}", bytes(&snapshot, &plan)))?;
        let saves = || plan.commands.iter().filter(|command| command.reason == Reason::Underutilized);
        commands += saves().count();
        moved += saves().map(|command| command.moves.len()).sum::<usize>();
        replaced += saves().map(|command| command.replacements.len()).sum::<usize>();
        codes.extend(plan.node_reasons.iter().map(|(_, reason)| reason.code()));
        Ok(())
    });
    println!("{commands} commands to save, {moved} pods move, {replaced} replacements; {codes:?}");
    assert!(commands > 50 && moved > 50 && replaced > 10, "{commands} {moved} {replaced}: the cases say nothing");
    for code in ["NoPlace", "NoSaving", "TakesPods", "NothingToGain", "WorthItsPrice", "CannotPay"] {
        assert!(codes.contains(code), "no machine has the reason {code}: the cases say nothing of it");
    }
}

#[test]
fn equal_fleets_give_equal_bytes() {
    check_cases(|seed| {
        if seed % 8 != 0 {
            return Ok(());
        }
        let text = manifests(&mut Random::new(seed));
        let (one, other) = (snapshot(&text), snapshot(&text));
        let plans = [bytes(&one, &plan_disruption(&one)), bytes(&other, &plan_disruption(&other))];
        ensure(plans[0] == plans[1], || format!("{}\n{}", plans[0], plans[1]))
    });
}

/// The check that all of this stands on finds what is wrong.
#[test]
fn a_plan_that_was_tampered_with_is_found() {
    let stays = |(_, reason): &&(_, NodeReason)| matches!(reason, NodeReason::NotQuiet { .. });
    let is_meant = |command: &Command| command.reason == Reason::Drifted && !command.moves.is_empty();
    let with_moves = |plan: &DisruptionPlan| {
        plan.commands.iter().any(is_meant) && plan.node_reasons.iter().any(|reason| stays(&reason))
    };
    let (snapshot, plan) = (0..1_000)
        .map(|seed| snapshot(&manifests(&mut Random::new(seed))))
        .map(|snapshot| (plan_disruption(&snapshot), snapshot))
        .find_map(|(plan, snapshot)| with_moves(&plan).then_some((snapshot, plan)))
        .expect("a case in which pods move");
    let at = plan.commands.iter().position(is_meant).unwrap();
    let found = |what: &str, change: &dyn Fn(&mut DisruptionPlan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        let problems = checker::check_disruption(&snapshot, &plan);
        assert!(problems.iter().any(|problem| problem.contains(what)), "{what}: {problems:#?}");
    };
    assert_eq!(checker::check_disruption(&snapshot, &plan), Vec::<String>::new());
    found("pods move", &|plan| {
        plan.commands[at].moves.pop();
    });
    found("moves twice", &|plan| {
        let first = plan.commands[at].moves[0];
        plan.commands[at].moves.push(first);
    });
    found("it saves", &|plan| plan.commands[at].saving.0 += 1);
    found("has 0 reasons", &|plan| drop(plan.node_reasons.pop()));
    found("nothing says where to", &|plan| plan.simulated = None);
    found("is in commands []", &|plan| drop(plan.commands.pop()));
    let (stays, _) = plan.node_reasons.iter().find(stays).expect("one that stays");
    found(" goes as ", &|plan| plan.commands[at].nodes.push(*stays));
}
