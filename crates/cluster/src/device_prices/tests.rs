use dra_types::ResourceSlice;
use serde_json::{Value, json};

use super::*;

/// A slice with one GPU of 7 slices and 80Gi for each name, and these partitions: name, GPU, slices, memory.
fn slice(gpus: &[&str], partitions: &[(&str, &str, u32, u32)], whole: &[&str]) -> ResourceSlice {
    let counters = |slices: u32, memory: u32| json!({"slices": {"value": slices.to_string()}, "memory": {"value": format!("{memory}Gi")}});
    let sets: Vec<Value> = gpus.iter().map(|gpu| json!({"name": gpu, "counters": counters(7, 80)})).collect();
    let partition = |&(name, gpu, slices, memory): &(&str, &str, u32, u32)| json!({"name": name, "consumesCounters": [{"counterSet": gpu, "counters": counters(slices, memory)}]});
    let mut devices: Vec<Value> = partitions.iter().map(partition).collect();
    devices.extend(whole.iter().map(|name| json!({"name": name})));
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {"driver": "gpu.example.com", "nodeName": "n", "devices": devices, "sharedCounters": sets,
                 "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}},
    });
    ResourceSlice::from_json(&object).unwrap()
}

fn pool(slice: &ResourceSlice) -> DevicesOfPool<'_> {
    DevicesOfPool { devices: slice.devices.iter().collect(), counter_sets: slice.shared_counters.iter().collect() }
}

const DOLLAR: i64 = 1_000_000_000;

#[test]
fn whole_devices_share_the_price_and_partitions_cost_the_part_that_they_take_most_of() {
    let slice = slice(
        &["gpu-0", "gpu-1"],
        &[("whole-0", "gpu-0", 7, 80), ("small-0", "gpu-0", 1, 20), ("whole-1", "gpu-1", 7, 80)],
        &["old-gpu", "other-gpu"],
    );
    let pool = pool(&slice);
    assert_eq!(whole_devices(&[pool.clone(), pool.clone()]), 8);
    let each = price_each(PriceNanoUsdPerHour(8 * DOLLAR), std::slice::from_ref(&pool)).unwrap();
    assert_eq!(each, PriceNanoUsdPerHour(2 * DOLLAR));
    let prices: Vec<i64> = pool.devices.iter().map(|device| pool.part(device).of(each).0).collect();
    // Of the small one: a seventh of the slices, but a quarter of the memory.
    assert_eq!(prices, [2 * DOLLAR, DOLLAR / 2, 2 * DOLLAR, 2 * DOLLAR, 2 * DOLLAR]);
    assert_eq!(price_each(PriceNanoUsdPerHour(DOLLAR), &[]), None);
}

#[test]
fn what_no_free_partition_can_use_beside_the_allocated_ones_is_stranded() {
    // As with MIG: three places of two slices, one of four, and one of seven.
    let partitions = [
        ("four", "gpu-0", 4, 40),
        ("two-a", "gpu-0", 2, 20),
        ("two-b", "gpu-0", 2, 20),
        ("two-c", "gpu-0", 2, 20),
        ("whole", "gpu-0", 7, 80),
        ("other", "gpu-1", 7, 80),
    ];
    let slice = slice(&["gpu-0", "gpu-1"], &partitions, &["old-gpu"]);
    let pool = pool(&slice);
    let price = PriceNanoUsdPerHour(8_000);
    let cases: [(&[&str], i64); 6] = [
        // Nothing is allocated, or everything.
        (&[], 0),
        (&["whole", "other"], 0),
        // One slice of seven is left, and no partition takes one; that a quarter of the memory is left costs no more.
        (&["four", "two-a"], 1_142),
        // The largest that fits is taken first: four beside two.
        (&["two-a"], 1_142),
        (&["two-a", "two-b", "two-c"], 1_142),
        (&["old-gpu"], 0),
    ];
    for (allocated, expected) in cases {
        let stranded = pool.stranded(&|name| allocated.contains(&name.as_str()));
        assert_eq!(stranded.of(price).0, expected, "{allocated:?}");
    }
}

#[test]
fn counters_that_say_where_a_partition_is_count_together() {
    // As drivers of GPUs publish it: a partition takes the slices of its place whole.
    let slice = |number: u32| format!("slice-{number}");
    let ones = |numbers: std::ops::Range<u32>| numbers.map(|it| (slice(it), json!({"value": "1"})));
    let counters = |numbers: std::ops::Range<u32>, memory: &str| {
        let memory = ("memory".to_owned(), json!({ "value": memory }));
        Value::Object(ones(numbers).chain([memory]).collect())
    };
    let place = |name: &str, numbers: std::ops::Range<u32>, memory: &str| json!({"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": counters(numbers, memory)}]});
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {"driver": "gpu.example.com", "nodeName": "n",
            "devices": [place("quarter", 0..2, "10Gi"), place("half", 0..4, "40Gi"), place("most", 0..4, "60Gi")],
            "sharedCounters": [{"name": "gpu", "counters": counters(0..8, "80Gi")}],
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}},
    });
    let slice = ResourceSlice::from_json(&object).unwrap();
    let pool = pool(&slice);
    let prices = pool.devices.iter().map(|device| pool.part(device).of(PriceNanoUsdPerHour(8_000)).0);
    assert_eq!(prices.collect::<Vec<_>>(), [2_000, 4_000, 6_000]);
}
