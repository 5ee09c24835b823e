//! Makes a cluster clean again after a spec that could not do so itself, and says when it is.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PropagationPolicy};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::stand_in;
use crate::cluster::instances;
use crate::eventually;

/// What the suites label all that they make with.
const LABEL: &str = "testing/cluster";
/// What they hold objects with.
const FINALIZER: &str = "testing/finalizer";
/// Where they make things, some of them without the label; we have nothing there.
const NAMESPACE: &str = "default";
/// Kinds of those things.
const UNLABELLED: [&str; 5] = ["Deployment", "DaemonSet", "ReplicaSet", "Pod", "ResourceClaimTemplate"];
/// A machine without NodeClaim is removed after two minutes.
const LIMIT: Duration = Duration::from_secs(240);

/// Knows every kind of object that the server has.
pub(super) struct Sweeper {
    client: Client,
    kinds: Vec<Kind>,
}

struct Kind {
    resource: ApiResource,
    scope: Scope,
}

impl Sweeper {
    /// Asks the server for its kinds.
    pub(super) async fn new(client: Client) -> Result<Self> {
        let discovery = Discovery::new(client.clone()).run().await.context("list the server's kinds")?;
        let resources = discovery.groups().flat_map(kube::discovery::ApiGroup::recommended_resources);
        let kinds = resources
            .filter(|(_, can)| can.supports_operation(verbs::LIST) && can.supports_operation(verbs::DELETE))
            .map(|(resource, can)| Kind { resource, scope: can.scope })
            .collect();
        Ok(Self { client, kinds })
    }

    /// Deletes what a spec has left, until nothing is left of it and of its machines.
    pub(super) async fn sweep(&self) -> Result<()> {
        eventually("what the spec has left is removed", LIMIT, async || {
            let left = try_join_all(self.kinds.iter().map(|kind| self.remove(kind))).await?.concat();
            let records = instances(&self.client).await?.len();
            ensure!(left.is_empty() && records == 0, "{}, and {records} machines", left.join(", "));
            Ok(())
        })
        .await
    }

    /// Asks for the end of what is left of a kind, and tells what that was.
    async fn remove(&self, kind: &Kind) -> Result<Vec<String>> {
        let mut left = self.list(Api::all_with(self.client.clone(), &kind.resource), Some(LABEL)).await?;
        if matches!(kind.scope, Scope::Namespaced) && UNLABELLED.contains(&kind.resource.kind.as_str()) {
            let api = Api::namespaced_with(self.client.clone(), NAMESPACE, &kind.resource);
            left.extend(self.list(api, None).await?);
        }
        if kind.resource.kind == "Node" {
            let all = self.list(Api::all_with(self.client.clone(), &kind.resource), None).await?;
            left.extend(all.into_iter().filter(|node| node.name_any() != stand_in::NODE));
        }
        for object in &left {
            let name = object.name_any();
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &kind.resource),
                None => Api::all_with(self.client.clone(), &kind.resource),
            };
            if object.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
                let others: Vec<_> = object.finalizers().iter().filter(|it| *it != FINALIZER).collect();
                let patch = Patch::Merge(json!({ "metadata": { "finalizers": others } }));
                unless_gone(api.patch(&name, &PatchParams::default(), &patch).await)?;
            }
            let at_once = DeleteParams {
                grace_period_seconds: Some(0),
                propagation_policy: Some(PropagationPolicy::Background),
                ..DeleteParams::default()
            };
            unless_gone(api.delete(&name, &at_once).await)?;
        }
        Ok(left.iter().map(|object| format!("{} {}", kind.resource.kind, object.name_any())).collect())
    }

    async fn list(&self, api: Api<DynamicObject>, label: Option<&str>) -> Result<Vec<DynamicObject>> {
        let parameters = label.map_or_else(ListParams::default, |label| ListParams::default().labels(label));
        Ok(api.list(&parameters).await?.items)
    }
}

fn unless_gone<T>(result: kube::Result<T>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop),
    }
}
