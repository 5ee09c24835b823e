//! The objects that devices depend on, from manifests. One that cannot be used is a problem and stops no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::bail;
use decode::devices::AdminNamespaces;
use decode::manifests::{DocumentReason, Manifest};
use decode::priority_class::PriorityClasses;
use decode::workloads::{WorkloadKind, workload};
use dra_types::{
    ClaimTemplate, Compat, DeviceClass, DeviceTaintRule, FieldError, Node, Pod, PodGroup, ResourceClaim,
    ResourceClaimSpec, ResourceSlice, validate,
};
use k8s_cel::compiles;
use model::NamespacedName;
use serde_json::{Value, json};

use crate::cli::input::Documents;

/// Everything that was read.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) nodes: BTreeMap<Arc<str>, Node>,
    /// In the order in which they were written.
    pub(super) pods: Vec<Pod>,
    pub(super) claims: BTreeMap<NamespacedName, Arc<ResourceClaim>>,
    pub(super) templates: BTreeMap<NamespacedName, Arc<ClaimTemplate>>,
    pub(super) groups: BTreeMap<NamespacedName, Arc<PodGroup>>,
    pub(super) classes: BTreeMap<NamespacedName, Arc<DeviceClass>>,
    pub(super) slices: BTreeMap<NamespacedName, Arc<ResourceSlice>>,
    pub(super) rules: BTreeMap<NamespacedName, Arc<DeviceTaintRule>>,
    /// What could not be used.
    pub(super) problems: Vec<String>,
    /// The objects that problems are about, as `Kind namespace/name`.
    pub(super) refused: BTreeSet<String>,
    /// What a person should know.
    pub(super) notes: Vec<String>,
    /// Nodes that are allocated on.
    pub(super) asked: Vec<Arc<str>>,
}

/// Kinds whose pods are read after the classes that they refer to.
struct Reading<'a> {
    objects: Objects,
    compat: &'a Compat,
    admin_namespaces: AdminNamespaces,
    /// Where each pod stands.
    pods: BTreeMap<NamespacedName, usize>,
    priorities: PriorityClasses,
    unknown_priorities: BTreeSet<String>,
    expand: bool,
    not_expanded: usize,
    held_back: usize,
    /// Kinds and names.
    given_twice: BTreeSet<String>,
}

impl Objects {
    pub(super) fn read(documents: Documents, expand: bool, compat: &Compat) -> Self {
        let mut reading = Reading {
            objects: Self::default(),
            compat,
            admin_namespaces: AdminNamespaces::default(),
            pods: BTreeMap::new(),
            priorities: PriorityClasses::default(),
            unknown_priorities: BTreeSet::new(),
            expand,
            not_expanded: 0,
            held_back: 0,
            given_twice: BTreeSet::new(),
        };
        for error in documents.errors {
            match error.reason {
                DocumentReason::NotAnObject(_) => reading.objects.notes.push(format!("{error}; it was left out")),
                DocumentReason::Syntax(_) | DocumentReason::Limit { .. } => {
                    reading.objects.problems.push(error.to_string());
                }
            }
        }
        let comes_first = |manifest: &Manifest| matches!(manifest.kind.as_str(), "PriorityClass" | "Namespace");
        let (first, others): (Vec<_>, Vec<_>) = documents.manifests.into_iter().partition(comes_first);
        for mut manifest in first.into_iter().chain(others) {
            let name = name_it(&mut manifest);
            if let Err(reason) = reading.object(&manifest, name) {
                let object = manifest.object_ref().to_string();
                reading.objects.problems.push(format!("{}: {object}: {reason}", manifest.origin));
                reading.objects.refused.insert(object);
            }
        }
        reading.finish()
    }

