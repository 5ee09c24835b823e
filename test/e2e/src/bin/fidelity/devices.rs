//! Scenarios of devices: first those with default gates, then those with all, each half on a control plane of its own.

use std::time::Instant;

use anyhow::Result;
use e2e::cluster::Cluster;
use e2e::ec2::{self, Ec2, Sold};
use e2e::fidelity::{DeviceOutcome, DeviceScenario};
use e2e::{Controller, Gates, Kubernetes, Platform, install};

/// Whose machines there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Provider {
    /// Fake ones, with what random NodeOverlays describe.
    Kwok,
    /// Those of an EC2 in memory, with what its catalogue describes.
    Aws,
}

impl Provider {
    fn scenario(self, seed: u64, platform: Platform) -> Result<DeviceScenario> {
        match self {
            Self::Kwok => Ok(DeviceScenario::random(seed, platform)),
            Self::Aws => DeviceScenario::on_ec2(seed),
        }
    }

    async fn cluster(self, platform: Platform) -> Result<Cluster> {
        match self {
            Self::Kwok => Cluster::of("fidelity-dra", platform).await,
            Self::Aws => Cluster::with_rights("fidelity-aws", platform, &[], install::AWS).await,
        }
    }

    /// What launches the machines, where that is not the controller itself.
    async fn ec2(self, client: &kube::Client) -> Result<Option<Ec2>> {
        if self == Self::Kwok {
            return Ok(None);
        }
        let ec2 = Ec2::of_cluster(client.clone(), ec2::CLUSTER, Sold::All).await?;
        ec2.discount_spot();
        Ok(Some(ec2))
    }
}

/// Prints a scenario's objects, to plan them without a cluster.
pub(crate) fn print(provider: Provider, seed: u64, platform: Platform) -> Result<()> {
    println!("{:#}", provider.scenario(seed, platform)?.manifests());
    Ok(())
}

/// Which scenarios are played.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) provider: Provider,
    /// The first seed.
    pub(crate) seed: u64,
    pub(crate) scenarios: u64,
    pub(crate) kubernetes: Kubernetes,
    /// The feature gates; without any, those by default for one half and all for the other.
    pub(crate) gates: Option<Gates>,
}

/// Plays scenarios; whether all went as planned.
pub(crate) async fn run(run: Run) -> Result<bool> {
    let Run { provider, seed, scenarios, kubernetes, gates } = run;
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
        let cluster = provider.cluster(platform).await?;
        let client = cluster.client().await?;
        // Pods that come while machines do are another plan's; here there is to be one.
        let options = cluster.controller()?.env("BATCH_IDLE_DURATION", "1s");
        let ec2 = provider.ec2(&client).await?;
        let options = ec2.iter().fold(options, |options, ec2| ec2.controller(options));
        let controller = Controller::start_ready(&options).await?;
        let (mut total, count) = (DeviceOutcome::default(), seeds.end - seeds.start);
        for (number, seed) in (1_u64..).zip(seeds) {
            let scenario = provider.scenario(seed, platform)?;
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
