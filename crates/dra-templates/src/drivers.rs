//! What is said of drivers beside their devices.

use std::collections::BTreeSet;

use api::names::{is_dns_subdomain, label_value_error, qualified_name_error};
use api::{DescribedDriver, DriverDaemonSet, DynamicResources};

use crate::{Error, Reason};

/// The entries of `drivers`: each once, of a driver that templates are of, with one way to name its DaemonSet.
pub(crate) fn check(templates: &DynamicResources) -> Result<(), Error> {
    let of_templates: BTreeSet<&str> =
        templates.resource_slice_templates.iter().map(|template| template.spec.driver.as_str()).collect();
    let mut seen = BTreeSet::new();
    for DescribedDriver { name, daemon_set } in &templates.drivers {
        if !seen.insert(name) {
            return Err(Reason::Duplicate.at_driver(name, "name"));
        }
        if !of_templates.contains(name.as_str()) {
            return Err(Reason::NoTemplateOfDriver.at_driver(name, "name"));
        }
        if let Some((field, reason)) = daemon_set.as_ref().and_then(wrong) {
            return Err(reason.at_driver(name, field));
        }
    }
    Ok(())
}

fn wrong(wanted: &DriverDaemonSet) -> Option<(&'static str, Reason)> {
    if wanted.name.is_some() != wanted.match_labels.is_empty() {
        return Some(("daemonSet", Reason::NameOrLabels));
    }
    let names = [("daemonSet.namespace", &wanted.namespace), ("daemonSet.name", &wanted.name)];
    let no_name = names.into_iter().find_map(|(field, name)| {
        let name = name.as_ref().filter(|it| !is_dns_subdomain(it))?;
        Some((field, Reason::NoName(name.clone())))
    });
    let no_label = || {
        wanted.match_labels.iter().find_map(|(key, value)| {
            let why = qualified_name_error(key).or_else(|| label_value_error(value))?;
            Some(("daemonSet.matchLabels", Reason::NoLabel { label: format!("{key}={value}"), why }))
        })
    };
    no_name.or_else(no_label)
}
