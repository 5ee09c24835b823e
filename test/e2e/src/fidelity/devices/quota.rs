//! ResourceQuotas of a scenario's namespace. One may be too small for one of the claims, or two:
//! kube-controller-manager does not make those then, kube-scheduler does not look at their pods, and there must be no
//! machine for them. Whose claims these are is decided by the order in which they are made, which nobody knows before.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod, ResourceQuota};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use seeded_random::Random;
use serde_json::{Value, json};

use crate::cluster::{Corner, DEADLINE};
use crate::eventually;

const CLAIMS: &str = "count/resourceclaims.resource.k8s.io";
const NAME: &str = "devices";
/// More than any scenario takes.
const PLENTY: u64 = 1000;

/// A quota, and how many pods it keeps out.
#[derive(Debug, Clone)]
pub(super) struct Quota {
    pub(super) object: Value,
    pub(super) kept_out: usize,
}

/// What the claims of a scenario take of quotas.
struct Usage {
    claims: u64,
    /// Of classes whose devices are asked for by number alone.
    by_class: BTreeMap<String, u64>,
}

impl Usage {
    /// Of claims that are there, and of those that are made from templates for pods.
    fn of(objects: &[Value], pods: &[Value]) -> Self {
        let named = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
        let specs: BTreeMap<&str, &Value> = named("ResourceClaimTemplate")
            .filter_map(|it| Some((it["metadata"]["name"].as_str()?, it.pointer("/spec/spec")?)))
            .collect();
        let entries = pods.iter().filter_map(|pod| pod["spec"]["resourceClaims"].as_array()).flatten();
        let made = entries.filter_map(|entry| specs.get(entry["resourceClaimTemplateName"].as_str()?).copied());
        let made: Vec<&Value> = made.chain(named("ResourceClaim").map(|claim| &claim["spec"])).collect();
        let requests = || made.iter().filter_map(|spec| spec["devices"]["requests"].as_array()).flatten();
        let mut by_class: BTreeMap<String, u64> = BTreeMap::new();
        let mut others: BTreeSet<String> = BTreeSet::new();
        for request in requests() {
            let exact = &request["exactly"];
            let class = |of: &Value| of["deviceClassName"].as_str().unwrap_or_default().to_owned();
            match exact.as_object() {
                Some(_) if exact["allocationMode"] != "All" => {
                    *by_class.entry(class(exact)).or_default() += exact["count"].as_u64().unwrap_or(1);
                }
                Some(_) => drop(others.insert(class(exact))),
                None => others.extend(request["firstAvailable"].as_array().into_iter().flatten().map(class)),
            }
        }
        by_class.retain(|class, _| !others.contains(class));
        Self { claims: made.len() as u64, by_class }
    }
}

