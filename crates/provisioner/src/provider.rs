//! The cloud provider that the options ask for.

use std::fs;
use std::sync::Arc;

use anyhow::Context as _;
use cloudprovider_kwok::{KwokCloudProvider, Options as KwokOptions, catalogue};
use kube::Client;
use tracing::warn;

use crate::clock::Clock;
use crate::namespace;
use crate::options::Options;

/// The provider in use.
pub type Provider = KwokCloudProvider;

/// The provider for fake nodes, with the built-in catalogue or the file that the options name.
///
/// # Errors
/// If the file cannot be read or has no instance type that makes sense.
pub fn kwok(client: &Client, options: &Options, clock: Arc<dyn Clock>) -> anyhow::Result<Arc<Provider>> {
    let namespace = options.kwok_instances_namespace.clone().unwrap_or_else(namespace::own_or_kube_system);
    let mut kwok = KwokOptions::new(namespace);
    kwok.read_faults = options.kwok_read_faults;
    if let Some(path) = &options.instance_types_file_path {
        let at = || format!("--instance-types-file-path {}", path.display());
        let text = fs::read_to_string(path).with_context(at)?;
        let read = catalogue::parse(&text).with_context(at)?;
        for error in &read.left_out {
            warn!(%error, file = %path.display(), "leaving out an instance type");
        }
        kwok.instance_types = read.instance_types;
    }
    Ok(Arc::new(KwokCloudProvider::with_clock(client.clone(), kwok, Arc::new(move || clock.now()))))
}
