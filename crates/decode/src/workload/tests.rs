use model::Interner;
use serde_json::json;

use super::*;

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("fixtures are YAML")
}

#[test]
fn daemons_tolerate_what_the_daemon_set_controller_adds() {
    let count = |host_network: bool| {
        let object = yaml(&format!(
            "{{metadata: {{name: d, namespace: ns}}, spec: {{template: {{metadata: {{labels: {{a: b}}}}, spec: {{hostNetwork: {host_network}, tolerations: [{{key: own, operator: Exists}}], containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}}}}}}}"
        ));
        let mut interner = Interner::new();
        let set = daemon_set(&object, &mut Context::new(&mut interner)).unwrap();
        let keys: Vec<_> = set
            .template
            .shape
            .tolerations
            .iter()
            .map(|it| interner.key_name(it.key.unwrap()).trim_start_matches("node.kubernetes.io/").to_owned())
            .collect();
        assert_eq!(set.template.shape.requests.display(&interner).to_string(), "cpu: 1, pods: 1");
        keys
    };
    let mut expected =
        vec!["own", "not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"];
    assert_eq!(count(false), expected);
    expected.push("network-unavailable");
    assert_eq!(count(true), expected);
}

#[test]
fn an_error_of_a_template_names_the_field_of_the_workload() {
    let object =
        json!({"metadata": {"name": "d", "namespace": "ns"}, "spec": {"template": {"spec": {"containers": []}}}});
    let error = daemon_set(&object, &mut Context::new(&mut Interner::new())).unwrap_err();
    assert_eq!(error.to_string(), "DaemonSet ns/d: spec.template.spec.containers: is missing");
}

#[test]
fn budgets_that_never_allow_a_disruption_are_told_from_those_that_may() {
    let check = |spec: &str, expected: bool| {
        let object =
            yaml(&format!("{{metadata: {{name: b, namespace: ns}}, spec: {spec}, status: {{disruptionsAllowed: 1}}}}"));
        let budget = pod_disruption_budget(&object, &mut Context::new(&mut Interner::new())).unwrap();
        assert_eq!((budget.never_allows_disruption, budget.disruptions_allowed), (expected, 1), "{spec}");
    };
    check("{maxUnavailable: 0}", true);
    check("{maxUnavailable: 0%}", true);
    check("{minAvailable: 100%}", true);
    check("{maxUnavailable: 1}", false);
    check("{minAvailable: 100}", false);
    check("{minAvailable: 99%}", false);
    let object = yaml("{metadata: {name: b, namespace: ns}, spec: {maxUnavailable: some}}");
    let error = pod_disruption_budget(&object, &mut Context::new(&mut Interner::new())).unwrap_err();
    assert_eq!(error.to_string(), "PodDisruptionBudget ns/b: spec.maxUnavailable: unknown percentage \"some\"");
}

#[test]
fn pod_groups_say_how_many_must_be_placed_at_once_and_what_is_not_planned_for() {
    let mut names = Interner::new();
    let mut read = |spec: &str| {
        let object = yaml(&format!("{{metadata: {{name: g, namespace: ns}}, spec: {spec}}}"));
        pod_group(&object, &mut Context::new(&mut names))
    };
    assert_eq!(read("{schedulingPolicy: {gang: {minCount: 4}}}").unwrap().min_count, Some(4));
    assert_eq!(read("{schedulingPolicy: {basic: {}}}").unwrap().min_count, None);
    let key = read("{schedulingConstraints: {topology: [{key: rack}]}}").unwrap();
    assert!(key.topology_key.is_some() && key.unsupported.is_empty());
    for (constraints, unsupported) in [
        ("{}", None),
        ("{topology: []}", None),
        ("{topology: [{key: rack}, {key: zone}]}", Some("spec.schedulingConstraints of a PodGroup")),
        ("{topology: [{key: rack, level: 2}]}", Some("spec.schedulingConstraints of a PodGroup")),
        ("{nearness: most}", Some("spec.schedulingConstraints of a PodGroup")),
        (
            "{topology: [{key: kubernetes.io/hostname}]}",
            Some("spec.schedulingConstraints.topology by host of a PodGroup"),
        ),
    ] {
        let group = read(&format!("{{schedulingConstraints: {constraints}}}")).unwrap();
        assert_eq!(group.topology_key, None, "{constraints}");
        assert_eq!(group.unsupported.first().map(|it| &*it.construct), unsupported, "{constraints}");
    }
    assert_eq!(
        read("{schedulingPolicy: {gang: {}}}").unwrap_err().to_string(),
        "PodGroup ns/g: spec.schedulingPolicy.gang.minCount: is missing"
    );
}
