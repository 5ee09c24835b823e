//! Whether machines can be launched from a node class, as far as that is known before.
//!
//! `pkg/controllers/nodeclass/validation.go` of karpenter-provider-aws 1.15, in its order; the first thing that is
//! wrong ends it. At last EC2 is asked: a launch template is made, and launches are tried with `DryRun`.

use std::collections::BTreeMap;

use model::{DurationMs, Timestamp};
use serde_json::Value;

use super::status::verdict;
use super::{NodeClassReconciler, is_temporary};
use crate::discovery::findings::{AMIS_READY, INSTANCE_PROFILE_READY, SECURITY_GROUPS_READY, SUBNETS_READY, kubelet};
use crate::instance_types::drivers::DriverSettings;
use crate::launch::digest;
use crate::node_class::conditions::Verdict;
use crate::node_class::status::EC2NodeClassStatus;
use crate::node_class::tags::{RESTRICTED, RESTRICTED_PREFIX};
use crate::node_class::{AmiFamily, NodeClass};
use crate::provider::{DryRun, Trial};

/// How long a verdict counts that was found by dry runs.
const FRESH: DurationMs = DurationMs::from_seconds(30 * 60);
/// How soon something is tried again that does not depend on the node class alone.
const LATER: DurationMs = DurationMs::from_seconds(600);
/// How soon a call is tried again that may work out.
const SOON: DurationMs = DurationMs::from_seconds(10);
/// Without these there is nothing to try.
const DEPENDS_ON: [&str; 4] = [AMIS_READY, INSTANCE_PROFILE_READY, SECURITY_GROUPS_READY, SUBNETS_READY];

/// Verdicts that were found by dry runs, by node class.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    known: BTreeMap<String, (String, Timestamp, Verdict)>,
}

impl Verdicts {
    /// Forgets a node class.
    pub(super) fn forget(&mut self, class: &str) {
        self.known.remove(class);
    }

    fn get(&self, class: &str, of: &str, now: Timestamp) -> Option<Verdict> {
        let (other, at, verdict) = self.known.get(class)?;
        (other == of && now.since(*at) < FRESH).then(|| verdict.clone())
    }
}

/// What was found.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) verdict: Verdict,
    pub(super) again_in: DurationMs,
    pub(super) error: Option<String>,
}

impl Checked {
    const fn now(verdict: Verdict) -> Self {
        Self { verdict, again_in: LATER, error: None }
    }

    /// Nothing was found out, for a reason that may pass.
    fn soon(message: String) -> Self {
        Self { verdict: Verdict::AsBefore { message: message.clone() }, again_in: SOON, error: Some(message) }
    }
}

fn fails(reason: &str, message: impl Into<String>) -> Verdict {
    Verdict::Fails { reason: reason.to_owned(), message: message.into() }
}

