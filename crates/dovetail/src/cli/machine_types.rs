//! Which machines the offline commands plan with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use api::NodePool;
use cloudprovider::declaration::{CatalogueError, CatalogueInput};
use cloudprovider::options::OptionValue;
use cloudprovider::{Declaration, InstanceType};
use cluster::offline::{NodeClassTypes, Types};
use decode::manifests::Manifest;
use serde_json::json;

use super::provider_args::OfflineProviderArgs;

/// The machines that a command works with, where no cluster says which there are.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct MachineTypesArgs {
    /// File with instance types, in the provider's format [default: the provider's own]
    #[arg(long, value_name = "FILE")]
    pub(super) instance_types: Option<PathBuf>,
    #[command(flatten)]
    pub(super) provider: OfflineProviderArgs,
}

impl MachineTypesArgs {
    /// What the provider says of itself.
    pub(super) fn declaration(&self) -> &'static Declaration {
        self.provider.plugin.declaration()
    }

    /// The provider's own catalogue or the one in a file, as its options and the node classes among the documents
    /// change it.
    pub(super) fn read(&self, documents: &[Manifest]) -> anyhow::Result<MachineTypes> {
        let input = self.input()?;
        let declaration = self.declaration();
        let read = (declaration.catalogue)(&input);
        let read = match &self.instance_types {
            None => read?,
            Some(path) => read.with_context(|| format!("cannot read the instance types in {}", path.display()))?,
        };
        let mut types =
            MachineTypes { types: shared(read.instance_types), of_node_classes: None, left_out: read.left_out };
        if let Some(of_node_class) = declaration.catalogue_of_node_class {
            let mut classes = NodeClassTypes::default();
            let is_node_class = |it: &&Manifest| {
                declaration.node_class_kinds.iter().any(|kind| (kind.group, kind.kind) == (&*it.group, &*it.kind))
            };
            for class in documents.iter().filter(is_node_class) {
                let of_class = of_node_class(&input, &class.object)
                    .map(|read| types.known(read.instance_types, &classes))
                    .map_err(|why| why.to_string().into());
                classes.insert(class, of_class);
            }
            types.of_node_classes = Some(classes);
        }
        Ok(types)
    }

    /// What the user said of the machines that there are; files are read.
    fn input(&self) -> anyhow::Result<CatalogueInput> {
        let mut input = CatalogueInput { instance_types: None, options: self.provider.values.clone() };
        for option in self.declaration().catalogue_options {
            if let Some(path) = self.provider.values.path(option.flag) {
                let what = || format!("cannot read --{} {}", option.flag, path.display());
                input.options.set(option.flag, OptionValue::Text(read_limited(path).with_context(what)?));
            }
        }
        if let Some(path) = &self.instance_types {
            let what = || format!("cannot read the instance types in {}", path.display());
            input.instance_types = Some(read_limited(path).with_context(what)?);
        }
        Ok(input)
    }
}

/// Most bytes of a file.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// What can be launched.
#[derive(Debug)]
pub(super) struct MachineTypes {
    pub(super) types: Types,
    /// What node classes of the input make of them; `None` if they change nothing.
    pub(super) of_node_classes: Option<NodeClassTypes>,
    /// What the file describes and cannot be used.
    pub(super) left_out: Vec<CatalogueError>,
}

impl MachineTypes {
    /// Types that are equal to known ones are those, so that they are compiled once.
    fn known(&self, types: Vec<InstanceType>, classes: &NodeClassTypes) -> Types {
        let types = shared(types);
        let known = std::iter::once(&self.types).chain(classes.usable()).find(|known| **known == types);
        known.cloned().unwrap_or(types)
    }
}

fn shared(types: Vec<InstanceType>) -> Types {
    types.into_iter().map(Arc::new).collect()
}

fn read_limited(path: &Path) -> anyhow::Result<String> {
    let size = std::fs::metadata(path)?.len();
    if size > MAX_FILE_BYTES {
        bail!("it has {size} bytes, more than {MAX_FILE_BYTES}");
    }
    Ok(std::fs::read_to_string(path)?)
}

/// The NodePool to plan with where none is given: Linux machines of any architecture, under any terms.
pub(super) fn default_node_pool(provider: &Declaration) -> anyhow::Result<NodePool> {
    let class = provider.default_node_class;
    let pool = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": class.kind.group, "kind": class.kind.kind, "name": class.name},
            "requirements": [{"key": api::labels::OS, "operator": "In", "values": [api::labels::OS_LINUX]}],
        }}},
    });
    serde_json::from_value(pool).context("the built-in NodePool cannot be read")
}
