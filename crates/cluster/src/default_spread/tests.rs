use std::fmt::Write as _;

use api::labels::ProviderLabels;
use expect_test::{Expect, expect};
use model::LabelSelector;
use serde_json::{Value, json};

use super::*;
use crate::offline::{self, Release, Settings};
use decode::pod_selectors::{SelectorKind, pod_selector};
use decode::{Context, manifests};

const ZONE: &str = "
podTopologySpread:
  defaultConstraints:
  - {maxSkew: 2, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
";

#[test]
fn a_config_is_written_as_it_was_read() {
    let text = r#"{"podTopologySpread": {"defaultConstraints": [
        {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3,
         "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
        {"maxSkew": 5, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": null, "matchLabelKeys": []},
        {"maxSkew": 3, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}]}}"#;
    let config = SchedulerConfig::parse(text).unwrap();
    let written = serde_json::to_value(&config).unwrap();
    assert_eq!(serde_json::from_value::<SchedulerConfig>(written.clone()).unwrap(), config);
    expect![[r#"{"podTopologySpread":{"defaultConstraints":[{"maxSkew":1,"minDomains":3,"nodeAffinityPolicy":"Ignore","nodeTaintsPolicy":"Honor","topologyKey":"rack","whenUnsatisfiable":"DoNotSchedule"},{"maxSkew":5,"topologyKey":"rack","whenUnsatisfiable":"ScheduleAnyway"},{"maxSkew":3,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"ScheduleAnyway"}]}}"#]]
    .assert_eq(&written.to_string());
}

#[test]
fn nothing_configured_is_no_defaults() {
    for text in ["", " \n", "{}", "# nothing\n", "podTopologySpread: {}", "podTopologySpread: {defaultConstraints: []}"]
    {
        assert_eq!(SchedulerConfig::parse(text), Ok(SchedulerConfig::default()), "{text:?}");
    }
}

#[test]
fn what_is_not_understood_is_refused_with_field_and_reason() {
    let constraint = |change: Value| {
        let mut item = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        for (field, value) in change.as_object().unwrap() {
            item[field] = value.clone();
        }
        json!({"podTopologySpread": {"defaultConstraints": [item]}}).to_string()
    };
    let item = "podTopologySpread.defaultConstraints[0]";
    let table = [
        ("[]".to_owned(), "is a list, not an object".to_owned()),
        ("text".to_owned(), "is a string, not an object".to_owned()),
        ("plugins: []".to_owned(), "unknown field \"plugins\"".to_owned()),
        ("profiles: [{}]".to_owned(), "profiles[0].schedulerName: is missing".to_owned()),
        (
            "profiles: [{schedulerName: a}, {schedulerName: a}]".to_owned(),
            "profiles[1].schedulerName: is the name of another profile too".to_owned(),
        ),
        (
            "podTopologySpread: {defaultingType: List}".to_owned(),
            "podTopologySpread: unknown field \"defaultingType\"".to_owned(),
        ),
        (
            "podTopologySpread: {defaultConstraints: {}}".to_owned(),
            "podTopologySpread.defaultConstraints: is an object, not a list".to_owned(),
        ),
        ("podTopologySpread: {defaultConstraints: [null]}".to_owned(), format!("{item}: is missing")),
        (constraint(json!({"maxSkew": null})), format!("{item}.maxSkew: is missing")),
        (constraint(json!({"maxSkew": 0})), format!("{item}.maxSkew: 0 is not between 1 and 2147483647")),
        (constraint(json!({"maxSkew": "1"})), format!("{item}.maxSkew: is a string, not an integer")),
        (constraint(json!({"minDomains": -1})), format!("{item}.minDomains: -1 is not between 1 and 2147483647")),
        (constraint(json!({"topologyKey": ""})), format!("{item}.topologyKey: is missing")),
        (
            constraint(json!({"topologyKey": "/zone"})),
            format!("{item}.topologyKey: \"/zone\": prefix part must be non-empty"),
        ),
        (constraint(json!({"whenUnsatisfiable": null})), format!("{item}.whenUnsatisfiable: is missing")),
        (
            constraint(json!({"whenUnsatisfiable": "Never"})),
            format!("{item}.whenUnsatisfiable: unknown action \"Never\""),
        ),
        (
            constraint(json!({"nodeTaintsPolicy": "honor"})),
            format!("{item}.nodeTaintsPolicy: unknown node inclusion policy \"honor\""),
        ),
        (
            constraint(json!({"labelSelector": {}})),
            format!("{item}.labelSelector: must not be set: it is deduced from what selects the pod"),
        ),
        (
            constraint(json!({"matchLabelKeys": ["a"]})),
            format!("{item}.matchLabelKeys: must not be set: the selector is deduced from what selects the pod"),
        ),
        (constraint(json!({"skew": 1})), format!("{item}: unknown field \"skew\"")),
    ];
    for (text, expected) in table {
        let refused = SchedulerConfig::parse(&text).unwrap_err().to_string();
        assert_eq!(refused, expected, "{text}");
    }
    let twice = "podTopologySpread: {defaultConstraints: [
        {maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway},
        {maxSkew: 2, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]}";
    assert_eq!(
        SchedulerConfig::parse(twice).unwrap_err().to_string(),
        "podTopologySpread.defaultConstraints[2]: another constraint over a has DoNotSchedule too"
    );
    assert!(SchedulerConfig::parse("podTopologySpread: {").is_err());
}

/// What selects pods, a line each; the pod's labels are `app=web, tier=front`.
const SELECTORS: &str = r"
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}}}
---
{apiVersion: v1, kind: Service, metadata: {name: front, namespace: shop}, spec: {selector: {tier: front}}}
---
{apiVersion: v1, kind: Service, metadata: {name: other, namespace: shop}, spec: {selector: {app: web, tier: back}}}
---
{apiVersion: v1, kind: Service, metadata: {name: nobody, namespace: shop}, spec: {}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: away}, spec: {selector: {app: web}}}
---
{apiVersion: v1, kind: ReplicationController, metadata: {name: rc, namespace: bare}, spec: {selector: {app: rc}}}
---
{apiVersion: v1, kind: ReplicationController, metadata: {name: rc, namespace: shop}, spec: {selector: {app: rc, old: 'yes'}}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-1, namespace: shop}, spec: {selector: {matchLabels: {app: web, pod-template-hash: '1'}}}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-1, namespace: bare}, spec: {selector: {matchExpressions: [{key: app, operator: In, values: [web, www]}]}}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: odd, namespace: shop}, spec: {selector: {matchLabels: {app: api}}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, namespace: bare}, spec: {selector: {matchLabels: {app: db}}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: none, namespace: bare}, spec: {}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: bare}, spec: {selector: {matchLabels: {app: web}}}}
";

