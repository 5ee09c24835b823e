use super::*;

/// One line per object (`kind ns/name @document`) and per error.
fn summary(text: &str) -> String {
    let parsed = parse("in.yaml", text);
    let mut lines: Vec<_> =
        parsed.manifests.iter().map(|m| format!("{} @{}", m.object_ref(), m.origin.document)).collect();
    lines.extend(parsed.errors.iter().map(ToString::to_string));
    lines.join("\n")
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(summary(text), expected, "for {text}");
}

#[test]
fn documents_are_cut_at_separator_lines_only() {
    check(
        "# a comment\n---\nkind: A\napiVersion: v1\nmetadata: {name: a}\n---\n---\n# nothing\n--- # note\nkind: B\napiVersion: v1\ndata: |\n  ---\n  x\nmetadata: {name: b}\n...\n",
        "A a @1\nB b @2",
    );
}

#[test]
fn a_broken_document_does_not_stop_its_neighbours() {
    let parsed =
        parse("in.yaml", "kind: A\napiVersion: v1\n---\na: [1\n---\n{{ .Values.x }}\n---\nkind: B\napiVersion: v1\n");
    let kinds: Vec<_> = parsed.manifests.iter().map(|manifest| manifest.kind.as_str()).collect();
    assert_eq!(kinds, ["A", "B"]);
    let documents: Vec<_> = parsed.errors.iter().map(|error| error.origin.document).collect();
    assert_eq!(documents, [2, 3]);
    assert!(parsed.errors.iter().all(|error| matches!(error.reason, DocumentReason::Syntax(_))));
}

#[test]
fn lists_are_flattened_and_typed_lists_lend_their_kind() {
    check(
        "{kind: List, apiVersion: v1, items: [{kind: Pod, apiVersion: v1, metadata: {name: a, namespace: ns}}, {kind: PodList, apiVersion: v1, items: [{metadata: {name: b}}]}]}",
        "Pod ns/a @1\nPod b @1",
    );
}

#[test]
fn json_lines_report_each_broken_line() {
    check(
        "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"}}\n\n{\"kind\":\n{\"kind\":\"Node\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"b\"}}\n",
        "Pod a @1\nNode b @4\nin.yaml, document 3: EOF while parsing a value at line 1 column 8",
    );
}

#[test]
fn indented_json_is_one_document() {
    check("{\n  \"kind\": \"Pod\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\"name\": \"a\"}\n}\n", "Pod a @1");
}

#[test]
fn what_is_no_object_is_named_as_such() {
    check("replicas: 3\nimage: x", "in.yaml, document 1: is not a Kubernetes object: it has no kind");
    check("just text", "in.yaml, document 1: is not a Kubernetes object: it is not a map");
    check("kind: Pod", "in.yaml, document 1: is not a Kubernetes object: it has no apiVersion");
}

#[test]
fn an_alias_bomb_is_an_error_and_the_next_document_is_read() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![alias; 10].join(","));
    }
    let parsed = parse("in.yaml", &format!("{bomb}---\nkind: Pod\napiVersion: v1\n"));
    assert_eq!(parsed.manifests.len(), 1);
    assert!(matches!(&parsed.errors[..], [DocumentError { reason: DocumentReason::Syntax(_), .. }]));
}

#[test]
fn deep_nesting_is_an_error_in_yaml_and_in_json() {
    let json = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let yaml: String = (0..300).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    for text in [json, yaml, format!("{}x", "- ".repeat(20_000))] {
        let parsed = parse("in.yaml", &format!("{text}\n---\nkind: Pod\napiVersion: v1\n"));
        assert_eq!((parsed.manifests.len(), parsed.errors.len()), (1, 1));
    }
}

#[test]
fn an_object_of_five_megabytes_is_refused_by_name() {
    let text = format!(
        "kind: ConfigMap\napiVersion: v1\nmetadata: {{name: big, namespace: ns}}\ndata: {{x: {}}}\n",
        "y".repeat(5_000_000)
    );
    check(&text, "in.yaml, document 1: ConfigMap ns/big is larger than 3145728 bytes");
}

#[test]
fn of_a_key_given_twice_the_last_counts() {
    check("kind: Pod\napiVersion: v1\nkind: Node\n", "Node without a name @1");
}

#[test]
fn yaml_eleven_scalars_read_as_kubernetes_tools_read_them() {
    let parsed = parse(
        "in.yaml",
        "kind: Pod\napiVersion: v1\na: yes\nb: 0644\nc: '0644'\nd: 1.5\ne: 12e6\nf: 2026-01-01\ng: ~\n<<: {h: 1}\n",
    );
    let object = &parsed.manifests[0].object;
    let expected = serde_json::json!({"kind": "Pod", "apiVersion": "v1", "a": true, "b": 420, "c": "0644", "d": 1.5, "e": 12_000_000, "f": "2026-01-01", "g": null, "h": 1});
    assert_eq!(object, &expected);
}
