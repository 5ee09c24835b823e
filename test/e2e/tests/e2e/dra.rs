//! Devices: for every feature that a control plane serves, kube-scheduler gives the devices that `dovetail dra
//! allocate` predicted from the objects in the API server before the pod was there.
//!
//! A scenario is a file in `dra/scenarios`, see [`scenario`]. All of them run side by side on one control plane, each
//! with nodes, a namespace and a driver of its own. What a server does not keep cannot be tested on it: such a scenario
//! is skipped with the field that the server drops, and only if the support matrix says that this release, with these
//! gates, does not have the feature, or the scenario is another release's. The control plane is one of Kubernetes 1.36,
//! or of the release that `DOVETAIL_KUBERNETES` names.

mod admission;
mod matrix;
mod outcome;
mod prediction;
mod scenario;
mod served;
mod stage;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Instant;

use anyhow::{Result, ensure};
use e2e::control_plane::Options;
use e2e::{ControlPlane, Gates, Kubernetes, Platform};
use futures::{StreamExt, stream};

use matrix::Matrix;
use prediction::Predictor;
use scenario::Scenario;
use stage::{Played, Stage};

/// Scenarios that run at a time: they wait more than they compute.
const SIDE_BY_SIDE: usize = 8;

#[tokio::test]
async fn devices_are_given_as_predicted_with_default_gates() -> Result<()> {
    check(Platform { kubernetes: Kubernetes::asked_for()?, gates: Gates::Default }).await.map(drop)
}

#[tokio::test]
async fn devices_are_given_as_predicted_with_all_gates_and_the_support_matrix_says_which() -> Result<()> {
    let kubernetes = Kubernetes::asked_for()?;
    let checked = check(Platform { kubernetes, gates: Gates::All }).await?;
    assert_eq!(checked, Matrix::read()?.held_against(&format!("control plane {kubernetes}")));
    Ok(())
}

/// Plays all scenarios; gives the features that were.
async fn check(platform: Platform) -> Result<BTreeSet<String>> {
    let Platform { kubernetes, gates } = platform;
    let binary = tokio::task::spawn_blocking(e2e::binary::with_failpoints).await??;
    let scenarios = Scenario::all(kubernetes)?;
    let name = format!("dra-{kubernetes}-{gates:?}").to_lowercase();
    let plane = ControlPlane::up(Options { name, gates, kubernetes, ..Options::default() }).await?;
    let client = plane.client().await?;
    let started = Instant::now();
    let predictor = Predictor::new(binary, &plane, platform)?;
    let matrix = Matrix::read()?;

    let mut stages = Vec::with_capacity(scenarios.len());
    for scenario in &scenarios {
        let mut is_served =
            scenario.is_for(kubernetes) && (matches!(gates, Gates::All) || !scenario.only_with_all_gates);
        for feature in &scenario.features {
            is_served &= matrix.serves(feature, plane.version(), gates)?;
        }
        stages.push(Stage::new(scenario, client.clone(), &predictor, is_served));
    }
    let set_up: Vec<(&Stage<'_>, Result<Vec<String>>)> = stream::iter(&stages)
        .map(|stage| async move { (stage, stage.set_up().await) })
        .buffer_unordered(SIDE_BY_SIDE)
        .collect()
        .await;
    // All is published before the first pod comes: requests for all devices mind the pools of others while they are
    // incomplete.
    let mut played: Vec<(&Stage<'_>, Result<Played>)> = stream::iter(set_up)
        .map(|(stage, reasons)| async move {
            match reasons {
                Ok(reasons) if reasons.is_empty() => (stage, stage.play().await),
                Ok(reasons) => (stage, Ok(Played::Skipped { reasons })),
                Err(error) => (stage, Err(error)),
            }
        })
        .buffer_unordered(SIDE_BY_SIDE)
        .collect()
        .await;
    for (stage, result) in &mut played {
        if result.is_ok()
            && let Err(error) = stage.refused_are_still_without_devices().await
        {
            *result = Err(error);
        }
    }
    played.sort_by_key(|(stage, _)| &stage.scenario.name);
    if matches!(gates, Gates::All) {
        admission::check(&client, kubernetes, &scenarios).await?;
    }
    let report = Report { plane: &plane, gates, played: &played };
    // Past the test runner, which shows what passing tests print to nobody.
    writeln!(std::io::stdout(), "{} in {:.1} s", report.text(), started.elapsed().as_secs_f64())?;
    report.verdict()
}

struct Report<'a> {
    plane: &'a ControlPlane,
    gates: Gates,
    played: &'a [(&'a Stage<'a>, Result<Played>)],
}

impl Report<'_> {
    fn text(&self) -> String {
        let mut lines = vec![format!("Devices on {} with {:?} gates:", self.plane.version(), self.gates)];
        let (mut pods, mut skipped, mut failed) = (0, 0, 0);
        for (stage, result) in self.played {
            let name = &stage.scenario.name;
            lines.push(match result {
                Ok(Played::Agreed { pods: count }) => {
                    pods += count;
                    format!("  agreed   {name}: {count} pods")
                }
                Ok(Played::Skipped { reasons }) => {
                    skipped += 1;
                    let (shown, others) = reasons.split_at(reasons.len().min(2));
                    let others = if others.is_empty() { String::new() } else { format!("; and {} more", others.len()) };
                    format!("  skipped  {name}: {}{others}", shown.join("; "))
                }
                Err(_) => {
                    failed += 1;
                    format!("  FAILED   {name}")
                }
            });
        }
        lines.push(format!(
            "  {pods} pods got what was predicted, {skipped} of {} scenarios skipped, {failed} failed",
            self.played.len()
        ));
        lines.join("\n")
    }

    /// The features that scenarios were played for, and that this server has.
    fn verdict(&self) -> Result<BTreeSet<String>> {
        let failures: Vec<String> = self
            .played
            .iter()
            .filter_map(|(stage, result)| {
                result.as_ref().err().map(|error| format!("{}: {error:#}", stage.scenario.name))
            })
            .collect();
        ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
        let agreed = |(stage, result): &&(&Stage<'_>, Result<Played>)| {
            stage.is_served && matches!(result, Ok(Played::Agreed { .. }))
        };
        let features = self.played.iter().filter(agreed).flat_map(|(stage, _)| &stage.scenario.features);
        Ok(features.cloned().collect())
    }
}
