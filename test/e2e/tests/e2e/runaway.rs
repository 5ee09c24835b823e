//! Launches that do not help have an end, whatever the cause; a pod that the planner cannot bear does not stop the
//! others; a pod that cannot be read keeps its node full.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::NodeClaim;
use e2e::controller::Controller;
use e2e::wait::stays;
use e2e::{eventually, objects};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::cluster::{Cluster, Corner, DEADLINE, Running, node_of};

/// The first delay after a launch in vain here. The default is 20 s, so what is ten minutes there is half a minute
/// here.
const DELAY: &str = "1s";
const TEN_MINUTES: Duration = Duration::from_secs(30);
/// A few plans long: what has not happened by then was not planned.
const QUIET: Duration = Duration::from_secs(3);

/// The cluster of these tests: its controller waits only shortly after launches in vain.
async fn running() -> Result<&'static Running> {
    static RUNNING: OnceCell<Running> = OnceCell::const_new();
    RUNNING
        .get_or_try_init(|| async {
            let cluster = Cluster::new("runaway").await?;
            let options = cluster.controller()?.env("INEFFECTIVE_LAUNCH_DELAY", DELAY);
            let controller = Controller::start_ready(&options).await?;
            Ok(Running { cluster, controller })
        })
        .await
}

async fn corner(name: &str) -> Result<(&'static Running, Corner)> {
    let running = running().await?;
    Ok((running, Corner::new(running.cluster.client().await?, name).await?))
}

/// Machines with so many CPUs.
fn sizes(cpus: &[&str]) -> Value {
    let cpu = json!({ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": cpus });
    json!({ "spec": { "template": { "spec": { "requirements": [cpu] } } } })
}

/// A daemon of the test that nothing but other daemons can push out.
fn daemon(corner: &Corner, resources: &Value) -> Value {
    let spec = objects::with(
        objects::pod_spec(&corner.name, &json!({})),
        json!({ "priorityClassName": "system-node-critical",
            "containers": [{ "name": "main", "image": "x", "resources": resources }] }),
    );
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "agent", "namespace": corner.name },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": { "metadata": { "labels": { "app": "agent" } }, "spec": spec },
        },
    })
}

/// A policy that changes objects of this kind as they are created, and puts it in force.
fn policy(name: &str, resource: &str, condition: &str, patch: &str) -> [Value; 2] {
    let group = "admissionregistration.k8s.io/v1";
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource] });
    [
        json!({
            "apiVersion": group, "kind": "MutatingAdmissionPolicy", "metadata": { "name": name },
            "spec": {
                "matchConstraints": { "resourceRules": [rule] },
                "matchConditions": [{ "name": "of-the-test", "expression": condition }],
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": format!("[{patch}]") } }],
            },
        }),
        json!({
            "apiVersion": group, "kind": "MutatingAdmissionPolicyBinding", "metadata": { "name": name },
            "spec": { "policyName": name },
        }),
    ]
}

/// Waits until the API server would change the object so that it has this text.
async fn in_force<K>(api: &Api<K>, object: Value, text: &str) -> Result<()>
where
    K: kube::Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object)?;
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the policy is in force", DEADLINE, async || {
        let answer = serde_json::to_string(&api.create(&parameters, &object).await?)?;
        ensure!(answer.contains(text), "{answer}");
        Ok(())
    })
    .await
}

/// The pods of the Deployment are bound.
async fn web_is_bound(corner: &Corner, deadline: Duration) -> Result<String> {
    eventually("the pod of the Deployment is bound", deadline, async || {
        let pods = corner.pods().await?;
        let web: Vec<_> = pods.iter().filter(|pod| pod.labels().get("app").is_some_and(|app| app == "web")).collect();
        let [pod] = web.as_slice() else { anyhow::bail!("{} pods", web.len()) };
        ensure!(pod.metadata.deletion_timestamp.is_none(), "it is being deleted");
        node_of(pod).map(str::to_owned).context("not bound")
    })
    .await
}

