//! The rules about values that the API server checks when an object is created.
//!
//! For offline commands, so that they refuse what a cluster would. All broken rules are reported, each with its field.
//! The texts of selectors and derived attributes are compiled too, by what the caller hands in ([`Compiler`]).
//!
//! Differs: `offline-other-release`. A field that the release does not have is held to the rules all the same, where
//! the server drops it unread, and steps of a range are above zero on every release.
//!
//! Not here: rules about changes of an object, and about the parts of a status that only drivers write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::claim::{
    AllocationMode, Config, ConstraintKind, DeviceSelector, ExactRequest, RequestKind, ResourceClaimSpec,
};
use super::class::DeviceClass;
use super::device::{AttributeValue, Device};
use super::json::{FieldError, Reason};
use super::meta::{ObjectMeta, is_label};
use super::names::{QualifiedName, RequestName};
use super::slice::{NodeScope, ResourceSlice};
use super::taint::DeviceTaintRule;
use super::{ClaimTemplate, ResourceClaim, SemanticVersion};

mod derived_attributes;
mod extended_resource;
mod pods;
mod slice_parts;

pub use pods::{ADMIN_ACCESS, admin_access, pod, pod_group};

const MAX_REQUESTS: usize = 32;
const MAX_CONSTRAINTS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
const MAX_SELECTORS: usize = 32;
/// Devices of one slice.
pub const MAX_DEVICES: usize = 128;
/// Devices of one slice if one of them [`is_advanced`].
pub const MAX_ADVANCED_DEVICES: usize = 64;
const MAX_ATTRIBUTES: usize = 32;
const MAX_ATTRIBUTE_VALUES: usize = 48;
const MAX_VALUE: usize = 64;
const MAX_TAINTS: usize = 16;
/// Sets of counters of one slice.
pub const MAX_COUNTER_SETS: usize = 8;
const MAX_COUNTERS: usize = 32;
const MAX_CONSUMPTIONS: usize = 2;
/// Groups of one consumption of counters (gate `DRADeviceCompatibilityGroups`).
const MAX_COMPATIBILITY_GROUPS: usize = 2;
/// Bytes of a pool's name, slashes included.
const MAX_POOL_NAME: usize = 253;
/// Bytes of the parameters of a configuration.
const MAX_PARAMETERS: usize = 10 * 1024;

/// Compiles the texts of new objects as the API server would, or says why that fails: `k8s_cel::compiles`.
pub trait Compiler {
    /// Compiles a selector.
    ///
    /// # Errors
    /// What is wrong with the text.
    fn selector(&self, text: &str) -> Result<(), String>;

    /// Whether requests can derive attributes; else the API server drops what they say of them.
    fn derives_attributes(&self) -> bool;

    /// Compiles the expression of a derived attribute. Gives the greatest cost of an evaluation.
    ///
    /// # Errors
    /// What is wrong with the text.
    fn derived_attribute(&self, text: &str) -> Result<u64, String>;
}

/// Who compiles.
pub type Compile<'a> = &'a dyn Compiler;

/// Broken rules, in the order of the fields.
struct Problems(Vec<FieldError>);

impl Problems {
    fn add(&mut self, field: &str, reason: Reason) {
        self.0.push(FieldError::new(field, reason));
    }

    fn invalid(&mut self, field: &str, reason: &str) {
        self.add(field, Reason::Invalid(reason.to_owned()));
    }

    fn at_most(&mut self, field: &str, found: usize, limit: usize) {
        if found > limit {
            self.add(field, Reason::TooMany { limit, found });
        }
    }

    /// A DNS label.
    fn label(&mut self, field: &str, name: &str) {
        if name.len() > 63 || !is_label(name) {
            self.invalid(field, &format!("{name:?} is not a lowercase RFC 1123 label"));
        }
    }

    /// A DNS subdomain of at most some length.
    fn subdomain(&mut self, field: &str, name: &str, limit: usize) {
        if name.is_empty() {
            self.add(field, Reason::Required);
        } else if name.len() > limit {
            self.add(field, Reason::TooLong { limit });
        } else if !name.split('.').all(is_label) {
            self.invalid(field, &format!("{name:?} is not a lowercase RFC 1123 subdomain"));
        }
    }

    /// The name of a driver: a DNS subdomain, but for the case of its letters.
    fn driver(&mut self, field: &str, name: &str) {
        self.subdomain(field, &name.to_ascii_lowercase(), 63);
    }