impl Quota {
    /// `refused` says how many pods may be kept out at most. The claims of `objects` are there before the quota is.
    pub(super) fn random(
        corner: &str,
        (objects, pods): (&[Value], &[Value]),
        refused: usize,
        random: &mut Random,
    ) -> Option<Self> {
        if !random.one_in(2) {
            return None;
        }
        let Usage { claims, by_class } = Usage::of(objects, pods);
        let made = pods.iter().any(|pod| !pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"].is_null());
        let refused = if made { refused } else { 0 };
        let classes: Vec<(&String, &u64)> = by_class.iter().collect();
        let of_class = |class: &str| format!("{class}.deviceclass.resource.k8s.io/devices");
        let mut hard = json!({ CLAIMS: PLENTY.to_string() });
        for (class, _) in &classes {
            hard[of_class(class)] = PLENTY.to_string().into();
        }
        let mut kept_out = 0;
        if refused > 0 && !random.one_in(4) {
            // Of the devices of a class one is missing: the last claim that asks for some is not made.
            let is_of_pods = |class: &&(&String, &u64)| objects.iter().all(|it| !is_claim_of(it, class.0));
            match classes.iter().find(is_of_pods).filter(|_| random.one_in(2)) {
                Some((class, devices)) => {
                    hard[of_class(class)] = (*devices - 1).to_string().into();
                    kept_out = 1;
                }
                None => {
                    kept_out = 1 + random.below(refused);
                    hard[CLAIMS] = (claims - kept_out as u64).to_string().into();
                }
            }
        }
        let object = json!({ "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": { "name": NAME, "namespace": corner }, "spec": { "hard": hard } });
        Some(Self { object, kept_out })
    }

    /// Sets it, and waits until it counts what is there.
    pub(super) async fn set(&self, corner: &Corner) -> Result<()> {
        corner.apply([self.object.clone()]).await?;
        let quotas: Api<ResourceQuota> = Api::namespaced(corner.client.clone(), &corner.name);
        eventually("the quota counts", DEADLINE, async || {
            let status = quotas.get(NAME).await?.status.unwrap_or_default();
            ensure!(status.hard.is_some() && status.used.is_some(), "{status:?}");
            Ok(())
        })
        .await
    }
}

/// What the quota of a namespace counts and what there is, for people: kube-apiserver can let in more than it allows
/// while kube-controller-manager counts anew.
pub(super) async fn counted(corner: &Corner) -> Result<String> {
    let quotas: Api<ResourceQuota> = Api::namespaced(corner.client.clone(), &corner.name);
    let status = quotas.get_opt(NAME).await?.and_then(|quota| quota.status).unwrap_or_default();
    let claims: Api<ResourceClaim> = Api::namespaced(corner.client.clone(), &corner.name);
    let claims = claims.list_metadata(&ListParams::default()).await?.items.len();
    let text = |of| serde_json::to_string(&of).unwrap_or_default();
    Ok(format!("{claims} claims, {} used of {}", text(status.used), text(status.hard)))
}

fn is_claim_of(object: &Value, class: &str) -> bool {
    object["kind"] == "ResourceClaim" && object["spec"].to_string().contains(&format!("\"{class}\""))
}

/// Names of the pods whose claims a quota of the namespace forbids, as kube-controller-manager says.
pub(in crate::fidelity) async fn kept_out(corner: &Corner) -> Result<BTreeMap<String, String>> {
    let failed = ListParams::default().fields("reason=FailedResourceClaimCreation,involvedObject.kind=Pod");
    let events: Api<Event> = Api::namespaced(corner.client.clone(), &corner.name);
    let events = events.list(&failed).await?.items;
    if events.is_empty() {
        return Ok(BTreeMap::new());
    }
    // One that came too early may have been told of a quota that did not count yet.
    let has_claims = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.resource_claim_statuses.is_some());
    let with_claims: BTreeSet<String> =
        corner.pods().await?.iter().filter(|pod| has_claims(pod)).map(ResourceExt::name_any).collect();
    let of_quota = events.into_iter().filter_map(|event| {
        let message = event.message.filter(|message| message.contains("exceeded quota"))?;
        Some((event.involved_object.name.filter(|name| !with_claims.contains(name))?, message))
    });
    Ok(of_quota.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_refuses_is_short_of_what_the_claims_take() {
        let exact =
            |class: &str, count: u64| json!({ "name": "r", "exactly": { "deviceClassName": class, "count": count } });
        let template = |name: &str, request: Value| {
            json!({ "kind": "ResourceClaimTemplate", "metadata": { "name": name },
                "spec": { "spec": { "devices": { "requests": [request] } } } })
        };
        let any = json!({ "name": "r", "firstAvailable": [{ "name": "x", "deviceClassName": "nic" }] });
        let claim = json!({ "kind": "ResourceClaim", "metadata": { "name": "c" },
            "spec": { "devices": { "requests": [exact("net", 1)] } } });
        let objects = [template("two", exact("gpu", 2)), template("any", any), claim];
        let pod = |template: &str| json!({ "spec": { "resourceClaims": [{ "name": "d", "resourceClaimTemplateName": template }] } });
        let pods = [pod("two"), pod("two"), pod("any")];
        let Usage { claims, by_class } = Usage::of(&objects, &pods);
        assert_eq!((claims, by_class), (4, [("gpu".to_owned(), 4), ("net".to_owned(), 1)].into()));
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let Some(quota) = Quota::random("x", (&objects, &pods), 2, &mut Random::new(seed)) else { continue };
            let hard = &quota.object["spec"]["hard"];
            let text = |name: &str| hard[name].as_str().unwrap().to_owned();
            let short = (text(CLAIMS), text("gpu.deviceclass.resource.k8s.io/devices"), quota.kept_out);
            assert!(hard["nic.deviceclass.resource.k8s.io/devices"].is_null());
            seen.insert(short);
        }
        let expected = [("1000", "1000", 0), ("1000", "3", 1), ("2", "1000", 2), ("3", "1000", 1)];
        assert_eq!(seen, expected.map(|(claims, gpus, out)| (claims.to_owned(), gpus.to_owned(), out)).into());
    }
}
