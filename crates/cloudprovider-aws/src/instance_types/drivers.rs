//! How the DRA drivers on a node class's machines are set up, as far as it changes what they publish.
//!
//! Nothing in the spec of an EC2NodeClass says it, since drivers are the user's DaemonSets. Annotations do:
//! `karpenter.k8s.aws/nvidia-consumable-capacity` as in karpenter-provider-aws 1.15, `dovetail.sh/nvidia-mig` besides.

use std::collections::BTreeMap;

use crate::names;

/// How drivers are set up. Without annotations they publish whole devices, each for one claim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DriverSettings {
    /// Whether GPUs are published in parts too.
    pub mig: Mig,
    /// Whether several claims may use one GPU.
    pub sharing: GpuSharing,
}

/// Whether NVIDIA's driver cuts GPUs (its feature gate `DynamicMIG`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mig {
    /// It does not.
    #[default]
    Off,
    /// It cuts GPUs that turn MIG mode on and off without a reset: Hopper and newer.
    Dynamic,
    /// It cuts GPUs of Ampere too. Their MIG mode was turned on before the driver started, so that they are never
    /// published whole.
    DynamicOnAmpere,
}

/// What claims that share a GPU are given of it (the driver's feature gate `ConsumableShares`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GpuSharing {
    /// A GPU is one claim's.
    #[default]
    Off,
    /// Any number of claims, which take memory only if they ask for it.
    Unlimited,
    /// As many claims as their memory allows; one that asks for none gets all.
    Memory,
    /// So many shares.
    Shares(u32),
}

impl DriverSettings {
    /// Reads the annotations of an EC2NodeClass.
    ///
    /// # Errors
    /// If a value is none that is known, with the annotation's path.
    pub fn of_annotations(annotations: &BTreeMap<String, String>) -> Result<Self, String> {
        let read = |key: &str| annotations.get(key).map(String::as_str);
        let wrong =
            |key: &str, value: &str, known: &str| Err(format!("metadata.annotations[{key}]: {value:?} is {known}"));
        let mig = match read(names::NVIDIA_MIG) {
            None => Mig::Off,
            Some("dynamic") => Mig::Dynamic,
            Some("dynamic-on-ampere") => Mig::DynamicOnAmpere,
            Some(other) => return wrong(names::NVIDIA_MIG, other, "neither dynamic nor dynamic-on-ampere"),
        };
        let sharing = match read(names::NVIDIA_CONSUMABLE_CAPACITY) {
            None => GpuSharing::Off,
            Some("unlimited") => GpuSharing::Unlimited,
            Some("memory") => GpuSharing::Memory,
            Some(count) => match count.parse() {
                Ok(shares) if shares > 0 => GpuSharing::Shares(shares),
                _ => {
                    let known = "neither unlimited nor memory nor a number above zero";
                    return wrong(names::NVIDIA_CONSUMABLE_CAPACITY, count, known);
                }
            },
        };
        Ok(Self { mig, sharing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &str, value: &str) -> Result<DriverSettings, String> {
        DriverSettings::of_annotations(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn annotations_say_how_drivers_are_set_up() {
        assert_eq!(DriverSettings::of_annotations(&BTreeMap::new()), Ok(DriverSettings::default()));
        for (value, mig) in [("dynamic", Mig::Dynamic), ("dynamic-on-ampere", Mig::DynamicOnAmpere)] {
            assert_eq!(read(names::NVIDIA_MIG, value).unwrap().mig, mig);
        }
        for (value, sharing) in
            [("unlimited", GpuSharing::Unlimited), ("memory", GpuSharing::Memory), ("4", GpuSharing::Shares(4))]
        {
            assert_eq!(read(names::NVIDIA_CONSUMABLE_CAPACITY, value).unwrap().sharing, sharing);
        }
    }

    #[test]
    fn a_value_that_nobody_knows_is_refused_with_its_annotation() {
        assert_eq!(
            read(names::NVIDIA_MIG, "static").unwrap_err(),
            "metadata.annotations[dovetail.sh/nvidia-mig]: \"static\" is neither dynamic nor dynamic-on-ampere"
        );
        for value in ["0", "-1", "", "many"] {
            let refused = read(names::NVIDIA_CONSUMABLE_CAPACITY, value).unwrap_err();
            assert!(refused.starts_with("metadata.annotations[karpenter.k8s.aws/nvidia-consumable-capacity]: "));
        }
    }
}
