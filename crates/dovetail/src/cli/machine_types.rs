//! Which machines the offline commands plan with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use api::NodePool;
use cloudprovider::declaration::{CatalogueError, CatalogueInput};
use cloudprovider::options::OptionValue;
use cloudprovider::{Declaration, InstanceType};
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

    /// The provider's own catalogue or the one in a file, as its options change it.
    pub(super) fn read(&self) -> anyhow::Result<MachineTypes> {
        let mut input = CatalogueInput { instance_types: None, options: self.provider.values.clone() };
        for option in self.declaration().catalogue_options {
            if let Some(path) = self.provider.values.path(option.flag) {
                let what = || format!("cannot read --{} {}", option.flag, path.display());
                input.options.set(option.flag, OptionValue::Text(read_limited(path).with_context(what)?));
            }
        }
        let read = match self.instance_types.as_deref() {
            None => (self.declaration().catalogue)(&input)?,
            Some(path) => {
                let what = || format!("cannot read the instance types in {}", path.display());
                input.instance_types = Some(read_limited(path).with_context(what)?);
                (self.declaration().catalogue)(&input).with_context(what)?
            }
        };
        Ok(MachineTypes { types: read.instance_types.into_iter().map(Arc::new).collect(), left_out: read.left_out })
    }
}

/// Most bytes of a file.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// What can be launched.
#[derive(Debug)]
pub(super) struct MachineTypes {
    pub(super) types: Vec<Arc<InstanceType>>,
    /// What the file describes and cannot be used.
    pub(super) left_out: Vec<CatalogueError>,
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
