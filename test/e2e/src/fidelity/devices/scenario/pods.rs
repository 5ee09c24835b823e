//! The pods of a scenario and what they claim.

use serde_json::{Map, Value, json};

use super::{Family, Gpus, Offered, ROOT, Writer, ZONE};
use crate::fidelity::CLASS;
use crate::fidelity::devices::AGENT;
use crate::{Gates, Platform, objects};

impl Writer {
    /// A request for so many devices of a family.
    fn exactly(&mut self, family: Family, count: u64, tolerates: bool) -> Value {
        let mut exact = json!({ "deviceClassName": self.class(family), "count": count });
        if self.random.one_in(3) || tolerates || self.tainted == Some(family) {
            exact["tolerations"] = json!([{ "operator": "Exists" }]);
        }
        exact
    }

    /// What the claims of a class with pods in that zone ask for, and what each takes of what zones have.
    fn devices(&mut self, zone: Option<&str>) -> (Value, Vec<(Family, u64)>) {
        let families = self.families_left(zone);
        let target = *self.random.pick(&self.offered.clone());
        if families.is_empty() {
            let watched = self.families[0];
            return (json!({ "requests": [self.watching(watched)] }), vec![(watched, 0)]);
        }
        let family = *self.random.pick(&families);
        if families.len() > 1 && self.random.one_in(6) {
            let other = *self.random.pick(&families);
            let mut alternatives = [self.exactly(family, 2, true), self.exactly(other, 1, true)];
            for (alternative, name) in alternatives.iter_mut().zip(["two", "other"]) {
                alternative["name"] = json!(name);
            }
            let takes = vec![(family, 2), (other, 1)];
            return (json!({ "requests": [{ "name": "r", "firstAvailable": alternatives }] }), takes);
        }
        let (request, constraints) = match family {
            Family::Gpu => return (self.gpus(&target), Vec::new()),
            Family::Partition => (self.partition(&target), Vec::new()),
            Family::Shared => self.bandwidth(&target),
            Family::Nic | Family::Link | Family::Attached => (self.exactly(family, 1, false), Vec::new()),
            Family::Advanced => {
                let mut exact = self.exactly(family, 1, false);
                if self.random.one_in(2) {
                    exact["selectors"] = self.selector(family, "numa.includes(1)");
                }
                (exact, Vec::new())
            }
        };
        if self.random.one_in(12) {
            return (json!({ "requests": [self.watching(family)] }), vec![(family, 0)]);
        }
        let devices = json!({ "requests": [{ "name": "r", "exactly": request }], "constraints": constraints });
        (devices, vec![(family, 1)])
    }

    /// A request that takes no device.
    fn watching(&mut self, family: Family) -> Value {
        let mut exact = self.exactly(family, 1, family == Family::Gpu);
        exact["adminAccess"] = json!(true);
        json!({ "name": "r", "exactly": exact })
    }

    fn selector(&self, family: Family, attribute: &str) -> Value {
        let expression = format!("device.attributes['{}'].{attribute}", self.driver(family));
        json!([{ "cel": { "expression": expression } }])
    }

    /// A claim of GPUs, perhaps with a card at the same root.
    fn gpus(&mut self, target: &Offered) -> Value {
        let held = self.held(Family::Gpu);
        let left = |gpus: Gpus| gpus.count.saturating_sub(held);
        let (main, other) = (left(target.gpus), left(target.other_gpus));
        let count = *self.random.pick(&[1, 1, 2]);
        let driver = self.driver(Family::Gpu);
        let mut constraints = Vec::new();
        let mut has_roots = true;
        let mut first = self.exactly(Family::Gpu, count.min(main), target.gpus.is_tainted);
        match self.random.below(8) {
            0 | 1 => {
                let is_other = other > 0 && self.random.one_in(2);
                let (gpus, most) = if is_other { (target.other_gpus, other) } else { (target.gpus, main) };
                has_roots = !is_other;
                first["count"] = json!(count.min(most));
                first["selectors"] = self.selector(Family::Gpu, &format!("model == '{}'", gpus.model));
            }
            2 if other > 0 => {
                let larger = format!("device.capacity['{driver}'].memory.compareTo(quantity('60Gi')) >= 0");
                has_roots = false;
                first["count"] = json!(count.min(other));
                first["selectors"] = json!([{ "cel": { "expression": larger } }]);
            }
            3 if held == 0 => {
                first["allocationMode"] = json!("All");
                first["count"] = Value::Null;
            }
            // Cards have no model.
            4 => constraints.push(json!({ "requests": ["r"], "matchAttribute": format!("{driver}/model") })),
            5 => {
                let large = self.exactly(Family::Gpu, 3, true);
                let mut alternatives = [large, first];
                for (alternative, name) in alternatives.iter_mut().zip(["many", "few"]) {
                    alternative["name"] = json!(name);
                }
                return json!({ "requests": [{ "name": "r", "firstAvailable": alternatives }] });
            }
            _ => {}
        }
        let pairs = target.nics.saturating_sub(self.held(Family::Nic).max(held));
        let mut requests = vec![json!({ "name": "r", "exactly": first })];
        if has_roots && pairs > 0 && self.random.one_in(2) {
            requests.push(json!({ "name": "nic", "exactly": self.exactly(Family::Nic, 1, false) }));
            if requests[0]["exactly"]["count"] == 1 {
                constraints.push(json!({ "matchAttribute": ROOT }));
            }
        }
        if self.random.one_in(12) {
            return json!({ "requests": [self.watching(Family::Gpu)] });
        }
        json!({ "requests": requests, "constraints": constraints })
    }

