//! Waiting for what a machine's DRA drivers publish: what [`crate::world::machine_devices`] sees is told in conditions,
//! events and metrics.

use std::sync::Arc;

use api::conditions::node_claim::{
    DEVICES_AS_DESCRIBED, DEVICES_NOT_PUBLISHED, DEVICES_PUBLISHED, INITIALIZED, MISMATCH, TIMEOUT, UPGRADING,
    WITHDRAWN,
};
use api::{NodeClaim, events, labels};
use dra_templates::Expansion;
use dra_types::DriverName;
use k8s_openapi::api::core::v1::Node;
use model::Timestamp;
use tracing::warn;

use super::{Draft, Lifecycle};
use crate::runtime::metrics::{ByDriver, ByReason};
use crate::runtime::recorder::{Event, Severity, reference};
use crate::world::catalogues;
use crate::world::{claim, machine_devices};

impl Lifecycle {
    /// Looks at what the machine's DRA drivers have published, and says so in conditions. Gives what is to be waited
    /// for, and until when.
    pub(super) async fn await_devices(&self, draft: &mut Draft, node: Option<&Node>) -> Option<(String, Timestamp)> {
        if !machine_devices::are_expected(&draft.wanted) {
            return None;
        }
        let node = node?;
        // An overlay that is gone promises nothing.
        let expansion = self.described(&draft.wanted).await?;
        let is_awaited = |driver: &DriverName| machine_devices::is_requested(&draft.wanted, driver.as_str());
        let found =
            machine_devices::look(&expansion, is_awaited, node, self.context.store.read().resource_slices.values());
        let timeout = self.context.options.dra_publish_timeout;
        let until = claim::registered_at(&draft.wanted)?.saturating_add(timeout);
        match found {
            machine_devices::Devices::Awaited(_, message) if draft.now < until => {
                draft.conditions().set_unknown(DEVICES_PUBLISHED, DEVICES_NOT_PUBLISHED, &message);
                Some((message, until))
            }
            machine_devices::Devices::Awaited(missing, message) => {
                if draft.conditions().set_false(DEVICES_PUBLISHED, TIMEOUT, &message) {
                    let of_claim = draft.wanted.metadata.labels.iter().flatten();
                    for (_, instance_type) in of_claim.filter(|(key, _)| *key == labels::INSTANCE_TYPE) {
                        let instance_type = instance_type.as_str().into();
                        let overlays = &self.context.overlays;
                        missing.iter().for_each(|it| overlays.device_failure(&instance_type, it, draft.now));
                    }
                    let text = format!("its devices are not there after {timeout}: {message}");
                    self.tell_about_devices(draft, events::DEVICES_NOT_PUBLISHED, text);
                }
                None
            }
            machine_devices::Devices::Published { drivers, differences } => {
                if draft.conditions().set_true(DEVICES_PUBLISHED) {
                    for (driver, count) in drivers {
                        let by_driver = ByDriver { driver: driver.to_string() };
                        self.context.metrics.devices_published.get_or_create(&by_driver).inc_by(count as u64);
                    }
                }
                if differences.is_empty() {
                    draft.conditions().set_true(DEVICES_AS_DESCRIBED);
                } else {
                    let message = machine_devices::in_words(&differences);
                    if draft.conditions().set_false(DEVICES_AS_DESCRIBED, MISMATCH, &message) {
                        self.tell_about_devices(draft, events::DEVICES_DIFFER, message);
                    }
                }
                None
            }
        }
    }

