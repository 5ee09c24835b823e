//! `dovetail plan` and `dovetail explain` on manifests.

use expect_test::expect;
use serde_json::json;

use crate::manifests::{list, node_pool, pod, pod_of_cpu};
use crate::scratch::Scratch;

/// A web server, a pod that nothing holds, a daemon, a node with some room.
pub(crate) const SHOP: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 5
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {requests: {cpu: 900m, memory: 1Gi}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: giant, namespace: shop}
spec: {containers: [{name: c, resources: {requests: {cpu: 1000}}}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: kube-system}
spec:
  template:
    spec: {containers: [{name: c, resources: {requests: {cpu: 200m}}}]}
---
apiVersion: v1
kind: Node
metadata: {name: old, labels: {kubernetes.io/os: linux}}
status: {allocatable: {cpu: 2200m, memory: 8Gi, pods: 20}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
";

#[test]
fn a_plan_in_words() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    let ran = scratch.run(&["plan", "-f", "shop.yaml", "--expand-workloads"]);
    expect![[r#"
        note: no NodePool given, planning with a built-in one: default (kubernetes.io/os In [linux])
        exit 3
        New machines
          COUNT   NODEPOOL   INSTANCE TYPE      ZONE          CAPACITY   PRICE       TOTAL       PODS
              1   default    c-4x-amd64-linux   test-zone-a   spot       $0.0760/h   $0.0760/h      3

        Existing nodes
          NAME   PODS
          old       2

        Unschedulable
          shop/giant
            none of 1 existing nodes fits: 1 has too little room (cpu 1000 wanted, the most free is 200m of 2200m)
            nodepool/default: none of 144 instance types fits: 72 excluded by the NodePool's requirements, 72 too small (cpu 1000 wanted, the largest has 255.7 beside daemons)
            it would fit a new machine with 744.3 less cpu (nodepool/default)

        6 pods: 3 on 1 new machine for $0.0760/h (lower bound $0.0513/h), 2 on 1 existing node, 1 unschedulable
        Ignored: 2 ConfigMap
    "#]].assert_eq(&ran.transcript());
}

#[test]
fn a_plan_in_many_words() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    let ran = scratch.run(&["plan", "-f", "shop.yaml", "--expand-workloads", "-o", "wide"]);
    expect![[r#"
        New machines
          NAME        INSTANCE TYPE      ZONE          CAPACITY   PRICE       CPU              MEMORY          TYPES   NEXT BEST                    PODS
          default-0   c-4x-amd64-linux   test-zone-a   spot       $0.0760/h   2900m of 3900m   3Gi of 8182Mi      60   c-4x-arm64-linux $0.0760/h   shop/web-2 shop/web-3 shop/web-4

        Existing nodes
          NAME   CPU              MEMORY       PODS
          old    1800m of 2200m   2Gi of 8Gi   shop/web-0 shop/web-1

        Unschedulable
          shop/giant
            none of 1 existing nodes fits: 1 has too little room (cpu 1000 wanted, the most free is 200m of 2200m)
            nodepool/default: none of 144 instance types fits: 72 excluded by the NodePool's requirements, 72 too small (cpu 1000 wanted, the largest has 255.7 beside daemons)
            it would fit a new machine with 744.3 less cpu (nodepool/default)

        6 pods: 3 on 1 new machine for $0.0760/h (lower bound $0.0513/h), 2 on 1 existing node, 1 unschedulable
        Ignored: 2 ConfigMap
    "#]].assert_eq(&ran.stdout);
}

#[test]
fn a_plan_for_programs_has_exactly_these_fields() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    scratch.write("types.json", &small_catalogue());
    let ran =
        scratch.run(&["plan", "-f", "shop.yaml", "--expand-workloads", "--instance-types", "types.json", "-o", "json"]);
    assert_eq!(ran.code, 3);
    expect![[r#"
        {
          "schemaVersion": 1,
          "nodeClaims": [
            {
              "name": "default-0",
              "nodePool": "default",
              "instanceTypes": [
                "large"
              ],
              "launch": {
                "instanceType": "large",
                "zone": "z",
                "capacityType": "spot",
                "priceNanoUsdPerHour": 150000000
              },
              "requirements": [
                {
                  "key": "karpenter.kwok.sh/kwoknodeclass",
                  "operator": "In",
                  "values": [
                    "default"
                  ]
                },
                {
                  "key": "karpenter.sh/capacity-type",
                  "operator": "In",
                  "values": [
                    "on-demand",
                    "spot"
                  ]
                },
                {
                  "key": "karpenter.sh/nodepool",
                  "operator": "In",
                  "values": [
                    "default"
                  ]
                },
                {
                  "key": "kubernetes.io/os",
                  "operator": "In",
                  "values": [
                    "linux"
                  ]
                },
                {
                  "key": "topology.kubernetes.io/zone",
                  "operator": "In",
                  "values": [
                    "z"
                  ]
                }
              ],
              "requests": {
                "cpu": "2900m",
                "memory": "3Gi",
                "pods": "4"
              },
              "pods": [
                "shop/web-2",
                "shop/web-3",
                "shop/web-4"
              ]
            }
          ],
          "existingNodes": [
            {
              "name": "old",
              "pods": [
                "shop/web-0",
                "shop/web-1"
              ]
            }
          ],
          "unschedulable": [
            {
              "pod": "shop/giant",
              "reasons": [
                {
                  "code": "ExistingNodes",
                  "message": "none of 1 existing nodes fits: 1 has too little room (cpu 1000 wanted, the most free is 200m of 2200m)",
                  "object": null
                },
                {
                  "code": "NoInstanceType",
                  "message": "none of 2 instance types fits: 2 too small (cpu 1000 wanted, the largest has 7700m beside daemons)",
                  "object": "nodepool/default"
                },
                {
                  "code": "Remedies",
                  "message": "it would fit a new machine with 992.3 less cpu (nodepool/default)",
                  "object": null
                }
              ]
            }
          ],
          "notUsed": {
            "ConfigMap": 2
          },
          "cost": {
            "priceNanoUsdPerHour": 150000000,
            "nodeCostsNanoUsdPerHour": 0,
            "lowerBoundNanoUsdPerHour": 52597401
          }
        }
    "#]].assert_eq(&ran.stdout);
}

#[test]
fn yaml_says_the_same_as_json() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    let json = scratch.run(&["plan", "-f", "shop.yaml", "--expand-workloads", "-o", "json"]).json();
    let yaml = scratch.run(&["plan", "-f", "shop.yaml", "--expand-workloads", "-o", "yaml"]).stdout;
    assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&yaml).unwrap(), json);
}

/// Two types in one zone, in Karpenter's kwok format.
fn small_catalogue() -> String {
    let offering = |price: f64, terms: &str| {
        json!({"Price": price, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [terms]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]},
        ]})
    };
    let machine = |name: &str, cpu: &str, price: f64| {
        json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
               "resources": {"cpu": cpu, "memory": "16Gi", "pods": "30"},
               "offerings": [offering(price, "on-demand"), offering(price / 2.0, "spot")]})
    };
    json!([machine("small", "2", 0.1), machine("large", "8", 0.3)]).to_string()
}

