use api::labels;
use cloudprovider::events::Event;
use cloudprovider::{CapacityType, OfferingKey};
use futures::executor::block_on;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::*;
use crate::background::fixture::{self, CLUSTER, Told};
use crate::memory::{Cloud, Objects, VirtualClock, sample};
use crate::names;
use crate::service::ec2::PlannedEvent;
use crate::telemetry::{Metrics, Telemetry};

struct World {
    cloud: Cloud,
    objects: Objects,
    watch: Watch,
    clock: VirtualClock,
    told: Arc<Told>,
    metrics: Registry,
}

/// About what something is told, and why.
fn line(event: Event) -> String {
    let text = |text: Option<String>| text.unwrap_or_default();
    let severity = event.severity.as_str();
    format!("{} {}: {severity} {}", text(event.regarding.kind), text(event.regarding.name), event.reason)
}

/// A machine's NodeClaim, as the controller writes it after the launch.
fn claim(id: &str) -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": format!("claim-of-{id}"), "uid": format!("uid-of-{id}"), "labels": {
            (labels::INSTANCE_TYPE): "m5.large", (labels::ZONE): "us-east-1a",
        }},
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": names::GROUP, "kind": names::NODE_CLASS_KIND, "name": "default"},
        },
        "status": {"providerID": format!("aws:///us-east-1a/{id}")},
    }))
    .unwrap()
}

impl World {
    /// With NodeClaims of these machines.
    fn new(machines: &[&str]) -> Self {
        let clock = VirtualClock::at(Timestamp::from_seconds(1_800_000_000));
        let cloud = sample(CLUSTER, clock.clock());
        let objects = Objects::default();
        let (told, mut metrics) = (Arc::<Told>::default(), Registry::default());
        machines.iter().for_each(|id| objects.set_claim(claim(id)));
        let telemetry = Telemetry { metrics: Metrics::register(&mut metrics), events: Arc::clone(&told) as _ };
        let provider = fixture::provider(&cloud, &objects, &clock, telemetry);
        let watch = Watch {
            provider,
            ec2: Arc::new(cloud.clone()),
            queue: Some(Arc::new(cloud.clone())),
            objects: Arc::new(objects.clone()),
            clock: clock.clock(),
        };
        Self { cloud, objects, watch, clock, told, metrics }
    }

    fn send(&self, detail_type: &str, detail: &Value) {
        let body = json!({"version": "0", "source": "aws.ec2", "detail-type": detail_type, "detail": detail});
        self.cloud.send(&body.to_string());
    }

    fn handle(&self) -> usize {
        block_on(self.watch.handle_messages(&self.cloud)).unwrap()
    }

    /// The values of the metrics of that name.
    fn shown(&self, name: &str) -> Vec<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.metrics).unwrap();
        let mut lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// The machines whose NodeClaims are left.
    fn left(&self) -> Vec<String> {
        let claims = block_on(self.objects.node_claims()).unwrap();
        let name = |claim: NodeClaim| claim.metadata.name.unwrap().replace("claim-of-", "");
        let mut left: Vec<_> = claims.into_iter().map(name).collect();
        left.sort();
        left
    }
}

#[test]
fn a_machine_that_is_interrupted_is_given_up_and_others_stay() {
    let world = World::new(&["i-1", "i-2", "i-3"]);
    world.send("EC2 Spot Instance Interruption Warning", &json!({"instance-id": "i-1"}));
    world.send("EC2 Instance Rebalance Recommendation", &json!({"instance-id": "i-2"}));
    world.send("EC2 Instance State-change Notification", &json!({"instance-id": "i-of-others", "state": "stopped"}));
    assert_eq!(world.handle(), 3);
    assert_eq!(world.left(), ["i-2", "i-3"]);
    assert_eq!(world.handle(), 0, "what was handled is not in the queue any more");
}

#[test]
fn a_nodeclaim_says_when_its_machine_ends_where_that_is_told() {
    let world = World::new(&["i-1", "i-2", "i-3"]);
    let send = |detail_type: &str, id: &str, more: &Value| {
        let mut body = json!({"source": "aws.ec2", "detail-type": detail_type, "detail": {"instance-id": id}});
        body["detail"].as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        body["time"] = "2026-01-01T00:00:00Z".into();
        world.cloud.send(&body.to_string());
    };
    send("EC2 Spot Instance Interruption Warning", "i-1", &json!({}));
    send("EC2 Instance State-change Notification", "i-2", &json!({"state": "stopping"}));
    assert_eq!((world.handle(), world.left()), (2, vec!["i-3".to_owned()]));
    let said = |id: &str| {
        let deleted = world.objects.deleted_claim(&format!("uid-of-{id}")).unwrap();
        deleted.metadata.annotations.unwrap_or_default().get(annotations::INTERRUPTION_TIME).cloned()
    };
    assert_eq!((said("i-1").as_deref(), said("i-2")), (Some("2026-01-01T00:02:00Z"), None));
}

