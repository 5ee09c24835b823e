//! The pods of a scenario and what they claim.

use serde_json::{Map, Value, json};

use super::{Family, ROOT, Writer, ZONE, ZONES};
use crate::fidelity::CLASS;
use crate::fidelity::devices::AGENT;
use crate::{Gates, objects};

impl Writer {
    /// What the claims of a class ask for.
    fn devices(&mut self) -> Value {
        let family = self.random.choose(&self.families.clone());
        let exact = |writer: &mut Self, family: Family, count: u64| {
            let mut exact = json!({ "deviceClassName": writer.class(family), "count": count });
            if writer.random.chance(3) {
                exact["tolerations"] = json!([{ "operator": "Exists" }]);
            }
            exact
        };
        let selector = |text: String| json!([{ "cel": { "expression": text } }]);
        let driver = self.driver(family);
        if self.families.len() > 1 && self.random.chance(6) {
            let other = self.random.choose(&self.families.clone());
            let mut alternatives = [exact(self, family, 2), exact(self, other, 1)];
            for (alternative, name) in alternatives.iter_mut().zip(["two", "other"]) {
                alternative["name"] = json!(name);
            }
            return json!({ "requests": [{ "name": "r", "firstAvailable": alternatives }] });
        }
        let mut first = exact(self, family, 1);
        let mut constraints = Vec::new();
        match family {
            Family::Gpu => {
                first["count"] = json!(self.random.choose(&[1, 1, 2]));
                match self.random.below(8) {
                    0 | 1 => {
                        let model = self.random.choose(&["x", "y"]);
                        first["selectors"] = selector(format!("device.attributes['{driver}'].model == '{model}'"));
                    }
                    2 => {
                        let larger = format!("device.capacity['{driver}'].memory.compareTo(quantity('60Gi')) >= 0");
                        first["selectors"] = selector(larger);
                    }
                    3 => {
                        first["allocationMode"] = json!("All");
                        first["count"] = Value::Null;
                    }
                    4 => constraints.push(json!({ "matchAttribute": format!("{driver}/model") })),
                    5 => {
                        let large = exact(self, family, 3);
                        let mut alternatives = [large, first];
                        for (alternative, name) in alternatives.iter_mut().zip(["many", "few"]) {
                            alternative["name"] = json!(name);
                        }
                        return json!({ "requests": [{ "name": "r", "firstAvailable": alternatives }] });
                    }
                    _ => {}
                }
            }
            Family::Partition => {
                let profile = self.random.choose(&["whole", "half", "quarter", ""]);
                first["selectors"] = selector(format!("device.attributes['{driver}'].profile.startsWith('{profile}')"));
            }
            Family::Shared => {
                let bandwidth = self.random.choose(&["1G", "3G", "2500M", "6G"]);
                first["capacity"] = json!({ "requests": { "bandwidth": bandwidth } });
                if self.random.chance(4) {
                    first["count"] = json!(2);
                    constraints.push(json!({ "distinctAttribute": format!("{driver}/card") }));
                }
            }
            Family::Nic | Family::Link | Family::Attached => {}
            Family::Advanced => {
                if self.random.chance(2) {
                    first["selectors"] = selector(format!("device.attributes['{driver}'].numa.includes(1)"));
                }
            }
        }
        let mut requests = vec![json!({ "name": "r", "exactly": first })];
        if family == Family::Gpu && self.has(Family::Nic) && self.random.chance(2) {
            requests.push(json!({ "name": "nic", "exactly": exact(self, Family::Nic, 1) }));
            if requests[0]["exactly"]["count"] == 1 {
                constraints.push(json!({ "matchAttribute": ROOT }));
            }
        }
        if self.random.chance(12) {
            requests.truncate(1);
            constraints.clear();
            requests[0]["exactly"]["adminAccess"] = json!(true);
        }
        json!({ "requests": requests, "constraints": constraints })
    }