#[test]
fn exit_codes_tell_all_placed_from_some_not_placed_from_faults_and_misuse() {
    let scratch = Scratch::new();
    scratch.write("fits.yaml", &pod("p").to_string());
    scratch.write("giant.yaml", &pod_of_cpu("g", "1e4").to_string());
    let code = |arguments: &[&str]| scratch.run(arguments).code;
    assert_eq!(code(&["plan", "-f", "fits.yaml"]), 0);
    assert_eq!(code(&["plan", "-f", "fits.yaml", "-f", "giant.yaml"]), 3);
    assert_eq!(code(&["plan", "-f", "absent.yaml"]), 1);
    assert_eq!(code(&["plan", "-f", "fits.yaml", "--instance-types", "giant.yaml"]), 1);
    assert_eq!(code(&["plan"]), 2);
    assert_eq!(code(&["plan", "-f", "fits.yaml", "-o", "poem"]), 2);
    assert_eq!(code(&["plan", "-f", "fits.yaml", "--no-default-nodepool"]), 3);
}

#[test]
fn standard_input_folders_and_json_are_read_alike() {
    let scratch = Scratch::new();
    scratch.write("all/a/one.json", &pod("one").to_string());
    scratch.write("all/b/two.yml", &serde_saphyr::to_string(&pod("two")).unwrap());
    scratch.write("all/b/readme.md", "not read");
    scratch.write("all/.hidden/three.yaml", "not: [read");
    let list = list(&[pod("four"), pod("five")]);
    let ran = scratch.run_with_input(&["plan", "-f", "all", "-f", "-", "-o", "json"], &list);
    assert_eq!(ran.code, 0, "{ran:?}");
    let pods = &ran.json()["nodeClaims"][0]["pods"];
    assert_eq!(*pods, json!(["default/five", "default/four", "default/one", "default/two"]));
}

