//! The Helm charts, rendered with Helm's library; no cluster.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use e2e::apply;
use e2e::install::{is_about_rights, render};
use serde_json::{Value, json};

const CHART: &str = "charts/dovetail";

fn kinds(objects: &[Value]) -> BTreeMap<&str, usize> {
    objects.iter().filter_map(|object| object["kind"].as_str()).fold(BTreeMap::new(), |mut counts, kind| {
        *counts.entry(kind).or_default() += 1;
        counts
    })
}

fn find<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind).with_context(|| format!("no {kind}"))
}

fn container(objects: &[Value]) -> Result<&Value> {
    let containers = &find(objects, "Deployment")?["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers.as_array().map(Vec::len), Some(1), "Karpenter's own end-to-end tests ask for one container");
    Ok(&containers[0])
}

fn variable(objects: &[Value], name: &str) -> Result<Option<String>> {
    let variables = container(objects)?["env"].as_array().context("no env")?;
    let variable = variables.iter().find(|variable| variable["name"] == name);
    Ok(variable.and_then(|variable| variable["value"].as_str()).map(str::to_owned))
}

#[test]
fn by_default_there_are_two_replicas_with_their_rights_and_no_service_monitor() -> Result<()> {
    let objects = render(CHART, &[])?;
    let kinds = kinds(&objects);
    assert_eq!(
        kinds,
        BTreeMap::from([
            ("ClusterRole", 6),
            ("ClusterRoleBinding", 5),
            ("Deployment", 1),
            ("PodDisruptionBudget", 1),
            ("Role", 4),
            ("RoleBinding", 4),
            ("Service", 1),
            ("ServiceAccount", 1),
            ("ValidatingAdmissionPolicy", 1),
            ("ValidatingAdmissionPolicyBinding", 1),
        ])
    );
    assert_eq!(find(&objects, "Deployment")?["spec"]["replicas"], 2);
    assert_eq!(variable(&objects, "DISABLE_LEADER_ELECTION")?.as_deref(), Some("false"));
    Ok(())
}

#[test]
fn the_deployment_is_named_like_the_release_as_karpenters_tests_expect() -> Result<()> {
    let objects = render(CHART, &[])?;
    let deployment = find(&objects, "Deployment")?;
    assert_eq!(deployment["metadata"]["name"], "karpenter");
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/instance"], "karpenter");
    assert_eq!(container(&objects)?["name"], "controller");
    let ports: Vec<_> =
        container(&objects)?["ports"].as_array().into_iter().flatten().map(|port| &port["containerPort"]).collect();
    assert_eq!(ports, [8080, 8081]);
    assert_eq!(variable(&objects, "LEADER_ELECTION_NAMESPACE")?.as_deref(), Some("kube-system"));
    Ok(())
}

#[test]
fn every_selector_finds_the_pods_of_the_deployment() -> Result<()> {
    let objects = render(CHART, &["podLabels.team=platform"])?;
    let deployment = find(&objects, "Deployment")?;
    let labels = deployment["spec"]["template"]["metadata"]["labels"].as_object().context("no labels")?;
    let mut selectors = vec![
        &deployment["spec"]["selector"]["matchLabels"],
        &find(&objects, "Service")?["spec"]["selector"],
        &find(&objects, "PodDisruptionBudget")?["spec"]["selector"]["matchLabels"],
    ];
    let constraints = &deployment["spec"]["template"]["spec"]["topologySpreadConstraints"];
    selectors.extend(
        constraints.as_array().into_iter().flatten().map(|constraint| &constraint["labelSelector"]["matchLabels"]),
    );
    assert_eq!(selectors.len(), 5);
    for selector in selectors {
        let wanted = selector.as_object().context("no selector")?;
        assert!(!wanted.is_empty());
        assert!(
            wanted.iter().all(|(key, value)| labels.get(key) == Some(value)),
            "{wanted:?} does not match {labels:?}"
        );
    }
    Ok(())
}

#[test]
fn rights_name_each_resource_and_verb_and_never_reach_secrets() -> Result<()> {
    let objects = render(CHART, &[])?;
    let mut rules = 0;
    for role in objects.iter().filter(|object| matches!(object["kind"].as_str(), Some("ClusterRole" | "Role"))) {
        for rule in role["rules"].as_array().with_context(|| format!("{} has no rules", role["metadata"]["name"]))? {
            rules += 1;
            let text = rule.to_string();
            assert!(!text.contains("\"*\""), "a wildcard: {text}");
            assert!(!text.contains("secrets"), "secrets: {text}");
        }
    }
    assert!(rules > 10, "only {rules} rules");
    Ok(())
}

#[test]
fn every_role_of_the_controller_is_bound_to_its_account() -> Result<()> {
    let objects = render(CHART, &["serviceAccount.name=other"])?;
    let account = find(&objects, "ServiceAccount")?["metadata"]["name"].clone();
    assert_eq!(account, "other");
    assert_eq!(find(&objects, "Deployment")?["spec"]["template"]["spec"]["serviceAccountName"], "other");
    let mut bound = BTreeSet::new();
    let is_binding = |object: &&Value| matches!(object["kind"].as_str(), Some("RoleBinding" | "ClusterRoleBinding"));
    for binding in objects.iter().filter(is_binding) {
        assert_eq!(
            binding["subjects"],
            json!([{ "kind": "ServiceAccount", "name": "other", "namespace": "kube-system" }])
        );
        bound.insert((binding["roleRef"]["kind"].to_string(), binding["roleRef"]["name"].to_string()));
    }
    let to_be_bound = |object: &&Value| {
        is_about_rights(object)
            && object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role"))
            && object["metadata"]["labels"].get("rbac.authorization.k8s.io/aggregate-to-admin").is_none()
    };
    let roles: BTreeSet<_> = objects
        .iter()
        .filter(to_be_bound)
        .map(|role| (role["kind"].to_string(), role["metadata"]["name"].to_string()))
        .collect();
    assert_eq!(bound, roles);
    Ok(())
}

#[test]
fn settings_reach_the_controller_as_environment_variables() -> Result<()> {
    let objects = render(
        CHART,
        &[
            "settings.featureGates.capacityBuffer=true",
            "settings.batchIdleDuration=2s",
            "logLevel=debug",
            "metrics.port=9090",
        ],
    )?;
    assert_eq!(variable(&objects, "BATCH_IDLE_DURATION")?.as_deref(), Some("2s"));
    assert_eq!(variable(&objects, "LOG_LEVEL")?.as_deref(), Some("debug"));
    assert_eq!(variable(&objects, "METRICS_PORT")?.as_deref(), Some("9090"));
    assert_eq!(find(&objects, "Service")?["spec"]["ports"][0]["port"], 9090);
    let gates = variable(&objects, "FEATURE_GATES")?.context("no gates")?;
    assert_eq!(
        gates,
        "CapacityBuffer=true,NodeOverlay=true,NodeRepair=false,ReservedCapacity=true,SpotToSpotConsolidation=false,StaticCapacity=false"
    );
    Ok(())
}

#[test]
fn the_schedulers_configuration_is_a_map_or_a_text_and_absent_by_default() -> Result<()> {
    assert_eq!(variable(&render(CHART, &[])?, "SCHEDULER_CONFIG")?, None);
    let constraint = "settings.schedulerConfig.podTopologySpread.defaultConstraints[0]";
    let objects = render(
        CHART,
        &[
            &format!("{constraint}.maxSkew=1"),
            &format!("{constraint}.topologyKey=zone"),
            &format!("{constraint}.whenUnsatisfiable=DoNotSchedule"),
        ],
    )?;
    let text = variable(&objects, "SCHEDULER_CONFIG")?.context("no variable")?;
    let constraint = json!({ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" });
    assert_eq!(
        serde_json::from_str::<Value>(&text)?,
        json!({ "podTopologySpread": { "defaultConstraints": [constraint] } })
    );
    let objects = render(CHART, &["settings.schedulerConfig=podTopologySpread: null"])?;
    assert_eq!(variable(&objects, "SCHEDULER_CONFIG")?.as_deref(), Some("podTopologySpread: null"));
    Ok(())
}

#[test]
fn dry_run_and_logs_are_values() -> Result<()> {
    let objects = render(CHART, &[])?;
    assert_eq!(variable(&objects, "DRY_RUN")?.as_deref(), Some("false"));
    assert_eq!(variable(&objects, "LOG_FORMAT")?.as_deref(), Some("json"));
    let objects = render(CHART, &["settings.dryRun=true", "logFormat=text", "logLevel=warn"])?;
    assert_eq!(variable(&objects, "DRY_RUN")?.as_deref(), Some("true"));
    assert_eq!(variable(&objects, "LOG_FORMAT")?.as_deref(), Some("text"));
    assert_eq!(variable(&objects, "LOG_LEVEL")?.as_deref(), Some("warn"));
    Ok(())
}

#[test]
fn the_rights_follow_the_lease_and_the_namespace_of_the_records() -> Result<()> {
    let role = |objects: &[Value], concern: &str| -> Result<Value> {
        let name = format!("karpenter-{concern}");
        let mut roles =
            objects.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")));
        roles.find(|role| role["metadata"]["name"] == name.as_str()).cloned().with_context(|| format!("no role {name}"))
    };
    let objects = render(CHART, &[])?;
    assert_eq!(variable(&objects, "LEADER_ELECTION_NAME")?.as_deref(), Some("karpenter-leader-election"));
    assert_eq!(variable(&objects, "KWOK_INSTANCES_NAMESPACE")?.as_deref(), Some("kube-system"));
    assert_eq!(role(&objects, "kwok-instances")?["metadata"]["namespace"], "kube-system");
    let objects =
        render(CHART, &["settings.leaderElectionName=planner", "settings.kwokInstancesNamespace=fake-machines"])?;
    assert_eq!(variable(&objects, "LEADER_ELECTION_NAME")?.as_deref(), Some("planner"));
    assert_eq!(variable(&objects, "KWOK_INSTANCES_NAMESPACE")?.as_deref(), Some("fake-machines"));
    for concern in ["leader-election", "other-leaders"] {
        let text = role(&objects, concern)?["rules"].to_string();
        assert!(text.contains("\"planner\"") && !text.contains("karpenter-leader-election"), "{concern}: {text}");
    }
    assert_eq!(role(&objects, "leader-election")?["metadata"]["namespace"], "kube-system");
    assert_eq!(role(&objects, "kwok-instances")?["metadata"]["namespace"], "fake-machines");
    Ok(())
}

#[test]
fn what_is_switched_off_is_not_rendered() -> Result<()> {
    let objects = render(
        CHART,
        &[
            "serviceAccount.create=false",
            "podDisruptionBudget.enabled=false",
            "aggregateToAdmin=false",
            "serviceMonitor.enabled=true",
        ],
    )?;
    let kinds = kinds(&objects);
    assert_eq!(kinds.get("ServiceAccount"), None);
    assert_eq!(kinds.get("PodDisruptionBudget"), None);
    assert_eq!(kinds.get("ClusterRole"), Some(&5));
    assert_eq!(kinds.get("ServiceMonitor"), Some(&1));
    Ok(())
}

#[test]
fn additional_labels_annotations_and_rules_are_rendered() -> Result<()> {
    let objects = render(
        CHART,
        &[
            "additionalLabels.team=platform",
            "additionalAnnotations.note=hello",
            "serviceAccount.annotations.role=arn",
            "additionalClusterRoleRules[0].apiGroups[0]=example.org",
            "additionalClusterRoleRules[0].resources[0]=things",
            "additionalClusterRoleRules[0].verbs[0]=list",
        ],
    )?;
    for object in &objects {
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"]["team"], "platform", "{metadata}");
        assert_eq!(metadata["annotations"]["note"], "hello", "{metadata}");
    }
    assert_eq!(find(&objects, "ServiceAccount")?["metadata"]["annotations"]["role"], "arn");
    let extra = json!({ "apiGroups": ["example.org"], "resources": ["things"], "verbs": ["list"] });
    let has_it = |object: &Value| object["rules"].as_array().is_some_and(|rules| rules.contains(&extra));
    assert!(objects.iter().any(has_it));
    Ok(())
}

#[test]
fn the_schema_refuses_bad_values_and_names_them() {
    for (setting, named) in [
        ("replicas=-1", "replicas"),
        ("replicas=two", "replicas"),
        ("logLevel=loud", "logLevel"),
        ("logFormat=xml", "logFormat"),
        ("settings.dryRun=perhaps", "dryRun"),
        ("settings.leaderElectionName=", "leaderElectionName"),
        ("settings.leaderElectionName=Planner_1", "leaderElectionName"),
        ("settings.kwokInstancesNamespace=Not Here", "kwokInstancesNamespace"),
        ("provider=elsewhere", "provider"),
        ("metrics.port=80", "port"),
        ("settings.batchMaxDuration=soon", "batchMaxDuration"),
        ("settings.featureGates.nodeOverlay=maybe", "nodeOverlay"),
        ("settings.preferencePolicy=Sometimes", "preferencePolicy"),
        ("settings.prioritizedListPolicy=cheap", "prioritizedListPolicy"),
        ("image.digest=latest", "digest"),
        ("podDisruptionBudget.maxUnavailable=half", "maxUnavailable"),
        ("controler.resources.limits.memory=1Gi", "controler"),
    ] {
        let error = render(CHART, &[setting]).expect_err(setting).to_string();
        assert!(error.contains(named), "{setting} is refused, but not by its name: {error}");
    }
}

#[test]
fn the_crd_chart_renders_to_the_generated_crds() -> Result<()> {
    let by_name = |objects: Vec<Value>| -> BTreeMap<String, Value> {
        objects.into_iter().map(|object| (object["metadata"]["name"].to_string(), object)).collect()
    };
    let rendered = by_name(render("charts/dovetail-crd", &[])?);
    let generated = by_name(apply::read(&go_programs::repository().join("crds"))?);
    assert!(generated.len() >= 5, "only {} CRDs", generated.len());
    assert_eq!(rendered.keys().collect::<Vec<_>>(), generated.keys().collect::<Vec<_>>());
    for (name, crd) in &generated {
        assert!(rendered.get(name) == Some(crd), "{name} differs");
    }
    Ok(())
}
