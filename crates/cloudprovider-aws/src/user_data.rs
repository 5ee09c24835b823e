//! What machines are told when they boot, so that they join the cluster: a pure function of cluster, node class and
//! NodeClaim.
//!
//! Each family of images has its own form, and each keeps what the user wants to say besides. What is written is a
//! machine's contract with `/etc/eks/bootstrap.sh`, nodeadm, Bottlerocket and `Start-EKSBootstrap.ps1`; which settings
//! go where follows `pkg/providers/amifamily/bootstrap` of karpenter-provider-aws 1.15. Equal input gives equal text,
//! since launch templates are told apart by it.

mod al2;
mod bottlerocket;
mod kubelet_args;
mod mime;
mod nodeadm;
mod windows;

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{labels, taints};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Taint;

use crate::node_class::AmiFamily;
use crate::node_class::kubelet::Kubelet;
use crate::node_class::spec::InstanceStorePolicy;

/// EC2's limit, before encoding.
pub const MAX_BYTES: usize = 16_384;
/// From here on a user should be warned: it does not take much more.
pub const WARN_BYTES: usize = 14_745;

/// How many bytes encoded user data is made of.
pub const fn decoded_bytes(encoded: &str) -> usize {
    let bytes = encoded.as_bytes();
    let padding = match bytes {
        [.., b'=', b'='] => 2,
        [.., b'='] => 1,
        _ => 0,
    };
    (bytes.len() / 4 * 3).saturating_sub(padding)
}

/// The cluster that machines join.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// URL of its API server.
    pub endpoint: String,
    /// Certificates by which the API server is trusted, base64.
    pub ca_bundle: Option<String>,
    /// The range of its services' addresses; only Amazon Linux 2023 needs it.
    pub service_cidr: Option<String>,
    /// The address of its DNS service.
    pub dns_ip: Option<IpAddr>,
}

/// What one machine is to be told.
#[derive(Debug, Clone, Copy)]
pub struct Boot<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The family of the image.
    pub family: AmiFamily,
    /// What the user wants to say besides.
    pub user_data: Option<&'a str>,
    /// Settings of the kubelet.
    pub kubelet: &'a Kubelet,
    /// Most pods: of the node class, else of the instance type.
    pub max_pods: u32,
    /// The node's labels, see [`node_labels`].
    pub labels: &'a BTreeMap<String, String>,
    /// The node's taints, see [`node_taints`].
    pub taints: &'a [Taint],
    /// What is done with disks that the type brings along.
    pub instance_store: Option<InstanceStorePolicy>,
    /// The version of a Bottlerocket image, if it is known; an unknown one is taken for new.
    pub image_version: Option<&'a str>,
}

/// Why a machine cannot be told what it must know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Amazon Linux 2023 does not come up without it.
    #[error("the range of service addresses of the cluster is not known, and images of family AL2023 need it")]
    ServiceCidrUnknown,
    /// The user's MIME message cannot be split into its parts.
    #[error("spec.userData is a MIME message that cannot be read: {0}")]
    Mime(String),
    /// The user's TOML cannot be read, or has something else where settings are.
    #[error("spec.userData is not TOML as Bottlerocket takes it: {0}")]
    Toml(String),
    /// It cannot be written.
    #[error("the settings of the kubelet cannot be written: {0}")]
    Yaml(String),
    /// EC2 takes no more than [`MAX_BYTES`].
    #[error("user data has {bytes} bytes, and EC2 takes {MAX_BYTES}")]
    TooLarge {
        /// How many there are.
        bytes: usize,
    },
}

/// The text that a machine is told, not encoded.
///
/// # Errors
/// If what the user wants to say is not in the family's form, or something about the cluster is missing.
pub fn render(boot: &Boot<'_>) -> Result<String, Error> {
    match boot.family {
        AmiFamily::Al2 => al2::render(boot),
        AmiFamily::Al2023 => nodeadm::render(boot),
        AmiFamily::Bottlerocket => bottlerocket::render(boot),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => Ok(windows::render(boot)),
        AmiFamily::Custom => Ok(boot.user_data.unwrap_or_default().to_owned()),
    }
}

/// A text in the form in which EC2 takes it.
///
/// # Errors
/// If it is too large.
pub fn encode(text: &str) -> Result<String, Error> {
    if text.len() > MAX_BYTES { Err(Error::TooLarge { bytes: text.len() }) } else { Ok(STANDARD.encode(text)) }
}

/// The labels that a kubelet may give its own node: those of the NodeClaim without the ones that only the API server's
/// administrators set, and what tells the controller that taints are there already. A custom image may have other
/// taints.
pub fn node_labels(of_claim: &BTreeMap<String, String>, family: AmiFamily) -> BTreeMap<String, String> {
    let mut kept = of_claim.clone();
    kept.retain(|key, _| !is_kept_from_kubelets(key));
    match family {
        AmiFamily::Custom => {}
        AmiFamily::Al2
        | AmiFamily::Al2023
        | AmiFamily::Bottlerocket
        | AmiFamily::Windows2019
        | AmiFamily::Windows2022
        | AmiFamily::Windows2025 => {
            kept.insert(labels::DO_NOT_SYNC_TAINTS.to_owned(), labels::TRUE.to_owned());
        }
    }
    kept
}

/// Whether the label's domain is one of Kubernetes' own, or below one.
fn is_kept_from_kubelets(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    ["kubernetes.io", "k8s.io"]
        .into_iter()
        .any(|own| domain == own || domain.strip_suffix(own).is_some_and(|above| above.ends_with('.')))
}

/// The taints that a node starts with: those of the NodeClaim, those that something else removes later, and the one
/// that keeps pods away until the controller has registered the node.
pub fn node_taints(taints: &[Taint], startup_taints: &[Taint]) -> Vec<Taint> {
    let mut all: Vec<_> = taints.iter().chain(startup_taints).cloned().collect();
    let is_unregistered = |taint: &Taint| taint.key == taints::UNREGISTERED && taint.effect == taints::NO_EXECUTE;
    if !all.iter().any(is_unregistered) {
        all.push(Taint {
            key: taints::UNREGISTERED.to_owned(),
            effect: taints::NO_EXECUTE.to_owned(),
            ..Taint::default()
        });
    }
    all
}

impl Boot<'_> {
    /// The addresses of DNS servers: those of the node class, else that of the cluster.
    fn cluster_dns(&self) -> Vec<String> {
        if self.kubelet.cluster_dns.is_empty() {
            self.cluster.dns_ip.iter().map(ToString::to_string).collect()
        } else {
            self.kubelet.cluster_dns.clone()
        }
    }

    /// Whether disks that the type brings along become one array.
    fn is_raid0(&self) -> bool {
        match self.instance_store {
            Some(InstanceStorePolicy::Raid0) => true,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
