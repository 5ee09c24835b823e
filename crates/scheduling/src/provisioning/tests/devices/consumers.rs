//! Claims that many pods want to use.

use serde_json::json;

use dra_sched::PoolScope::Domain;

use super::NET;
use crate::plan::Verdict;
use crate::provisioning::{
    plan,
    tests::fixture::{Fixture, exactly, gib},
};

const ZONE: &str = api::labels::ZONE;

#[test]
fn of_ten_thousand_pods_that_share_a_claim_256_get_places_and_others_are_not_concerned() {
    let mut f = Fixture::new();
    f.device_class(NET, None);
    f.instance_type("net", 4, 16).offering("a", "on-demand", 10).devices_for_nodes(NET, 2, Domain, &[ZONE]);
    f.pool("default");
    let one = json!({"requests": [exactly("r", NET, 1)]});
    f.resource_claim("popular", &one, &json!({}));
    f.claim_template("one", &one);
    for index in 0..10_000 {
        f.pod(&format!("many-{index}")).requests(1, 1 << 20).claims("popular");
    }
    f.pod("other").requests(1000, gib(1)).claims_from("one");
    let snapshot = f.snapshot();
    let made = plan(&snapshot);
    let placed: Vec<&str> =
        made.machines.iter().flat_map(|it| &it.pods).map(|pod| &*snapshot.pods[*pod].pod.name.name).collect();
    assert_eq!((placed.len(), made.refusals.len()), (257, 10_000 - 256));
    assert!(placed.contains(&"other"));
    // As many as the pods need that a machine can have at most.
    assert_eq!(made.machines.len(), 3);
    let first = &made.refusals[0];
    assert!(made.refusals.iter().all(|it| it.verdict == Verdict::DoesNotFit && it.reasons == first.reasons));
    let why = format!("{:?}", first.reasons);
    assert!(why.contains("default/popular has 256 consumers"), "{why}");
}