impl NodeClassReconciler {
    /// Whether a node class whose selectors have found this can be launched from.
    pub(super) async fn validate(
        &self,
        object: &Value,
        class: &NodeClass,
        status: &EC2NodeClassStatus,
        found: &[(&'static str, Verdict)],
    ) -> Checked {
        if let Some(verdict) = self.wrong(class, found) {
            return Checked::now(verdict);
        }
        match self.setup.provider.failed_expression(class).await {
            Ok(None) => {}
            Ok(Some(message)) => return Checked::now(fails("KubeletExpressionEvaluationFailed", message)),
            Err(error) => return Checked::soon(error.to_string()),
        }
        if let Some(verdict) = restricted_tag(class) {
            return Checked::now(verdict);
        }
        if self.setup.settings.disable_dry_run {
            return Checked::now(Verdict::Holds);
        }
        let now = (self.setup.clock)();
        let of =
            digest(&(object.pointer("/spec"), status_lists(status), self.setup.settings.cluster.endpoint.as_str()));
        if let Some(verdict) = self.verdicts.lock().get(&class.name, &of, now) {
            return Checked::now(verdict);
        }
        let class = NodeClass { status: status.clone(), ..class.clone() };
        let verdict = match self.setup.provider.dry_run(&class).await {
            Ok(()) => Verdict::Holds,
            Err(DryRun::Refused { trial, error }) if is_temporary(&error) => {
                return Checked::soon(format!("{}: {error}", trial.attempt()));
            }
            Err(DryRun::Refused { trial, error }) => {
                fails(reason(trial, &error), format!("{}: {error}", trial.attempt()))
            }
            Err(DryRun::NotMade { reason, message }) => fails(&reason, message),
            Err(DryRun::Later(message)) => return Checked::soon(message),
        };
        self.verdicts.lock().known.insert(class.name.clone(), (of, now, verdict.clone()));
        Checked::now(verdict)
    }

    /// What is wrong without looking at anything else, up to what a launch depends on.
    fn wrong(&self, class: &NodeClass, found: &[(&'static str, Verdict)]) -> Option<Verdict> {
        let spec = &class.spec;
        if spec.ami_family == AmiFamily::Al2023 && self.setup.settings.cluster.service_cidr.is_none() {
            let message = "the range of service addresses of the cluster is not known, and images of AL2023 need it";
            return Some(fails("ClusterCIDRResolutionFailed", message));
        }
        if let Err(problems) = self.setup.provider.kubelet(class) {
            return Some(verdict(&kubelet(&problems)));
        }
        if let Err(message) = DriverSettings::of_annotations(&class.annotations) {
            return Some(fails("InvalidDriverSettings", message));
        }
        let states: Vec<_> = DEPENDS_ON.iter().map(|name| (*name, state(class, found, name))).collect();
        let named = |is: &str| {
            let all = states.iter().filter(|(_, state)| *state == is).map(|(name, _)| format!("{name}={is}"));
            Some(all.collect::<Vec<_>>().join(", ")).filter(|names| !names.is_empty())
        };
        let reason = "DependenciesNotReady".to_owned();
        if let Some(message) = named(api::conditions::FALSE) {
            return Some(Verdict::Fails { reason, message });
        }
        if let Some(message) = named(api::conditions::UNKNOWN) {
            return Some(Verdict::Unknown { reason, message });
        }
        None
    }
}

/// What is wrong with the tags that a user gave.
fn restricted_tag(class: &NodeClass) -> Option<Verdict> {
    let is_ours = |key: &&String| RESTRICTED.contains(&key.as_str()) || key.starts_with(RESTRICTED_PREFIX);
    let key = class.spec.tags.keys().find(is_ours)?;
    Some(fails("TagValidationFailed", format!("spec.tags: {key} is a tag that only the controller sets")))
}

/// The status that a condition will have.
fn state<'a>(class: &'a NodeClass, found: &[(&'static str, Verdict)], name: &str) -> &'a str {
    match found.iter().find(|(other, _)| *other == name).map(|(_, verdict)| verdict) {
        Some(Verdict::Holds) => api::conditions::TRUE,
        Some(Verdict::Fails { .. }) => api::conditions::FALSE,
        Some(Verdict::Unknown { .. }) | None => api::conditions::UNKNOWN,
        Some(Verdict::AsBefore { .. }) => api::conditions::find(&class.status.conditions, name)
            .map_or(api::conditions::UNKNOWN, |condition| condition.status.as_str()),
    }
}

/// What of a status a launch depends on.
fn status_lists(status: &EC2NodeClassStatus) -> impl serde::Serialize {
    (
        status.subnets.clone(),
        status.security_groups.clone(),
        status.amis.clone(),
        status.capacity_reservations.clone(),
        status.instance_profile.clone(),
    )
}

/// Karpenter's reason for a trial that was refused.
fn reason(trial: Trial, error: &crate::service::Error) -> &'static str {
    let names_profile = error.message.contains("iamInstanceProfile") || error.message.contains("Instance Profile");
    match (trial, error.kind) {
        (_, crate::service::Kind::UserDataTooLarge) => "UserDataSizeLimitExceeded",
        (Trial::Instance, _) if names_profile => "InstanceProfileNotFound",
        (Trial::Template, _) => "CreateLaunchTemplateAuthCheckFailed",
        (Trial::Fleet, _) => "CreateFleetAuthCheckFailed",
        (Trial::Instance, _) => "RunInstancesAuthCheckFailed",
    }
}