#[test]
fn output_of_helm_template_is_planned() {
    // The shape of `helm template`: comments, blank documents, a hook, a workload, what belongs to it.
    let rendered = r"
---
# Source: shop/templates/serviceaccount.yaml
apiVersion: v1
kind: ServiceAccount
metadata:
  name: shop
---
# Source: shop/templates/service.yaml
apiVersion: v1
kind: Service
metadata:
  name: shop
spec:
  type: ClusterIP
---
# Source: shop/templates/deployment.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: shop
spec:
  replicas: 3
  selector:
    matchLabels:
      app: shop
  template:
    metadata:
      labels:
        app: shop
    spec:
      containers:
        - name: shop
          image: nginx
          resources:
            limits:
              cpu: 500m
              memory: 512Mi
---
# Source: shop/templates/tests/test-connection.yaml
apiVersion: v1
kind: Pod
metadata:
  name: shop-test-connection
  annotations:
    helm.sh/hook: test
spec:
  containers:
    - name: wget
      image: busybox
  restartPolicy: Never
---
# Source: shop/templates/empty.yaml
";
    let ran = Scratch::new().run_with_input(&["plan", "-f", "-", "--expand-workloads", "-o", "json"], rendered);
    assert_eq!(ran.code, 0, "{ran:?}");
    let plan = ran.json();
    let claim = &plan["nodeClaims"][0];
    assert_eq!(
        claim["pods"],
        json!(["default/shop-0", "default/shop-1", "default/shop-2", "default/shop-test-connection"])
    );
    assert_eq!(claim["requests"], json!({"cpu": "1500m", "memory": "1536Mi", "pods": "4"}));
    assert_eq!(claim["launch"]["instanceType"], "c-2x-amd64-linux");
    assert_eq!(plan["notUsed"], json!({"Service": 1, "ServiceAccount": 1}));
}

#[test]
fn the_built_in_node_pool_is_used_only_without_another_and_said() {
    let scratch = Scratch::new();
    scratch.write("pod.yaml", &pod("p").to_string());
    scratch.write(
        "pool.yaml",
        &node_pool(
            "mine",
            &json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}),
            &json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]),
        )
        .to_string(),
    );
    let alone = scratch.run(&["plan", "-f", "pod.yaml"]);
    assert_eq!(
        alone.stderr,
        "note: no NodePool given, planning with a built-in one: default (kubernetes.io/os In [linux])\n"
    );
    let with = scratch.run(&["plan", "-f", "pod.yaml", "-f", "pool.yaml", "-o", "json"]);
    assert_eq!(
        with.stderr,
        "note: NodePool mine launches through EC2NodeClass.karpenter.k8s.aws; planned with the instance types given here, not with those of that cloud\n"
    );
    let claim = &with.json()["nodeClaims"][0];
    assert_eq!((&claim["name"], &claim["launch"]["capacityType"]), (&json!("mine-0"), &json!("on-demand")));
    let without = scratch.run(&["plan", "-f", "pod.yaml", "--no-default-nodepool", "-o", "json"]);
    assert_eq!(without.json()["unschedulable"][0]["reasons"][0]["code"], "NoNodePool");
}