#[tokio::test]
async fn what_a_limit_range_gives_to_a_daemon_has_room_on_the_first_machine() -> Result<()> {
    let (_, corner) = corner("limit-range").await?;
    let defaults = json!({ "type": "Container", "default": { "cpu": "1500m" }, "defaultRequest": { "cpu": "1500m" } });
    corner
        .apply([
            json!({ "apiVersion": "v1", "kind": "LimitRange",
                "metadata": { "name": "defaults", "namespace": corner.name }, "spec": { "limits": [defaults] } }),
            daemon(&corner, &json!({})),
        ])
        .await?;
    // The controller has a watch for each kind: a NodePool that it has answered came long after those.
    corner.node_pool(sizes(&["1", "2", "4"])).await?;
    corner.ready().await?;
    corner.apply([objects::deployment(&corner.name, "web", 1, &json!({ "cpu": "700m" }))]).await?;
    web_is_bound(&corner, DEADLINE).await?;
    stays("one machine is enough", QUIET, async || {
        let claims = corner.node_claims().await?.len();
        ensure!(claims == 1, "{claims} NodeClaims");
        Ok(())
    })
    .await?;
    corner.bound(2).await.map(drop)
}

#[tokio::test]
async fn a_daemon_that_asks_for_more_than_its_template_says_costs_one_machine_too_many_at_most() -> Result<()> {
    let (_, corner) = corner("lying-daemon").await?;
    // On a small one the daemon fits if it pushes the pod out.
    corner.node_pool(sizes(&["2", "8"])).await?;
    let condition = format!(
        "object.metadata.namespace == '{}' && has(object.metadata.ownerReferences) && \
         object.metadata.ownerReferences.exists(owner, owner.kind == 'DaemonSet')",
        corner.name
    );
    let patch = "JSONPatch{op: 'replace', path: '/spec/containers/0/resources/requests/cpu', value: '1500m'}";
    corner.apply(policy("lying-daemon", "pods", &condition, patch)).await?;
    corner.apply([daemon(&corner, &json!({ "requests": { "cpu": "50m" } }))]).await?;
    let owner = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "none" });
    let like_a_daemon = objects::with(
        objects::pod(&corner.name, "probe", &json!({ "cpu": "50m" })),
        json!({ "metadata": { "ownerReferences": [owner] } }),
    );
    in_force(&Api::<Pod>::namespaced(corner.client.clone(), &corner.name), like_a_daemon, "1500m").await?;
    corner.apply([objects::deployment(&corner.name, "web", 1, &json!({ "cpu": "700m" }))]).await?;
    let most = Cell::new(0);
    let until = Instant::now() + TEN_MINUTES;
    eventually("the time is over", TEN_MINUTES * 2, async || {
        most.set(most.get().max(corner.node_claims().await?.len()));
        ensure!(Instant::now() > until, "not yet");
        Ok(())
    })
    .await?;
    // Until the daemon has come, its pod may still push the other one out.
    eventually("the pod of the Deployment and a daemon are side by side", DEADLINE, async || {
        let pods = corner.pods().await?;
        let nodes_of = |app: &str| -> BTreeSet<&str> {
            let of_app = pods.iter().filter(|pod| pod.labels().get("app").is_some_and(|it| it == app));
            of_app.filter(|pod| pod.metadata.deletion_timestamp.is_none()).filter_map(node_of).collect()
        };
        let (web, agents) = (nodes_of("web"), nodes_of("agent"));
        ensure!(web.len() == 1 && web.is_subset(&agents), "the pod on {web:?}, daemons on {agents:?}");
        most.set(most.get().max(corner.node_claims().await?.len()));
        Ok(())
    })
    .await?;
    ensure!(most.get() <= 2, "{} machines", most.get());
    Ok(())
}

