//! The Helm charts, rendered with Helm's library; no cluster.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use e2e::apply;
use e2e::install::{is_about_rights, render};
use e2e::monitoring;
use serde_json::{Value, json};

const CHART: &str = "charts/dovetail";
/// People's roles, which the chart binds to nobody.
const PERSONAS: [&str; 3] = ["viewer", "platform-engineer", "admin"];

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

fn role(objects: &[Value], concern: &str) -> Result<Value> {
    let name = format!("karpenter-{concern}");
    let mut roles = objects.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")));
    roles.find(|role| role["metadata"]["name"] == name.as_str()).cloned().with_context(|| format!("no role {name}"))
}

/// Each role with a rule about that resource, and the rule.
fn rules_about<'a>(objects: &'a [Value], resource: &str) -> Vec<(&'a Value, &'a Value)> {
    let rules =
        objects.iter().flat_map(|role| role["rules"].as_array().into_iter().flatten().map(move |it| (role, it)));
    rules.filter(|(_, rule)| rule["resources"].as_array().into_iter().flatten().any(|it| it == resource)).collect()
}

#[test]
fn by_default_there_are_two_replicas_with_their_rights_and_no_service_monitor() -> Result<()> {
    let objects = render(CHART, &[])?;
    let kinds = kinds(&objects);
    assert_eq!(
        kinds,
        BTreeMap::from([
            ("ClusterRole", 8),
            ("ClusterRoleBinding", 5),
            ("ConfigMap", 1),
            ("Deployment", 1),
            ("Namespace", 1),
            ("PodDisruptionBudget", 1),
            ("Role", 3),
            ("RoleBinding", 3),
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
            && !PERSONAS.iter().any(|persona| object["metadata"]["name"] == format!("karpenter-{persona}"))
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
        "CapacityBuffer=true,NodeOverlay=true,NodeRepair=false,PodDeletionCostManagement=false,ReservedCapacity=true,\
         SpotToSpotConsolidation=false,StaticCapacity=false,TerminateFirstDrift=false,TerminateFirstRepair=false"
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
    let objects = render(CHART, &[])?;
    assert_eq!(variable(&objects, "LEADER_ELECTION_NAME")?.as_deref(), Some("karpenter-leader-election"));
    assert_eq!(variable(&objects, "KWOK_INSTANCES_NAMESPACE")?.as_deref(), Some("karpenter-kwok"));
    assert_eq!(role(&objects, "kwok-instances")?["metadata"]["namespace"], "karpenter-kwok");
    assert_eq!(find(&objects, "Namespace")?["metadata"]["name"], "karpenter-kwok");
    assert_eq!(find(&objects, "Namespace")?["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
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
    assert!(find(&objects, "Namespace").is_err(), "a namespace that is given is there already");
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
            "aggregateToView=false",
            "serviceMonitor.enabled=true",
        ],
    )?;
    let kinds = kinds(&objects);
    assert_eq!(kinds.get("ServiceAccount"), None);
    assert_eq!(kinds.get("PodDisruptionBudget"), None);
    let labels = objects.iter().map(|object| object["metadata"]["labels"].to_string());
    assert!(!labels.into_iter().any(|labels| labels.contains("aggregate-to")), "roles are still aggregated");
    assert_eq!(kinds.get("ServiceMonitor"), Some(&1));
    Ok(())
}

#[test]
fn the_dashboard_and_the_alerts_are_rendered_as_they_are_in_the_files() -> Result<()> {
    let objects = render(
        CHART,
        &[
            "dashboards.enabled=true",
            "dashboards.namespace=monitoring",
            "dashboards.annotations.grafana_folder=Kubernetes",
            "prometheusRule.enabled=true",
            "prometheusRule.additionalLabels.release=prometheus",
        ],
    )?;
    let is_dashboard = |object: &&Value| object["metadata"]["name"] == "karpenter-dashboards";
    let dashboard = objects.iter().find(is_dashboard).context("no dashboard")?;
    let metadata = &dashboard["metadata"];
    assert_eq!(
        (&metadata["namespace"], &metadata["labels"]["grafana_dashboard"], &metadata["annotations"]["grafana_folder"]),
        (&json!("monitoring"), &json!("1"), &json!("Kubernetes"))
    );
    let text = dashboard["data"]["dovetail-devices.json"].as_str().context("no file")?;
    assert_eq!(serde_json::from_str::<Value>(text)?["panels"], json!(monitoring::panels()?));
    let rule = find(&objects, "PrometheusRule")?;
    assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
    let file = apply::read(&monitoring::rules())?;
    assert_eq!([&rule["spec"]], [&file[0]]);
    Ok(())
}

#[test]
fn the_page_about_operating_devices_has_the_queries_of_the_dashboard_and_all_alerts() -> Result<()> {
    let (page, dashboard) = (monitoring::page()?, monitoring::dashboard()?);
    assert_eq!(page, dashboard);
    assert!(page.iter().all(|section| !section.queries.is_empty()), "{page:?}");
    let names: Vec<String> = monitoring::alerts()?.into_iter().map(|alert| alert.name).collect();
    assert!(!names.is_empty());
    assert_eq!(monitoring::explained_alerts()?, names);
    Ok(())
}

#[test]
fn panels_of_the_dashboard_are_complete_and_lie_beside_each_other() -> Result<()> {
    const COLUMNS: u64 = 24;
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in monitoring::panels()? {
        let title = panel["title"].as_str().context("a panel without title")?;
        assert!(ids.insert(panel["id"].as_u64().context("no id")?), "{title} has the id of another panel");
        let place = |key: &str| panel["gridPos"][key].as_u64().with_context(|| format!("{title}: no {key}"));
        let (left, top, width, height) = (place("x")?, place("y")?, place("w")?, place("h")?);
        assert!(left + width <= COLUMNS && width > 0 && height > 0, "{title} is not within the columns");
        for cell in (left..left + width).flat_map(|x| (top..top + height).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} lies on another panel");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(panel["description"].as_str().is_some_and(|it| !it.is_empty()), "{title} says nothing");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        let targets = panel["targets"].as_array().context("no targets")?;
        let letters: BTreeSet<String> = targets.iter().map(|target| target["refId"].to_string()).collect();
        assert!(letters.len() == targets.len() && !targets.is_empty(), "{title}: {letters:?}");
        for of in targets.iter().chain([&panel]) {
            let source = json!({ "type": "prometheus", "uid": "${datasource}" });
            assert_eq!(of["datasource"], source, "{title} has a data source of its own");
        }
    }
    assert!(ids.len() > 20, "only {} panels", ids.len());
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
        ("metrics.secure=perhaps", "secure"),
        ("networkPolicy.metricsFrom=all", "metricsFrom"),
        ("dashboards.enabled=perhaps", "enabled"),
        ("prometheusRule.additionalLabels=all", "additionalLabels"),
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

/// The values that each `helm install` of the controller on a page sets, with the variables of its shell filled in.
fn installations(page: &str) -> Result<Vec<Vec<String>>> {
    const VARIABLES: [(&str, &str); 3] = [
        ("$CLUSTER_NAME", "my-cluster"),
        ("$CONTROLLER_ROLE", "arn:aws:iam::123456789012:role/DovetailController-my-cluster"),
        ("$REPOSITORY", "registry.example.com/dovetail"),
    ];
    let path = go_programs::repository().join("docs").join(page);
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let mut text = text.replace("\\\n", " ").replace('"', "");
    for (name, value) in VARIABLES {
        text = text.replace(name, value);
    }
    let commands =
        text.lines().filter(|line| line.starts_with("    helm install ") && line.contains("charts/dovetail "));
    commands
        .map(|command| {
            assert!(command.contains("--namespace kube-system") && !command.contains('$'), "{command}");
            let words: Vec<&str> = command.split_whitespace().collect();
            Ok(words.windows(2).filter(|pair| pair[0] == "--set").map(|pair| pair[1].to_owned()).collect())
        })
        .collect()
}

fn render_owned(values: &[String]) -> Result<Vec<Value>> {
    render(CHART, &values.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn on_eks_the_controller_gets_its_role_by_pod_identity_or_by_its_service_account() -> Result<()> {
    let installations = installations("getting-started-eks.md")?;
    let [pod_identity, irsa] = installations.as_slice() else { anyhow::bail!("{installations:?}") };
    // The stack trusts the ServiceAccount by its name, which is the release's by default.
    let path = go_programs::repository().join("deploy/eks/cloudformation.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let stack: Value = serde_saphyr::from_str(&text)?;
    let trusted = |parameter: &str| &stack["Parameters"][parameter]["Default"];
    for values in [pod_identity, irsa] {
        let objects = render_owned(values)?;
        let account = &find(&objects, "ServiceAccount")?["metadata"];
        assert_eq!((&account["name"], &account["namespace"]), (trusted("ServiceAccount"), trusted("Namespace")));
        let pod = &find(&objects, "Deployment")?["spec"]["template"]["spec"];
        assert_eq!(&pod["serviceAccountName"], trusted("ServiceAccount"));
        // Tokens and credentials are mounted as files of that group, into a root that is read-only.
        assert_eq!(pod["securityContext"]["fsGroup"], 65532);
        assert_eq!(variable(&objects, "CLOUD_PROVIDER")?.as_deref(), Some("aws"));
        assert_eq!(variable(&objects, "CLUSTER_NAME")?.as_deref(), Some("my-cluster"));
        assert_eq!(variable(&objects, "INTERRUPTION_QUEUE")?.as_deref(), Some("my-cluster"));
        // Whatever gives the role gives the region and the way to credentials, which nothing here may hide.
        assert_eq!(variable(&objects, "AWS_FEATURE_GATES")?.as_deref(), Some("NodeClassCEL=false"));
        let variables = container(&objects)?["env"].to_string().replace("\"AWS_FEATURE_GATES\"", "");
        assert!(!variables.contains("\"AWS_"), "{variables}");
    }
    let annotations =
        |values| anyhow::Ok(find(&render_owned(values)?, "ServiceAccount")?["metadata"]["annotations"].clone());
    assert_eq!(annotations(pod_identity)?, Value::Null);
    let role = "arn:aws:iam::123456789012:role/DovetailController-my-cluster";
    assert_eq!(annotations(irsa)?, json!({ "eks.amazonaws.com/role-arn": role }));
    Ok(())
}

#[test]
fn on_a_switch_the_controller_runs_as_karpenters_service_account() -> Result<()> {
    let installations = installations("switching-from-karpenter.md")?;
    let on_eks = installations.iter().find(|values| values.iter().any(|it| it == "provider=aws"));
    let objects = render_owned(on_eks.context("nothing about EKS")?)?;
    assert!(find(&objects, "ServiceAccount").is_err(), "it is of Karpenter's release");
    assert_eq!(find(&objects, "Deployment")?["spec"]["template"]["spec"]["serviceAccountName"], "karpenter");
    assert_eq!(variable(&objects, "DRY_RUN")?.as_deref(), Some("true"));
    let bindings: Vec<_> = objects.iter().filter(|object| object["kind"] == "ClusterRoleBinding").collect();
    assert!(!bindings.is_empty() && bindings.iter().all(|it| it["subjects"][0]["name"] == "karpenter"), "{bindings:?}");
    Ok(())
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

#[test]
fn no_right_reaches_a_config_map_but_the_records_of_fake_machines_and_the_planners_state() -> Result<()> {
    let objects = render(CHART, &[])?;
    let mut found = Vec::new();
    for (role, rule) in rules_about(&objects, "configmaps") {
        assert_eq!(role["kind"], "Role", "{role}");
        found.push((role["metadata"]["namespace"].clone(), rule["resourceNames"].clone(), rule["verbs"].to_string()));
    }
    found.sort_by_key(|(namespace, ..)| namespace.to_string());
    let [(records, any_name, _), (here, names, verbs)] = found.as_slice() else { anyhow::bail!("{found:?}") };
    assert_eq!((records, any_name), (&json!("karpenter-kwok"), &Value::Null));
    assert_eq!(
        (here, names, verbs.as_str()),
        (&json!("kube-system"), &json!(["dovetail-planner-state"]), "[\"patch\"]")
    );
    // It is there from the start, so that no right to make it is needed.
    let state = find(&objects, "ConfigMap")?;
    assert_eq!((&state["metadata"]["name"], &state["data"]), (&json!("dovetail-planner-state"), &Value::Null));
    Ok(())
}

#[test]
fn the_status_of_pods_may_be_patched_only_for_a_hand_over_and_under_the_policy() -> Result<()> {
    let rights = |settings: &[&str]| -> Result<[bool; 3]> {
        let objects = render(CHART, settings)?;
        let has_policy = find(&objects, "ValidatingAdmissionPolicy").is_ok();
        let may_patch = |resource: &str| {
            rules_about(&objects, resource).iter().any(|(_, rule)| rule["verbs"].to_string().contains("patch"))
        };
        Ok([may_patch("pods"), may_patch("pods/status"), has_policy])
    };
    assert_eq!(rights(&[])?, [true, true, true]);
    assert_eq!(rights(&["settings.handOver=nominate"])?, [false, true, true]);
    assert_eq!(rights(&["settings.handOver=off"])?, [false, false, false]);
    assert_eq!(rights(&["podPatchPolicy.enabled=false"])?, [true, false, false]);
    let with_deletion_costs = ["settings.handOver=off", "settings.featureGates.podDeletionCostManagement=true"];
    assert_eq!(rights(&with_deletion_costs)?, [true, false, true]);
    let error = rights(&["settings.handOver=nominate", "podPatchPolicy.enabled=false"]).unwrap_err().to_string();
    assert!(error.contains("podPatchPolicy.enabled"), "{error}");
    Ok(())
}

#[test]
fn annotations_of_pods_are_the_controllers_to_write_only_with_the_gate_for_deletion_costs() -> Result<()> {
    for (is_on, expected) in [("false", false), ("true", true)] {
        let gate = format!("settings.featureGates.podDeletionCostManagement={is_on}");
        let objects = render(CHART, &[&gate])?;
        let policy = find(&objects, "ValidatingAdmissionPolicy")?["spec"]["validations"].to_string();
        assert_eq!(policy.contains("controller.kubernetes.io/pod-deletion-cost"), expected, "{policy}");
        assert_eq!(policy.contains("annotations == oldObject.metadata.?annotations"), !expected, "{policy}");
    }
    Ok(())
}

#[test]
fn the_policy_names_every_field_of_a_pods_status_but_the_nomination() -> Result<()> {
    let objects = render(CHART, &[])?;
    let policy = find(&objects, "ValidatingAdmissionPolicy")?["spec"]["validations"].to_string();
    let named = policy.split("object.?status.?").skip(1).filter_map(|rest| rest.split_once(' ')).map(|(name, _)| name);
    let named: BTreeSet<&str> = named.collect();
    let schema = schemars::schema_for!(k8s_openapi::api::core::v1::PodStatus);
    let fields = schema.get("properties").and_then(Value::as_object).context("no properties")?;
    assert!(fields.len() > 15, "{fields:?}");
    let expected: BTreeSet<&str> = fields.keys().map(String::as_str).filter(|it| *it != "nominatedNodeName").collect();
    assert_eq!(named, expected);
    Ok(())
}

#[test]
fn rights_for_what_is_off_are_not_given() -> Result<()> {
    let resources = ["capacitybuffers", "podtemplates", "deployments", "services", "tokenreviews"];
    let given = |settings: &[&str]| -> Result<Vec<&str>> {
        let objects = render(CHART, settings)?;
        let of_controller = |name: &Value| !PERSONAS.iter().any(|persona| *name == format!("karpenter-{persona}"));
        let is_given = |resource: &&str| {
            rules_about(&objects, resource).iter().any(|(role, _)| of_controller(&role["metadata"]["name"]))
        };
        Ok(resources.into_iter().filter(is_given).collect())
    };
    assert_eq!(given(&[])?, [""; 0]);
    assert_eq!(
        given(&["settings.featureGates.capacityBuffer=true"])?,
        ["capacitybuffers", "podtemplates", "deployments"]
    );
    assert_eq!(given(&["settings.schedulerConfig=podTopologySpread: null"])?, ["services"]);
    assert_eq!(given(&["metrics.secure=true"])?, ["tokenreviews"]);
    Ok(())
}

#[test]
fn each_persona_may_do_what_its_work_needs_and_none_writes_a_status() -> Result<()> {
    let objects = render(CHART, &[])?;
    let writes = |persona: &str| -> Result<BTreeSet<String>> {
        let rules = role(&objects, persona)?["rules"].clone();
        assert!(!rules.to_string().contains("/status"), "{persona} writes a status");
        let is_write = |rule: &&Value| rule["verbs"].to_string().contains("create");
        let rules = rules.as_array().context("no rules")?.clone();
        let resources = rules.iter().filter(is_write).flat_map(|rule| rule["resources"].as_array().cloned());
        Ok(resources.flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect())
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(writes("viewer")?, set(&[]));
    assert_eq!(writes("platform-engineer")?, set(&["capacitybuffers", "nodeoverlays", "nodepools"]));
    assert_eq!(
        writes("admin")?,
        set(&["capacitybuffers", "kwoknodeclasses", "nodeclaims", "nodeoverlays", "nodepools"])
    );
    for (persona, aggregated) in [("viewer", Some("view")), ("platform-engineer", None), ("admin", Some("admin"))] {
        let labels = role(&objects, persona)?["metadata"]["labels"].clone();
        let keys: Vec<&String> = labels.as_object().context("no labels")?.keys().collect();
        let found = keys.iter().find_map(|key| key.strip_prefix("rbac.authorization.k8s.io/aggregate-to-"));
        assert_eq!(found, aggregated, "{persona}");
    }
    Ok(())
}

#[test]
fn metrics_can_be_kept_from_strangers() -> Result<()> {
    let objects = render(
        CHART,
        &[
            "metrics.secure=true",
            "metrics.tlsSecret=metrics",
            "serviceMonitor.enabled=true",
            "networkPolicy.enabled=true",
            "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring",
        ],
    )?;
    assert_eq!(variable(&objects, "SECURE_METRICS")?.as_deref(), Some("true"));
    let folder = variable(&objects, "METRICS_TLS_FOLDER")?.context("no folder")?;
    assert_eq!(container(&objects)?["volumeMounts"][0]["mountPath"], folder.as_str());
    let pod = &find(&objects, "Deployment")?["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"], json!([{ "name": "metrics-tls", "secret": { "secretName": "metrics" } }]));
    let endpoint = &find(&objects, "ServiceMonitor")?["spec"]["endpoints"][0];
    assert_eq!((&endpoint["scheme"], &endpoint["tlsConfig"]), (&json!("https"), &Value::Null));
    let policy = &find(&objects, "NetworkPolicy")?["spec"];
    assert_eq!(policy["podSelector"]["matchLabels"]["app.kubernetes.io/instance"], "karpenter");
    assert_eq!(
        policy["ingress"],
        json!([
            { "ports": [{ "port": "http", "protocol": "TCP" }] },
            {
                "ports": [{ "port": "http-metrics", "protocol": "TCP" }],
                "from": [{ "namespaceSelector": { "matchLabels": { "name": "monitoring" } } }],
            },
        ])
    );
    assert_eq!(
        role(&objects, "metrics-reader")?["rules"],
        json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }])
    );
    // By default whoever reaches the port reads metrics, as with Karpenter.
    let objects = render(CHART, &[])?;
    assert_eq!(variable(&objects, "SECURE_METRICS")?.as_deref(), Some("false"));
    assert!(find(&objects, "NetworkPolicy").is_err() && role(&objects, "metrics-reader").is_err());
    Ok(())
}

#[test]
fn with_provider_aws_the_rights_are_for_its_node_classes_and_records_and_not_for_fake_nodes() -> Result<()> {
    let objects = render(CHART, e2e::install::AWS)?;
    let classes = role(&objects, "aws")?;
    assert_eq!(classes["rules"][0]["resources"], json!(["ec2nodeclasses"]));
    assert_eq!(classes["rules"][0]["verbs"], json!(["get", "list", "watch", "patch"]));
    assert_eq!(
        classes["rules"][1],
        json!({
            "apiGroups": ["karpenter.k8s.aws"], "resources": ["ec2nodeclasses/status"], "verbs": ["patch"],
        })
    );
    assert_eq!(role(&objects, "aws-records")?["metadata"]["namespace"], e2e::install::EC2_RECORDS_NAMESPACE);
    assert!(role(&objects, "kwok").is_err() && role(&objects, "kwok-instances").is_err());
    assert_eq!(find(&objects, "Namespace")?["metadata"]["name"], e2e::install::EC2_RECORDS_NAMESPACE);
    for (name, expected) in [
        ("CLOUD_PROVIDER", "aws"),
        ("CLUSTER_NAME", "e2e"),
        ("ISOLATED_VPC", "false"),
        ("VM_MEMORY_OVERHEAD_PERCENT", "0.075"),
        ("EC2_RECORDS_NAMESPACE", e2e::install::EC2_RECORDS_NAMESPACE),
    ] {
        assert_eq!(variable(&objects, name)?.as_deref(), Some(expected), "{name}");
    }
    assert_eq!(variable(&objects, "KWOK_INSTANCES_NAMESPACE")?, None);
    Ok(())
}

#[test]
fn provider_aws_is_refused_without_the_clusters_name() {
    let error = render(CHART, &["provider=aws"]).unwrap_err().to_string();
    assert!(error.contains("settings.clusterName: provider aws needs the name of the EKS cluster"), "{error}");
}
