//! Machines that are empty or have drifted go, and what takes their place comes first.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{NodeClaim, NodePool};
use e2e::faults::audit::History;
use e2e::wait::stays;
use e2e::{Controller, controller, eventually, objects};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE, node_of, shared};

/// The annotation with a command's note.
const NOTE: &str = "dovetail.sh/disruption-command";

/// Machines of one CPU, which go when they are empty or have drifted.
fn voluntary(budgets: &Value) -> Value {
    let one_cpu = json!([{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["1"] }]);
    json!({ "spec": {
        "disruption": { "consolidateAfter": "1s", "consolidationPolicy": "WhenEmpty", "budgets": budgets },
        "template": { "spec": { "requirements": one_cpu } },
    } })
}

fn any_number() -> Value {
    json!([{ "nodes": "100%" }])
}

/// Makes every machine of the NodePool a drifted one.
async fn change_template(corner: &Corner, spec: Value) -> Result<()> {
    let pools: Api<NodePool> = Api::all(corner.client.clone());
    let metadata = json!({ "annotations": { "e2e.dovetail.test/changed": "yes" } });
    let patch = json!({ "spec": { "template": { "metadata": metadata, "spec": spec } } });
    pools.patch(&corner.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

fn large(corner: &Corner, name: &str) -> Value {
    objects::pod(&corner.name, name, &json!({ "cpu": "600m" }))
}

fn large_deployment(corner: &Corner, replicas: u32) -> Value {
    objects::deployment(&corner.name, "web", replicas, &json!({ "cpu": "600m" }))
}

fn is_true(claim: &NodeClaim, kind: &str) -> bool {
    claim.status.iter().flat_map(|status| &status.conditions).any(|it| it.type_ == kind && it.status == "True")
}

fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == "karpenter.sh/disrupted")
}

/// Nothing of a command is left on what stays.
async fn nothing_is_left(corner: &Corner) -> Result<()> {
    for claim in corner.node_claims().await? {
        if claim.metadata.deletion_timestamp.is_none() {
            ensure!(!is_true(&claim, "DisruptionReason"), "{} is marked", claim.name_any());
            ensure!(!claim.annotations().contains_key(NOTE), "{} has a note", claim.name_any());
        }
    }
    for node in corner.nodes().await? {
        let is_going = node.metadata.deletion_timestamp.is_some();
        ensure!(is_going || !is_tainted(&node), "{} is tainted", node.name_any());
    }
    Ok(())
}

/// Waits until there are exactly so many machines, none has drifted or is going, and every pod is bound to one.
async fn settled(corner: &Corner, machines: usize, pods: usize) -> Result<Vec<NodeClaim>> {
    let what = format!("{} has {machines} machines as they should be", corner.name);
    eventually(&what, 2 * DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let going = claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_some()).count();
        let drifted = claims.iter().filter(|claim| is_true(claim, "Drifted")).count();
        ensure!(
            (claims.len(), going, drifted) == (machines, 0, 0),
            "{} NodeClaims, {going} going, {drifted} drifted",
            claims.len()
        );
        ensure!(claims.iter().all(|claim| is_true(claim, "Initialized")), "not all are initialized");
        nothing_is_left(corner).await?;
        let all = corner.pods().await?;
        let bound =
            all.iter().filter(|pod| node_of(pod).is_some() && pod.metadata.deletion_timestamp.is_none()).count();
        ensure!((all.len(), bound) == (pods, pods), "{bound} of {} pods are bound", all.len());
        Ok(claims)
    })
    .await
}

/// The time of the metadata or a condition, in whole seconds as the API has it.
fn initialized_at(claim: &NodeClaim) -> Option<i64> {
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let initialized = conditions.into_iter().find(|it| it.type_ == "Initialized" && it.status == "True");
    initialized.map(|it| it.last_transition_time.0.as_second())
}

