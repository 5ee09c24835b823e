//! Launches that share a request, and how a crash between any two steps loses no machine.
//!
//! EC2 has few tokens for `CreateFleet`, so equal requests become one for many machines. Before the call, a [`Note`] is
//! written on each claim of the batch: the client token, and which of the batch's machines is the claim's. The token
//! stands for the request and the claims, so whoever comes after a crash repeats the call with it and gets the answer
//! that EC2 gave the first time, not new machines; machines are dealt out by the notes, from that answer alone. A list
//! of machines is not used for it, because EC2's lists lag, and a list that lacks one would shift the others.
//!
//! Differs: `launch-notes`. Karpenter batches in memory, and after a crash machines without a NodeClaim are removed and
//! launched again.

use std::collections::BTreeMap;
use std::fmt;

use model::Uid;

use super::digest;
use super::fleet::FleetRequest;

/// Most machines of one request.
pub const MAX_CLAIMS: usize = 1000;

/// A launch that waits for others of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The NodeClaim.
    pub claim: Uid,
    /// How many launches of the claim have been answered before. A token is for one answer, so a further attempt has
    /// another.
    pub attempt: u32,
    /// What is asked for.
    pub request: FleetRequest,
}

/// Launches that become one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Makes the call idempotent; EC2 takes up to 64 characters.
    pub token: String,
    /// The claims, ordered; the first gets the first machine.
    pub claims: Vec<Uid>,
    /// What is asked for, as many times as there are claims.
    pub request: FleetRequest,
}

/// What a claim carries from before its call until it has its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The client token.
    pub token: String,
    /// Which machine of the batch is the claim's, from 0.
    pub index: usize,
    /// How many machines the batch asks for.
    pub count: usize,
}

/// Groups launches with equal requests. Batches are ordered by token, and do not depend on the order of the launches; a
/// claim that is there twice counts once.
pub fn batches(wanted: Vec<Wanted>) -> Vec<Batch> {
    let mut groups: BTreeMap<String, (FleetRequest, BTreeMap<Uid, u32>)> = BTreeMap::new();
    for Wanted { claim, attempt, request } in wanted {
        let (_, claims) = groups.entry(digest(&request)).or_insert_with(|| (request, BTreeMap::new()));
        claims.insert(claim, attempt);
    }
    let mut batches: Vec<_> = groups
        .into_iter()
        .flat_map(|(of_request, (request, claims))| {
            let claims: Vec<_> = claims.into_iter().collect();
            let of_chunk = |chunk: &[(Uid, u32)]| Batch {
                token: digest(&(&of_request, chunk)),
                claims: chunk.iter().map(|(claim, _)| claim.clone()).collect(),
                request: request.clone(),
            };
            claims.chunks(MAX_CLAIMS).map(of_chunk).collect::<Vec<_>>()
        })
        .collect();
    batches.sort_by(|a, b| a.token.cmp(&b.token));
    batches
}

impl Batch {
    /// The notes of the claims, to be written before the call.
    pub fn notes(&self) -> impl Iterator<Item = (&Uid, Note)> {
        let note = |index| Note { token: self.token.clone(), index, count: self.claims.len() };
        self.claims.iter().enumerate().map(move |(index, claim)| (claim, note(index)))
    }

    /// Which claim gets which of the machines that the call answered with. Claims are served in their order; those for
    /// whom none is left get none.
    pub fn deal<'a>(&'a self, machines: &'a [String]) -> impl Iterator<Item = (&'a Uid, Option<&'a str>)> {
        let mut machines: Vec<_> = machines.iter().map(String::as_str).collect();
        machines.sort_unstable();
        self.claims.iter().enumerate().map(move |(index, claim)| (claim, machines.get(index).copied()))
    }
}

impl Note {
    /// The claim's machine among those that its call answered with; none if there were fewer.
    pub fn machine<'a>(&self, machines: &'a [String]) -> Option<&'a str> {
        let mut machines: Vec<_> = machines.iter().map(String::as_str).collect();
        machines.sort_unstable();
        machines.get(self.index).copied()
    }

    /// Reads an annotation's value; none if it is not one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let (token, place) = text.split_once(' ')?;
        let (index, count) = place.split_once('/')?;
        let (index, count): (usize, usize) = (index.parse().ok()?, count.parse().ok()?);
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_token && index < count && count <= MAX_CLAIMS).then(|| Self { token: token.to_owned(), index, count })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.token, self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::fleet::{Choice, Purchase};

    fn request(context: &str) -> FleetRequest {
        FleetRequest {
            configs: Vec::new(),
            purchase: Purchase::Spot(Choice::ByPrice),
            tags: BTreeMap::new(),
            context: Some(context.to_owned()),
        }
    }

    fn wanted(claim: &str, context: &str) -> Wanted {
        Wanted { claim: claim.into(), attempt: 0, request: request(context) }
    }

    #[test]
    fn equal_requests_become_one_whatever_their_order() {
        let all = [wanted("c", "x"), wanted("a", "x"), wanted("b", "y"), wanted("a", "x")];
        let forth = batches(all.to_vec());
        let back = batches(all.into_iter().rev().collect());
        assert_eq!(forth, back);
        let mut claims: Vec<_> = forth.iter().map(|batch| batch.claims.clone()).collect();
        claims.sort();
        assert_eq!(claims, [vec!["a".into(), "c".into()], vec!["b".into()]] as [Vec<Uid>; 2]);
        assert!(forth.iter().all(|batch| batch.token.len() <= 64));
    }

    #[test]
    fn a_token_is_for_these_claims_this_request_and_this_attempt() {
        let token = |wanted: Wanted| batches(vec![wanted]).remove(0).token;
        let first = token(wanted("a", "x"));
        assert_eq!(token(wanted("a", "x")), first);
        assert_ne!(token(wanted("b", "x")), first);
        assert_ne!(token(wanted("a", "y")), first);
        assert_ne!(token(Wanted { attempt: 1, ..wanted("a", "x") }), first);
    }

    #[test]
    fn a_batch_is_no_larger_than_ec2_takes() {
        let all = (0..2500).map(|index| wanted(&format!("{index:04}"), "x")).collect();
        let mut sizes: Vec<_> = batches(all).iter().map(|batch| batch.claims.len()).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [500, 1000, 1000]);
    }

    #[test]
    fn whoever_reads_the_notes_deals_as_the_batch_does() {
        let batch = batches(vec![wanted("a", "x"), wanted("b", "x"), wanted("c", "x")]).remove(0);
        // EC2 gives no order, and one machine is missing.
        let answered = ["i-2".to_owned(), "i-1".to_owned()];
        let dealt: Vec<_> = batch.deal(&answered).map(|(_, machine)| machine).collect();
        assert_eq!(dealt, [Some("i-1"), Some("i-2"), None]);
        for ((_, note), machine) in batch.notes().zip(dealt) {
            let read = Note::parse(&note.to_string()).unwrap();
            assert_eq!(read, note);
            assert_eq!(read.machine(&answered), machine);
        }
    }

    #[test]
    fn what_is_no_note_is_not_taken_for_one() {
        for text in ["", "abc", "abc 1", "abc 1/1", "abc 0/1001", "xyz 0/1", " 0/1", "abc -1/1"] {
            assert_eq!(Note::parse(text), None, "{text:?}");
        }
    }
}
