//! Launch templates that are there: made when they are needed, removed when they have not been for a while.
//!
//! A template's name stands for all that is in it, so one that is there is right, whoever made it. Names that are known
//! are kept for as long as EC2 is not asked twice within a minute.
//!
//! Differs: `launch-template-clean-up`. Karpenter removes a template when its cache forgets it, so that a controller
//! which was stopped for a while removes those that another one uses. Here EC2 is asked what there is, and what nobody
//! here has used for an hour is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{DurationMs, Timestamp};
use parking_lot::Mutex;

use crate::launch::template::{LaunchTemplate, NAME_PREFIX};
use crate::node_class::tags;
use crate::service::ec2::{ExistingTemplate, Filter, Query};
use crate::service::{Ec2, Error, Kind};

/// How long a template is taken to be there still.
const FRESH: DurationMs = DurationMs::from_seconds(60);
/// How long one stays that nobody uses.
const UNUSED: DurationMs = DurationMs::from_seconds(3600);

/// When a template was last used, and when EC2 last said that it is there.
#[derive(Debug, Clone, Copy)]
struct Known {
    used_at: Timestamp,
    seen_at: Option<Timestamp>,
}

/// The templates of a cluster.
pub(super) struct Templates {
    ec2: Arc<dyn Ec2>,
    cluster: String,
    known: Mutex<BTreeMap<String, Known>>,
    /// One at a time makes templates, so that a plan of a thousand equal machines asks once.
    making: tokio::sync::Mutex<()>,
}

impl Templates {
    pub(super) fn new(ec2: Arc<dyn Ec2>, cluster: &str) -> Self {
        Self { ec2, cluster: cluster.to_owned(), known: Mutex::default(), making: tokio::sync::Mutex::default() }
    }

    /// Sees to it that these templates are there.
    pub(super) async fn ensure(
        &self,
        templates: &BTreeMap<String, LaunchTemplate>,
        now: Timestamp,
    ) -> Result<(), Error> {
        if templates.keys().all(|name| self.is_there(name, now)) {
            return Ok(());
        }
        let _making = self.making.lock().await;
        for (name, template) in templates {
            if self.is_there(name, now) {
                continue;
            }
            let query = Query { ids: Vec::new(), filters: vec![Filter::new("launch-template-name", name)] };
            if self.ec2.describe_launch_templates(&query).await?.is_empty() {
                match self.ec2.create_launch_template(name, template).await {
                    // Lists lag: what is not found yet may be there.
                    Err(error) if error.kind != Kind::AlreadyExists => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
            self.known.lock().insert(name.clone(), Known { used_at: now, seen_at: Some(now) });
        }
        Ok(())
    }

    /// Whether it was seen lately. Whoever asks is about to use it.
    fn is_there(&self, name: &str, now: Timestamp) -> bool {
        let mut known = self.known.lock();
        let Some(known) = known.get_mut(name) else { return false };
        known.used_at = now;
        known.seen_at.is_some_and(|seen| now.since(seen) < FRESH)
    }

    /// Forgets that templates were seen, because EC2 says that one is gone.
    pub(super) fn forget(&self, names: impl IntoIterator<Item = String>) {
        let mut known = self.known.lock();
        for name in names {
            if let Some(known) = known.get_mut(&name) {
                known.seen_at = None;
            }
        }
    }

    /// Removes templates that nobody has used for long, and all of a node class that is going. Those that are `needed`
    /// stay, since a request that names them may have to be repeated.
    pub(super) async fn tidy(&self, needed: &BTreeSet<String>, now: Timestamp) -> Result<(), Error> {
        let is_old = |template: &ExistingTemplate| {
            let mut known = self.known.lock();
            // One that is not known was used by whoever ran before; from now on it has an hour.
            let known = known.entry(template.name.clone()).or_insert(Known { used_at: now, seen_at: None });
            now.since(known.used_at) >= UNUSED
        };
        let of_cluster = vec![Filter::new(format!("tag:{}", tags::CLUSTER_NAME), &self.cluster)];
        let mut all = self.list(of_cluster).await?;
        all.retain(|template| !needed.contains(&template.name) && is_old(template));
        self.remove(all).await
    }

    /// Removes all templates of a node class.
    pub(super) async fn remove_of_class(&self, class: &str) -> Result<(), Error> {
        let filters = vec![
            Filter::new(format!("tag:{}", tags::CLUSTER_NAME), &self.cluster),
            Filter::new(format!("tag:{}", crate::names::NODE_CLASS), class),
        ];
        let all = self.list(filters).await?;
        self.remove(all).await
    }

    async fn list(&self, filters: Vec<Filter>) -> Result<Vec<ExistingTemplate>, Error> {
        let mut all = self.ec2.describe_launch_templates(&Query { ids: Vec::new(), filters }).await?;
        all.retain(|template| template.name.starts_with(NAME_PREFIX));
        Ok(all)
    }

    async fn remove(&self, templates: Vec<ExistingTemplate>) -> Result<(), Error> {
        for template in templates {
            match self.ec2.delete_launch_template(&template.id).await {
                Err(error) if !matches!(error.kind, Kind::LaunchTemplateGone | Kind::NotFound) => return Err(error),
                Ok(()) | Err(_) => drop(self.known.lock().remove(&template.name)),
            }
        }
        Ok(())
    }
}
