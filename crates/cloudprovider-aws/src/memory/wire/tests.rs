use model::Timestamp;

use super::super::{VirtualClock, sample};
use super::remote::Caller;
use super::*;
use crate::launch::fleet::{Choice, Override, Purchase, TemplateConfig};
use crate::launch::template::{Market, Placement};
use crate::service::Kind;

fn content() -> Content {
    Content {
        user_data: "dGV4dA==".to_owned(),
        market: Market::OnDemand,
        placement: Placement::default(),
        security_groups: vec!["sg-1".to_owned()],
        efa_count: 4,
        tags: Tags::new(),
    }
}

fn request() -> FleetRequest {
    let machine = Override {
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        subnet_id: Some("subnet-a".to_owned()),
        image_id: "ami-amd64".to_owned(),
        priority: 0,
    };
    FleetRequest {
        configs: vec![TemplateConfig { launch_template: "t".to_owned(), overrides: vec![machine] }],
        purchase: Purchase::OnDemand(Choice::ByPrice),
        tags: [("a".to_owned(), "b".to_owned())].into(),
        context: None,
    }
}

async fn served() -> (Cloud, Front, Caller) {
    let cloud = sample("test", VirtualClock::at(Timestamp::from_seconds(1_800_000_000)).clock());
    let front = Front::start(cloud.clone()).await.unwrap();
    let caller = Caller { address: front.address() };
    (cloud, front, caller)
}

#[tokio::test]
async fn a_fleet_that_another_process_asks_for_is_launched_here() {
    let (cloud, _front, caller) = served().await;
    cloud.make_template("t", content()).await.unwrap();
    let answer = caller.create_fleet(&request(), 2, "token").await.unwrap();
    assert_eq!(answer.machines[0].ids.len(), 2);
    let again = caller.create_fleet(&request(), 2, "token").await.unwrap();
    assert_eq!((again, cloud.launched()), (answer.clone(), 2));
    let seen = caller.describe_instances(&Query::default()).await.unwrap();
    assert_eq!(seen, cloud.alive());
    assert_eq!((seen[0].efa_count, seen[0].tags["a"].as_str()), (4, "b"));
    assert_eq!(cloud.user_data(&seen[0].id).as_deref(), Some("text"));
}

#[tokio::test]
async fn a_refusal_means_the_same_as_to_a_caller_in_this_process() {
    let (cloud, _front, caller) = served().await;
    let here = cloud.create_fleet(&request(), 1, "token").await.unwrap_err();
    let there = caller.create_fleet(&request(), 1, "token").await.unwrap_err();
    assert_eq!((there.kind, &there), (Kind::LaunchTemplateGone, &here));
    let nowhere = Caller { address: "127.0.0.1:1".to_owned() };
    assert_eq!(nowhere.account_id().await.unwrap_err().kind, Kind::ServerFault);
}

#[tokio::test]
async fn an_answer_that_is_held_comes_when_it_is_released_and_others_do_not_wait() {
    let (cloud, front, caller) = served().await;
    cloud.make_template("t", content()).await.unwrap();
    front.hold("ec2:CreateFleet");
    let request = request();
    let mut launch = std::pin::pin!(caller.create_fleet(&request, 1, "token"));
    let account = caller.account_id();
    tokio::select! {
        biased;
        answer = &mut launch => panic!("{answer:?}"),
        account = account => assert_eq!(account.unwrap(), "123456789012"),
    }
    front.release();
    assert_eq!(launch.await.unwrap().machines.len(), 1);
    assert_eq!(cloud.launched(), 1);
}
