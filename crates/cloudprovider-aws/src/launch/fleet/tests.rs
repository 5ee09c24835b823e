use super::*;

fn key(market: Market) -> TemplateKey {
    TemplateKey { image_id: "ami-1".to_owned(), max_pods: 58, efa_count: 0, market, reserved: Default::default() }
}

fn candidate(instance_type: &str, zone: &str, market: Market, price: i64) -> Candidate {
    Candidate {
        instance_type: instance_type.to_owned(),
        zone: zone.to_owned(),
        subnet_id: Some(format!("subnet-{zone}")),
        key: key(market),
        price: PriceNanoUsdPerHour(price),
        kind: MachineKind::Ordinary,
    }
}

fn chosen(candidates: Vec<Candidate>, has_min_values: bool) -> Vec<String> {
    let text = |it: &Candidate| format!("{} {} {:?}", it.instance_type, it.zone, it.key.market);
    choose(candidates, has_min_values).iter().map(text).collect()
}

#[test]
fn one_request_has_one_way_of_paying_that_of_the_cheapest() {
    let all = vec![
        candidate("m5.large", "a", Market::OnDemand, 96),
        candidate("m5.large", "a", Market::Spot, 40),
        candidate("m5.xlarge", "b", Market::Spot, 97),
        candidate("m5.xlarge", "a", Market::Spot, 70),
    ];
    assert_eq!(chosen(all.clone(), false), ["m5.large a Spot", "m5.xlarge a Spot"]);
    assert_eq!(chosen(all, true), ["m5.large a Spot", "m5.xlarge a Spot", "m5.xlarge b Spot"]);
    assert_eq!(chosen(Vec::new(), false), [] as [&str; 0]);
}

#[test]
fn reservations_are_used_if_they_are_the_cheapest() {
    let reserved = |id: &str, price| candidate("p5.48xlarge", "a", Market::Reservation(id.to_owned()), price);
    let on_demand = candidate("p5.48xlarge", "a", Market::OnDemand, 98);
    assert_eq!(
        chosen(vec![on_demand.clone(), reserved("cr-2", 0), reserved("cr-1", 0)], false),
        ["p5.48xlarge a Reservation(\"cr-1\")", "p5.48xlarge a Reservation(\"cr-2\")"]
    );
    assert_eq!(chosen(vec![on_demand, reserved("cr-1", 99)], false), ["p5.48xlarge a OnDemand"]);
}

#[test]
fn of_capacity_blocks_there_is_one() {
    let block = |zone| candidate("p5.48xlarge", zone, Market::CapacityBlock(format!("cr-{zone}")), 0);
    assert_eq!(chosen(vec![block("b"), block("a")], false), ["p5.48xlarge a CapacityBlock(\"cr-a\")"]);
}

#[test]
fn machines_with_what_no_pod_uses_are_left_out_unless_they_are_the_cheapest() {
    let exotic = |price| Candidate { kind: MachineKind::Exotic, ..candidate("g4dn.xlarge", "a", Market::Spot, price) };
    let ordinary = candidate("m5.large", "a", Market::Spot, 40);
    assert_eq!(chosen(vec![exotic(50), ordinary.clone()], false), ["m5.large a Spot"]);
    assert_eq!(chosen(vec![exotic(50), ordinary.clone()], true).len(), 2);
    assert_eq!(chosen(vec![exotic(10), ordinary], false), ["g4dn.xlarge a Spot", "m5.large a Spot"]);
}

#[test]
fn a_request_lists_each_type_and_zone_below_its_template() {
    let templates = [(key(Market::Spot), "t-1".to_owned())].into();
    let tags = [("team".to_owned(), "a".to_owned())].into();
    let input = FleetInput { launch_templates: &templates, tags: &tags, context: None, choice: Choice::ByPrice };
    let one = candidate("m5.large", "b", Market::Spot, 40);
    let all = [one.clone(), candidate("m5.large", "a", Market::Spot, 41), one];
    let request = FleetRequest::new(&all, &input).unwrap();
    let [config] = &request.configs[..] else { panic!("one template") };
    assert_eq!(config.launch_template, "t-1");
    let overrides: Vec<_> =
        config.overrides.iter().map(|it| (&*it.zone, it.subnet_id.as_deref(), it.priority)).collect();
    assert_eq!(overrides, [("a", Some("subnet-a"), 41), ("b", Some("subnet-b"), 40)]);
    assert_eq!(request.purchase.strategy(), Some("price-capacity-optimized"));
    // Without a template nothing is asked for.
    assert_eq!(FleetRequest::new(&[candidate("m5.large", "a", Market::OnDemand, 1)], &input), None);
    assert_eq!(FleetRequest::new(&[], &input), None);
}

#[test]
fn strategies_are_those_of_the_purchase() {
    for (purchase, expected) in [
        (Purchase::OnDemand(Choice::ByPrice), Some("lowest-price")),
        (Purchase::OnDemand(Choice::ByPriority), Some("prioritized")),
        (Purchase::Spot(Choice::ByPrice), Some("price-capacity-optimized")),
        (Purchase::Spot(Choice::ByPriority), Some("capacity-optimized-prioritized")),
        (Purchase::CapacityBlock, None),
        (Purchase::InterruptibleReservation, None),
    ] {
        assert_eq!(purchase.strategy(), expected);
    }
}
