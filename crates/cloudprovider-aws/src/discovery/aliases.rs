//! Where AWS publishes the images of an alias: parameters of Systems Manager, one for each architecture and variant.

use api::labels;
use api::{NodeSelectorRequirement, Operator};

use crate::labels::{INSTANCE_ACCELERATOR_COUNT, INSTANCE_GPU_COUNT};
use crate::node_class::AmiFamily;
use crate::node_class::alias::{Alias, AliasVersion};

/// A parameter that holds the id of an image, if AWS publishes it.
#[derive(Debug, Clone, PartialEq)]
pub struct AliasParameter {
    /// The parameter's name.
    pub name: String,
    /// Whether it may hold another image tomorrow.
    pub is_mutable: bool,
    /// Which types the image is for, beside its architecture. The image is for each of the lists.
    pub variants: Vec<Vec<NodeSelectorRequirement>>,
}

/// What types an image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Standard,
    Nvidia,
    Neuron,
}

impl Variant {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Nvidia => "nvidia",
            Self::Neuron => "neuron",
        }
    }

    fn requirements(self) -> Vec<NodeSelectorRequirement> {
        match self {
            Self::Standard => {
                vec![absent(INSTANCE_ACCELERATOR_COUNT), absent(INSTANCE_GPU_COUNT)]
            }
            Self::Nvidia => vec![present(INSTANCE_GPU_COUNT)],
            Self::Neuron => vec![present(INSTANCE_ACCELERATOR_COUNT)],
        }
    }
}

fn requirement(key: &str, operator: Operator) -> NodeSelectorRequirement {
    NodeSelectorRequirement { key: key.to_owned(), operator, values: Vec::new() }
}

fn present(key: &str) -> NodeSelectorRequirement {
    requirement(key, Operator::Exists)
}

fn absent(key: &str) -> NodeSelectorRequirement {
    requirement(key, Operator::DoesNotExist)
}

/// The parameters of an alias for a minor version of Kubernetes such as `1.33`; one that does not exist is passed over.
pub fn alias_parameters(alias: &Alias, kubernetes: &str) -> Vec<AliasParameter> {
    let parameters = match alias.family {
        AmiFamily::Al2 => al2(alias, kubernetes),
        AmiFamily::Al2023 => al2023(alias, kubernetes),
        AmiFamily::Bottlerocket => bottlerocket(alias, kubernetes),
        AmiFamily::Windows2019 => windows("2019", "10.0.17763", kubernetes),
        AmiFamily::Windows2022 => windows("2022", "10.0.20348", kubernetes),
        AmiFamily::Windows2025 => windows("2025", "10.0.26100", kubernetes),
        // No alias is of it.
        AmiFamily::Custom => Vec::new(),
    };
    let is_mutable = alias.version == AliasVersion::Latest;
    let parameter = |(name, variants)| AliasParameter { name, is_mutable, variants };
    parameters.into_iter().map(parameter).collect()
}

type Named = (String, Vec<Vec<NodeSelectorRequirement>>);

/// One image serves both GPUs and Neuron devices.
fn al2(alias: &Alias, kubernetes: &str) -> Vec<Named> {
    let accelerated = || vec![Variant::Nvidia.requirements(), Variant::Neuron.requirements()];
    let images = [
        ("", vec![Variant::Standard.requirements()]),
        ("arm64-", vec![Variant::Standard.requirements()]),
        ("gpu-", accelerated()),
    ];
    let name = |infix: &str| {
        let suffix = if infix.is_empty() { String::new() } else { format!("-{}", infix.trim_end_matches('-')) };
        let image = match &alias.version {
            AliasVersion::Latest => "recommended".to_owned(),
            AliasVersion::Pinned(version) => format!("amazon-eks-{infix}node-{kubernetes}-{version}"),
        };
        format!("/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2{suffix}/{image}/image_id")
    };
    images.into_iter().map(|(infix, variants)| (name(infix), variants)).collect()
}

