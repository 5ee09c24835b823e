//! What AWS tells of machines that will not last: messages that EventBridge puts into a queue.
//!
//! `pkg/controllers/interruption/messages` of karpenter-provider-aws 1.15: the same sources and kinds, by source and
//! `detail-type` of the envelope. When a machine ends is ours.

use k8s_openapi::jiff;
use model::{DurationMs, Timestamp};
use serde::Deserialize;
use serde_json::Value;

/// From the warning to the end of a machine that is taken back.
const NOTICE: DurationMs = DurationMs::from_seconds(120);

/// What happens to machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A spot machine is taken back in two minutes.
    SpotInterrupted,
    /// A spot machine may be taken back soon. Nothing is done.
    RebalanceRecommended,
    /// The owner of a reservation takes a machine back.
    ReservationInterrupted,
    /// AWS has planned something that ends a machine or its rest.
    ScheduledChange,
    /// A machine stops or has stopped.
    Stopped,
    /// A machine ends or has ended.
    Terminated,
}

impl Kind {
    /// Its name, as Karpenter's metrics have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SpotInterrupted => "spot_interrupted",
            Self::RebalanceRecommended => "rebalance_recommendation",
            Self::ReservationInterrupted => "capacity_reservation_interrupted",
            Self::ScheduledChange => "scheduled_change",
            Self::Stopped => "instance_stopped",
            Self::Terminated => "instance_terminated",
        }
    }
}

/// A message about machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interruption {
    /// What happens.
    pub kind: Kind,
    /// The ids of the machines.
    pub machines: Vec<String>,
    /// When it was told, if the message says so.
    pub at: Option<Timestamp>,
    /// When it happens, if that is known and there is time until then.
    pub due_at: Option<Timestamp>,
}

/// A message that is none of EventBridge's, or lacks what its kind must have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// What EventBridge writes around what happened.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    source: String,
    #[serde(default, rename = "detail-type")]
    detail_type: String,
    #[serde(default)]
    time: String,
    #[serde(default)]
    detail: Value,
}

impl Interruption {
    /// Reads a message; none if it is about nothing that matters here.
    ///
    /// # Errors
    /// If it is not JSON, or names no machine where it must.
    pub fn read(body: &str) -> Result<Option<Self>, Unreadable> {
        let envelope: Envelope = serde_json::from_str(body).map_err(|error| Unreadable(error.to_string()))?;
        let kind = match (&*envelope.source, &*envelope.detail_type) {
            ("aws.ec2", "EC2 Spot Instance Interruption Warning") => Kind::SpotInterrupted,
            ("aws.ec2", "EC2 Instance Rebalance Recommendation") => Kind::RebalanceRecommended,
            ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning") => Kind::ReservationInterrupted,
            ("aws.ec2", "EC2 Instance State-change Notification") => match envelope.text("/state") {
                "stopping" | "stopped" => Kind::Stopped,
                "shutting-down" | "terminated" => Kind::Terminated,
                _ => return Ok(None),
            },
            ("aws.health", "AWS Health Event") => {
                let is_change = envelope.text("/eventTypeCategory") == "scheduledChange";
                if envelope.text("/service") != "EC2" || !is_change {
                    return Ok(None);
                }
                Kind::ScheduledChange
            }
            _ => return Ok(None),
        };
        let machines = match kind {
            Kind::ScheduledChange => envelope.entities(),
            Kind::SpotInterrupted
            | Kind::RebalanceRecommended
            | Kind::ReservationInterrupted
            | Kind::Stopped
            | Kind::Terminated => vec![envelope.text("/instance-id").to_owned()],
        };
        if machines.iter().all(String::is_empty) {
            return Err(Unreadable(format!("{:?} names no machine", envelope.detail_type)));
        }
        let at = Timestamp::parse(&envelope.time).ok();
        let after_notice = || at.map(|at| at.saturating_add(NOTICE));
        let due_at = match kind {
            Kind::SpotInterrupted => after_notice(),
            Kind::ReservationInterrupted => {
                Timestamp::parse(envelope.text("/instance-termination-time")).ok().or_else(after_notice)
            }
            Kind::ScheduledChange => date(envelope.text("/startTime")),
            // The one is a guess without a time, and the others have happened.
            Kind::RebalanceRecommended | Kind::Stopped | Kind::Terminated => None,
        };
        Ok(Some(Self { kind, machines, at, due_at }))
    }
}

/// Reads a time as AWS Health writes it: `Fri, 27 Jan 2023 06:02:51 GMT`.
fn date(text: &str) -> Option<Timestamp> {
    let zoned = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(Timestamp(zoned.timestamp().as_millisecond()))
}

impl Envelope {
    fn text(&self, path: &str) -> &str {
        self.detail.pointer(path).and_then(Value::as_str).unwrap_or_default()
    }

