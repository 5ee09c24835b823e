//! The provider as the binary's table lists it.

use async_trait::async_trait;
use cloudprovider::Declaration;
use cloudprovider_plugin::{BuildError, Provider, ProviderPlugin, Setup};

use crate::DECLARATION;
use crate::options::Options;
use crate::service::Connector;

/// The provider for EC2.
#[derive(Debug, Clone, Copy)]
pub struct AwsPlugin {
    /// Reaches AWS; none in a build without the SDK, which plans for EC2 and launches nothing.
    pub connector: Option<&'static dyn Connector>,
}

#[async_trait]
impl ProviderPlugin for AwsPlugin {
    fn declaration(&self) -> &'static Declaration {
        &DECLARATION
    }

    /// Connects, after the options are checked, so that a wrong one is told first.
    ///
    /// Fails then: the provider that launches machines with these services is not part of this build.
    async fn build(&self, setup: Setup<'_>) -> Result<Provider, BuildError> {
        let options =
            Options::new(setup.options).map_err(|error| BuildError::new("options of the provider aws", error))?;
        let Some(connector) = self.connector else {
            let why = "this build plans for EC2 offline only, it cannot launch machines there";
            return Err(BuildError::new("provider aws", why));
        };
        let services = connector.connect(&options).await.map_err(|error| BuildError::new("provider aws", error))?;
        let why = format!("machines cannot be launched yet, in {} or elsewhere", services.region);
        Err(BuildError::new("provider aws", why))
    }
}
