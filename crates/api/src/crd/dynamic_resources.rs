//! What the NodeOverlay CRD demands of `spec.dynamicResources`: everything that can be seen without a machine.
//!
//! `dra_templates` says the same, and more, for templates that do not come by the API server. Every list has a bound,
//! so that the rules' cost is accepted.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

use super::schema::{Constrain, at, items};

/// As in `resource.k8s.io`, where it has a bound.
const MAX_TEMPLATES: i64 = 16;
const MAX_DEVICES: i64 = 128;
const MAX_ATTRIBUTES: i64 = 32;
const MAX_LIST_VALUES: i64 = 48;
const MAX_COUNTER_SETS: i64 = 64;
const MAX_COUNTERS: i64 = 32;
const MAX_CONSUMPTIONS: i64 = 2;
const MAX_TAINTS: i64 = 16;
const MAX_CONDITIONS: i64 = 4;
const MAX_VALID_VALUES: i64 = 10;
const MAX_REQUIREMENTS: i64 = 32;
const MAX_VALUES: i64 = 100;
const MAX_MATCH_LABEL_KEYS: i64 = 8;
const MAX_BINDINGS: i64 = 32;
const MAX_BOUND_ATTRIBUTES: i64 = 8;
const MAX_SELECTORS: i64 = 32;
/// A name of 63 characters with a placeholder or two.
const MAX_NAME: i64 = 80;
/// A qualified name: a domain of 63 characters and an identifier of 32.
const MAX_QUALIFIED_NAME: i64 = 96;
const MAX_LABEL_KEY: i64 = 316;
const MAX_LABEL_VALUE: i64 = 63;
const MAX_LABELS: i64 = 16;
/// Of an object, as the API server has it.
const MAX_OBJECT_NAME: i64 = 253;

const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

pub(super) fn rules(root: &mut JSONSchemaProps) {
    let resources = at(root, "spec.dynamicResources");
    resources.rule(
        "!has(self.attributeBindings) || self.attributeBindings.all(b, b.deviceSelectors.all(s, \
         has(self.resourceSliceTemplates) && self.resourceSliceTemplates.exists(t, t.metadata.name == \
         s.resourceSliceTemplate)))",
        "attributeBindings may only name templates of this overlay",
    );
    let templates = at(resources, "resourceSliceTemplates").max_items(MAX_TEMPLATES).list_type("atomic");
    templates.rule(
        "self.all(t, self.exists_one(o, o.metadata.name == t.metadata.name))",
        "resourceSliceTemplates must have unique names",
    );
    at(items(templates), "metadata.name").pattern(DNS_LABEL).length(Some(1), Some(63));
    template(at(items(templates), "spec"));
    bindings(at(resources, "attributeBindings"));
    resources.rule(
        "!has(self.drivers) || self.drivers.all(d, has(self.resourceSliceTemplates) && \
         self.resourceSliceTemplates.exists(t, t.spec.driver == d.name))",
        "drivers may only name drivers of templates of this overlay",
    );
    drivers(at(resources, "drivers"));
}

fn template(spec: &mut JSONSchemaProps) {
    at(spec, "driver").pattern(DNS_SUBDOMAIN).length(Some(1), Some(63));
    at(spec, "poolSuffix").pattern(DNS_SUBDOMAIN).length(Some(1), Some(63));
    for field in ["nodeName", "pool"] {
        forbid(spec, field);
    }
    spec.rule(
        "(has(self.nodeSelector) ? 1 : 0) + (has(self.allNodes) && self.allNodes ? 1 : 0) + \
         (has(self.perDeviceNodeSelection) && self.perDeviceNodeSelection ? 1 : 0) <= 1",
        "only one of nodeSelector, allNodes and perDeviceNodeSelection can be set",
    );
    spec.rule(
        "!has(self.scope) || self.scope != 'Domain' || has(self.nodeSelector) || (has(self.allNodes) && self.allNodes)",
        "scope Domain needs a nodeSelector or allNodes",
    );
    spec.rule(
        "(has(self.devices) && self.devices.size() > 0) || (has(self.sharedCounters) && self.sharedCounters.size() > 0)",
        "a template needs devices or sharedCounters",
    );
    spec.rule(
        "!has(self.devices) || self.devices.all(d, (has(self.perDeviceNodeSelection) && self.perDeviceNodeSelection) == \
         (has(d.nodeSelector) || (has(d.allNodes) && d.allNodes)))",
        "devices say who can use them exactly where the template has perDeviceNodeSelection",
    );
    node_selector(at(spec, "nodeSelector"));
    let devices = at(spec, "devices").max_items(MAX_DEVICES).list_by_key("name");
    device(items(devices));
    let sets = at(spec, "sharedCounters").max_items(MAX_COUNTER_SETS).list_by_key("name");
    let set = items(sets);
    at(set, "name").length(Some(1), Some(MAX_NAME));
    at(set, "counters").properties(Some(1), MAX_COUNTERS);
    replicas(set);
}

