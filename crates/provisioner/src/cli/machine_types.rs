//! Which machines the offline commands plan with.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use api::NodePool;
use cloudprovider::InstanceType;
use cloudprovider_kwok::catalogue::{self, Catalogue};
use serde_json::json;

/// Most bytes of a catalogue file.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// What can be launched.
#[derive(Debug)]
pub(super) struct MachineTypes {
    pub(super) types: Vec<Arc<InstanceType>>,
    /// What the file describes and cannot be used.
    pub(super) left_out: Vec<catalogue::Error>,
}

/// The default catalogue of the kwok provider, or the one in a file.
pub(super) fn instance_types(file: Option<&Path>) -> anyhow::Result<MachineTypes> {
    let read = match file {
        None => Catalogue { instance_types: catalogue::default_instance_types(), left_out: Vec::new() },
        Some(path) => {
            let read = || format!("cannot read the instance types in {}", path.display());
            let size = std::fs::metadata(path).with_context(read)?.len();
            if size > MAX_FILE_BYTES {
                bail!("{}: it has {size} bytes, more than {MAX_FILE_BYTES}", read());
            }
            let text = std::fs::read_to_string(path).with_context(read)?;
            catalogue::parse(&text).with_context(read)?
        }
    };
    Ok(MachineTypes { types: read.instance_types.into_iter().map(Arc::new).collect(), left_out: read.left_out })
}

/// The NodePool to plan with where none is given: Linux machines of any architecture, under any terms.
pub(super) fn default_node_pool() -> anyhow::Result<NodePool> {
    let pool = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": api::groups::KARPENTER_KWOK, "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [{"key": api::labels::OS, "operator": "In", "values": [api::labels::OS_LINUX]}],
        }}},
    });
    serde_json::from_value(pool).context("the built-in NodePool cannot be read")
}
