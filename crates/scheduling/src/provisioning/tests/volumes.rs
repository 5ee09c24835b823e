//! How many volumes nodes can attach.

use super::fixture::{Fixture, gib, render};
use crate::{plan::Plan, provisioning::plan};

const DRIVER: &str = "ebs.csi.example.com";
const ZONE: &str = api::labels::ZONE;

/// Pods with a volume each.
fn pods(f: &mut Fixture, count: usize) {
    for index in 0..count {
        let name = format!("p{index}");
        f.waiting_claim(&name, DRIVER);
        f.pod(&name).requests(100, gib(1)).claim(&name);
    }
}

/// A pod whose claim waits for it, and room.
fn one_claim() -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("t", 8, 32).offering("a", "on-demand", 10);
    f.pool("p");
    f.waiting_claim("data", DRIVER);
    f.pod("pod").requests(100, gib(1)).claim("data");
    f
}

/// Why the pod has no place; empty if it has one.
fn refusal(f: &Fixture) -> String {
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    let why = |refusal: &crate::plan::Refusal| {
        let reasons: Vec<_> = refusal.reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect();
        format!("({:?}) {}", refusal.verdict, reasons.join("; "))
    };
    plan.refusals.first().map(why).unwrap_or_default()
}

fn pods_on_machines(plan: &Plan) -> Vec<usize> {
    let mut counts: Vec<usize> = plan.machines.iter().map(|machine| machine.pods.len()).collect();
    counts.sort_unstable();
    counts
}

#[test]
fn a_machine_gets_as_many_volumes_as_its_type_attaches() {
    for (limit, expected) in [(None, vec![7]), (Some(3), vec![1, 3, 3]), (Some(7), vec![7])] {
        let mut f = Fixture::new();
        f.instance_type("t", 8, 32).offering("a", "on-demand", 10);
        if let Some(limit) = limit {
            f.attaches(DRIVER, limit);
        }
        f.pool("p");
        pods(&mut f, 7);
        let found = plan(&f.snapshot());
        assert_eq!((pods_on_machines(&found), found.refusals.len()), (expected, 0), "{limit:?}");
    }
}

#[test]
fn a_dearer_type_that_attaches_more_can_be_the_cheaper_plan() {
    let mut f = Fixture::new();
    f.instance_type("few", 8, 32).offering("a", "on-demand", 10).attaches(DRIVER, 2);
    f.instance_type("many", 8, 32).offering("a", "on-demand", 15).attaches(DRIVER, 10);
    f.pool("p");
    pods(&mut f, 6);
    let found = plan(&f.snapshot());
    assert_eq!(found.price.0, 15, "{}", render(&found, &f.snapshot()));
}

#[test]
fn a_node_takes_what_it_can_attach_beside_what_it_has() {
    let mut f = Fixture::new();
    f.instance_type("t", 8, 32).offering("a", "on-demand", 10).attaches(DRIVER, 10);
    f.pool("p");
    f.node("n").allocatable(8000, gib(32)).attach_limit(DRIVER, 3);
    f.waiting_claim("there", DRIVER);
    f.pod("there").claim("there").runs();
    pods(&mut f, 5);
    let found = plan(&f.snapshot());
    let on_node: usize = found.existing.iter().map(|placement| placement.pods.len()).sum();
    assert_eq!((on_node, pods_on_machines(&found)), (2, vec![3]), "{}", render(&found, &f.snapshot()));
}

#[test]
fn volumes_that_no_machine_attaches_are_the_reason() {
    let mut f = Fixture::new();
    f.instance_type("t", 8, 32).offering("a", "on-demand", 10).attaches(DRIVER, 1);
    f.pool("p");
    for name in ["one", "two"] {
        f.waiting_claim(name, DRIVER);
    }
    f.pod("p").requests(100, gib(1)).claim("one").claim("two");
    let snapshot = f.snapshot();
    let refusal = plan(&snapshot).refusals.remove(0);
    let said: Vec<String> = refusal.reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect();
    assert_eq!(
        said,
        [
            "none of 1 instance types fits: 1 too small (attachable-volumes-csi-ebs.csi.example.com 2 wanted, \
             the largest has 1 beside daemons)",
            "it would fit a new machine with 1 less attachable-volumes-csi-ebs.csi.example.com (nodepool/p)"
        ]
    );
}

