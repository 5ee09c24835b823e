//! The algebra against brute force: a set is the list of those elements of a small universe that it holds.
//!
//! The universe has a witness for everything a set can be told apart by: integers 0 to 6 and `i64::MAX`, each in a
//! spelling that expressions mention and in one that they never do; words of both kinds; absence.

use std::fmt::Write;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::idset::IdSet;
use crate::intern::{Interner, KeyId, ValueId};
use crate::labels::Labels;

const MENTIONED: [&str; 10] = ["0", "1", "2", "3", "4", "5", "9223372036854775807", "a", "b", ""];
const NEVER_MENTIONED: [&str; 10] = ["00", "01", "02", "03", "04", "05", "06", "09223372036854775807", "zz", "7e2"];
const BOUNDS: [&str; 8] = ["0", "1", "2", "3", "4", "5", "04", "9223372036854775807"];

fn universe() -> Vec<Option<&'static str>> {
    MENTIONED.into_iter().chain(NEVER_MENTIONED).map(Some).chain([None]).collect()
}

/// Two interners that hold the universe in different orders.
fn interner() -> Interner {
    let mut interner = Interner::new();
    for value in universe().into_iter().flatten() {
        interner.value(value);
    }
    interner
}

fn interner_filled_backwards() -> Interner {
    let mut interner = Interner::new();
    for value in universe().into_iter().flatten().rev() {
        interner.value(value);
    }
    interner
}

type TextExpression = (Operator, Vec<&'static str>);

fn any_expression() -> impl Strategy<Value = TextExpression> {
    let listed = (select(vec![Operator::In, Operator::NotIn]), subsequence(MENTIONED.to_vec(), 1..=MENTIONED.len()));
    let compared = (
        select(vec![Operator::Gt, Operator::Lt, Operator::Gte, Operator::Lte]),
        select(BOUNDS.to_vec()).prop_map(|bound| vec![bound]),
    );
    let existence = select(vec![Operator::Exists, Operator::DoesNotExist]).prop_map(|operator| (operator, vec![]));
    prop_oneof![listed, compared, existence]
}

fn any_expressions() -> impl Strategy<Value = Vec<TextExpression>> {
    prop::collection::vec(any_expression(), 0..4)
}

/// Kubernetes' meaning of one expression, spelled out on text.
fn holds((operator, values): &TextExpression, element: Option<&str>) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = |ordering: fn(i64, i64) -> bool| {
        element.and_then(number).is_some_and(|int| ordering(int, number(values[0]).unwrap()))
    };
    match operator {
        Operator::In => element.is_some_and(|element| values.contains(&element)),
        Operator::NotIn => element.is_none_or(|element| !values.contains(&element)),
        Operator::Exists => element.is_some(),
        Operator::DoesNotExist => element.is_none(),
        Operator::Gt => compared(|int, bound| int > bound),
        Operator::Lt => compared(|int, bound| int < bound),
        Operator::Gte => compared(|int, bound| int >= bound),
        Operator::Lte => compared(|int, bound| int <= bound),
    }
}

/// The elements that all expressions hold for.
fn brute(expressions: &[TextExpression]) -> Vec<bool> {
    universe().into_iter().map(|element| expressions.iter().all(|expression| holds(expression, element))).collect()
}

fn set((operator, values): &TextExpression, interner: &Interner) -> ValueSet {
    let values: Vec<ValueId> = values.iter().map(|value| interner.find_value(value).unwrap()).collect();
    ValueSet::of(*operator, &values, interner).unwrap()
}

fn conjunction(expressions: &[TextExpression], interner: &Interner) -> ValueSet {
    expressions.iter().fold(ValueSet::any(), |all, expression| all.intersect(&set(expression, interner), interner))
}

