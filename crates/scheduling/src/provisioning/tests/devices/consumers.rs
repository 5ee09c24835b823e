//! Claims that pods share, and how many of them can.

use expect_test::expect;
use serde_json::{Value, json};

use super::{GPU, NET};
use crate::plan::{Refusal, Verdict};
use crate::provisioning::plan;
use crate::provisioning::tests::{
    check,
    fixture::{Fixture, exactly, gib},
};

const ZONE: &str = api::labels::ZONE;

/// A node for 300 pods, with a device that a claim has, which has 250 consumers; `one` is one of them.
fn nearly_full() -> Fixture {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    f.instance_type("plain", 4, 16).offering("a", "on-demand", 10);
    f.pool("default");
    f.node("n1").allocatable(4000, gib(16));
    f.slice("n1-gpus", GPU, ("nodeName", "n1".into()), 1);
    let mut consumers: Vec<_> =
        (0..249).map(|index| json!({"resource": "pods", "name": format!("o{index}"), "uid": "o"})).collect();
    consumers.push(json!({"resource": "pods", "name": "one", "uid": "one"}));
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
    let result = json!({"request": "r", "driver": GPU, "pool": "n1-gpus", "device": "d0"});
    let allocation = json!({"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}});
    let status = json!({"allocation": allocation, "reservedFor": consumers});
    f.resource_claim("mine", &json!({"requests": [exactly("r", GPU, 1)]}), &status);
    f
}

#[test]
fn a_claim_that_is_shared_is_planned_for_256_consumers_and_no_more() {
    let mut f = nearly_full();
    f.pod("one").requests(1, 1).claims("mine");
    for index in 0..8 {
        f.pod(&format!("s{index}")).requests(1, 1).claims("mine");
    }
    f.pod("first").requests(1, 1).priority(10).claims("mine");
    check(
        &f,
        expect![[r#"
            node n1: [first, one, s0, s1, s2, s3, s4]
            refused s5 (DoesNotFit): none of 1 existing nodes fits: 1 does not have the devices it claims (claim default/mine has 256 consumers with the pods planned for it, the most that are allowed: reserve it for a PodGroup, which counts as one (gate DRAWorkloadResourceClaims)); nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim default/mine has 256 consumers with the pods planned for it, the most that are allowed: reserve it for a PodGroup, which counts as one (gate DRAWorkloadResourceClaims))
            refused s6 (DoesNotFit): none of 1 existing nodes fits: 1 does not have the devices it claims (claim default/mine has 256 consumers with the pods planned for it, the most that are allowed: reserve it for a PodGroup, which counts as one (gate DRAWorkloadResourceClaims)); nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim default/mine has 256 consumers with the pods planned for it, the most that are allowed: reserve it for a PodGroup, which counts as one (gate DRAWorkloadResourceClaims))
            refused s7 (DoesNotFit): none of 1 existing nodes fits: 1 does not have the devices it claims (claim default/mine has 256 consumers with the pods planned for it, the most that are allowed: reserve it for a PodGroup, which counts as one (gate DRAWorkloadResourceClaims)); nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim default/mine has 256 consumers with the pods planned for it, the most that are allowed: reserve it for a PodGroup, which counts as one (gate DRAWorkloadResourceClaims))
        "#]],
    );
}

#[test]
fn a_nominated_pod_is_a_consumer_of_its_claim_before_those_that_wait() {
    let mut f = nearly_full();
    f.pod("soon").requests(1, 1).claims("mine").nominated();
    for index in 0..6 {
        f.pod(&format!("s{index}")).requests(1, 1).claims("mine");
    }
    check(
        &f,
        expect![[r#"
            node n1: [s0, s1, s2, s3, s4]
            refused s5 (DoesNotFit): none of 1 existing nodes fits: 1 does not have the devices it claims (claim default/mine has 256 consumers with the pods planned for it, the most that are allowed: reserve it for a PodGroup, which counts as one (gate DRAWorkloadResourceClaims)); nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim default/mine has 256 consumers with the pods planned for it, the most that are allowed: reserve it for a PodGroup, which counts as one (gate DRAWorkloadResourceClaims))
        "#]],
    );
}

/// How many pods share a claim.
const PODS: usize = 10_000;

/// A machine to be for 110 pods, and a claim for the one device that the nodes of its zone share.
fn unallocated() -> Fixture {
    let mut f = Fixture::new();
    f.device_class(NET, None);
    f.instance_type("plain", 64, 256).offering("a", "on-demand", 10);
    f.pool("default");
    f.slice_for("net-a", NET, (ZONE, "a"), 1);
    f.resource_claim("mine", &json!({"requests": [exactly("r", NET, 1)]}), &Value::Null);
    f
}

#[test]
fn of_10_000_pods_that_share_a_claim_256_have_a_place_and_others_are_refused_without_a_search() {
    for (case, mut f, different, others, placed) in [
        ("allocated", nearly_full(), 1, 0, 6),
        ("not allocated", unallocated(), 1, 0, 256),
        ("beside others", unallocated(), 100, 450, 256),
    ] {
        f.search_steps(0);
        f.device_steps(1_000);
        for index in 0..PODS {
            f.pod(&format!("s{index}")).requests(1 + (index % different) as i64, 1).claims("mine");
        }
        for index in 0..others {
            f.pod(&format!("o{index}")).requests(200, gib(1));
        }
        let snapshot = f.snapshot();
        let plan = plan(&snapshot);
        let is_named = |refusal: &&Refusal| {
            let named = "claim default/mine has 256 consumers with the pods planned for it, the most that are allowed";
            let mut reasons = refusal.reasons.iter().map(|reason| reason.message(&snapshot.interner));
            refusal.verdict == Verdict::DoesNotFit && reasons.any(|reason| reason.contains(named))
        };
        assert_eq!(plan.refusals.len(), PODS - placed, "{case}");
        assert_eq!(plan.refusals.iter().find(|refusal| !is_named(refusal)), None, "{case}");
    }
}
