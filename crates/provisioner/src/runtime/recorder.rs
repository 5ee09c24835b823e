//! Kubernetes events, written in the background.
//!
//! [`Recorder::publish`] never waits and never fails: an event that repeats one of the last minutes is dropped, and so
//! is one that finds the channel full (counted, and not remembered as told). What the API server does not take is tried
//! again under the same name, so that no event is there twice. By Karpenter's rules, events are the same if reason and
//! dedupe values are, whatever the message, for two minutes unless the reason has its own span; `Nominated` is also
//! limited to five a second.
//!
//! Differs: `failed-scheduling-dedupe`. The kind of reason is a dedupe value of `FailedScheduling`, so that a changed
//! reason is told at once.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use api::events;
use cloudprovider::events::Events;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{self as core, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use model::{DurationMs, Timestamp};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::runtime::beats::Beat;
use crate::runtime::clock::Clock;
use crate::runtime::failures::{cause_in_words, is_of_ending_namespace};
use crate::runtime::jitter::jittered;
use crate::runtime::metrics::Metrics;

pub(crate) use cloudprovider::events::{Event, Severity};

/// Who the events are from.
const COMPONENT: &str = "karpenter";
/// How many events may wait to be written.
const CHANNEL_CAPACITY: usize = 1024;
/// How many are written at the same time: one that hangs does not stop the others.
const PARALLEL_WRITES: usize = 8;
/// How often an event is tried to be written, and how long after the first failure again; twice as long after the next.
const ATTEMPTS: u32 = 4;
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Longest that the writing of events may be silent while there are any: all attempts at one.
pub(crate) const BOUND: Duration = Duration::from_secs(300);
/// How many past events are remembered.
const REMEMBERED: usize = 10_000;
/// The API server refuses longer messages.
const MESSAGE_BYTES: usize = 1024;
const DEFAULT_TTL: DurationMs = DurationMs::from_seconds(2 * 60);

/// What an event says it is about.
pub(crate) fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    object.object_ref(&())
}

/// A reference to a pod that we know in our own form only.
pub(crate) fn pod_reference(pod: &model::Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.name.name.to_string()),
        namespace: Some(pod.name.namespace.to_string()),
        uid: Some(pod.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// Takes events. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Recorder {
    filter: Arc<Mutex<Filter>>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    sender: mpsc::Sender<Event>,
}

impl Recorder {
    /// A recorder, and what [`write_events`] or a test reads from it.
    pub fn new(clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
        (Self { filter: Arc::default(), clock, metrics, sender }, receiver)
    }

    /// Writes an event soon, unless it repeats another or there are too many.
    pub fn publish(&self, event: Event) {
        // The place first: what is dropped was not told, and may be told soon.
        let place = self.sender.try_reserve();
        match place {
            Ok(place) => {
                if self.filter.lock().admits(&event, self.clock.now()) {
                    place.send(event);
                }
            }
            Err(_) => {
                if self.filter.lock().is_new(&event, self.clock.now()) {
                    self.metrics.dropped_events.inc();
                }
            }
        }
    }
}

impl Events for Recorder {
    fn publish(&self, event: Event) {
        Self::publish(self, event);
    }
}

/// Writes what a [`Recorder`] takes until that is gone; with `client` `None`, only to the log.
pub(crate) async fn write_events(
    mut events: mpsc::Receiver<Event>,
    client: Option<Client>,
    clock: Arc<dyn Clock>,
    beat: Beat,
) {
    let instance = std::env::var("HOSTNAME").unwrap_or_default();
    let mut writing = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !writing.is_empty() {
        if writing.is_empty() {
            beat.idle()
        } else {
            beat.busy()
        }
        let event = tokio::select! {
            event = events.recv(), if is_open && writing.len() < PARALLEL_WRITES => event,
            Some(()) = writing.next(), if !writing.is_empty() => continue,
        };
        let Some(event) = event else {
            is_open = false;
            continue;
        };
        let about = format!(
            "{}/{}",
            event.regarding.kind.as_deref().unwrap_or_default(),
            event.regarding.name.as_deref().unwrap_or_default()
        );
        let Some(client) = &client else {
            info!(object = about, reason = event.reason, text = event.message, "event (dry run)");
            continue;
        };
        debug!(object = about, reason = event.reason, text = event.message, "event");
        writing.push(write(client, to_object(event, clock.now(), &instance), about));
    }
}

