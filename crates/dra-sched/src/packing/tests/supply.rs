//! What claims want together against what there is: never too much where some arrangement serves them all, found by an
//! enumeration that knows nothing of the engine; and too much where it plainly is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ZONE, shape};
use crate::fixture::{builder, claim, slice};
use crate::inventory::{ClaimUse, Inventory, InventoryBuilder};
use crate::ledger::ClusterLedger;
use crate::machine::{DomainSelector, MachineTemplate, PoolScope, SharedTemplate};
use crate::packing::{Hosts, Wanting, want_too_much};
use dra_types::{NodeScope, ResourceSlice};

const ZONES: [&str; 2] = ["a", "b"];

/// A device of a zone.
#[derive(Debug, Clone)]
struct Thing {
    model: u8,
    /// What it draws from the zone's only counter.
    draw: u8,
    /// Several can use it, by memory.
    memory: Option<u8>,
}

#[derive(Debug, Clone)]
struct Request {
    /// Any of these.
    models: BTreeSet<u8>,
    count: usize,
    memory: Option<u8>,
}

#[derive(Debug, Clone)]
struct Pods {
    zones: BTreeSet<usize>,
    copies: u32,
    requests: Vec<Request>,
}

/// Who says what devices a zone has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Source {
    Published,
    /// Machines bring it; the others say that there is one device less.
    Templates,
}

#[derive(Debug, Clone)]
struct Problem {
    source: Source,
    /// By zone; of templates the first is all zones'.
    things: Vec<Vec<Thing>>,
    counter: u8,
    pods: Vec<Pods>,
}

impl Problem {
    fn things_of(&self, zone: usize) -> &[Thing] {
        match self.source {
            Source::Published => &self.things[zone],
            Source::Templates => &self.things[0],
        }
    }

    /// Whether some arrangement serves all.
    fn is_possible(&self) -> bool {
        let copies: Vec<&Pods> =
            self.pods.iter().flat_map(|pods| std::iter::repeat_n(pods, pods.copies as usize)).collect();
        self.extend(&copies, &mut Vec::new())
    }

    /// `used` says for each request so far where it is served and by what.
    fn extend<'p>(&'p self, copies: &[&'p Pods], used: &mut Vec<(usize, Vec<usize>, &'p Request)>) -> bool {
        let Some((pods, rest)) = copies.split_first() else { return true };
        pods.zones.iter().any(|zone| self.serve(*zone, &pods.requests, rest, used))
    }

    fn serve<'p>(
        &'p self,
        zone: usize,
        requests: &'p [Request],
        rest: &[&'p Pods],
        used: &mut Vec<(usize, Vec<usize>, &'p Request)>,
    ) -> bool {
        let Some((request, others)) = requests.split_first() else { return self.extend(rest, used) };
        let count = self.things_of(zone).len();
        (0..1_usize << count).any(|bits| {
            let things: Vec<usize> = (0..count).filter(|thing| bits & (1 << thing) != 0).collect();
            if things.len() != request.count {
                return false;
            }
            used.push((zone, things, request));
            let served = self.holds(zone, used) && self.serve(zone, others, rest, used);
            used.pop();
            served
        })
    }

    fn holds(&self, zone: usize, used: &[(usize, Vec<usize>, &Request)]) -> bool {
        let mut drawn = 0;
        for (index, thing) in self.things_of(zone).iter().enumerate() {
            let takers: Vec<&Request> = used
                .iter()
                .filter(|(at, things, _)| *at == zone && things.contains(&index))
                .map(|(_, _, request)| *request)
                .collect();
            if takers.is_empty() {
                continue;
            }
            drawn += u32::from(thing.draw);
            let is_wanted = takers.iter().all(|request| request.models.contains(&thing.model));
            let has_room = match thing.memory {
                None => takers.len() == 1 && takers.iter().all(|request| request.memory.is_none()),
                // Who asks for nothing in particular gets all of it.
                Some(memory) => {
                    let taken = takers.iter().map(|request| u32::from(request.memory.unwrap_or(memory)));
                    taken.sum::<u32>() <= u32::from(memory)
                }
            };
            if !is_wanted || !has_room {
                return false;
            }
        }
        drawn <= u32::from(self.counter)
    }

    fn wants_too_much(&self) -> bool {
        let mut builder = builder(&["net"]);
        match self.source {
            Source::Published => {
                for (zone, things) in ZONES.iter().zip(&self.things) {
                    for published in self.published(zone, things) {
                        builder.slice(published);
                    }
                }
            }
            Source::Templates => {
                let less = &self.things[0][..self.things[0].len().saturating_sub(1)];
                for things in [&self.things[0][..], less] {
                    let shared = vec![Arc::new(self.template(things))];
                    builder.machine_shape(shape(vec![], &ZONES).with_shared(shared));
                }
            }
        }
        let claims: Vec<ClaimUse> = self.pods.iter().map(|pods| claim_of(&mut builder, &pods.requests)).collect();
        let inventory: Inventory = builder.build();
        let ledger = ClusterLedger::new(&inventory);
        let in_zones = |pods: &'_ Pods, scope: &NodeScope| pods.zones.iter().any(|zone| is_in(scope, ZONES[*zone]));
        let reaches: Vec<_> = self.pods.iter().map(|pods| move |scope: &NodeScope| in_zones(pods, scope)).collect();
        let wanting: Vec<Wanting<'_>> = (self.pods.iter().zip(&claims).zip(&reaches))
            .map(|((pods, claim), reaches)| Wanting {
                claims: std::slice::from_ref(claim),
                copies: pods.copies,
                reaches,
            })
            .collect();
        want_too_much(&inventory, &wanting, None, &ledger)
    }

    fn published(&self, zone: &str, things: &[Thing]) -> [Arc<ResourceSlice>; 2] {
        let term = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]});
        let of_pool = |name: &str, field: &str, value: Value| {
            let spec = json!({"driver": "net", "nodeSelector": {"nodeSelectorTerms": [term]}, field: value,
                "pool": {"name": zone, "generation": 1, "resourceSliceCount": 2}});
            slice(&format!("{zone}-{name}"), &spec)
        };
        [of_pool("devices", "devices", devices(things)), of_pool("counters", "sharedCounters", self.counters())]
    }

    fn counters(&self) -> Value {
        json!([{"name": "set", "counters": {"slots": {"value": self.counter.to_string()}}}])
    }

    fn template(&self, things: &[Thing]) -> SharedTemplate {
        let of_zone = self.published("any", things);
        let nodes = DomainSelector { match_label_keys: [ZONE.into()].into(), ..DomainSelector::default() };
        let template = MachineTemplate {
            driver: "net".into(),
            pool_suffix: "".into(),
            devices: of_zone[0].devices.clone(),
            shared_counters: of_zone[1].shared_counters.clone(),
            bindings: Vec::new(),
        };
        SharedTemplate { template, scope: PoolScope::Domain, nodes }
    }
}