    /// Decides which nodes are allocated on: one by name, or all.
    pub(super) fn keep_node(&mut self, name: Option<&str>) -> anyhow::Result<()> {
        let Some(name) = name else {
            self.asked = self.nodes.keys().cloned().collect();
            if self.asked.is_empty() {
                self.notes.push("there is no Node in the input".to_owned());
            }
            return Ok(());
        };
        if !self.nodes.contains_key(name) {
            let publishes = |slice: &Arc<ResourceSlice>| matches!(&slice.node_scope, Some(dra_types::NodeScope::Node(node)) if node.as_str() == name);
            if !self.slices.values().any(publishes) {
                bail!("there is no Node {name} in the input, and no ResourceSlice of one");
            }
            // Slices alone say what is on a node, if not which labels it has.
            self.notes.push(format!("there is no Node {name} in the input; it is taken to have no labels"));
            let node = json!({"metadata": {"name": name}});
            let node = Node::from_json(&node).map_err(|error| anyhow::anyhow!("node {name}: {error}"))?;
            self.nodes.insert(name.into(), node);
        }
        self.asked = vec![name.into()];
        Ok(())
    }
}

/// Gives an object the default namespace and, if it has only the beginning of a name, that as its name.
fn name_it(manifest: &mut Manifest) -> NamespacedName {
    let namespaced = matches!(manifest.kind.as_str(), "Pod" | "ResourceClaim" | "ResourceClaimTemplate" | "PodGroup");
    let is_namespaced = namespaced || WorkloadKind::of(manifest).is_some();
    if let Some(metadata) = manifest.object.get_mut("metadata").and_then(Value::as_object_mut) {
        let is_empty = |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value == "");
        if is_empty(metadata.get("name"))
            && let Some(name) = metadata.get("generateName").cloned()
        {
            metadata.insert("name".to_owned(), name);
        }
        if is_namespaced && is_empty(metadata.get("namespace")) {
            metadata.insert("namespace".to_owned(), json!("default"));
        }
    }
    manifest.object_ref().name
}

