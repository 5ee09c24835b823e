//! Plays the DRA drivers of fake machines: they publish what the machine was said to have, a while after its Node is
//! there.
//!
//! A machine's own slices belong to its Node and go with it. Slices of a domain are published once, by whichever
//! machine comes first, and go with the last machine of the domain. Attributes whose value was unknown before the
//! launch get one, equal within a group and different from every other group's of any machine.
//!
//! [`publication`] is pure; [`Drivers`] follows the records.

use std::collections::{BTreeMap, BTreeSet};

use dra_templates::Expansion;
use dra_templates::{PoolScope, layout};
use k8s_openapi::api::core::v1::Node;
use model::{DurationMs, NodeName, Timestamp};
use serde_json::{Value, json};

use crate::cluster::{Cause, Cluster, Failure};
use crate::faults::{Faults, Publishing};
use crate::record::{Record, State};

/// Marks slices that belong to a domain, not to a machine.
pub(crate) const DOMAIN_LABEL: &str = "karpenter.kwok.sh/domain-slice";

/// How soon a driver that does not publish for a fault is looked at again.
const LOOK_AGAIN: DurationMs = DurationMs::from_seconds(1);

/// What one driver publishes of one pool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Published {
    pub(crate) driver: String,
    /// When; `None` for never.
    pub(crate) at: Option<Timestamp>,
    pub(crate) is_of_domain: bool,
    /// ResourceSlices without owner.
    pub(crate) slices: Vec<Value>,
}

/// What the drivers of a machine publish. What makes no sense is told in the log and left out: it was checked before.
pub(crate) fn publication(record: &Record, faults: &Faults) -> Vec<Published> {
    let labels = &record.node.labels;
    let expansion = match Expansion::new(&record.devices, &|key| labels.get(key).cloned()) {
        Ok(expansion) => expansion.with_values(|group| format!("{}-{group}", record.node_name)),
        Err(error) => {
            tracing::error!(node = %record.node_name, %error, "the devices of a fake machine are invalid");
            return Vec::new();
        }
    };
    let host = layout::Host { node_name: &record.node_name, labels };
    let mut all = Vec::new();
    for pool in &expansion.pools {
        let driver = pool.driver.to_string();
        let mut slices = match layout::slices(pool, host) {
            Ok(slices) => slices,
            Err(error) => {
                tracing::error!(node = %record.node_name, %error, "a fake machine cannot publish devices");
                continue;
            }
        };
        let fault = faults.driver(&record.machine(), &driver);
        let delay = fault.map_or(0, |fault| fault.delay_ms);
        let mut at = Some(record.register_at.saturating_add(DurationMs(i64::try_from(delay).unwrap_or(i64::MAX))));
        match fault.map_or(Publishing::Right, |fault| fault.publishes) {
            Publishing::Right => {}
            Publishing::Never => at = None,
            Publishing::Partly => withhold_the_last(&mut slices),
            Publishing::Wrong => falsify(&mut slices),
        }
        all.push(Published { driver, at, is_of_domain: pool.scope == PoolScope::Domain, slices });
    }
    all
}

/// One slice fewer than the slices say there are.
fn withhold_the_last(slices: &mut Vec<Value>) {
    if slices.len() > 1 {
        slices.pop();
        return;
    }
    for slice in slices {
        if let Some(count) = slice.pointer_mut("/spec/pool/resourceSliceCount") {
            *count = json!(2);
        }
    }
}

/// The last device is missing, and the first is another model than was said.
fn falsify(slices: &mut [Value]) {
    let mut lists = slices.iter_mut().filter_map(|slice| slice.pointer_mut("/spec/devices")?.as_array_mut());
    let mut first = lists.next();
    if let Some(device) = first.as_mut().and_then(|devices| devices.first_mut()) {
        let attributes = device.get_mut("attributes").and_then(Value::as_object_mut);
        for attribute in attributes.into_iter().flat_map(serde_json::Map::values_mut) {
            if let Some(text) = attribute.get_mut("string") {
                *text = json!("unexpected");
            }
        }
    }
    if let Some(devices) = lists.last().or(first) {
        devices.pop();
    }
}

/// Which machines' drivers have published.
#[derive(Debug, Default)]
pub(crate) struct Drivers {
    /// Machines of which nothing is left to publish.
    done: BTreeSet<NodeName>,
    /// The others, with the pools (by place) that are there, and when to go on.
    pending: BTreeMap<NodeName, Pending>,
    /// Slices of domains, with the machines that have them.
    domains: BTreeMap<String, BTreeSet<NodeName>>,
}

