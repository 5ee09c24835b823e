//! The annotation on a NodeClaim that brings [`Assignments`](crate::assignments::Assignments) back after a restart.
//!
//! It lists the uids of the pods that the machine was launched for, in the plan's order, separated by commas. It is
//! bounded: what is beyond the limit is remembered in memory only, and after a restart those pods are placed by
//! kube-scheduler's own order. A text that we did not write yields what can be read of it.

use std::collections::BTreeMap;

use model::Uid;

/// The annotation's key.
pub const ANNOTATION: &str = api::annotations::PLANNED_PODS;

/// Longest value: room for 442 uids, more pods than a machine takes.
const MAX_BYTES: usize = 16 * 1024;
/// Longest uid that is read. The API server's have 36 characters.
const MAX_UID_BYTES: usize = 64;

/// The annotation's value for those pods; `None` if there are none.
pub fn encode<'a>(pods: impl IntoIterator<Item = &'a Uid>) -> Option<String> {
    let mut value = String::new();
    for pod in pods {
        if pod.is_empty() || pod.len() > MAX_UID_BYTES || pod.contains(',') {
            continue;
        }
        if value.len() + 1 + pod.len() > MAX_BYTES {
            break;
        }
        if !value.is_empty() {
            value.push(',');
        }
        value.push_str(pod);
    }
    (!value.is_empty()).then_some(value)
}

/// The pods that an object's annotations name.
pub fn decode(annotations: Option<&BTreeMap<String, String>>) -> Vec<Uid> {
    annotations.and_then(|annotations| annotations.get(ANNOTATION)).map_or_else(Vec::new, |value| decode_value(value))
}

/// The pods that the annotation's value names.
pub fn decode_value(value: &str) -> Vec<Uid> {
    let mut pods: Vec<Uid> = Vec::new();
    for uid in value.split(',').take(MAX_BYTES / 2) {
        let uid = uid.trim();
        if !uid.is_empty() && uid.len() <= MAX_UID_BYTES {
            pods.push(uid.into());
        }
    }
    pods
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
        let value = encode(&pods).unwrap();
        assert_eq!(value, "b,a,c");
        assert_eq!(decode(Some(&annotated(&value))), pods);
    }

    #[test]
    fn the_value_is_bounded_and_cut_between_pods() {
        let pods: Vec<Uid> = (0..1000).map(|index| Uid::from(format!("{index:036}"))).collect();
        let value = encode(&pods).unwrap();
        assert!(value.len() <= MAX_BYTES);
        assert_eq!(decode(Some(&annotated(&value))), pods[..442]);
    }

    #[test]
    fn a_strange_value_yields_what_can_be_read_of_it() {
        let long = "x".repeat(100);
        assert_eq!(decode(Some(&annotated(&format!(" a ,,{long},b")))), ["a", "b"].map(Uid::from));
        assert!(decode(Some(&BTreeMap::new())).is_empty());
        assert!(decode(None).is_empty());
        assert_eq!(encode(&[] as &[Uid]), None);
    }
}
