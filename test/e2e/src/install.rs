//! Installs what a user would install: CRDs, and the chart's ServiceAccount with its rights.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use serde_json::Value;

use crate::apply;
use crate::wait::eventually;

/// Release and namespace under which tests install the chart, as users of Karpenter are used to.
pub const RELEASE: &str = "karpenter";
/// See [`RELEASE`].
pub const NAMESPACE: &str = "kube-system";
/// Where the kwok provider keeps its records: the namespace that the chart makes for them.
pub const INSTANCES_NAMESPACE: &str = "karpenter-kwok";
/// Settings of the chart that give every right that some option needs.
pub const ALL_OPTIONS: [&str; 4] = [
    "settings.featureGates.capacityBuffer=true",
    "settings.schedulerConfig=podTopologySpread: null",
    "settings.learnDevices=apply",
    "metrics.secure=true",
];
/// The ServiceAccount that the controller runs as, in the form of [`crate::control_plane::Options::service_accounts`].
pub const SERVICE_ACCOUNT: &str = "kube-system/karpenter";

/// Applies `crds/` and waits until the server serves them.
///
/// # Errors
/// If one is refused.
pub async fn crds(client: &Client) -> Result<()> {
    let crds = apply::read(&go_programs::repository().join("crds"))?;
    ensure!(!crds.is_empty(), "crds/ holds no CRD");
    let names: Vec<String> =
        crds.iter().filter_map(|crd| crd.pointer("/metadata/name")?.as_str().map(str::to_owned)).collect();
    apply::apply(client, crds).await?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    eventually("the CRDs are served", Duration::from_secs(30), async || {
        for name in &names {
            let status = api.get(name).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let established =
                conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True");
            ensure!(established, "{name} is not established: {conditions:?}");
        }
        Ok(())
    })
    .await
}

/// Applies the chart's ServiceAccount, RBAC objects and admission policy with the objects that these are about, and
/// nothing else of it. Rights for what is off by default are not among them.
///
/// # Errors
/// If the chart does not render or an object is refused.
pub async fn rights(client: &Client) -> Result<()> {
    rights_with(client, &[]).await
}

/// With values set as by `--set`.
///
/// # Errors
/// If the chart does not render or an object is refused.
pub async fn rights_with(client: &Client, settings: &'static [&'static str]) -> Result<()> {
    let objects = tokio::task::spawn_blocking(|| render("charts/dovetail", settings)).await??;
    apply::apply(client, objects.into_iter().filter(is_about_rights)).await
}

/// Whether an object says who the controller is, what it may do, or where.
#[must_use]
pub fn is_about_rights(object: &Value) -> bool {
    matches!(
        object["kind"].as_str(),
        Some(
            "Namespace"
                | "ServiceAccount"
                | "ConfigMap"
                | "ClusterRole"
                | "ClusterRoleBinding"
                | "Role"
                | "RoleBinding"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
        )
    )
}

/// Renders a chart of this repository with values set as by `--set`, under [`RELEASE`] in [`NAMESPACE`].
///
/// # Errors
/// What Helm says, if it refuses the values or the templates.
pub fn render(chart: &str, settings: &[&str]) -> Result<Vec<Value>> {
    let program = go_programs::HELM_RENDER.build(&|text| eprintln!("{text}"))?;
    let mut command = Command::new(program);
    command.arg(go_programs::repository().join(chart)).args(["--name", RELEASE, "--namespace", NAMESPACE]);
    for setting in settings {
        command.args(["--set", setting]);
    }
    let output = command.output().context("run helm-render")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    apply::parse(&String::from_utf8(output.stdout)?).with_context(|| format!("what {chart} renders to"))
}
