//! Amazon Linux 2023: a NodeConfig for nodeadm, after those and the scripts of the user; nodeadm lets the last one win.

use serde_json::{Map, Value, json};

use super::mime::{self, Part};
use super::{Boot, Error, kubelet_args};

const API_VERSION: &str = "node.eks.aws/v1alpha1";
const KIND: &str = "NodeConfig";
const CONTENT_TYPE: &str = "application/node.eks.aws";

pub(super) fn render(boot: &Boot<'_>) -> Result<String, Error> {
    let mut parts = Vec::new();
    if let Some(text) = boot.user_data {
        let single = |text: &str| if is_node_config(text) { Part::new(CONTENT_TYPE, text) } else { Part::script(text) };
        parts = mime::parts_of(text, single)?;
    }
    let config = serde_saphyr::to_string(&node_config(boot)?).map_err(|error| Error::Yaml(error.to_string()))?;
    parts.push(Part::new(CONTENT_TYPE, &config));
    Ok(mime::join(&parts).replace('\r', ""))
}

/// Whether a text is the YAML of a NodeConfig, of any version.
fn is_node_config(text: &str) -> bool {
    let Ok(object) = serde_saphyr::from_str::<Value>(text) else { return false };
    let text = |field: &str| object.get(field).and_then(Value::as_str);
    let group = text("apiVersion").and_then(|version| version.split_once('/'));
    text("kind") == Some(KIND) && group.is_some_and(|(group, _)| group == "node.eks.aws")
}

fn node_config(boot: &Boot<'_>) -> Result<Value, Error> {
    let cluster = boot.cluster;
    let cidr = cluster.service_cidr.as_deref().ok_or(Error::ServiceCidrUnknown)?;
    let mut kubelet = Map::from_iter([("config".to_owned(), Value::Object(kubelet_config(boot)))]);
    if !boot.labels.is_empty() {
        let flag = format!("--node-labels={}", kubelet_args::labels(boot.labels));
        kubelet.insert("flags".to_owned(), json!([flag]));
    }
    let of_cluster = json!({
        "name": cluster.name,
        "apiServerEndpoint": cluster.endpoint,
        "certificateAuthority": cluster.ca_bundle.as_deref().unwrap_or_default(),
        "cidr": cidr,
    });
    let mut spec = Map::from_iter([("cluster".to_owned(), of_cluster), ("kubelet".to_owned(), Value::Object(kubelet))]);
    if boot.is_raid0() {
        spec.insert("instance".to_owned(), json!({ "localStorage": { "strategy": "RAID0" } }));
    }
    Ok(json!({ "apiVersion": API_VERSION, "kind": KIND, "spec": spec }))
}

/// The settings as the user wrote them, with what is found out.
fn kubelet_config(boot: &Boot<'_>) -> Map<String, Value> {
    let written = boot.kubelet.written.iter().filter(|(_, value)| !value.is_null());
    let mut config: Map<_, _> = written.map(|(field, value)| (field.clone(), value.clone())).collect();
    config.insert("maxPods".to_owned(), json!(boot.max_pods));
    let dns = boot.cluster_dns();
    if !dns.is_empty() {
        config.insert("clusterDNS".to_owned(), json!(dns));
    }
    if !boot.taints.is_empty() {
        config.insert("registerWithTaints".to_owned(), json!(boot.taints));
    }
    config
}
