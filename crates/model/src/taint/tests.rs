use super::*;

fn taint(text: (&str, &str, TaintEffect), interner: &mut Interner) -> Taint {
    Taint { key: interner.key(text.0), value: interner.value(text.1), effect: text.2 }
}

fn toleration(key: &str, operator: TolerationOperator, value: &str, interner: &mut Interner) -> Toleration {
    Toleration {
        key: (!key.is_empty()).then(|| interner.key(key)),
        operator,
        value: interner.value(value),
        effect: None,
        toleration_seconds: None,
    }
}

#[test]
fn key_value_and_effect_decide() {
    use TaintEffect::*;
    use TolerationOperator::*;
    let mut interner = Interner::new();
    let gpu = taint(("gpu", "a100", NoSchedule), &mut interner);
    let cases = [
        ("gpu", Equal, "a100", None, true),
        ("gpu", Equal, "a100", Some(NoSchedule), true),
        ("gpu", Equal, "a100", Some(NoExecute), false),
        ("gpu", Equal, "h100", None, false),
        ("gpu", Equal, "", None, false),
        ("gpu", Exists, "", None, true),
        ("gpu", Exists, "ignored", Some(NoSchedule), true),
        ("cpu", Exists, "", None, false),
        ("", Exists, "", None, true),
        ("", Exists, "", Some(NoExecute), false),
        ("", Equal, "a100", None, true),
        ("", Equal, "", None, false),
    ];
    for (key, operator, value, effect, expected) in cases {
        let toleration = Toleration { effect, ..toleration(key, operator, value, &mut interner) };
        assert_eq!(toleration.tolerates(&gpu, &interner), expected, "{key} {operator} {value} {effect:?}");
    }
    assert!(Toleration::EVERYTHING.tolerates(&gpu, &interner));
}

/// The pairs that `ToleratesTaint` of `k8s.io/api` 0.36.3 accepts are those of integers in canonical form.
#[test]
fn comparisons_take_canonical_integers_only() {
    let mut interner = Interner::new();
    let canonical = ["-9223372036854775808", "-5", "0", "5", "7", "9223372036854775807"];
    let others = ["", "+5", "05", "-0", "-05", "abc", "5.0", " 5", "-", "9223372036854775808"];
    let all: Vec<&str> = canonical.into_iter().chain(others).collect();
    for of_taint in &all {
        for of_toleration in &all {
            let taint = taint(("n", of_taint, TaintEffect::NoSchedule), &mut interner);
            let rank = |value: &&str| canonical.iter().position(|canonical| canonical == value);
            let ranks = rank(of_taint).zip(rank(of_toleration));
            let expected = [
                (TolerationOperator::Lt, ranks.is_some_and(|(taint, toleration)| taint < toleration)),
                (TolerationOperator::Gt, ranks.is_some_and(|(taint, toleration)| taint > toleration)),
            ];
            for (operator, expected) in expected {
                let toleration = toleration("n", operator, of_toleration, &mut interner);
                assert_eq!(toleration.tolerates(&taint, &interner), expected, "{of_taint} {operator} {of_toleration}");
            }
        }
    }
}

#[test]
fn only_hard_taints_keep_a_pod_away() {
    use TaintEffect::*;
    let mut interner = Interner::new();
    let taints = [
        taint(("soft", "", PreferNoSchedule), &mut interner),
        taint(("a", "1", NoSchedule), &mut interner),
        taint(("b", "", NoExecute), &mut interner),
    ];
    let tolerate_a = toleration("a", TolerationOperator::Exists, "", &mut interner);
    let tolerate_b = toleration("b", TolerationOperator::Exists, "", &mut interner);
    assert_eq!(first_untolerated(&taints, &[], &interner), Some(&taints[1]));
    assert_eq!(first_untolerated(&taints, &[tolerate_a], &interner), Some(&taints[2]));
    assert_eq!(first_untolerated(&taints, &[tolerate_b, tolerate_a], &interner), None);
}

#[test]
fn printed_like_kubectl_does() {
    let mut interner = Interner::new();
    let with_value = taint(("gpu", "a100", TaintEffect::NoSchedule), &mut interner);
    let without = taint(("gpu", "", TaintEffect::NoExecute), &mut interner);
    assert_eq!(with_value.display(&interner).to_string(), "gpu=a100:NoSchedule");
    assert_eq!(without.display(&interner).to_string(), "gpu:NoExecute");
}

#[test]
fn names_read_back_as_printed_and_others_are_errors() {
    use TolerationOperator::*;
    for effect in [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute] {
        assert_eq!(effect.to_string().parse(), Ok(effect));
    }
    for operator in [Equal, Exists, Lt, Gt] {
        assert_eq!(operator.to_string().parse(), Ok(operator));
    }
    assert_eq!("".parse(), Ok(Equal));
    assert_eq!("noSchedule".parse::<TaintEffect>().unwrap_err().to_string(), "unknown taint effect \"noSchedule\"");
    assert_eq!("Gte".parse::<TolerationOperator>().unwrap_err().to_string(), "unknown toleration operator \"Gte\"");
}
