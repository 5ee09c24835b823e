use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Frame;
use kube::Client;
use kube::api::ApiResource;
use kube::client::Body;
use kube::core::GroupVersionKind;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

/// What the API server answers: a status and lines of JSON. A watch that is `Held` says nothing more and does not end.
#[derive(Clone)]
enum Answer {
    Whole(u16, Vec<Value>),
    Held(Vec<Value>),
    /// Text in pieces, and how it ends.
    Pieces(Vec<String>, End),
}

#[derive(Clone, Copy)]
enum End {
    Complete,
    Held,
    Broken,
}

struct Pieces(std::vec::IntoIter<String>, End);

impl http_body::Body for Pieces {
    type Data = hyper::body::Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, io::Error>>> {
        match (self.0.next(), self.1) {
            (Some(piece), _) => Poll::Ready(Some(Ok(Frame::data(piece.into())))),
            (None, End::Complete) => Poll::Ready(None),
            (None, End::Held) => Poll::Pending,
            (None, End::Broken) => Poll::Ready(Some(Err(io::Error::other("the connection is gone")))),
        }
    }
}

fn lines(values: Vec<Value>) -> Vec<String> {
    values.into_iter().map(|value| format!("{value}\n")).collect()
}

/// A follower of pods whose questions get these answers, and the questions.
fn follower(answers: Vec<Answer>) -> (Follower, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (questions, answers) = (Arc::clone(&asked), Arc::new(Mutex::new(answers.into_iter())));
    let service = service_fn(move |request: Request<Body>| {
        questions.lock().push(request.uri().path_and_query().unwrap().to_string());
        let (status, pieces, end) = match answers.lock().next().expect("no more questions") {
            Answer::Whole(status, values) => (status, lines(values), End::Complete),
            Answer::Held(values) => (200, lines(values), End::Held),
            Answer::Pieces(pieces, end) => (200, pieces, end),
        };
        async move {
            let answer = Response::builder().status(status).body(Pieces(pieces.into_iter(), end));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    let pods = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
    (Follower::new(Client::new(service, "default"), pods, Some("a=b")), asked)
}

fn pod(name: &str, version: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "resourceVersion": version.to_string()}})
}

fn list(names: &[&str], version: u32, token: Option<&str>) -> Answer {
    let items: Vec<_> = names.iter().map(|name| pod(name, 1)).collect();
    let metadata = json!({"resourceVersion": version.to_string(), "continue": token});
    Answer::Whole(200, vec![json!({"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": items})])
}

fn event(kind: &str, object: Value) -> Value {
    json!({"type": kind, "object": object})
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m", "reason": "r", "code": code})
}

/// An object that no parser of ours reads.
fn too_deep() -> Value {
    (0..200)
        .fold(pod("deep", 21), |inner, _| json!({"metadata": {"name": "deep", "resourceVersion": "21"}, "spec": inner}))
}

/// What is seen next, in short.
async fn next(follower: &mut Follower) -> String {
    let named = |what: &str, object: RawObject| format!("{what} {}", object.metadata.name.unwrap());
    match follower.next().await {
        Ok(Seen::ListBegan) => "began".to_owned(),
        Ok(Seen::Listed(object)) => named("listed", object),
        Ok(Seen::Unreadable(object, problem)) => format!("{}: {problem}", named("unreadable", object)),
        Ok(Seen::ListEnded) => "ended".to_owned(),
        Ok(Seen::Applied(object)) => named("applied", object),
        Ok(Seen::Deleted(object)) => named("deleted", object),
        Ok(Seen::Heard) => "heard".to_owned(),
        Err(failure) => failure.to_string(),
    }
}

async fn expect(follower: &mut Follower, expected: &[&str]) {
    for expected in expected {
        assert_eq!(next(follower).await, *expected);
    }
}

