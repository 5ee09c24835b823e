//! The note of a disruption command, as an annotation on each NodeClaim that takes part
//! ([`annotations::DISRUPTION_COMMAND`]): on those that go and on those that take their place.
//!
//! What a command has done so far is seen from the NodeClaims and their Nodes; the note says only what cannot be seen:
//! who belongs together, why, how many have to come, and until when they are waited for. It is read strictly. Whoever
//! wrote something else meant something that we do not know, and nothing is deleted for that.

use std::collections::{BTreeMap, BTreeSet};

use api::{NodeClaim, annotations, conditions};
use model::{DurationMs, NodeClaimName, Timestamp};
use scheduling::snapshot::fleet::Reason;
use serde::{Deserialize, Serialize};

use super::true_condition;

/// Most NodeClaims that one command takes. The API server refuses annotations of more than 256 KiB.
pub const MOST_NODE_CLAIMS: usize = 1_000;
/// Longest id that is read.
const MAX_ID_BYTES: usize = 64;

/// A command that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What tells it from every other command.
    pub id: String,
    /// Why the NodeClaims go.
    pub reason: Reason,
    /// The NodeClaims that go.
    pub going: BTreeSet<NodeClaimName>,
    /// How many NodeClaims have to be ready before.
    pub replacements: usize,
    /// Until when these are waited for.
    pub deadline: Timestamp,
    /// How long the drains of these may take at most, counted from their deletion, whatever the NodeClaims say. They
    /// are among those that go.
    pub drain_bounds: BTreeMap<NodeClaimName, DurationMs>,
}

/// Why a note cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no JSON object of the fields of a note.
    #[error("{0}")]
    Json(String),
    /// A field says nothing that a command could.
    #[error("{field}: {reason}")]
    Field {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// As it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    id: String,
    reason: String,
    node_claims: Vec<String>,
    replacements: usize,
    deadline: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    drain_bounds: BTreeMap<String, String>,
}

