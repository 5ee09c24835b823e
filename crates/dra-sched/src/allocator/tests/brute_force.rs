//! Small problems against an enumeration of all assignments that knows nothing of the engine: what is refused has no
//! assignment, and what is allocated is the first one.

use model::Budget;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::allocate;
use crate::fixture::{STEPS, claim, exactly, n1, names, slice};
use crate::inventory::InventoryBuilder;
use crate::ledger::ClusterLedger;
use crate::verdict::Verdict;
use dra_types::{Compat, DeviceClass, Gates, KubernetesMinor};

#[derive(Debug, Clone)]
struct Thing {
    model: u8,
    root: Option<u8>,
    draw: u8,
}

#[derive(Debug, Clone)]
struct Wish {
    /// None takes any.
    model: Option<u8>,
    count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    None,
    Match,
    Distinct,
}

#[derive(Debug, Clone)]
struct Problem {
    things: Vec<Thing>,
    counter: u8,
    claims: Vec<(Vec<Wish>, Rule)>,
}

impl Problem {
    /// The slots to fill, in order: claim, request, what it takes.
    fn slots(&self) -> Vec<(usize, usize, Option<u8>)> {
        let mut slots = Vec::new();
        for (claim, (wishes, _)) in self.claims.iter().enumerate() {
            for (request, wish) in wishes.iter().enumerate() {
                slots.extend((0..wish.count).map(|_| (claim, request, wish.model)));
            }
        }
        slots
    }

    /// The first assignment in order, found by trying all.
    fn first(&self) -> Option<Vec<usize>> {
        let slots = self.slots();
        let mut chosen = Vec::new();
        self.extend(&slots, &mut chosen).then_some(chosen)
    }

    fn extend(&self, slots: &[(usize, usize, Option<u8>)], chosen: &mut Vec<usize>) -> bool {
        let Some(&(claim, request, model)) = slots.get(chosen.len()) else { return self.holds(slots, chosen) };
        let same_request =
            !chosen.is_empty() && (slots[chosen.len() - 1].0, slots[chosen.len() - 1].1) == (claim, request);
        let start = if same_request { chosen[chosen.len() - 1] + 1 } else { 0 };
        for thing in start..self.things.len() {
            if chosen.contains(&thing) || model.is_some_and(|model| self.things[thing].model != model) {
                continue;
            }
            chosen.push(thing);
            if self.extend(slots, chosen) {
                return true;
            }
            chosen.pop();
        }
        false
    }

    /// Whether a complete assignment keeps every rule.
    fn holds(&self, slots: &[(usize, usize, Option<u8>)], chosen: &[usize]) -> bool {
        let drawn: u32 = chosen.iter().map(|thing| u32::from(self.things[*thing].draw)).sum();
        let constraint = |(claim, (_, rule)): (usize, &(Vec<Wish>, Rule))| {
            let of_claim = slots.iter().zip(chosen).filter(|(slot, _)| slot.0 == claim);
            let roots: Vec<Option<u8>> = of_claim.map(|(_, thing)| self.things[*thing].root).collect();
            let pairs = || (0..roots.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
            match rule {
                Rule::None => true,
                Rule::Match => roots.iter().all(Option::is_some) && pairs().all(|(a, b)| roots[a] == roots[b]),
                Rule::Distinct => roots.iter().all(Option::is_some) && pairs().all(|(a, b)| roots[a] != roots[b]),
            }
        };
        drawn <= u32::from(self.counter) && self.claims.iter().enumerate().all(constraint)
    }

    /// The engine's verdict on the problem.
    fn ask(&self, compat: Compat) -> Verdict {
        let mut builder = InventoryBuilder::new(compat);
        let class = |name: &str, expression: String| {
            let spec = json!({"selectors": [{"cel": {"expression": expression}}]});
            let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
                "spec": spec});
            DeviceClass::from_json(&object).unwrap().into()
        };
        for model in 0..3 {
            builder.class(class(&format!("m{model}"), format!("device.attributes[\"gpu\"].model == {model}")));
        }
        builder.class(class("any", "true".to_owned()));
        let device = |(index, thing): (usize, &Thing)| {
            let mut device = json!({"name": format!("d{index:02}"), "attributes": {"model": {"int": thing.model}}});
            if let Some(root) = thing.root {
                device["attributes"]["example.com/root"] = json!({"int": root});
            }
            if thing.draw > 0 {
                let counters = json!({"slots": {"value": thing.draw.to_string()}});
                device["consumesCounters"] = json!([{"counterSet": "set", "counters": counters}]);
            }
            device
        };
        let devices: Value = self.things.iter().enumerate().map(device).collect();
        let pool = json!({"name": "n1", "generation": 1, "resourceSliceCount": 2});
        let counters = json!([{"name": "set", "counters": {"slots": {"value": self.counter.to_string()}}}]);
        builder.slice(slice("a", &json!({"driver": "gpu", "nodeName": "n1", "pool": pool, "devices": devices})));
        builder
            .slice(slice("b", &json!({"driver": "gpu", "nodeName": "n1", "pool": pool, "sharedCounters": counters})));
        let mut classes = Vec::new();
        for (index, (wishes, rule)) in self.claims.iter().enumerate() {
            let request = |(request, wish): (usize, &Wish)| {
                let class = wish.model.map_or("any".to_owned(), |model| format!("m{model}"));
                exactly(&format!("r{request}"), &class, wish.count)
            };
            let requests: Vec<Value> = wishes.iter().enumerate().map(request).collect();
            let constraints = match rule {
                Rule::None => json!([]),
                Rule::Match => json!([{"matchAttribute": "example.com/root"}]),
                Rule::Distinct => json!([{"distinctAttribute": "example.com/root"}]),
            };
            let spec = json!({"requests": requests, "constraints": constraints});
            classes.push(claim(&mut builder, &format!("c{index}"), &spec));
        }
        let inventory = builder.build();
        allocate(&inventory, &n1(), &classes, &ClusterLedger::new(&inventory), &mut Budget::new(STEPS))
    }
}

fn problem() -> impl Strategy<Value = Problem> {
    let thing = (0..3u8, prop::option::weighted(0.85, 0..3u8), 0..3u8);
    let thing = thing.prop_map(|(model, root, draw)| Thing { model, root, draw });
    let wish = (prop::option::of(0..3u8), 1..=3usize).prop_map(|(model, count)| Wish { model, count });
    let rule = prop::sample::select(vec![Rule::None, Rule::None, Rule::Match, Rule::Distinct]);
    let claim = (prop::collection::vec(wish, 1..=2), rule);
    let claims = prop::collection::vec(claim, 1..=2);
    (prop::collection::vec(thing, 1..=6), 0..8u8, claims)
        .prop_map(|(things, counter, claims)| Problem { things, counter, claims })
        .prop_filter("few enough to try all", |problem| problem.slots().len() <= 6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_answer_is_the_first_of_all_assignments_or_there_is_none(problem in problem()) {
        let newest = KubernetesMinor::NEWEST;
        for compat in [Compat::fixed(), Compat::with_gates(newest, Gates::all(newest))] {
            let verdict = problem.ask(compat);
            match problem.first() {
                Some(first) => {
                    let first: Vec<String> = first.iter().map(|thing| format!("d{thing:02}")).collect();
                    prop_assert_eq!(names(&verdict), first, "{:?}", verdict);
                }
                None => prop_assert!(matches!(verdict, Verdict::Refused(_)), "{:?}", verdict),
            }
        }
    }
}
