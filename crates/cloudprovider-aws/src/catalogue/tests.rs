use super::*;

#[test]
fn every_built_in_type_is_read_and_sold_somewhere() {
    let types = instance_types();
    assert!(types.len() > 1300, "{}", types.len());
    let unsold: Vec<_> =
        types.keys().filter(|name| regions().all(|region| zones_of(name, region).is_empty())).collect();
    assert_eq!(unsold, Vec::<&String>::new());
    assert!(types.values().all(|info| info.architecture().is_some()));
}

#[test]
fn zones_are_those_that_sell_the_type() {
    assert_eq!(zones_of("m5.large", "us-west-1"), ["us-west-1a", "us-west-1b"]);
    assert_eq!(zones_of("hpc6a.48xlarge", "us-east-1"), [] as [&str; 0]);
    assert_eq!(zones_of("m5.large", "mars-north-1"), [] as [&str; 0]);
    assert!(regions().any(|region| region == "eu-central-1"));
}

#[test]
fn runs_of_network_cards_are_counted_from_zero() {
    let info = &instance_types()["p6-b300.48xlarge"];
    let cards = &info.network_info.network_cards;
    assert_eq!(cards.len(), 17);
    assert!(cards.iter().zip(0..).all(|(card, index)| card.network_card_index == index));
    let efa = |index| info.network_card(index).unwrap().interface_types.contains("efa");
    assert!(!efa(0) && (1..17).all(efa));
}

#[test]
fn what_is_wrong_with_a_line_is_named() {
    for (text, expected) in [
        ("a.b cpu=x", "line 1: \"cpu=x\": not a number that fits"),
        ("# a\na.b quick", "line 2: \"quick\": unknown flag"),
        ("a.b colour=red", "line 1: \"colour=red\": unknown key"),
        ("a.b cards=2:i:1", "line 1: \"cards=2:i:1\": a count and an x are missing"),
        ("a.b cpu=1", "line 1: \"a.b\": processors or network cards are missing"),
        ("a.b cpu=1 cards=1x1:i:1\na.b cpu=1 cards=1x1:i:1", "line 2: \"a.b\": a second line of this name"),
    ] {
        assert_eq!(records::parse(text).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_type_that_is_not_built_in_gets_the_bandwidth_of_its_cards_and_a_known_one_what_is_built_in() {
    let mut newer = instance_types()["c6in.32xlarge"].clone();
    newer.branch_interfaces = None;
    newer.network_bandwidth_mbps = None;
    let known = supplement(newer.clone());
    assert_eq!((known.branch_interfaces, known.network_bandwidth_mbps), (Some(106), Some(200_000)));
    newer.instance_type = "c99.32xlarge".to_owned();
    let unknown = supplement(newer);
    assert_eq!((unknown.branch_interfaces, unknown.network_bandwidth_mbps), (None, Some(400_000)));
}
