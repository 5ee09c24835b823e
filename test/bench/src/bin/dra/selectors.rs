//! Selectors: the program over slots against the general evaluator, on one GPU.

use std::hint::black_box;

use anyhow::{Context, Result, ensure};
use dra_types::{Compat, Device, KubernetesMinor};
use k8s_cel::{DeviceView, Selector, SlotTable};

use crate::cases::{GPU, gpu};
use crate::clock::Stopwatch;
use crate::report::{Report, median, spread, time};

const TEXTS: [&str; 5] = [
    "device.driver == \"gpu.example.com\"",
    "device.driver == \"gpu.example.com\" && device.attributes[\"gpu.example.com\"].type == \"gpu\"",
    "device.capacity[\"gpu.example.com\"].memory.compareTo(quantity(\"4Gi\")) >= 0",
    "device.attributes[\"gpu.example.com\"].productName in [\"NVIDIA T4\", \"NVIDIA A100-SXM4-40GB\"]",
    "has(device.attributes[\"gpu.example.com\"].index) && device.attributes[\"gpu.example.com\"].index < 4",
];
const TIMES: u32 = 20_000;

/// Measures and prints.
pub(crate) fn measure(report: &mut Report, runs: usize) -> Result<()> {
    report.family("selectors: one evaluation, the device made ready before");
    let compat = Compat::new(KubernetesMinor::V1_37);
    let device = Device::from_json(&gpu(0, 0))?;
    let driver = GPU.into();
    let view = DeviceView::new(&driver, &device, &compat);
    for text in TEXTS {
        let selector = Selector::compile(text, &compat)?;
        let mut table = SlotTable::default();
        let program = selector.lower(&mut table).with_context(|| format!("{text} is not simple"))?;
        let row = table.row(&driver, &device, &compat);
        ensure!(program.evaluate(&row) == Some(selector.evaluate(&view)), "{text}: the evaluators differ");
        let each = |once: &dyn Fn()| {
            let watch = Stopwatch::start();
            (0..TIMES).for_each(|_| once());
            watch.elapsed_ns() as f64 / f64::from(TIMES)
        };
        let (mut general, mut slots) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            general.push(each(&|| {
                black_box(selector.evaluate(black_box(&view)));
            }));
            slots.push(each(&|| {
                black_box(program.evaluate(black_box(&row)));
            }));
        }
        let ratios: Vec<f64> = general.iter().zip(&slots).map(|(general, slots)| general / slots).collect();
        println!(
            "  {text}\n  {:<50} {:>10} {:>12}   general {} times as long",
            "",
            time(median(&slots).unwrap_or(0.0)),
            time(median(&general).unwrap_or(0.0)),
            spread(&ratios)
        );
    }
    Ok(())
}
