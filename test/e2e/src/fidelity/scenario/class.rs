//! Pods that are alike: what they ask for, and the rules that they come with.

use serde_json::{Map, Value, json};

use super::super::CLASS;
use super::{HOST, PRIORITIES, RELEASE, RUNTIME_CLASS, Random, Rules, TEAM, ZONE, ZONES};
use crate::objects::{self, TEST_KEY};

pub(super) fn requests(random: &mut Random) -> Value {
    json!({
        "cpu": format!("{}m", random.choose(&[100, 250, 400, 700, 1000, 1500, 3000])),
        "memory": format!("{}Mi", random.choose(&[64, 200, 512, 1024, 3000])),
    })
}

/// Pods that are alike: the same requests and the same rules. `team` says whether some machines are a team's.
pub(super) fn class_of_pods(name: &str, class: u64, rules: Rules, team: bool, random: &mut Random) -> Vec<Value> {
    let requests = requests(random);
    // Another class may be another release of the same application: rules by application mean both then.
    let shared = rules == Rules::All && class > 0 && random.chance(6);
    let app = format!("class-{}", if shared { class - 1 } else { class });
    let release = if shared { "new" } else { "old" };
    let mut spec = Map::new();
    let mut selector = Map::new();
    let mut tolerations = json!([{ "key": TEST_KEY, "operator": "Equal", "value": name, "effect": "NoSchedule" }]);
    if random.chance(4) {
        selector.insert(ZONE.to_owned(), json!(random.choose(&ZONES)));
    }
    if random.chance(5) {
        selector.insert("kubernetes.io/arch".to_owned(), json!(random.choose(&["amd64", "arm64"])));
    }
    if team && random.chance(2) {
        if random.chance(2) {
            selector.insert(TEAM.to_owned(), json!("blue"));
        }
        let tolerations = tolerations.as_array_mut();
        tolerations.into_iter().for_each(|all| all.push(json!({ "key": TEAM, "operator": "Exists" })));
    }
    spec.insert("nodeSelector".to_owned(), selector.into());
    spec.insert("tolerations".to_owned(), tolerations);
    if random.chance(3) && rules == Rules::All {
        let (priority, _) = PRIORITIES[usize::from(random.chance(2))];
        spec.insert("priorityClassName".to_owned(), json!(priority));
    }
    if random.chance(3) && rules == Rules::All {
        spec.insert("topologySpreadConstraints".to_owned(), spread(&app, random));
    }
    let affinity = affinity(name, &app, class, random);
    if !affinity.is_empty() && rules == Rules::All {
        spec.insert("affinity".to_owned(), affinity.into());
    }
    if rules == Rules::All && random.chance(8) {
        spec.insert("runtimeClassName".to_owned(), json!(RUNTIME_CLASS));
    }
    // What is asked for by the pod as a whole covers all of its containers.
    let whole = rules == Rules::All && random.chance(8);
    let mut main = json!({ "name": "main", "image": "example.org/main" });
    if whole {
        spec.insert("resources".to_owned(), json!({ "requests": requests }));
    } else {
        main["resources"] = json!({ "requests": requests });
    }
    let mut containers = json!([main]);
    if random.chance(8) && rules == Rules::All {
        containers[0]["ports"] = json!([{ "containerPort": 80, "hostPort": 8000 + random.below(2) }]);
    }
    if random.chance(6) && !whole {
        let init = json!({ "cpu": "1200m", "memory": "100Mi" });
        let always = random.chance(2).then_some("Always");
        let mut sidecar = json!({ "name": "init", "image": "example.org/init", "resources": { "requests": init } });
        if let Some(always) = always {
            sidecar["restartPolicy"] = json!(always);
            sidecar["resources"]["requests"]["cpu"] = json!("50m");
        }
        spec.insert("initContainers".to_owned(), json!([sidecar]));
    }
    spec.insert("containers".to_owned(), containers);
    let count = 1 + random.below(12);
    (0..count)
        .map(|index| {
            let changes = json!({ "metadata": { "labels": { CLASS: class.to_string(), "app": app, RELEASE: release } }, "spec": spec });
            objects::with(objects::pod(name, &format!("class-{class}-{index}"), &json!({})), changes)
        })
        .collect()
}

