//! Devices that cost something of their machine (KEP-5517): what a person is told of them, wherever a pod is named.

use expect_test::expect;

use crate::scratch::Scratch;

/// Cards that take eight cores each, on the machines of one family.
const CARDS: &str = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: np}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
      - {key: kubernetes.io/os, operator: In, values: [linux]}
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: cards}
spec:
  requirements:
  - {key: karpenter.kwok.sh/instance-family, operator: In, values: [m]}
  dynamicResources:
    resourceSliceTemplates:
    - metadata: {name: cards}
      spec:
        driver: card.test
        devices:
        - name: card-{index}
          replicas: 4
          nodeAllocatableResources: {cpu: {mapping: {deviceMultiplier: "8"}}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: card}
spec: {selectors: [{cel: {expression: 'device.driver == "card.test"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two, namespace: default}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: card, count: 2}}]}}}
"#;

const NODE: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {kubernetes.io/hostname: n1, kubernetes.io/arch: amd64, kubernetes.io/os: linux}}
status:
  declaredFeatures: [DRANodeAllocatableResources]
  allocatable: {cpu: "18", memory: 16Gi, pods: "110"}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-card}
spec:
  driver: card.test
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: a, nodeAllocatableResources: {cpu: {mapping: {deviceMultiplier: "8"}}}}
  - {name: b, nodeAllocatableResources: {cpu: {mapping: {deviceMultiplier: "8"}}}}
"#;

/// A pod that requests so much CPU, and says this of itself as a whole.
fn pod(cpu: &str, whole: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: p, namespace: default}}
spec:
  resources: {whole}
  resourceClaims: [{{name: c, resourceClaimTemplateName: two}}]
  containers: [{{name: c, image: x, resources: {{requests: {{cpu: "{cpu}"}}, claims: [{{name: c}}]}}}}]
"#
    )
}

/// What a command with these objects prints.
fn ran(command: &[&str], objects: &[&str]) -> String {
    let scratch = Scratch::new();
    scratch.write("all.yaml", &objects.join("\n---"));
    let release = ["-f", "all.yaml", "--kubernetes", "1.37", "--gates", "all"];
    scratch.run(&[command, &release].concat()).transcript()
}

