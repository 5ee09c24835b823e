//! A provider in memory, made as `docs/writing-a-provider.md` says.
//!
//! The tests of the binary have it in their table of providers. It shows that a crate and a row are all that a provider
//! takes; no release contains it.

use std::sync::Arc;

use async_trait::async_trait;
use cloudprovider::declaration::{Catalogue, CatalogueError, CatalogueInput, DefaultNodeClass};
use cloudprovider::fake::{self, FakeCloudProvider};
use cloudprovider::options::{OptionDeclaration, OptionKind, Visibility};
use cloudprovider::{Declaration, NodeClassKind};
use cloudprovider_plugin::{BuildError, Provider, ProviderPlugin, Setup};

const NODE_CLASS_KIND: NodeClassKind =
    NodeClassKind { group: "fake.example.com", version: "v1", kind: "FakeNodeClass", plural: "fakenodeclasses" };

const ONLY_TYPE: OptionDeclaration = OptionDeclaration {
    flag: "fake-only-type",
    env: "FAKE_ONLY_TYPE",
    kind: OptionKind::Text,
    help: "The only instance type to launch [default: all]",
    visibility: Visibility::Shown,
};

const LAST_TYPE: OptionDeclaration = OptionDeclaration {
    flag: "fake-last-type",
    env: "NAME",
    kind: OptionKind::Text,
    help: "Leave out the instance types after this one [default: none]",
    visibility: Visibility::Shown,
};

static DECLARATION: Declaration = Declaration {
    name: "fake",
    log_target: "third_provider",
    options_heading: "Provider fake",
    options: &[ONLY_TYPE],
    node_class_kinds: &[NODE_CLASS_KIND],
    crds: Vec::new,
    label_domains: &[],
    default_node_class: DefaultNodeClass { kind: NODE_CLASS_KIND, name: "standard" },
    catalogue_options: &[LAST_TYPE],
    catalogue: machines,
    repair_policies: fake::repair_policies,
    catalogue_of_node_class: None,
    labels: |_| api::labels::ProviderLabels::default(),
};

/// The row of the table.
#[derive(Debug, Clone, Copy)]
pub struct ThirdPlugin;

#[async_trait]
impl ProviderPlugin for ThirdPlugin {
    fn declaration(&self) -> &'static Declaration {
        &DECLARATION
    }

    async fn build(&self, setup: Setup<'_>) -> Result<Provider, BuildError> {
        let mut types = setup.instance_types.unwrap_or_else(fake::default_types);
        if let Some(name) = setup.options.text(ONLY_TYPE.flag) {
            types.retain(|instance_type| instance_type.name.as_str() == name);
            if types.is_empty() {
                return Err(BuildError::new(format!("--{} {name}", ONLY_TYPE.flag), "there is no such type"));
            }
        }
        Ok(Provider { cloud: Arc::new(FakeCloudProvider::new(types)), background: None })
    }
}

/// A file has the name of a type on each line.
fn machines(input: &CatalogueInput) -> Result<Catalogue, CatalogueError> {
    let mut instance_types = fake::default_types();
    if let Some(text) = &input.instance_types {
        instance_types.retain(|it| text.lines().any(|line| line == it.name.as_str()));
    }
    if let Some(name) = input.options.text(LAST_TYPE.flag) {
        let count = instance_types.iter().position(|it| it.name.as_str() == name).map_or(0, |index| index + 1);
        instance_types.truncate(count);
    }
    if instance_types.is_empty() {
        Err(CatalogueError("no type".to_owned()))
    } else {
        Ok(Catalogue { instance_types, left_out: Vec::new() })
    }
}
