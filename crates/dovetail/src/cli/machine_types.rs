//! Which machines the offline commands plan with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use api::NodePool;
use cloudprovider::declaration::{Catalogue, CatalogueError};
use cloudprovider::{Declaration, InstanceType};
use serde_json::json;

use super::provider_args::ProviderArg;

/// The machines that a command works with, where no cluster says which there are.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct MachineTypesArgs {
    /// File with instance types, in the provider's format [default: the provider's own]
    #[arg(long, value_name = "FILE")]
    pub(super) instance_types: Option<PathBuf>,
    #[command(flatten)]
    pub(super) provider: ProviderArg,
}

impl MachineTypesArgs {
    /// What the provider says of itself.
    pub(super) fn declaration(&self) -> &'static Declaration {
        self.provider.plugin.declaration()
    }
}

/// Most bytes of a catalogue file.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// What can be launched.
#[derive(Debug)]
pub(super) struct MachineTypes {
    pub(super) types: Vec<Arc<InstanceType>>,
    /// What the file describes and cannot be used.
    pub(super) left_out: Vec<CatalogueError>,
}

/// The provider's default catalogue, or the one in a file.
pub(super) fn instance_types(provider: &Declaration, file: Option<&Path>) -> anyhow::Result<MachineTypes> {
    let read = match file {
        None => Catalogue { instance_types: (provider.default_instance_types)(), left_out: Vec::new() },
        Some(path) => {
            let read = || format!("cannot read the instance types in {}", path.display());
            let size = std::fs::metadata(path).with_context(read)?.len();
            if size > MAX_FILE_BYTES {
                bail!("{}: it has {size} bytes, more than {MAX_FILE_BYTES}", read());
            }
            let text = std::fs::read_to_string(path).with_context(read)?;
            (provider.read_catalogue)(&text).with_context(read)?
        }
    };
    Ok(MachineTypes { types: read.instance_types.into_iter().map(Arc::new).collect(), left_out: read.left_out })
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