async fn write(client: &Client, object: core::Event, about: String) {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let events = Api::<core::Event>::namespaced(client.clone(), &namespace);
    for attempt in 1..=ATTEMPTS {
        let error = match events.create(&PostParams::default(), &object).await {
            Ok(_) => return,
            // The answer to an earlier attempt was lost.
            Err(kube::Error::Api(status)) if status.code == 409 && attempt > 1 => return,
            Err(error) => error,
        };
        let may_pass = !matches!(&error, kube::Error::Api(status) if status.code < 500 && status.code != 429);
        if !may_pass || attempt == ATTEMPTS {
            return match &error {
                // Nothing can be written there any more, and nobody will look.
                kube::Error::Api(status) if is_of_ending_namespace(status) => {
                    debug!(object = about, "no event of what ends with its namespace");
                }
                _ => warn!(object = about, error = cause_in_words(&error), "could not write an event"),
            };
        }
        tokio::time::sleep(jittered(RETRY_DELAY * 2_u32.pow(attempt - 1))).await;
    }
}

/// Different for each event, as the API server would make it.
fn name_of(about: &str) -> String {
    let about: String = about.chars().take(200).collect();
    format!("{about}.{:016x}", RandomState::new().hash_one(about.as_str()))
}

fn to_object(event: Event, now: Timestamp, instance: &str) -> core::Event {
    // Events about objects without a namespace live in `default`, as with every other Kubernetes component.
    let namespace =
        event.regarding.namespace.clone().filter(|namespace| !namespace.is_empty()).unwrap_or_else(|| "default".into());
    let time = jiff::Timestamp::from_millisecond(now.0).ok().map(Time);
    let about = event.regarding.name.clone().unwrap_or_default();
    core::Event {
        metadata: ObjectMeta { name: Some(name_of(&about)), namespace: Some(namespace), ..ObjectMeta::default() },
        involved_object: event.regarding,
        type_: Some(event.severity.as_str().to_owned()),
        reason: Some(event.reason.to_owned()),
        message: Some(shorten(event.message)),
        count: Some(1),
        first_timestamp: time.clone(),
        last_timestamp: time,
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        ..core::Event::default()
    }
}

fn shorten(mut message: String) -> String {
    const MARK: &str = "…";
    if message.len() > MESSAGE_BYTES {
        let end = (0..=MESSAGE_BYTES - MARK.len()).rev().find(|&end| message.is_char_boundary(end)).unwrap_or(0);
        message.truncate(end);
        message.push_str(MARK);
    }
    message
}

/// Which events are let through.
#[derive(Debug, Default)]
struct Filter {
    until: BTreeMap<Box<str>, Timestamp>,
    /// The keys of `until` in the order they were noted.
    order: VecDeque<Box<str>>,
    nominated: Option<TokenBucket>,
}

impl Filter {
    fn is_new(&self, event: &Event, now: Timestamp) -> bool {
        self.until.get(&key(event)).is_none_or(|until| now >= *until)
    }

    fn admits(&mut self, event: &Event, now: Timestamp) -> bool {
        if !self.is_new(event, now) {
            return false;
        }
        let key = key(event);
        if event.reason == events::NOMINATED && !self.nominated.get_or_insert_with(|| TokenBucket::full(now)).take(now)
        {
            return false;
        }
        if self.until.insert(key.clone(), now.saturating_add(ttl(event.reason))).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.until.remove(&oldest);
            }
        }
        true
    }
}

fn key(event: &Event) -> Box<str> {
    let mut key = event.reason.to_owned();
    for value in &event.dedupe {
        key.push('\0');
        key.push_str(value);
    }
    key.into()
}