    /// The name of a pool: DNS subdomains with slashes between them.
    fn pool(&mut self, field: &str, name: &str) {
        if name.is_empty() {
            self.add(field, Reason::Required);
        } else if name.len() > MAX_POOL_NAME {
            self.add(field, Reason::TooLong { limit: MAX_POOL_NAME });
        } else {
            for part in name.split('/') {
                self.subdomain(field, part, 253);
            }
        }
    }

    fn qualified_name(&mut self, field: &str, name: &QualifiedName) {
        if let Some(domain) = name.domain() {
            self.driver(field, domain);
        }
        let id = name.id();
        // The API server does not look at names with several slashes.
        if id.contains('/') {
            return;
        }
        if id.len() > 32 {
            self.add(field, Reason::TooLong { limit: 32 });
        }
        let starts = id.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts || !id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.invalid(field, &format!("{id:?} is not a C identifier"));
        }
    }

    fn fully_qualified_name(&mut self, field: &str, name: &QualifiedName) {
        self.qualified_name(field, name);
        if name.domain().is_none() {
            self.invalid(field, "must be a domain and a name separated by a slash");
        }
    }

    fn unique<'a>(&mut self, field: &str, names: impl Iterator<Item = &'a str>) {
        let mut seen = BTreeSet::new();
        for (index, name) in names.enumerate() {
            if !seen.insert(name) {
                self.add(&format!("{field}[{index}]"), Reason::Duplicate(name.to_owned()));
            }
        }
    }

    fn selectors(&mut self, field: &str, selectors: &[DeviceSelector], compile: Compile<'_>) {
        self.at_most(field, selectors.len(), MAX_SELECTORS);
        for (index, selector) in selectors.iter().enumerate() {
            match selector {
                DeviceSelector::Other => self.add(&format!("{field}[{index}].cel"), Reason::Required),
                DeviceSelector::Cel(text) => {
                    if let Err(error) = compile.selector(text) {
                        self.invalid(&format!("{field}[{index}].cel.expression"), &error);
                    }
                }
            }
        }
    }

    fn configs(&mut self, field: &str, configs: &[Config], requests: Option<&BTreeSet<String>>) {
        self.at_most(field, configs.len(), 32);
        for (index, config) in configs.iter().enumerate() {
            let at = format!("{field}[{index}]");
            match &config.opaque {
                None => self.add(&format!("{at}.opaque"), Reason::Required),
                Some(opaque) => {
                    self.driver(&format!("{at}.opaque.driver"), opaque.driver.as_str());
                    self.parameters(&format!("{at}.opaque.parameters"), &opaque.parameters);
                }
            }
            if let Some(requests) = requests {
                self.references(&at, &config.requests, requests);
            }
        }
    }

    fn parameters(&mut self, field: &str, parameters: &Value) {
        match parameters {
            Value::Null => self.add(field, Reason::Required),
            // As long as it is without the spaces that it may have been written with.
            Value::Object(_) if parameters.to_string().len() > MAX_PARAMETERS => {
                self.add(field, Reason::TooLong { limit: MAX_PARAMETERS });
            }
            Value::Object(_) => {}
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.invalid(field, "must be a JSON object");
            }
        }
    }

    /// Labels of an object.
    fn labels(&mut self, field: &str, labels: &BTreeMap<Arc<str>, Arc<str>>) {
        for (key, value) in labels {
            slice_parts::label_key(self, field, key);
            slice_parts::label_value(self, field, value);
        }
    }

    fn meta(&mut self, meta: &ObjectMeta) {
        self.subdomain("metadata.name", &meta.name.name, 253);
        self.labels("metadata.labels", &meta.labels);
    }

    fn references(&mut self, field: &str, names: &[RequestName], requests: &BTreeSet<String>) {
        self.unique(&format!("{field}.requests"), names.iter().map(RequestName::as_str));
        for (index, name) in names.iter().enumerate() {
            if !requests.contains(name.as_str()) {
                let reason = format!("{name:?} is not the name of a request or of a request and a subrequest");
                self.invalid(&format!("{field}.requests[{index}]"), &reason);
            }
        }
    }
}

fn outcome(problems: Problems) -> Result<(), Vec<FieldError>> {
    if problems.0.is_empty() { Ok(()) } else { Err(problems.0) }
}

/// Checks a claim.
///
/// # Errors
/// All rules that are broken.
pub fn claim(claim: &ResourceClaim, compile: Compile<'_>) -> Result<(), Vec<FieldError>> {
    let mut problems = Problems(Vec::new());
    problems.meta(&claim.meta);
    claim_spec(&mut problems, "spec", &claim.spec, compile);
    outcome(problems)
}

