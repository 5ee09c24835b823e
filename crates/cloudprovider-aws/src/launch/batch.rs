//! Launches that share a request, and how a crash between any two steps loses no machine.
//!
//! EC2 has few tokens for `CreateFleet`, so equal requests become one for many machines. Before the call a batch is
//! written down whole: its client token, its claims in order, its request. Whoever comes after a crash repeats the call
//! with that token and that request, and EC2 gives the answer that it gave the first time, not new machines. Machines
//! are dealt out from that answer alone. A list of machines is not used for it, because EC2's lists lag, and a list
//! that lacks one would shift the others.
//!
//! The request is written down, not made again: prices, stock-outs and subnets change with time, and EC2 refuses a
//! token that comes with another request.
//!
//! Differs: `launch-records`. Karpenter batches in memory, and after a crash machines without a NodeClaim are removed
//! and launched again.

use std::collections::BTreeMap;

use model::{NodeClaimName, Timestamp, Uid};
use serde::{Deserialize, Serialize};

use super::digest;
use super::fleet::FleetRequest;
use super::template::TemplateKey;
use crate::names;

/// Most machines of one request.
pub const MAX_CLAIMS: usize = 1000;

/// A launch that waits for others of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The NodeClaim.
    pub claim: Claim,
    /// What is asked for.
    pub request: FleetRequest,
    /// What each launch template is for, by its name.
    pub templates: BTreeMap<String, TemplateKey>,
}

/// A NodeClaim that a machine is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Claim {
    /// Its UID, the token of its launch.
    pub uid: Uid,
    /// Its name.
    pub name: NodeClaimName,
}

/// Launches that become one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Makes the call idempotent, and is a tag of the machines. EC2 takes up to 64 characters.
    pub token: String,
    /// The claims, ordered by UID; the first gets the first machine.
    pub claims: Vec<Claim>,
    /// What is asked for, as many times as there are claims.
    pub request: FleetRequest,
    /// What each launch template is for, by its name.
    pub templates: BTreeMap<String, TemplateKey>,
}

/// When batches are made, and what no other time and process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Occasion {
    /// The time.
    pub now: Timestamp,
    /// A number that is never used twice.
    pub number: u64,
}

/// Groups launches with equal requests. Batches are ordered by token, and do not depend on the order of the launches; a
/// claim that is there twice counts once. On another occasion the batches have other tokens, since a token is for one
/// answer.
pub fn batches(wanted: Vec<Wanted>, occasion: Occasion) -> Vec<Batch> {
    type Group = (FleetRequest, BTreeMap<String, TemplateKey>, BTreeMap<Uid, Claim>);
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for Wanted { claim, request, templates } in wanted {
        let group = groups.entry(digest(&request)).or_insert_with(|| (request, templates, BTreeMap::new()));
        group.2.insert(claim.uid.clone(), claim);
    }
    let mut batches = Vec::new();
    for (of_request, (request, templates, claims)) in groups {
        let claims: Vec<_> = claims.into_values().collect();
        for chunk in claims.chunks(MAX_CLAIMS) {
            let token = token(&digest(&(&of_request, chunk, occasion)), occasion.now);
            let mut request = request.clone();
            request.tags.insert(names::LAUNCH_TOKEN.to_owned(), token.clone());
            batches.push(Batch { token, claims: chunk.to_vec(), request, templates: templates.clone() });
        }
    }
    batches.sort_by(|a, b| a.token.cmp(&b.token));
    batches
}

/// A token ends with its time in milliseconds: when its machines were asked for is then known of every machine, from
/// the first moment on.
fn token(digest: &str, now: Timestamp) -> String {
    format!("{digest}-{}", now.0)
}

/// When the machines of a token were asked for; none if it is not one of ours.
pub fn launched_at(token: &str) -> Option<Timestamp> {
    let (digest, time) = token.split_once('-')?;
    let is_digest = !digest.is_empty() && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    time.parse().ok().filter(|_| is_digest).map(Timestamp)
}