#[tokio::test]
async fn launches_that_do_not_help_are_rare_and_told_and_end_when_the_cause_does() -> Result<()> {
    let (running, corner) = corner("in-vain").await?;
    // Each new node has a taint that nobody could know of.
    let condition = "has(object.metadata.labels) && 'karpenter.sh/nodepool' in object.metadata.labels && \
                     object.metadata.labels['karpenter.sh/nodepool'] == 'in-vain'";
    let patch = "JSONPatch{op: 'add', path: '/spec/taints/-', \
                 value: Object.spec.taints{key: 'example.org/surprise', effect: 'NoSchedule'}}";
    let surprise = policy("surprise", "nodes", condition, patch);
    corner.apply(surprise.clone()).await?;
    let like_a_machine = json!({ "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "probe", "labels": { "karpenter.sh/nodepool": corner.name } },
        "spec": { "taints": [{ "key": "example.org/other", "effect": "NoSchedule" }] } });
    in_force(&Api::<Node>::all(corner.client.clone()), like_a_machine, "example.org/surprise").await?;
    corner.apply([objects::deployment(&corner.name, "web", 1, &json!({ "cpu": "700m" }))]).await?;
    let began = Instant::now();
    let number = Cell::new(0);
    let claims = eventually("the time is over, and it was tried again", TEN_MINUTES * 4, async || {
        // A pod that nothing fits asks for a plan, as there always is something in a real cluster.
        number.set(number.get() + 1);
        let other = objects::with(
            objects::pod(&corner.name, &format!("other-{}", number.get()), &json!({ "cpu": "1" })),
            json!({ "spec": { "nodeSelector": { "example.org/colour": "octarine" } } }),
        );
        corner.apply([other]).await?;
        ensure!(began.elapsed() > TEN_MINUTES, "not yet");
        let claims = corner.node_claims().await?.len();
        ensure!(claims >= 2, "{claims} machines");
        Ok(claims)
    })
    .await?;
    ensure!(claims <= 4, "{claims} machines");
    let nodes = corner.nodes().await?;
    let is_tainted = |node: &Node| {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        taints.into_iter().any(|taint| taint.key == "example.org/surprise")
    };
    ensure!(!nodes.is_empty() && nodes.iter().all(is_tainted), "the policy is not in force");
    eventually("the NodePool says that its launches do not help", DEADLINE, async || {
        let conditions = corner.pool().await?.status.unwrap_or_default().conditions;
        let condition = conditions.iter().find(|it| it.type_ == "LaunchesEffective").context("no condition")?;
        ensure!(condition.status == "False" && condition.reason == "PodsStillWait", "{condition:?}");
        ensure!(condition.message.contains("in vain") && condition.message.contains("in-vain/web-"), "{condition:?}");
        let ready = conditions.iter().find(|it| it.type_ == "Ready").context("no Ready")?;
        ensure!(ready.status == "True", "the NodePool launches for others: {ready:?}");
        let metric = running.controller.metric("dovetail_ineffective_launches_total{nodepool=\"in-vain\"}")?;
        ensure!(metric >= 1.0, "{metric} launches in vain");
        Ok(())
    })
    .await?;
    // Events of many pods are on their way.
    eventually("NodePool and pod have an event", DEADLINE, async || {
        ensure!(corner.events("in-vain").await?.iter().any(|event| event.starts_with("LaunchInVain")), "no event");
        let pods = corner.pods().await?;
        let web = pods.iter().find(|pod| pod.name_any().starts_with("web-")).context("no pod")?;
        let events = corner.events(&web.name_any()).await?;
        ensure!(events.iter().any(|event| event.contains("one for it was in vain")), "{events:#?}");
        Ok(())
    })
    .await?;
    for object in surprise.iter().rev() {
        e2e::apply::delete(&corner.client, object).await?;
    }
    web_is_bound(&corner, TEN_MINUTES * 4).await?;
    eventually("the NodePool is well again", DEADLINE * 2, async || {
        let conditions = corner.pool().await?.status.unwrap_or_default().conditions;
        let condition = conditions.iter().find(|it| it.type_ == "LaunchesEffective").context("no condition")?;
        ensure!(condition.status == "True", "{condition:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pod_that_makes_the_planner_panic_is_set_aside_and_the_others_are_planned() -> Result<()> {
    let (running, corner) = corner("panics").await?;
    let marked = objects::with(
        objects::pod(&corner.name, "marked", &json!({ "cpu": "1300m" })),
        json!({ "metadata": { "labels": { "dovetail.sh/test-panic": "yes" } } }),
    );
    corner.apply([marked]).await?;
    corner.apply([objects::deployment(&corner.name, "web", 1, &json!({ "cpu": "700m" }))]).await?;
    web_is_bound(&corner, DEADLINE).await?;
    corner.event("it is set aside", "marked", |event| event.contains("the planner panics with it")).await?;
    eventually("metrics and log tell of it too", DEADLINE, async || {
        ensure!(running.controller.metric("dovetail_planner_panics_total")? >= 1.0, "no panic is counted");
        ensure!(running.controller.metric("dovetail_set_aside_pods")? >= 1.0, "no pod is set aside");
        let log = running.controller.log()?;
        let told = log.lines().find(|line| line.contains("the planner panicked")).context("no log line")?;
        let told: Value = serde_json::from_str(told)?;
        ensure!(told["message"].as_str().is_some_and(|text| text.contains("failpoint: pod panics/marked")), "{told}");
        ensure!(told["backtrace"].as_str().is_some_and(|text| text.contains("panic")), "{told}");
        Ok(())
    })
    .await?;
    // A changed pod is another pod: it is planned again at once.
    Api::<Pod>::namespaced(corner.client.clone(), &corner.name)
        .delete("marked", &DeleteParams::default().grace_period(0))
        .await?;
    corner.apply([objects::pod(&corner.name, "unmarked", &json!({ "cpu": "1200m" }))]).await?;
    corner.bound(2).await.map(drop)
}

#[tokio::test]
async fn a_pod_on_a_node_that_cannot_be_read_keeps_it_full_and_is_not_forgotten_when_it_is_drained() -> Result<()> {
    let (running, corner) = corner("unreadable").await?;
    corner.node_pool(sizes(&["2"])).await?;
    corner.apply([objects::deployment(&corner.name, "web", 1, &json!({ "cpu": "100m" }))]).await?;
    let node = web_is_bound(&corner, DEADLINE).await?;
    // More thousandths than we count. Nobody is asked: it is on its node from the start.
    let vast = objects::with(
        objects::pod(&corner.name, "vast", &json!({ "cpu": "9E" })),
        json!({ "spec": { "nodeName": node } }),
    );
    corner.apply([vast]).await?;
    eventually("the NodeClaim and a metric name the pod", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let [claim] = claims.as_slice() else { anyhow::bail!("{} NodeClaims", claims.len()) };
        let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let condition = conditions.iter().find(|it| it.type_ == "PodsReadable").context("no condition")?;
        ensure!(condition.status == "False" && condition.message.contains("pod unreadable/vast: "), "{condition:?}");
        let labels = format!("namespace=\"unreadable\",pod=\"vast\",node=\"{node}\"");
        let metric = running.controller.metric(&format!("dovetail_unreadable_pods{{{labels}}}"))?;
        ensure!(metric == 1.0, "{metric}");
        Ok(())
    })
    .await?;
    let claims: Api<NodeClaim> = Api::all(corner.client.clone());
    let name = corner.node_claims().await?.first().context("no NodeClaim")?.name_any();
    claims.delete(&name, &DeleteParams::default()).await?;
    eventually("the pod is evicted before its machine goes", DEADLINE, async || {
        let pods = corner.pods().await?;
        ensure!(!pods.iter().any(|pod| pod.name_any() == "vast"), "it is still there");
        Ok(())
    })
    .await?;
    corner.event("it was evicted", "vast", |event| event.starts_with("Evicted")).await
}