    /// Pods that are alike, with claims.
    pub(super) fn class_of_pods(&mut self, class: u64) -> Vec<Value> {
        let mut spec = Map::new();
        let mut container = json!({ "name": "main", "image": "example.org/main", "resources": { "requests": {
            "cpu": format!("{}m", self.random.choose(&[100, 400, 900, 1500])),
            "memory": format!("{}Mi", self.random.choose(&[64, 512, 1500])),
        } } });
        if self.random.chance(3) {
            spec.insert("nodeSelector".to_owned(), json!({ ZONE: self.random.choose(&ZONES) }));
        }
        let mut count = 1 + self.random.below(6);
        if self.has(Family::Gpu) && self.random.chance(6) {
            let resource = self.extended_resource();
            container["resources"]["limits"] = json!({ resource: self.random.choose(&["1", "2"]) });
        } else {
            let (claim, most) = self.claim(class);
            count = count.min(most);
            if let Some(group) = self.group(class, count, &claim) {
                spec.insert("schedulingGroup".to_owned(), json!({ "podGroupName": group }));
                count = count.min(3);
            }
            spec.insert("resourceClaims".to_owned(), json!([claim]));
            container["resources"]["claims"] = json!([{ "name": "devices" }]);
        }
        spec.insert("containers".to_owned(), json!([container]));
        let changes = json!({ "metadata": { "labels": { CLASS: class.to_string(), "app": format!("class-{class}") } }, "spec": spec });
        let pod = |index| {
            objects::with(objects::pod(&self.name, &format!("class-{class}-{index}"), &json!({})), changes.clone())
        };
        (0..count).map(pod).collect()
    }

    /// An entry of a pod's claims, and how many pods should have it at most: one claim for all, or one for each.
    fn claim(&mut self, class: u64) -> (Value, u64) {
        if let Some(shared) = self.shared.take().filter(|_| self.random.chance(2)) {
            return (json!({ "name": "devices", "resourceClaimName": shared }), 2);
        }
        let name = format!("claim-{class}");
        let devices = self.devices();
        let (kind, field, spec, most) = if self.random.chance(6) {
            self.shared = Some(name.clone());
            ("ResourceClaim", "resourceClaimName", json!({ "devices": devices }), 3)
        } else {
            ("ResourceClaimTemplate", "resourceClaimTemplateName", json!({ "spec": { "devices": devices } }), u64::MAX)
        };
        self.objects.push(json!({ "apiVersion": "resource.k8s.io/v1", "kind": kind,
            "metadata": { "name": name, "namespace": self.name }, "spec": without_nulls(spec) }));
        (json!({ "name": "devices", field: name }), most)
    }

    /// Perhaps a DaemonSet whose pods want a device of their machine, or administrators' access to one.
    pub(super) fn agent(&mut self) -> Option<Value> {
        let local: Vec<Family> = self.families.iter().copied().filter(|family| !family.is_of_zone()).collect();
        if local.is_empty() || !self.random.chance(3) {
            return None;
        }
        let family = self.random.choose(&local);
        let mut device = json!({ "deviceClassName": self.class(family) });
        if self.random.chance(4) {
            device["adminAccess"] = json!(true);
        } else if family == Family::Gpu && self.random.chance(2) {
            let model = self.random.choose(&["x", "y"]);
            let expression = format!("device.attributes['{}'].model == '{model}'", self.driver(family));
            device["selectors"] = json!([{ "cel": { "expression": expression } }]);
        } else if family == Family::Shared {
            device["capacity"] = json!({ "requests": { "bandwidth": "2G" } });
        }
        let spec = json!({ "devices": { "requests": [{ "name": "r", "exactly": device }] } });
        self.objects.push(json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": { "name": "claim-agent", "namespace": self.name }, "spec": { "spec": spec } }));
        let requests = json!({ "cpu": "50m", "memory": "32Mi" });
        let mut pod = objects::pod_spec(&self.name, &requests);
        pod["resourceClaims"] = json!([{ "name": "device", "resourceClaimTemplateName": "claim-agent" }]);
        pod["containers"][0]["resources"]["claims"] = json!([{ "name": "device" }]);
        let labels = json!({ "app": AGENT });
        Some(json!({ "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": AGENT, "namespace": self.name },
            "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": pod } } }))
    }

    /// A PodGroup whose claim the pods share, where the cluster has such claims.
    fn group(&mut self, class: u64, pods: u64, claim: &Value) -> Option<String> {
        if !matches!(self.gates, Gates::All) || claim["resourceClaimTemplateName"].is_null() || !self.random.chance(5) {
            return None;
        }
        let name = format!("group-{class}");
        let policy =
            if self.random.chance(2) { json!({ "gang": { "minCount": pods.min(3) } }) } else { json!({ "basic": {} }) };
        self.objects.push(json!({ "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
            "metadata": { "name": name, "namespace": self.name },
            "spec": { "schedulingPolicy": policy, "resourceClaims": [claim] } }));
        Some(name)
    }

    /// GPUs under the name that their class gives them, or under the class's own.
    fn extended_resource(&mut self) -> String {
        if self.random.chance(3) {
            return format!("deviceclass.resource.kubernetes.io/{}", self.class(Family::Gpu));
        }
        self.named_resource()
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}