#[test]
fn what_is_asked_of_the_provider_does_not_mention_volumes() {
    let mut f = Fixture::new();
    f.instance_type("t", 8, 32).offering("a", "on-demand", 10).attaches(DRIVER, 5);
    f.pool("p");
    pods(&mut f, 2);
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    let asked: Vec<&str> = plan
        .machines
        .iter()
        .flat_map(|machine| machine.requests.iter())
        .filter(|(_, amount)| *amount > 0)
        .map(|(resource, _)| snapshot.interner.resource_name(resource))
        .collect();
    assert_eq!(asked, ["cpu", "memory", "pods"]);
}

/// Pods that all use one claim.
fn sharing(f: &mut Fixture, count: usize) {
    f.waiting_claim("shared", DRIVER);
    for index in 0..count {
        f.pod(&format!("s{index}")).requests(100, gib(1)).claim("shared");
    }
}

#[test]
fn a_volume_that_pods_share_is_attached_once_on_each_machine() {
    let mut f = Fixture::new();
    f.instance_type("t", 8, 32).offering("a", "on-demand", 10).attaches(DRIVER, 1);
    f.pool("p");
    sharing(&mut f, 7);
    let snapshot = f.snapshot();
    let found = plan(&snapshot);
    assert_eq!((pods_on_machines(&found), found.refusals.len()), (vec![7], 0), "{}", render(&found, &snapshot));
}

#[test]
fn own_volumes_and_a_shared_one_count_together() {
    let mut f = Fixture::new();
    f.instance_type("t", 8, 32).offering("a", "on-demand", 10).attaches(DRIVER, 3);
    f.pool("p");
    f.waiting_claim("shared", DRIVER);
    for index in 0..5 {
        let own = format!("own{index}");
        f.waiting_claim(&own, DRIVER);
        f.pod(&format!("p{index}")).requests(100, gib(1)).claim(&own).claim("shared");
    }
    let snapshot = f.snapshot();
    let found = plan(&snapshot);
    assert_eq!((pods_on_machines(&found), found.refusals.len()), (vec![1, 2, 2], 0), "{}", render(&found, &snapshot));
}

#[test]
fn a_volume_that_a_node_has_attached_takes_no_more_there() {
    let mut f = Fixture::new();
    f.instance_type("t", 8, 32).offering("a", "on-demand", 10).attaches(DRIVER, 1);
    f.pool("p");
    f.node("full").allocatable(8000, gib(32)).label(ZONE, "a").attach_limit(DRIVER, 1);
    f.waiting_claim("other", DRIVER);
    f.pod("other").claim("other").runs();
    f.node("has-it").allocatable(8000, gib(32)).label(ZONE, "a").attach_limit(DRIVER, 1);
    f.waiting_claim("shared", DRIVER);
    f.pod("first").claim("shared").runs();
    for index in 0..3 {
        f.pod(&format!("s{index}")).requests(100, gib(1)).claim("shared");
    }
    let snapshot = f.snapshot();
    assert_eq!(render(&plan(&snapshot), &snapshot), "node has-it: [s0, s1, s2]\n");
}

#[test]
fn a_claim_that_a_pod_mounts_twice_is_attached_once() {
    let mut f = Fixture::new();
    f.instance_type("t", 8, 32).offering("a", "on-demand", 10).attaches(DRIVER, 1);
    f.pool("p");
    f.waiting_claim("twice", DRIVER);
    f.pod("p").requests(100, gib(1)).claim("twice").claim("twice");
    assert_eq!(pods_on_machines(&plan(&f.snapshot())), [1]);
}