#[derive(Debug)]
struct Pending {
    published: BTreeSet<usize>,
    at: Timestamp,
}

impl Drivers {
    /// When there is something to do, if nothing happens until then.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.pending.values().map(|pending| pending.at).min()
    }

    /// Learns of slices of domains from before the start. Where the API server serves none there are none.
    pub(crate) async fn look_back(&mut self, cluster: &Cluster) -> Result<(), Failure> {
        match cluster.slices_of_domains().await {
            Ok(names) => self.domains.extend(names.into_iter().map(|name| (name, BTreeSet::new()))),
            Err(Failure { cause: Cause::NotFound, .. }) => {}
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Lets the drivers of all machines that run do what is due.
    pub(crate) async fn pass<'r>(
        &mut self,
        records: impl Iterator<Item = &'r Record> + Clone,
        cluster: &Cluster,
        faults: &Faults,
        now: Timestamp,
    ) {
        let running: BTreeMap<&NodeName, &Record> = records
            .filter(|record| record.state == State::Running && !record.devices.is_empty())
            .map(|record| (&record.node_name, record))
            .collect();
        self.done.retain(|node| running.contains_key(node));
        self.pending.retain(|node, _| running.contains_key(node));
        for (name, record) in &running {
            let is_due = self.pending.get(*name).is_none_or(|pending| pending.at <= now);
            if !self.done.contains(*name) && is_due {
                self.publish(record, cluster, faults, now).await;
            }
        }
        if self.pending.is_empty() {
            self.tidy_domains(&running, cluster).await;
        }
    }

    async fn publish(&mut self, record: &Record, cluster: &Cluster, faults: &Faults, now: Timestamp) {
        let name = &record.node_name;
        let earlier = self.pending.remove(name);
        let mut pending = earlier.unwrap_or_else(|| Pending { published: BTreeSet::new(), at: now });
        let mut next: Option<Timestamp> = None;
        let mut go_on_at = |at: Timestamp| next = Some(next.map_or(at, |next| next.min(at)));
        for (place, pool) in publication(record, faults).into_iter().enumerate() {
            if pending.published.contains(&place) {
                continue;
            }
            match pool.at {
                None => go_on_at(now.saturating_add(LOOK_AGAIN)),
                Some(at) if at > now => go_on_at(at),
                Some(_) => match self.create(record, &pool, cluster).await {
                    Ok(()) => {
                        tracing::info!(node = %name, driver = pool.driver, slice_count = pool.slices.len(), "a fake driver published its devices");
                        pending.published.insert(place);
                    }
                    Err(failure) => {
                        tracing::warn!(node = %name, error = %failure, "a fake driver could not publish its devices, trying again");
                        go_on_at(now.saturating_add(LOOK_AGAIN));
                    }
                },
            }
        }
        match next {
            None => {
                self.done.insert(name.clone());
            }
            Some(at) => {
                self.pending.insert(name.clone(), Pending { at, ..pending });
            }
        }
    }

    async fn create(&mut self, record: &Record, pool: &Published, cluster: &Cluster) -> Result<(), Failure> {
        let (field, value) = if pool.is_of_domain {
            ("labels", json!({ DOMAIN_LABEL: "true" }))
        } else {
            let Some(node) = cluster.node(&record.node_name).await? else {
                return Err(Failure::other(
                    format!("publish devices of {}", record.node_name),
                    "its Node is not there",
                ));
            };
            ("ownerReferences", json!([owner(&node)]))
        };
        for slice in &pool.slices {
            let mut slice = slice.clone();
            let name = slice.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some(metadata) = slice.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert(field.to_owned(), value.clone());
            }
            match cluster.create_slice(&slice).await {
                Ok(()) | Err(Failure { cause: Cause::AlreadyExists, .. }) => {}
                Err(failure) => return Err(failure),
            }
            if pool.is_of_domain {
                self.domains.entry(name).or_default().insert(record.node_name.clone());
            }
        }
        Ok(())
    }

    /// Deletes slices of domains without machines.
    async fn tidy_domains(&mut self, running: &BTreeMap<&NodeName, &Record>, cluster: &Cluster) {
        let mut gone = Vec::new();
        for (slice, nodes) in &mut self.domains {
            nodes.retain(|node| running.contains_key(node));
            if nodes.is_empty() {
                gone.push(slice.clone());
            }
        }
        for slice in gone {
            match cluster.delete_slice(&slice).await {
                Ok(_) => {
                    self.domains.remove(&slice);
                }
                Err(failure) => {
                    tracing::warn!(error = %failure, "could not delete the ResourceSlices of a topology domain, trying again")
                }
            }
        }
    }
}