    fn entities(&self) -> Vec<String> {
        let all = self.detail.pointer("/affectedEntities").and_then(Value::as_array).into_iter().flatten();
        all.filter_map(|it| it.get("entityValue")?.as_str()).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(source: &str, detail_type: &str, detail: Value) -> Result<Option<(Kind, Vec<String>)>, String> {
        let body = json!({"version": "0", "source": source, "detail-type": detail_type, "detail": detail});
        let read = Interruption::read(&body.to_string()).map_err(|error| error.to_string())?;
        Ok(read.map(|it| (it.kind, it.machines)))
    }

    #[test]
    fn each_kind_of_message_names_its_machines() {
        let one = || vec!["i-1".to_owned()];
        let id = json!({"instance-id": "i-1"});
        for (kind, detail_type) in [
            (Kind::SpotInterrupted, "EC2 Spot Instance Interruption Warning"),
            (Kind::RebalanceRecommended, "EC2 Instance Rebalance Recommendation"),
            (Kind::ReservationInterrupted, "EC2 Capacity Reservation Instance Interruption Warning"),
        ] {
            assert_eq!(read("aws.ec2", detail_type, id.clone()), Ok(Some((kind, one()))));
        }
        for (state, kind) in [
            ("stopping", Some(Kind::Stopped)),
            ("stopped", Some(Kind::Stopped)),
            ("shutting-down", Some(Kind::Terminated)),
            ("terminated", Some(Kind::Terminated)),
            ("running", None),
        ] {
            let detail = json!({"instance-id": "i-1", "state": state});
            let expected = kind.map(|kind| (kind, one()));
            assert_eq!(read("aws.ec2", "EC2 Instance State-change Notification", detail), Ok(expected), "{state}");
        }
        let change = |service: &str, category: &str| {
            let entities = json!([{"entityValue": "i-1"}, {"entityValue": "i-2"}]);
            let detail = json!({"service": service, "eventTypeCategory": category, "affectedEntities": entities});
            read("aws.health", "AWS Health Event", detail)
        };
        let both = vec!["i-1".to_owned(), "i-2".to_owned()];
        assert_eq!(change("EC2", "scheduledChange"), Ok(Some((Kind::ScheduledChange, both))));
        assert_eq!((change("EC2", "issue"), change("S3", "scheduledChange")), (Ok(None), Ok(None)));
        assert_eq!(read("aws.s3", "Object Created", json!({})), Ok(None));
    }

    #[test]
    fn a_message_says_when_the_machine_ends_where_there_is_time_until_then() {
        let due_at = |source: &str, detail_type: &str, more: Value| {
            let mut detail = json!({"instance-id": "i-1"});
            detail.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            let body = json!({
                "source": source, "detail-type": detail_type, "time": "2026-01-01T00:00:00Z", "detail": detail,
            });
            Interruption::read(&body.to_string()).unwrap().unwrap().due_at.map(|it| it.to_string())
        };
        let of_ec2 = |what: &str, more: Value| due_at("aws.ec2", &format!("EC2 {what}"), more);
        let of_health = |start: &str| {
            let detail = json!({
                "service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": start,
                "affectedEntities": [{"entityValue": "i-1"}],
            });
            due_at("aws.health", "AWS Health Event", detail)
        };
        let two_minutes = Some("2026-01-01T00:02:00Z".to_owned());
        assert_eq!(of_ec2("Spot Instance Interruption Warning", json!({})), two_minutes);
        let of_reservation = "Capacity Reservation Instance Interruption Warning";
        assert_eq!(of_ec2(of_reservation, json!({})), two_minutes);
        let ends = json!({"instance-termination-time": "2026-01-01T00:01:30Z"});
        assert_eq!(of_ec2(of_reservation, ends), Some("2026-01-01T00:01:30Z".to_owned()));
        assert_eq!(of_ec2("Instance Rebalance Recommendation", json!({})), None);
        assert_eq!(of_ec2("Instance State-change Notification", json!({"state": "stopping"})), None);
        assert_eq!(of_health("Fri, 27 Jan 2023 06:02:51 GMT"), Some("2023-01-27T06:02:51Z".to_owned()));
        assert_eq!(of_health("soon"), None);
    }

    #[test]
    fn a_message_that_cannot_be_read_says_why() {
        assert!(Interruption::read("Testing").unwrap_err().to_string().contains("expected"));
        let error = read("aws.ec2", "EC2 Spot Instance Interruption Warning", json!({})).unwrap_err();
        assert_eq!(error, "\"EC2 Spot Instance Interruption Warning\" names no machine");
        assert_eq!(read("aws.health", "AWS Health Event", json!({"service": "EC2"})), Ok(None));
    }
}