#[test]
fn an_old_label_key_is_planned_for_where_nodes_will_carry_it() {
    let pod = |name: &str, key: &str, value: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{nodeSelector: {{{key}: {value}}}, containers: [{{name: c}}]}}}}\n"
        )
    };
    let text = pod("arm", "beta.kubernetes.io/arch", "arm64")
        + &pod("zone", "failure-domain.beta.kubernetes.io/zone", "test-zone-a");
    let ran = Scratch::new().run_with_input(&["plan", "-f", "-", "-o", "json"], &text);
    let plan = ran.json();
    assert_eq!((ran.code, &plan["nodeClaims"][0]["pods"]), (3, &json!(["default/arm"])), "{plan}");
    let types = plan["nodeClaims"][0]["instanceTypes"].to_string();
    assert!(types.contains("-arm64-") && !types.contains("-amd64-"), "{types}");
    let requirements = plan["nodeClaims"][0]["requirements"].to_string();
    assert!(requirements.contains("\"kubernetes.io/arch\"") && !requirements.contains("beta."), "{requirements}");
    let refused = &plan["unschedulable"][0];
    assert_eq!((&refused["pod"], &refused["reasons"][0]["code"]), (&json!("default/zone"), &json!("LabelNotDefined")));
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    let run = || scratch.run(&["plan", "-f", "shop.yaml", "--expand-workloads", "-o", "json"]).stdout;
    assert_eq!(run(), run());
}

#[test]
fn a_pod_is_explained_whether_it_has_a_place_or_not() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    let explain =
        |pod: &str| scratch.run(&["explain", "pod", pod, "-f", "shop.yaml", "--expand-workloads"]).transcript();
    expect![[r#"
        exit 0
        Pod shop/web-0 fits on old, which exists; nothing is launched for it
          decided by: the only free room that holds it

        exit 0
        Pod shop/web-4 goes on a new machine, default-0:
          c-4x-amd64-linux in test-zone-a, spot, $0.076012954/h
          the cheapest of 480 offerings that hold its 3 pods; the next best type is c-4x-arm64-linux for $0.076012954/h
          requests with daemons: cpu: 2900m, memory: 3Gi, pods: 4
          shared with 2 other pods
          decided by: the cheapest machine that holds it together with the 2 other pods on it
            1 other node: 1 without enough room (cpu 900m wanted, the most is 200m)
            192 offerings: 96 excluded by what NodePools require, 48 without enough room (cpu 900m wanted, the most is 700m), 48 would hold it by itself (of those that are cheaper or of a NodePool that comes first)

        exit 3
        Pod shop/giant is unschedulable:
          none of 1 existing nodes fits: 1 has too little room (cpu 1000 wanted, the most free is 200m of 2200m)
          nodepool/default: none of 144 instance types fits: 72 excluded by the NodePool's requirements, 72 too small (cpu 1000 wanted, the largest has 255.7 beside daemons)
          it would fit a new machine with 744.3 less cpu (nodepool/default)

        error: there is no Pod default/web-0 in the input
        exit 1
    "#]].assert_eq(&[explain("shop/web-0"), explain("shop/web-4"), explain("shop/giant"), explain("web-0")].join("\n"));
}

#[test]
fn a_node_is_explained_by_its_room_and_what_is_planned_on_it() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    let ran = scratch.run(&["explain", "node", "old", "-f", "shop.yaml", "--expand-workloads"]);
    expect![[r#"
        exit 0
        Node old
          is in use
          can hold cpu: 2200m, memory: 8Gi, pods: 20
          runs 0 pods, free without daemons to come: cpu 2200m of 2200m, memory 8Gi of 8Gi, pods 20 of 20
          planned onto it: shop/web-0
          planned onto it: shop/web-1
    "#]]
    .assert_eq(&ran.transcript());
    assert_eq!(scratch.run(&["explain", "node", "absent", "-f", "shop.yaml"]).code, 1);
}

/// A pod of the app `web` in one zone.
fn web(name: &str, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: web}}}}\nspec:\n  nodeSelector: \
         {{topology.kubernetes.io/zone: test-zone-a}}\n  containers: [{{name: c, resources: {{requests: {{cpu: 1500m}}}}}}]\n{more}"
    )
}