fn owner(api_version: &str, kind: &str, name: &str) -> Owner {
    Owner { api_version: api_version.into(), kind: kind.into(), name: name.into(), uid: "u".into(), controller: true }
}

#[test]
fn the_selector_is_what_services_and_the_controller_select_by() {
    let mut names = Interner::new();
    let parsed = manifests::parse("selectors", SELECTORS);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    let read = parsed.manifests.iter().map(|manifest| {
        let kind = SelectorKind::of(&manifest.group, &manifest.kind).unwrap();
        Arc::new(pod_selector(&manifest.object, kind, &mut Context::new(&mut names)).unwrap())
    });
    let selectors = PodSelectors::new(read.collect());
    let pod = Labels::intern([("app", "web"), ("tier", "front")], &mut names);
    let deduced =
        |namespace: &str, owner: Option<Owner>| match selectors.deduce(&namespace.into(), &pod, owner.as_ref(), &names)
        {
            Some(LabelSelector::Matching(requirements)) => requirements.display(&names).to_string(),
            Some(LabelSelector::Nothing) => panic!("a selector that is absent"),
            None => "-".to_owned(),
        };
    let table = [
        ("shop", None, "app In [web], tier In [front]"),
        ("away", None, "app In [web]"),
        ("bare", None, "-"),
        ("none", None, "-"),
        // A ReplicationController's labels replace those of Services.
        ("shop", Some(owner("v1", "ReplicationController", "rc")), "app In [rc], old In [yes], tier In [front]"),
        ("bare", Some(owner("v1", "ReplicationController", "rc")), "app In [rc]"),
        (
            "shop",
            Some(owner("apps/v1", "ReplicaSet", "web-1")),
            "app In [web], pod-template-hash In [1], tier In [front]",
        ),
        ("bare", Some(owner("apps/v1", "ReplicaSet", "web-1")), "app In [web www]"),
        // All of it must hold, though nothing can.
        ("shop", Some(owner("apps/v1", "ReplicaSet", "odd")), "app In [], tier In [front]"),
        ("bare", Some(owner("apps/v1", "StatefulSet", "web")), "app In [db]"),
        ("bare", Some(owner("apps/v1", "StatefulSet", "none")), "-"),
        ("bare", Some(owner("apps/v1", "StatefulSet", "gone")), "-"),
        // Of another group, or of a kind that kube-scheduler does not look at.
        ("bare", Some(owner("apps.kruise.io/v1", "StatefulSet", "web")), "-"),
        ("bare", Some(owner("apps/v1beta1", "StatefulSet", "web")), "-"),
        ("shop", Some(owner("batch/v1", "Job", "web")), "app In [web], tier In [front]"),
        ("away", Some(owner("v1", "Service", "web")), "app In [web]"),
        // A workload that nobody has made yet.
        ("bare", Some(owner("apps/v1", "Deployment", "web")), "app In [web], pod-template-hash DoesNotExist"),
    ];
    for (namespace, owner, expected) in table {
        assert_eq!(deduced(namespace, owner.clone()), expected, "{namespace} {owner:?}");
    }
}

