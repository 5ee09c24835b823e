//! Manifests as their projects commit them: every pod ends placed or with a reason.
//!
//! They are not part of the repository, see the crate `corpus`.

use crate::scratch::Scratch;

#[test]
fn every_set_of_workloads_is_read_and_each_pod_is_placed_or_has_a_reason() {
    const NAME: &str = "dovetail plan, published workloads";
    let Some(corpus) = corpus::open(NAME, "corpus/workloads") else { return };
    let corpus = corpus.canonicalize().unwrap();
    let scratch = Scratch::new();
    let mut sets: Vec<_> =
        corpus.read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    sets.sort();
    assert!(sets.len() >= 28, "{} sets", sets.len());
    let count = sets.len();
    let mut pods = (0, 0);
    for set in sets {
        let name = set.file_name().unwrap().to_string_lossy().into_owned();
        let ran = scratch.run(&["plan", "-f", set.to_str().unwrap(), "--expand-workloads", "-o", "json"]);
        assert!(!ran.stderr.contains("problem: ") || ran.code == 3, "{name}: {}", ran.stderr);
        let plan = ran.json();
        let pods_of = |list: &str| -> usize {
            plan[list].as_array().unwrap().iter().map(|entry| entry["pods"].as_array().unwrap().len()).sum()
        };
        let placed = pods_of("nodeClaims") + pods_of("existingNodes");
        let refused = plan["unschedulable"].as_array().unwrap();
        for pod in refused {
            let reasons = pod["reasons"].as_array().unwrap();
            assert!(!reasons.is_empty(), "{name}: {pod}");
            assert!(reasons.iter().all(|reason| !reason["message"].as_str().unwrap().is_empty()), "{name}: {pod}");
        }
        assert_eq!(ran.code, if refused.is_empty() { 0 } else { 3 }, "{name}: {}", ran.stderr);
        let not_used: u64 = plan["notUsed"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        assert!(placed + refused.len() > 0 || not_used > 0, "{name}: nothing was read");
        pods = (pods.0 + placed, pods.1 + refused.len());
    }
    corpus::note(NAME, &format_args!("{count} sets, {} pods placed, {} with a reason", pods.0, pods.1));
    assert!(pods.0 > 80, "{} pods placed", pods.0);
}
