//! Machines that do not exist: 400 instance types whose drivers publish one of 12 templates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use dra_sched::{BinLedger, ClaimUse, ClusterLedger, Copies, LabelKnowledge, MachineShape, MachineTemplate};
use dra_types::ResourceSlice;
use model::{Budget, IdSet};
use serde_json::{Value, json};

use crate::cases::{GPU, claim, classes, features, gpu, node, request, slice};
use crate::clock::Stopwatch;
use crate::ours::{Objects, STEPS, object};
use crate::report::{Report, least, spread, time, with_spread};
use crate::upstream::Upstream;

const TYPES: usize = 400;
const TEMPLATES: usize = 12;

/// How many GPUs machines of a template have.
fn gpus(template: usize) -> usize {
    1 + template
}

/// Measures and prints.
pub(crate) fn measure(report: &mut Report, upstream: &mut Upstream, runs: usize) -> Result<()> {
    report.family("instance types: a pod that wants 4 GPUs, everything built anew");
    let devices = |template: usize| (0..gpus(template)).map(|index| gpu(index, index)).collect::<Vec<_>>();
    let names: Vec<String> = (0..TYPES).map(|index| format!("node-{index:05}")).collect();
    let slices: Vec<Value> =
        names.iter().enumerate().map(|(index, name)| slice(GPU, name, &devices(index % TEMPLATES))).collect();
    let question = json!({
        "name": "types", "features": features(), "classes": classes(&[GPU]), "slices": slices,
        "nodes": names.iter().map(|name| node(name)).collect::<Vec<_>>(),
        "pods": [[claim(0, &[request("gpu", GPU, 4)], &[])]],
    });
    let mut without_slices = question.clone();
    without_slices["slices"] = json!([]);
    let objects = Objects::read(&without_slices)?;
    let templates = (0..TEMPLATES)
        .map(|template| {
            let slice =
                ResourceSlice::from_json(&object("ResourceSlice", &slice(GPU, "template", &devices(template))))?;
            Ok(Arc::new(MachineTemplate {
                driver: slice.driver.clone(),
                pool_suffix: "".into(),
                devices: slice.devices,
                shared_counters: Vec::new(),
                bindings: Vec::new(),
            }))
        })
        .collect::<Result<Vec<_>>>()?;
    let fits = (0..TYPES).filter(|index| gpus(index % TEMPLATES) >= 4).count() as u64;

    let (mut few, mut many, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        // What the question to upstream leaves behind is tidied up by whoever allocates next.
        ours(&objects, &templates, TEMPLATES)?;
        few.push(ours(&objects, &templates, TEMPLATES)? as f64);
        many.push(ours(&objects, &templates, TYPES)? as f64);
        let measured = upstream.repeat(&question, 0)?;
        ensure!(measured.placed == fits, "upstream fits {} types, not {fits}", measured.placed);
        theirs.push(measured.cpu_nanos as f64);
    }
    let ratio = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<_>>();
    let line = |title: &str, times: &[f64], note: String| {
        println!("  {title:<50} {:>10}   {note}", least(times).map_or(String::new(), time));
    };
    line(&format!("ours, {TEMPLATES} types"), &few, String::new());
    line(&format!("ours, {TYPES} types"), &many, format!("{} times {TEMPLATES} types", spread(&ratio(&many, &few))));
    let rated = report.rate(&format!("{TYPES} instance types"), &theirs, &many);
    line(&format!("upstream, {TYPES} nodes"), &theirs, format!("{} times ours", with_spread(rated, &theirs, &many)));
    Ok(())
}

/// Builds everything and asks for all types at once.
fn ours(objects: &Objects, templates: &[Arc<MachineTemplate>], types: usize) -> Result<u64> {
    let watch = Stopwatch::start();
    let (mut builder, pods) = objects.builder();
    let mut shapes = IdSet::default();
    for index in 0..types {
        let template = templates.get(index % templates.len()).context("a template")?;
        // What no slice's selector mentions is no part of a shape.
        let labels: BTreeMap<Arc<str>, LabelKnowledge> = BTreeMap::new();
        shapes.insert(builder.machine_shape(MachineShape::new(vec![Arc::clone(template)], labels, BTreeSet::new())));
    }
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let bin = BinLedger::machine(&shapes, &mut cluster);
    let uses: Vec<ClaimUse> =
        pods.iter().flatten().map(|class| ClaimUse::Fresh { class: *class, containers: 1 }).collect();
    let offer =
        Copies { claims: &uses, copies: 1 }.try_add(&inventory, &bin, &shapes, &cluster, &mut Budget::new(STEPS));
    let ns = watch.elapsed_ns();
    let holding: usize = offer.alternatives.iter().map(|alternative| alternative.shapes.iter().count()).sum();
    let expected = (0..templates.len()).filter(|template| gpus(*template) >= 4).count();
    ensure!(holding == expected, "{holding} shapes hold the pod, not {expected}");
    Ok(ns)
}
