//! Scenarios of devices: first those with default gates, then those with all, each half on a control plane of its own.

use std::time::Instant;

use anyhow::Result;
use e2e::cluster::Cluster;
use e2e::fidelity::{DeviceOutcome, DeviceScenario};
use e2e::{Controller, Gates, Kubernetes, Platform};

/// Prints a scenario's objects, to plan them without a cluster.
pub(crate) fn print(seed: u64, platform: Platform) {
    println!("{:#}", DeviceScenario::random(seed, platform).manifests());
}

/// Plays so many scenarios, half of them with all gates if none are given; whether all went as planned.
pub(crate) async fn run(seed: u64, scenarios: u64, kubernetes: Kubernetes, gates: Option<Gates>) -> Result<bool> {
    let half = match gates {
        None => seed + scenarios.div_ceil(2),
        Some(Gates::Default) => seed + scenarios,
        Some(Gates::All) => seed,
    };
    let (mut passed, mut failed) = (0, 0);
    for (gates, seeds) in [(Gates::Default, seed..half), (Gates::All, half..seed + scenarios)] {
        if seeds.is_empty() {
            continue;
        }
        let platform = Platform { kubernetes, gates };
        let started = Instant::now();
        let cluster = Cluster::of("fidelity-dra", platform).await?;
        let client = cluster.client().await?;
        // Pods that come while machines do are another plan's; here there is to be one.
        let options = cluster.controller()?.env("BATCH_IDLE_DURATION", "1s");
        let controller = Controller::start_ready(&options).await?;
        let (mut total, count) = (DeviceOutcome::default(), seeds.end - seeds.start);
        for (number, seed) in (1_u64..).zip(seeds) {
            let scenario = DeviceScenario::random(seed, platform);
            let faults: Vec<String> = match scenario.play(&client, &controller, gates).await {
                Ok(outcome) => {
                    let faults = outcome.pods.faults().map(str::to_owned).collect();
                    outcome
                        .other_devices
                        .iter()
                        .for_each(|it| println!("seed {seed}, {gates:?} gates, no fault: {it}"));
                    outcome.pods.remarks().for_each(|it| println!("seed {seed}, {gates:?} gates, no fault: {it}"));
                    total.add(outcome);
                    faults
                }
                Err(error) => vec![format!("{error:#}")],
            };
            if faults.is_empty() {
                passed += 1
            } else {
                failed += 1
            }
            for fault in &faults {
                println!("seed {seed}, {gates:?} gates: {fault}");
            }
            if number % 10 == 0 {
                eprintln!("{number} of {count} scenarios with {gates:?} gates, {failed} failed");
            }
        }
        controller.terminate().await?;
        let (version, seconds) = (cluster.control_plane.version(), started.elapsed().as_secs_f64());
        println!("Kubernetes {version}, {gates:?} gates, {seconds:.0} s: {total}");
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}
