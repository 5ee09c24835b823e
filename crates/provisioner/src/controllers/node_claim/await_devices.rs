//! Waiting for what a machine's DRA drivers publish: what [`crate::world::machine_devices`] sees is told in conditions,
//! events and metrics.

use std::collections::BTreeSet;
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
use crate::runtime::failpoints;
use crate::runtime::metrics::{ByDriver, ByReason};
use crate::runtime::patch::{self, Lock};
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
    ///
    /// What is held is known to this process alone. Which drivers have taken something away is noted on the NodeClaim
    /// before the condition says so, and the note goes once the condition says that they are back: whoever comes after
    /// us looks at the same drivers.
    pub(super) async fn hold_devices(&self, draft: &mut Draft) -> anyhow::Result<Option<Timestamp>> {
        if !claim::is(&draft.wanted, INITIALIZED) || !machine_devices::are_described(&draft.wanted) {
            return Ok(None);
        }
        let node = {
            let state = self.context.store.read();
            let provider_id = claim::provider_id(&draft.wanted).unwrap_or_default();
            state.nodes_of_machine(provider_id).next().map(|node| Arc::clone(&node.object))
        };
        let Some(node) = node else { return Ok(None) };
        let mut lost = machine_devices::lost(&draft.wanted);
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let held = self.context.held_devices.of_node(name, draft.now);
        if let Some(until) = held.iter().map(|driver| driver.until).max() {
            let drivers: Vec<&str> = held.iter().map(|held| held.driver.as_str()).collect();
            let message = format!("{} being replaced: the devices that were published last count", drivers.join(", "));
            lost.extend(held.into_iter().map(|held| held.driver));
            self.note_lost_drivers(draft, &lost).await?;
            draft.conditions().set_unknown(DEVICES_PUBLISHED, UPGRADING, &message);
            return Ok(Some(until));
        }
        let known = crate::runtime::conditions::find(claim::conditions(&draft.wanted), DEVICES_PUBLISHED);
        let is_told = known.is_some_and(|condition| [UPGRADING, WITHDRAWN].contains(&condition.reason.as_str()));
        if lost.is_empty() && !is_told {
            return Ok(None);
        }
        let Some(expansion) = self.described(&draft.wanted).await else { return Ok(None) };
        // Others of those that are described were never there.
        let is_gone = |driver: &DriverName| {
            machine_devices::is_requested(&draft.wanted, driver.as_str()) || lost.contains(driver)
        };
        let found =
            machine_devices::look(&expansion, is_gone, &node, self.context.store.read().resource_slices.values());
        match found {
            machine_devices::Devices::Published { .. } => {
                // The write of the status brings us here again.
                if claim::is(&draft.read, DEVICES_PUBLISHED) {
                    self.note_lost_drivers(draft, &BTreeSet::new()).await?;
                }
                draft.conditions().set_true(DEVICES_PUBLISHED);
            }
            machine_devices::Devices::Awaited(missing, message) => {
                self.note_lost_drivers(draft, &missing.into_iter().collect()).await?;
                if draft.conditions().set_false(DEVICES_PUBLISHED, WITHDRAWN, &message) {
                    let timeout = self.context.options.dra_hold_timeout;
                    let text = format!("its devices did not come back within {timeout}: {message}");
                    self.tell_about_devices(draft, events::DEVICES_NOT_PUBLISHED, text);
                }
            }
        }
        Ok(None)
    }

    /// Writes on the NodeClaim which drivers have taken devices away. The status stays as it is drafted.
    async fn note_lost_drivers(&self, draft: &mut Draft, drivers: &BTreeSet<DriverName>) -> anyhow::Result<()> {
        if machine_devices::lost(&draft.read) == *drivers {
            return Ok(());
        }
        let mut wanted = NodeClaim::clone(&draft.read);
        machine_devices::note_lost(&mut wanted, drivers);
        // The drafted status replaces conditions as a list: it must be of the revision that this write makes.
        let written = patch::object(&self.claims(), &*draft.read, &wanted, Lock::Revision).await?;
        if let Some(written) = self.keep(written) {
            let status = draft.wanted.status.take();
            *draft = Draft::new(written, draft.now);
            draft.wanted.status = status;
        }
        failpoints::hit("devices.after-note");
        Ok(())
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
