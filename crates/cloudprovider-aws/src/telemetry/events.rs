//! The events of this provider: their reasons are Karpenter's, as `pkg/controllers/interruption/events` and
//! `pkg/controllers/nodeclass` of karpenter-provider-aws 1.15 have them.

use api::{NodeClaim, NodePool};
use cloudprovider::events::{Event, Events, Severity};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::interruption::Kind;
use crate::names;

/// A machine is given up because it will not last.
const TERMINATING: &str = "TerminatingOnInterruption";

/// What is told of machines that will not last: how bad it is, the reason, and the text.
pub(crate) type Notice = (Severity, &'static str, &'static str);

/// What is told of a message about a machine.
pub(crate) const fn notice(kind: Kind) -> Notice {
    match kind {
        Kind::SpotInterrupted => {
            (Severity::Warning, "SpotInterrupted", "AWS takes the spot instance back within two minutes")
        }
        Kind::RebalanceRecommended => (
            Severity::Normal,
            "SpotRebalanceRecommendation",
            "AWS may take the spot instance back soon; nothing is done about it",
        ),
        Kind::ReservationInterrupted => (
            Severity::Warning,
            "CapacityReservationInstanceInterrupted",
            "the owner of its capacity reservation takes the instance back",
        ),
        Kind::ScheduledChange => {
            (Severity::Warning, UNHEALTHY, "AWS has planned an event that ends or interrupts the instance")
        }
        Kind::Stopped => (Severity::Warning, "InstanceStopping", "the instance stops"),
        Kind::Terminated => (Severity::Warning, "InstanceTerminating", "the instance ends"),
    }
}

const UNHEALTHY: &str = "InstanceUnhealthy";

/// What is told of a machine that EC2 finds fault with.
pub(crate) const FAULTY: Notice = (Severity::Warning, UNHEALTHY, "EC2 finds fault with the instance or its host");

/// What is told of a machine that is given up for what was told of it.
pub(crate) const GIVEN_UP: Notice =
    (Severity::Warning, TERMINATING, "its pods move elsewhere, because the instance will not last");

/// Tells something of a NodeClaim, and of its Node if it has one.
pub(crate) fn tell(events: &dyn Events, claim: &NodeClaim, (severity, reason, text): Notice) {
    let node = claim.status.as_ref().map(|status| status.node_name.clone()).filter(|name| !name.is_empty());
    let of_claim = of_karpenter("NodeClaim", &claim.metadata);
    // The kubelet, too, has the name of a Node for its UID in events, and kubectl looks for both.
    let of_node = node.map(|name| ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        uid: Some(name.clone()),
        name: Some(name),
        ..ObjectReference::default()
    });
    for regarding in [Some(of_claim), of_node].into_iter().flatten() {
        events.publish(Event::new(regarding, severity, reason, text));
    }
}

/// Tells something of a node class.
pub(crate) fn tell_of_class(
    events: &dyn Events,
    (name, uid): (&str, Option<&str>),
    (reason, text): (&'static str, String),
) {
    let regarding = ObjectReference {
        api_version: Some(format!("{}/v1", names::GROUP)),
        kind: Some(names::NODE_CLASS_KIND.to_owned()),
        name: Some(name.to_owned()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    };
    events.publish(Event::new(regarding, Severity::Normal, reason, text));
}

/// Traffic is shifted away from a zone of a NodePool.
pub(crate) const ZONAL_SHIFT_ACTIVE: &str = "ZonalShiftActive";
/// It is not any more.
pub(crate) const ZONAL_SHIFT_CLEARED: &str = "ZonalShiftCleared";

/// Tells something of a NodePool; once for each matter.
pub(crate) fn tell_of_pool(
    events: &dyn Events,
    (pool, matter): (&NodePool, &str),
    (severity, reason, text): (Severity, &'static str, String),
) {
    let regarding = of_karpenter("NodePool", &pool.metadata);
    events.publish(Event::new(regarding, severity, reason, text).with_dedupe(matter));
}

fn of_karpenter(kind: &str, metadata: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some("karpenter.sh/v1".to_owned()),
        kind: Some(kind.to_owned()),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    }
}