/// Checks a template of claims.
///
/// # Errors
/// All rules that are broken.
pub fn claim_template(template: &ClaimTemplate, compile: Compile<'_>) -> Result<(), Vec<FieldError>> {
    let mut problems = Problems(Vec::new());
    problems.meta(&template.meta);
    problems.labels("spec.metadata.labels", &template.claim_labels);
    claim_spec(&mut problems, "spec.spec", &template.spec, compile);
    outcome(problems)
}

/// Checks a class.
///
/// # Errors
/// All rules that are broken.
pub fn class(class: &DeviceClass, compile: Compile<'_>) -> Result<(), Vec<FieldError>> {
    let mut problems = Problems(Vec::new());
    problems.meta(&class.meta);
    problems.selectors("spec.selectors", &class.selectors, compile);
    problems.configs("spec.config", &class.config, None);
    if let Some(name) = &class.extended_resource_name {
        extended_resource::check(&mut problems, "spec.extendedResourceName", name);
    }
    outcome(problems)
}

fn claim_spec(problems: &mut Problems, field: &str, spec: &ResourceClaimSpec, compile: Compile<'_>) {
    let field = format!("{field}.devices");
    let requests = format!("{field}.requests");
    problems.at_most(&requests, spec.requests.len(), MAX_REQUESTS);
    problems.unique(&requests, spec.requests.iter().map(|request| request.name.as_str()));
    let mut names = BTreeSet::new();
    let mut derived = derived_attributes::Check::new(&spec.constraints, compile);
    for (index, wanted) in spec.requests.iter().enumerate() {
        let at = format!("{requests}[{index}]");
        problems.label(&format!("{at}.name"), wanted.name.as_str());
        names.insert(wanted.name.as_str().to_owned());
        match &wanted.kind {
            RequestKind::Neither => problems.invalid(&at, "exactly one of `exactly` or `firstAvailable` is required"),
            RequestKind::Exactly(exactly) => {
                request(problems, &format!("{at}.exactly"), (wanted.name.as_str(), exactly), &mut derived);
            }
            RequestKind::FirstAvailable(alternatives) => {
                let at = format!("{at}.firstAvailable");
                problems.at_most(&at, alternatives.len(), MAX_ALTERNATIVES);
                problems.unique(&at, alternatives.iter().map(|(name, _)| name.as_str()));
                for (index, (name, alternative)) in alternatives.iter().enumerate() {
                    problems.label(&format!("{at}[{index}].name"), name.as_str());
                    let name = format!("{}/{name}", wanted.name);
                    request(problems, &format!("{at}[{index}]"), (&name, alternative), &mut derived);
                    names.insert(name);
                }
            }
        }
    }
    problems.at_most(&format!("{field}.constraints"), spec.constraints.len(), MAX_CONSTRAINTS);
    for (index, constraint) in spec.constraints.iter().enumerate() {
        let at = format!("{field}.constraints[{index}]");
        problems.references(&at, &constraint.requests, &names);
        let Some((key, name)) = constrained(&constraint.kind) else {
            problems.invalid(&at, "exactly one of `matchAttribute` or `distinctAttribute` is required");
            continue;
        };
        problems.fully_qualified_name(&format!("{at}.{key}"), name);
    }
    problems.configs(&format!("{field}.config"), &spec.config, Some(&names));
    derived.finish(problems, &field);
}

/// The attribute of a constraint, and the field that names it.
fn constrained(constraint: &ConstraintKind) -> Option<(&'static str, &QualifiedName)> {
    match constraint {
        ConstraintKind::MatchAttribute(name) => Some(("matchAttribute", name)),
        ConstraintKind::DistinctAttribute(name) => Some(("distinctAttribute", name)),
        ConstraintKind::Other => None,
    }
}

/// Checks what 1.37 demands of the attributes of constraints besides: the domain in lower case, as all formats that it
/// declares with the API (`ResourceFullyQualifiedName` of apimachinery's `pkg/api/validate`). `field` is the path of
/// the spec.
///
/// # Errors
/// The first attribute that is not so.
pub fn domains_in_lower_case(spec: &ResourceClaimSpec, field: &str) -> Result<(), FieldError> {
    for (index, constraint) in spec.constraints.iter().enumerate() {
        let Some((key, name)) = constrained(&constraint.kind) else { continue };
        // The API server does not look at names with several slashes.
        let domain = name.domain().filter(|_| !name.id().contains('/'));
        if let Some(domain) = domain.filter(|domain| domain.contains(|c: char| c.is_ascii_uppercase())) {
            let reason = Reason::Invalid(format!("{domain:?} must be in lower case from 1.37 on"));
            return Err(FieldError::new(format_args!("{field}.devices.constraints[{index}].{key}"), reason));
        }
    }
    Ok(())
}

