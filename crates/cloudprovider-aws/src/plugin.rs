//! The provider as the binary's table lists it.

use async_trait::async_trait;
use cloudprovider::Declaration;
use cloudprovider_plugin::{BuildError, Provider, ProviderPlugin, Setup};

use crate::DECLARATION;
use crate::options::Options;

/// The provider for EC2.
#[derive(Debug, Clone, Copy)]
pub struct AwsPlugin;

#[async_trait]
impl ProviderPlugin for AwsPlugin {
    fn declaration(&self) -> &'static Declaration {
        &DECLARATION
    }

    /// Fails: what launches machines needs the SDK of AWS, which this build is without. Options are checked before, so
    /// that a wrong one is told first.
    async fn build(&self, setup: Setup<'_>) -> Result<Provider, BuildError> {
        Options::new(setup.options).map_err(|error| BuildError::new("options of the provider aws", error))?;
        Err(BuildError::new("provider aws", "this build plans for EC2 offline only, it cannot launch machines there"))
    }
}