async fn blocked(corner: &Corner, name: &str, words: &str) -> Result<()> {
    let is_it = |event: &str| event.starts_with("DisruptionBlocked: ") && event.contains(words);
    corner.event(words, name, is_it).await
}

#[tokio::test]
async fn an_empty_machine_goes_and_one_in_use_stays() -> Result<()> {
    let corner = Corner::shared_without_node_pool("empty-goes").await?;
    corner.node_pool(voluntary(&any_number())).await?;
    corner.apply([large(&corner, "stays"), large(&corner, "leaves")]).await?;
    let pods = corner.bound(2).await?;
    let node = |name: &str| {
        let pod = pods.iter().find(|pod| pod.name_any() == name);
        pod.and_then(node_of).map(str::to_owned).with_context(|| format!("{name} is not bound"))
    };
    let (used, emptied) = (node("stays")?, node("leaves")?);
    ensure!(used != emptied, "both are on {used}");
    let claims = corner.with_nodes().await?;
    let of_emptied = claims.iter().find(|it| it.status.as_ref().is_some_and(|it| it.node_name == emptied));
    let of_emptied = of_emptied.context("no NodeClaim")?.name_any();
    Api::<Pod>::namespaced(corner.client.clone(), &corner.name).delete("leaves", &DeleteParams::default()).await?;
    let left = settled(&corner, 1, 1).await?;
    ensure!(left.iter().all(|claim| claim.name_any() != of_emptied), "{of_emptied} is there");
    corner.event("it goes", &of_emptied, |event| event == "DisruptionTerminating: Disrupting NodeClaim: Empty").await?;
    let metrics = shared().await?.controller.metrics()?;
    let disrupted = "karpenter_nodeclaims_disrupted_total{reason=\"empty\",nodepool=\"empty-goes\"";
    ensure!(metrics.contains(disrupted), "{metrics}");
    ensure!(
        metrics.contains("karpenter_nodepools_allowed_disruptions{nodepool=\"empty-goes\",reason=\"empty\"}"),
        "{metrics}"
    );
    corner.abandon().await
}

#[tokio::test]
async fn a_drifted_machine_is_replaced_before_it_goes_and_its_pods_come_to_the_replacement() -> Result<()> {
    let corner = Corner::shared_without_node_pool("drift-replaces").await?;
    corner.node_pool(voluntary(&any_number())).await?;
    corner.apply([large_deployment(&corner, 2)]).await?;
    corner.bound(2).await?;
    let before = settled(&corner, 2, 2).await?;
    for claim in &before {
        corner.hold(claim).await?;
    }
    change_template(&corner, json!({})).await?;
    let old = |claim: &NodeClaim| before.iter().any(|it| it.name_any() == claim.name_any());
    let all = eventually("the drifted machines are going", 2 * DEADLINE, async || {
        let all = corner.node_claims().await?;
        let going = all.iter().filter(|claim| old(claim) && claim.metadata.deletion_timestamp.is_some()).count();
        ensure!(going == before.len(), "{going} are");
        Ok(all)
    })
    .await?;
    // Each one of them went only after some replacement was ready: there are as many.
    let ready: Vec<i64> = all.iter().filter(|claim| !old(claim)).filter_map(initialized_at).collect();
    ensure!(ready.len() == before.len(), "{} replacements are ready", ready.len());
    for claim in all.iter().filter(|claim| old(claim)) {
        let deleted = claim.metadata.deletion_timestamp.as_ref().context("not deleted")?.0.as_second();
        ensure!(ready.iter().any(|ready| *ready <= deleted), "{} went first, {ready:?}", claim.name_any());
    }
    for claim in &before {
        corner.release(claim).await?;
    }
    let after = settled(&corner, 2, 2).await?;
    ensure!(after.iter().all(|claim| !old(claim)), "{after:?}");
    for claim in &after {
        let planned = claim.annotations().get("dovetail.sh/planned-pods").context("no planned pods")?;
        let node = claim.status.as_ref().map(|status| status.node_name.clone()).unwrap_or_default();
        let pods = corner.pods().await?;
        let here = pods.iter().filter(|pod| node_of(pod) == Some(&node)).count();
        ensure!(here == 1, "{here} pods on {node}, planned were {planned}");
        corner
            .event("it was launched", &claim.name_any(), |it| it == "DisruptionLaunching: Launching NodeClaim: Drifted")
            .await?;
    }
    corner.abandon().await
}

