//! The provider as the binary's table lists it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use cloudprovider::{Declaration, InstanceType};
use cloudprovider_plugin::{Background, BuildError, Provider, ProviderPlugin, Setup};
use futures::FutureExt as _;
use tracing::warn;

use crate::options::{INSTANCE_TYPES_FILE_PATH, INSTANCES_NAMESPACE, READ_FAULTS};
use crate::{DECLARATION, KwokCloudProvider, Options, catalogue};

/// The provider for fake nodes.
#[derive(Debug, Clone, Copy)]
pub struct KwokPlugin;

#[async_trait]
impl ProviderPlugin for KwokPlugin {
    fn declaration(&self) -> &'static Declaration {
        &DECLARATION
    }

    /// With the built-in catalogue, or the one that the caller or the options give.
    async fn build(&self, setup: Setup<'_>) -> Result<Provider, BuildError> {
        let namespace = setup.options.text(INSTANCES_NAMESPACE.flag).map_or(setup.namespace, str::to_owned);
        let mut options = Options::new(namespace);
        options.read_faults = setup.options.is_on(READ_FAULTS.flag);
        if let Some(given) = setup.instance_types {
            options.instance_types = given;
        } else if let Some(path) = setup.options.path(INSTANCE_TYPES_FILE_PATH.flag) {
            options.instance_types = read_file(path)?;
        }
        let provider = KwokCloudProvider::with_clock(setup.client, options, setup.clock);
        let of_loop = provider.clone();
        let background: Background = Box::new(move |stop| async move { of_loop.run(stop).await }.boxed());
        Ok(Provider { cloud: Arc::new(provider), background: Some(background) })
    }
}

/// The instance types of a file that make sense; there is at least one.
fn read_file(path: &Path) -> Result<Vec<InstanceType>, BuildError> {
    let at = || format!("--{} {}", INSTANCE_TYPES_FILE_PATH.flag, path.display());
    let text = fs::read_to_string(path).map_err(|error| BuildError::new(at(), error))?;
    let read = catalogue::parse(&text).map_err(|error| BuildError::new(at(), error))?;
    for error in &read.left_out {
        warn!(%error, file = %path.display(), "skipping an instance type");
    }
    Ok(read.instance_types)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_its_flag() {
        let error = read_file(Path::new("/nowhere/types.json")).unwrap_err();
        assert_eq!(error.to_string(), "--instance-types-file-path /nowhere/types.json");
        assert!(std::error::Error::source(&error).is_some());
    }
}
