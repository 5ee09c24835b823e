//! The table of cloud providers: the one place outside a provider's crate that names it.

use std::ops::Deref;

use api::crd::CustomResourceDefinition;
use api::labels::LabelDomain;
use cloudprovider_aws::AwsPlugin;
use cloudprovider_kwok::KwokPlugin;
use cloudprovider_plugin::ProviderPlugin;

/// The provider where nobody says which.
const DEFAULT: Plugin = Plugin(&KwokPlugin);

/// EC2, which needs the SDK of AWS to launch machines and not to plan for it.
static AWS: AwsPlugin = AwsPlugin {
    #[cfg(feature = "aws")]
    connector: Some(&cloudprovider_aws_sdk::Sdk),
    #[cfg(not(feature = "aws"))]
    connector: None,
};

/// All providers.
static PROVIDERS: &[Plugin] = &[
    DEFAULT,
    Plugin(&AWS),
    // Tests show with it that a row is enough.
    #[cfg(test)]
    Plugin(&third_provider::ThirdPlugin),
];

/// One of the providers of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plugin(&'static dyn ProviderPlugin);

impl Deref for Plugin {
    type Target = dyn ProviderPlugin;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl Plugin {
    /// The plugin itself.
    pub(crate) fn get(self) -> &'static dyn ProviderPlugin {
        self.0
    }
}

impl Default for Plugin {
    fn default() -> Self {
        DEFAULT
    }
}

/// All providers, in the order of the table.
pub(crate) fn all() -> impl Iterator<Item = Plugin> {
    PROVIDERS.iter().copied()
}

/// The CRDs that providers bring, in the order of the table.
pub(crate) fn crds() -> Vec<CustomResourceDefinition> {
    all().flat_map(|plugin| (plugin.declaration().crds)()).collect()
}

/// The domains of labels that are the providers' own, in the order of the table.
pub(crate) fn label_domains() -> Vec<LabelDomain> {
    all().flat_map(|plugin| plugin.declaration().label_domains).copied().collect()
}

/// The provider of that name.
pub(crate) fn named(name: &str) -> Option<Plugin> {
    all().find(|plugin| plugin.declaration().name == name)
}