fn joined(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Reading<'_> {
    fn object(&mut self, manifest: &Manifest, name: NamespacedName) -> Result<(), String> {
        let object = &manifest.object;
        let one = |error: FieldError| error.to_string();
        let all = |errors: Vec<FieldError>| joined(&errors);
        let before = match (manifest.group.as_str(), manifest.kind.as_str()) {
            ("", "Node") => {
                let node = Node::from_json(object).map_err(one)?;
                self.objects.nodes.insert(Arc::clone(&name.name), node).is_some()
            }
            ("", "Namespace") => {
                self.admin_namespaces.add(object);
                false
            }
            ("", "Pod") => {
                self.pod(object.clone())?;
                false
            }
            ("resource.k8s.io", "ResourceClaim") => {
                let claim = ResourceClaim::from_json(object).map_err(one)?;
                validate::claim(&claim, &compiles(self.compat)).map_err(all)?;
                self.admin_access("spec", &claim.spec, &name.namespace)?;
                self.objects.claims.insert(name.clone(), Arc::new(claim)).is_some()
            }
            ("resource.k8s.io", "ResourceClaimTemplate") => {
                let template = ClaimTemplate::from_json(object).map_err(one)?;
                validate::claim_template(&template, &compiles(self.compat)).map_err(all)?;
                self.admin_access("spec.spec", &template.spec, &name.namespace)?;
                self.objects.templates.insert(name.clone(), Arc::new(template)).is_some()
            }
            ("resource.k8s.io", "DeviceClass") => {
                let class = DeviceClass::from_json(object).map_err(one)?;
                validate::class(&class, &compiles(self.compat)).map_err(all)?;
                self.objects.classes.insert(name.clone(), Arc::new(class)).is_some()
            }
            ("resource.k8s.io", "ResourceSlice") => {
                let slice = ResourceSlice::from_json(object).map_err(one)?;
                validate::slice(&slice).map_err(all)?;
                self.objects.slices.insert(name.clone(), Arc::new(slice)).is_some()
            }
            ("resource.k8s.io", "DeviceTaintRule") => {
                let rule = DeviceTaintRule::from_json(object).map_err(one)?;
                validate::device_taint_rule(&rule).map_err(all)?;
                if let Some(unsupported) = rule.unsupported.first() {
                    return Err(format!("{} is not supported", unsupported.construct));
                }
                self.objects.rules.insert(name.clone(), Arc::new(rule)).is_some()
            }
            ("scheduling.k8s.io", "PodGroup") => {
                let group = PodGroup::from_json(object).map_err(one)?;
                validate::pod_group(&group).map_err(all)?;
                self.objects.groups.insert(name.clone(), Arc::new(group)).is_some()
            }
            ("scheduling.k8s.io", "PriorityClass") => {
                let class = decode::priority_class(object).map_err(|error| error.problem.to_string())?;
                self.priorities.insert(class)
            }
            _ => {
                if let Some(kind) = WorkloadKind::of(manifest) {
                    self.workload(manifest, kind)?;
                }
                false
            }
        };
        if before && !name.name.is_empty() {
            self.given_twice.insert(format!("{} {name}", manifest.kind));
        }
        Ok(())
    }

    fn admin_access(&self, field: &str, spec: &ResourceClaimSpec, namespace: &str) -> Result<(), String> {
        let is_allowed = self.admin_namespaces.contains(namespace);
        validate::admin_access(spec, field, namespace, is_allowed).map_err(|error| error.to_string())
    }

    fn workload(&mut self, manifest: &Manifest, kind: WorkloadKind) -> Result<(), String> {
        if !self.expand {
            self.not_expanded += 1;
            return Ok(());
        }
        let Some(made) = workload(&manifest.object, kind).map_err(|error| error.problem.to_string())? else {
            return Ok(());
        };
        let owner = manifest.object_ref().name;
        for set in made {
            for suffix in set.suffixes {
                let mut pod = set.pod.clone();
                if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.insert("name".to_owned(), json!(format!("{}-{suffix}", owner.name)));
                }
                self.pod(pod)?;
            }
        }
        Ok(())
    }

    fn pod(&mut self, mut object: Value) -> Result<(), String> {
        let spec = object.get("spec").cloned().unwrap_or_default();
        let is_bound = spec.get("nodeName").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
        let gates = spec.get("schedulingGates").and_then(Value::as_array);
        if !is_bound && gates.is_some_and(|gates| !gates.is_empty()) {
            self.held_back += 1;
            return Ok(());
        }
        let class = spec.get("priorityClassName").and_then(Value::as_str).filter(|name| !name.is_empty());
        if spec.get("priority").and_then(Value::as_i64).is_none() {
            match self.priorities.of(class) {
                Some(class) => {
                    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                        spec.insert("priority".to_owned(), json!(class.value));
                    }
                }
                None => self.unknown_priorities.extend(class.map(str::to_owned)),
            }
        }
        let pod = Pod::from_json(&object).map_err(|error| error.to_string())?;
        validate::pod(&pod).map_err(|errors| joined(&errors))?;
        let known = self.pods.get(&pod.meta.name).and_then(|at| self.objects.pods.get_mut(*at));
        match known {
            Some(known) => {
                self.given_twice.insert(format!("Pod {}", pod.meta.name));
                *known = pod;
            }
            None => {
                self.pods.insert(pod.meta.name.clone(), self.objects.pods.len());
                self.objects.pods.push(pod);
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Objects {
        let notes = &mut self.objects.notes;
        match (self.given_twice.first(), self.given_twice.len()) {
            (None, _) => {}
            (Some(object), 1) => notes.push(format!("{object} is given more than once; the last one counts")),
            (Some(_), count) => notes.push(format!("{count} objects are given more than once; the last one counts")),
        }
        for class in &self.unknown_priorities {
            notes.push(format!("PriorityClass {class} is not in the input; priority 0 is assumed"));
        }
        if self.not_expanded > 0 {
            let were = if self.not_expanded == 1 { "workload was" } else { "workloads were" };
            notes.push(format!("{} {were} not expanded; --expand-workloads does", self.not_expanded));
        }
        if self.held_back > 0 {
            let pods = if self.held_back == 1 { "pod is" } else { "pods are" };
            notes.push(format!("{} {pods} held back by scheduling gates", self.held_back));
        }
        self.objects
    }
}