    fn partition(&mut self, target: &Offered) -> Value {
        let mut first = self.exactly(Family::Partition, 1, false);
        let profiles: &[&str] =
            if target.has_quarters { &["whole", "half", "quarter", ""] } else { &["whole", "half", ""] };
        let profile = *self.random.pick(profiles);
        first["selectors"] = self.selector(Family::Partition, &format!("profile.startsWith('{profile}')"));
        first
    }

    fn bandwidth(&mut self, target: &Offered) -> (Value, Vec<Value>) {
        let mut first = self.exactly(Family::Shared, 1, false);
        let bandwidth = *self.random.pick(&["1G", "3G", "2500M", "6G"]);
        first["capacity"] = json!({ "requests": { "bandwidth": bandwidth } });
        let mut constraints = Vec::new();
        if self.random.one_in(4) && target.shared > 1 {
            first["count"] = json!(2);
            constraints.push(json!({ "distinctAttribute": format!("{}/card", self.driver(Family::Shared)) }));
        }
        (first, constraints)
    }

    /// Pods that are alike, with claims.
    pub(super) fn class_of_pods(&mut self, class: u64) -> Vec<Value> {
        let mut spec = Map::new();
        let mut container = json!({ "name": "main", "image": "example.org/main", "resources": { "requests": {
            "cpu": format!("{}m", *self.random.pick(&[100, 400, 900, 1500])),
            "memory": format!("{}Mi", *self.random.pick(&[64, 512, 1500])),
        } } });
        let zones = self.zones();
        let mut zone = self.random.one_in(3).then(|| *self.random.pick(&zones));
        let mut count = 1 + self.random.below(6);
        let extended = self.extended_gpus();
        if extended > 0 && self.random.one_in(6) {
            let resource = self.extended_resource();
            let wanted = (*self.random.pick(&[1, 2])).min(extended);
            container["resources"]["limits"] = json!({ resource: wanted.to_string() });
        } else {
            let (claim, is_for_one) = self.claim(class, &mut zone, &mut count);
            let group = if is_for_one { None } else { self.group(class, count, &claim) };
            if let Some(group) = group {
                spec.insert("schedulingGroup".to_owned(), json!({ "podGroupName": group }));
                count = count.min(3);
            }
            spec.insert("resourceClaims".to_owned(), json!([claim]));
            container["resources"]["claims"] = json!([{ "name": "devices" }]);
            if !claim["resourceClaimName"].is_null() || spec.contains_key("schedulingGroup") {
                // All of them are on one machine, beside others.
                container["resources"]["requests"] = json!({ "cpu": "400m", "memory": "256Mi" });
            }
        }
        if let Some(zone) = zone {
            spec.insert("nodeSelector".to_owned(), json!({ ZONE: zone }));
        }
        spec.insert("containers".to_owned(), json!([container]));
        let changes = json!({ "metadata": { "labels": { CLASS: class.to_string(), "app": format!("class-{class}") } }, "spec": spec });
        let pod = |index| {
            objects::with(objects::pod(&self.name, &format!("class-{class}-{index}"), &json!({})), changes.clone())
        };
        (0..count).map(pod).collect()
    }