fn al2023(alias: &Alias, kubernetes: &str) -> Vec<Named> {
    let mut images = Vec::new();
    for (architecture, variants) in [
        ("x86_64", &[Variant::Standard, Variant::Nvidia, Variant::Neuron][..]),
        ("arm64", &[Variant::Standard, Variant::Nvidia]),
    ] {
        for variant in variants {
            let text = variant.as_str();
            let image = match &alias.version {
                AliasVersion::Latest => "recommended".to_owned(),
                AliasVersion::Pinned(version) => {
                    format!("amazon-eks-node-al2023-{architecture}-{text}-{kubernetes}-{version}")
                }
            };
            let folder = format!("/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{architecture}/{text}");
            images.push((format!("{folder}/{image}/image_id"), vec![variant.requirements()]));
        }
    }
    images
}

/// The plain image for x86 serves Neuron devices too.
fn bottlerocket(alias: &Alias, kubernetes: &str) -> Vec<Named> {
    let version = match &alias.version {
        AliasVersion::Latest => "latest",
        AliasVersion::Pinned(version) => version.strip_prefix('v').unwrap_or(version),
    };
    let name = |variant: &str, architecture: &str| {
        format!("/aws/service/bottlerocket/aws-k8s-{kubernetes}{variant}/{architecture}/{version}/image_id")
    };
    let (standard, nvidia) = (|| Variant::Standard.requirements(), || Variant::Nvidia.requirements());
    vec![
        (name("", "x86_64"), vec![standard(), Variant::Neuron.requirements()]),
        (name("", "arm64"), vec![standard()]),
        (name("-nvidia", "x86_64"), vec![nvidia()]),
        (name("-nvidia", "arm64"), vec![nvidia()]),
    ]
}

fn windows(year: &str, build: &str, kubernetes: &str) -> Vec<Named> {
    let is = |key: &str, value: &str| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: Operator::In,
        values: vec![value.to_owned()],
    };
    let name = format!(
        "/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}/image_id"
    );
    vec![(name, vec![vec![is(labels::OS, labels::OS_WINDOWS), is(labels::WINDOWS_BUILD, build)]])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(alias: &str) -> Vec<String> {
        alias_parameters(&Alias::parse(alias).unwrap(), "1.33").into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn parameters_are_where_aws_publishes_images() {
        assert_eq!(
            names("al2@v20240807"),
            [
                "/aws/service/eks/optimized-ami/1.33/amazon-linux-2/amazon-eks-node-1.33-v20240807/image_id",
                "/aws/service/eks/optimized-ami/1.33/amazon-linux-2-arm64/amazon-eks-arm64-node-1.33-v20240807/image_id",
                "/aws/service/eks/optimized-ami/1.33/amazon-linux-2-gpu/amazon-eks-gpu-node-1.33-v20240807/image_id",
            ]
        );
        assert_eq!(
            names("al2023@latest"),
            [
                "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/recommended/image_id",
                "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/nvidia/recommended/image_id",
                "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/neuron/recommended/image_id",
                "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/arm64/standard/recommended/image_id",
                "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/arm64/nvidia/recommended/image_id",
            ]
        );
        assert_eq!(
            names("bottlerocket@v1.40.0"),
            [
                "/aws/service/bottlerocket/aws-k8s-1.33/x86_64/1.40.0/image_id",
                "/aws/service/bottlerocket/aws-k8s-1.33/arm64/1.40.0/image_id",
                "/aws/service/bottlerocket/aws-k8s-1.33-nvidia/x86_64/1.40.0/image_id",
                "/aws/service/bottlerocket/aws-k8s-1.33-nvidia/arm64/1.40.0/image_id",
            ]
        );
        assert_eq!(
            names("windows2022@latest"),
            ["/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.33/image_id"]
        );
    }

    #[test]
    fn only_what_is_latest_can_change_and_windows_says_its_build() {
        let parameters = |alias| alias_parameters(&Alias::parse(alias).unwrap(), "1.33");
        assert!(parameters("al2023@latest").iter().all(|it| it.is_mutable));
        assert!(parameters("al2023@v1").iter().all(|it| !it.is_mutable));
        let windows = parameters("windows2025@latest");
        assert_eq!(windows[0].variants[0][1].values, ["10.0.26100"]);
        let neuron = &parameters("bottlerocket@latest")[0].variants[1];
        assert_eq!((neuron[0].key.as_str(), &neuron[0].operator), (INSTANCE_ACCELERATOR_COUNT, &Operator::Exists));
    }
}
