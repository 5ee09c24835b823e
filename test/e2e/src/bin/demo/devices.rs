//! The examples of devices: planned offline, applied to a cluster without nodes, and what became of them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::fleet::{Fleet, dollars};
use e2e::{apply, controller};
use kube::Client;
use kube::core::Request;
use serde_json::{Value, json};

use super::claims::{Claims, Row};
use super::stage::Stage;
use super::waiting::{Awaited, until_bound};

/// Folders of `examples/`.
pub(crate) const ALL: [&str; 5] = ["gpu-from-zero", "mig", "zonal-network", "shared-claim", "extended-resource"];
/// The one that `cargo xtask demo` shows.
pub(crate) const GPU: [&str; 1] = ["gpu-from-zero"];

/// An example: one namespace and one NodePool.
pub(crate) struct Example {
    folder: String,
    objects: Vec<Value>,
    pub namespace: String,
    pub node_pool: String,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    bound: usize,
    pods: usize,
    as_planned: usize,
    claims: usize,
    /// How many machines the provider has, where that is told.
    instances: Option<usize>,
    price_nano_usd_per_hour: i64,
}

impl Summary {
    /// Of so many pods, which run on these machines, and of their claims.
    pub(crate) fn of(fleets: &[Fleet], pods: usize, claims: &[Row]) -> Self {
        Self {
            bound: fleets.iter().map(Fleet::bound).sum(),
            pods,
            as_planned: claims.iter().filter(|row| row.differs.is_none()).count(),
            claims: claims.len(),
            instances: None,
            price_nano_usd_per_hour: fleets.iter().map(Fleet::price_nano_usd_per_hour).sum(),
        }
    }

    /// Tells besides how many machines the provider has.
    pub(crate) fn with_instances(self, instances: usize) -> Self {
        Self { instances: Some(instances), ..self }
    }

    /// Whether all pods run, and all claims are allocated as planned.
    pub(crate) fn is_complete(&self) -> bool {
        self.bound == self.pods && self.as_planned == self.claims && self.claims > 0
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bound, pods, as_planned, claims, instances, price_nano_usd_per_hour } = self;
        write!(f, "demo: {bound} of {pods} pods bound, {as_planned} of {claims} claims allocated as planned, ")?;
        if let Some(instances) = instances {
            write!(f, "{instances} instances, ")?;
        }
        write!(f, "${}/h", dollars(*price_nano_usd_per_hour))
    }
}

impl Example {
    pub(crate) fn read(name: &str) -> Result<Self> {
        let folder = format!("examples/{name}");
        let objects = apply::read(&go_programs::repository().join(&folder))?;
        let name_of = |kind: &str| {
            let object = objects.iter().find(|object| object["kind"] == kind);
            let name = object.and_then(|object| object["metadata"]["name"].as_str());
            name.map(str::to_owned).with_context(|| format!("{folder} has no {kind}"))
        };
        let (namespace, node_pool) = (name_of("Namespace")?, name_of("NodePool")?);
        Ok(Self { folder, objects, namespace, node_pool })
    }

    /// All that is in its folder.
    pub(crate) fn objects(&self) -> &[Value] {
        &self.objects
    }

    fn awaited(&self) -> Awaited<'_> {
        Awaited { namespace: &self.namespace, node_pool: &self.node_pool, pods: super::pods_wanted(&self.objects) }
    }
}

/// Shows examples from their plan to their claims, on a cluster in which none of their machines run.
pub(crate) async fn show(stage: &Stage<'_>, examples: &[Example], timeout: Duration) -> Result<Summary> {
    let Stage { screen, client, options, .. } = stage;
    let folders: Vec<&str> = examples.iter().map(|example| example.folder.as_str()).collect();
    let arguments: Vec<&str> = folders.iter().flat_map(|folder| ["-f", folder]).collect();
    screen.heading(&format!("dovetail plan {} --expand-workloads: no cluster is asked", arguments.join(" ")));
    let mut plan = vec!["plan", "--expand-workloads"];
    plan.extend(&arguments);
    screen.text(&dovetail(options, &plan, None)?);

    let wanted: usize = examples.iter().map(|example| example.awaited().pods).sum();
    screen.heading(&format!("kubectl apply {}: {wanted} pods", arguments.join(" ")));
    let fleets = deploy(stage, examples, timeout).await?;
    let namespaces: Vec<&str> = examples.iter().map(|example| example.namespace.as_str()).collect();
    let claims = Claims::read(client, &namespaces).await?;
    screen.machines_with_devices(&fleets, &claims);

    screen.heading("kubectl get nodes,resourceslices,nodeoverlays,nodepools -o json | dovetail overlay verify -f -");
    let published = published(client).await?;
    screen.text(&dovetail(options, &["overlay", "verify", "-f", "-"], Some(&published.to_string()))?);

    screen.heading("The claims, as kube-scheduler allocated them");
    let rows = claims.rows();
    screen.claims(&rows);
    Ok(Summary::of(&fleets, wanted, &rows))
}

/// Applies the examples, their pods last, and waits until all of these run.
pub(crate) async fn deploy(stage: &Stage<'_>, examples: &[Example], timeout: Duration) -> Result<Vec<Fleet>> {
    let objects = || examples.iter().flat_map(|example| &example.objects);
    let (workloads, others): (Vec<&Value>, Vec<&Value>) = objects().partition(|object| object["kind"] == "Deployment");
    apply::apply(stage.client, others.into_iter().chain(workloads).cloned()).await?;
    let awaited: Vec<_> = examples.iter().map(Example::awaited).collect();
    until_bound(stage, &awaited, timeout).await
}

/// What `kubectl get` would give `dovetail overlay verify`.
async fn published(client: &Client) -> Result<Value> {
    let kinds = [
        ("/api/v1/nodes", "v1", "Node"),
        ("/apis/resource.k8s.io/v1/resourceslices", "resource.k8s.io/v1", "ResourceSlice"),
        ("/apis/karpenter.sh/v1alpha1/nodeoverlays", "karpenter.sh/v1alpha1", "NodeOverlay"),
        ("/apis/karpenter.sh/v1/nodepools", "karpenter.sh/v1", "NodePool"),
    ];
    let mut items = Vec::new();
    for (path, api_version, kind) in kinds {
        let list: Value = client.request(Request::new(path).list(&Default::default())?).await?;
        for item in list["items"].as_array().into_iter().flatten() {
            let mut item = item.clone();
            (item["apiVersion"], item["kind"]) = (api_version.into(), kind.into());
            items.push(item);
        }
    }
    Ok(json!({ "apiVersion": "v1", "kind": "List", "items": items }))
}

/// Runs the command line in the repository, and gives what it printed.
pub(crate) fn dovetail(options: &controller::Options, arguments: &[&str], input: Option<&str>) -> Result<String> {
    let repository: PathBuf = go_programs::repository().to_path_buf();
    let mut child = Command::new(&options.binary)
        .args(arguments)
        .current_dir(repository)
        .env("KUBECONFIG", &options.kubeconfig)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", options.binary.display()))?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let (said, printed) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    ensure!(output.status.success(), "dovetail {} ended with {}:\n{said}{printed}", arguments.join(" "), output.status);
    Ok(printed.into_owned())
}