fn elements(set: &ValueSet, interner: &Interner) -> Vec<bool> {
    let value = |element: Option<&str>| element.map(|element| interner.find_value(element).unwrap());
    universe().into_iter().map(|element| set.contains(value(element), interner)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_conjunction_holds_what_every_expression_holds(expressions in any_expressions()) {
        let interner = interner();
        let set = conjunction(&expressions, &interner);
        prop_assert_eq!(elements(&set, &interner), brute(&expressions));
        prop_assert_eq!(set.is_empty(), !brute(&expressions).contains(&true));
        prop_assert_eq!(set.is_any(), !brute(&expressions).contains(&false));
        prop_assert_eq!(set.allows_absent(), *brute(&expressions).last().unwrap());
    }

    #[test]
    fn intersecting_subset_and_equality_agree_with_brute_force(a in any_expressions(), b in any_expressions()) {
        let interner = interner();
        let (set_a, set_b) = (conjunction(&a, &interner), conjunction(&b, &interner));
        let (brute_a, brute_b) = (brute(&a), brute(&b));
        let both: Vec<bool> = brute_a.iter().zip(&brute_b).map(|(a, b)| *a && *b).collect();

        let intersection = set_a.intersect(&set_b, &interner);
        prop_assert_eq!(&elements(&intersection, &interner), &both);
        prop_assert_eq!(&intersection, &set_b.intersect(&set_a, &interner));
        prop_assert_eq!(set_a.intersects(&set_b, &interner), both.contains(&true));
        prop_assert_eq!(set_b.intersects(&set_a, &interner), both.contains(&true));
        prop_assert_eq!(set_a.is_subset(&set_b, &interner), both == brute_a);
        // Equal sets are equal representations, whatever they were built from.
        prop_assert_eq!(set_a == set_b, brute_a == brute_b);
    }

    #[test]
    fn written_expressions_stand_for_the_same_set(expressions in any_expressions()) {
        let interner = interner();
        let set = conjunction(&expressions, &interner);
        let back = set
            .to_expressions()
            .iter()
            .fold(ValueSet::any(), |all, expression| all.intersect(&expression.to_set(), &interner));
        prop_assert_eq!(back, set);
    }

    #[test]
    fn written_expressions_are_read_back_from_text(expressions in any_expressions()) {
        let mut interner = interner();
        let set = conjunction(&expressions, &interner);
        let mut back = Requirement::new(interner.key("key"), ValueSet::any());
        for expression in set.to_expressions() {
            let values = expression.values(&interner);
            let values = values.iter().map(String::as_str);
            let read = Requirement::parse("key", expression.operator(), values, &mut interner).unwrap();
            back.values = back.values.intersect(&read.values, &interner);
        }
        prop_assert_eq!(back.values, set);
    }

    #[test]
    fn a_chosen_value_is_in_the_set_and_does_not_depend_on_ids(expressions in any_expressions()) {
        let mut interner = interner();
        let set = conjunction(&expressions, &interner);
        let chosen = set.any_value(&interner);
        prop_assert_eq!(chosen.is_none(), set.has_no_value());
        let other = interner_filled_backwards();
        prop_assert_eq!(&chosen, &conjunction(&expressions, &other).any_value(&other));
        if let Some(chosen) = chosen {
            let chosen = interner.value(&chosen);
            prop_assert!(set.contains(Some(chosen), &interner));
        }
    }

    #[test]
    fn printed_forms_do_not_depend_on_ids(a in any_expressions(), b in any_expressions()) {
        let print = |mut interner: Interner, keys: [&str; 2]| {
            for key in keys {
                interner.key(key);
            }
            let mut requirements = Requirements::new();
            for (key, expressions) in [("a", &a), ("b", &b)] {
                let values = conjunction(expressions, &interner);
                requirements.insert_intersect(Requirement::new(interner.key(key), values), &interner);
            }
            requirements.display(&interner).to_string()
        };
        prop_assert_eq!(print(interner(), ["a", "b"]), print(interner_filled_backwards(), ["b", "a"]));
    }

    #[test]
    fn requirements_agree_with_brute_force_on_each_key(
        mine in prop::collection::vec((0..3usize, any_expression()), 0..5),
        theirs in prop::collection::vec((0..3usize, any_expression()), 0..5),
        labels in prop::collection::vec(prop::option::of(select(MENTIONED.to_vec())), 3),
    ) {
        let mut interner = interner();
        let keys: Vec<KeyId> = ["c", "a", "b"].iter().map(|key| interner.key(key)).collect();
        let build = |list: &[(usize, TextExpression)]| {
            let requirements =
                list.iter().map(|(key, expression)| Requirement::new(keys[*key], set(expression, &interner)));
            Requirements::from_requirements(requirements, &interner)
        };
        let brute_of = |list: &[(usize, TextExpression)], key: usize| {
            let expressions: Vec<_> = list.iter().filter(|(of, _)| *of == key).map(|(_, e)| e.clone()).collect();
            brute(&expressions)
        };
        let first_by_name = |fails: &dyn Fn(usize) -> bool| [1, 2, 0].into_iter().find(|&key| fails(key)).map(|key| keys[key]);
        let (ours, others) = (build(&mine), build(&theirs));

        // Labels of one object.
        let object: Labels = (0..3)
            .filter_map(|key| Some((keys[key], interner.find_value(labels[key]?).unwrap())))
            .collect();
        let mismatch = first_by_name(&|key| {
            !mine.iter().filter(|(of, _)| *of == key).all(|(_, expression)| holds(expression, labels[key]))
        });
        prop_assert_eq!(ours.first_mismatch(&object, &interner), mismatch);
        prop_assert_eq!(ours.matches_labels(&object, &interner), mismatch.is_none());

        // Two conjunctions.
        let constrained = |list: &[(usize, TextExpression)], key| list.iter().any(|(of, _)| *of == key);
        let disjoint = |key| !brute_of(&mine, key).iter().zip(brute_of(&theirs, key)).any(|(a, b)| *a && b);
        let conflict = first_by_name(&|key| constrained(&mine, key) && constrained(&theirs, key) && disjoint(key));
        prop_assert_eq!(ours.intersects(&others, &interner).err(), conflict);
        prop_assert_eq!(others.intersects(&ours, &interner).err(), conflict);

        let mut both = ours.clone();
        both.intersect(&others, &interner);
        prop_assert_eq!(both.first_empty(&interner), first_by_name(&|key| disjoint(key)));
        prop_assert!(both.is_subset(&ours, &interner) && both.is_subset(&others, &interner));
        let impossible = (0..3).any(|key| !brute_of(&mine, key).contains(&true));
        let within = (0..3).all(|key| brute_of(&mine, key).iter().zip(brute_of(&theirs, key)).all(|(a, b)| !*a || b));
        prop_assert_eq!(ours.is_subset(&others, &interner), impossible || within);

        // Nothing is allowed undefined: a key of theirs that we do not mention must be able to be absent.
        let undefined = first_by_name(&|key| {
            constrained(&theirs, key) && !constrained(&mine, key) && !brute_of(&theirs, key).last().unwrap()
        });
        let expected = match (undefined, conflict) {
            (Some(key), _) => Err(Incompatible { key, kind: IncompatibleKind::Undefined }),
            (None, Some(key)) => Err(Incompatible { key, kind: IncompatibleKind::NoCommonValue }),
            (None, None) => Ok(()),
        };
        prop_assert_eq!(ours.compatible(&others, &IdSet::new(), &interner), expected);
        let well_known: IdSet<KeyId> = keys.iter().copied().collect();
        let expected = conflict.map_or(Ok(()), |key| Err(Incompatible { key, kind: IncompatibleKind::NoCommonValue }));
        prop_assert_eq!(ours.compatible(&others, &well_known, &interner), expected);
    }
}

/// Expressions as key, operator and values.
type List<'a> = &'a [(&'a str, Operator, &'a [&'a str])];

fn requirements(list: List, interner: &mut Interner) -> Requirements {
    let mut requirements = Requirements::new();
    for (key, operator, values) in list {
        let requirement = Requirement::parse(key, *operator, values.iter().copied(), interner).unwrap();
        requirements.insert_intersect(requirement, interner);
    }
    requirements
}

#[test]
fn printed_in_karpenters_style_sorted_by_name() {
    use Operator::*;
    let mut interner = Interner::new();
    let cases: [(List, &str); 9] = [
        (
            &[("karpenter.sh/nodepool", In, &["web"]), ("karpenter.sh/capacity-type", In, &["spot", "on-demand"])],
            "karpenter.sh/capacity-type In [on-demand spot], karpenter.sh/nodepool In [web]",
        ),
        (&[("zone", NotIn, &["b", "a"])], "zone NotIn [a b]"),
        (&[("team", Exists, &[])], "team Exists"),
        (&[("team", DoesNotExist, &[])], "team DoesNotExist"),
        (&[("cpu", Gt, &["3"]), ("cpu", Lt, &["9"])], "cpu >=4 <=8"),
        (&[("cpu", Gt, &["3"]), ("cpu", NotIn, &["5", "1"])], "cpu >=4 NotIn [5]"),
        (&[("team", Exists, &[]), ("team", NotIn, &["x"])], "team Exists NotIn [x]"),
        (&[("team", In, &["a"]), ("team", In, &["b"])], "team In []"),
        (&[("n", In, &["1", "2", "3", "4", "5", "6", "7"])], "n In [1 2 3 4 5 and 2 others]"),
    ];
    for (list, expected) in cases {
        assert_eq!(requirements(list, &mut interner).display(&interner).to_string(), expected);
    }
}

#[test]
fn min_values_is_the_greater_of_both_and_printed() {
    let mut interner = Interner::new();
    let mut all = Requirements::new();
    for min_values in [None, Some(2), Some(5), Some(3)] {
        let mut requirement = Requirement::parse("family", Operator::Exists, [], &mut interner).unwrap();
        requirement.min_values = min_values;
        all.insert_intersect(requirement, &interner);
    }
    assert_eq!(all.display(&interner).to_string(), "family Exists minValues 5");
}

#[test]
fn wrong_expressions_name_key_operator_and_reason() {
    let mut interner = Interner::new();
    let cases: [(Operator, &[&str], &str); 9] = [
        (Operator::In, &[], "key \"cpu\": operator In needs at least one value"),
        (Operator::NotIn, &[], "key \"cpu\": operator NotIn needs at least one value"),
        (Operator::Exists, &["a"], "key \"cpu\": operator Exists takes no value, got 1"),
        (Operator::DoesNotExist, &["a", "b"], "key \"cpu\": operator DoesNotExist takes no value, got 2"),
        (Operator::Gt, &[], "key \"cpu\": operator Gt needs exactly one value, got 0"),
        (Operator::Lt, &["1", "2"], "key \"cpu\": operator Lt needs exactly one value, got 2"),
        (Operator::Gte, &["a"], "key \"cpu\": operator Gte needs a non-negative integer, got \"a\""),
        (Operator::Lte, &["-1"], "key \"cpu\": operator Lte needs a non-negative integer, got \"-1\""),
        (
            Operator::Gt,
            &["9223372036854775808"],
            "key \"cpu\": operator Gt needs a non-negative integer, got \"9223372036854775808\"",
        ),
    ];
    for (operator, values, expected) in cases {
        let error = Requirement::parse("cpu", operator, values.iter().copied(), &mut interner).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!("in".parse::<Operator>().unwrap_err().to_string(), "unknown operator \"in\"");
}

#[test]
fn operators_read_back_as_printed() {
    use Operator::*;
    for operator in [In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte] {
        assert_eq!(operator.to_string().parse(), Ok(operator));
    }
}

#[test]
fn incompatibilities_are_told_in_karpenters_words() {
    use Operator::*;
    let well_known = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/arch"];
    let cases: [(List, List, &str); 8] = [
        (&[], &[("kubernetes.io/arch", In, &["arm64"])], ""),
        (&[], &[("team", NotIn, &["a"]), ("zone2", DoesNotExist, &[])], ""),
        (&[], &[("team", In, &["a"])], "label \"team\" does not have known values"),
        (
            &[],
            &[("zone", In, &["a"])],
            "label \"zone\" does not have known values (typo of \"topology.kubernetes.io/zone\"?)",
        ),
        (
            &[],
            &[("toplogy.kubernetes.io/regin", Exists, &[])],
            "label \"toplogy.kubernetes.io/regin\" does not have known values (typo of \"topology.kubernetes.io/region\"?)",
        ),
        (
            &[("example.com/team", In, &["a"])],
            &[("team", In, &["a"])],
            "label \"team\" does not have known values (typo of \"example.com/team\"?)",
        ),
        (&[("team", In, &["a"])], &[("team", In, &["b"])], "key team, team In [b] not in team In [a]"),
        (&[("team", Exists, &[])], &[("team", DoesNotExist, &[])], "key team, team DoesNotExist not in team Exists"),
    ];
    for (ours, theirs, expected) in cases {
        let mut interner = Interner::new();
        let allowed: IdSet<KeyId> = well_known.iter().map(|key| interner.key(key)).collect();
        let (ours, theirs) = (requirements(ours, &mut interner), requirements(theirs, &mut interner));
        let mut told = String::new();
        if let Err(incompatible) = ours.compatible(&theirs, &allowed, &interner) {
            write!(told, "{}", incompatible.display(&ours, &theirs, &allowed, &interner)).unwrap();
        }
        assert_eq!(told, expected);
    }
}

#[test]
fn a_value_is_found_even_if_every_plain_spelling_is_excluded() {
    let mut interner = Interner::new();
    let list: [(&str, Operator, &[&str]); 3] =
        [("n", Operator::Gte, &["3"]), ("n", Operator::Lte, &["4"]), ("n", Operator::NotIn, &["3", "4", "03"])];
    let values = requirements(&list, &mut interner).iter().next().unwrap().values.clone();
    assert_eq!(values.any_value(&interner).as_deref(), Some("04"));
}

#[test]
fn labels_become_requirements_that_only_they_satisfy() {
    let mut interner = Interner::new();
    let labels = Labels::intern([("a", "1"), ("b", "2")], &mut interner);
    let requirements = Requirements::from_labels(&labels);
    assert!(requirements.matches_labels(&labels, &interner));
    let other = Labels::intern([("a", "1")], &mut interner);
    assert_eq!(requirements.first_mismatch(&other, &interner), interner.find_key("b"));
    assert_eq!(requirements.display(&interner).to_string(), "a In [1], b In [2]");
}

#[test]
fn replaced_and_removed_requirements_leave_no_trace() {
    let mut interner = Interner::new();
    let mut all = requirements(&[("a", Operator::In, &["1"]), ("b", Operator::Exists, &[])], &mut interner);
    let a = interner.key("a");
    all.replace(Requirement::new(a, ValueSet::only_absent()));
    assert_eq!(all.display(&interner).to_string(), "a DoesNotExist, b Exists");
    assert!(all.remove(a).is_some());
    assert!(all.remove(a).is_none());
    assert_eq!(all, requirements(&[("b", Operator::Exists, &[])], &mut interner));
}
