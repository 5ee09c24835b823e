use super::*;

fn selector(
    match_labels: &[(&str, &str)],
    expressions: &[(&str, Operator, &[&str])],
    interner: &mut Interner,
) -> Result<LabelSelector, ExpressionError> {
    let owned: Vec<(&str, Operator, Vec<String>)> = expressions
        .iter()
        .map(|(key, operator, values)| (*key, *operator, values.iter().map(|value| (*value).to_owned()).collect()))
        .collect();
    let expressions = owned.iter().map(|(key, operator, values)| (*key, *operator, values.as_slice()));
    LabelSelector::new(match_labels.iter().copied(), expressions, interner)
}

#[test]
fn an_absent_selector_selects_nothing_and_an_empty_one_everything() {
    let mut interner = Interner::new();
    let labels = Labels::intern([("app", "web")], &mut interner);
    assert!(!LabelSelector::default().matches(&labels, &interner));
    let empty = selector(&[], &[], &mut interner).unwrap();
    assert_eq!(empty, LabelSelector::EVERYTHING);
    assert!(empty.matches(&labels, &interner));
    assert!(empty.matches(&Labels::new(), &interner));
    let said = |selector: &LabelSelector| selector.display("pods", &interner).to_string();
    assert_eq!((said(&LabelSelector::Nothing), said(&empty)), ("no pods".to_owned(), "all pods".to_owned()));
}

#[test]
fn labels_and_expressions_must_all_hold() {
    let mut interner = Interner::new();
    let expressions: [(&str, Operator, &[&str]); 4] = [
        ("tier", Operator::In, &["a", "b"]),
        ("env", Operator::NotIn, &["test"]),
        ("team", Operator::Exists, &[]),
        ("old", Operator::DoesNotExist, &[]),
    ];
    let selector = selector(&[("app", "web")], &expressions, &mut interner).unwrap();
    let cases: [(&[(&str, &str)], bool); 7] = [
        (&[("app", "web"), ("tier", "a"), ("team", "")], true),
        (&[("app", "web"), ("tier", "b"), ("team", "x"), ("env", "prod")], true),
        (&[("app", "db"), ("tier", "a"), ("team", "x")], false),
        (&[("app", "web"), ("tier", "c"), ("team", "x")], false),
        (&[("app", "web"), ("tier", "a"), ("team", "x"), ("env", "test")], false),
        (&[("app", "web"), ("tier", "a")], false),
        (&[("app", "web"), ("tier", "a"), ("team", "x"), ("old", "y")], false),
    ];
    for (labels, expected) in cases {
        let interned = Labels::intern(labels.iter().copied(), &mut interner);
        assert_eq!(selector.matches(&interned, &interner), expected, "{labels:?}");
    }
}

#[test]
fn contradicting_expressions_on_one_key_match_nothing() {
    let mut interner = Interner::new();
    let selector = selector(&[("app", "web")], &[("app", Operator::NotIn, &["web"])], &mut interner).unwrap();
    for value in ["web", "db"] {
        let labels = Labels::intern([("app", value)], &mut interner);
        assert!(!selector.matches(&labels, &interner));
    }
}

#[test]
fn operators_of_node_affinity_are_refused() {
    let mut interner = Interner::new();
    let error = selector(&[], &[("n", Operator::Gt, &["1"])], &mut interner).unwrap_err();
    assert_eq!(error.to_string(), "key \"n\": unknown operator \"Gt\"");
    let error = selector(&[], &[("n", Operator::In, &[])], &mut interner).unwrap_err();
    assert_eq!(error.to_string(), "key \"n\": operator In needs at least one value");
}

#[test]
fn match_label_keys_narrow_a_selector_that_is_present() {
    let mut interner = Interner::new();
    let (hash, one) = (interner.key("pod-template-hash"), interner.value("1"));
    let mut narrowed = LabelSelector::EVERYTHING;
    narrowed.and_label(hash, one, &interner);
    let labels = |value: &str, interner: &mut Interner| Labels::intern([("pod-template-hash", value)], interner);
    let (same, other) = (labels("1", &mut interner), labels("2", &mut interner));
    assert!(narrowed.matches(&same, &interner));
    assert!(!narrowed.matches(&other, &interner));
    let mut nothing = LabelSelector::Nothing;
    nothing.and_label(hash, one, &interner);
    assert_eq!(nothing, LabelSelector::Nothing);
}
