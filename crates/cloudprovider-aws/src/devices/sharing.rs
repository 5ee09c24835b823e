//! What NVIDIA's driver lets several claims share of a device (its feature gate `ConsumableShares`).

use api::resource_slice_template::{CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity, DeviceTemplate};
use api::resources::QuantityString;

use crate::instance_types::drivers::GpuSharing;

/// The least memory that a claim asks for, and by what it asks for more.
const MEMORY_STEP: &str = "1Mi";

/// Lets several claims use the device.
pub(super) fn share(device: &mut DeviceTemplate, sharing: GpuSharing) {
    // (what a claim gets that asks for nothing, the least): memory.
    let all = device.capacity.get("memory").map(|memory| memory.value.0.clone());
    let memory = match sharing {
        GpuSharing::Off => return,
        GpuSharing::Unlimited | GpuSharing::Shares(_) => ("0".to_owned(), "0"),
        GpuSharing::Memory => (all.clone().unwrap_or_default(), MEMORY_STEP),
    };
    device.allow_multiple_allocations = Some(true);
    if let (Some(capacity), Some(all)) = (device.capacity.get_mut("memory"), all) {
        capacity.request_policy = Some(policy(&memory.0, memory.1, &all, MEMORY_STEP));
    }
    if let GpuSharing::Shares(shares) = sharing {
        let all = shares.to_string();
        let request_policy = Some(policy("1", "1", &all, "1"));
        let shares = DeviceCapacity { value: QuantityString(all), request_policy };
        device.capacity.insert("shares".to_owned(), shares);
    }
}

fn policy(default: &str, min: &str, max: &str, step: &str) -> CapacityRequestPolicy {
    let quantity = |text: &str| QuantityString(text.to_owned());
    CapacityRequestPolicy {
        default: Some(quantity(default)),
        valid_values: Vec::new(),
        valid_range: Some(CapacityRequestPolicyRange {
            min: quantity(min),
            max: Some(quantity(max)),
            step: Some(quantity(step)),
        }),
    }
}