#[test]
fn a_plan_shows_what_a_pod_takes_with_its_devices_and_of_what_that_is_made_up() {
    expect![[r#"
        exit 0
        New machines
          NAME   INSTANCE TYPE       ZONE          CAPACITY   PRICE       CPU          MEMORY       TYPES   NEXT BEST                     DEVICES          PODS
          np-0   m-32x-amd64-linux   test-zone-a   spot       $0.7524/h   17 of 31.9   0 of 255Gi       7   m-48x-amd64-linux $1.1286/h   2 of card.test   default/p
          default/p takes cpu 17 = 1 requested + 16 for claim c (2 devices × 8)

        1 pod: 1 on 1 new machine for $0.7524/h (lower bound $0.0470/h)
    "#]].assert_eq(&ran(&["plan", "-o", "wide", "--check"], &[CARDS, &pod("1", "{}")]));
    expect![[r#"
        exit 0
        Existing nodes
          NAME   CPU          MEMORY      PODS
          n1     16.5 of 18   0 of 16Gi   default/p
          default/p takes cpu 16.5 = 500m requested + 16 for claim c (2 devices × 8)

        1 pod: 1 on 1 existing node
    "#]]
    .assert_eq(&ran(&["plan", "-o", "wide", "--check"], &[CARDS, NODE, &pod("500m", "{}")]));
    expect![[r#"
        exit 0
        {
          "schemaVersion": 1,
          "nodeClaims": [],
          "existingNodes": [
            {
              "name": "n1",
              "pods": [
                "default/p"
              ],
              "deviceCosts": [
                {
                  "pod": "default/p",
                  "takes": {
                    "cpu": "16500m"
                  },
                  "costs": [
                    {
                      "claim": "c",
                      "resource": "cpu",
                      "devices": 2,
                      "amount": "16"
                    }
                  ]
                }
              ]
            }
          ],
          "unschedulable": [],
          "notUsed": {},
          "cost": {
            "priceNanoUsdPerHour": 0,
            "nodeCostsNanoUsdPerHour": 0,
            "lowerBoundNanoUsdPerHour": 0
          }
        }
    "#]]
    .assert_eq(&ran(&["plan", "-o", "json"], &[CARDS, NODE, &pod("500m", "{}")]));
    expect![[r#"
        exit 0
        Pod default/p goes on a new machine, np-0:
          m-32x-amd64-linux in test-zone-a, spot, $0.752414535/h
          the cheapest of 56 offerings that hold its 1 pod; the next best type is m-48x-amd64-linux for $1.128621802/h
          requests with daemons: cpu: 17, pods: 1
          takes cpu 17 = 1 requested + 16 for claim c (2 devices × 8)
          decided by: the cheapest machine that its rules leave
            512 offerings: 384 excluded by what NodePools require, 16 without enough room (cpu 1 wanted, the most is 900m), 40 without enough room (cpu 17 wanted = 1 requested + 16 for claim c (2 devices × 8), the most is 15.9), 72 without the devices it claims (of those that are cheaper or of a NodePool that comes first)
    "#]].assert_eq(&ran(&["explain", "pod", "p"], &[CARDS, &pod("1", "{}")]));
}

#[test]
fn where_there_is_no_room_for_it_the_same_sum_is_told() {
    let node = NODE.replace("\"18\"", "15900m");
    let cards = CARDS.replace("deviceMultiplier: \"8\"", "deviceMultiplier: \"800\"");
    expect![[r#"
        exit 3
        Unschedulable
          default/p
            none of 1 existing nodes fits: 1 has too little room (cpu 17 wanted = 1 requested + 16 for claim c (2 devices × 8), the most free is 15.9 of 15.9)
            nodepool/np: none of 144 instance types fits: 108 excluded by the NodePool's requirements, 14 too small (cpu 1601 wanted = 1 requested + 1600 for claim c (2 devices × 800), the largest has 255.9 beside daemons), 22 without the devices it claims (claim c, request r: 0 of 0 devices are usable, 2 wanted)
            needs 2 of card (claim c, request r); 48 of 144 instance types have a template for it; 36 are excluded by the NodePool's requirements; 12 are too small

        1 pod: 1 unschedulable
    "#]].assert_eq(&ran(&["plan"], &[&cards, &node, &pod("1", "{}")]));
}

#[test]
fn a_pod_whose_own_total_does_not_cover_its_devices_is_told_that() {
    expect![[r#"
        exit 3
        Unschedulable
          default/p
            none of 1 existing nodes fits: 1 does not have the devices it claims (the pod asks for 2 cpu as a whole, but its containers and devices take 17)
            nodepool/np: none of 144 instance types fits: 108 excluded by the NodePool's requirements, 6 too small (cpu 2 wanted, the largest has 1900m beside daemons), 30 without the devices it claims (the pod asks for 2 cpu as a whole, but its containers and devices take 17; or claim c, request r: 0 of 0 devices are usable, 2 wanted)
            needs 2 of card (claim c, request r); 48 of 144 instance types have a template for it; 48 fail: the pod asks for 2 cpu as a whole, but its containers and devices take 17

        1 pod: 1 unschedulable
    "#]].assert_eq(&ran(&["plan", "--check"], &[CARDS, NODE, &pod("1", "{requests: {cpu: 2}}")]));
    // The API server fills in what it asks for as a whole where only a limit is written.
    expect![[r#"
        exit 3
        Unschedulable
          default/p
            none of 1 existing nodes fits: 1 does not have the devices it claims (the pod asks for 1 cpu as a whole, but its containers and devices take 17)
            nodepool/np: none of 144 instance types fits: 108 excluded by the NodePool's requirements, 3 too small (cpu 1 wanted, the largest has 900m beside daemons), 33 without the devices it claims (the pod asks for 1 cpu as a whole, but its containers and devices take 17; or claim c, request r: 0 of 0 devices are usable, 2 wanted)
            needs 2 of card (claim c, request r); 48 of 144 instance types have a template for it; 48 fail: the pod asks for 1 cpu as a whole, but its containers and devices take 17

        1 pod: 1 unschedulable
    "#]].assert_eq(&ran(&["plan", "--check"], &[CARDS, NODE, &pod("1", "{limits: {cpu: 20}}")]));
    expect![[r#"
        exit 0
        New machines
          COUNT   NODEPOOL   INSTANCE TYPE       ZONE          CAPACITY   PRICE       TOTAL       DEVICES          PODS
              1   np         m-32x-amd64-linux   test-zone-a   spot       $0.7524/h   $0.7524/h   2 of card.test      1

        1 pod: 1 on 1 new machine for $0.7524/h (lower bound $0.7524/h)
    "#]]
    .assert_eq(&ran(&["plan", "--check"], &[CARDS, NODE, &pod("1", "{requests: {cpu: 20}, limits: {cpu: 20}}")]));
}