#[tokio::test]
async fn a_budget_of_zero_keeps_drifted_machines_until_it_is_lifted() -> Result<()> {
    let corner = Corner::shared_without_node_pool("drift-budget").await?;
    corner.node_pool(voluntary(&json!([{ "nodes": "0" }]))).await?;
    corner.apply([large_deployment(&corner, 1)]).await?;
    corner.bound(1).await?;
    let before = settled(&corner, 1, 1).await?;
    change_template(&corner, json!({})).await?;
    blocked(&corner, &corner.name, "No allowed disruptions for disruption reason Drifted due to blocking budget")
        .await?;
    stays("nothing is done", Duration::from_secs(3), async || {
        let claims = corner.node_claims().await?;
        ensure!(claims.len() == 1 && claims.iter().all(|it| it.metadata.deletion_timestamp.is_none()), "{claims:?}");
        nothing_is_left(&corner).await
    })
    .await?;
    let pools: Api<NodePool> = Api::all(corner.client.clone());
    let patch = Patch::Merge(json!({ "spec": { "disruption": { "budgets": [{ "nodes": "1" }] } } }));
    pools.patch(&corner.name, &PatchParams::default(), &patch).await?;
    let after = settled(&corner, 1, 1).await?;
    ensure!(after.iter().all(|claim| claim.name_any() != before[0].name_any()), "it is there");
    corner.abandon().await
}

#[tokio::test]
async fn pods_that_may_not_be_evicted_keep_their_drifted_machines() -> Result<()> {
    let corner = Corner::shared_without_node_pool("drift-held").await?;
    corner.node_pool(voluntary(&any_number())).await?;
    let protected = objects::with(
        large(&corner, "protected"),
        json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }),
    );
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "none", "namespace": corner.name },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "budgeted" } } },
    });
    corner.apply([protected, large(&corner, "budgeted"), budget]).await?;
    let pods = corner.bound(2).await?;
    let before = corner.with_nodes().await?;
    change_template(&corner, json!({})).await?;
    for (name, words) in [
        ("protected", "pod drift-held/protected with annotation karpenter.sh/do-not-disrupt"),
        ("budgeted", "PodDisruptionBudget none allows no disruption now"),
    ] {
        let node = pods.iter().find(|pod| pod.name_any() == name).and_then(node_of).context("not bound")?;
        let claim = before.iter().find(|it| it.status.as_ref().is_some_and(|it| it.node_name == node));
        blocked(&corner, &claim.context("no NodeClaim")?.name_any(), words).await?;
        blocked(&corner, node, words).await?;
    }
    ensure!(corner.node_claims().await?.len() == 2, "something was launched");
    nothing_is_left(&corner).await?;
    // Pods without a controller are lost with their machine, and these are allowed to be now.
    let api: Api<Pod> = Api::namespaced(corner.client.clone(), &corner.name);
    let lifted = Patch::Merge(json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": null } } }));
    api.patch("protected", &PatchParams::default(), &lifted).await?;
    eventually("the machine of the pod that may go is replaced", 2 * DEADLINE, async || {
        let pods = corner.pods().await?;
        ensure!(pods.iter().all(|pod| pod.name_any() != "protected"), "the pod is there");
        Ok(())
    })
    .await?;
    corner.abandon().await
}

/// A template whose machines never are initialized: nobody takes this taint away.
fn never_ready() -> Value {
    json!({ "startupTaints": [{ "key": "e2e.dovetail.test/never", "effect": "NoSchedule" }] })
}

