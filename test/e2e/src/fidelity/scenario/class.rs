//! Pods that are alike: what they ask for, and the rules that they come with.

use seeded_random::Random;
use serde_json::{Map, Value, json};

use super::super::CLASS;
use super::{HOST, PRIORITIES, RELEASE, RUNTIME_CLASS, Rules, TEAM, ZONE, ZONES};
use crate::objects::{self, TEST_KEY};

pub(super) fn requests(random: &mut Random) -> Value {
    json!({
        "cpu": format!("{}m", *random.pick(&[100, 250, 400, 700, 1000, 1500, 3000])),
        "memory": format!("{}Mi", *random.pick(&[64, 200, 512, 1024, 3000])),
    })
}

/// The zones that the rules of a class leave its pods, as bits of [`ZONES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Zones(u8);

impl Zones {
    pub(in super::super) const ALL: Self = Self(0b1111);
    /// Those of a team's machines.
    const FIRST_TWO: Self = Self(0b0011);

    pub(in super::super) fn choose(self, random: &mut Random) -> &'static str {
        let left: Vec<&str> = self.iter().collect();
        left[random.below(left.len())]
    }

    pub(in super::super) fn iter(self) -> impl Iterator<Item = &'static str> {
        ZONES.into_iter().enumerate().filter(move |(index, _)| self.0 & (1 << index) != 0).map(|(_, zone)| zone)
    }

    fn only(zone: &str) -> Self {
        Self(ZONES.iter().position(|known| *known == zone).map_or(0, |index| 1 << index))
    }

    fn without(self, zone: &str) -> Self {
        Self(self.0 & !Self::only(zone).0)
    }

    /// Those that labels and zones leave pods with this spec, whatever volumes they have.
    pub(in super::super) fn of(spec: &Value) -> Self {
        let selector = &spec["nodeSelector"];
        let zones = match selector[ZONE].as_str() {
            Some(zone) => Self::only(zone),
            None if !selector[TEAM].is_null() => Self::FIRST_TWO,
            None => Self::ALL,
        };
        let terms = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let first = spec.pointer(terms).map(|terms| &terms[0]["matchExpressions"][0]);
        match first.filter(|first| first["key"] == ZONE && first["operator"] == "NotIn") {
            Some(first) => zones.without(first["values"][0].as_str().unwrap_or_default()),
            None => zones,
        }
    }

    pub(in super::super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn include(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What later classes, and volumes, need to know of a class.
#[derive(Debug, Clone)]
struct Known {
    app: String,
    release: &'static str,
    zones: Zones,
    /// Whether it has to be near to pods by zone.
    is_near: bool,
}

/// The classes of a scenario, one after the other. `team` says whether some machines are a team's.
#[derive(Debug)]
pub(super) struct Classes<'n> {
    name: &'n str,
    rules: Rules,
    team: bool,
    known: Vec<Known>,
}

impl<'n> Classes<'n> {
    pub(super) fn new(name: &'n str, rules: Rules, team: bool) -> Self {
        Self { name, rules, team, known: Vec::new() }
    }

    /// Pods that no machine can hold.
    pub(super) fn impossible(&self, class: u64, count: u64, random: &mut Random) -> Vec<Value> {
        let zones = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": ZONE, "operator": "NotIn", "values": [ZONES[0]] }] }] } });
        let node_selector = |key: &str, value: &str| json!({ "nodeSelector": { key: value, TEST_KEY: self.name } });
        let spec = match random.below(3) {
            0 => objects::with(node_selector(ZONE, ZONES[0]), json!({ "affinity": { "nodeAffinity": zones } })),
            1 => node_selector("fidelity.example.com/nowhere", "yes"),
            _ => node_selector("kubernetes.io/arch", "s390x"),
        };
        let app = format!("class-{class}");
        let changes =
            json!({ "metadata": { "labels": { CLASS: class.to_string(), "app": app, RELEASE: "old" } }, "spec": spec });
        let pod = |index| objects::pod(self.name, &format!("{app}-{index}"), &json!({ "cpu": "100m" }));
        (0..count).map(|index| objects::with(pod(index), changes.clone())).collect()
    }

    /// Whether a class has to be near to pods of this application by zone, so that others of it may not be anywhere.
    fn is_near(&self, app: &str) -> bool {
        self.known.iter().any(|known| known.app == app && known.is_near)
    }

    /// Whether pods that may be in these zones may be wherever pods of that application are.
    fn may_follow(&self, app: &str, zones: Zones) -> bool {
        let of_app = || self.known.iter().filter(|known| known.app == app);
        of_app().next().is_some() && of_app().all(|known| zones.include(known.zones))
    }

    /// Pods that are alike: the same requests and the same rules.
    pub(super) fn next(&mut self, class: u64, random: &mut Random) -> Vec<Value> {
        let (name, rules) = (self.name, self.rules);
        let requests = requests(random);
        // Another class may be another release of the same application: rules by application mean both then.
        let before = format!("class-{}", class.saturating_sub(1));
        let is_first_of_it = self.known.iter().filter(|known| known.app == before).count() == 1;
        let shared = rules == Rules::All && class > 0 && random.one_in(6) && is_first_of_it && !self.is_near(&before);
        let app = if shared { before } else { format!("class-{class}") };
        let release = if shared { "new" } else { "old" };
        let mut zones = Zones::ALL;
        let mut spec = Map::new();
        let mut selector = Map::new();
        let mut tolerations = json!([{ "key": TEST_KEY, "operator": "Equal", "value": name, "effect": "NoSchedule" }]);
        if self.team && random.one_in(2) {
            if random.one_in(2) {
                selector.insert(TEAM.to_owned(), json!("blue"));
                zones = Zones::FIRST_TWO;
            }
            let tolerations = tolerations.as_array_mut();
            tolerations.into_iter().for_each(|all| all.push(json!({ "key": TEAM, "operator": "Exists" })));
        }
        if random.one_in(4) {
            let zone = zones.choose(random);
            selector.insert(ZONE.to_owned(), json!(zone));
            zones = Zones::only(zone);
        }
        if random.one_in(5) {
            selector.insert("kubernetes.io/arch".to_owned(), json!(*random.pick(&["amd64", "arm64"])));
        }
        spec.insert("nodeSelector".to_owned(), selector.into());
        spec.insert("tolerations".to_owned(), tolerations);
        if random.one_in(3) && rules == Rules::All {
            let (priority, _) = PRIORITIES[usize::from(random.one_in(2))];
            spec.insert("priorityClassName".to_owned(), json!(priority));
        }
        let (node_affinity, left) = node_affinity(zones, random);
        if rules == Rules::All {
            zones = left;
        }
        let spread = (random.one_in(3) && rules == Rules::All).then(|| spread(&app, zones, random));
        let is_spread = spread.as_ref().is_some_and(is_spread_over_zones);
        spec.extend(spread.map(|it| ("topologySpreadConstraints".to_owned(), it)));
        let asking = Asking { app: &app, release, zones, is_spread, shared };
        let (mut affinity, is_near) = self.pod_affinity(class, &asking, random);
        affinity.extend(node_affinity);
        if !affinity.is_empty() && rules == Rules::All {
            spec.insert("affinity".to_owned(), affinity.into());
        }
        self.known.push(Known { app: app.clone(), release, zones, is_near: is_near && rules == Rules::All });
        if rules == Rules::All && random.one_in(8) {
            spec.insert("runtimeClassName".to_owned(), json!(RUNTIME_CLASS));
        }
        // What is asked for by the pod as a whole covers all of its containers.
        let whole = rules == Rules::All && random.one_in(8);
        let mut main = json!({ "name": "main", "image": "example.org/main" });
        if whole {
            spec.insert("resources".to_owned(), json!({ "requests": requests }));
        } else {
            main["resources"] = json!({ "requests": requests });
        }
        let mut containers = json!([main]);
        if random.one_in(8) && rules == Rules::All {
            containers[0]["ports"] = json!([{ "containerPort": 80, "hostPort": 8000 + random.below(2) }]);
        }
        if random.one_in(6) && !whole {
            let init = json!({ "cpu": "1200m", "memory": "100Mi" });
            let always = random.one_in(2).then_some("Always");
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

    /// Affinity and anti-affinity with other pods, and whether the class has to be near to some by zone.
    fn pod_affinity(&self, class: u64, asking: &Asking<'_>, random: &mut Random) -> (Map<String, Value>, bool) {
        let name = self.name;
        let other = format!("class-{}", random.below(class.max(1)));
        let detail = random.below(12);
        let kind = random.below(12);
        // Not all applications have pods.
        let is_there = self.known.iter().any(|known| known.app == other);
        let app = if is_there && matches!(kind, 1 | 3 | 5) { other.as_str() } else { asking.app };
        let (is_own, is_required_near) = (app == asking.app, matches!(kind, 2 | 3));
        // Who has to be near to others must find some, and may go wherever they may be.
        let of_release = |release: &str| self.known.iter().any(|known| known.app == app && known.release == release);
        let detail = match detail {
            0 => json!({ "namespaces": [name] }),
            1 => json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } }),
            2 if !is_required_near || is_own || of_release(asking.release) => json!({ "matchLabelKeys": [RELEASE] }),
            3 if !is_required_near || (asking.shared && is_own) => json!({ "mismatchLabelKeys": [RELEASE] }),
            _ => json!({}),
        };
        let term = |key: &str| {
            let selector = json!({ "matchLabels": { "app": app } });
            objects::with(json!({ "topologyKey": key, "labelSelector": selector }), detail.clone())
        };
        let required = |term: Value| json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] });
        let preferred = |weight: u64, term: Value| json!({ "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": weight, "podAffinityTerm": term }] });
        let may_be_near = !asking.is_spread && ((is_own && !asking.shared) || self.may_follow(app, asking.zones));
        let (key, value) = match kind {
            0 | 1 => ("podAntiAffinity", required(term(HOST))),
            2 | 3 if may_be_near => ("podAffinity", required(term(ZONE))),
            4 => ("podAntiAffinity", preferred(50, term(HOST))),
            5 => ("podAffinity", preferred(20, term(ZONE))),
            _ => return (Map::new(), false),
        };
        (Map::from_iter([(key.to_owned(), value)]), is_required_near)
    }
}