fn ttl(reason: &str) -> DurationMs {
    match reason {
        events::FAILED_SCHEDULING => DurationMs::from_seconds(5 * 60),
        events::UNCONSOLIDATABLE | events::NODE_REPAIR_BLOCKED => DurationMs::from_seconds(15 * 60),
        events::NO_COMPATIBLE_INSTANCE_TYPES => DurationMs::from_seconds(60),
        _ => DEFAULT_TTL,
    }
}

/// Five a second, ten at once.
#[derive(Debug)]
struct TokenBucket {
    milli_tokens: i64,
    filled_at: Timestamp,
}

impl TokenBucket {
    const MILLI_TOKENS_PER_MS: i64 = 5;
    const CAPACITY_MILLI: i64 = 10_000;

    fn full(now: Timestamp) -> Self {
        Self { milli_tokens: Self::CAPACITY_MILLI, filled_at: now }
    }

    fn take(&mut self, now: Timestamp) -> bool {
        let grown = now.since(self.filled_at).0.max(0).saturating_mul(Self::MILLI_TOKENS_PER_MS);
        self.milli_tokens = self.milli_tokens.saturating_add(grown).min(Self::CAPACITY_MILLI);
        self.filled_at = now;
        if self.milli_tokens < 1000 {
            return false;
        }
        self.milli_tokens -= 1000;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock::MockClock;

    struct Setup {
        clock: Arc<MockClock>,
        metrics: Arc<Metrics>,
        recorder: Recorder,
        events: mpsc::Receiver<Event>,
    }

    fn setup() -> Setup {
        let clock = Arc::new(MockClock::at(Timestamp::from_seconds(1_000)));
        let metrics = Arc::new(Metrics::new());
        let (recorder, events) = Recorder::new(Arc::clone(&clock) as Arc<dyn Clock>, Arc::clone(&metrics));
        Setup { clock, metrics, recorder, events }
    }

    impl Setup {
        fn publish(&self, uid: &str, reason: &'static str, message: &str) {
            let regarding = ObjectReference { uid: Some(uid.into()), ..ObjectReference::default() };
            self.recorder.publish(Event::new(regarding, Severity::Normal, reason, message));
        }

        fn written(&mut self) -> Vec<(String, String)> {
            std::iter::from_fn(|| self.events.try_recv().ok())
                .map(|event| (event.regarding.uid.unwrap(), event.message))
                .collect()
        }
    }

    fn pair(uid: &str, message: &str) -> (String, String) {
        (uid.to_owned(), message.to_owned())
    }

    #[test]
    fn an_event_is_told_once_in_two_minutes_per_object_and_reason() {
        let mut setup = setup();
        setup.publish("a", events::EVICTED, "1");
        setup.publish("a", events::EVICTED, "2");
        setup.publish("b", events::EVICTED, "3");
        setup.publish("a", events::FAILED_DRAINING, "4");
        setup.clock.advance(Duration::from_secs(119));
        setup.publish("a", events::EVICTED, "5");
        setup.clock.advance(Duration::from_secs(1));
        setup.publish("a", events::EVICTED, "6");
        assert_eq!(setup.written(), [pair("a", "1"), pair("b", "3"), pair("a", "4"), pair("a", "6")]);
    }

    #[test]
    fn a_pod_that_fails_for_another_reason_is_told_so_at_once() {
        let mut setup = setup();
        let regarding = ObjectReference { uid: Some("a".into()), ..ObjectReference::default() };
        let publish = |setup: &Setup, kind: &str, message: &str| {
            let event = Event::new(regarding.clone(), Severity::Warning, events::FAILED_SCHEDULING, message);
            setup.recorder.publish(event.with_dedupe(kind));
        };
        publish(&setup, "no room", "of 3 nodes none has room");
        publish(&setup, "limit", "the limit is used up");
        setup.clock.advance(Duration::from_secs(299));
        publish(&setup, "no room", "of 4 nodes none has room");
        assert_eq!(setup.written(), [pair("a", "of 3 nodes none has room"), pair("a", "the limit is used up")]);
    }

    #[test]
    fn nominations_are_limited_to_a_burst_of_ten_and_five_a_second() {
        let mut setup = setup();
        for pod in 0..30 {
            setup.publish(&pod.to_string(), events::NOMINATED, "");
        }
        assert_eq!(setup.written().len(), 10);
        setup.clock.advance(Duration::from_secs(1));
        for pod in 30..60 {
            setup.publish(&pod.to_string(), events::NOMINATED, "");
        }
        assert_eq!(setup.written().len(), 5);
    }

    #[test]
    fn memory_and_channel_are_bounded_and_losses_are_counted() {
        let mut setup = setup();
        for object in 0..REMEMBERED + 500 {
            setup.publish(&object.to_string(), events::EVICTED, "");
            if object % CHANNEL_CAPACITY == CHANNEL_CAPACITY - 1 {
                setup.written();
            }
        }
        {
            let filter = setup.recorder.filter.lock();
            assert_eq!((filter.until.len(), filter.order.len()), (REMEMBERED, REMEMBERED));
        }
        assert_eq!(setup.metrics.dropped_events.get(), 0);
        setup.written();
        for object in 0..CHANNEL_CAPACITY + 7 {
            setup.publish(&object.to_string(), events::FAILED_DRAINING, "");
        }
        assert_eq!(setup.metrics.dropped_events.get(), 7);
    }

    #[test]
    fn an_event_that_was_dropped_is_not_remembered_as_told() {
        let mut setup = setup();
        for object in 0..CHANNEL_CAPACITY {
            setup.publish(&object.to_string(), events::EVICTED, "");
        }
        setup.publish("last", events::EVICTED, "dropped");
        setup.publish("0", events::EVICTED, "told already, so nothing is lost");
        assert_eq!(setup.metrics.dropped_events.get(), 1);
        setup.written();
        setup.publish("last", events::EVICTED, "again");
        assert_eq!(setup.written(), [pair("last", "again")]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_tried_again_under_its_name_and_one_that_hangs_does_not_stop_others() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let server = tower::service_fn({
            let asked = Arc::clone(&asked);
            move |request: http::Request<kube::client::Body>| {
                let asked = Arc::clone(&asked);
                async move {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let event: core::Event = serde_json::from_slice(&body).unwrap();
                    let name = event.metadata.name.unwrap();
                    let attempt = {
                        let mut asked = asked.lock();
                        asked.push(name.clone());
                        asked.iter().filter(|other| **other == name).count()
                    };
                    let (code, text) = match attempt {
                        _ if name.starts_with("hangs") => std::future::pending().await,
                        1 => (503, r#"{"status":"Failure","code":503}"#),
                        _ => (409, r#"{"status":"Failure","code":409}"#),
                    };
                    http::Response::builder().status(code).body(kube::client::Body::from(text.as_bytes().to_vec()))
                }
            }
        });
        let Setup { clock, recorder, events, .. } = setup();
        let writing = write_events(events, Some(Client::new(server, "default")), clock, Beat::unobserved());
        let writing = tokio::spawn(writing);
        for name in ["hangs", "a", "b"] {
            let regarding = ObjectReference { name: Some(name.into()), ..ObjectReference::default() };
            recorder.publish(Event::new(regarding, Severity::Normal, events::EVICTED, ""));
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        writing.abort();
        let asked = asked.lock();
        for about in ["a.", "b."] {
            let names: Vec<_> = asked.iter().filter(|name| name.starts_with(about)).collect();
            assert!(names.len() == 2 && names[0] == names[1], "{asked:?}");
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let event = Event::new(ObjectReference::default(), Severity::Warning, events::EVICTED, "é".repeat(2000));
        let object = to_object(event, Timestamp::from_seconds(0), "");
        let message = object.message.unwrap();
        assert!(message.len() <= MESSAGE_BYTES && message.ends_with('…'), "{} bytes", message.len());
        assert_eq!(object.metadata.namespace.as_deref(), Some("default"));
    }
}