impl Batch {
    /// What the launch template is for that a machine of this type in this zone came from.
    pub fn template_of(&self, instance_type: &str, zone: &str) -> Option<&TemplateKey> {
        let config =
            self.request.configs.iter().find(|config| {
                config.overrides.iter().any(|it| it.instance_type == instance_type && it.zone == zone)
            })?;
        self.templates.get(&config.launch_template)
    }

    /// Which claim gets which of the machines that the call answered with. Claims are served in their order; those for
    /// whom none is left get none.
    pub fn deal<'a>(&'a self, machines: &'a [String]) -> impl Iterator<Item = (&'a Claim, Option<&'a str>)> {
        let mut machines: Vec<_> = machines.iter().map(String::as_str).collect();
        machines.sort_unstable();
        self.claims.iter().enumerate().map(move |(index, claim)| (claim, machines.get(index).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::fleet::{Choice, Purchase};

    const OCCASION: Occasion = Occasion { now: Timestamp(1_700_000_000_000), number: 1 };

    fn request(context: &str) -> FleetRequest {
        FleetRequest {
            configs: Vec::new(),
            purchase: Purchase::Spot(Choice::ByPrice),
            tags: BTreeMap::new(),
            context: Some(context.to_owned()),
        }
    }

    fn wanted(claim: &str, context: &str) -> Wanted {
        let claim = Claim { uid: claim.into(), name: claim.into() };
        Wanted { claim, request: request(context), templates: BTreeMap::new() }
    }

    fn uids(batch: &Batch) -> Vec<Uid> {
        batch.claims.iter().map(|claim| claim.uid.clone()).collect()
    }

    #[test]
    fn equal_requests_become_one_whatever_their_order() {
        let all = [wanted("c", "x"), wanted("a", "x"), wanted("b", "y"), wanted("a", "x")];
        let forth = batches(all.to_vec(), OCCASION);
        let back = batches(all.into_iter().rev().collect(), OCCASION);
        assert_eq!(forth, back);
        let mut claims: Vec<_> = forth.iter().map(uids).collect();
        claims.sort();
        assert_eq!(claims, [vec!["a".into(), "c".into()], vec!["b".into()]] as [Vec<Uid>; 2]);
        assert!(forth.iter().all(|batch| batch.token.len() <= 64));
        assert!(forth.iter().all(|batch| batch.request.tags[names::LAUNCH_TOKEN] == batch.token));
    }

    #[test]
    fn a_token_is_for_these_claims_this_request_and_this_occasion() {
        let token = |wanted: Wanted, occasion| batches(vec![wanted], occasion).remove(0).token;
        let first = token(wanted("a", "x"), OCCASION);
        assert_eq!(token(wanted("a", "x"), OCCASION), first);
        assert_ne!(token(wanted("b", "x"), OCCASION), first);
        assert_ne!(token(wanted("a", "y"), OCCASION), first);
        assert_ne!(token(wanted("a", "x"), Occasion { number: 2, ..OCCASION }), first);
        assert_eq!(launched_at(&first), Some(OCCASION.now));
    }

    #[test]
    fn what_is_no_token_of_ours_tells_no_time() {
        for text in ["", "abc", "-1", "xyz-1", "abc-", "abc-x"] {
            assert_eq!(launched_at(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_batch_is_no_larger_than_ec2_takes() {
        let all = (0..2500).map(|index| wanted(&format!("{index:04}"), "x")).collect();
        let mut sizes: Vec<_> = batches(all, OCCASION).iter().map(|batch| batch.claims.len()).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [500, 1000, 1000]);
    }

    #[test]
    fn whoever_reads_what_was_written_down_deals_as_the_batch_does() {
        let batch = batches(vec![wanted("a", "x"), wanted("b", "x"), wanted("c", "x")], OCCASION).remove(0);
        let read: Batch = serde_json::from_str(&serde_json::to_string(&batch).unwrap()).unwrap();
        assert_eq!(read, batch);
        // EC2 gives no order, and one machine is missing.
        let answered = ["i-2".to_owned(), "i-1".to_owned()];
        let dealt: Vec<_> = read.deal(&answered).map(|(claim, machine)| (claim.uid.as_str(), machine)).collect();
        assert_eq!(dealt, [("a", Some("i-1")), ("b", Some("i-2")), ("c", None)]);
    }
}
