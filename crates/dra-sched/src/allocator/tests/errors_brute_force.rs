//! Small problems in which upstream may answer with an error, against a walk that follows upstream's rules and leaves
//! nothing out: the same devices, the same refusal, or an error of the same kind.

use model::Budget;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::allocate;
use crate::faults::Fault;
use crate::fixture::{STEPS, claim, n1, names, slice};
use crate::inventory::InventoryBuilder;
use crate::ledger::ClusterLedger;
use crate::verdict::{Refusal, Verdict};
use dra_types::{Compat, DeviceClass, DeviceId, Gates, KubernetesMinor};

#[derive(Debug, Clone)]
struct Thing {
    /// Selectors fail on a thing without.
    model: Option<u8>,
    root: Option<u8>,
    taken: bool,
}

/// One way to serve a request.
#[derive(Debug, Clone)]
struct Wish {
    /// None takes any, and asks for no model.
    model: Option<u8>,
    /// None for all.
    count: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    Match,
    Distinct,
}

/// A claim: its requests with the alternatives of each, and a constraint on all of them or on the last one.
#[derive(Debug, Clone)]
struct Claim {
    requests: Vec<Vec<Wish>>,
    rule: Option<(Rule, Covers)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Covers {
    AllRequests,
    TheLast,
}

#[derive(Debug, Clone)]
struct Problem {
    things: Vec<Thing>,
    claims: Vec<Claim>,
}

/// Why a walk ends.
#[derive(Debug, PartialEq)]
enum End {
    /// With these things, in order.
    Found(Vec<usize>),
    Exhausted,
    Selector,
    Violation,
}

/// A walk in upstream's order, without any shortcut.
struct Walk<'p> {
    problem: &'p Problem,
    /// What was picked: claim, request, thing.
    picked: Vec<(usize, usize, usize)>,
}

impl Walk<'_> {
    /// What a wish says of a thing: None if its selector fails.
    fn judge(&self, wish: &Wish, thing: usize) -> Option<bool> {
        match wish.model {
            None => Some(true),
            Some(model) => self.problem.things[thing].model.map(|of| of == model),
        }
    }

    /// The things of a request for all; None if a selector fails.
    fn all(&self, wish: &Wish) -> Option<Vec<usize>> {
        let mut all = Vec::new();
        for thing in 0..self.problem.things.len() {
            if self.judge(wish, thing)? {
                all.push(thing);
            }
        }
        Some(all)
    }

    fn is_in_use(&self, thing: usize) -> bool {
        self.problem.things[thing].taken || self.picked.iter().any(|(_, _, picked)| *picked == thing)
    }

    fn admits(&self, claim: usize, request: usize, thing: usize) -> bool {
        let of = &self.problem.claims[claim];
        let covers = |rule: Covers, request: usize| rule == Covers::AllRequests || request + 1 == of.requests.len();
        let Some((rule, covered)) = of.rule.filter(|(_, covered)| covers(*covered, request)) else { return true };
        let root = |thing: usize| self.problem.things[thing].root;
        let others = self.picked.iter().filter(|(of, request, _)| *of == claim && covers(covered, *request));
        root(thing).is_some()
            && others.into_iter().all(|(_, _, other)| match rule {
                Rule::Match => root(*other) == root(thing),
                Rule::Distinct => root(*other) != root(thing),
            })
    }

    fn begin(&mut self) -> End {
        let wishes = self.problem.claims.iter().flat_map(|claim| &claim.requests).flatten();
        // All devices are looked for before anything is picked.
        if wishes.filter(|wish| wish.count.is_none()).any(|wish| self.all(wish).is_none()) {
            return End::Selector;
        }
        self.request(0, 0)
    }

    fn request(&mut self, claim: usize, request: usize) -> End {
        let Some(of) = self.problem.claims.get(claim) else {
            return End::Found(self.picked.iter().map(|(_, _, thing)| *thing).collect());
        };
        let Some(wishes) = of.requests.get(request) else { return self.request(claim + 1, 0) };
        for wish in wishes {
            let end = match wish.count {
                Some(count) => self.some((claim, request), wish, count, 0),
                None => {
                    let all = self.all(wish).unwrap_or_default();
                    if all.is_empty() { End::Exhausted } else { self.all_of((claim, request), &all) }
                }
            };
            if end != End::Exhausted {
                return end;
            }
        }
        End::Exhausted
    }

    fn all_of(&mut self, (claim, request): (usize, usize), all: &[usize]) -> End {
        let Some((&thing, rest)) = all.split_first() else { return self.request(claim, request + 1) };
        if self.is_in_use(thing) {
            return End::Exhausted;
        }
        if !self.admits(claim, request, thing) {
            return End::Violation;
        }
        self.picked.push((claim, request, thing));
        let end = self.all_of((claim, request), rest);
        if !matches!(end, End::Found(_)) {
            self.picked.pop();
        }
        end
    }

    fn some(&mut self, (claim, request): (usize, usize), wish: &Wish, left: usize, start: usize) -> End {
        if left == 0 {
            return self.request(claim, request + 1);
        }
        for thing in start..self.problem.things.len() {
            if self.is_in_use(thing) {
                continue;
            }
            match self.judge(wish, thing) {
                None => return End::Selector,
                Some(false) => continue,
                Some(true) => {}
            }
            if !self.admits(claim, request, thing) {
                continue;
            }
            self.picked.push((claim, request, thing));
            let end = self.some((claim, request), wish, left - 1, thing + 1);
            if end != End::Exhausted {
                return end;
            }
            self.picked.pop();
        }
        End::Exhausted
    }
}

