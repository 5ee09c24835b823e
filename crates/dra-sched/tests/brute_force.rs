//! Small problems against an enumeration of every assignment that knows nothing of the engine: alternatives, taints,
//! shares of capacity, counters. What is refused has no assignment; what is allocated is the first one.
//!
//! Attributes and constraints are enumerated in the crate's own tests.

use std::sync::Arc;

use dra_sched::{ClusterLedger, InventoryBuilder, Verdict, allocate};
use dra_types::{Compat, DeviceClass, Gates, KubernetesMinor, NodeFacts, ResourceClaim, ResourceSlice};
use model::Budget;
use proptest::prelude::*;
use serde_json::{Value, json};

const STEPS: u64 = 200_000;

#[derive(Debug, Clone)]
struct Thing {
    model: u8,
    tainted: bool,
    shareable: bool,
    memory: Option<u8>,
    draw: u8,
}

/// One way to satisfy a request.
#[derive(Debug, Clone)]
struct Wish {
    model: Option<u8>,
    count: usize,
    tolerates: bool,
    memory: Option<u8>,
}

#[derive(Debug, Clone)]
struct Problem {
    things: Vec<Thing>,
    counter: u8,
    /// Claims, their requests, the alternatives of each.
    claims: Vec<Vec<Vec<Wish>>>,
}

/// What was chosen: the alternative of each request, and which thing each of its devices is.
type Choice = Vec<(usize, Vec<usize>)>;

impl Problem {
    fn requests(&self) -> Vec<&[Wish]> {
        self.claims.iter().flatten().map(Vec::as_slice).collect()
    }

    /// The first choice in order that keeps every rule.
    fn first(&self) -> Option<Choice> {
        let mut choice = Vec::new();
        self.extend(&self.requests(), &mut choice).then_some(choice)
    }

    fn extend(&self, requests: &[&[Wish]], choice: &mut Choice) -> bool {
        let Some(alternatives) = requests.get(choice.len()) else { return self.holds(requests, choice) };
        for (index, wish) in alternatives.iter().enumerate() {
            for things in combinations(self.things.len(), wish.count) {
                choice.push((index, things));
                if self.extend(requests, choice) {
                    return true;
                }
                choice.pop();
            }
        }
        false
    }

    /// Whether a complete choice keeps every rule.
    fn holds(&self, requests: &[&[Wish]], choice: &Choice) -> bool {
        let mut uses: Vec<Vec<&Wish>> = vec![Vec::new(); self.things.len()];
        for (alternatives, (alternative, things)) in requests.iter().zip(choice) {
            things.iter().for_each(|thing| uses[*thing].push(&alternatives[*alternative]));
        }
        let used = || self.things.iter().zip(&uses).filter(|(_, wishes)| !wishes.is_empty());
        let fits = |(thing, wishes): (&Thing, &Vec<&Wish>)| {
            let each = wishes.iter().all(|wish| {
                wish.model.is_none_or(|model| model == thing.model)
                    && (wish.tolerates || !thing.tainted)
                    && wish.memory.is_none_or(|memory| thing.memory.is_some_and(|has| memory <= has))
            });
            // Who asks for nothing in particular gets all of it.
            let taken: u32 = wishes.iter().map(|wish| u32::from(wish.memory.or(thing.memory).unwrap_or(0))).sum();
            let together =
                if thing.shareable { taken <= u32::from(thing.memory.unwrap_or(0)) } else { wishes.len() == 1 };
            each && together
        };
        let drawn: u32 = used().map(|(thing, _)| u32::from(thing.draw)).sum();
        drawn <= u32::from(self.counter) && used().all(fits)
    }

