use super::*;
use crate::fake_api::{client, refused};

fn cluster(answer: impl Fn(&str) -> Option<(u16, serde_json::Value)> + Send + Sync + 'static) -> Cluster {
    Cluster::new(client(answer).0, "ns")
}

#[tokio::test]
async fn not_found_is_an_answer_and_anything_else_an_error_that_names_verb_and_object() {
    assert!(cluster(|_| refused(404, "NotFound")).record("n").await.unwrap().is_none());
    assert!(!cluster(|_| refused(404, "NotFound")).delete_node("n", None).await.unwrap());
    let failure = cluster(|_| refused(403, "Forbidden")).record("n").await.unwrap_err();
    assert_eq!(failure.cause, Cause::Other);
    assert_eq!(failure.to_string(), "get ConfigMap ns/kwok-instance-n: the server says Forbidden");
    let failure = cluster(|_| refused(500, "InternalError")).nodes("a=b").await.unwrap_err();
    assert_eq!(failure.to_string(), "list Node: the server says InternalError");
}

#[tokio::test]
async fn a_conflict_is_told_from_a_name_that_is_taken() {
    let node = Node::default();
    let cause = |reason: &'static str| cluster(move |_| refused(409, reason));
    assert_eq!(cause("AlreadyExists").create_node(&node).await.unwrap_err().cause, Cause::AlreadyExists);
    assert_eq!(cause("Conflict").create_node(&node).await.unwrap_err().cause, Cause::Conflict);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up() {
    let failure = cluster(|_| None).node_class("default").await.unwrap_err();
    assert_eq!(failure.to_string(), "get KWOKNodeClass default: no answer within 15 s");
}

#[tokio::test]
async fn lists_are_read_to_the_end() {
    let pages = std::sync::atomic::AtomicU32::new(0);
    let cluster = cluster(move |_| {
        let page = pages.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let metadata = if page < 2 { serde_json::json!({"continue": "more"}) } else { serde_json::json!({}) };
        let items = [serde_json::json!({"metadata": {"name": format!("n{page}")}})];
        Some((200, serde_json::json!({"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": items})))
    });
    let names: Vec<_> = cluster.nodes("").await.unwrap().into_iter().filter_map(|node| node.metadata.name).collect();
    assert_eq!(names, ["n0", "n1", "n2"]);
}

#[tokio::test]
async fn a_record_that_cannot_be_read_does_not_hide_the_others() {
    let good = crate::record::tests::record().to_config_map("ns");
    let bad = serde_json::json!({"metadata": {"name": "kwok-instance-x"}, "data": {"token": "t"}});
    let cluster = cluster(move |_| {
        let items = [bad.clone(), serde_json::to_value(&good).unwrap()];
        Some((200, serde_json::json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": items})))
    });
    assert_eq!(cluster.records().await.unwrap().len(), 1);
}
