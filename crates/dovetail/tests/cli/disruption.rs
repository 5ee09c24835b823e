//! `dovetail plan --disruption`.

use std::path::Path;

use expect_test::expect;
use serde_json::{Value, json};

use crate::scratch::Scratch;

fn fleet() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet/fleet.yaml").display().to_string()
}

/// The example, with more arguments.
fn planned(scratch: &Scratch, more: &[&str]) -> crate::scratch::Ran {
    let fleet = fleet();
    let arguments = ["plan", "--disruption", "-f", &fleet, "--at", "2026-11-25T21:00:00Z", "--check"];
    scratch.run(&[&arguments, more].concat())
}

#[test]
fn what_goes_and_why_the_rest_stays_in_words() {
    let ran = planned(&Scratch::new(), &[]);
    expect![[r#"
        exit 0
        Commands
          #   REASON    NODES       REPLACED BY        EVICTIONS   SAVES
          1   Empty     general-a   -                          0   $0.1085/h
          2   Drifted   general-c   c-2x-amd64-linux           2   $0.0542/h

        Nodes that stay
          general-b
            is empty, but the last pod came or left at 2026-11-25T20:59:00Z, and consolidateAfter is 1m0s
          general-d
            runs pod shop/db-0, and PodDisruptionBudget db allows no disruption now
          general-e
            has drifted, but nodepool general allows 2 disruptions at once, and 2 are used (budgets[0]: 2)
          general-f
            could be consolidated, but nodepool general allows 2 disruptions at once, and 2 are used (budgets[0]: 2)

        Budgets
          NODEPOOL   NODES   DISRUPTED   TAKEN   ALLOWED DRIFTED   ALLOWED EMPTY   ALLOWED UNDERUTILIZED   ALLOWED UNHEALTHY
          general        6           0       2                 2               2                       2                   2

        6 nodes for $0.6515/h: 2 removed, 1 launched, 2 pods evicted; $0.4886/h afterwards, $0.1628/h saved
        Lower bound of the price for these pods: $0.4343/h; the plan is 12.5 % above it
    "#]]
    .assert_eq(&ran.transcript());
}

#[test]
fn each_machine_and_each_pod_in_many_words() {
    let ran = planned(&Scratch::new(), &["-o", "wide"]);
    expect![[r#"
        exit 0
        Commands
          #   REASON    NODES       REPLACED BY        EVICTIONS   SAVES
          1   Empty     general-a   -                          0   $0.1085/h
          2   Drifted   general-c   c-2x-amd64-linux           2   $0.0542/h

          Pods of command 2
            shop/web-0 from general-c to general-0
            shop/web-1 from general-c to general-0

        Nodes that stay
          NAME        NODEPOOL   INSTANCE TYPE      ZONE          CAPACITY    PRICE       PODS   WHY
          general-b   general    c-4x-amd64-linux   test-zone-a   on-demand   $0.1085/h      0   is empty, but the last pod came or left at 2026-11-25T20:59:00Z, and consolidateAfter is 1m0s
          general-d   general    c-4x-amd64-linux   test-zone-a   on-demand   $0.1085/h      1   runs pod shop/db-0, and PodDisruptionBudget db allows no disruption now
          general-e   general    c-4x-amd64-linux   test-zone-a   on-demand   $0.1085/h      2   has drifted, but nodepool general allows 2 disruptions at once, and 2 are used (budgets[0]: 2)
          general-f   general    c-4x-amd64-linux   test-zone-a   on-demand   $0.1085/h      1   could be consolidated, but nodepool general allows 2 disruptions at once, and 2 are used (budgets[0]: 2)

        Budgets
          NODEPOOL   NODES   DISRUPTED   TAKEN   ALLOWED DRIFTED   ALLOWED EMPTY   ALLOWED UNDERUTILIZED   ALLOWED UNHEALTHY
          general        6           0       2                 2               2                       2                   2

        6 nodes for $0.6515/h: 2 removed, 1 launched, 2 pods evicted; $0.4886/h afterwards, $0.1628/h saved
        Lower bound of the price for these pods: $0.4343/h; the plan is 12.5 % above it
    "#]].assert_eq(&ran.transcript());
}

#[test]
fn a_plan_for_programs_has_exactly_these_fields() {
    let scratch = Scratch::new();
    let ran = planned(&scratch, &["-o", "json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let mut plan = ran.json();
    // What a replacement is like is what `plan` says of machines.
    let replacement = &mut plan["commands"][1]["replacements"][0];
    assert_eq!(replacement["launch"]["instanceType"], "c-2x-amd64-linux");
    *replacement = json!("…");
    expect![[r#"
        {
          "commands": [
            {
              "evictionCost": 1.0,
              "moves": [],
              "nodes": [
                "general-a"
              ],
              "reason": "Empty",
              "replacements": [],
              "savingNanoUsdPerHour": 108589935
            },
            {
              "evictionCost": 3.0,
              "moves": [
                {
                  "from": "general-c",
                  "pod": "shop/web-0",
                  "to": "general-0"
                },
                {
                  "from": "general-c",
                  "pod": "shop/web-1",
                  "to": "general-0"
                }
              ],
              "nodes": [
                "general-c"
              ],
              "reason": "Drifted",
              "replacements": [
                "…"
              ],
              "savingNanoUsdPerHour": 54294968
            }
          ],
          "fleet": {
            "boundNanoUsdPerHour": 434359738,
            "priceAfterNanoUsdPerHour": 488654707,
            "priceNanoUsdPerHour": 651539610,
            "withoutPrice": 0
          },
          "nodePools": [
            {
              "allowed": {
                "Drifted": 2,
                "Empty": 2,
                "Underutilized": 2,
                "Unhealthy": 2
              },
              "disrupted": 0,
              "name": "general",
              "nodes": 6,
              "taken": 2
            }
          ],
          "nodes": [
            {
              "capacityType": "on-demand",
              "command": 0,
              "expiresAt": "2026-12-25T07:00:00Z",
              "instanceType": "c-4x-amd64-linux",
              "name": "general-a",
              "nodeClaim": "general-a",
              "nodePool": "general",
              "pods": 0,
              "priceNanoUsdPerHour": 108589935,
              "reason": {
                "code": "Goes",
                "message": "is disrupted by command 1"
              },
              "zone": "test-zone-a"
            },
            {
              "capacityType": "on-demand",
              "expiresAt": "2026-12-25T07:00:00Z",
              "instanceType": "c-4x-amd64-linux",
              "name": "general-b",
              "nodeClaim": "general-b",
              "nodePool": "general",
              "pods": 0,
              "priceNanoUsdPerHour": 108589935,
              "reason": {
                "code": "NotQuiet",
                "message": "is empty, but the last pod came or left at 2026-11-25T20:59:00Z, and consolidateAfter is 1m0s"
              },
              "zone": "test-zone-a"
            },
            {
              "capacityType": "on-demand",
              "command": 1,
              "drifted": "NodePoolDrifted",
              "expiresAt": "2026-12-25T07:00:00Z",
              "instanceType": "c-4x-amd64-linux",
              "name": "general-c",
              "nodeClaim": "general-c",
              "nodePool": "general",
              "pods": 2,
              "priceNanoUsdPerHour": 108589935,
              "reason": {
                "code": "Goes",
                "message": "is disrupted by command 2"
              },
              "zone": "test-zone-b"
            },
            {
              "capacityType": "on-demand",
              "drifted": "NodePoolDrifted",
              "expiresAt": "2026-12-25T07:00:00Z",
              "instanceType": "c-4x-amd64-linux",
              "name": "general-d",
              "nodeClaim": "general-d",
              "nodePool": "general",
              "pods": 1,
              "priceNanoUsdPerHour": 108589935,
              "reason": {
                "code": "PodDisruptionBudget",
                "message": "runs pod shop/db-0, and PodDisruptionBudget db allows no disruption now"
              },
              "zone": "test-zone-a"
            },
            {
              "capacityType": "on-demand",
              "drifted": "NodePoolDrifted",
              "expiresAt": "2026-12-25T07:00:00Z",
              "instanceType": "c-4x-amd64-linux",
              "name": "general-e",
              "nodeClaim": "general-e",
              "nodePool": "general",
              "pods": 2,
              "priceNanoUsdPerHour": 108589935,
              "reason": {
                "code": "Budget",
                "message": "has drifted, but nodepool general allows 2 disruptions at once, and 2 are used (budgets[0]: 2)"
              },
              "zone": "test-zone-a"
            },
            {
              "capacityType": "on-demand",
              "expiresAt": "2026-12-25T07:00:00Z",
              "instanceType": "c-4x-amd64-linux",
              "name": "general-f",
              "nodeClaim": "general-f",
              "nodePool": "general",
              "pods": 1,
              "priceNanoUsdPerHour": 108589935,
              "reason": {
                "code": "Budget",
                "message": "could be consolidated, but nodepool general allows 2 disruptions at once, and 2 are used (budgets[0]: 2)"
              },
              "zone": "test-zone-a"
            }
          ],
          "nodesOfOthers": 0,
          "notUsed": {},
          "schemaVersion": 1,
          "time": "2026-11-25T21:00:00Z"
        }
    "#]].assert_eq(&format!("{plan:#}\n"));
    let yaml = planned(&scratch, &["-o", "yaml"]);
    assert!(yaml.stdout.starts_with("schemaVersion: 1\ntime: \"2026-11-25T21:00:00Z\"\n"), "{}", yaml.stdout);
}

#[test]
fn a_plan_is_the_same_byte_for_byte() {
    let scratch = Scratch::new();
    for output in ["table", "wide", "json", "yaml"] {
        let [one, other] = [(); 2].map(|()| planned(&scratch, &["-o", output]).stdout);
        assert_eq!(one, other, "{output}");
    }
}

#[test]
fn without_machines_of_ours_there_is_nothing_to_say() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", crate::plan::SHOP);
    let ran = scratch.run(&["plan", "--disruption", "-f", "shop.yaml", "--no-default-nodepool"]);
    expect![[r#"
        note: 1 workload was not expanded; --expand-workloads plans their pods
        exit 0
        No node was launched by Dovetail
        1 node has no NodeClaim and is left alone
    "#]]
    .assert_eq(&ran.transcript());
}

#[test]
fn a_budget_that_cannot_be_read_is_a_problem_and_lets_none_go() {
    let scratch = Scratch::new();
    let text = std::fs::read_to_string(fleet()).unwrap().replace("0 9 * * mon-fri", "0 9 * * mon-sun");
    scratch.write("fleet.yaml", &text);
    let ran = scratch.run(&["plan", "--disruption", "-f", "fleet.yaml", "--at", "2026-11-25T21:00:00Z"]);
    expect![[r#"
        problem: input, document 1: NodePool general: spec.disruption.budgets[1]: schedule "0 9 * * mon-sun" day of week: "mon-sun" is not within 0 to 6
        exit 1
        Nodes that stay
          general-a
            is empty, but nodepool general allows no disruptions, since budgets[1] cannot be read: schedule "0 9 * * mon-sun" day of week: "mon-sun" is not within 0 to 6
          general-b
            is empty, but the last pod came or left at 2026-11-25T20:59:00Z, and consolidateAfter is 1m0s
          general-c, general-e
            has drifted, but nodepool general allows no disruptions, since budgets[1] cannot be read: schedule "0 9 * * mon-sun" day of week: "mon-sun" is not within 0 to 6
          general-d
            runs pod shop/db-0, and PodDisruptionBudget db allows no disruption now
          general-f
            could be consolidated, but nodepool general allows no disruptions, since budgets[1] cannot be read: schedule "0 9 * * mon-sun" day of week: "mon-sun" is not within 0 to 6

        Budgets
          NODEPOOL   NODES   DISRUPTED   TAKEN   ALLOWED DRIFTED   ALLOWED EMPTY   ALLOWED UNDERUTILIZED   ALLOWED UNHEALTHY
          general        6           0       0                 0               0                       0                   0
          nodepool general allows no disruptions: budgets[1]: schedule "0 9 * * mon-sun" day of week: "mon-sun" is not within 0 to 6

        6 nodes for $0.6515/h: none removed
        Lower bound of the price for these pods: $0.4343/h; the plan is 50.0 % above it
    "#]].assert_eq(&ran.transcript());
}

#[test]
fn a_broken_node_is_replaced_if_the_snapshot_is_of_a_cluster_where_such_are_repaired() {
    let scratch = Scratch::new();
    let ready = r#"conditions: [{type: Ready, status: "True"}]"#;
    let broken = r#"conditions: [{type: Ready, status: "False", reason: KubeletDown, lastTransitionTime: "2026-11-25T20:45:00Z"}]"#;
    // A snapshot has its instance types with it.
    let types = "---\napiVersion: snapshot.dovetail.sh/v1\nkind: SnapshotInstanceType\nnodePools: [general]\ninstanceType:\n  \
                 name: c-4x-amd64-linux\n  capacity: {cpu: \"4\", memory: 8Gi, pods: \"110\"}\n  \
                 requirements: {node.kubernetes.io/instance-type: [c-4x-amd64-linux]}\n  \
                 offerings: [{zone: test-zone-a, capacityType: on-demand, price: 100000000, available: true}]\n";
    let example = std::fs::read_to_string(fleet()).unwrap();
    let (before, after) = example.rsplit_once(ready).unwrap();
    for (is_on, at, expected) in [(true, "21:00", true), (true, "20:54", false), (false, "21:00", false)] {
        let header = format!(
            "apiVersion: snapshot.dovetail.sh/v1\nkind: SnapshotHeader\nschemaVersion: 1\ndovetailVersion: test\n\
             time: \"2026-11-25T{at}:00Z\"\nfeatureGates: {{NodeRepair: {is_on}}}\n"
        );
        scratch.write("fleet.yaml", &format!("{header}{types}---\n{before}{broken}{after}"));
        let plan = scratch.run(&["plan", "--disruption", "-f", "fleet.yaml", "-o", "json", "--check"]).json();
        let commands = plan["commands"].as_array().unwrap();
        let repairs: Vec<_> = commands.iter().filter(|command| command["reason"] == "Unhealthy").collect();
        assert_eq!(repairs.len(), usize::from(expected), "{is_on} {at}: {plan:#}");
        let of_node = plan["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "general-f").unwrap();
        let condition = expected.then_some("Ready=False (KubeletDown)");
        assert_eq!(of_node["unhealthy"].as_str(), condition, "{is_on} {at}: {plan:#}");
        for repair in repairs {
            assert_eq!(repair["nodes"], json!(["general-f"]), "{plan:#}");
        }
    }
}

/// Sides are files, or settings, or the input as it is.
#[test]
fn two_policies_are_compared() {
    let scratch = Scratch::new();
    let fleet = fleet();
    let compared = |fleet: &str, sides: [&str; 2], more: &[&str]| {
        let at = ["--at", "2026-11-25T21:00:00Z"];
        scratch.run(&[&["plan", "--disruption", "-f", fleet, "--compare"], &sides[..], &at, more].concat())
    };
    // The budget lets two go at once.
    let without_it = std::fs::read_to_string(&fleet).unwrap().replace("      - {nodes: \"2\"}\n", "");
    scratch.write("all.yaml", &without_it);
    scratch.write("pool.yaml", without_it.split("---").next().unwrap());
    expect![[r#"
        exit 0
                                  current     pool.yaml   DIFFERENCE
          commands                        2           4           +2
            Drifted                       1           2           +1
            Empty                         1           1           +0
            Underutilized                 0           1           +1
          nodes that go                   2           4           +2
          new machines                    1           2           +1
          evictions                       2           5           +3
          price now               $0.6515/h   $0.6515/h    $0.0000/h
          price afterwards        $0.4886/h   $0.3257/h   -$0.1628/h
          above the lower bound      12.5 %       0.0 %

        Go with pool.yaml, stay with current
          general-f
            could be consolidated, but nodepool general allows 2 disruptions at once, and 2 are used (budgets[0]: 2)
          general-e
            has drifted, but nodepool general allows 2 disruptions at once, and 2 are used (budgets[0]: 2)

        pool.yaml ends $0.1628/h below current, with 3 evictions more: $0.0542/h for each
    "#]]
    .assert_eq(&compared(&fleet, ["current", "pool.yaml"], &[]).transcript());
    let prices = ["eviction-price=0", "eviction-price=0.2,consolidation-horizon=1h"];
    expect![[r#"
        exit 0
                                  eviction-price=0   eviction-price=0.2,consolidation-horizon=1h   DIFFERENCE
          commands                               4                                             3           -1
            Drifted                              2                                             2           +0
            Empty                                1                                             1           +0
            Underutilized                        1                                             0           -1
          nodes that go                          4                                             3           -1
          new machines                           2                                             1           -1
          evictions                              5                                             4           -1
          price now                      $0.6515/h                                     $0.6515/h    $0.0000/h
          price afterwards               $0.3257/h                                     $0.3800/h   +$0.0542/h
          above the lower bound              0.0 %                                        16.6 %

        Go with eviction-price=0, stay with eviction-price=0.2,consolidation-horizon=1h
          general-f
            is in use; removing it can save at most $0.0542/h, but its evictions require a saving of $0.2000/h

        eviction-price=0.2,consolidation-horizon=1h ends $0.0542/h above eviction-price=0, with 1 eviction less: $0.0542/h for each
    "#]].assert_eq(&compared("all.yaml", prices, &[]).transcript());
    let json = compared("all.yaml", prices, &["-o", "json"]).json();
    expect![[r#"
        {
          "commands": -1,
          "evictions": -1,
          "goOnlyInA": [
            "general-f"
          ],
          "goOnlyInB": [],
          "newMachines": -1,
          "nodesThatGo": -1,
          "priceAfterNanoUsdPerHour": 54294968
        }
    "#]]
    .assert_eq(&format!("{:#}\n", json["difference"]));
    assert_eq!(json["a"]["schemaVersion"], 1);
    let same = compared("all.yaml", ["current"; 2], &[]);
    assert!(same.stdout.ends_with("current ends at the price of current, with as many evictions\n"), "{}", same.stdout);
    let wrong = compared("all.yaml", ["current", "evict=1"], &[]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("no setting is called \"evict\""), "{}", wrong.stderr);
}

#[test]
fn wrong_usage_is_told() {
    let scratch = Scratch::new();
    let fleet = fleet();
    for (arguments, expected) in [
        (&["--disruption", "--reasons"] as &[&str], "cannot be used with"),
        (&["--disruption", "--check", "--compare", "current", "current"], "cannot be used with"),
        (&["--at", "2026-11-25T21:00:00Z"], "--disruption"),
        (&["--disruption", "--at", "tonight"], "time \"tonight\" is not in RFC 3339 form"),
    ] {
        let ran = scratch.run(&[&["plan", "-f", &fleet], arguments].concat());
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert!(ran.stderr.contains(expected), "{arguments:?}: {}", ran.stderr);
    }
}

/// A snapshot has its own time, and instance types that may have run out.
#[test]
fn a_snapshot_is_planned_for_its_own_moment_with_its_own_prices() {
    let scratch = Scratch::new();
    let header = json!({"apiVersion": "snapshot.dovetail.sh/v1", "kind": "SnapshotHeader", "schemaVersion": 1,
        "time": "2026-11-25T10:00:00Z", "dovetailVersion": "0.1.0", "serverVersion": "v1.36.3"});
    let instance_type = json!({"apiVersion": "snapshot.dovetail.sh/v1", "kind": "SnapshotInstanceType", "nodePools": ["general"],
        "instanceType": {"name": "c-4x-amd64-linux", "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "requirements": {"node.kubernetes.io/instance-type": ["c-4x-amd64-linux"]},
            "offerings": [{"zone": "test-zone-a", "capacityType": "on-demand", "price": 7_000_000, "available": false}]}});
    scratch.write("snapshot.jsonl", &format!("{header}\n{instance_type}\n"));
    let fleet = fleet();
    let plan = |more: &[&str]| -> Value {
        scratch
            .run(&[&["plan", "--disruption", "-f", "snapshot.jsonl", "-f", &fleet, "-o", "json"], more].concat())
            .json()
    };
    let by_day = plan(&[]);
    assert_eq!((&by_day["time"], &by_day["commands"]), (&json!("2026-11-25T10:00:00Z"), &json!([])));
    // There are no such machines in the other zone.
    let fleet_price = json!({"priceNanoUsdPerHour": 35_000_000, "priceAfterNanoUsdPerHour": 35_000_000,
        "boundNanoUsdPerHour": 21_000_000, "withoutPrice": 1});
    assert_eq!(by_day["fleet"], fleet_price);
    let by_night = plan(&["--at", "2026-11-25T21:00:00Z", "--eviction-price", "0"]);
    assert_eq!(by_night["commands"][0]["reason"], "Empty");
    // Nothing can be launched; the pods of one have room elsewhere.
    let codes: Vec<&Value> = by_night["nodes"].as_array().unwrap().iter().map(|node| &node["reason"]["code"]).collect();
    assert_eq!(codes, ["Goes", "NotQuiet", "NoPlace", "PodDisruptionBudget", "Goes", "NoPlace"]);
}

#[test]
fn what_of_partitions_fits_beside_no_other_is_told_of_a_node_with_its_price() {
    // The node of the example has a GPU of seven slices, of which partitions of three and of four are cut.
    let counters = |slices: u32| json!({"slices": {"value": slices.to_string()}});
    let partition = |name: &str, slices: u32| json!({"name": name, "consumesCounters": [{"counterSet": "gpu-0", "counters": counters(slices)}]});
    let devices = json!([partition("three-a", 3), partition("three-b", 3), partition("four", 4)]);
    let spec = |number: u32| {
        json!({"driver": "gpu.example.com", "nodeName": "general-d",
            "pool": {"name": "general-d", "generation": 1, "resourceSliceCount": 2}})
        .as_object()
        .cloned()
        .map(|mut spec| {
            let (field, value) = match number {
                0 => ("sharedCounters", json!([{"name": "gpu-0", "counters": counters(7)}])),
                _ => ("devices", devices.clone()),
            };
            spec.insert(field.to_owned(), value);
            spec
        })
    };
    let slice = |number: u32| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": format!("general-d-{number}")}, "spec": spec(number)})
    };
    let claim = |name: &str, device: &str| {
        let result = json!({"request": "r", "driver": "gpu.example.com", "pool": "general-d", "device": device});
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
            "status": {"allocation": {"devices": {"results": [result]}},
                "reservedFor": [{"resource": "pods", "name": "db-0", "uid": "u"}]}})
    };
    let fleet = fleet();
    let explained = |claims: &[Value]| {
        let scratch = Scratch::new();
        scratch.write("devices.json", &crate::manifests::list(&[&[slice(0), slice(1)], claims].concat()));
        let ran = scratch.run(&["explain", "node", "general-d", "-f", &fleet, "-f", "devices.json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.stdout
    };
    let stranded = |claims: &[Value]| {
        explained(claims).lines().find(|line| line.contains("stranded")).map(|line| line.trim().to_owned())
    };
    assert_eq!(stranded(&[]), None);
    // The other three do not fit beside four, but the other four do beside three.
    assert_eq!(stranded(&[claim("a", "four"), claim("b", "three-a")]), None);
    assert_eq!(stranded(&[claim("a", "three-a")]), None);
    // A seventh of $0.1085.
    let told =
        "$0.0155/h of it is stranded: partitions of gpu.example.com that are free do not fit beside those in use";
    assert_eq!(stranded(&[claim("a", "three-a"), claim("b", "three-b")]).as_deref(), Some(told));
}
