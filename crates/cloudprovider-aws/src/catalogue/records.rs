//! Reads the built-in types: a line each, the name first, then flags and `key=value` in any order.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::instance_types::info::{
    EbsInfo, EbsOptimizedInfo, EfaInfo, Gpu, InferenceAccelerator, InferenceAcceleratorInfo, InstanceStorageInfo,
    InstanceTypeInfo, MemoryInfo, NetworkCard, NeuronCoreInfo, NeuronDevice, PlacementGroupInfo,
};

/// A line that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {word:?}: {reason}")]
pub struct Error {
    /// Counted from 1.
    pub line: usize,
    /// The word that is wrong.
    pub word: String,
    /// Why.
    pub reason: &'static str,
}

type Reason = &'static str;

pub(super) fn parse(text: &str) -> Result<BTreeMap<String, InstanceTypeInfo>, Error> {
    let mut types = BTreeMap::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let fault = |word: &str, reason| Error { line: index + 1, word: word.to_owned(), reason };
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let mut info = InstanceTypeInfo { instance_type: name.to_owned(), ..InstanceTypeInfo::default() };
        for word in words {
            let read = match word.split_once('=') {
                Some((key, value)) => set(&mut info, key, value),
                None => flag(&mut info, word),
            };
            read.map_err(|reason| fault(word, reason))?;
        }
        if info.v_cpu_info.default_vcpus == 0 || info.network_info.network_cards.is_empty() {
            return Err(fault(name, "processors or network cards are missing"));
        }
        if types.insert(name.to_owned(), info).is_some() {
            return Err(fault(name, "a second line of this name"));
        }
    }
    Ok(types)
}

fn flag(info: &mut InstanceTypeInfo, word: &str) -> Result<(), Reason> {
    match word {
        "metal" => info.bare_metal = true,
        "enclaves" => info.nitro_enclaves_support = Some("supported".to_owned()),
        "encrypts" => info.network_info.encryption_in_transit_supported = true,
        _ => return Err("unknown flag"),
    }
    Ok(())
}

fn set(info: &mut InstanceTypeInfo, key: &str, value: &str) -> Result<(), Reason> {
    let network = &mut info.network_info;
    match key {
        "cpu" => info.v_cpu_info.default_vcpus = number(value)?,
        "mib" => info.memory_info.size_in_mib = number(value)?,
        "arch" => info.processor_info.supported_architectures = list(value),
        "maker" => info.processor_info.manufacturer = text(value),
        "mhz" => info.processor_info.sustained_clock_speed_mhz = number(value)?,
        "features" => info.processor_info.supported_features = list(value),
        "hv" => info.hypervisor = Some(value.to_owned()),
        "use" => info.supported_usage_classes = list(value),
        "place" => info.placement_group_info = PlacementGroupInfo { supported_strategies: list(value) },
        "store" => {
            let [gigabytes, nvme] = parts(value)?;
            let total_size_gb = Some(number(gigabytes)?);
            info.instance_storage_info =
                Some(InstanceStorageInfo { total_size_gb, nvme_support: Some(nvme.to_owned()) });
        }
        "ebs" => {
            let [support, mbps] = parts(value)?;
            info.ebs_info = EbsInfo {
                ebs_optimized_support: Some(support.to_owned()),
                ebs_optimized_info: Some(EbsOptimizedInfo { maximum_bandwidth_mbps: number(mbps)? })
                    .filter(|it| it.maximum_bandwidth_mbps > 0),
            };
        }
        "ena" => network.ena_support = Some(value.to_owned()),
        "ipv4" => network.ipv4_addresses_per_interface = number(value)?,
        "cards" => network.network_cards = cards(value)?,
        "efa" => network.efa_info = Some(EfaInfo { maximum_efa_interfaces: number(value)? }),
        "bw" => info.network_bandwidth_mbps = Some(number(value)?),
        "branch" => info.branch_interfaces = Some(number(value)?),
        "gpu" => info.gpu_info.get_or_insert_default().gpus.push(gpu(value)?),
        "neuron" => info.neuron_info.get_or_insert_default().neuron_devices.push(neuron(value)?),
        "inference" => {
            let [manufacturer, name, count] = parts(value)?;
            let it = InferenceAccelerator { manufacturer: text(manufacturer), name: text(name), count: number(count)? };
            let listed: &mut InferenceAcceleratorInfo = info.inference_accelerator_info.get_or_insert_default();
            listed.accelerators.push(it);
        }
        _ => return Err("unknown key"),
    }
    Ok(())
}

/// Runs of equal cards: `32x2:ieo:100000` are 32 cards of two interfaces of each kind, with 100 Gbit/s each.
fn cards(value: &str) -> Result<Vec<NetworkCard>, Reason> {
    let mut cards: Vec<NetworkCard> = Vec::new();
    for run in value.split(',') {
        let (count, card) = run.split_once('x').ok_or("a count and an x are missing")?;
        let [interfaces, kinds, mbps] = parts(card)?;
        let card = NetworkCard {
            network_card_index: 0,
            maximum_network_interfaces: number(interfaces)?,
            interface_types: kinds.chars().map(interface_type).collect::<Result<_, _>>()?,
            baseline_bandwidth_mbps: number(mbps)?,
        };
        for _ in 0..number::<u32>(count)? {
            let network_card_index = u32::try_from(cards.len()).map_err(|_| "too many cards")?;
            cards.push(NetworkCard { network_card_index, ..card.clone() });
        }
    }
    Ok(cards)
}

fn interface_type(letter: char) -> Result<String, Reason> {
    match letter {
        'i' => Ok("interface".to_owned()),
        'e' => Ok("efa".to_owned()),
        'o' => Ok("efa-only".to_owned()),
        _ => Err("unknown kind of interface"),
    }
}

fn gpu(value: &str) -> Result<Gpu, Reason> {
    let [manufacturer, name, count, mib, logical] = parts(value)?;
    Ok(Gpu {
        manufacturer: text(manufacturer),
        name: text(name),
        count: number(count)?,
        logical_gpu_count: Some(number(logical)?),
        memory_info: MemoryInfo { size_in_mib: number(mib)? },
    })
}

fn neuron(value: &str) -> Result<NeuronDevice, Reason> {
    let [name, count, cores] = parts(value)?;
    let core_info = NeuronCoreInfo { count: number(cores)? };
    Ok(NeuronDevice { name: text(name), count: number(count)?, core_info })
}

fn parts<const N: usize>(value: &str) -> Result<[&str; N], Reason> {
    let parts: Vec<_> = value.split(':').collect();
    parts.try_into().map_err(|_| "another number of parts is needed")
}

fn number<T: FromStr>(value: &str) -> Result<T, Reason> {
    value.parse().map_err(|_| "not a number that fits")
}

fn list<C: FromIterator<String>>(value: &str) -> C {
    value.split(',').map(str::to_owned).collect()
}

/// Blanks are written as underscores.
fn text(value: &str) -> String {
    value.replace('_', " ")
}
