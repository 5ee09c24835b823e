use serde_json::json;

use super::*;

/// The names that follow the workload's, the labels of the first pod of each set, and what is said of sets that cannot
/// be.
fn sets(kind: WorkloadKind, object: &Value) -> Result<Vec<(String, Value)>, String> {
    let sets = workload(object, kind).map_err(|error| error.to_string())?.unwrap_or_default();
    Ok(sets.iter().map(|set| (set.suffixes.join(" "), set.pod["metadata"]["labels"].clone())).collect())
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}})
}

#[test]
fn a_job_set_makes_the_pods_of_each_of_its_jobs() {
    let job = |name: &str, replicas: i64, parallelism: i64| {
        json!({"name": name, "replicas": replicas,
            "template": {"spec": {"parallelism": parallelism, "template": template()}}})
    };
    let set =
        |jobs: &[Value]| json!({"metadata": {"name": "train", "namespace": "ml"}, "spec": {"replicatedJobs": jobs}});
    let labels = |name: &str, replicas: &str, index: &str| {
        json!({"app": "a", "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/replicatedjob-name": name,
            "jobset.sigs.k8s.io/replicatedjob-replicas": replicas, "jobset.sigs.k8s.io/job-index": index})
    };
    assert_eq!(
        sets(WorkloadKind::JobSet, &set(&[job("driver", 1, 1), job("worker", 2, 3)])),
        Ok(vec![
            ("driver-0-0".to_owned(), labels("driver", "1", "0")),
            ("worker-0-0 worker-0-1 worker-0-2".to_owned(), labels("worker", "2", "0")),
            ("worker-1-0 worker-1-1 worker-1-2".to_owned(), labels("worker", "2", "1")),
        ])
    );
    let error = sets(WorkloadKind::JobSet, &set(&[job("a", 50_000, 2), job("b", 1, 1)])).unwrap_err();
    assert_eq!(error, "JobSet ml/train: spec.replicatedJobs[1].replicas: 100001 is not between 0 and 100000");
    let mut suspended = set(&[job("worker", 2, 3)]);
    suspended["spec"]["suspend"] = json!(true);
    assert_eq!(sets(WorkloadKind::JobSet, &suspended), Ok(vec![]));
}

#[test]
fn a_leader_worker_set_makes_groups_of_a_leader_and_its_workers() {
    let mut object = json!({"metadata": {"name": "llm", "namespace": "ml"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": template()}}});
    let labels = |app: &str, group: &str| {
        json!({"app": app, "leaderworkerset.sigs.k8s.io/name": "llm",
            "leaderworkerset.sigs.k8s.io/group-index": group})
    };
    let group = |leader: &str, index: &str| {
        let workers = format!("{index}-1 {index}-2");
        [(index.to_owned(), labels(leader, index)), (workers, labels("a", index))]
    };
    assert_eq!(sets(WorkloadKind::LeaderWorkerSet, &object), Ok([group("a", "0"), group("a", "1")].concat()));
    let mut leader = template();
    leader["metadata"]["labels"]["app"] = json!("leader");
    object["spec"]["leaderWorkerTemplate"]["leaderTemplate"] = leader;
    assert_eq!(sets(WorkloadKind::LeaderWorkerSet, &object), Ok([group("leader", "0"), group("leader", "1")].concat()));
    object["spec"]["leaderWorkerTemplate"]["size"] = json!(60_000);
    let error = sets(WorkloadKind::LeaderWorkerSet, &object).unwrap_err();
    assert_eq!(error, "LeaderWorkerSet ml/llm: spec.replicas: 120000 is not between 0 and 100000");
}

#[test]
fn replication_controllers_make_their_replicas_and_stateful_sets_count_from_their_first_ordinal() {
    let object = json!({"metadata": {"name": "old"}, "spec": {"replicas": 2, "template": template()}});
    let suffixes = |kind, object: &Value| sets(kind, object).unwrap().remove(0).0;
    assert_eq!(suffixes(WorkloadKind::ReplicationController, &object), "0 1");
    let object = json!({"metadata": {"name": "db"},
        "spec": {"replicas": 2, "ordinals": {"start": 5}, "template": template()}});
    assert_eq!(suffixes(WorkloadKind::StatefulSet, &object), "5 6");
}
