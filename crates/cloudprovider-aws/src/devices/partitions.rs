//! GPUs in parts, as NVIDIA's driver publishes them with its feature gate `DynamicMIG`.
//!
//! `cmd/gpu-kubelet-plugin/partitions.go` of kubernetes-sigs/dra-driver-nvidia-gpu: a GPU is a set of counters, one for
//! each of its capacities and one for each slice of its memory. There is a device for each place that a profile can
//! have on the GPU; it takes its capacities and the slices that it lies on. The whole GPU takes everything. Its
//! capacities are then the greatest among the profiles', so its memory is a little less than what the driver publishes
//! without.
//!
//! Differs: `ec2-nvidia-mig`. Karpenter describes no parts of GPUs.

use std::collections::BTreeMap;

use api::resource_slice_template::{Counter, CounterSet, DeviceCapacity, DeviceCounterConsumption, DeviceTemplate};
use model::Quantity;
use serde::Deserialize;

use super::{DeviceSet, capacity, text};
use crate::instance_types::drivers::Mig;

/// How GPUs of some families are cut.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Partitioning {
    pub(super) of: Vec<String>,
    #[serde(rename = "seen")]
    _seen: String,
    mode: Mode,
    /// The whole GPU's memory with profiles walked, where no profile says it.
    #[serde(default)]
    memory: Option<String>,
    memory_slices: u32,
    profiles: Vec<Profile>,
}

/// How MIG mode is turned on.
#[derive(Deserialize, PartialEq, Eq, Clone, Copy)]
#[serde(rename_all = "camelCase")]
enum Mode {
    /// At any time.
    AtAnyTime,
    /// By a reset, which the driver does not do.
    ByReset,
}

/// One way to cut.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Profile {
    /// Such as `1g.10gb`.
    name: String,
    /// NVIDIA's number for it.
    id: u32,
    /// Slices of memory.
    size: u32,
    /// The first slice of each place.
    starts: Vec<u32>,
    /// As far as it was seen.
    #[serde(default)]
    capacity: BTreeMap<String, String>,
}

impl Partitioning {
    /// Whether a driver that is set up so cuts them.
    pub(super) fn is_done(&self, mig: Mig) -> bool {
        match mig {
            Mig::Off => false,
            Mig::Dynamic => self.mode == Mode::AtAnyTime,
            Mig::DynamicOnAmpere => true,
        }
    }

    /// Puts the parts of each GPU behind it. GPUs whose mode was turned on beforehand are there in parts only.
    pub(super) fn cut(&self, set: &mut DeviceSet, mig: Mig) {
        let is_whole_too = !(mig == Mig::DynamicOnAmpere && self.mode == Mode::ByReset);
        let most = self.most();
        for mut gpu in std::mem::take(&mut set.devices) {
            let counter_set = format!("{}-counter-set", gpu.name);
            let everything = counters(&most, 0..self.memory_slices);
            set.shared_counters.push(CounterSet {
                name: counter_set.clone(),
                replicas: None,
                replicas_from_label: None,
                counters: everything.clone(),
            });
            let parts: Vec<_> = self.profiles.iter().flat_map(|profile| profile.places(&gpu, &counter_set)).collect();
            if is_whole_too {
                gpu.capacity = most.clone();
                gpu.consumes_counters = vec![consumption(&counter_set, everything)];
                set.devices.push(gpu);
            }
            set.devices.extend(parts);
        }
    }

    /// The greatest of each capacity among the profiles.
    fn most(&self) -> BTreeMap<String, DeviceCapacity> {
        let mut most: BTreeMap<&str, &str> = self.memory.iter().map(|memory| ("memory", memory.as_str())).collect();
        for (name, amount) in self.profiles.iter().flat_map(|profile| &profile.capacity) {
            let is_more = |known: &&str| Quantity::parse(known).ok() < Quantity::parse(amount).ok();
            if most.get(name.as_str()).is_none_or(is_more) {
                most.insert(name, amount);
            }
        }
        most.into_iter().map(|(name, amount)| (name.to_owned(), capacity(amount))).collect()
    }
}

impl Profile {
    /// A device for each place on a GPU.
    fn places(&self, gpu: &DeviceTemplate, counter_set: &str) -> Vec<DeviceTemplate> {
        let mut attributes = gpu.attributes.clone();
        attributes.insert("type".to_owned(), text("mig"));
        attributes.insert("profile".to_owned(), text(&self.name));
        let amounts: BTreeMap<_, _> =
            self.capacity.iter().map(|(name, amount)| (name.clone(), capacity(amount))).collect();
        let short = self.name.replace('.', "").replace('+', "-");
        let place = |start: &u32| DeviceTemplate {
            name: format!("{}-mig-{short}-{}-{start}", gpu.name, self.id),
            attributes: attributes.clone(),
            capacity: amounts.clone(),
            consumes_counters: vec![consumption(counter_set, counters(&amounts, *start..start + self.size))],
            ..DeviceTemplate::default()
        };
        self.starts.iter().map(place).collect()
    }
}

/// A counter for each capacity, and one for each slice of memory.
fn counters(amounts: &BTreeMap<String, DeviceCapacity>, slices: std::ops::Range<u32>) -> BTreeMap<String, Counter> {
    let of_amounts = amounts.iter().map(|(name, it)| (kebab(name), Counter { value: it.value.clone() }));
    let of_slices = slices.map(|slice| (format!("memory-slice-{slice}"), Counter { value: "1".into() }));
    of_amounts.chain(of_slices).collect()
}

fn consumption(counter_set: &str, counters: BTreeMap<String, Counter>) -> DeviceCounterConsumption {
    DeviceCounterConsumption { counter_set: counter_set.to_owned(), counters, compatibility_groups: Vec::new() }
}

/// `copyEngines` as `copy-engines`.
fn kebab(name: &str) -> String {
    let mut kebab = String::with_capacity(name.len() + 1);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            kebab.push('-');
        }
        kebab.push(letter.to_ascii_lowercase());
    }
    kebab
}
