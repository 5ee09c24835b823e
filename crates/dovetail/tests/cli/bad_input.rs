//! Input that is broken, hostile or both: it is named, and the rest is planned.

use serde_json::{Value, json};

use crate::manifests;
use crate::scratch::{Ran, Scratch};

/// A pod that fits, to be added to a text.
fn fine() -> String {
    format!("\n---\n{}\n", manifests::pod("fine"))
}

/// Plans the text together with a pod that fits. The pod must be placed.
fn plan(text: &str) -> Ran {
    let ran = Scratch::new().run_with_input(&["plan", "-f", "-", "-o", "json"], &format!("{text}{}", fine()));
    let placed = ran.json()["nodeClaims"][0]["pods"].to_string();
    assert!(placed.contains("default/fine"), "{ran:?}");
    ran
}

#[track_caller]
fn check(text: &str, code: i32, problem: &str) {
    let ran = plan(text);
    let problems: Vec<_> = ran.stderr.lines().filter(|line| !line.starts_with("note: no NodePool")).collect();
    assert_eq!((ran.code, problems.join("\n").as_str()), (code, problem));
}

fn pod(container: &str) -> String {
    format!("{{apiVersion: v1, kind: Pod, metadata: {{name: bad}}, spec: {{containers: [{{name: c, {container}}}]}}}}")
}

/// A NodePool of kwok's node class with one requirement.
fn node_pool(name: &str, requirement: &Value) -> String {
    let node_class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "d"});
    manifests::node_pool(name, &node_class, &json!([requirement])).to_string()
}

#[test]
fn bad_pods_have_no_place_and_say_why() {
    check(
        &pod("resources: {requests: {cpu: -3}}"),
        3,
        "problem: standard input, document 1: Pod default/bad: spec.containers[0].resources.requests[cpu]: quantity \"-3\" is negative",
    );
    check(
        &pod("resources: {requests: {memory: 9999999999999999999Ei}}"),
        3,
        "problem: standard input, document 1: Pod default/bad: spec.containers[0].resources.requests[memory]: quantity \"9999999999999999999Ei\" exceeds 2^63-1",
    );
    let ran = plan(&pod("resources: {limits: {cpu: lots}}"));
    let refused = &ran.json()["unschedulable"][0];
    assert_eq!(refused["pod"], "default/bad");
    assert_eq!(refused["reasons"][0]["code"], "InvalidObject");
    assert_eq!(refused["reasons"][0]["object"], "pod/bad");
}

#[test]
fn broken_documents_are_faults_and_files_of_values_are_not() {
    check("a: [1", 1, "problem: standard input, document 1: unclosed bracket '[' at line 1, column 4");
    check(
        "replicas: 3",
        0,
        "note: standard input, document 1: is not a Kubernetes object: it has no kind; it was left out",
    );
}

#[test]
fn an_object_of_five_megabytes_is_named() {
    let big =
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: big}}, data: {{x: {}}}}}", "y".repeat(5 << 20));
    check(&big, 1, "problem: standard input, document 1: ConfigMap big is larger than 3145728 bytes");
}

#[test]
fn alias_bombs_and_deep_nesting_end_after_bounded_work() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..20 {
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(","));
    }
    for hostile in [bomb, "[".repeat(100_000), "{a: ".repeat(10_000), format!("{}x", "- ".repeat(50_000))] {
        let ran = plan(&hostile);
        assert_eq!(ran.code, 1);
        assert_eq!(
            ran.stderr.lines().filter(|line| line.starts_with("problem: standard input, document 1: ")).count(),
            1
        );
    }
}

