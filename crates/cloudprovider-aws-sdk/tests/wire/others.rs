//! The services beside EC2.

use cloudprovider_aws::node_class::spec::Tags;
use cloudprovider_aws::service::{ConnectError, Kind, PriceList};

use crate::server::{calls, control, form, json, post};
use crate::{connect, services};

fn tags(entries: &[(&str, &str)]) -> Tags {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn an_instance_profile_is_made_given_its_role_found_and_removed() {
    let iam = services().await.iam;
    form("iam", "Action=CreateRole&Version=2010-05-08&RoleName=nodes&AssumeRolePolicyDocument=%7B%7D");
    assert!(iam.role_exists("nodes").await.unwrap());
    assert!(!iam.role_exists("nobody").await.unwrap());

    let path = "/karpenter/us-east-1/c/";
    iam.create_instance_profile("p", path, &tags(&[("a", "1")])).await.unwrap();
    let again = iam.create_instance_profile("p", path, &tags(&[])).await.unwrap_err();
    assert_eq!(again.kind, Kind::AlreadyExists);
    iam.tag_instance_profile("p", &tags(&[("b", "2")])).await.unwrap();
    iam.add_role("p", "nodes").await.unwrap();
    let profile = iam.get_instance_profile("p").await.unwrap();
    assert_eq!((&*profile.path, profile.role.as_deref()), (path, Some("nodes")));
    assert_eq!(profile.tags, tags(&[("a", "1"), ("b", "2")]));

    // The server gives profiles below any path.
    iam.create_instance_profile("foreign", "/others/", &tags(&[])).await.unwrap();
    let found = iam.list_instance_profiles(path).await.unwrap();
    assert_eq!(found.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["p"]);

    iam.remove_role("p", "nodes").await.unwrap();
    iam.delete_instance_profile("p").await.unwrap();
    assert_eq!(iam.get_instance_profile("p").await.unwrap_err().kind, Kind::NotFound);
}

#[tokio::test]
async fn messages_are_received_and_deleted() {
    json("sqs", "AmazonSQS.CreateQueue", r#"{"QueueName": "interruptions"}"#);
    let services = connect(&[("interruption-queue", "interruptions")]).await.unwrap();
    let queue = services.interruption_queue.unwrap();
    let url = format!("{}/123456789012/interruptions", std::env::var("AWS_ENDPOINT_URL").unwrap());
    json("sqs", "AmazonSQS.SendMessage", &format!(r#"{{"QueueUrl": "{url}", "MessageBody": "gone"}}"#));
    let messages = queue.receive().await.unwrap();
    assert_eq!(messages.iter().map(|it| &*it.body).collect::<Vec<_>>(), ["gone"]);
    queue.delete(&messages[0].receipt).await.unwrap();
    assert_eq!(queue.delete("nothing").await.unwrap_err().code.as_deref(), Some("ReceiptHandleIsInvalid"));
}

#[tokio::test]
async fn a_queue_that_is_not_there_is_told_at_once() {
    match connect(&[("interruption-queue", "nowhere")]).await.unwrap_err() {
        ConnectError::Call(error) => assert_eq!((error.call, error.kind), ("sqs:GetQueueUrl", Kind::NotFound)),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn eks_tells_of_a_cluster() {
    let of_user = r#"{"name": "c", "version": "1.33", "roleArn": "arn:aws:iam::123456789012:role/x",
        "resourcesVpcConfig": {"subnetIds": ["s"]}, "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16"}}"#;
    post("eks", "/clusters", of_user);
    let eks = services().await.eks;
    let cluster = eks.describe_cluster("c").await.unwrap();
    assert_eq!((&*cluster.version, cluster.service_ipv4_cidr.as_deref()), ("1.33", Some("10.100.0.0/16")));
    assert!(cluster.arn.is_some_and(|arn| arn.ends_with(":cluster/c")));
    assert!(cluster.endpoint.starts_with("https://"), "{}", cluster.endpoint);
    assert_eq!(eks.describe_cluster("other").await.unwrap_err().kind, Kind::NotFound);
}

#[tokio::test]
async fn zonal_shifts_are_those_that_are_applied_whoever_began_them() {
    let shifts = services().await.zonal_shifts;
    let found = shifts.get_managed_resource("arn:aws:eks:us-east-1:123456789012:cluster/c").await.unwrap();
    let found: Vec<_> = found.iter().map(|it| (&*it.zone_id, it.ends_at.map(|at| at.0))).collect();
    assert_eq!(found, [("use1-az1", Some(1_798_761_600_000)), ("use1-az3", None)]);
    let error = shifts.get_managed_resource("arn:aws:eks:us-east-1:123456789012:cluster/other").await.unwrap_err();
    assert_eq!((error.call, error.kind), ("arc-zonal-shift:GetManagedResource", Kind::Unauthorized));
}

#[tokio::test]
async fn prices_are_gathered_from_pages() {
    let services = services().await;
    control("{}");
    let prices = services.pricing.get_products(&services.region, PriceList::Shared).await.unwrap();
    let prices: Vec<_> = prices.iter().map(|it| (&*it.instance_type, it.price.0)).collect();
    assert_eq!(prices, [("c5.large", 85_000_000), ("m5.large", 96_000_000)]);
    assert_eq!(calls("GetProducts"), 2);
    assert_eq!(services.pricing.get_products(&services.region, PriceList::BareMetal).await.unwrap(), []);
}

#[tokio::test]
async fn the_account_is_known() {
    assert_eq!(services().await.sts.account_id().await.unwrap(), "123456789012");
}