    /// Says of a machine that pods use whether its DRA drivers are being replaced: until when what they had published
    /// counts, or that it does not any longer. Gives when to look again.
    pub(super) async fn hold_devices(&self, draft: &mut Draft) -> Option<Timestamp> {
        if !claim::is(&draft.wanted, INITIALIZED) || !machine_devices::are_described(&draft.wanted) {
            return None;
        }
        let known = crate::runtime::conditions::find(claim::conditions(&draft.wanted), DEVICES_PUBLISHED);
        let lost = known.filter(|condition| [UPGRADING, WITHDRAWN].contains(&condition.reason.as_str()));
        let lost = lost.map(|condition| condition.message.clone());
        let node = {
            let state = self.context.store.read();
            let provider_id = claim::provider_id(&draft.wanted).unwrap_or_default();
            state.nodes_of_machine(provider_id).next().map(|node| Arc::clone(&node.object))?
        };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let held = self.context.held_devices.of_node(name, draft.now);
        if let Some(until) = held.iter().map(|driver| driver.until).max() {
            let drivers: Vec<&str> = held.iter().map(|held| held.driver.as_str()).collect();
            let message = format!("{} being replaced: the devices that were published last count", drivers.join(", "));
            draft.conditions().set_unknown(DEVICES_PUBLISHED, UPGRADING, &message);
            return Some(until);
        }
        let lost = lost?;
        let expansion = self.described(&draft.wanted).await?;
        // Others of those that are described were never there. Which are gone is known from the message alone by now.
        let is_gone = |driver: &DriverName| {
            machine_devices::is_requested(&draft.wanted, driver.as_str()) || names(&lost, driver.as_str())
        };
        let found =
            machine_devices::look(&expansion, is_gone, &node, self.context.store.read().resource_slices.values());
        match found {
            machine_devices::Devices::Published { .. } => drop(draft.conditions().set_true(DEVICES_PUBLISHED)),
            machine_devices::Devices::Awaited(_, message) => {
                if draft.conditions().set_false(DEVICES_PUBLISHED, WITHDRAWN, &message) {
                    let timeout = self.context.options.dra_hold_timeout;
                    let text = format!("its devices did not come back within {timeout}: {message}");
                    self.tell_about_devices(draft, events::DEVICES_NOT_PUBLISHED, text);
                }
            }
        }
        None
    }

    fn tell_about_devices(&self, draft: &Draft, reason: &'static str, text: String) {
        warn!(
            node_claim = claim::name(&draft.wanted),
            reason,
            error = text,
            "the devices of a node are not as described"
        );
        self.context.metrics.device_mismatches.get_or_create(&ByReason { reason: reason.to_owned() }).inc();
        self.context.recorder.publish(Event::new(reference(&draft.wanted), Severity::Warning, reason, text));
    }

    /// The devices that a launched NodeClaim's machine is to have, by what is known of its type now.
    pub(super) async fn described(&self, node_claim: &NodeClaim) -> Option<Expansion> {
        let of_claim = node_claim.metadata.labels.as_ref()?;
        let wanted = of_claim.get(labels::INSTANCE_TYPE)?;
        let types = catalogues::launchable(&self.context, claim::node_pool(node_claim)).await?;
        let instance_type = types.types.iter().find(|it| it.name.as_str() == wanted)?;
        let expansion = Expansion::new(&instance_type.dynamic_resources, &|key| of_claim.get(key).cloned());
        expansion.ok().filter(|expansion| !expansion.is_empty())
    }
}

/// Whether a message of [`Lifecycle::hold_devices`] is about a driver.
fn names(message: &str, driver: &str) -> bool {
    message.split([',', ';', ' ']).any(|word| word == driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_whole_drivers() {
        let upgrading = "gpu.example.com, nic.example.com being replaced: the devices that were published last count";
        let withdrawn = "net has not published its 2 device(s); nic.example.com has a pool of which slices are missing";
        for (message, driver, expected) in [
            (upgrading, "gpu.example.com", true),
            (upgrading, "nic.example.com", true),
            (upgrading, "example.com", false),
            (withdrawn, "net", true),
            (withdrawn, "nic.example.com", true),
            (withdrawn, "gpu.example.com", false),
        ] {
            assert_eq!(names(message, driver), expected, "{driver} in {message}");
        }
    }
}
