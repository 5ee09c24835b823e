//! Objects with a part replaced by something else: never a panic, and an error names the object. Text of any kind:
//! never a panic either. And what a snapshot keeps of an object reads like the whole object.

use std::sync::LazyLock;

use cluster::snapshot_file::{KINDS, prune};
use decode::capacity_buffer::{self, TemplateKind};
use decode::pod_selectors::SelectorKind;
use decode::scheduler_config::SchedulerConfig;
use decode::{Context, ObjectError, devices};
use model::Interner;
use proptest::prelude::*;
use serde_json::{Value, json};

/// One object of each kind with about every field that is read.
static OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let text = include_str!("hostile/objects.yaml");
    let parsed = decode::manifests::parse("objects.yaml", text);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    parsed.manifests.into_iter().map(|manifest| manifest.object).collect()
});

/// What an object is read as, printed; the order of ids is that of reading, so equal objects print alike.
fn read(object: &Value) -> Result<String, ObjectError> {
    let mut interner = Interner::new();
    let context = &mut Context::new(&mut interner);
    Ok(match object["kind"].as_str().unwrap_or_default() {
        "Pod" => format!("{:?}", decode::pod(object, context)?),
        "Node" => format!("{:?}", decode::node(object, context)?),
        "Namespace" => format!("{:?}", decode::namespace(object, context)?),
        "CSINode" => format!("{:?}", decode::csi_node(object)?),
        "DaemonSet" => format!("{:?}", decode::daemon_set(object, context)?),
        "PersistentVolume" => format!("{:?}", decode::persistent_volume(object, context)?),
        "PersistentVolumeClaim" => format!("{:?}", decode::persistent_volume_claim(object)?),
        "StorageClass" => format!("{:?}", decode::storage_class(object, context)?),
        "PodDisruptionBudget" => format!("{:?}", decode::pod_disruption_budget(object, context)?),
        "LimitRange" => format!("{:?}", decode::limit_range(object)?),
        "ResourceQuota" => format!("{:?}", decode::resource_quota(object)?),
        "PriorityClass" => format!("{:?}", decode::priority_class(object)?),
        "PodGroup" => format!("{:?}", decode::pod_group(object, context)?),
        "NodePool" => format!("{:?}", decode::node_pool_object(object)?),
        "NodeClaim" => format!("{:?}", decode::node_claim_object(object)?),
        "CapacityBuffer" => format!("{:?}", decode::capacity_buffer_object(object)?),
        "NodeOverlay" => format!("{:?}", decode::node_overlay_object(object)?),
        "DeviceClass" => format!("{:?}", devices::device_class(object, devices::Admitted::ByServer)?),
        "ResourceSlice" => format!("{:?}", devices::resource_slice(object, devices::Admitted::ByServer)?),
        "ResourceClaim" => format!("{:?}", devices::resource_claim(object, devices::Admitted::ByServer)?),
        "ResourceClaimTemplate" => {
            format!("{:?}", devices::resource_claim_template(object, devices::Admitted::ByServer)?)
        }
        "DeviceTaintRule" => format!("{:?}", devices::device_taint_rule(object, devices::Admitted::ByServer)?),
        other => {
            let template = TemplateKind::ALL.into_iter().find(|kind| kind.as_str() == other);
            let template = template.map(|kind| capacity_buffer::buffer_template(object, kind, context)).transpose()?;
            let selector = SelectorKind::OF_SCHEDULER.into_iter().find(|kind| kind.as_str() == other);
            let selector =
                selector.map(|kind| decode::pod_selectors::pod_selector(object, kind, context)).transpose()?;
            assert!(template.is_some() || selector.is_some(), "no decoder for {other:?}");
            format!("{template:?} {selector:?}")
        }
    })
}

/// The paths of all values in an object.
fn paths(value: &Value, path: &str, all: &mut Vec<String>) {
    all.push(path.to_owned());
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                paths(value, &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), all);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| paths(item, &format!("{path}/{index}"), all));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn hostile_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["", "-1", "1e99", "9E", "Exists", "In", "Gt", "1Gi", "é\u{202e}", "\u{0}", "100%"])
            .prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z]{0,12}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

#[test]
fn every_object_of_the_fixture_is_read() {
    for object in OBJECTS.iter() {
        if let Err(error) = read(object) {
            panic!("{error}");
        }
    }
}

#[test]
fn what_a_snapshot_keeps_reads_like_the_whole_object() {
    let mut compared = 0;
    for object in OBJECTS.iter() {
        let Some(kind) = KINDS.iter().find(|kind| object["kind"] == kind.kind) else { continue };
        assert_eq!(read(&prune(object, kind)).unwrap(), read(object).unwrap(), "{}", object["kind"]);
        compared += 1;
    }
    assert_eq!(compared, KINDS.len(), "each kind has an object");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_object_with_a_part_replaced_is_read_or_named(which in any::<prop::sample::Index>(), place in any::<prop::sample::Index>(), value in hostile_value()) {
        let mut object = which.get(&OBJECTS[..]).clone();
        let kind = object["kind"].clone();
        let mut all = Vec::new();
        paths(&object, "", &mut all);
        *object.pointer_mut(place.get(&all[..]).as_str()).unwrap() = value;
        if let Value::Object(fields) = &mut object {
            fields.insert("kind".to_owned(), kind.clone());
        } else {
            object = json!({ "kind": kind });
        }
        if let Err(error) = read(&object) {
            prop_assert!(error.to_string().starts_with(kind.as_str().unwrap()), "{}", error);
        }
    }

    #[test]
    fn a_scheduler_config_with_a_part_replaced_is_read_or_named(place in any::<prop::sample::Index>(), value in hostile_value()) {
        let mut config = json!({"podTopologySpread": {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2, "nodeAffinityPolicy": "Honor", "matchLabelKeys": []}]}});
        let mut all = Vec::new();
        paths(&config, "", &mut all);
        *config.pointer_mut(place.get(&all[..]).as_str()).unwrap() = value;
        if let Ok(config) = SchedulerConfig::parse(&config.to_string()) {
            let written = serde_json::to_string(&config).unwrap();
            prop_assert_eq!(SchedulerConfig::parse(&written), Ok(config));
        }
    }

    #[test]
    fn text_of_any_kind_is_read_or_refused(text in "(?s).{0,300}") {
        decode::manifests::parse("any", &text);
        let _ = SchedulerConfig::parse(&text);
    }

    #[test]
    fn text_that_looks_like_yaml_is_read_or_refused(text in "([ -]{0,3}[a-z&*!|>{}\\[\\]\"':,#%@~?<-]{1,6}[: \n]{1,2}){0,40}") {
        decode::manifests::parse("any", &text);
        let _ = SchedulerConfig::parse(&text);
    }
}
