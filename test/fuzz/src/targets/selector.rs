//! A selector compiles or is refused; it costs no more than it may, and both evaluators agree.

use dra_types::Device;
use k8s_cel::{DeviceView, MAX_COST, Selector, SlotTable};
use serde_json::json;

use super::devices::compat;

pub(crate) fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let compat = compat();
    let Ok(selector) = Selector::compile(&text, &compat) else { return };
    let device = json!({
        "name": "device", "allowMultipleAllocations": true,
        "attributes": {
            "model": {"string": "a100"}, "index": {"int": 3}, "ready": {"bool": true}, "version": {"version": "1.2.3"},
            "example.com/names": {"strings": ["a", "b"]},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    });
    let driver = "gpu.example.com".into();
    let device = Device::from_json(&device).expect("a device with an attribute of each type");
    let general = selector.evaluate(&DeviceView::new(&driver, &device, &compat));
    // One call may overrun the limit, and nothing comes after it.
    assert!(general.cost <= MAX_COST || general.outcome.is_err(), "{text} cost {}", general.cost);
    let mut table = SlotTable::default();
    if let Some(program) = selector.lower(&mut table) {
        let by_slots = program.evaluate(&table.row(&driver, &device, &compat));
        assert!(by_slots.is_none_or(|by_slots| by_slots == general), "{text}");
    }
}