/// Two pods keep a spread that lets in no third of its app; the third only counts, and may come when both are there.
#[test]
fn pods_that_are_bound_after_the_others_are_named() {
    let scratch = Scratch::new();
    let spread = "  topologySpreadConstraints: [{maxSkew: 2, minDomains: 9, topologyKey: topology.kubernetes.io/zone, \
                  whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]\n";
    scratch.write("last.yaml", &[web("spread-0", spread), web("spread-1", spread), web("counted", "")].concat());
    let plan = scratch.run(&["plan", "-f", "last.yaml"]);
    let json = scratch.run(&["plan", "-f", "last.yaml", "-o", "json"]).json();
    assert_eq!(json["boundLater"], json!([["default/counted"]]));
    let explained = scratch.run(&["explain", "pod", "counted", "-f", "last.yaml"]);
    expect![[r#"
        New machines
          COUNT   NODEPOOL   INSTANCE TYPE      ZONE          CAPACITY   PRICE       TOTAL       PODS
              1   default    c-2x-amd64-linux   test-zone-a   spot       $0.0380/h   $0.0380/h      1
              1   default    c-4x-amd64-linux   test-zone-a   spot       $0.0760/h   $0.0760/h      2

        Bound after the others
          default/counted

        3 pods: 3 on 2 new machines for $0.1140/h (lower bound $0.0855/h)

        Pod default/counted goes on a new machine, default-0:
          c-2x-amd64-linux in test-zone-a, spot, $0.038006477/h
          the cheapest of 132 offerings that hold its 1 pod; the next best type is c-2x-arm64-linux for $0.038006477/h
          requests with daemons: cpu: 1500m, pods: 1
          bound after the other pods of the plan
          decided by: the cheapest machine that its rules leave
            1 other machine: 1 without enough room (cpu 1500m wanted, the most is 900m) (of this plan)
            96 offerings: 48 excluded by what NodePools require, 36 excluded by topology.kubernetes.io/zone In [test-zone-a], 12 without enough room (cpu 1500m wanted, the most is 900m) (of those that are cheaper or of a NodePool that comes first)
    "#]].assert_eq(&[plan.stdout, explained.stdout].join("\n"));
}

#[test]
fn completion_and_crds_are_printed() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = scratch.run(&["completion", shell]);
        assert!(ran.code == 0 && ran.stdout.contains("expand-workloads"), "{shell}");
    }
    let crds = scratch.run(&["crds"]);
    assert_eq!(crds.code, 0);
    assert_eq!(crds.stdout.matches("\nkind: CustomResourceDefinition\n").count(), 6);
}

/// A NodePool of one capacity type.
fn pool_of(capacity_type: &str) -> String {
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: p}}\nspec:\n  template:\n    spec:\n      requirements:\n      - \
         {{key: karpenter.sh/capacity-type, operator: In, values: [{capacity_type}]}}\n      nodeClassRef: {{group: \
         karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}\n"
    )
}