/// From which resource version each watch began.
fn watched_from(asked: &Mutex<Vec<String>>) -> Vec<String> {
    let asked = asked.lock();
    let version =
        |uri: &String| uri.split(['?', '&']).find_map(|it| it.strip_prefix("resourceVersion=")).map(str::to_owned);
    asked.iter().filter(|uri| uri.contains("watch=true")).filter_map(version).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_the_last_event_or_bookmark_without_a_list() {
    let bookmark =
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "30", "creationTimestamp": null}});
    let (mut pods, asked) = follower(vec![
        list(&["a"], 10, Some("more")),
        list(&["b"], 10, None),
        Answer::Whole(200, vec![event("ADDED", pod("c", 11)), event("DELETED", pod("a", 12))]),
        Answer::Whole(200, vec![event("BOOKMARK", bookmark)]),
        Answer::Held(vec![event("MODIFIED", pod("c", 31))]),
    ]);
    expect(&mut pods, &["began", "listed a", "listed b", "ended", "heard", "applied c", "deleted a", "heard"]).await;
    expect(&mut pods, &["heard", "heard", "heard", "heard", "applied c"]).await;
    assert_eq!(watched_from(&asked), ["10", "12", "30"]);
    let asked = asked.lock();
    assert!(asked[1].contains("continue=more"), "{asked:?}");
    for uri in asked.iter() {
        assert!(uri.contains("fieldSelector=a%3Db"), "{uri}");
        let seconds =
            uri.split('&').find_map(|it| it.strip_prefix("timeoutSeconds=")).map(|it| it.parse::<u64>().unwrap());
        assert_eq!(seconds.is_some_and(|it| WATCH_S.contains(&it)), uri.contains("watch=true"), "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_and_the_next_question_goes_on_from_where_it_left_us() {
    let (mut pods, asked) = follower(vec![
        Answer::Whole(500, vec![status(500)]),
        list(&[], 10, None),
        Answer::Whole(500, vec![status(500)]),
        Answer::Whole(200, vec![event("ADDED", pod("a", 11)), event("ERROR", status(500))]),
        Answer::Whole(200, vec![event("ERROR", status(410))]),
        list(&["a"], 20, None),
        Answer::Held(vec![event("ADDED", too_deep()), event("ADDED", pod("b", 21))]),
    ]);
    expect(&mut pods, &["began", "cannot list", "began", "ended", "cannot watch", "heard", "applied a"]).await;
    expect(&mut pods, &["the API server ended the watch: m: r", "heard", "the watch expired: m: r"]).await;
    expect(&mut pods, &["began", "listed a", "ended", "heard", "cannot watch", "applied b"]).await;
    assert_eq!(watched_from(&asked), ["10", "10", "11", "20"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_a_failure() {
    let (mut pods, _) = follower(vec![list(&[], 10, None), Answer::Whole(200, Vec::new()), Answer::Held(Vec::new())]);
    expect(&mut pods, &["began", "ended", "heard", "the watch ended as soon as it had begun", "heard"]).await;
}

/// A text in so many bytes each.
fn cut(text: &str, length: usize) -> Vec<String> {
    text.as_bytes().chunks(length).map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_object_of_a_page_is_told_before_the_page_is_there() {
    let text = json!({"metadata": {"resourceVersion": "10"}, "items": [pod("a", 1), pod("b", 1)]}).to_string();
    // Up to the last object's last bracket but one.
    let begun = text[..text.find("]").unwrap() - 1].to_owned();
    let (mut pods, _) = follower(vec![Answer::Pieces(cut(&begun, 11), End::Held)]);
    expect(&mut pods, &["began", "listed a"]).await;
    assert!(tokio::time::timeout(Duration::from_secs(60), pods.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_page_that_stops_in_the_middle_is_told_and_the_list_begins_anew() {
    let text = json!({"metadata": {"resourceVersion": "10"}, "items": [pod("a", 1), pod("b", 1)]}).to_string();
    let half = cut(&text[..text.len() - 20], 30);
    let (mut pods, asked) = follower(vec![
        list(&["a"], 10, Some("more")),
        Answer::Pieces(half.clone(), End::Complete),
        list(&["a"], 10, Some("more")),
        Answer::Pieces(half, End::Broken),
        Answer::Pieces(cut(&text, 1), End::Complete),
    ]);
    expect(&mut pods, &["began", "listed a", "listed a", "listed b", "cannot read the list"]).await;
    expect(&mut pods, &["began", "listed a", "listed a", "listed b", "the list broke off"]).await;
    expect(&mut pods, &["began", "listed a", "listed b", "ended"]).await;
    let with_token: Vec<bool> = asked.lock().iter().map(|uri| uri.contains("continue=more")).collect();
    assert_eq!(with_token, [false, true, false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_a_page_that_cannot_be_read_is_told_by_name_and_the_others_come() {
    let mut deep = pod("deep", 1);
    deep["metadata"]["labels"] = too_deep();
    let items = json!([pod("a", 1), deep, pod("b", 1)]);
    let page = json!({"metadata": {"resourceVersion": "10"}, "items": items});
    let (mut pods, _) = follower(vec![Answer::Whole(200, vec![page])]);
    expect(&mut pods, &["began", "listed a"]).await;
    let unreadable = next(&mut pods).await;
    assert!(unreadable.starts_with("unreadable deep: recursion limit exceeded"), "{unreadable}");
    expect(&mut pods, &["listed b", "ended"]).await;
}

#[tokio::test(start_paused = true)]
async fn where_objects_are_large_the_next_page_has_fewer() {
    let page = |bytes: usize, token: Option<&str>| {
        let mut item = pod("a", 1);
        item["metadata"]["annotations"] = json!({"b": "x".repeat(bytes)});
        let metadata = json!({"resourceVersion": "10", "continue": token});
        Answer::Whole(200, vec![json!({"metadata": metadata, "items": [item]})])
    };
    let (mut pods, asked) = follower(vec![
        page(80_000, Some("2")),
        page(3 << 20, Some("3")),
        list(&[], 10, Some("4")),
        page(10, Some("5")),
        page(10, None),
    ]);
    let mut seen = 0;
    while next(&mut pods).await != "ended" {
        seen += 1;
    }
    assert_eq!(seen, 5);
    let limit = |uri: &String| uri.split(['?', '&']).find_map(|it| it.strip_prefix("limit=")?.parse::<u32>().ok());
    let limits: Vec<u32> = asked.lock().iter().filter_map(limit).collect();
    assert_eq!(limits, [500, 104, 10, 10, 500]);
}