#[test]
fn shared_volumes_beyond_every_limit_are_the_reason() {
    let mut f = Fixture::new();
    f.instance_type("t", 8, 32).offering("a", "on-demand", 10).attaches(DRIVER, 1);
    f.pool("p");
    for name in ["one", "two"] {
        f.waiting_claim(name, DRIVER);
    }
    for name in ["p", "q"] {
        f.pod(name).requests(100, gib(1)).claim("one").claim("two");
    }
    let snapshot = f.snapshot();
    let found = plan(&snapshot);
    let said: Vec<String> = found.refusals[0].reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect();
    assert_eq!(
        said,
        [
            "none of 1 instance types fits: 1 too small (attachable-volumes-csi-ebs.csi.example.com 2 wanted, \
             the largest has 1 beside daemons)",
            "it would fit a new machine with 1 less attachable-volumes-csi-ebs.csi.example.com (nodepool/p, if rules between pods let it in there)"
        ]
    );
}

#[test]
fn room_is_made_for_pods_that_share_volumes_where_it_is_contended() {
    let mut f = Fixture::new();
    f.instance_type("t", 8, 32).offering("a", "on-demand", 10).attaches(DRIVER, 1);
    f.pool("p").limit("nodes", 0, 0);
    // Each node attaches one volume: the pods of one claim have to be together.
    for node in ["a", "b"] {
        f.node(node).allocatable(300, gib(32)).label(ZONE, "a").attach_limit(DRIVER, 1);
    }
    for claim in ["one", "two"] {
        f.waiting_claim(claim, DRIVER);
        for index in 0..3 {
            f.pod(&format!("{claim}-{index}")).requests(100, gib(1)).claim(claim);
        }
    }
    let snapshot = f.snapshot();
    let found = plan(&snapshot);
    assert_eq!(found.refusals.len(), 0, "{}", render(&found, &snapshot));
    assert_eq!(render(&found, &snapshot), "node a: [one-0, one-1, one-2]\nnode b: [two-0, two-1, two-2]\n");
}

/// kube-scheduler refuses the pod until the claim has a volume, whatever machines there are.
#[test]
fn a_claim_that_is_going_or_whose_bind_is_not_complete_is_waited_for() {
    let mut f = one_claim();
    f.volume_claim("data").is_being_deleted = true;
    assert_eq!(refusal(&f), "(Waits) PersistentVolumeClaim default/data is being deleted");
    let mut f = one_claim();
    f.volume("pv", &[]);
    f.volume_claim("data").volume_name = Some("pv".into());
    assert_eq!(
        refusal(&f),
        "(Waits) PersistentVolumeClaim default/data names PersistentVolume pv, and the two are not bound to each other yet"
    );
    f.volume_claim("data").bind_completed = true;
    assert_eq!(refusal(&f), "");
}

#[test]
fn storage_that_the_cloud_cannot_serve_is_refused_by_name() {
    let mut f = one_claim();
    assert_eq!(refusal(&f), "");
    f.options().unsupported_storage.provisioners.insert(DRIVER.into());
    let refused = "(Unsupported) PersistentVolumeClaim default/data of StorageClass standard, whose provisioner is";
    assert_eq!(refusal(&f), format!("{refused} {DRIVER}, is not planned for yet"));
    let mut f = one_claim();
    f.volume("pv", &["example.com/rack"]);
    let claim = f.volume_claim("data");
    (claim.volume_name, claim.bind_completed) = (Some("pv".into()), true);
    f.options().unsupported_storage.topology_keys.insert("example.com/rack".into());
    assert_eq!(
        refusal(&f),
        "(Unsupported) PersistentVolumeClaim default/data of PersistentVolume pv, whose node affinity goes by \
         example.com/rack, is not planned for yet"
    );
}
