//! What is said to help does: each change that is told is made, and the pod has its place.

use model::{Interner, ResourceId, ValueSet};

use super::fixture::{Fixture, gib};
use crate::plan::reason::{Need, Reason, Remedy};
use crate::provisioning::plan;
use crate::snapshot::Limit;

const ZONE: &str = api::labels::ZONE;
const TYPE: &str = api::labels::INSTANCE_TYPE;
const MOST_CPU: i64 = 1_000_000;

/// One NodePool and one pod.
#[derive(Debug, Clone)]
struct Case {
    pool_zone: Option<String>,
    min_types: u32,
    cpu_limit: i64,
    taints: Vec<&'static str>,
    daemon_zone: Option<&'static str>,
    milli_cpu: i64,
    zone: Option<&'static str>,
    tolerations: Vec<String>,
}

impl Case {
    /// All combinations of a few values of each.
    fn all() -> Vec<Self> {
        let start = Self {
            pool_zone: None,
            min_types: 0,
            cpu_limit: MOST_CPU,
            taints: Vec::new(),
            daemon_zone: None,
            milli_cpu: 1_000,
            zone: None,
            tolerations: Vec::new(),
        };
        let mut all = vec![start];
        vary(&mut all, &[None, Some("a"), Some("b")], |case, zone| case.pool_zone = zone.map(str::to_owned));
        vary(&mut all, &[0, 2, 3], |case, wanted| case.min_types = wanted);
        vary(&mut all, &[MOST_CPU, 5_000, 3_000], |case, limit| case.cpu_limit = limit);
        vary(&mut all, &[vec![], vec!["x"], vec!["x", "y"]], |case, taints| case.taints = taints);
        vary(&mut all, &[None, Some("b")], |case, zone| case.daemon_zone = zone);
        vary(&mut all, &[1_000, 7_500, 15_500, 40_000], |case, cpu| case.milli_cpu = cpu);
        vary(&mut all, &[None, Some("a"), Some("c")], |case, zone| case.zone = zone);
        all
    }

    fn fixture(&self) -> Fixture {
        let mut f = Fixture::new();
        f.instance_type("small", 4, 64).offering("a", "on-demand", 10).offering("b", "on-demand", 10);
        f.instance_type("middle", 8, 64).offering("a", "on-demand", 20);
        f.instance_type("large", 16, 64).offering("b", "on-demand", 40);
        f.pool("p");
        if let Some(zone) = &self.pool_zone {
            f.require(ZONE, "In", &[zone]);
        }
        if self.min_types > 0 {
            f.require(TYPE, "Exists", &[]).min_values(TYPE, self.min_types);
        }
        f.limit("cpu", self.cpu_limit, self.cpu_limit);
        for taint in &self.taints {
            f.taint(taint, "t");
        }
        if let Some(zone) = self.daemon_zone {
            f.daemon_set("d", 1_000, gib(1), &[(ZONE, zone)]);
        }
        self.add_pod(&mut f);
        f
    }

    fn add_pod(&self, f: &mut Fixture) {
        let mut pod = f.pod("p").requests(self.milli_cpu, gib(1));
        if let Some(zone) = self.zone {
            pod = pod.select(ZONE, zone);
        }
        for key in &self.tolerations {
            pod = pod.tolerate(key, "t");
        }
    }

    /// The remedies that are told of the pod; `None` if it has its place.
    fn remedies(&self) -> Option<(Vec<Remedy>, Fixture)> {
        let f = self.fixture();
        let plan = plan(&f.snapshot());
        let refusal = plan.refusals.first()?;
        let told = refusal.reasons.iter().find_map(|reason| match reason {
            Reason::Remedies(remedies) => Some(remedies.remedies.clone()),
            _ => None,
        });
        Some((told.unwrap_or_default(), f))
    }

    /// `None` for what nobody can do.
    fn with(mut self, need: &Need, names: &Interner) -> Option<Self> {
        match need {
            Need::Tolerate(taint) => self.tolerations.push(names.key_name(taint.key).to_owned()),
            Need::NotWanted { .. } => self.zone = None,
            Need::Allowed { values, .. } => self.pool_zone = Some(only(values, names)),
            Need::OtherTypes { .. } => self.pool_zone = None,
            Need::Less { resource: ResourceId::CPU, by, .. } => self.milli_cpu -= by,
            Need::Limit { limit: Limit::Resource(ResourceId::CPU), by } => self.cpu_limit += by,
            Need::MinValues { left, .. } => self.min_types = *left,
            Need::AnyNode
            | Need::Less { .. }
            | Need::Limit { .. }
            | Need::Daemons
            | Need::OtherPort(_)
            | Need::Devices
            | Need::Available
            | Need::PodRules => return None,
        }
        Some(self)
    }
}

fn vary<V: Clone>(all: &mut Vec<Case>, values: &[V], set: impl Fn(&mut Case, V)) {
    let varied = all.iter().flat_map(|case| {
        values.iter().map(|value| {
            let mut case = case.clone();
            set(&mut case, value.clone());
            case
        })
    });
    *all = varied.collect();
}

fn only(values: &ValueSet, names: &Interner) -> String {
    names.value_name(values.single_value().unwrap()).to_owned()
}

#[test]
fn what_is_said_to_help_does() {
    let (mut refused, mut tried) = (0, 0);
    for case in Case::all() {
        let Some((remedies, f)) = case.remedies() else { continue };
        refused += 1;
        let snapshot = f.snapshot();
        for remedy in remedies {
            let names = &snapshot.interner;
            let changed = remedy.needs.iter().try_fold(case.clone(), |case, need| case.with(need, names));
            let changed = changed.unwrap_or_else(|| panic!("{:?} of {case:?}", remedy.needs));
            assert!(changed.remedies().is_none(), "{:?} does not help {case:?}", remedy.needs);
            tried += 1;
        }
    }
    assert!(refused > 1_500 && tried > 600, "{tried} remedies of {refused} pods");
}
