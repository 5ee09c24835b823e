//! What was planned is what happens: some of the scenarios that `cargo xtask fidelity` plays.

use anyhow::{Context, Result, ensure};
use e2e::controller::Supervisor;
use e2e::ec2::{self, Ec2, Sold};
use e2e::fidelity::{
    self, DeviceOutcome, DeviceScenario, DisruptionOutcome, DisruptionScenario, Outcome, Scenario, Stage,
};
use e2e::{Controller, Gates, Kubernetes, Platform, apply, install};
use futures::future::join_all;
use kube::ResourceExt;

use crate::cluster::{Cluster, Corner};

const SEEDS: std::ops::Range<u64> = 0..16;
/// Seeds of scenarios of devices, with the gates that are on by default and with all.
const DEVICES: [(Gates, std::ops::Range<u64>); 2] = [(Gates::Default, 0..4), (Gates::All, 4..8)];
/// Seeds of scenarios on machines of EC2.
const EC2: std::ops::Range<u64> = 0..3;
/// Seeds of scenarios with rules between pods too.
const COUPLED: std::ops::Range<u64> = 100..104;
/// Seeds of fleets that change; in one of them the controller is killed.
const DISRUPTED: std::ops::Range<u64> = 1..5;

#[tokio::test]
async fn random_scenarios_are_bound_as_they_were_planned() -> Result<()> {
    let cluster = Cluster::new("fidelity").await?;
    let client = cluster.client().await?;
    let controller = Controller::start_ready(&fidelity::prepare(&cluster, &client).await?).await?;
    let _provisioner = fidelity::Provisioner::start(client.clone());
    let plain = SEEDS.map(Scenario::plain);
    let coupled = COUPLED.map(Scenario::random);
    for scenarios in [plain.collect::<Vec<_>>(), coupled.collect()] {
        let (mut total, count) = (Outcome::default(), scenarios.len());
        for scenario in scenarios {
            let corner = Corner::without_node_pool(client.clone(), &scenario.name).await?;
            let outcome = scenario.play(&corner, &controller).await;
            total.add(outcome.with_context(|| format!("seed {}", scenario.seed))?);
        }
        println!("{count} scenarios, {total}");
        let faults: Vec<&str> = total.faults().collect();
        ensure!(total.is_as_planned(), "not as planned:\n{}", faults.join("\n"));
    }
    let refused: Vec<_> =
        controller.log()?.lines().filter(|line| line.contains("forbidden")).map(str::to_owned).collect();
    ensure!(refused.is_empty(), "the chart's rights are not enough: {refused:#?}");
    controller.terminate().await.map(drop)
}

#[tokio::test]
async fn claims_of_random_scenarios_are_allocated_as_they_were_planned() -> Result<()> {
    let kubernetes = Kubernetes::asked_for()?;
    for (gates, seeds) in DEVICES {
        let platform = Platform { kubernetes, gates };
        let cluster = Cluster::of("fidelity-dra", platform).await?;
        let client = cluster.client().await?;
        let options = cluster.controller()?.env("BATCH_IDLE_DURATION", "1s");
        let controller = Controller::start_ready(&options).await?;
        let (mut total, count) = (DeviceOutcome::default(), seeds.clone().count());
        for seed in seeds {
            let outcome = DeviceScenario::random(seed, platform).play(&client, &controller, gates).await;
            total.add(outcome.with_context(|| format!("seed {seed}, {gates:?} gates"))?);
        }
        println!("{count} scenarios on {kubernetes} with {gates:?} gates, {total}");
        let faults: Vec<&str> = total.pods.faults().collect();
        ensure!(faults.is_empty(), "not as planned:\n{}", faults.join("\n"));
        ensure!(total.claims > 0, "no claim was allocated, so this says nothing");
        controller.terminate().await?;
    }
    Ok(())
}

#[tokio::test]
async fn claims_on_machines_of_ec2_are_allocated_as_its_catalogue_let_them_be_planned() -> Result<()> {
    let cluster = Cluster::with_rights("fidelity-aws", Platform::default(), &[], install::AWS).await?;
    let client = cluster.client().await?;
    let ec2 = Ec2::of_cluster(client.clone(), ec2::CLUSTER, Sold::All).await?;
    ec2.discount_spot();
    let options = ec2.controller(cluster.controller()?.env("BATCH_IDLE_DURATION", "1s"));
    let controller = Controller::start_ready(&options).await?;
    let mut total = DeviceOutcome::default();
    for seed in EC2 {
        let outcome = DeviceScenario::on_ec2(seed)?.play(&client, &controller, Gates::Default).await;
        total.add(outcome.with_context(|| format!("seed {seed}"))?);
    }
    println!("{} scenarios, {total}", EC2.count());
    let faults: Vec<&str> = total.pods.faults().collect();
    ensure!(faults.is_empty(), "not as planned:\n{}", faults.join("\n"));
    ensure!(total.claims > 0, "no claim was allocated, so this says nothing");
    controller.terminate().await.map(drop)
}

#[tokio::test]
async fn fleets_that_change_come_to_rest_and_no_rule_of_disruption_is_broken() -> Result<()> {
    let cluster = Cluster::new("fidelity-disruption").await?;
    let client = cluster.client().await?;
    let controller = Supervisor::start(cluster.controller()?);
    let stage = Stage { cluster: &cluster, client: &client, controller: &controller };
    let scenarios: Vec<DisruptionScenario> = DISRUPTED.map(DisruptionScenario::random).collect();
    let mut total = DisruptionOutcome::default();
    for outcome in join_all(scenarios.iter().map(|scenario| scenario.play(&stage))).await {
        total.add(outcome?);
    }
    controller.stop().await?;
    println!("{} scenarios, {total}", scenarios.len());
    ensure!(total.faults.is_empty(), "not by the rules:\n{}", total.faults.join("\n"));
    ensure!(total.commands > 0 && total.gone > 0 && total.kills > 0, "nothing was tried: {total}");
    Ok(())
}

#[tokio::test]
async fn where_the_controller_may_not_patch_pods_it_nominates_them() -> Result<()> {
    let cluster = Cluster::new("nominations").await?;
    let client = cluster.client().await?;
    let lesser =
        tokio::task::spawn_blocking(|| install::render("charts/dovetail", &["settings.handOver=nominate"])).await??;
    apply::apply(&client, lesser.into_iter().filter(install::is_about_rights)).await?;
    apply::apply(&client, fidelity::surroundings()).await?;
    let controller = Controller::start_ready(&cluster.controller()?).await?;
    // One machine alone opens without either; of several some need nominations.
    for seed in 0..4 {
        let scenario = Scenario::plain(seed);
        let corner = Corner::without_node_pool(client.clone(), &scenario.name).await?;
        let outcome = scenario.play(&corner, &controller).await?;
        println!("{outcome}");
        for pod in scenario.judged(&corner).await? {
            let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
            let keys: Vec<_> = tolerations.filter_map(|toleration| toleration.key.as_deref()).collect();
            ensure!(!keys.contains(&api::taints::HELD), "{} tolerates {keys:?}", pod.name_any());
        }
        corner.abandon().await?;
        corner.emptied().await?;
    }
    ensure!(controller.metric("dovetail_hand_over_nominations_total")? > 0.0, "{}", controller.metrics()?);
    controller.terminate().await.map(drop)
}