#[test]
fn two_sets_of_node_pools_are_compared() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    scratch.write("now.yaml", &pool_of("on-demand"));
    scratch.write("then.yaml", &pool_of("spot"));
    let arguments =
        ["plan", "-f", "shop.yaml", "-f", "now.yaml", "--compare", "now.yaml", "then.yaml", "--expand-workloads"];
    let ran = scratch.run(&arguments);
    expect![[r#"
                                now.yaml    then.yaml   DIFFERENCE
          new machines                  1           1                     +0
          pods with a place             5           5                     +0
            on existing nodes           2           2                     +0
          unschedulable pods            1           1                     +0
          price                 $0.1085/h   $0.0760/h   -$0.0325/h (-30.0 %)
          no plan below         $0.0733/h   $0.0513/h

        Other machines
          MACHINES   NODEPOOL, INSTANCE TYPE, ZONE, CAPACITY
                -1   p c-4x-amd64-linux test-zone-a on-demand
                +1   p c-4x-amd64-linux test-zone-a spot

        then.yaml costs $0.0325/h less than now.yaml
    "#]]
    .assert_eq(&ran.stdout);
    let json = scratch.run(&[&arguments[..], &["-o", "json"]].concat()).json();
    assert_eq!(json["difference"]["machines"], json!(0));
    assert!(json["difference"]["priceNanoUsdPerHour"].as_i64().unwrap() < 0, "{json:#}");
    let same = scratch.run(&["plan", "-f", "shop.yaml", "--compare", "now.yaml", "now.yaml", "--expand-workloads"]);
    assert!(same.stdout.ends_with("now.yaml costs the same as now.yaml\n"), "{}", same.stdout);
}

#[test]
fn a_side_without_a_place_for_a_pod_says_why() {
    let scratch = Scratch::new();
    scratch.write(
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: w, namespace: d}\nspec: {nodeSelector: {topology.kubernetes.io/zone: test-zone-b}, containers: [{name: c}]}\n",
    );
    scratch.write("any.yaml", &pool_of("spot"));
    let a_only = pool_of("spot").replace(
        "      nodeClassRef",
        "      - {key: topology.kubernetes.io/zone, operator: In, values: [test-zone-a]}\n      nodeClassRef",
    );
    scratch.write("a-only.yaml", &a_only);
    let ran = scratch.run(&["plan", "-f", "pod.yaml", "--compare", "any.yaml", "a-only.yaml"]);
    assert_eq!(ran.code, 3);
    expect![[r#"
                               any.yaml    a-only.yaml   DIFFERENCE
          new machines                 1             0                      -1
          pods with a place            1             0                      -1
          unschedulable pods           0             1                      +1
          price                $0.0190/h     $0.0000/h   -$0.0190/h (-100.0 %)
          no plan below        $0.0190/h     $0.0000/h

        Other machines
          MACHINES   NODEPOOL, INSTANCE TYPE, ZONE, CAPACITY
                -1   p c-1x-amd64-linux test-zone-b spot

        Unschedulable only in a-only.yaml
          d/w
            nodepool/p: wants topology.kubernetes.io/zone In [test-zone-b], the NodePool allows topology.kubernetes.io/zone In [test-zone-a]

        a-only.yaml costs $0.0190/h less than any.yaml; 1 pod loses a place
    "#]].assert_eq(&ran.stdout);
}

/// Pods that one side does not have gain and lose nothing; what changes is told by zone, and why a pod waits for other
/// reasons.
#[test]
fn sides_with_other_pods_zones_and_reasons_are_compared() {
    let scratch = Scratch::new();
    let pod = |name: &str, cpu: u32| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d}}\nspec: {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}\n"
        )
    };
    let in_zone = |zone: &str| {
        let zone =
            format!("      - {{key: topology.kubernetes.io/zone, operator: In, values: [{zone}]}}\n      nodeClassRef");
        pool_of("spot").replace("      nodeClassRef", &zone)
    };
    scratch.write("pods.yaml", &(pod("stays", 1) + &pod("giant", 500)));
    scratch.write("a.yaml", &(in_zone("test-zone-a") + &pod("gone", 900)));
    let limited = in_zone("test-zone-b").replace("spec:\n  template", "spec:\n  limits: {cpu: 4}\n  template");
    scratch.write("b.yaml", &(limited.replace("[linux]", "[linux, windows]") + &pod("new", 1)));
    let ran = scratch.run(&["plan", "-f", "pods.yaml", "--compare", "a.yaml", "b.yaml", "--karpenter-order"]);
    expect![[r#"
        exit 3
                               a.yaml (Karpenter's order)   b.yaml      DIFFERENCE
          new machines                                  1           1                      +0
          pods with a place                             1           2                      +1
          unschedulable pods                            2           1                      -1
          price                                 $0.0380/h   $0.0760/h   +$0.0380/h (+100.0 %)
          no plan below                         $0.0380/h   $0.0380/h

        Other machines
          MACHINES   NODEPOOL, INSTANCE TYPE, ZONE, CAPACITY
                -1   p c-2x-amd64-linux test-zone-a spot
                +1   p c-4x-amd64-linux test-zone-b spot

        Waiting in a.yaml (Karpenter's order) only
          d/gone

        Waiting in b.yaml only
          d/new

        Unschedulable in b.yaml for other reasons
          d/giant
            nodepool/p: none of 144 instance types fits: 144 too small (cpu 500 wanted, the largest has 255.9 beside daemons)
            it would fit a new machine with 244.1 less cpu and with 256 more in limits.cpu of nodepool/p

        b.yaml costs $0.0380/h more than a.yaml (Karpenter's order)
    "#]]
    .assert_eq(&ran.transcript());
    let json = scratch.run(&["plan", "-f", "pods.yaml", "--compare", "a.yaml", "b.yaml", "-o", "json"]).json();
    assert_eq!(json["difference"]["onlyInA"], json!(["d/gone"]));
    assert_eq!(json["difference"]["onlyInB"], json!(["d/new"]));
    assert_eq!((&json["difference"]["gained"], &json["difference"]["lost"]), (&json!([]), &json!([])));
}

#[test]
fn karpenters_order_is_never_cheaper() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    scratch.write("pool.yaml", &pool_of("on-demand"));
    let arguments =
        ["plan", "-f", "shop.yaml", "--compare", "pool.yaml", "pool.yaml", "--karpenter-order", "--expand-workloads"];
    let json = scratch.run(&[&arguments[..], &["-o", "json"]].concat()).json();
    assert!(json["difference"]["priceNanoUsdPerHour"].as_i64().unwrap() <= 0, "{json:#}");
}

#[test]
fn the_rule_that_decided_is_told_for_every_pod_with_a_place() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    let plan = |format: &str| {
        scratch.run(&["plan", "-f", "shop.yaml", "--expand-workloads", "--reasons", "-o", format]).transcript()
    };
    expect![[r#"
        note: no NodePool given, planning with a built-in one: default (kubernetes.io/os In [linux])
        exit 3
        New machines
          COUNT   NODEPOOL   INSTANCE TYPE      ZONE          CAPACITY   PRICE       TOTAL       PODS
              1   default    c-4x-amd64-linux   test-zone-a   spot       $0.0760/h   $0.0760/h      3

        Existing nodes
          NAME   PODS
          old       2

        Unschedulable
          shop/giant
            none of 1 existing nodes fits: 1 has too little room (cpu 1000 wanted, the most free is 200m of 2200m)
            nodepool/default: none of 144 instance types fits: 72 excluded by the NodePool's requirements, 72 too small (cpu 1000 wanted, the largest has 255.7 beside daemons)
            it would fit a new machine with 744.3 less cpu (nodepool/default)

        Why there
          shop/web-2, shop/web-3, shop/web-4 on default-0: the cheapest machine that holds it together with the 2 other pods on it
            1 other node: 1 without enough room (cpu 900m wanted, the most is 200m)
            192 offerings: 96 excluded by what NodePools require, 48 without enough room (cpu 900m wanted, the most is 700m), 48 would hold it by itself (of those that are cheaper or of a NodePool that comes first)
          shop/web-0, shop/web-1 on old: the only free room that holds it

        6 pods: 3 on 1 new machine for $0.0760/h (lower bound $0.0513/h), 2 on 1 existing node, 1 unschedulable
        Ignored: 2 ConfigMap
    "#]].assert_eq(&plan("table"));
    let answer = scratch.run(&["plan", "-f", "shop.yaml", "--expand-workloads", "--reasons", "-o", "json"]);
    let answer: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
    let placements = answer["placements"].as_array().unwrap();
    assert_eq!(placements.len(), 5, "a pod without a place has none");
    assert_eq!(placements[0]["pod"], "shop/web-0");
    assert_eq!(placements[0]["place"], "old");
    assert_eq!(placements[0]["decidedBy"]["code"], "OnlyRoom");
    let without = scratch.run(&["plan", "-f", "shop.yaml", "--expand-workloads", "-o", "json"]);
    assert!(!without.stdout.contains("placements"));
}

/// Room for two more web servers, and for a buffer that nothing holds.
const BUFFERS: &str = r"
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: spare, namespace: shop}
spec: {scalableRef: {apiGroup: apps, kind: Deployment, name: web}, percentage: 40}
---
apiVersion: v1
kind: PodTemplate
metadata: {name: giant, namespace: shop}
template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1000}}}]}}
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: too-large, namespace: shop}
spec: {podTemplateRef: {name: giant}, replicas: 1}
";

