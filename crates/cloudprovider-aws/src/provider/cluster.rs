//! What the provider asks of the cluster, and no more.

use std::collections::BTreeMap;

use api::{NodeClaim, NodePool};
use async_trait::async_trait;
use model::Quantity;
use serde_json::Value;

/// A text that is kept in the cluster, and which version of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The text.
    pub text: String,
    /// Changes whenever the text is written.
    pub version: String,
}

/// What must be so for a document to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected<'a> {
    /// There is none yet.
    Absent,
    /// It still is of this version.
    Version(&'a str),
}

/// What of an object a patch may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All but its status.
    Object,
    /// Its status.
    Status,
}

/// A call to the cluster that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The document or object is not as expected: somebody else has written it.
    #[error("{0} was written by somebody else")]
    Conflict(String),
    /// Anything else, with what was done to which object.
    #[error("{0}")]
    Other(String),
}

/// The cluster: node classes, NodeClaims, and documents that survive a restart.
#[async_trait]
pub trait Cluster: Send + Sync + 'static {
    /// An EC2NodeClass as the server has it.
    async fn node_class(&self, name: &str) -> Result<Option<Value>, Failure>;
    /// All EC2NodeClasses as the server has them.
    async fn node_classes(&self) -> Result<Vec<Value>, Failure>;
    /// Changes an EC2NodeClass by a merge patch, unless it has changed since it was read as `object`; gives it as it is
    /// then.
    async fn patch_class(&self, object: &Value, patch: &Value, part: Part) -> Result<Value, Failure>;
    /// All NodePools that can be read.
    async fn node_pools(&self) -> Result<Vec<NodePool>, Failure>;
    /// All NodeClaims that can be read.
    async fn node_claims(&self) -> Result<Vec<NodeClaim>, Failure>;
    /// Memory of Nodes, by the provider ids of their machines. One that does not tell it is left out.
    async fn node_memory(&self) -> Result<BTreeMap<String, Quantity>, Failure>;
    /// Adds annotations to a NodeClaim, if it is there.
    async fn annotate(&self, claim: &NodeClaim, annotations: &[(&str, String)]) -> Result<(), Failure>;
    /// Sets labels of a NodeClaim and of its Node, as far as they are there, and takes those away that have no value.
    async fn relabel(&self, claim: &NodeClaim, labels: &[(&str, Option<&str>)]) -> Result<(), Failure>;
    /// Asks for the end of a NodeClaim, if it is there.
    async fn delete_claim(&self, claim: &NodeClaim) -> Result<(), Failure>;
    /// A document.
    async fn read(&self, name: &str) -> Result<Option<Document>, Failure>;
    /// Writes a document if it is as expected; gives its new version.
    async fn write(&self, name: &str, text: &str, expected: Expected<'_>) -> Result<String, Failure>;
    /// Removes a document, if it is there.
    async fn remove(&self, name: &str) -> Result<(), Failure>;
    /// The names of all documents.
    async fn names(&self) -> Result<Vec<String>, Failure>;
}