fn device(device: &mut JSONSchemaProps) {
    at(device, "name").length(Some(1), Some(MAX_NAME));
    forbid(device, "nodeName");
    replicas(device);
    device.rule(
        "!has(self.nodeSelector) || !has(self.allNodes) || !self.allNodes",
        "only one of nodeSelector and allNodes can be set",
    );
    node_selector(at(device, "nodeSelector"));
    at(device, "attributes").properties(None, MAX_ATTRIBUTES);
    let attribute = at(device, "attributes{}").properties(Some(1), 1);
    for field in ["string", "version"] {
        at(attribute, field).length(None, Some(MAX_NAME));
    }
    for field in ["bools", "ints", "strings", "versions"] {
        at(attribute, field).max_items(MAX_LIST_VALUES).list_type("atomic");
    }
    at(device, "capacity").properties(None, MAX_ATTRIBUTES);
    let policy = at(device, "capacity{}.requestPolicy");
    at(policy, "validValues").max_items(MAX_VALID_VALUES).list_type("atomic");
    policy.rule("!has(self.validValues) || !has(self.validRange)", "only one of validValues and validRange can be set");
    let draws = at(device, "consumesCounters").max_items(MAX_CONSUMPTIONS).list_by_key("counterSet");
    at(items(draws), "counterSet").length(Some(1), Some(MAX_NAME));
    at(items(draws), "counters").properties(Some(1), MAX_COUNTERS);
    at(items(draws), "compatibilityGroups").max_items(MAX_LIST_VALUES).list_type("atomic");
    let taints = at(device, "taints").max_items(MAX_TAINTS).list_type("atomic");
    let taint = items(taints);
    at(taint, "effect").one_of(&["None", "NoSchedule", "NoExecute"]);
    forbid(taint, "timeAdded");
    for field in ["bindingConditions", "bindingFailureConditions"] {
        at(device, field).max_items(MAX_CONDITIONS).list_type("atomic");
    }
    device.rule(
        "has(self.bindingConditions) == has(self.bindingFailureConditions)",
        "bindingConditions and bindingFailureConditions need each other",
    );
    for field in ["nodeAllocatableResources", "nodeAllocatableResourceMappings"] {
        at(device, field).properties(None, MAX_ATTRIBUTES);
    }
}

fn replicas(set: &mut JSONSchemaProps) {
    let replicas = at(set, "replicas");
    replicas.range(Some(0.0), Some(2048.0));
    at(set, "replicasFromLabel").length(Some(1), Some(MAX_LABEL_KEY));
    set.rule(
        "!has(self.replicas) || !has(self.replicasFromLabel)",
        "only one of replicas and replicasFromLabel can be set",
    );
    set.rule(
        "(has(self.replicas) || has(self.replicasFromLabel)) == self.name.contains('{index}')",
        "a name contains {index} exactly where there are replicas",
    );
}

fn node_selector(selector: &mut JSONSchemaProps) {
    let terms = at(selector, "nodeSelectorTerms").max_items(1).list_type("atomic");
    terms.min_items = Some(1);
    let term = items(terms);
    let keys = at(term, "matchLabelKeys").max_items(MAX_MATCH_LABEL_KEYS).list_type("set");
    items(keys).length(Some(1), Some(MAX_LABEL_KEY));
    for field in ["matchExpressions", "matchFields"] {
        let list = at(term, field).max_items(MAX_REQUIREMENTS).list_type("atomic");
        let requirement = items(list);
        at(requirement, "key").length(Some(1), Some(MAX_LABEL_KEY));
        at(requirement, "operator").one_of(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);
        at(requirement, "values").max_items(MAX_VALUES).list_type("atomic");
    }
    let lists = ["matchLabelKeys", "matchExpressions", "matchFields"];
    term.rule(
        &lists.map(|field| format!("(has(self.{field}) && size(self.{field}) > 0)")).join(" || "),
        "a term without requirements selects no node; allNodes selects every one",
    );
}

fn bindings(list: &mut JSONSchemaProps) {
    let binding = items(list.max_items(MAX_BINDINGS).list_type("atomic"));
    let attributes = at(binding, "attributes").max_items(MAX_BOUND_ATTRIBUTES).list_type("set");
    attributes.min_items = Some(1);
    items(attributes).length(Some(1), Some(MAX_QUALIFIED_NAME));
    let selectors = at(binding, "deviceSelectors").max_items(MAX_SELECTORS).list_type("atomic");
    selectors.min_items = Some(1);
    at(items(selectors), "resourceSliceTemplate").length(Some(1), Some(63));
    at(items(selectors), "device").length(Some(1), Some(MAX_NAME));
}

fn drivers(list: &mut JSONSchemaProps) {
    let driver = items(list.max_items(MAX_TEMPLATES).list_by_key("name"));
    at(driver, "name").pattern(DNS_SUBDOMAIN).length(Some(1), Some(63));
    let daemon_set = at(driver, "daemonSet");
    at(daemon_set, "namespace").pattern(DNS_LABEL).length(Some(1), Some(63));
    at(daemon_set, "name").pattern(DNS_SUBDOMAIN).length(Some(1), Some(MAX_OBJECT_NAME));
    at(daemon_set, "matchLabels").properties(Some(1), MAX_LABELS);
    at(daemon_set, "matchLabels{}").length(None, Some(MAX_LABEL_VALUE));
    daemon_set.rule("has(self.name) != has(self.matchLabels)", "a daemonSet needs either a name or matchLabels");
}

/// A field of ResourceSlices that cannot be known before the machine exists. Were it only missing, it would be dropped
/// without a word.
fn forbid(object: &mut JSONSchemaProps, field: &str) {
    let forbidden = JSONSchemaProps {
        description: Some(format!("Not allowed: {field} is not known before the machine exists.")),
        type_: Some(if field == "pool" { "object" } else { "string" }.to_owned()),
        ..JSONSchemaProps::default()
    };
    object.properties.get_or_insert_default().insert(field.to_owned(), forbidden);
    object.rule(&format!("!has(self.{field})"), &format!("{field} is not known before the machine exists"));
}
