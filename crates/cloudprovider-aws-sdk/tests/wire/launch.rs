//! Launch templates, fleets and machines.

use cloudprovider_aws::launch::disks::BlockDevice;
use cloudprovider_aws::launch::fleet::{Choice, FleetRequest, Override, Purchase, TemplateConfig};
use cloudprovider_aws::launch::template::{Interface, LaunchTemplate, Market, Placement};
use cloudprovider_aws::node_class::spec::{MetadataOptions, Tags};
use cloudprovider_aws::service::ec2::{Ec2, Filter, MachineState, Query};
use cloudprovider_aws::service::{FleetFault, Kind};

use crate::server::{calls, control, form};
use crate::services;

const IMAGE: &str = "ami-00000000000000001";

fn tags(of: &str) -> Tags {
    Tags::from([("for".to_owned(), of.to_owned())])
}

fn interface(card: i32) -> Interface {
    Interface {
        network_card_index: card,
        device_index: i32::from(card > 0),
        interface_type: Some("efa"),
        security_groups: vec!["sg-1".to_owned()],
        associate_public_ip_address: Some(false),
        connection_tracking: None,
        has_ipv6_address: false,
        ipv4_prefixes: None,
        ipv6_prefixes: None,
    }
}

fn template(of: &str) -> LaunchTemplate {
    LaunchTemplate {
        image_id: IMAGE.to_owned(),
        user_data: "I2Nsb3VkLWNvbmZpZw==".to_owned(),
        instance_profile: "nodes".to_owned(),
        block_devices: vec![BlockDevice {
            device_name: Some("/dev/xvda".to_owned()),
            size_gib: Some(20),
            volume_type: Some("gp3"),
            encrypted: Some(true),
            ..BlockDevice::default()
        }],
        network_interfaces: vec![interface(0), interface(1)],
        metadata_options: MetadataOptions::default(),
        detailed_monitoring: Some(true),
        nested_virtualization: None,
        enclaves: false,
        placement: Placement::default(),
        market: Market::Reservation("cr-1".to_owned()),
        tags: tags(of),
    }
}

/// A request for m5.large in some zones, of the template of that name.
async fn request(ec2: &dyn Ec2, name: &str, zones: &[&str], purchase: Purchase) -> FleetRequest {
    let mut overrides = Vec::new();
    for zone in zones {
        let query = Query { ids: vec![], filters: vec![Filter::new("availability-zone", *zone)] };
        overrides.push(Override {
            instance_type: "m5.large".to_owned(),
            zone: (*zone).to_owned(),
            subnet_id: Some(ec2.describe_subnets(&query).await.unwrap()[0].id.clone()),
            image_id: IMAGE.to_owned(),
            priority: 96_000_000,
        });
    }
    let configs = vec![TemplateConfig { launch_template: name.to_owned(), overrides }];
    FleetRequest { configs, purchase, tags: tags(name), context: None }
}

fn named(name: &str) -> Query {
    Query { ids: vec![], filters: vec![Filter::new("launch-template-name", name)] }
}

#[tokio::test]
async fn a_launch_template_is_made_as_it_is_found_and_removed() {
    let ec2 = services().await.ec2;
    ec2.create_launch_template("made", &template("made")).await.unwrap();
    let again = ec2.create_launch_template("made", &template("made")).await.unwrap_err();
    assert_eq!(again.kind, Kind::AlreadyExists);

    let made = form("ec2", "Action=DescribeLaunchTemplateVersions&Version=2016-11-15&LaunchTemplateName=made");
    for part in [
        "<imageId>ami-00000000000000001</imageId>",
        "<name>nodes</name>",
        "<deviceName>/dev/xvda</deviceName>",
        "<volumeSize>20</volumeSize>",
        "<volumeType>gp3</volumeType>",
        "<interfaceType>efa</interfaceType>",
        "<networkCardIndex>1</networkCardIndex>",
        "<httpTokens>required</httpTokens>",
        "<instanceMetadataTags>disabled</instanceMetadataTags>",
        "<capacityReservationPreference>capacity-reservations-only</capacityReservationPreference>",
        "<capacityReservationId>cr-1</capacityReservationId>",
    ] {
        assert!(made.contains(part), "{part} is not in {made}");
    }

    let found = ec2.describe_launch_templates(&named("made")).await.unwrap();
    assert_eq!(found.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["made"]);
    assert_eq!(found[0].tags, tags("made"));
    ec2.delete_launch_template(&found[0].id).await.unwrap();
    assert_eq!(ec2.describe_launch_templates(&named("made")).await.unwrap(), []);
    assert_eq!(ec2.delete_launch_template(&found[0].id).await.unwrap_err().kind, Kind::LaunchTemplateGone);
}