/// The only machine that stays is that one, and nothing says that it was to go.
async fn is_as_before(corner: &Corner, claim: &str) -> Result<()> {
    let claims = corner.node_claims().await?;
    let staying: Vec<String> =
        claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect();
    ensure!(staying == [claim], "{staying:?}");
    nothing_is_left(corner).await
}

fn options(cluster: &Cluster) -> Result<controller::Options> {
    cluster.controller()
}

#[tokio::test]
async fn a_replacement_that_is_never_ready_is_taken_back_and_the_machine_takes_pods_again() -> Result<()> {
    let cluster = Cluster::new("disruption-timeout").await?;
    let controller = Controller::start_ready(&options(&cluster)?.arg("--replacement-timeout=15s")).await?;
    let corner = Corner::without_node_pool(cluster.client().await?, "never-ready").await?;
    corner.node_pool(voluntary(&any_number())).await?;
    corner.apply([large_deployment(&corner, 1)]).await?;
    corner.bound(1).await?;
    let before = settled(&corner, 1, 1).await?;
    let first = before[0].name_any();
    change_template(&corner, never_ready()).await?;
    let is_replacement = |claim: &&NodeClaim| claim.name_any() != first;
    let replacement = eventually("a replacement has come", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let replacement = claims.iter().find(is_replacement).context("none has")?;
        ensure!(is_true(replacement, "Registered"), "not registered");
        let old = claims.iter().find(|claim| claim.name_any() == first).context("the machine is gone")?;
        ensure!(old.annotations().contains_key(NOTE) && is_true(old, "DisruptionReason"), "nothing is under way");
        ensure!(corner.nodes().await?.iter().any(is_tainted), "no node is tainted");
        Ok(replacement.name_any())
    })
    .await?;
    corner.event("it is waited for", &replacement, |event| event.starts_with("DisruptionWaitingReadiness: ")).await?;
    blocked(&corner, &first, "its replacements were not ready in time").await?;
    eventually("all is as before", DEADLINE, async || is_as_before(&corner, &first).await).await?;
    ensure!(controller.metric("karpenter_voluntary_disruption_queue_failures_total")? >= 1.0, "not counted");
    ensure!(corner.pods().await?.iter().all(|pod| node_of(pod).is_some()), "a pod was evicted");
    controller.terminate().await.map(drop)
}

