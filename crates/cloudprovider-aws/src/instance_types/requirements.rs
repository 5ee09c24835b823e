//! The labels of machines of a type, as far as the type alone decides them.

use std::collections::{BTreeMap, BTreeSet};

use api::labels as kubernetes;

use super::info::{InstanceTypeInfo, NeuronInfo};
use super::settings::NodeSettings;
use crate::labels;
use crate::node_class::AmiFamily;

/// For each label, its possible values. A label that such machines do not have is not there.
pub(super) type Labels = BTreeMap<String, BTreeSet<String>>;

/// Whether the machine shares its host is decided at launch.
const TENANCIES: [&str; 2] = ["default", "dedicated"];
/// What counts of the capacity types that EC2 names. Capacity blocks are bought by reservation.
const CAPACITY_TYPES: [&str; 2] = [kubernetes::CAPACITY_TYPE_ON_DEMAND, kubernetes::CAPACITY_TYPE_SPOT];

pub(super) fn labels(info: &InstanceTypeInfo, settings: &NodeSettings, region: &str) -> Labels {
    let mut labels = Builder(Labels::new());
    labels.set(kubernetes::INSTANCE_TYPE, &info.instance_type);
    labels.set(kubernetes::REGION, region);
    labels.set_all(labels::INSTANCE_TENANCY, TENANCIES);
    let sold = CAPACITY_TYPES.into_iter().filter(|it| info.supported_usage_classes.contains(*it));
    labels.set_all(kubernetes::CAPACITY_TYPE, sold);
    system(&mut labels, info, settings.ami_family);
    name(&mut labels, info);
    processor(&mut labels, info);
    disks_and_network(&mut labels, info);
    accelerators(&mut labels, info);
    labels.0
}

struct Builder(Labels);

impl Builder {
    fn set(&mut self, key: &str, value: impl ToString) {
        self.0.insert(key.to_owned(), BTreeSet::from([value.to_string()]));
    }

    /// A label without a possible value is none.
    fn set_all<'a>(&mut self, key: &str, values: impl IntoIterator<Item = &'a str>) {
        let values: BTreeSet<_> = values.into_iter().map(str::to_owned).collect();
        if !values.is_empty() {
            self.0.insert(key.to_owned(), values);
        }
    }
}

/// Windows runs on amd64 only; a machine of another architecture then has no operating system and is never launched.
fn system(labels: &mut Builder, info: &InstanceTypeInfo, family: AmiFamily) {
    let architecture = info.architecture();
    if let Some(architecture) = architecture {
        labels.set(kubernetes::ARCH, architecture);
    }
    let build = match family {
        AmiFamily::Windows2019 => "10.0.17763",
        AmiFamily::Windows2022 => "10.0.20348",
        AmiFamily::Windows2025 => "10.0.26100",
        AmiFamily::Al2 | AmiFamily::Al2023 | AmiFamily::Bottlerocket | AmiFamily::Custom => {
            labels.set(kubernetes::OS, kubernetes::OS_LINUX);
            return;
        }
    };
    labels.set(kubernetes::WINDOWS_BUILD, build);
    if architecture == Some(kubernetes::ARCH_AMD64) {
        labels.set(kubernetes::OS, kubernetes::OS_WINDOWS);
    }
}

fn name(labels: &mut Builder, info: &InstanceTypeInfo) {
    if let Some((category, generation)) = category_and_generation(&info.instance_type) {
        labels.set(labels::INSTANCE_CATEGORY, category);
        labels.set(labels::INSTANCE_GENERATION, generation);
    }
    if let Some((family, size)) = info.family_and_size() {
        labels.set(labels::INSTANCE_FAMILY, family);
        labels.set(labels::INSTANCE_SIZE, size);
    }
    let before_dot = info.instance_type.split('.').next().unwrap_or_default();
    labels.set(labels::INSTANCE_CAPABILITY_FLEX, before_dot.contains("-flex"));
}

/// The letters that a name begins with, and the number after them; between the two may stand the memory of a High
/// Memory type, as in `u-6tb1.metal`. Karpenter's pattern is `(^[a-z]+)(\-[0-9]+tb)?([0-9]+).*\.`.
fn category_and_generation(name: &str) -> Option<(&str, &str)> {
    let (category, rest) = split_where(name, |letter| !letter.is_ascii_lowercase())?;
    let rest = after_memory(rest).unwrap_or(rest);
    let (generation, rest) = split_where(rest, |letter| !letter.is_ascii_digit())?;
    rest.contains('.').then_some((category, generation))
}

