use super::*;
use crate::node_class::alias::Alias;
use crate::node_class::kubelet::ProblemKind;
use crate::node_class::spec::InstanceMatchCriteria;

fn text(finding: &Finding) -> String {
    let Finding { condition, fault } = finding;
    let fault = fault.as_ref().map(|(reason, message)| format!(" {reason}: {message}")).unwrap_or_default();
    format!("{condition}={}{fault}", finding.status())
}

fn at(time: &str) -> Timestamp {
    Timestamp::parse(&format!("2026-01-01T{time}Z")).unwrap()
}

#[test]
fn selectors_that_find_nothing_are_told_by_condition() {
    assert_eq!(
        text(&subnets(Vec::new()).1),
        "SubnetsReady=False SubnetsNotFound: subnetSelectorTerms select no subnet"
    );
    assert_eq!(
        text(&security_groups(Vec::new()).1),
        "SecurityGroupsReady=False SecurityGroupsNotFound: securityGroupSelectorTerms select no security group"
    );
    assert_eq!(
        text(&images(&ImageSelection::Terms(Vec::new()), &[], MinorVersion(33))),
        "AMIsReady=False AMINotFound: amiSelectorTerms select no image"
    );
    assert_eq!(
        text(&placement_group(Some(&PlacementGroupTerm::Name("g".to_owned())), None)),
        "PlacementGroupReady=False PlacementGroupNotFound: there is no placement group with name g"
    );
    assert_eq!(text(&placement_group(None, None)), "PlacementGroupReady=True");
}

#[test]
fn aliases_that_aws_does_not_publish_for_a_version_are_told() {
    for (alias, minor, expected) in [
        ("al2@latest", 32, "AMIsReady=True"),
        (
            "al2@latest",
            33,
            "AMIsReady=False UnsupportedAlias: al2@latest: AWS publishes no such images for Kubernetes 1.33 and later; this \
             is 1.33",
        ),
        ("windows2025@latest", 35, "AMIsReady=True"),
        (
            "windows2025@latest",
            34,
            "AMIsReady=False UnsupportedAlias: windows2025@latest: AWS publishes no such images for Kubernetes versions \
             before 1.35; this is 1.34",
        ),
        ("al2023@latest", 37, "AMIsReady=True"),
    ] {
        let selection = ImageSelection::Alias(Alias::parse(alias).unwrap());
        assert_eq!(text(&images(&selection, &[Ami::default()], MinorVersion(minor))), expected);
    }
}

#[test]
fn versions_are_read_as_servers_write_them() {
    for (text, expected) in [
        ("1.33", Some(33)),
        ("v1.33.1-eks-abc", Some(33)),
        ("33+", Some(33)),
        ("1.9", Some(9)),
        ("", None),
        ("x", None),
    ] {
        assert_eq!(MinorVersion::parse(text), expected.map(MinorVersion), "{text:?}");
    }
}

#[test]
fn subnets_with_the_most_free_addresses_come_first_and_each_is_there_once() {
    let subnet = |id: &str, free_addresses| ec2::Subnet {
        id: id.to_owned(),
        zone: "a".to_owned(),
        zone_id: "z".to_owned(),
        free_addresses,
    };
    let (found, finding) = subnets(vec![subnet("s-3", 5), subnet("s-2", 9), subnet("s-1", 5), subnet("s-2", 9)]);
    let ids: Vec<_> = found.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["s-2", "s-1", "s-3"]);
    assert_eq!(text(&finding), "SubnetsReady=True");
}

#[test]
fn a_capacity_block_expires_forty_minutes_before_its_end() {
    let reservation = |id: &str, reservation_type, end: Option<&str>| ec2::CapacityReservation {
        id: id.to_owned(),
        owner_id: "123456789012".to_owned(),
        instance_type: "p5.48xlarge".to_owned(),
        zone: "a".to_owned(),
        match_criteria: InstanceMatchCriteria::Targeted,
        reservation_type,
        interruptible: false,
        remaining: 1,
        ends_at: end.map(at),
    };
    let all = || {
        vec![
            reservation("cr-3", ReservationType::CapacityBlock, Some("12:00:00")),
            reservation("cr-2", ReservationType::Default, Some("11:45:00")),
            reservation("cr-1", ReservationType::Default, None),
        ]
    };
    for (now, states, next) in [
        ("11:19:59", &["cr-1 active", "cr-2 active", "cr-3 active"][..], Some("11:20:00")),
        ("11:20:00", &["cr-1 active", "cr-2 active", "cr-3 expiring"], Some("11:45:00")),
        ("11:45:00", &["cr-1 active", "cr-3 expiring"], Some("12:00:00")),
        ("12:00:00", &["cr-1 active"], None),
    ] {
        let (found, changes) = capacity_reservations(all(), at(now));
        let found: Vec<_> = found.iter().map(|it| format!("{} {}", it.id, it.state)).collect();
        assert_eq!(found, states, "{now}");
        assert_eq!(changes, next.map(at), "{now}");
    }
}

#[test]
fn the_first_problem_of_the_kubelets_settings_gives_the_reason() {
    let problem = |reason, field: &str| Problem { reason, field: field.to_owned(), message: "no".to_owned() };
    let problems = [problem(ProblemKind::Unsupported, "a"), problem(ProblemKind::Invalid, "b")];
    assert_eq!(
        text(&kubelet(&problems)),
        "ValidationSucceeded=False UnsupportedKubeletConfiguration: spec.kubelet.a: no; spec.kubelet.b: no"
    );
    assert_eq!(text(&kubelet(&[])), "ValidationSucceeded=True");
}

#[test]
fn reservations_are_required_only_with_their_gate() {
    assert_eq!(required_conditions(false).count(), 6);
    assert!(required_conditions(true).any(|it| it == CAPACITY_RESERVATIONS_READY));
}