#[tokio::test]
async fn a_note_that_nobody_can_read_is_taken_back_and_named() -> Result<()> {
    let corner = Corner::shared("broken-note").await?;
    corner.apply([large(&corner, "one")]).await?;
    corner.bound(1).await?;
    let claim = corner.with_nodes().await?.pop().context("no NodeClaim")?;
    let node = claim.status.as_ref().map(|status| status.node_name.clone()).unwrap_or_default();
    let nodes: Api<Node> = Api::all(corner.client.clone());
    let found = nodes.get(&node).await?;
    let mut taints: Vec<Value> = Vec::new();
    for taint in found.spec.iter().flat_map(|spec| spec.taints.iter().flatten()) {
        taints.push(serde_json::to_value(taint)?);
    }
    taints.push(json!({ "key": "karpenter.sh/disrupted", "effect": "NoSchedule" }));
    let claims: Api<NodeClaim> = Api::all(corner.client.clone());
    // First the note: without it the taint is a stranger's, and goes at once.
    let note = Patch::Merge(json!({ "metadata": { "annotations": { NOTE: r#"{"id":"x","moves":3}"# } } }));
    claims.patch(&claim.name_any(), &PatchParams::default(), &note).await?;
    let tainted = Patch::Merge(json!({ "spec": { "taints": taints } }));
    nodes.patch(&node, &PatchParams::default(), &tainted).await?;
    blocked(&corner, &claim.name_any(), "cannot be read: unknown field `moves`").await?;
    eventually("nothing of it is left", DEADLINE, async || nothing_is_left(&corner).await).await?;
    ensure!(corner.node_claims().await?.len() == 1, "the machine is gone");
    corner.abandon().await
}

/// The controller dies at a step of a command, and the next one goes on or takes it back.
#[tokio::test]
async fn whichever_step_the_controller_dies_at_the_next_one_ends_what_it_began() -> Result<()> {
    let cluster = Cluster::new("disruption-crashes").await?;
    for failpoint in [
        "disruption.before-note",
        "disruption.before-condition",
        "disruption.before-taint",
        "disruption.before-launch",
        "disruption.started",
        "disruption.before-hold",
        "disruption.before-deletion",
        "disruption.before-forget",
        "disruption.finished",
    ] {
        let name = failpoint.replace('.', "-");
        let corner = Corner::without_node_pool(cluster.client().await?, &name).await?;
        let options = options(&cluster)?.named(&name);
        let doomed = options.clone().named(&format!("{name}-doomed"));
        let doomed = Controller::start(&doomed.env("DOVETAIL_FAILPOINTS", &format!("{failpoint}=abort")))?;
        corner.node_pool(voluntary(&any_number())).await?;
        corner.apply([large_deployment(&corner, 1)]).await?;
        corner.bound(1).await?;
        let before = settled(&corner, 1, 1).await.context(name.clone())?;
        change_template(&corner, json!({})).await?;
        doomed.ended(2 * DEADLINE).await.with_context(|| format!("{failpoint} was not hit"))?;
        ensure!(doomed.log()?.contains(&format!("failpoint {failpoint}")), "it ended otherwise:\n{}", doomed.log()?);
        let standby = Controller::start_ready(&options).await?;
        let after = settled(&corner, 1, 1).await.context(name.clone())?;
        ensure!(after[0].name_any() != before[0].name_any(), "{name}: it was not replaced");
        corner.abandon().await?;
        corner.emptied().await.context(name)?;
        standby.terminate().await?;
    }
    Ok(())
}

/// The steps of a roll-back.
const ROLL_BACK: [&str; 4] =
    ["disruption.before-discard", "disruption.before-untaint", "disruption.before-unmark", "disruption.before-forget"];

#[tokio::test]
async fn whichever_step_of_a_roll_back_the_controller_dies_at_the_next_one_completes_it() -> Result<()> {
    let cluster = Cluster::new("roll-back-crashes").await?;
    for failpoint in ROLL_BACK {
        let name = format!("roll-back-{}", failpoint.replace('.', "-"));
        let corner = Corner::without_node_pool(cluster.client().await?, &name).await?;
        let options = options(&cluster)?.named(&name).arg("--replacement-timeout=10s");
        let doomed = options.clone().named(&format!("{name}-doomed"));
        let doomed = Controller::start(&doomed.env("DOVETAIL_FAILPOINTS", &format!("{failpoint}=abort")))?;
        corner.node_pool(voluntary(&any_number())).await?;
        corner.apply([large_deployment(&corner, 1)]).await?;
        corner.bound(1).await?;
        let first = settled(&corner, 1, 1).await.context(name.clone())?[0].name_any();
        change_template(&corner, never_ready()).await?;
        doomed.ended(2 * DEADLINE).await.with_context(|| format!("{failpoint} was not hit"))?;
        ensure!(doomed.log()?.contains(&format!("failpoint {failpoint}")), "it ended otherwise:\n{}", doomed.log()?);
        let died_midway = is_as_before(&corner, &first).await.is_err();
        ensure!(died_midway, "{failpoint}: there was nothing left to take back");
        // It has drifted still, and nothing is begun anew.
        let pools: Api<NodePool> = Api::all(corner.client.clone());
        let patch = Patch::Merge(json!({ "spec": { "disruption": { "budgets": [{ "nodes": "0" }] } } }));
        pools.patch(&corner.name, &PatchParams::default(), &patch).await?;
        let next = Controller::start_ready(&options).await?;
        eventually(&format!("{failpoint}: all is as before"), 2 * DEADLINE, async || {
            is_as_before(&corner, &first).await?;
            let (claims, nodes) = (corner.node_claims().await?.len(), corner.nodes().await?.len());
            ensure!((claims, nodes) == (1, 1), "{claims} NodeClaims, {nodes} Nodes");
            Ok(())
        })
        .await?;
        ensure!(corner.pods().await?.iter().all(|pod| node_of(pod).is_some()), "{failpoint}: a pod was evicted");
        corner.abandon().await?;
        corner.emptied().await.context(name)?;
        next.terminate().await?;
    }
    Ok(())
}

#[tokio::test]
async fn drifted_machines_of_a_static_nodepool_are_replaced_one_by_one_within_its_limit() -> Result<()> {
    let cluster = Cluster::new("static-drift").await?;
    let controller = Controller::start_ready(&options(&cluster)?.arg("--feature-gates=StaticCapacity=true")).await?;
    let corner = Corner::without_node_pool(cluster.client().await?, "static-drift").await?;
    let fixed = json!({ "spec": { "replicas": 2, "limits": { "nodes": "3" } } });
    corner.node_pool(objects::with(voluntary(&any_number()), fixed)).await?;
    let before = settled(&corner, 2, 0).await?;
    let history = History::start(&corner.client);
    change_template(&corner, json!({})).await?;
    let names = |claims: &[NodeClaim]| claims.iter().map(ResourceExt::name_any).collect::<BTreeSet<_>>();
    let old = names(&before);
    eventually("both are replaced", 2 * DEADLINE, async || {
        let claims = corner.node_claims().await?;
        ensure!(claims.len() <= 3, "{} NodeClaims, and the limit is 3", claims.len());
        let left = names(&claims).intersection(&old).count();
        ensure!(left == 0, "{left} are left");
        Ok(())
    })
    .await?;
    settled(&corner, 2, 0).await?;
    let ever = history.claims_of(&corner.name).len();
    ensure!(ever == 4, "{ever} NodeClaims ever, two of them replacements");
    controller.terminate().await.map(drop)
}

/// Karpenter deletes a machine as soon as it is old enough.
#[tokio::test]
async fn a_machine_past_its_time_waits_for_budgets_and_for_its_replacement_where_that_is_wanted() -> Result<()> {
    let corner = Corner::shared_without_node_pool("graceful").await?;
    let wanted = |age: &str, nodes: &str| {
        let wanted = objects::with(
            voluntary(&json!([{ "nodes": nodes }])),
            json!({
                "metadata": { "annotations": { "dovetail.sh/expiration-policy": "Graceful" } },
                "spec": { "template": { "spec": { "expireAfter": age } } },
            }),
        );
        corner.node_pool(wanted)
    };
    wanted("20s", "0").await?;
    corner.apply([large_deployment(&corner, 1)]).await?;
    let before = settled(&corner, 1, 1).await?;
    let name = before[0].name_any();
    blocked(&corner, &name, "it has expired, but nodepool graceful allows no disruptions").await?;
    settled(&corner, 1, 1).await?;
    let claims: Api<NodeClaim> = Api::all(corner.client.clone());
    corner.hold(&before[0]).await?;
    // What comes in its place stays.
    wanted("Never", "100%").await?;
    let deleted_at = eventually("the old machine is going", 2 * DEADLINE, async || {
        let old = claims.get(&name).await?;
        let deleted_at = old.metadata.deletion_timestamp.context("it stays")?;
        Ok(deleted_at.0.as_second())
    })
    .await?;
    let replacements = corner.node_claims().await?;
    let ready: Vec<i64> = replacements.iter().filter(|it| it.name_any() != name).filter_map(initialized_at).collect();
    ensure!(ready.len() == 1 && ready[0] <= deleted_at, "{ready:?}, and it was deleted at {deleted_at}");
    let is_it = |event: &str| event.starts_with("DisruptionTerminating: ") && event.contains("Expired");
    corner.event("why it goes", &name, is_it).await?;
    corner.release(&before[0]).await?;
    settled(&corner, 1, 1).await?;
    corner.abandon().await
}
