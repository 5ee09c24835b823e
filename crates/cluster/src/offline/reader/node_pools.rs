//! The NodePools of the input, with what each can launch as overlays leave it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{NodeClassReference, NodePool};
use cloudprovider::InstanceType;
use decode::manifests::{Manifest, Origin};
use decode::{Context, ObjectError, ObjectRef, Problem, Reason};
use model::{NamespacedName, NodePoolName};
use overlay::evaluate::Corrected;
use overlay::{Overlay, Pool};
use scheduling::catalogue::Catalogue;

use super::super::OfflineNote;
use super::{GivenNodePool, RESERVED_CAPACITY, Reader, Types};
use crate::driver_daemons::{self, Machines};
use crate::node_pool;
use crate::snapshot::LaunchableNodePool;

impl Reader<'_> {
    pub(super) fn add_node_pools(&mut self) {
        let mut node_pools = std::mem::take(&mut self.node_pools);
        if self.header.is_none() {
            self.note_missing_classes(&node_pools);
        }
        if node_pools.is_empty()
            && self.header.is_none()
            && let Some(pool) = self.settings.default_node_pool
        {
            self.notes.push(OfflineNote::DefaultNodePool(describe(pool)));
            node_pools.push(GivenNodePool { object: Arc::new(pool.clone()), refused: None });
        }
        if self.header.is_none() {
            node_pools.iter_mut().for_each(|pool| self.refuse_for_its_class(pool));
        }
        let mut corrected = self.correct(&node_pools);
        let mut compiled: Vec<(Types, Arc<Catalogue>)> = Vec::new();
        for GivenNodePool { object, refused } in node_pools {
            if let Some(why) = refused {
                let catalogue = Arc::default();
                self.cluster.node_pools.push(LaunchableNodePool { object, usable: Err(why), catalogue });
                continue;
            }
            let name = object.metadata.name.clone().unwrap_or_default();
            let Some(types) = corrected.remove(name.as_str()) else {
                let usable = Err("has no instance types in the snapshot".into());
                self.cluster.node_pools.push(LaunchableNodePool { object, usable, catalogue: Arc::default() });
                continue;
            };
            if !self.instance_types.contains_key(&name) {
                self.note_foreign_class(&object, &name);
            }
            let known = compiled.iter().find(|(of, _)| Arc::ptr_eq(of, &types));
            let catalogue = match known {
                Some((_, catalogue)) => Arc::clone(catalogue),
                None => {
                    let catalogue = self.compile(&types);
                    compiled.push((types, Arc::clone(&catalogue)));
                    catalogue
                }
            };
            let usable = readiness(&object, self.header.is_some());
            self.cluster.node_pools.push(LaunchableNodePool { object, usable, catalogue });
        }
    }

    /// The instance types of each NodePool that can be used, by its name, as the overlays leave them. Those of
    /// NodePools that have the same are the same.
    fn correct(&mut self, node_pools: &[GivenNodePool]) -> BTreeMap<String, Types> {
        let default: Types = self.settings.instance_types.into();
        let mut names = Vec::new();
        let mut given = Vec::new();
        for GivenNodePool { object, refused } in node_pools {
            let name = NodePoolName::from(object.metadata.name.as_deref().unwrap_or_default());
            let types = match self.instance_types.get(name.as_str()) {
                Some(types) => types.as_slice().into(),
                None if self.header.is_some() => continue,
                None => match self.class_types(&object.spec.template.spec.node_class_ref) {
                    Some(Ok(types)) => Arc::clone(types),
                    // What is wrong with the class has refused the NodePool.
                    Some(Err(_)) | None => Arc::clone(&default),
                },
            };
            if refused.is_none() {
                names.push((name, &**object));
                given.push(types);
            }
        }
        let pools: Vec<Pool<'_>> = names
            .iter()
            .zip(&given)
            .map(|((name, pool), types)| Pool { name, template_labels: &pool.spec.template.metadata.labels, types })
            .collect();
        let overlays: Vec<Overlay> = self.overlays.iter().map(|(_, overlay)| overlay.clone()).collect();
        let evaluation = overlay::evaluate(&overlays, &pools);
        for (origin, overlay) in std::mem::take(&mut self.overlays) {
            if let Some(rejection) = evaluation.rejected.get(&overlay.name) {
                let name = NamespacedName::new("", overlay.name.as_str());
                let problem = Problem { field: "spec".to_owned(), reason: Reason::Invalid(rejection.to_string()) };
                self.problem(origin, ObjectError { object: ObjectRef { kind: "NodeOverlay".into(), name }, problem });
            }
        }
        let pools = names.iter().map(|(_, node_pool)| *node_pool).zip(&evaluation.pools);
        self.note_missing_driver_pods(pools.map(|(node_pool, it)| Machines { node_pool, types: &it.types }));
        let mut shared: Vec<(Arc<Corrected>, Types)> = Vec::new();
        let mut all = BTreeMap::new();
        for (((name, _), given), corrected) in names.into_iter().zip(given).zip(evaluation.pools) {
            let known = shared.iter().find(|(of, _)| Arc::ptr_eq(of, &corrected)).map(|(_, types)| Arc::clone(types));
            let types = known.unwrap_or_else(|| {
                let types = if corrected.is_unchanged() { given } else { corrected.types.as_slice().into() };
                shared.push((corrected, Arc::clone(&types)));
                types
            });
            all.insert(name.to_string(), types);
        }
        all
    }

    /// Says which drivers would have no pod on machines with their devices. Manifests without any DaemonSet are not the
    /// whole cluster, so they say nothing of drivers.
    fn note_missing_driver_pods<'m>(&mut self, machines: impl Iterator<Item = Machines<'m>>) {
        if self.header.is_none() && self.cluster.daemon_sets.is_empty() {
            return;
        }
        let machines: Vec<Machines<'_>> = machines.collect();
        let context = &mut Context::with_labels(&mut self.interner, self.settings.labels);
        let found = driver_daemons::look(&machines, &self.cluster.daemon_sets, context);
        self.notes.extend(found.into_iter().filter(|it| it.problem.is_some()).map(OfflineNote::NoDriverPods));
    }

    /// Whether an object is a node class that decides about instance types.
    ///
    /// # Errors
    /// If the provider cannot use it.
    pub(super) fn node_class(&self, manifest: &Manifest) -> Result<bool, ObjectError> {
        match self.settings.node_class_types.and_then(|types| types.of_object(manifest)) {
            None => Ok(false),
            Some(Ok(_)) => Ok(true),
            Some(Err(why)) => {
                let problem = Problem { field: String::new(), reason: Reason::Invalid(why.to_string()) };
                Err(ObjectError { object: manifest.object_ref(), problem })
            }
        }
    }

    /// What a NodePool's node class makes of the instance types, if the input has it.
    fn class_types(&self, class: &NodeClassReference) -> Option<&Result<Types, Arc<str>>> {
        self.settings.node_class_types?.of(class)
    }

    fn refuse_for_its_class(&self, pool: &mut GivenNodePool) {
        let class = &pool.object.spec.template.spec.node_class_ref;
        if let (None, Some(Err(why))) = (&pool.refused, self.class_types(class)) {
            pool.refused = Some(format!("its {} {} is refused: {why}", class.kind, class.name).into());
        }
    }

    /// Says which node classes NodePools name that would decide about their machines.
    fn note_missing_classes(&mut self, node_pools: &[GivenNodePool]) {
        let Some(known) = self.settings.node_class_types else { return };
        let mut missing: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for GivenNodePool { object, refused } in node_pools {
            let class = &object.spec.template.spec.node_class_ref;
            let is_ours = self.settings.node_classes.contains(&(class.group.as_str(), class.kind.as_str()));
            if refused.is_none() && is_ours && known.of(class).is_none() {
                let name = object.metadata.name.clone().unwrap_or_default();
                missing.entry(format!("{} {}", class.kind, class.name)).or_default().insert(name);
            }
        }
        let note = |(node_class, node_pools)| OfflineNote::MissingNodeClass { node_class, node_pools };
        self.notes.extend(missing.into_iter().map(note));
    }

    fn compile(&mut self, types: &[Arc<InstanceType>]) -> Arc<Catalogue> {
        let reserved = self.gate(RESERVED_CAPACITY);
        let context = &mut Context::with_labels(&mut self.interner, self.settings.labels);
        let (catalogue, errors) = if reserved {
            crate::catalogue(types.iter().map(AsRef::as_ref), context)
        } else {
            let types: Vec<_> = types.iter().map(|it| crate::without_reserved(it)).collect();
            crate::catalogue(types.iter().map(AsRef::as_ref), context)
        };
        self.catalogue_errors(errors);
        Arc::new(catalogue)
    }

    fn catalogue_errors(&mut self, errors: Vec<ObjectError>) {
        for error in errors {
            self.problem(Origin { source: "instance types".into(), document: 1 }, error);
        }
    }

    fn note_foreign_class(&mut self, object: &NodePool, name: &str) {
        let class = &object.spec.template.spec.node_class_ref;
        if !self.settings.node_classes.contains(&(class.group.as_str(), class.kind.as_str())) {
            let node_class = format!("{}.{}", class.kind, class.group);
            self.notes.push(OfflineNote::ForeignNodeClass { node_pool: name.to_owned(), node_class });
        }
    }
}

/// Whether a NodePool's own status lets it launch. In a file a pool without status counts as ready.
fn readiness(object: &NodePool, is_live: bool) -> Result<(), Arc<str>> {
    if is_live || node_pool::is_judged(object) { node_pool::readiness(object) } else { Ok(()) }
}

/// A NodePool in one line: its name and its requirements.
fn describe(pool: &NodePool) -> String {
    let requirements: Vec<_> = pool
        .spec
        .template
        .spec
        .requirements
        .iter()
        .map(|requirement| {
            let operator = serde_json::to_value(&requirement.operator).unwrap_or_default();
            format!("{} {} [{}]", requirement.key, operator.as_str().unwrap_or_default(), requirement.values.join(" "))
        })
        .collect();
    format!("{} ({})", pool.metadata.name.as_deref().unwrap_or_default(), requirements.join(", "))
}