fn is_in(scope: &NodeScope, zone: &str) -> bool {
    let labels = BTreeMap::from([(Arc::from(ZONE), Arc::from(zone))]);
    dra_types::NodeFacts { labels, ..dra_types::NodeFacts::default() }.is_in(scope).unwrap()
}

fn devices(things: &[Thing]) -> Value {
    let device = |(index, thing): (usize, &Thing)| {
        let mut device = json!({"name": format!("d{index}"), "attributes": {"model": {"int": thing.model}}});
        if thing.draw > 0 {
            let counters = json!({"slots": {"value": thing.draw.to_string()}});
            device["consumesCounters"] = json!([{"counterSet": "set", "counters": counters}]);
        }
        if let Some(memory) = thing.memory {
            device["allowMultipleAllocations"] = json!(true);
            device["capacity"] = json!({"memory": {"value": memory.to_string()}});
        }
        device
    };
    things.iter().enumerate().map(device).collect()
}

fn claim_of(builder: &mut InventoryBuilder, requests: &[Request]) -> ClaimUse {
    let request = |(index, request): (usize, &Request)| {
        let models: Vec<String> = request.models.iter().map(u8::to_string).collect();
        let expression = format!("device.attributes[\"net\"].model in [{}]", models.join(", "));
        let mut exact = json!({"deviceClassName": "net", "count": request.count,
            "selectors": [{"cel": {"expression": expression}}]});
        if let Some(memory) = request.memory {
            exact["capacity"] = json!({"requests": {"memory": memory.to_string()}});
        }
        json!({"name": format!("r{index}"), "exactly": exact})
    };
    let requests: Vec<Value> = requests.iter().enumerate().map(request).collect();
    ClaimUse::Fresh { class: claim(builder, "c", &json!({"requests": requests})), containers: 1 }
}