fn settings<'a>(labels: &'a ProviderLabels, config: &'a SchedulerConfig) -> Settings<'a> {
    Settings {
        expand_workloads: false,
        default_node_pool: None,
        instance_types: &[],
        node_class_types: None,
        repair_policies: None,
        labels,
        node_classes: &[],
        provider_crds: &[],
        release: Release::default(),
        scheduler_config: Some(config),
    }
}

/// The spread of each pod that waits, and of each buffer.
#[track_caller]
fn check(text: &str, config: &str, expected: Expect) {
    let parsed = manifests::parse("input", text);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    let labels = Default::default();
    let config = SchedulerConfig::parse(config).unwrap();
    let settings = Settings { expand_workloads: true, ..settings(&labels, &config) };
    let offline = offline::read(parsed.manifests, Vec::new(), &settings);
    assert!(offline.problems.is_empty(), "{:?}", offline.problems);
    let (snapshot, _) = crate::snapshot(offline.cluster, offline.interner, &labels);
    let names = &*snapshot.interner;
    let mut printed = String::new();
    let mut print = |name: String, shape: &PodShape| {
        let _ = write!(printed, "{name}:");
        for spread in &shape.topology_spread {
            let LabelSelector::Matching(selector) = &spread.selector else { panic!("no selector") };
            let (key, selector) = (names.key_name(spread.topology_key), selector.display(names));
            let _ = write!(printed, " [{:?} {key} {} {selector}]", spread.source, spread.max_skew);
        }
        printed.push('\n');
    };
    for PendingPod { pod, .. } in snapshot.pods.iter() {
        print(pod.name.to_string(), &pod.shape);
    }
    for buffer in &snapshot.buffers {
        print(format!("buffer {}", buffer.name), &buffer.template.shape);
    }
    let _ = writeln!(printed, "not used {:?}", offline.not_used);
    expected.assert_eq(&printed);
}

