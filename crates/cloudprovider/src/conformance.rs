//! The conformance kit: what every provider must do, as checks that its tests run.
//!
//! [`run`] drives a provider through its catalogue and through launches, and reports each check by name. The kit knows
//! nothing of the cloud behind the provider; the few things that only a test of that cloud can do are [`Hooks`].
//! Checks clean up after themselves; what stays behind fails a check of its own.
//!
//! The kit can fail: its own tests run it against [`crate::fake::FakeCloudProvider`] with one [`crate::fake::Defect`]
//! at a time, and expect exactly the check that names it.

mod catalogue;
mod declarations;
mod lifecycle;

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use api::{NodeClaim, NodePool, NodeSelectorRequirementWithMinValues};
use async_trait::async_trait;
use model::Uid;

use crate::{CloudProvider, CreateRequest, Error, Instance, InstanceTypes, LabelRequirements, OfferingKey, launch};

/// How often a check looks again for something that may take a while.
const MAX_POLLS: u32 = 200;

/// What the kit cannot do itself.
#[async_trait]
pub trait Hooks: Send + Sync {
    /// The NodePool whose instance types are checked and launched from.
    fn node_pool(&self) -> NodePool;

    /// A NodeClaim of that NodePool with a UID of its own, as the autoscaler would write it.
    async fn new_claim(&self, name: &str, requirements: Vec<NodeSelectorRequirementWithMinValues>) -> NodeClaim;

    /// Brings a claim whose machine was launched as far as a provider may need for a reboot, with what the autoscaler
    /// writes into it then. The kit has written the provider's labels and id.
    async fn register(&self, _claim: &mut NodeClaim) {}

    /// Lets a moment pass. The kit calls this between looks, at most a few hundred times in a row.
    async fn pause(&self);

    /// Lets the cloud run out of machines of that offering, or have some again. `false`: cannot be done here, and the
    /// checks that need it are skipped.
    async fn set_has_capacity(&self, offering: &OfferingKey, has_capacity: bool) -> bool;
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As it should be.
    Passed,
    /// Not as it should be: how.
    Failed(String),
    /// Could not be tried: why.
    Skipped(String),
}

/// A check and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What is claimed about the provider.
    pub name: &'static str,
    /// Whether it is so.
    pub outcome: Outcome,
}

/// All checks of a run, in the order they ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The checks.
    pub checks: Vec<Check>,
}

impl Report {
    /// Names of the checks that failed.
    pub fn failed(&self) -> Vec<&'static str> {
        self.checks.iter().filter(|check| matches!(check.outcome, Outcome::Failed(_))).map(|check| check.name).collect()
    }

    /// Names of the checks that could not be tried.
    pub fn skipped(&self) -> Vec<&'static str> {
        self.checks
            .iter()
            .filter(|check| matches!(check.outcome, Outcome::Skipped(_)))
            .map(|check| check.name)
            .collect()
    }

    fn add(&mut self, name: &'static str, result: Result<(), Finding>) {
        let outcome = match result {
            Ok(()) => Outcome::Passed,
            Err(Finding::Wrong(message)) => Outcome::Failed(message),
            Err(Finding::NotPossible(message)) => Outcome::Skipped(message),
        };
        self.checks.push(Check { name, outcome });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Check { name, outcome } in &self.checks {
            match outcome {
                Outcome::Passed => writeln!(f, "ok      {name}")?,
                Outcome::Failed(message) => writeln!(f, "FAILED  {name}: {message}")?,
                Outcome::Skipped(message) => writeln!(f, "skipped {name}: {message}")?,
            }
        }
        Ok(())
    }
}

/// Why a check did not pass.
enum Finding {
    Wrong(String),
    NotPossible(String),
}

impl From<String> for Finding {
    fn from(message: String) -> Self {
        Self::Wrong(message)
    }
}

impl From<Error> for Finding {
    fn from(error: Error) -> Self {
        Self::Wrong(format!("unexpected error: {error}"))
    }
}

/// Ends a check unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(crate::conformance::Finding::Wrong(format!($($message)+)));
        }
    };
}
use ensure;