#[test]
fn what_is_heard_is_counted_and_told_of_claim_and_node() {
    let world = World::new(&["i-1", "i-2"]);
    let mut with_node = claim("i-1");
    with_node.status.as_mut().unwrap().node_name = "node-1".to_owned();
    world.objects.set_claim(with_node);
    let interrupted = "EC2 Spot Instance Interruption Warning";
    let at = |seconds| (world.clock.now().saturating_sub(DurationMs::from_seconds(seconds))).to_string();
    for (detail_type, id, time) in [
        (interrupted, "i-1", at(4)),
        (interrupted, "i-of-others", at(2)),
        ("EC2 Instance Rebalance Recommendation", "i-2", at(0)),
        ("EC2 Something Else", "i-2", at(0)),
    ] {
        let detail = json!({"instance-id": id});
        let body = json!({"source": "aws.ec2", "detail-type": detail_type, "detail": detail, "time": time});
        world.cloud.send(&body.to_string());
    }
    world.cloud.send("Testing");
    assert_eq!(world.handle(), 5);
    assert_eq!(
        world.told.take(line),
        [
            "NodeClaim claim-of-i-1: Warning SpotInterrupted",
            "Node node-1: Warning SpotInterrupted",
            "NodeClaim claim-of-i-1: Warning TerminatingOnInterruption",
            "Node node-1: Warning TerminatingOnInterruption",
            "NodeClaim claim-of-i-2: Normal SpotRebalanceRecommendation",
        ]
    );
    assert_eq!(
        world.shown("interruption_received_messages_total"),
        [
            "{message_type=\"no_op\"} 1",
            "{message_type=\"rebalance_recommendation\"} 1",
            "{message_type=\"spot_interrupted\"} 2",
            "{message_type=\"unreadable\"} 1",
        ]
    );
    assert_eq!(world.shown("interruption_deleted_messages_total"), [" 5"]);
    assert_eq!(world.shown("interruption_message_queue_duration_seconds_sum"), [" 6.0"]);
    assert_eq!(world.shown("interruption_message_queue_duration_seconds_count"), [" 3"]);
}

#[test]
fn where_a_spot_machine_was_taken_back_there_is_none_for_a_while() {
    let world = World::new(&["i-1"]);
    let key = OfferingKey {
        instance_type: "m5.large".into(),
        zone: "us-east-1a".to_owned(),
        capacity_type: CapacityType::Spot,
        reservation_id: None,
    };
    assert!(!world.watch.provider.is_out_of_stock(&key));
    world.send("EC2 Spot Instance Interruption Warning", &json!({"instance-id": "i-1"}));
    world.handle();
    assert!(world.watch.provider.is_out_of_stock(&key));
    assert!(!world.watch.provider.is_out_of_stock(&OfferingKey { zone: "us-east-1b".to_owned(), ..key }));
}

#[test]
fn what_is_no_message_of_eventbridge_leaves_the_queue_and_the_next_is_handled() {
    let world = World::new(&["i-1"]);
    world.cloud.send("Testing");
    world.cloud.send("{}");
    world.send("EC2 Instance State-change Notification", &json!({"instance-id": "i-1", "state": "shutting-down"}));
    assert_eq!((world.handle(), world.left()), (3, Vec::new()));
    assert_eq!(world.handle(), 0);
}

#[test]
fn a_message_that_could_not_be_deleted_is_handled_again_and_does_no_harm() {
    let world = World::new(&["i-1"]);
    world.send("EC2 Spot Instance Interruption Warning", &json!({"instance-id": "i-1"}));
    world.cloud.refuse("sqs:DeleteMessage", "InternalError", "try again");
    assert!(block_on(world.watch.handle_messages(&world.cloud)).is_err());
    world.cloud.permit("sqs:DeleteMessage");
    assert_eq!((world.handle(), world.handle()), (1, 0));
}

fn event(code: &str, at: Option<i64>) -> PlannedEvent {
    PlannedEvent { code: code.to_owned(), not_before: at.map(Timestamp::from_seconds) }
}

fn status(instance: Option<i64>, system: Option<i64>, events: &[PlannedEvent]) -> MachineStatus {
    MachineStatus {
        id: "i-1".to_owned(),
        instance_impaired_since: instance.map(Timestamp::from_seconds),
        system_impaired_since: system.map(Timestamp::from_seconds),
        events: events.to_vec(),
    }
}

#[test]
fn checks_that_fail_for_two_minutes_end_a_machine_at_once_and_planned_events_drain_it() {
    let now = Timestamp::from_seconds(1000);
    assert_eq!(verdict(&status(Some(881), None, &[]), now), None, "not long enough");
    assert_eq!(verdict(&status(Some(880), None, &[]), now), Some(("instance_status", Ending::AtOnce)));
    let stop = event("instance-stop", None);
    assert_eq!(
        verdict(&status(None, Some(880), std::slice::from_ref(&stop)), now),
        Some(("system_status", Ending::AtOnce))
    );
    let of_events = |events: &[PlannedEvent]| verdict(&status(None, None, events), now);
    assert_eq!(of_events(std::slice::from_ref(&stop)), Some(("event_status", Ending::Drained(None))));
    let (later, first) = (event("instance-retirement", Some(9000)), event("system-reboot", Some(8000)));
    let at = |seconds| Some(("event_status", Ending::Drained(Some(Timestamp::from_seconds(seconds)))));
    assert_eq!(of_events(&[later.clone(), first]), at(8000));
    assert_eq!(of_events(&[later.clone(), stop]), Some(("event_status", Ending::Drained(None))), "it may come at once");
    assert_eq!(of_events(&[later, event("a-thing-of-tomorrow", Some(1))]), at(9000));
    assert_eq!(of_events(&[event("a-thing-of-tomorrow", None)]), None);
}