const INPUT: &str = r"
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: plain, labels: {app: web}}, spec: {containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: alone, labels: {app: alone}}, spec: {containers: [{name: c}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: own, labels: {app: web}}
spec:
  containers: [{name: c}]
  topologySpreadConstraints: [{maxSkew: 7, topologyKey: rack, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api}
spec: {replicas: 1, selector: {matchLabels: {app: api}}, template: {metadata: {labels: {app: api}}, spec: {containers: [{name: c}]}}}
---
apiVersion: v1
kind: PodTemplate
metadata: {name: spare}
template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: spare}
spec: {podTemplateRef: {name: spare}, replicas: 1}
";

#[test]
fn pods_without_constraints_get_the_defaults_and_others_keep_theirs() {
    check(
        INPUT,
        ZONE,
        expect![[r#"
        default/plain: [ClusterDefault topology.kubernetes.io/zone 2 app In [web]]
        default/alone:
        default/own: [Pod rack 7 app In [web]]
        default/api-0: [ClusterDefault topology.kubernetes.io/zone 2 app In [api], pod-template-hash DoesNotExist]
        buffer default/spare: [ClusterDefault topology.kubernetes.io/zone 2 app In [web]]
        not used {}
    "#]],
    );
}

#[test]
fn without_defaults_what_selects_pods_has_no_part_in_the_plan() {
    check(
        INPUT,
        "",
        expect![[r#"
        default/plain:
        default/alone:
        default/own: [Pod rack 7 app In [web]]
        default/api-0:
        buffer default/spare:
        not used {"Service": 1}
    "#]],
    );
}

#[test]
fn pods_of_one_shape_and_selector_share_their_shape_with_defaults() {
    let pod = |name: &str, app: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {app}}}}}, spec: {{containers: [{{name: c}}]}}}}\n"
        )
    };
    let text = format!("{INPUT}{}{}", pod("plain-2", "web"), pod("alone-2", "alone"));
    let labels = Default::default();
    let config = SchedulerConfig::parse(ZONE).unwrap();
    let settings = settings(&labels, &config);
    let offline = offline::read(manifests::parse("input", &text).manifests, Vec::new(), &settings);
    let (snapshot, _) = crate::snapshot(offline.cluster, offline.interner, &labels);
    let shape = |name: &str| {
        let pod = snapshot.pods.iter().find(|pending| &*pending.pod.name.name == name).unwrap();
        Arc::clone(&pod.pod.shape)
    };
    assert!(Arc::ptr_eq(&shape("plain"), &shape("plain-2")));
    assert!(Arc::ptr_eq(&shape("alone"), &shape("alone-2")));
    assert_ne!(shape("plain"), shape("alone"));
}

#[test]
fn a_schedulers_own_defaults_stand_in_place_of_the_common_ones() {
    let pod = |name: &str, scheduler: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: web}}}}, spec: {{schedulerName: {scheduler}, containers: [{{name: c}}]}}}}\n"
        )
    };
    let service = "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}}}\n".to_owned();
    let profiles = "
profiles:
- {schedulerName: without}
- schedulerName: racks
  podTopologySpread: {defaultConstraints: [{maxSkew: 5, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]}
";
    let config = SchedulerConfig::parse(&(ZONE.to_owned() + profiles)).unwrap();
    let written = serde_json::to_value(&config).unwrap();
    assert_eq!(serde_json::from_value::<SchedulerConfig>(written).unwrap(), config);
    check(
        &(service + &pod("common", "another") + &pod("none", "without") + &pod("racks", "racks")),
        &(ZONE.to_owned() + profiles),
        expect![[r#"
            default/common: [ClusterDefault topology.kubernetes.io/zone 2 app In [web]]
            default/none:
            default/racks: [ClusterDefault rack 5 app In [web]]
            not used {}
        "#]],
    );
}
