//! The annotation on a NodeClaim that brings [`Assignments`](crate::world::assignments::Assignments) back after a
//! restart.
//!
//! It lists the uids of the pods that the machine was launched for, in the plan's order, with the stages of those that
//! are to be bound after others. It is bounded: what is beyond the limit is remembered in memory only, and after a
//! restart those pods are placed by kube-scheduler's own order. A text that we did not write yields what can be read of
//! it.

use std::collections::BTreeMap;

use model::Uid;
use model::collections::NameMap;

/// The annotation's key.
pub const ANNOTATION: &str = api::annotations::PLANNED_PODS;

/// Longest value: room for 442 uids, more pods than a machine takes.
const MAX_BYTES: usize = 16 * 1024;
/// Longest uid that is read. The API server's have 36 characters.
const MAX_UID_BYTES: usize = 64;

/// The annotation's value for those pods; `None` if there are none. `stages` has the stage of each that is not in the
/// first.
pub fn encode<'a>(pods: impl IntoIterator<Item = &'a Uid>, stages: &NameMap<Uid, u32>) -> Option<String> {
    let mut value = String::new();
    for pod in pods {
        if pod.is_empty() || pod.len() > MAX_UID_BYTES || pod.contains([',', ':']) {
            continue;
        }
        let stage = stages.get(pod).map(|stage| format!(":{stage}")).unwrap_or_default();
        if value.len() + 1 + pod.len() + stage.len() > MAX_BYTES {
            break;
        }
        if !value.is_empty() {
            value.push(',');
        }
        value.push_str(pod);
        value.push_str(&stage);
    }
    (!value.is_empty()).then_some(value)
}

/// The pods that an object's annotations name.
pub fn decode(annotations: Option<&BTreeMap<String, String>>) -> Vec<Uid> {
    annotations.and_then(|annotations| annotations.get(ANNOTATION)).map_or_else(Vec::new, |value| decode_value(value))
}

/// The stages that an object's annotations name.
pub fn decode_stages(annotations: Option<&BTreeMap<String, String>>) -> Vec<(Uid, u32)> {
    let value = annotations.and_then(|annotations| annotations.get(ANNOTATION));
    let entries = value.into_iter().flat_map(|value| entries(value));
    entries.filter_map(|(pod, stage)| Some((pod.into(), stage?.parse().ok()?))).collect()
}

/// The pods that the annotation's value names.
pub fn decode_value(value: &str) -> Vec<Uid> {
    entries(value).map(|(pod, _)| pod.into()).collect()
}

/// Pods with what is said of their stage.
fn entries(value: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let entries = api::annotations::planned_pods(value).take(MAX_BYTES / 2);
    entries.filter(|(pod, _)| !pod.is_empty() && pod.len() <= MAX_UID_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotated(value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(ANNOTATION.to_owned(), value.to_owned())])
    }

    #[test]
    fn pods_come_back_in_the_plans_order() {
        let pods: Vec<Uid> = ["b", "a", "c"].map(Uid::from).into();
        let value = encode(&pods, &NameMap::from_iter([("a".into(), 2), ("x".into(), 1)])).unwrap();
        assert_eq!(value, "b,a:2,c");
        assert_eq!(decode(Some(&annotated(&value))), pods);
        assert_eq!(decode_stages(Some(&annotated(&value))), [(Uid::from("a"), 2)]);
    }

    #[test]
    fn the_value_is_bounded_and_cut_between_pods() {
        let pods: Vec<Uid> = (0..1000).map(|index| Uid::from(format!("{index:036}"))).collect();
        let value = encode(&pods, &NameMap::default()).unwrap();
        assert!(value.len() <= MAX_BYTES);
        assert_eq!(decode(Some(&annotated(&value))), pods[..442]);
    }

    #[test]
    fn a_strange_value_yields_what_can_be_read_of_it() {
        let long = "x".repeat(100);
        assert_eq!(decode(Some(&annotated(&format!(" a ,,{long},b")))), ["a", "b"].map(Uid::from));
        assert!(decode(Some(&BTreeMap::new())).is_empty());
        assert!(decode(None).is_empty());
        assert_eq!(encode(&[] as &[Uid], &NameMap::default()), None);
        assert_eq!(decode_stages(Some(&annotated("a:,b:x,c:-1,:3,d:4"))), [(Uid::from("d"), 4)]);
    }
}
