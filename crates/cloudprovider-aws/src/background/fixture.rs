//! What tests of what goes on in the background share.

use std::sync::Arc;

use cloudprovider::events::{Event, Events};
use parking_lot::Mutex;

use crate::instance_types::settings::MachineOptions;
use crate::memory::{Cloud, Objects, VirtualClock};
use crate::provider::Ec2CloudProvider;
use crate::telemetry::Telemetry;
use crate::{provider, user_data};

pub(super) const CLUSTER: &str = "test";

/// Keeps what is told.
#[derive(Default)]
pub(super) struct Told(Mutex<Vec<Event>>);

impl Events for Told {
    fn publish(&self, event: Event) {
        self.0.lock().push(event);
    }
}

impl Told {
    /// What has been told since the last time, each in words.
    pub(super) fn take(&self, line: impl FnMut(Event) -> String) -> Vec<String> {
        std::mem::take(&mut *self.0.lock()).into_iter().map(line).collect()
    }
}

/// A provider of machines of this cloud.
pub(super) fn provider(
    cloud: &Cloud,
    objects: &Objects,
    clock: &VirtualClock,
    telemetry: Telemetry,
) -> Ec2CloudProvider {
    Ec2CloudProvider::new(provider::Setup {
        ec2: Arc::new(cloud.clone()),
        objects: Arc::new(objects.clone()),
        cluster: user_data::Cluster { name: CLUSTER.to_owned(), ..user_data::Cluster::default() },
        region: "us-east-1".to_owned(),
        machines: MachineOptions::default(),
        clock: clock.clock(),
        seed: 0,
        telemetry,
    })
}