fn owner(node: &Node) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "name": node.metadata.name,
        "uid": node.metadata.uid,
        "controller": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    fn machine() -> Record {
        let device = |name: &str| json!({"name": name, "replicas": 2, "attributes": {"model": {"string": "x1"}}});
        let zone = json!({"nodeSelectorTerms": [{"matchLabelKeys": ["zone"]}]});
        let template = |name: &str, driver: &str| {
            let devices = json!([device(&format!("{name}-{{index}}"))]);
            json!({"metadata": {"name": name}, "spec": {"driver": driver, "devices": devices}})
        };
        let mut fabric = template("fabric", "fabric.example.com");
        fabric["spec"]["scope"] = json!("Domain");
        fabric["spec"]["nodeSelector"] = zone;
        let devices = json!({
            "resourceSliceTemplates": [template("gpu", "gpu.example.com"), template("nic", "nic.example.com"), fabric],
            "attributeBindings": [{"attributes": ["resource.kubernetes.io/pcieRoot"], "deviceSelectors": [
                {"resourceSliceTemplate": "gpu", "device": "gpu-{index}"},
                {"resourceSliceTemplate": "nic", "device": "nic-{index}"}]}],
        });
        let mut record = record();
        record.node.labels.insert("zone".to_owned(), "a".to_owned());
        record.devices = serde_json::from_value(devices).unwrap();
        record
    }

    fn faulty(json: Value) -> Vec<Published> {
        let faults = Faults::parse(&json!({"drivers": [json]}).to_string()).unwrap();
        publication(&machine(), &faults)
    }

    fn root(published: &Published, device: usize) -> &str {
        published.slices[0]["spec"]["devices"][device]["attributes"]["resource.kubernetes.io/pcieRoot"]["string"]
            .as_str()
            .unwrap()
    }

    #[test]
    fn drivers_publish_what_the_machine_has_with_values_that_nobody_knew() {
        let published = publication(&machine(), &Faults::default());
        let drivers: Vec<_> = published.iter().map(|it| (it.driver.as_str(), it.is_of_domain)).collect();
        assert_eq!(drivers, [("gpu.example.com", false), ("nic.example.com", false), ("fabric.example.com", true)]);
        assert_eq!(root(&published[0], 1), root(&published[1], 1), "one group, one value");
        assert_ne!(root(&published[0], 0), root(&published[0], 1));
        assert!(published.iter().all(|it| it.at == Some(machine().register_at)));
        let zone = &published[2].slices[0]["spec"]["nodeSelector"]["nodeSelectorTerms"][0]["matchExpressions"][0];
        assert_eq!(*zone, json!({"key": "zone", "operator": "In", "values": ["a"]}));
        assert_eq!(published[2].slices[0]["spec"]["pool"]["name"], "a", "whichever machine publishes");
    }

    #[test]
    fn drivers_can_be_late_or_partial_or_wrong_or_silent() {
        let late = faulty(json!({"driver": "gpu.example.com", "delayMs": 1500}));
        assert_eq!(late[0].at, Some(machine().register_at.saturating_add(DurationMs(1500))));
        assert_eq!(late[1].at, Some(machine().register_at), "another driver");
        let silent = faulty(json!({"target": {"zone": "test-zone-a"}, "publishes": "never"}));
        assert!(silent.iter().all(|published| published.at.is_none()));
        let elsewhere = faulty(json!({"target": {"zone": "elsewhere"}, "publishes": "never"}));
        assert!(elsewhere.iter().all(|published| published.at.is_some()));
        let partial = faulty(json!({"driver": "gpu.example.com", "publishes": "partly"}));
        assert_eq!(partial[0].slices[0]["spec"]["pool"]["resourceSliceCount"], 2);
        assert_eq!(partial[0].slices.len(), 1);
        let wrong = faulty(json!({"driver": "gpu.example.com", "publishes": "wrong"}));
        let devices = wrong[0].slices[0]["spec"]["devices"].as_array().unwrap();
        assert_eq!((devices.len(), devices[0]["attributes"]["model"]["string"].as_str()), (1, Some("unexpected")));
    }
}