fn request(
    problems: &mut Problems,
    field: &str,
    (name, request): (&str, &ExactRequest),
    derived: &mut derived_attributes::Check<'_>,
) {
    problems.subdomain(&format!("{field}.deviceClassName"), request.device_class_name.as_str(), 253);
    problems.selectors(&format!("{field}.selectors"), &request.selectors, derived.compile);
    derived.request(problems, &format!("{field}.derivedAttributes"), name, &request.derived_attributes);
    match &request.allocation_mode {
        AllocationMode::ExactCount(count) if *count <= 0 => {
            problems.invalid(&format!("{field}.count"), "must be greater than zero");
        }
        AllocationMode::ExactCount(_) | AllocationMode::All => {}
        AllocationMode::Other(mode) => {
            problems.invalid(&format!("{field}.allocationMode"), &format!("{mode:?} is not one of All, ExactCount"));
        }
    }
    let tolerations = format!("{field}.tolerations");
    // The API says that there are at most 16; no server holds anybody to it.
    for (place, toleration) in request.tolerations.iter().enumerate() {
        slice_parts::toleration(problems, &format!("{tolerations}[{place}]"), toleration);
    }
}

/// Checks a slice.
///
/// # Errors
/// All rules that are broken.
pub fn slice(slice: &ResourceSlice) -> Result<(), Vec<FieldError>> {
    let mut problems = Problems(Vec::new());
    problems.meta(&slice.meta);
    problems.driver("spec.driver", slice.driver.as_str());
    problems.pool("spec.pool.name", slice.pool.name.as_str());
    if slice.pool.resource_slice_count <= 0 {
        problems.invalid("spec.pool.resourceSliceCount", "must be greater than zero");
    }
    if slice.pool.generation < 0 {
        problems.invalid("spec.pool.generation", "must be greater than or equal to zero");
    }
    scope(&mut problems, "spec", slice.node_scope.as_ref());
    if !slice.devices.is_empty() && !slice.shared_counters.is_empty() {
        problems.invalid("spec", "only one of `sharedCounters` or `devices` is allowed");
    }
    let advanced = slice.devices.iter().any(is_advanced);
    let limit = if advanced { MAX_ADVANCED_DEVICES } else { MAX_DEVICES };
    problems.at_most("spec.devices", slice.devices.len(), limit);
    problems.unique("spec.devices", slice.devices.iter().map(|device| device.name.as_str()));
    let per_device = slice.node_scope == Some(NodeScope::PerDevice);
    for (index, found) in slice.devices.iter().enumerate() {
        device(&mut problems, &format!("spec.devices[{index}]"), found, per_device);
    }
    problems.at_most("spec.sharedCounters", slice.shared_counters.len(), MAX_COUNTER_SETS);
    problems.unique("spec.sharedCounters", slice.shared_counters.iter().map(|set| set.name.as_str()));
    for (index, set) in slice.shared_counters.iter().enumerate() {
        let at = format!("spec.sharedCounters[{index}]");
        problems.label(&format!("{at}.name"), set.name.as_str());
        slice_parts::counters(&mut problems, &format!("{at}.counters"), set.counters.keys());
    }
    outcome(problems)
}

/// Checks a rule that taints devices (`ValidateDeviceTaintRule`).
///
/// # Errors
/// All rules that are broken.
pub fn device_taint_rule(rule: &DeviceTaintRule) -> Result<(), Vec<FieldError>> {
    let mut problems = Problems(Vec::new());
    problems.meta(&rule.meta);
    if let Some(selector) = &rule.selector {
        if let Some(driver) = &selector.driver {
            problems.driver("spec.deviceSelector.driver", driver.as_str());
        }
        if let Some(pool) = &selector.pool {
            problems.pool("spec.deviceSelector.pool", pool.as_str());
        }
        if let Some(device) = &selector.device {
            problems.label("spec.deviceSelector.device", device.as_str());
        }
    }
    slice_parts::taint(&mut problems, "spec.taint", &rule.taint);
    outcome(problems)
}