impl Note {
    /// The annotation's value.
    pub fn encode(&self) -> String {
        let written = Written {
            id: self.id.clone(),
            reason: self.reason.as_str().to_owned(),
            node_claims: self.going.iter().map(ToString::to_string).collect(),
            replacements: self.replacements,
            deadline: self.deadline.to_string(),
            drain_bounds: self.drain_bounds.iter().map(|(name, it)| (name.to_string(), it.to_string())).collect(),
        };
        // A struct of texts and a number cannot fail to be written.
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// Reads the annotation's value.
    ///
    /// # Errors
    /// What of it is not as [`Self::encode`] writes it.
    pub fn decode(value: &str) -> Result<Self, Error> {
        let written: Written = serde_json::from_str(value).map_err(|error| Error::Json(error.to_string()))?;
        let invalid = |field, reason: &str| Error::Field { field, reason: reason.to_owned() };
        if written.id.is_empty() || written.id.len() > MAX_ID_BYTES {
            return Err(invalid("id", "must have between 1 and 64 bytes"));
        }
        let reason = Reason::ALL.into_iter().find(|reason| reason.as_str() == written.reason);
        let reason = reason.ok_or_else(|| invalid("reason", &format!("{:?} is not known", written.reason)))?;
        if written.node_claims.is_empty() || written.node_claims.len() > MOST_NODE_CLAIMS {
            return Err(invalid("nodeClaims", "must name between 1 and 1000"));
        }
        if written.node_claims.iter().any(String::is_empty) {
            return Err(invalid("nodeClaims", "has an empty name"));
        }
        if written.replacements > MOST_NODE_CLAIMS {
            return Err(invalid("replacements", "must be at most 1000"));
        }
        let deadline = Timestamp::parse(&written.deadline).map_err(|why| invalid("deadline", &why.to_string()))?;
        let going: BTreeSet<NodeClaimName> =
            written.node_claims.iter().map(|name| NodeClaimName::from(name.as_str())).collect();
        let mut drain_bounds = BTreeMap::new();
        for (name, bound) in &written.drain_bounds {
            if !going.contains(name.as_str()) {
                return Err(invalid("drainBounds", &format!("{name:?} is none of nodeClaims")));
            }
            let bound = DurationMs::parse(bound).map_err(|why| invalid("drainBounds", &why.to_string()))?;
            if bound < DurationMs::ZERO {
                return Err(invalid("drainBounds", &format!("that of {name:?} is negative")));
            }
            drain_bounds.insert(name.as_str().into(), bound);
        }
        Ok(Self { id: written.id, reason, going, replacements: written.replacements, deadline, drain_bounds })
    }

    /// The note of a NodeClaim, if it has any.
    pub fn of(claim: &NodeClaim) -> Option<Result<Self, Error>> {
        Some(Self::decode(claim.metadata.annotations.as_ref()?.get(annotations::DISRUPTION_COMMAND)?))
    }

    /// Whether a NodeClaim takes the place of others by its note. It is not disrupted then, only kept for a while.
    pub fn is_replacement(claim: &NodeClaim) -> bool {
        Self::lets_go(claim) == Some(false)
    }

    /// Whether a NodeClaim goes by its note.
    pub fn is_going(claim: &NodeClaim) -> bool {
        Self::lets_go(claim) == Some(true)
    }

    /// Whether the NodeClaim is one of those that go, if it has a note that can be read.
    fn lets_go(claim: &NodeClaim) -> Option<bool> {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        Some(Self::of(claim)?.ok()?.going.contains(name))
    }
}

/// Whether a NodeClaim takes part in a command.
pub fn has_note(claim: &NodeClaim) -> bool {
    let all = claim.metadata.annotations.as_ref();
    all.is_some_and(|all| all.contains_key(annotations::DISRUPTION_COMMAND))
}

/// The NodeClaims that will be deleted by commands whose replacements have all been launched, but for those that are
/// being deleted. Their pods have places then, on the replacements and elsewhere; before that nobody can know of them.
pub fn leaving<'c>(claims: impl IntoIterator<Item = &'c NodeClaim>) -> BTreeSet<NodeClaimName> {
    let mut launched: BTreeMap<String, usize> = BTreeMap::new();
    let mut going: Vec<(NodeClaimName, Note)> = Vec::new();
    for claim in claims {
        let Some(Ok(note)) = Note::of(claim).filter(|_| claim.metadata.deletion_timestamp.is_none()) else { continue };
        let name = NodeClaimName::from(claim.metadata.name.as_deref().unwrap_or_default());
        if !note.going.contains(&name) {
            *launched.entry(note.id).or_default() += 1;
        } else if true_condition(claim, conditions::node_claim::DISRUPTION_REASON).is_some() {
            going.push((name, note));
        }
    }
    let is_launched = |note: &Note| launched.get(&note.id).copied().unwrap_or_default() >= note.replacements;
    going.into_iter().filter(|(_, note)| is_launched(note)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn note() -> Note {
        Note {
            id: "general-a-1".to_owned(),
            reason: Reason::Drifted,
            going: ["general-b", "general-a"].map(NodeClaimName::from).into(),
            replacements: 1,
            deadline: Timestamp::parse("2026-11-25T21:10:00Z").unwrap(),
            drain_bounds: BTreeMap::new(),
        }
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let value = note().encode();
        assert_eq!(
            value,
            r#"{"id":"general-a-1","reason":"Drifted","nodeClaims":["general-a","general-b"],"replacements":1,"deadline":"2026-11-25T21:10:00Z"}"#
        );
        assert_eq!(Note::decode(&value), Ok(note()));
        let drain_bounds = [("general-b".into(), DurationMs::from_seconds(45))].into();
        let bounded = Note { drain_bounds, ..note() };
        let value = bounded.encode();
        assert!(value.ends_with(r#""deadline":"2026-11-25T21:10:00Z","drainBounds":{"general-b":"45s"}}"#), "{value}");
        assert_eq!(Note::decode(&value), Ok(bounded));
    }

    #[test]
    fn a_note_with_anything_else_in_it_is_refused_and_the_field_is_named() {
        let cases: [(&str, Value, &str); 13] = [
            ("drainBounds", json!({"general-c": "45s"}), "drainBounds: \"general-c\" is none of nodeClaims"),
            ("drainBounds", json!({"general-a": "soon"}), "drainBounds: "),
            ("drainBounds", json!({"general-a": "-1s"}), "drainBounds: that of \"general-a\" is negative"),
            ("id", json!(""), "id: "),
            ("id", json!("x".repeat(65)), "id: "),
            ("reason", json!("Bored"), "reason: \"Bored\" is not known"),
            ("nodeClaims", json!([]), "nodeClaims: "),
            ("nodeClaims", json!(["a", ""]), "nodeClaims: has an empty name"),
            ("replacements", json!(1001), "replacements: "),
            ("replacements", json!(-1), "invalid value"),
            ("deadline", json!("soon"), "deadline: "),
            ("more", json!(1), "unknown field `more`"),
            ("id", Value::Null, "invalid type"),
        ];
        for (field, value, expected) in cases {
            let mut written: Value = serde_json::from_str(&note().encode()).unwrap();
            written[field] = value;
            let error = Note::decode(&written.to_string()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{written}: {error}");
        }
        for text in ["", "yes", "[]", "{}", "{\"id\":\"a\"}"] {
            assert!(matches!(Note::decode(text), Err(Error::Json(_))), "{text}");
        }
    }

    #[test]
    fn nodeclaims_leave_once_all_that_replaces_them_is_launched() {
        let claim = |name: &str, note: Option<&str>, is_marked: bool, is_deleting: bool| -> NodeClaim {
            let note = note.map(|note| json!({"dovetail.sh/disruption-command": note}));
            let marked = json!([{"type": "DisruptionReason", "status": "True", "reason": "Drifted", "message": "",
                "lastTransitionTime": "2026-11-25T21:00:00Z"}]);
            serde_json::from_value(json!({
                "metadata": {"name": name, "annotations": note,
                    "deletionTimestamp": is_deleting.then_some("2026-11-25T21:00:00Z")},
                "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                "status": {"conditions": if is_marked { marked } else { json!([]) }},
            }))
            .unwrap()
        };
        let note = note().encode();
        let note = Some(note.as_str());
        let [a, b] = [("general-a", true), ("general-b", true)].map(|(name, marked)| claim(name, note, marked, false));
        let replacement = claim("general-r", note, false, false);
        let lost = claim("general-r", note, false, true);
        let told = |claims: &[&NodeClaim]| {
            leaving(claims.iter().copied()).into_iter().map(|name| name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(told(&[&a, &b]), [""; 0], "nothing was launched yet");
        assert_eq!(told(&[&a, &b, &lost]), [""; 0]);
        assert_eq!(told(&[&a, &b, &replacement]), ["general-a", "general-b"]);
        assert_eq!(told(&[&a, &claim("general-b", note, true, true), &replacement]), ["general-a"]);
        assert_eq!(told(&[&a, &claim("general-b", note, false, false), &replacement]), ["general-a"], "half begun");
        assert_eq!(told(&[&claim("c", None, true, false), &claim("d", Some("?"), true, false)]), [""; 0]);
    }
}