#[test]
fn room_that_is_kept_free_is_planned_after_all_pods_and_shown_apart() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    scratch.write("buffers.yaml", BUFFERS);
    let arguments = ["plan", "-f", "shop.yaml", "-f", "buffers.yaml", "--expand-workloads", "--check"];
    expect![[r#"
        note: no NodePool given, planning with a built-in one: default (kubernetes.io/os In [linux])
        exit 3
        New machines
          COUNT   NODEPOOL   INSTANCE TYPE      ZONE          CAPACITY   PRICE       TOTAL       PODS
              1   default    c-4x-amd64-linux   test-zone-a   spot       $0.0760/h   $0.0760/h      3
              1   default    c-2x-amd64-linux   test-zone-a   spot       $0.0380/h   $0.0380/h      0

        Existing nodes
          NAME   PODS
          old       2

        Room kept free
          CAPACITYBUFFER   PODS   ON NODES   ON NEW MACHINES   MISSING
          shop/spare          2          0                 2         0
          shop/too-large      1          0                 0         1
            shop/too-large: none of 1 existing nodes fits: 1 has too little room (cpu 1000 wanted, the most free is 200m of 2200m)
            shop/too-large: nodepool/default: none of 144 instance types fits: 72 excluded by the NodePool's requirements, 72 too small (cpu 1000 wanted, the largest has 255.7 beside daemons)
            shop/too-large: it would fit a new machine with 744.3 less cpu (nodepool/default)

        Unschedulable
          shop/giant
            none of 1 existing nodes fits: 1 has too little room (cpu 1000 wanted, the most free is 200m of 2200m)
            nodepool/default: none of 144 instance types fits: 72 excluded by the NodePool's requirements, 72 too small (cpu 1000 wanted, the largest has 255.7 beside daemons)
            it would fit a new machine with 744.3 less cpu (nodepool/default)

        6 pods: 3 and room for 2 more on 2 new machines for $0.1140/h (lower bound $0.0856/h), 2 on 1 existing node, 1 unschedulable
        Ignored: 2 ConfigMap
    "#]].assert_eq(&scratch.run(&arguments).transcript());
    let json = scratch.run(&[&arguments[..], &["-o", "json"]].concat()).json();
    let [spare, too_large] = json["capacityBuffers"].as_array().unwrap().as_slice() else { panic!("{json:#}") };
    let sum = |of: &serde_json::Value| of.as_object().unwrap().values().map(|it| it.as_u64().unwrap()).sum::<u64>();
    assert_eq!(spare["replicas"], 2);
    assert_eq!(sum(&spare["onExistingNodes"]) + sum(&spare["onNodeClaims"]), 2);
    assert_eq!((&too_large["missing"], too_large["reasons"][0]["code"].is_string()), (&json!(1), true));
}

#[test]
fn a_buffer_that_names_nothing_that_is_there_is_noted_and_stops_no_plan() {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    scratch.write("buffer.yaml", &BUFFERS.replace("name: web}", "name: gone}"));
    let ran = scratch.run(&["plan", "-f", "shop.yaml", "-f", "buffer.yaml", "--expand-workloads", "-o", "json"]);
    let why = "note: CapacityBuffer shop/spare keeps no room free: scalableRef: Deployment shop/gone was not found";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    assert_eq!(ran.json()["capacityBuffers"].as_array().map(Vec::len), Some(1));
}
