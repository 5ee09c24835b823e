//! What all parts of the demonstration work with.

use anyhow::Result;
use e2e::controller;
use e2e::fleet::{Fleet, Provider};
use kube::Client;

use super::screen::Screen;

pub(crate) struct Stage<'a> {
    pub(crate) screen: &'a Screen,
    pub(crate) client: &'a Client,
    /// Who launches the machines.
    pub(crate) provider: Provider,
    /// How `dovetail` runs on the command line.
    pub(crate) options: controller::Options,
}

impl Stage<'_> {
    /// The pods of a namespace and the machines of a NodePool as they are now.
    pub(crate) async fn fleet(&self, namespace: &str, node_pool: &str) -> Result<Fleet> {
        Fleet::of_provider(&self.provider, self.client, namespace, node_pool).await
    }
}
