//! What drivers publish that no template describes, and the overlays that were generated for it.

use std::collections::BTreeSet;

use api::{NodePool, annotations, labels};
use overlay::learn::{self, Gap, Machine};

use super::objects::{Objects, World};
use super::table;
use crate::cli::report::plural;

/// What was found.
#[derive(Debug)]
pub(super) struct Report {
    gaps: Vec<Gap>,
    /// Name, what it was made from, and whether any type's devices follow from it.
    generated: Vec<(String, String, bool)>,
}

impl Report {
    /// Whether templates describe everything that is published.
    pub(super) fn is_complete(&self) -> bool {
        self.gaps.is_empty()
    }
}

/// Looks at every node of the input that belongs to one of its NodePools.
pub(super) fn learn(objects: &Objects, world: &World) -> Report {
    let name_of = |pool: &NodePool| pool.metadata.name.clone().unwrap_or_default();
    let class_of = |pool: &str| {
        let pool = objects.pools.iter().find(|of| name_of(of) == pool)?;
        let class = &pool.spec.template.spec.node_class_ref;
        Some(format!("{}/{}", class.kind, class.name))
    };
    let mut seen = Vec::new();
    for (node, of_node) in &objects.nodes {
        let (Some(pool), Some(instance_type)) = (of_node.get(labels::NODEPOOL), of_node.get(labels::INSTANCE_TYPE))
        else {
            continue;
        };
        let Some(class) = class_of(pool) else { continue };
        let types = world.pools().find(|(name, _)| name == pool).map(|(_, types)| types);
        let of_type = types.into_iter().flatten().find(|it| it.name == **instance_type);
        let templates = of_type.into_iter().flat_map(|it| &it.dynamic_resources.resource_slice_templates);
        let described: BTreeSet<&str> = templates.map(|template| template.spec.driver.as_str()).collect();
        seen.push((node, instance_type, class, described));
    }
    let machines: Vec<Machine<'_>> = seen
        .iter()
        .map(|(node_name, instance_type, node_class, described)| Machine {
            node_name,
            instance_type,
            node_class,
            described,
        })
        .collect();
    let templates = world.pools().flat_map(|(_, types)| types).flat_map(|it| {
        it.dynamic_resources.resource_slice_templates.iter().map(|template| template.metadata.name.as_str())
    });
    let serving: BTreeSet<&str> = templates.filter_map(|name| Some(name.split_once('/')?.0)).collect();
    let generated = objects.overlays.iter().map(|given| &given.object).filter(|object| learn::is_generated(object));
    let generated = generated.map(|object| {
        let name = object.metadata.name.clone().unwrap_or_default();
        let from = object.metadata.annotations.as_ref().and_then(|of| of.get(annotations::GENERATED_FROM));
        let serves = serving.contains(name.as_str());
        (name, from.cloned().unwrap_or_default(), serves)
    });
    Report { gaps: learn::gaps(&machines, &objects.slices), generated: generated.collect() }
}

/// What is missing, then what was generated.
pub(super) fn table(report: &Report) -> String {
    let mut text = String::new();
    if report.gaps.is_empty() {
        text.push_str("Templates describe every driver that has published on a node of these NodePools.\n");
    } else {
        let mut table = table::new(&["DRIVER", "INSTANCE TYPE", "NODE CLASS", "SEEN ON", "DEVICES"]);
        for gap in &report.gaps {
            let devices = gap.devices.to_string();
            table.add_row([gap.driver.as_str(), &gap.instance_type, &gap.node_class, &gap.node_name, &devices]);
        }
        text.push_str(&table::text(&table));
        text.push_str(&format!(
            "\n{} without a template; an overlay from one of them: dovetail overlay capture --node NODE --driver DRIVER\n",
            plural(report.gaps.len(), "driver and type", "drivers and types")
        ));
    }
    if !report.generated.is_empty() {
        text.push('\n');
        let mut table = table::new(&["GENERATED OVERLAY", "FROM", "STATE"]);
        for (name, from, serves) in &report.generated {
            table.add_row([name.as_str(), from.as_str(), if *serves { "in effect" } else { "superseded" }]);
        }
        text.push_str(&table::text(&table));
    }
    text
}
