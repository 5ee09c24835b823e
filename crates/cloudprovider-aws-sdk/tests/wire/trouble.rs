//! Calls that fail, and calls that are made again.

use cloudprovider_aws::service::Kind;
use cloudprovider_aws::service::ec2::Query;

use crate::server::{calls, control};
use crate::services;

#[tokio::test]
async fn a_throttled_call_is_made_again_until_it_succeeds() {
    let ec2 = services().await.ec2;
    control(r#"{"throttle": {"DescribeSubnets": 2}}"#);
    assert_eq!(ec2.describe_subnets(&Query::default()).await.unwrap().len(), 6);
    assert_eq!(calls("DescribeSubnets"), 3);
}

#[tokio::test]
async fn a_call_that_stays_throttled_fails_after_three_tries() {
    let ec2 = services().await.ec2;
    control(r#"{"throttle": {"DescribeSubnets": 100}}"#);
    let error = ec2.describe_subnets(&Query::default()).await.unwrap_err();
    assert_eq!((error.call, error.kind), ("ec2:DescribeSubnets", Kind::Throttled));
    assert_eq!((error.code.as_deref(), calls("DescribeSubnets")), (Some("RequestLimitExceeded"), 3));
}

#[tokio::test]
async fn throttling_of_a_service_of_json_is_told_apart_too() {
    let ssm = services().await.ssm;
    control(r#"{"throttle": {"GetParameter": 100}}"#);
    assert_eq!(ssm.get_parameter("/a").await.unwrap_err().kind, Kind::Throttled);
}

#[tokio::test]
async fn a_page_of_a_proxy_is_a_fault_of_the_server() {
    let services = services().await;
    control(r#"{"break": {"DescribeSubnets": 100, "GetProducts": 100}}"#);
    let error = services.ec2.describe_subnets(&Query::default()).await.unwrap_err();
    assert_eq!((error.kind, error.code), (Kind::ServerFault, None));
    assert!(error.message.contains("502"), "{}", error.message);
    assert_eq!(calls("DescribeSubnets"), 3);
}

#[tokio::test]
async fn no_text_has_a_credential() {
    let secret = std::env::var("AWS_SECRET_ACCESS_KEY").unwrap();
    let services = services().await;
    control(r#"{"break": {"DescribeSubnets": 100}}"#);
    let error = services.ec2.describe_subnets(&Query::default()).await.unwrap_err();
    assert!(secret.len() > 8);
    for text in [format!("{services:?}"), format!("{error:?}"), error.to_string()] {
        assert!(!text.contains(&secret), "{text}");
    }
}
