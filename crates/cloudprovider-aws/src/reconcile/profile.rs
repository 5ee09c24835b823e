//! Instance profiles for roles.
//!
//! A profile is never changed: another role gets another profile, so that machines keep the rights that they were
//! launched with. Which profiles are still needed, node classes and NodeClaims say.

use std::collections::BTreeSet;

use model::{DurationMs, Timestamp};
use serde_json::Value;

use super::NodeClassReconciler;
use crate::launch::digest;
use crate::names;
use crate::node_class::NodeClass;
use crate::node_class::decode::Rights;
use crate::node_class::spec::Tags;
use crate::node_class::tags::{CLUSTER_NAME, CLUSTER_PREFIX, OWNED};
use crate::provider::cluster::Failure;
use crate::service::{Error, InstanceProfile, Kind};

/// How long a profile stays that nothing refers to: whoever made it may not have written it down yet.
const KEPT: DurationMs = DurationMs::from_seconds(3600);

/// Why there is no instance profile.
#[derive(Debug)]
pub(super) enum NoProfile {
    /// A call failed.
    Failed(Error),
    /// What the node class asks for cannot be.
    Refused { reason: &'static str, message: String },
}

impl From<Error> for NoProfile {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl NodeClassReconciler {
    /// The instance profile of a node class; it is made if need be.
    pub(super) async fn profile(&self, class: &NodeClass, now: Timestamp) -> Result<String, NoProfile> {
        let role = match &class.spec.rights {
            Rights::InstanceProfile(name) => return Ok(name.clone()),
            Rights::Role(role) => role,
        };
        if self.setup.settings.isolated_vpc {
            let message = "spec.role: instance profiles cannot be made in an isolated VPC; name one in \
                           spec.instanceProfile"
                .to_owned();
            return Err(NoProfile::Refused { reason: "IsolatedVPC", message });
        }
        // A role may be written with its path; IAM wants the name alone.
        let role = role.rsplit('/').next().unwrap_or(role);
        if let Some(name) = &class.status.instance_profile
            && self.has_role(name, role).await?
        {
            return Ok(name.clone());
        }
        if !self.setup.iam.role_exists(role).await? {
            let message = format!("spec.role: there is no role {role}");
            return Err(NoProfile::Refused { reason: "RoleNotFound", message });
        }
        let name = self.profile_name(class, role, now);
        self.make_profile(&name, role, class).await?;
        Ok(name)
    }

    async fn has_role(&self, profile: &str, role: &str) -> Result<bool, Error> {
        match self.setup.iam.get_instance_profile(profile).await {
            Ok(profile) => Ok(profile.role.as_deref() == Some(role)),
            Err(error) if error.kind == Kind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A name that no profile of the node class had before. Within a minute it is the same, so that a status which
    /// could not be written does not make one profile after the other.
    fn profile_name(&self, class: &NodeClass, role: &str, now: Timestamp) -> String {
        let settings = &self.setup.settings;
        let minute = now.0.div_euclid(60_000);
        let digest = digest(&(&settings.region, &class.name, &class.uid, role, minute));
        format!("{}_{digest}", settings.cluster.name)
    }

    /// What all profiles of the cluster are below.
    fn cluster_path(&self) -> String {
        let settings = &self.setup.settings;
        format!("/karpenter/{}/{}/", settings.region, settings.cluster.name)
    }

    async fn make_profile(&self, name: &str, role: &str, class: &NodeClass) -> Result<(), Error> {
        let settings = &self.setup.settings;
        let mut tags: Tags = class.spec.tags.clone();
        tags.extend(
            [
                (format!("{CLUSTER_PREFIX}/{}", settings.cluster.name), OWNED),
                (CLUSTER_NAME.to_owned(), &*settings.cluster.name),
                (names::NODE_CLASS.to_owned(), &*class.name),
                (api::labels::REGION.to_owned(), &*settings.region),
            ]
            .map(|(key, value)| (key, value.to_owned())),
        );
        let path = format!("{}{}/", self.cluster_path(), class.uid);
        let iam = &self.setup.iam;
        match iam.create_instance_profile(name, &path, &tags).await {
            // Of a try that was cut off.
            Err(error) if error.kind != Kind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        if self.has_role(name, role).await? {
            return Ok(());
        }
        let added = iam.add_role(name, role).await;
        if added.is_err() {
            // One that stays is collected.
            let _ = iam.delete_instance_profile(name).await;
        }
        added
    }

    /// Removes all profiles that were made for a node class.
    pub(super) async fn remove_profiles(&self, uid: &str) -> Result<(), Error> {
        if self.setup.settings.isolated_vpc || uid.is_empty() {
            return Ok(());
        }
        let path = format!("{}{uid}/", self.cluster_path());
        for profile in self.setup.iam.list_instance_profiles(&path).await? {
            self.remove_profile(&profile).await?;
        }
        Ok(())
    }

    async fn remove_profile(&self, profile: &InstanceProfile) -> Result<(), Error> {
        let iam = &self.setup.iam;
        let gone = |result: Result<(), Error>| match result {
            Err(error) if error.kind != Kind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        };
        if let Some(role) = &profile.role {
            gone(iam.remove_role(&profile.name, role).await)?;
        }
        gone(iam.delete_instance_profile(&profile.name).await)
    }

    /// Removes profiles of these node classes that neither they nor NodeClaims have named for an hour. It is to be
    /// called from time to time, with all node classes as the server has them.
    ///
    /// # Errors
    /// The first call that fails.
    pub async fn collect_profiles(&self, classes: &[Value]) -> Result<(), Failure> {
        if self.setup.settings.isolated_vpc {
            return Ok(());
        }
        let failed = |error: Error| Failure::Other(error.to_string());
        // What is there before who needs it: a profile that is made meanwhile is not on the list.
        let profiles = self.setup.iam.list_instance_profiles(&self.cluster_path()).await.map_err(failed)?;
        let claims = self.setup.objects.node_claims().await?;
        let of_claims =
            claims.iter().filter_map(|claim| claim.metadata.annotations.as_ref()?.get(names::INSTANCE_PROFILE));
        let of_classes = classes.iter().filter_map(|class| class.pointer("/status/instanceProfile")?.as_str());
        let needed: BTreeSet<&str> = of_claims.map(String::as_str).chain(of_classes).collect();
        let now = (self.setup.clock)();
        let due: Vec<_> = {
            let mut idle = self.idle_profiles.lock();
            idle.retain(|name, _| !needed.contains(name.as_str()) && profiles.iter().any(|it| it.name == *name));
            let unneeded = profiles.into_iter().filter(|profile| !needed.contains(profile.name.as_str()));
            let is_due = |it: &InstanceProfile| now.since(*idle.entry(it.name.clone()).or_insert(now)) >= KEPT;
            unneeded.filter(is_due).collect()
        };
        for profile in due {
            self.remove_profile(&profile).await.map_err(failed)?;
        }
        Ok(())
    }
}