impl Wish {
    fn to_json(&self) -> Value {
        let mut exact = json!({"deviceClassName": self.model.map_or("any".to_owned(), |model| format!("m{model}"))});
        match self.count {
            Some(count) => exact["count"] = count.into(),
            None => exact["allocationMode"] = "All".into(),
        }
        exact
    }
}

impl Claim {
    fn to_json(&self) -> Value {
        let request = |(index, wishes): (usize, &Vec<Wish>)| {
            let name = format!("r{index}");
            if let [only] = wishes.as_slice() {
                return json!({"name": name, "exactly": only.to_json()});
            }
            let alternative = |(index, wish): (usize, &Wish)| {
                let mut wish = wish.to_json();
                wish["name"] = format!("a{index}").into();
                wish
            };
            json!({"name": name, "firstAvailable": wishes.iter().enumerate().map(alternative).collect::<Vec<_>>()})
        };
        let last = format!("r{}", self.requests.len() - 1);
        let constraint = |(rule, covers): (Rule, Covers)| {
            let kind = match rule {
                Rule::Match => "matchAttribute",
                Rule::Distinct => "distinctAttribute",
            };
            match covers {
                Covers::AllRequests => json!({kind: "example.com/root"}),
                Covers::TheLast => json!({kind: "example.com/root", "requests": [last]}),
            }
        };
        let constraints: Vec<Value> = self.rule.map(constraint).into_iter().collect();
        json!({
            "requests": self.requests.iter().enumerate().map(request).collect::<Vec<_>>(), "constraints": constraints,
        })
    }
}

impl Problem {
    /// How the engine ends.
    fn ask(&self, compat: Compat) -> (End, Verdict) {
        let mut builder = InventoryBuilder::new(compat);
        let class = |name: &str, expression: String| {
            let spec = json!({"selectors": [{"cel": {"expression": expression}}]});
            let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
                "spec": spec});
            DeviceClass::from_json(&object).unwrap().into()
        };
        for model in 0..2 {
            builder.class(class(&format!("m{model}"), format!("device.attributes[\"gpu\"].model == {model}")));
        }
        builder.class(class("any", "true".to_owned()));
        let name = |index: usize| format!("d{index:02}");
        let device = |(index, thing): (usize, &Thing)| {
            let mut attributes = json!({});
            if let Some(model) = thing.model {
                attributes["model"] = json!({"int": model});
            }
            if let Some(root) = thing.root {
                attributes["example.com/root"] = json!({"int": root});
            }
            json!({"name": name(index), "attributes": attributes})
        };
        let devices: Value = self.things.iter().enumerate().map(device).collect();
        let pool = json!({"name": "n1", "generation": 1, "resourceSliceCount": 1});
        builder.slice(slice("a", &json!({"driver": "gpu", "nodeName": "n1", "pool": pool, "devices": devices})));
        let claims = self.claims.iter().enumerate();
        let classes: Vec<_> =
            claims.map(|(index, of)| claim(&mut builder, &format!("c{index}"), &of.to_json())).collect();
        let inventory = builder.build();
        let mut ledger = ClusterLedger::new(&inventory);
        for (index, _) in self.things.iter().enumerate().filter(|(_, thing)| thing.taken) {
            let device = name(index).as_str().into();
            ledger.hold_device(&inventory, &DeviceId { driver: "gpu".into(), pool: "n1".into(), device });
        }
        let verdict = allocate(&inventory, &n1(), &classes, &ledger, &mut Budget::new(STEPS));
        let end = match &verdict {
            Verdict::Allocated { .. } => {
                End::Found(names(&verdict).iter().map(|name| name[1..].parse().unwrap()).collect())
            }
            Verdict::Refused(Refusal::Infeasible(_)) => End::Exhausted,
            Verdict::Refused(Refusal::Fault(Fault::Selector(_))) => End::Selector,
            Verdict::Refused(Refusal::Fault(Fault::AllUnderConstraint { .. })) => End::Violation,
            other => panic!("{other:?}"),
        };
        (end, verdict)
    }
}

fn problem() -> impl Strategy<Value = Problem> {
    let model = prop::option::weighted(0.8, 0..2u8);
    let thing = (model, prop::option::weighted(0.9, 0..2u8), prop::bool::weighted(0.15));
    let thing = thing.prop_map(|(model, root, taken)| Thing { model, root, taken });
    let count = prop::option::weighted(0.75, 1..=2usize);
    let wish = (prop::option::weighted(0.5, 0..2u8), count).prop_map(|(model, count)| Wish { model, count });
    let request = prop::collection::vec(wish, 1..=2);
    let covers = prop::sample::select(vec![Covers::AllRequests, Covers::TheLast]);
    let rule = prop::option::of((prop::sample::select(vec![Rule::Match, Rule::Match, Rule::Distinct]), covers));
    let claim = (prop::collection::vec(request, 1..=3), rule).prop_map(|(requests, rule)| Claim { requests, rule });
    let claims = prop::collection::vec(claim, 1..=3);
    (prop::collection::vec(thing, 1..=6), claims).prop_map(|(things, claims)| Problem { things, claims })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_walk_ends_as_one_that_leaves_nothing_out(problem in problem()) {
        let newest = KubernetesMinor::NEWEST;
        for compat in [Compat::new(newest), Compat::with_gates(newest, Gates::all(newest))] {
            let (end, verdict) = problem.ask(compat);
            let expected = Walk { problem: &problem, picked: Vec::new() }.begin();
            prop_assert_eq!(end, expected, "{:?}", verdict);
        }
    }
}