    /// The engine's verdict on the problem.
    fn ask(&self, compat: Compat) -> Verdict {
        let mut builder = InventoryBuilder::new(compat);
        for model in 0..3 {
            let expression = format!("device.attributes[\"gpu\"].model == {model}");
            let spec = json!({"selectors": [{"cel": {"expression": expression}}]});
            builder
                .class(Arc::new(DeviceClass::from_json(&object("DeviceClass", &format!("m{model}"), spec)).unwrap()));
        }
        builder.class(Arc::new(DeviceClass::from_json(&object("DeviceClass", "any", json!({}))).unwrap()));
        let devices: Value = self.things.iter().enumerate().map(device).collect();
        let pool = json!({"name": "n1", "generation": 1, "resourceSliceCount": 2});
        let counters = json!([{"name": "set", "counters": {"slots": {"value": self.counter.to_string()}}}]);
        for (name, field, value) in [("a", "devices", devices), ("b", "sharedCounters", counters)] {
            let spec = json!({"driver": "gpu", "nodeName": "n1", "pool": pool, field: value});
            builder.slice(Arc::new(ResourceSlice::from_json(&object("ResourceSlice", name, spec)).unwrap()));
        }
        let mut classes = Vec::new();
        for (index, requests) in self.claims.iter().enumerate() {
            let requests: Vec<Value> = requests.iter().enumerate().map(request).collect();
            let spec = json!({"devices": {"requests": requests}});
            let name = format!("c{index}");
            let claim = ResourceClaim::from_json(&object("ResourceClaim", &name, spec)).unwrap();
            classes.push(builder.claim_class(&name, &Arc::new(claim.spec), None));
        }
        let inventory = builder.build();
        let node = NodeFacts { name: Some("n1".into()), ..NodeFacts::default() };
        allocate(&inventory, &node, &classes, &ClusterLedger::new(&inventory), &mut Budget::new(STEPS))
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn device((index, thing): (usize, &Thing)) -> Value {
    let mut device = json!({"name": format!("d{index:02}"), "attributes": {"model": {"int": thing.model}}});
    if thing.tainted {
        device["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
    }
    if thing.shareable {
        device["allowMultipleAllocations"] = true.into();
    }
    if let Some(memory) = thing.memory {
        device["capacity"] = json!({"mem": {"value": memory.to_string()}});
    }
    if thing.draw > 0 {
        let counters = json!({"slots": {"value": thing.draw.to_string()}});
        device["consumesCounters"] = json!([{"counterSet": "set", "counters": counters}]);
    }
    device
}

fn request((index, alternatives): (usize, &Vec<Wish>)) -> Value {
    let exact = |wish: &Wish| {
        let class = wish.model.map_or("any".to_owned(), |model| format!("m{model}"));
        let mut exact = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": wish.count});
        if wish.tolerates {
            exact["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
        }
        if let Some(memory) = wish.memory {
            exact["capacity"] = json!({"requests": {"mem": memory.to_string()}});
        }
        exact
    };
    if let [wish] = alternatives.as_slice() {
        return json!({"name": format!("r{index}"), "exactly": exact(wish)});
    }
    let named = |(index, wish): (usize, &Wish)| {
        let mut exact = exact(wish);
        exact["name"] = format!("s{index}").into();
        exact
    };
    let alternatives: Vec<Value> = alternatives.iter().enumerate().map(named).collect();
    json!({"name": format!("r{index}"), "firstAvailable": alternatives})
}

/// All ways to take `count` of `total` in ascending order, the first ones first.
fn combinations(total: usize, count: usize) -> Vec<Vec<usize>> {
    fn extend(from: usize, total: usize, count: usize, chosen: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if chosen.len() == count {
            all.push(chosen.clone());
            return;
        }
        for next in from..total {
            chosen.push(next);
            extend(next + 1, total, count, chosen, all);
            chosen.pop();
        }
    }
    let mut all = Vec::new();
    extend(0, total, count, &mut Vec::new(), &mut all);
    all
}

/// What the engine gave, in the form of a choice.
fn given(verdict: &Verdict) -> Option<Vec<(String, String)>> {
    let Verdict::Allocated { allocations, .. } = verdict else { return None };
    let results = allocations.iter().flat_map(|allocation| &allocation.results);
    Some(results.map(|result| (result.request.to_string(), result.device.device.to_string())).collect())
}

fn expected(problem: &Problem, choice: &Choice) -> Vec<(String, String)> {
    let mut requests = problem.claims.iter().flat_map(|requests| requests.iter().enumerate());
    let mut all = Vec::new();
    for (alternative, things) in choice {
        let (index, alternatives) = requests.next().unwrap();
        let name = if alternatives.len() == 1 { format!("r{index}") } else { format!("r{index}/s{alternative}") };
        all.extend(things.iter().map(|thing| (name.clone(), format!("d{thing:02}"))));
    }
    all
}

fn problem() -> impl Strategy<Value = Problem> {
    let thing = (0..3u8, prop::bool::weighted(0.2), prop::bool::weighted(0.4), prop::option::of(1..8u8), 0..3u8);
    let thing =
        thing.prop_map(|(model, tainted, shareable, memory, draw)| Thing { model, tainted, shareable, memory, draw });
    let wish = (prop::option::of(0..3u8), 1..=2usize, prop::bool::weighted(0.3), prop::option::weighted(0.4, 1..6u8));
    let wish = wish.prop_map(|(model, count, tolerates, memory)| Wish { model, count, tolerates, memory });
    let request = prop::collection::vec(wish, 1..=2);
    let claims = prop::collection::vec(prop::collection::vec(request, 1..=2), 1..=2);
    (prop::collection::vec(thing, 1..=5), 0..8u8, claims)
        .prop_map(|(things, counter, claims)| Problem { things, counter, claims })
        .prop_filter("few enough to try all", |problem| problem.requests().len() <= 3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_answer_is_the_first_of_all_choices_or_there_is_none(problem in problem()) {
        let newest = KubernetesMinor::NEWEST;
        let first = problem.first();
        for compat in [Compat::fixed(), Compat::with_gates(newest, Gates::all(newest))] {
            let verdict = problem.ask(compat);
            match &first {
                Some(choice) => prop_assert_eq!(given(&verdict), Some(expected(&problem, choice)), "{:?}", verdict),
                None => prop_assert!(matches!(verdict, Verdict::Refused(_)), "{:?}", verdict),
            }
        }
    }
}