#[tokio::test]
async fn what_one_zone_refuses_comes_from_another_and_both_are_told() {
    let ec2 = services().await.ec2;
    ec2.create_launch_template("zones", &template("zones")).await.unwrap();
    let wanted = request(&*ec2, "zones", &["us-east-1a", "us-east-1b"], Purchase::OnDemand(Choice::ByPrice)).await;
    control(r#"{"refuse": [["on-demand", "m5.large", "us-east-1a"]]}"#);
    let answer = ec2.create_fleet(&wanted, 2, "token-zones").await.unwrap();
    assert_eq!(answer.machines.iter().map(|it| it.ids.len()).sum::<usize>(), 2);
    let machines = &answer.machines[0];
    assert_eq!((&*machines.instance_type, &*machines.zone), ("m5.large", "us-east-1b"));
    assert_eq!(machines.image_id.as_deref(), Some(IMAGE));
    assert_eq!(machines.subnet_id, wanted.configs[0].overrides[1].subnet_id);
    let [error] = &*answer.errors else { panic!("{:?}", answer.errors) };
    assert_eq!(FleetFault::of(&error.code), FleetFault::NoCapacity);
    assert_eq!((error.instance_type.as_deref(), error.zone.as_deref()), (Some("m5.large"), Some("us-east-1a")));
    assert_eq!(error.launch_template.as_deref(), Some("zones"));

    control(r#"{"refuse": [["on-demand", "m5.large", "us-east-1a"], ["on-demand", "m5.large", "us-east-1b"]]}"#);
    let answer = ec2.create_fleet(&wanted, 1, "token-none").await.unwrap();
    assert_eq!((answer.machines.len(), answer.errors.len()), (0, 2));
}

#[tokio::test]
async fn machines_are_found_tagged_and_removed() {
    let ec2 = services().await.ec2;
    control("{}");
    ec2.create_launch_template("life", &template("life")).await.unwrap();
    let wanted = request(&*ec2, "life", &["us-east-1c"], Purchase::Spot(Choice::ByPrice)).await;
    let answer = ec2.create_fleet(&wanted, 1, "token-life").await.unwrap();
    let id = answer.machines[0].ids[0].clone();

    ec2.create_tags(std::slice::from_ref(&id), &Tags::from([("Name".to_owned(), "n".to_owned())])).await.unwrap();
    let by_tag = Query { ids: vec![], filters: vec![Filter::new("tag:for", "life")] };
    let found = ec2.describe_instances(&by_tag).await.unwrap();
    let [machine] = &*found else { panic!("{found:?}") };
    assert_eq!((&*machine.id, machine.state, machine.is_spot), (&*id, MachineState::Running, true));
    assert_eq!((&*machine.instance_type, &*machine.zone, &*machine.image_id), ("m5.large", "us-east-1c", IMAGE));
    assert_eq!(machine.subnet_id, wanted.configs[0].overrides[0].subnet_id);
    assert_eq!(machine.tags.get("Name").map(String::as_str), Some("n"));
    assert!(machine.launched_at.0 > 0);

    ec2.reboot_instance(&id).await.unwrap();
    assert_eq!(ec2.terminate_instances(std::slice::from_ref(&id)).await.unwrap(), [id.as_str()]);
    let by_id = Query { ids: vec![id], filters: vec![] };
    assert_eq!(ec2.describe_instances(&by_id).await.unwrap()[0].state, MachineState::Terminated);
    let unknown = Query { ids: vec!["i-0123456789abcdef0".to_owned()], filters: vec![] };
    assert_eq!(ec2.describe_instances(&unknown).await.unwrap_err().kind, Kind::NotFound);
}

#[tokio::test]
async fn machines_without_fault_have_no_status() {
    // The server lists every machine as well, whatever is asked for.
    assert_eq!(services().await.ec2.describe_instance_status().await.unwrap(), []);
}

#[tokio::test]
async fn a_dry_run_that_would_succeed_does_and_is_made_once() {
    let ec2 = services().await.ec2;
    ec2.create_launch_template("dry", &template("dry")).await.unwrap();
    let wanted = request(&*ec2, "dry", &["us-east-1a"], Purchase::OnDemand(Choice::ByPrice)).await;
    control("{}");
    ec2.dry_run_fleet(&wanted).await.unwrap();
    let subnet = wanted.configs[0].overrides[0].subnet_id.clone().unwrap();
    ec2.dry_run_instance("dry", "m5.large", &subnet).await.unwrap();

    control(r#"{"throttle": {"CreateFleet": 1, "RunInstances": 1}}"#);
    assert_eq!(ec2.dry_run_fleet(&wanted).await.unwrap_err().kind, Kind::Throttled);
    let error = ec2.dry_run_instance("dry", "m5.large", &subnet).await.unwrap_err();
    assert_eq!((error.call, error.kind), ("ec2:RunInstances", Kind::Throttled));
    assert_eq!((calls("CreateFleet"), calls("RunInstances")), (1, 1));
}

#[tokio::test]
async fn a_fleet_of_a_template_that_is_gone_is_told_as_such() {
    let ec2 = services().await.ec2;
    control("{}");
    let wanted = request(&*ec2, "never-made", &["us-east-1a"], Purchase::OnDemand(Choice::ByPrice)).await;
    let error = ec2.create_fleet(&wanted, 1, "token-gone").await.unwrap_err();
    assert_eq!((error.call, error.kind), ("ec2:CreateFleet", Kind::LaunchTemplateGone));
}