fn scope(problems: &mut Problems, field: &str, scope: Option<&NodeScope>) {
    match scope {
        None => problems.invalid(
            field,
            "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ),
        Some(NodeScope::Node(name)) => problems.subdomain(&format!("{field}.nodeName"), name.as_str(), 253),
        Some(NodeScope::Selector(selector)) => {
            let field = format!("{field}.nodeSelector.nodeSelectorTerms");
            match selector.terms.as_slice() {
                [term] => slice_parts::term(problems, &format!("{field}[0]"), term),
                _ => problems.invalid(&field, "must have exactly one node selector term"),
            }
        }
        Some(NodeScope::AllNodes | NodeScope::PerDevice) => {}
    }
}

fn is_list(value: &AttributeValue) -> bool {
    use AttributeValue::{Bools, Ints, Strings, Versions};
    matches!(value, Ints(_) | Bools(_) | Strings(_) | Versions(_))
}

/// Whether the device has taints, counters or lists, of which a slice can hold fewer.
pub fn is_advanced(device: &Device) -> bool {
    !device.taints.is_empty() || !device.consumes_counters.is_empty() || device.attributes.values().any(is_list)
}

fn device(problems: &mut Problems, field: &str, device: &Device, per_device: bool) {
    problems.label(&format!("{field}.name"), device.name.as_str());
    let entries = device.attributes.len() + device.capacity.len();
    if entries > MAX_ATTRIBUTES {
        problems.at_most(field, entries, MAX_ATTRIBUTES);
    }
    let values: usize = device.attributes.values().map(count_values).sum();
    problems.at_most(&format!("{field}.attributes"), values, MAX_ATTRIBUTE_VALUES);
    for (name, value) in &device.attributes {
        let at = format!("{field}.attributes[{name}]");
        problems.qualified_name(&at, name);
        attribute(problems, &at, value);
    }
    for (name, capacity) in &device.capacity {
        let at = format!("{field}.capacity[{name}]");
        problems.qualified_name(&at, name);
        if capacity.request_policy.is_some() && !device.allow_multiple_allocations {
            problems.invalid(&format!("{at}.requestPolicy"), "allowMultipleAllocations must be true");
        }
        slice_parts::capacity(problems, &at, capacity);
    }
    problems.at_most(&format!("{field}.taints"), device.taints.len(), MAX_TAINTS);
    for (place, taint) in device.taints.iter().enumerate() {
        slice_parts::taint(problems, &format!("{field}.taints[{place}]"), taint);
    }
    let at = format!("{field}.consumesCounters");
    problems.at_most(&at, device.consumes_counters.len(), MAX_CONSUMPTIONS);
    problems.unique(&at, device.consumes_counters.iter().map(|consumption| consumption.counter_set.as_str()));
    for (place, consumption) in device.consumes_counters.iter().enumerate() {
        let at = format!("{at}[{place}]");
        problems.label(&format!("{at}.counterSet"), consumption.counter_set.as_str());
        slice_parts::counters(problems, &format!("{at}.counters"), consumption.counters.keys());
        let groups = format!("{at}.compatibilityGroups");
        problems.at_most(&groups, consumption.compatibility_groups.len(), MAX_COMPATIBILITY_GROUPS);
        problems.unique(&groups, consumption.compatibility_groups.iter().map(|group| &**group));
        for (place, group) in consumption.compatibility_groups.iter().enumerate() {
            problems.label(&format!("{groups}[{place}]"), group);
        }
    }
    slice_parts::binding_conditions(problems, field, device);
    if per_device {
        scope(problems, field, device.node_scope.as_ref());
    } else if device.node_scope.is_some() {
        problems.invalid(field, "node fields can only be set if `perDeviceNodeSelection` is true in the slice");
    }
}

fn count_values(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::Ints(values) => values.len(),
        AttributeValue::Bools(values) => values.len(),
        AttributeValue::Strings(values) | AttributeValue::Versions(values) => values.len(),
        AttributeValue::Int(_)
        | AttributeValue::Bool(_)
        | AttributeValue::String(_)
        | AttributeValue::Version(_)
        | AttributeValue::Unset
        | AttributeValue::AfterLaunch => 1,
    }
}

fn attribute(problems: &mut Problems, field: &str, value: &AttributeValue) {
    let mut check = |text: &str, version: bool| {
        if text.len() > MAX_VALUE {
            problems.add(field, Reason::TooLong { limit: MAX_VALUE });
        }
        if version && let Err(error) = SemanticVersion::parse(text) {
            problems.invalid(field, &error.to_string());
        }
    };
    match value {
        AttributeValue::String(text) => check(text, false),
        AttributeValue::Version(text) => check(text, true),
        AttributeValue::Strings(texts) => texts.iter().for_each(|text| check(text, false)),
        AttributeValue::Versions(texts) => texts.iter().for_each(|text| check(text, true)),
        AttributeValue::Unset => problems.invalid(field, "exactly one value must be specified"),
        AttributeValue::Int(_)
        | AttributeValue::Bool(_)
        | AttributeValue::Ints(_)
        | AttributeValue::Bools(_)
        | AttributeValue::AfterLaunch => {}
    }
    if is_list(value) && count_values(value) == 0 {
        problems.invalid(field, "must not be empty if specified");
    }
}