/// What follows `-6tb`.
fn after_memory(text: &str) -> Option<&str> {
    let (_, rest) = split_where(text.strip_prefix('-')?, |letter| !letter.is_ascii_digit())?;
    rest.strip_prefix("tb")
}

/// Splits before the first such letter; the first part is not empty.
fn split_where(text: &str, is_end: fn(char) -> bool) -> Option<(&str, &str)> {
    text.split_at_checked(text.find(is_end)?).filter(|(first, _)| !first.is_empty())
}

fn processor(labels: &mut Builder, info: &InstanceTypeInfo) {
    labels.set(labels::INSTANCE_CPU, info.v_cpu_info.default_vcpus);
    labels.set(labels::INSTANCE_MEMORY, info.memory_info.size_in_mib);
    labels.set(labels::INSTANCE_CPU_MANUFACTURER, kebab(&info.processor_info.manufacturer));
    labels.set(labels::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ, info.processor_info.sustained_clock_speed_mhz);
    labels.set(labels::INSTANCE_HYPERVISOR, info.hypervisor.as_deref().unwrap_or_default());
}

fn disks_and_network(labels: &mut Builder, info: &InstanceTypeInfo) {
    if let Some(storage) = &info.instance_storage_info
        && storage.nvme_support.as_deref() != Some("unsupported")
        && let Some(gigabytes) = storage.total_size_gb
    {
        labels.set(labels::INSTANCE_LOCAL_NVME, gigabytes);
    }
    if info.ebs_info.ebs_optimized_support.as_deref() == Some("default")
        && let Some(bandwidth) = &info.ebs_info.ebs_optimized_info
    {
        labels.set(labels::INSTANCE_EBS_BANDWIDTH, bandwidth.maximum_bandwidth_mbps);
    }
    if let Some(bandwidth) = info.network_bandwidth_mbps {
        labels.set(labels::INSTANCE_NETWORK_BANDWIDTH, bandwidth);
    }
    let encrypts = info.network_info.encryption_in_transit_supported;
    labels.set(labels::INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED, encrypts);
}

/// A type with several kinds of one thing has no label for it: there is no telling which.
fn accelerators(labels: &mut Builder, info: &InstanceTypeInfo) {
    if let Some([gpu]) = info.gpu_info.as_ref().map(|gpus| gpus.gpus.as_slice()) {
        labels.set(labels::INSTANCE_GPU_NAME, kebab(&gpu.name));
        labels.set(labels::INSTANCE_GPU_MANUFACTURER, kebab(&gpu.manufacturer));
        labels.set(labels::INSTANCE_GPU_COUNT, gpu.count);
        labels.set(labels::INSTANCE_GPU_MEMORY, gpu.memory_info.size_in_mib);
    }
    let accelerator = match (&info.neuron_info, &info.inference_accelerator_info) {
        (Some(NeuronInfo { neuron_devices }), _) => match neuron_devices.as_slice() {
            [device] => Some(("aws", device.name.as_str(), device.count)),
            _ => None,
        },
        (None, Some(inference)) => match inference.accelerators.as_slice() {
            [it] => Some((it.manufacturer.as_str(), it.name.as_str(), it.count)),
            _ => None,
        },
        (None, None) => None,
    };
    if let Some((manufacturer, name, count)) = accelerator {
        labels.set(labels::INSTANCE_ACCELERATOR_NAME, kebab(name));
        labels.set(labels::INSTANCE_ACCELERATOR_MANUFACTURER, kebab(manufacturer));
        labels.set(labels::INSTANCE_ACCELERATOR_COUNT, count);
    }
}

/// A name as a label's value: small letters, dashes for blanks.
fn kebab(name: &str) -> String {
    name.replace(' ', "-").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn category_and_generation_are_read_from_a_name() {
        for (name, expected) in [
            ("m5.large", Some(("m", "5"))),
            ("inf2.48xlarge", Some(("inf", "2"))),
            ("u-6tb1.112xlarge", Some(("u", "1"))),
            ("u7in-16tb.224xlarge", Some(("u", "7"))),
            ("p6-b300.48xlarge", Some(("p", "6"))),
            ("c7i-flex.large", Some(("c", "7"))),
            ("mac-m4.metal", None),
            ("m5large", None),
            ("5.large", None),
        ] {
            assert_eq!(category_and_generation(name), expected, "{name}");
        }
    }
}