/// What the affinity of a class depends on.
struct Asking<'a> {
    app: &'a str,
    release: &'static str,
    zones: Zones,
    is_spread: bool,
    shared: bool,
}

/// Whether pods with these constraints must be spread over zones.
pub(in super::super) fn is_spread_over_zones(constraints: &Value) -> bool {
    let is_hard = |it: &Value| it["topologyKey"] == ZONE && it["whenUnsatisfiable"] == "DoNotSchedule";
    constraints.as_array().is_some_and(|all| all.iter().any(is_hard))
}

/// Constraints that pods of those zones can keep: they would be held back by empty zones that they may not go to.
fn spread(app: &str, zones: Zones, random: &mut Random) -> Value {
    let mut constraint = json!({
        "topologyKey": *random.pick(&[ZONE, ZONE, HOST]),
        "maxSkew": 1 + random.below(2),
        "whenUnsatisfiable": if random.one_in(4) { "ScheduleAnyway" } else { "DoNotSchedule" },
        "labelSelector": { "matchLabels": { "app": app } },
    });
    let may_be_in_several = zones.iter().count() > 1;
    if random.one_in(5) && constraint["whenUnsatisfiable"] == "DoNotSchedule" && may_be_in_several {
        constraint["minDomains"] = json!(2);
    }
    if random.one_in(5) {
        constraint["nodeTaintsPolicy"] = json!("Honor");
    }
    if random.one_in(6) && zones == Zones::ALL {
        constraint["nodeAffinityPolicy"] = json!("Ignore");
    }
    if random.one_in(4) {
        constraint["matchLabelKeys"] = json!([RELEASE]);
    }
    if random.one_in(6) {
        let mut second = constraint.clone();
        second["topologyKey"] = json!(if constraint["topologyKey"] == ZONE { HOST } else { ZONE });
        second["maxSkew"] = json!(2 + random.below(2));
        return json!([constraint, second]);
    }
    json!([constraint])
}

/// What nodes pods want of those in `zones`, and the zones that it leaves them.
fn node_affinity(zones: Zones, random: &mut Random) -> (Map<String, Value>, Zones) {
    let required =
        |terms: Value| json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
    let wanted = |key: &str, operator: &str, value: &str| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": [value] }] });
    let (affinity, left) = match random.below(10) {
        0 => {
            let zone = *random.pick(&ZONES);
            let left = zones.without(zone);
            if left.iter().next().is_none() {
                return (Map::new(), zones);
            }
            (required(json!([wanted(ZONE, "NotIn", zone)])), left)
        }
        1 => {
            let in_zone = wanted(ZONE, "In", ZONES[random.below(ZONES.len())]);
            let preferred = json!([{ "weight": 1 + random.below(100), "preference": in_zone }]);
            (json!({ "preferredDuringSchedulingIgnoredDuringExecution": preferred }), zones)
        }
        2 => {
            let large = wanted("karpenter.kwok.sh/instance-cpu", "Gt", "7");
            (required(json!([large, wanted(ZONE, "In", zones.choose(random))])), zones)
        }
        _ => return (Map::new(), zones),
    };
    (Map::from_iter([("nodeAffinity".to_owned(), affinity)]), left)
}