    /// A pod that wants a device that no machine has.
    pub(super) fn impossible(&mut self, class: u64) -> Value {
        let family = self.families[0];
        let exact = json!({ "deviceClassName": self.class(family), "count": 30 });
        let devices = json!({ "requests": [{ "name": "r", "exactly": exact }] });
        let name = format!("claim-{class}");
        self.objects.push(json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": { "name": name, "namespace": self.name }, "spec": { "spec": { "devices": devices } } }));
        let app = format!("class-{class}");
        let mut pod = objects::pod(&self.name, &format!("{app}-0"), &json!({ "cpu": "100m" }));
        pod["metadata"]["labels"] = json!({ CLASS: class.to_string(), "app": app });
        pod["spec"]["resourceClaims"] = json!([{ "name": "devices", "resourceClaimTemplateName": name }]);
        pod["spec"]["containers"][0]["resources"]["claims"] = json!([{ "name": "devices" }]);
        pod
    }

    /// How many GPUs pods may want under a name of their class: they cannot tolerate taints.
    fn extended_gpus(&self) -> u64 {
        let free = |gpus: Gpus| if gpus.is_tainted { 0 } else { gpus.count.saturating_sub(self.held(Family::Gpu)) };
        let most = self.offered.iter().map(|offered| free(offered.gpus)).max().unwrap_or(0);
        if self.tainted == Some(Family::Gpu) { 0 } else { most }
    }

    /// An entry of a pod's claims: one claim for all, or one for each; and whether no two pods may share one, which is
    /// so of devices that cost the node something. Says in which zone pods have to be for it, and how many they are at
    /// most.
    fn claim(&mut self, class: u64, zone: &mut Option<&'static str>, count: &mut u64) -> (Value, bool) {
        if let Some((shared, its_zone)) = self.shared.take().filter(|_| self.random.one_in(2)) {
            (*zone, *count) = (its_zone, (*count).min(2));
            return (json!({ "name": "devices", "resourceClaimName": shared }), false);
        }
        let name = format!("claim-{class}");
        let (devices, takes) = self.devices(*zone);
        let is_for_one = takes.iter().any(|(family, _)| *family == Family::Advanced);
        let (kind, field, spec) = if self.random.one_in(6) && !is_for_one {
            self.shared = Some((name.clone(), *zone));
            *count = (*count).min(3);
            ("ResourceClaim", "resourceClaimName", json!({ "devices": devices }))
        } else {
            ("ResourceClaimTemplate", "resourceClaimTemplateName", json!({ "spec": { "devices": devices } }))
        };
        for (family, each) in &takes {
            *count = (*count).min(self.of_zones.pods(*family, *each, *zone).unwrap_or(u64::MAX).max(1));
        }
        for (family, each) in takes {
            self.of_zones.take(family, each, *zone, *count);
        }
        self.objects.push(json!({ "apiVersion": "resource.k8s.io/v1", "kind": kind,
            "metadata": { "name": name, "namespace": self.name }, "spec": without_nulls(spec) }));
        (json!({ "name": "devices", field: name }), is_for_one)
    }

    /// Perhaps a DaemonSet whose pods want a device of their machine, or administrators' access to one.
    pub(super) fn agent(&mut self) -> Option<Value> {
        // It leaves something to others.
        let local = self.families.iter().copied().filter(|family| !family.is_of_zone() && self.can_spare(*family));
        let local: Vec<Family> = local.collect();
        if local.is_empty() || !self.random.one_in(3) {
            return None;
        }
        let family = *self.random.pick(&local);
        let mut device = json!({ "deviceClassName": self.class(family) });
        if self.random.one_in(4) {
            device["adminAccess"] = json!(true);
        } else {
            self.held_by_agent = Some(family);
            if family == Family::Gpu && self.random.one_in(2) {
                let model = *self.random.pick(&["x", "y"]);
                device["selectors"] = self.selector(family, &format!("model == '{model}'"));
            } else if family == Family::Shared {
                device["capacity"] = json!({ "requests": { "bandwidth": "2G" } });
            }
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
        let Platform { kubernetes, gates } = self.platform;
        if !matches!(gates, Gates::All) || claim["resourceClaimTemplateName"].is_null() || !self.random.one_in(5) {
            return None;
        }
        let name = format!("group-{class}");
        let policy =
            if self.random.one_in(2) { json!({ "gang": { "minCount": pods.min(3) } }) } else { json!({ "basic": {} }) };
        let version = format!("scheduling.k8s.io/{}", kubernetes.pod_group_version());
        self.objects.push(json!({ "apiVersion": version, "kind": "PodGroup",
            "metadata": { "name": name, "namespace": self.name },
            "spec": { "schedulingPolicy": policy, "resourceClaims": [claim] } }));
        Some(name)
    }

    /// GPUs under the name that their class gives them, or under the class's own.
    fn extended_resource(&mut self) -> String {
        if self.random.one_in(3) {
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