fn spread(app: &str, random: &mut Random) -> Value {
    let mut constraint = json!({
        "topologyKey": random.choose(&[ZONE, ZONE, HOST]),
        "maxSkew": 1 + random.below(2),
        "whenUnsatisfiable": if random.chance(4) { "ScheduleAnyway" } else { "DoNotSchedule" },
        "labelSelector": { "matchLabels": { "app": app } },
    });
    if random.chance(5) && constraint["whenUnsatisfiable"] == "DoNotSchedule" {
        constraint["minDomains"] = json!(2);
    }
    if random.chance(5) {
        constraint["nodeTaintsPolicy"] = json!("Honor");
    }
    if random.chance(6) {
        constraint["nodeAffinityPolicy"] = json!("Ignore");
    }
    if random.chance(4) {
        constraint["matchLabelKeys"] = json!([RELEASE]);
    }
    if random.chance(6) {
        let mut second = constraint.clone();
        second["topologyKey"] = json!(if constraint["topologyKey"] == ZONE { HOST } else { ZONE });
        second["maxSkew"] = json!(2 + random.below(2));
        return json!([constraint, second]);
    }
    json!([constraint])
}

fn affinity(name: &str, app: &str, class: u64, random: &mut Random) -> Map<String, Value> {
    let mut affinity = Map::new();
    let other = format!("class-{}", random.below(class.max(1)));
    let detail = match random.below(12) {
        0 => json!({ "namespaces": [name] }),
        1 => json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } }),
        2 => json!({ "matchLabelKeys": [RELEASE] }),
        3 => json!({ "mismatchLabelKeys": [RELEASE] }),
        _ => json!({}),
    };
    let term = |app: &str, key: &str| {
        let selector = json!({ "matchLabels": { "app": app } });
        objects::with(json!({ "topologyKey": key, "labelSelector": selector }), detail.clone())
    };
    let required = |term: Value| json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] });
    let preferred = |weight: u64, term: Value| json!({ "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": weight, "podAffinityTerm": term }] });
    match random.below(12) {
        0 => drop(affinity.insert("podAntiAffinity".to_owned(), required(term(app, HOST)))),
        1 => drop(affinity.insert("podAntiAffinity".to_owned(), required(term(&other, HOST)))),
        2 => drop(affinity.insert("podAffinity".to_owned(), required(term(app, ZONE)))),
        3 => drop(affinity.insert("podAffinity".to_owned(), required(term(&other, ZONE)))),
        4 => drop(affinity.insert("podAntiAffinity".to_owned(), preferred(50, term(app, HOST)))),
        5 => drop(affinity.insert("podAffinity".to_owned(), preferred(20, term(&other, ZONE)))),
        _ => {}
    }
    match random.below(10) {
        2 => {
            let wanted = |key: &str, operator: &str, value: &str| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": [value] }] });
            let terms =
                json!([wanted("karpenter.kwok.sh/instance-cpu", "Gt", "7"), wanted(ZONE, "In", random.choose(&ZONES))]);
            let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
            affinity.insert("nodeAffinity".to_owned(), required);
        }
        0 => {
            let zones = json!([{ "matchExpressions": [{ "key": ZONE, "operator": "NotIn", "values": [random.choose(&ZONES)] }] }]);
            let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": zones } });
            affinity.insert("nodeAffinity".to_owned(), required);
        }
        1 => {
            let in_zone =
                json!({ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [random.choose(&ZONES)] }] });
            let preferred = json!([{ "weight": 1 + random.below(100), "preference": in_zone }]);
            let preferred = json!({ "preferredDuringSchedulingIgnoredDuringExecution": preferred });
            affinity.insert("nodeAffinity".to_owned(), preferred);
        }
        _ => {}
    }
    affinity
}