#[test]
fn json_that_nests_too_deep_is_refused_and_its_neighbour_read() {
    let scratch = Scratch::new();
    scratch.write("deep.json", &format!("{{\"a\":{}1{}}}", "[".repeat(50_000), "]".repeat(50_000)));
    scratch.write("fine.json", &manifests::pod("fine").to_string());
    let ran = scratch.run(&["plan", "-f", ".", "-o", "json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("problem: ./deep.json, document 1: "), "{}", ran.stderr);
    assert_eq!(ran.json()["nodeClaims"][0]["pods"], json!(["default/fine"]));
}

#[test]
fn a_bad_node_pool_is_a_fault_and_the_other_is_planned_with() {
    let pool = |name: &str, operator: &str| {
        node_pool(name, &json!({"key": "kubernetes.io/os", "operator": operator, "values": ["linux"]}))
    };
    let ran = plan(&format!("{}\n---\n{}", pool("bad", "Near"), pool("good", "In")));
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.starts_with(
        "problem: standard input, document 1: NodePool bad: spec.template.spec.requirements[0].operator: Unsupported value: \"Near\""
    ));
    assert_eq!(ran.json()["nodeClaims"][0]["nodePool"], "good");
}

#[test]
fn a_node_pool_that_the_controller_would_refuse_is_refused_and_nothing_stands_in_for_it() {
    let pool = |name: &str, key: &str| node_pool(name, &json!({"key": key, "operator": "Exists"}));
    let (bad, good) = (pool("bad", "karpenter.kwok.sh/own"), pool("good", "karpenter.kwok.sh/instance-family"));
    let alone = Scratch::new().run_with_input(&["plan", "-f", "-", "-o", "json"], &format!("{bad}{}", fine()));
    let field = "spec.template.spec.requirements[0]: key \"karpenter.kwok.sh/own\" is restricted";
    assert_eq!(alone.code, 1, "{alone:?}");
    assert!(
        alone.stderr.starts_with(&format!("problem: standard input, document 1: NodePool bad: {field}")),
        "{alone:?}"
    );
    assert!(!alone.stderr.contains("built-in"), "{alone:?}");
    let printed = alone.json();
    assert_eq!(printed["nodeClaims"], json!([]));
    let reason = &printed["unschedulable"][0]["reasons"][0];
    assert_eq!((&reason["code"], &reason["object"]), (&json!("NodePoolNotUsable"), &json!("nodepool/bad")));
    assert!(reason["message"].as_str().unwrap().starts_with(&format!("is refused: {field}")), "{reason}");

    let beside = plan(&format!("{bad}\n---\n{good}"));
    assert_eq!((beside.code, &beside.json()["nodeClaims"][0]["nodePool"]), (1, &json!("good")), "{beside:?}");
}

#[test]
fn a_catalogue_that_does_not_parse_is_a_fault_that_names_file_entry_and_field() {
    let scratch = Scratch::new();
    scratch.write("pod.yaml", &fine());
    scratch.write("types.json", "[{\"name\": \"x\", \"resources\": {\"cpu\": \"-1\"}, \"offerings\": []}]");
    let ran = scratch.run(&["plan", "-f", "pod.yaml", "--instance-types", "types.json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.starts_with("error: cannot read the instance types in types.json\n  because "),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_instance_type_that_makes_no_sense_is_named_and_the_others_are_planned_with() {
    let scratch = Scratch::new();
    scratch.write("pod.yaml", &fine());
    let offerings = json!([{"Price": 0.1, "Requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]}]}]);
    let entry = |name: &str, memory: &str| {
        json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
            "resources": {"cpu": "64", "memory": memory}, "offerings": offerings})
    };
    scratch.write("types.json", &json!([entry("absurd", "-1Gi"), entry("fine", "512Gi")]).to_string());
    let ran = scratch.run(&["plan", "-f", "pod.yaml", "--instance-types", "types.json", "-o", "json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let problem = "problem: instance types: entry 0 (\"absurd\"): resources: memory: -1Gi is negative\n";
    assert!(ran.stderr.starts_with(problem), "{}", ran.stderr);
    assert_eq!(ran.json()["nodeClaims"][0]["launch"]["instanceType"], json!("fine"));
}

#[test]
fn text_that_is_not_utf_8_is_a_fault() {
    let scratch = Scratch::new();
    scratch.write("fine.yaml", &fine());
    let ran = scratch.run(&["plan", "-f", "fine.yaml", "-f", env!("CARGO_BIN_EXE_dovetail")]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("it is not UTF-8 text"), "{}", ran.stderr);
}
