//! Installs what a user would install: CRDs, and the chart's ServiceAccount with its rights.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, discovery};
use serde_json::{Value, json};

use crate::apply;
use crate::wait::{DEADLINE, eventually};

/// Release and namespace under which tests install the chart, as users of Karpenter are used to.
pub const RELEASE: &str = "karpenter";
/// See [`RELEASE`].
pub const NAMESPACE: &str = "kube-system";
/// Where the kwok provider keeps its records: the namespace that the chart makes for them.
pub const INSTANCES_NAMESPACE: &str = "karpenter-kwok";
/// Where the provider for EC2 keeps its records: the namespace that the chart makes for them.
pub const EC2_RECORDS_NAMESPACE: &str = "karpenter-ec2";
/// Settings of the chart for the provider for EC2.
pub const AWS: &[&str] = &["provider=aws", "settings.clusterName=e2e"];
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
    apply::apply(client, crds.clone()).await?;
    eventually("the CRDs are served", DEADLINE, async || {
        for crd in &crds {
            is_served(client, crd).await?;
        }
        Ok(())
    })
    .await
}

/// Whether the server tells of a CRD's kind and lists its objects. Each part of the server learns of a CRD by a watch
/// of its own.
async fn is_served(client: &Client, crd: &Value) -> Result<()> {
    let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    for version in versions.filter(|version| version["served"] == true) {
        let version = version["name"].as_str().context("a version without a name")?;
        let kind = GroupVersionKind::gvk(text("/spec/group"), version, text("/spec/names/kind"));
        let (resource, _) = discovery::pinned_kind(client, &kind).await?;
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        all.list_metadata(&ListParams::default().limit(1))
            .await
            .with_context(|| format!("list {}", resource.plural))?;
    }
    Ok(())
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
    let mut objects = tokio::task::spawn_blocking(|| render("charts/dovetail", settings)).await??;
    objects.retain(is_about_rights);
    apply::apply(client, objects.clone()).await?;
    eventually("the controller's rights are in force", DEADLINE, async || are_in_force(client, &objects).await).await
}

/// Whether the server lets the controller do the first thing that each of its roles allows. It learns of roles and of
/// bindings by watches of its own.
async fn are_in_force(client: &Client, objects: &[Value]) -> Result<()> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let is_binding = |object: &&Value| object["kind"].as_str().is_some_and(|kind| kind.ends_with("RoleBinding"));
    for binding in objects.iter().filter(is_binding) {
        let of_binding = &binding["roleRef"];
        let is_it =
            |object: &&Value| object["kind"] == of_binding["kind"] && object["metadata"]["name"] == of_binding["name"];
        let role = objects.iter().find(is_it).with_context(|| format!("no role of {binding}"))?;
        let rules = role["rules"].as_array().into_iter().flatten();
        let Some(rule) = rules.into_iter().find(|rule| rule["resources"].is_array()) else { continue };
        let resource = rule["resources"][0].as_str().unwrap_or_default();
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let review = json!({ "metadata": {}, "spec": {
            "user": format!("system:serviceaccount:{NAMESPACE}:{RELEASE}"),
            "resourceAttributes": {
                "group": rule["apiGroups"][0], "resource": resource, "subresource": subresource,
                "verb": rule["verbs"][0], "name": rule["resourceNames"][0],
                "namespace": binding["metadata"]["namespace"],
            },
        } });
        let answer = reviews.create(&PostParams::default(), &serde_json::from_value(review)?).await?;
        let status = answer.status.unwrap_or_default();
        ensure!(status.allowed, "{}: {:?}", role["metadata"]["name"], status.reason);
    }
    Ok(())
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