fn problems() -> impl Strategy<Value = Problem> {
    let thing = (0..2_u8, 0..3_u8, prop::option::weighted(0.3, 1..5_u8)).prop_map(|(model, draw, memory)| Thing {
        model,
        draw,
        memory,
    });
    let things = prop::collection::vec(prop::collection::vec(thing, 0..4), ZONES.len());
    let models = prop::collection::btree_set(0..2_u8, 1..3);
    let request = (models, 1..3_usize, prop::option::weighted(0.3, 1..4_u8))
        .prop_map(|(models, count, memory)| Request { models, count, memory });
    let zones = prop::collection::btree_set(0..ZONES.len(), 1..3);
    let pods = (zones, 1..4_u32, prop::collection::vec(request, 1..3)).prop_map(|(zones, copies, requests)| Pods {
        zones,
        copies,
        requests,
    });
    let source = prop_oneof![Just(Source::Published), Just(Source::Templates)];
    (source, things, 0..6_u8, prop::collection::vec(pods, 1..3)).prop_map(|(source, things, counter, pods)| Problem {
        source,
        things,
        counter,
        pods,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn what_some_arrangement_serves_is_never_too_much(problem in problems()) {
        if problem.wants_too_much() {
            prop_assert!(!problem.is_possible());
        }
    }
}

fn plain(count: usize) -> Vec<Thing> {
    vec![Thing { model: 0, draw: 0, memory: None }; count]
}

fn pods(zones: &[usize], copies: u32, models: &[u8], memory: Option<u8>) -> Pods {
    let request = Request { models: models.iter().copied().collect(), count: 1, memory };
    Pods { zones: zones.iter().copied().collect(), copies, requests: vec![request] }
}

/// Whether so much is possible, which the proof has to find out by itself.
fn is_possible(problem: &Problem) -> bool {
    let possible = problem.is_possible();
    assert_eq!(problem.wants_too_much(), !possible, "{problem:?}");
    possible
}

#[test]
fn one_copy_more_than_there_are_devices_in_all_zones_is_too_much() {
    for source in [Source::Published, Source::Templates] {
        let problem = |copies| Problem {
            source,
            things: vec![plain(2), plain(2)],
            counter: 0,
            pods: vec![pods(&[0, 1], copies, &[0], None)],
        };
        assert!(is_possible(&problem(4)));
        assert!(!is_possible(&problem(5)));
    }
}

#[test]
fn pods_of_one_zone_and_of_any_are_counted_together() {
    let problem = |of_zone, of_any| Problem {
        source: Source::Templates,
        things: vec![plain(2), plain(2)],
        counter: 0,
        pods: vec![pods(&[1], of_zone, &[0], None), pods(&[0, 1], of_any, &[0], None)],
    };
    assert!(is_possible(&problem(2, 2)));
    assert!(!is_possible(&problem(3, 0)), "as many are left, but in the other zone");
    assert!(!is_possible(&problem(2, 3)));
}

#[test]
fn requests_that_can_do_with_less_leave_to_others_what_only_these_can_use() {
    let mut things = plain(3);
    things[2].model = 1;
    let problem = |of_any, of_large| Problem {
        source: Source::Published,
        things: vec![things.clone(), vec![]],
        counter: 0,
        pods: vec![pods(&[0], of_any, &[0, 1], None), pods(&[0], of_large, &[1], None)],
    };
    assert!(is_possible(&problem(2, 1)));
    assert!(!is_possible(&problem(1, 2)));
    assert!(!is_possible(&problem(3, 1)));
}

#[test]
fn counters_and_capacity_run_out_before_devices_do() {
    let partitions = Problem {
        source: Source::Published,
        things: vec![vec![Thing { model: 0, draw: 2, memory: None }; 3], vec![]],
        counter: 5,
        pods: vec![pods(&[0], 3, &[0], None)],
    };
    assert!(!is_possible(&partitions));
    assert!(is_possible(&Problem { counter: 6, ..partitions }));
    let shared = |copies, memory| Problem {
        source: Source::Templates,
        things: vec![vec![Thing { model: 0, draw: 0, memory: Some(4) }; 2]],
        counter: 0,
        pods: vec![pods(&[0], copies, &[0], Some(memory)), pods(&[0], 1, &[0], Some(1))],
    };
    assert!(is_possible(&shared(7, 1)));
    assert!(!is_possible(&shared(8, 1)));
    assert!(is_possible(&shared(2, 3)));
    assert!(!is_possible(&shared(3, 3)), "a device has room for one of them");
}

#[test]
fn what_every_machine_brings_has_no_end() {
    let mut builder = builder(&["net", "gpu"]);
    let own = super::template("gpu", 1);
    builder.machine_shape(shape(vec![own], &ZONES));
    let class = claim(&mut builder, "c", &json!({"requests": [crate::fixture::exactly("r", "gpu", 1)]}));
    let inventory = builder.build();
    let claims = [ClaimUse::Fresh { class, containers: 1 }];
    let wanting = [Wanting { claims: &claims, copies: 1_000, reaches: &|_| true }];
    assert!(!want_too_much(&inventory, &wanting, None, &ClusterLedger::new(&inventory)));
}

/// Machines that bring so many devices for their zone, by the zones that each may be in; claims for some devices, by
/// the zones that their pods may be in.
#[derive(Debug, Clone)]
struct Brought {
    devices: usize,
    hosts: Vec<BTreeSet<usize>>,
    claims: Vec<(usize, BTreeSet<usize>)>,
}

impl Brought {
    /// Whether some arrangement of machines and pods serves all claims.
    fn is_possible(&self) -> bool {
        fn hosts_first(of: &Brought, hosts: &[BTreeSet<usize>], free: [usize; 2]) -> bool {
            let Some((host, rest)) = hosts.split_first() else { return serve(&of.claims, free) };
            host.iter().any(|&zone| {
                let mut more = free;
                more[zone] += of.devices;
                hosts_first(of, rest, more)
            })
        }
        fn serve(claims: &[(usize, BTreeSet<usize>)], free: [usize; 2]) -> bool {
            let Some(((count, zones), rest)) = claims.split_first() else { return true };
            zones.iter().any(|&zone| {
                let mut less = free;
                less[zone] = less[zone].wrapping_sub(*count);
                free[zone] >= *count && serve(rest, less)
            })
        }
        hosts_first(self, &self.hosts, [0, 0])
    }

    fn wants_too_much(&self) -> bool {
        let mut builder = builder(&["net"]);
        let template = super::template("net", self.devices);
        let nodes = DomainSelector { match_label_keys: [ZONE.into()].into(), ..DomainSelector::default() };
        let shared = SharedTemplate { template, scope: PoolScope::Machine, nodes };
        let bringing = builder.machine_shape(shape(vec![], &ZONES).with_shared(vec![Arc::new(shared)]));
        let mut claim_of = |(count, _): &(usize, BTreeSet<usize>)| {
            let request = crate::fixture::exactly("r", "net", *count);
            ClaimUse::Fresh { class: claim(&mut builder, "c", &json!({"requests": [request]})), containers: 1 }
        };
        let claims: Vec<ClaimUse> = self.claims.iter().map(&mut claim_of).collect();
        let inventory = builder.build();
        let in_zones = |zones: &BTreeSet<usize>, scope: &NodeScope| zones.iter().any(|zone| is_in(scope, ZONES[*zone]));
        let of_claims: Vec<_> =
            self.claims.iter().map(|(_, zones)| move |scope: &NodeScope| in_zones(zones, scope)).collect();
        let of_hosts: Vec<_> = self.hosts.iter().map(|zones| move |scope: &NodeScope| in_zones(zones, scope)).collect();
        let wanting = claims.iter().zip(&of_claims);
        let wanting =
            wanting.map(|(claim, reaches)| Wanting { claims: std::slice::from_ref(claim), copies: 1, reaches });
        let host = |reaches| Hosts { shapes: [bringing].into_iter().collect(), machines: 1, reaches };
        let hosts: Vec<Hosts<'_>> = of_hosts.iter().map(|reaches| host(reaches)).collect();
        let wanting: Vec<Wanting<'_>> = wanting.collect();
        want_too_much(&inventory, &wanting, Some(&hosts), &ClusterLedger::new(&inventory))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn what_machines_bring_serves_is_never_too_much(
        devices in 1..4_usize,
        hosts in prop::collection::vec(prop::collection::btree_set(0..ZONES.len(), 1..3), 0..4),
        claims in prop::collection::vec((1..6_usize, prop::collection::btree_set(0..ZONES.len(), 1..3)), 1..5),
    ) {
        let problem = Brought { devices, hosts, claims };
        if problem.wants_too_much() {
            prop_assert!(!problem.is_possible());
        }
    }
}

#[test]
fn a_claim_for_more_than_machines_bring_to_any_one_domain_is_too_much() {
    let (a, b): (BTreeSet<usize>, BTreeSet<usize>) = ([0].into(), [1].into());
    let both: BTreeSet<usize> = &a | &b;
    for (hosts, claims, expected) in [
        ([&a, &b], vec![(6, &both)], true),
        ([&a, &a], vec![(6, &both)], false),
        ([&a, &a], vec![(6, &b)], true),
        ([&a, &both], vec![(8, &a)], false),
        ([&both, &both], vec![(9, &both)], true),
        ([&both, &both], vec![(4, &both), (4, &a), (1, &b)], true),
    ] {
        let problem = Brought {
            devices: 4,
            hosts: hosts.into_iter().cloned().collect(),
            claims: claims.into_iter().map(|(count, zones)| (count, zones.clone())).collect(),
        };
        assert_eq!((problem.wants_too_much(), !problem.is_possible()), (expected, expected), "{problem:?}");
    }
}