/// Runs every check.
pub async fn run(provider: &dyn CloudProvider, hooks: &dyn Hooks) -> Report {
    let kit = Kit { provider, hooks, claims: AtomicU32::new(0), tokens: Mutex::new(Vec::new()) };
    let mut report = Report::default();
    report.add("it_says_what_it_is", declarations::it_says_what_it_is(&kit));
    report.add("its_repair_policies_are_valid", declarations::its_repair_policies_are_valid(&kit));
    report.add("an_absent_node_class_is_not_ready", declarations::an_absent_node_class_is_not_ready(&kit).await);

    let types = match provider.instance_types(&hooks.node_pool()).await {
        Ok(types) => types,
        Err(error) => {
            report.add("instance_types_are_told", Err(error.into()));
            return report;
        }
    };
    report.add("instance_types_are_told", catalogue::instance_types_are_told(&types));
    report.add("instance_type_names_are_unique_and_ordered", catalogue::names_are_unique_and_ordered(&types));
    report.add("instance_types_carry_the_labels_of_kubernetes", catalogue::types_carry_labels(&types));
    report.add("capacity_leaves_room_for_pods", catalogue::capacity_leaves_room_for_pods(&types));
    report.add("offerings_are_unique", catalogue::offerings_are_unique(&types));
    report.add("offerings_agree_with_their_type", catalogue::offerings_agree_with_their_type(&types));
    report.add("prices_are_not_negative", catalogue::prices_are_not_negative(&types));
    report.add("reserved_offerings_name_their_reservation", catalogue::reservations_are_named(&kit, &types));
    report.add("labels_of_instance_types_are_well_known", catalogue::labels_are_well_known(&kit, &types));
    report.add("the_generation_changes_with_the_instance_types", catalogue::generation_is_steady(&kit, &types).await);

    macro_rules! launches {
        ($($name:literal => $check:ident,)+) => {$(
            let result = lifecycle::$check(&kit, &types).await;
            report.add($name, result);
            kit.clean_up().await;
        )+};
    }
    launches! {
        "create_meets_requirements_and_requests" => create_meets_what_is_asked,
        "corrected_prices_decide_what_is_launched" => corrected_prices_decide,
        "create_with_the_same_token_gives_the_same_instance" => create_again_gives_the_same,
        "create_twice_at_once_launches_one_instance" => create_at_once_launches_one,
        "create_after_a_lost_answer_launches_one_instance" => create_after_a_lost_answer,
        "every_claim_gets_its_own_instance" => every_claim_gets_its_own,
        "get_list_and_find_agree_with_create" => get_list_and_find_agree,
        "delete_can_be_repeated_and_ends_in_not_found" => delete_ends_in_not_found,
        "what_does_not_exist_is_not_found" => what_does_not_exist_is_not_found,
        "what_no_offering_can_meet_is_insufficient_capacity" => nothing_compatible,
        "an_offering_without_machines_is_named" => an_empty_offering_is_named,
        "an_offering_without_machines_is_passed_over" => an_empty_offering_is_passed_over,
        "a_fresh_instance_has_not_drifted" => a_fresh_instance_has_not_drifted,
        "reboot_is_accepted_again_or_not_implemented" => reboot_is_idempotent,
    }
    report.add("nothing_is_left_behind", kit.nothing_is_left().await);
    report
}

/// What the checks share.
struct Kit<'a> {
    provider: &'a dyn CloudProvider,
    hooks: &'a dyn Hooks,
    claims: AtomicU32,
    /// Of every claim that was made.
    tokens: Mutex<Vec<Uid>>,
}

/// A NodeClaim and the token of its launch.
struct Claim {
    claim: NodeClaim,
    token: Uid,
}

impl Claim {
    fn request(&self) -> CreateRequest<'_> {
        CreateRequest { claim: &self.claim, token: &self.token, instance_types: None }
    }
}

impl Kit<'_> {
    async fn new_claim(&self, requirements: Vec<NodeSelectorRequirementWithMinValues>) -> Result<Claim, Finding> {
        let number = self.claims.fetch_add(1, Ordering::Relaxed);
        let claim = self.hooks.new_claim(&format!("conformance-{number}"), requirements).await;
        let uid = claim.metadata.uid.as_deref().ok_or("the hooks made a NodeClaim without a UID".to_owned())?;
        let token = Uid::from(uid);
        self.tokens().push(token.clone());
        Ok(Claim { claim, token })
    }

    fn tokens(&self) -> std::sync::MutexGuard<'_, Vec<Uid>> {
        self.tokens.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn instances_of(&self, token: &Uid) -> Result<Vec<Instance>, Error> {
        let mut instances = self.provider.list().await?;
        instances.retain(|instance| instance.token.as_ref() == Some(token));
        Ok(instances)
    }

    /// Waits until the list shows the token's instance. Fails if it ever shows more than one.
    async fn listed(&self, token: &Uid) -> Result<Instance, Finding> {
        for _ in 0..MAX_POLLS {
            let mut instances = self.instances_of(token).await?;
            ensure!(instances.len() <= 1, "{} instances for one token", instances.len());
            if let Some(instance) = instances.pop() {
                return Ok(instance);
            }
            self.hooks.pause().await;
        }
        Err(format!("the list never showed the instance with token {token}").into())
    }

    /// Deletes until it is gone, tolerating nothing but acceptance and "not found".
    async fn delete_until_gone(&self, instance: &Instance) -> Result<(), Finding> {
        for _ in 0..MAX_POLLS {
            if Error::ignore_not_found(self.provider.delete(&instance.provider_id).await)?.is_none() {
                return Ok(());
            }
            self.hooks.pause().await;
        }
        Err(format!("delete of {} never ended in not found", instance.provider_id).into())
    }

    /// Removes what the checks so far have launched, as well as it can.
    async fn clean_up(&self) {
        let Ok(instances) = self.provider.list().await else { return };
        let tokens = self.tokens().clone();
        for instance in instances {
            if instance.token.as_ref().is_some_and(|token| tokens.contains(token)) {
                // What cannot be removed is found by `nothing_is_left`.
                let _ = self.delete_until_gone(&instance).await;
            }
        }
    }

    async fn nothing_is_left(&self) -> Result<(), Finding> {
        let tokens = self.tokens().clone();
        let mut left = Vec::new();
        for _ in 0..MAX_POLLS {
            left = self.provider.list().await?;
            left.retain(|instance| instance.token.as_ref().is_some_and(|token| tokens.contains(token)));
            if left.is_empty() {
                return Ok(());
            }
            self.clean_up().await;
            self.hooks.pause().await;
        }
        let ids: Vec<_> = left.iter().map(|instance| instance.provider_id.as_str()).collect();
        Err(format!("instances that could not be removed: {}", ids.join(", ")).into())
    }

    /// The cheapest launchable offering of the catalogue.
    fn cheapest(&self, types: &InstanceTypes) -> Result<OfferingKey, Finding> {
        let requirements = LabelRequirements::default();
        launch::launch_options(&types.types, &requirements, &Default::default(), |_| false)
            .first()
            .map(launch::LaunchOption::key)
            .ok_or_else(|| Finding::NotPossible("nothing in the catalogue can be launched".to_owned()))
    }
}

#[cfg(test)]
mod tests;
