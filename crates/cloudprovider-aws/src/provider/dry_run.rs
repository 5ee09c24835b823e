//! Whether a machine of a node class could be launched, without launching one.

use api::labels as kubernetes;
use cloudprovider::Error;
use serde_json::json;

use super::{CreateRequest, Ec2CloudProvider};
use crate::names;
use crate::node_class::NodeClass;
use crate::service::{self, Kind};

/// What is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trial {
    /// To make the launch template.
    Template,
    /// To ask for a fleet.
    Fleet,
    /// To launch a machine from the template.
    Instance,
}

impl Trial {
    /// What it was, for people.
    pub(crate) const fn attempt(self) -> &'static str {
        match self {
            Self::Template => "could not make a launch template",
            Self::Fleet => "could not ask for a fleet, in a dry run",
            Self::Instance => "could not launch an instance, in a dry run",
        }
    }
}

/// Why no machine could be launched.
#[derive(Debug)]
pub(crate) enum DryRun {
    /// AWS said no.
    Refused {
        /// To what.
        trial: Trial,
        /// How.
        error: service::Error,
    },
    /// There is nothing that could be asked for.
    NotMade {
        /// CamelCase.
        reason: String,
        /// For people.
        message: String,
    },
    /// It is worth trying again.
    Later(String),
}

impl Ec2CloudProvider {
    /// Tries a launch from a node class, with the status that it will have.
    pub(crate) async fn dry_run(&self, class: &NodeClass) -> Result<(), DryRun> {
        let ready = self.understood(class.clone()).await.map_err(not_made)?;
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "dry-run", "labels": {(kubernetes::NODEPOOL): "dry-run"}},
            "spec": {
                "requirements": [
                    {
                        "key": kubernetes::CAPACITY_TYPE,
                        "operator": "In",
                        "values": [kubernetes::CAPACITY_TYPE_ON_DEMAND],
                    },
                ],
                "nodeClassRef": {"group": names::GROUP, "kind": names::NODE_CLASS_KIND, "name": class.name},
            },
        });
        let claim: api::NodeClaim = serde_json::from_value(claim).map_err(|error| DryRun::Later(error.to_string()))?;
        let request = CreateRequest { claim: &claim, token: &"dry-run".into(), instance_types: None };
        let launch = self.resolve(request, &ready).await.map_err(not_made)?;
        let refused = |trial| move |error| DryRun::Refused { trial, error };
        let made = self.inner.templates.ensure(&launch.templates, self.now()).await;
        made.map_err(refused(Trial::Template))?;
        or_would_succeed(self.inner.ec2.dry_run_fleet(&launch.request).await).map_err(refused(Trial::Fleet))?;
        let mut last = Ok(());
        for config in &launch.request.configs {
            for machine in &config.overrides {
                let Some(subnet) = &machine.subnet_id else { continue };
                let name = &config.launch_template;
                last = or_would_succeed(self.inner.ec2.dry_run_instance(name, &machine.instance_type, subnet).await);
                // One is enough: the next may be of a type that this account may not launch.
                if last.is_ok() || last.as_ref().is_err_and(|error| error.kind != Kind::NoCapacity) {
                    return last.map_err(refused(Trial::Instance));
                }
            }
        }
        last.map_err(refused(Trial::Instance))
    }

    /// Removes the launch templates of a node class.
    pub(crate) async fn remove_templates(&self, class: &str) -> Result<(), service::Error> {
        self.inner.telemetry.metrics.forget_class(class);
        self.inner.templates.remove_of_class(class).await
    }
}

fn or_would_succeed(answer: Result<(), service::Error>) -> Result<(), service::Error> {
    match answer {
        Err(error) if error.kind != Kind::WouldSucceed => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn not_made(error: Error) -> DryRun {
    match error {
        Error::CreateFailed { reason, message } => DryRun::NotMade { reason, message },
        Error::NodeClassNotReady(message) => DryRun::NotMade { reason: "InvalidNodeClass".to_owned(), message },
        Error::InsufficientCapacity { message, .. } => {
            DryRun::NotMade { reason: "NoCompatibleInstanceTypes".to_owned(), message }
        }
        error => DryRun::Later(error.to_string()),
    }
}
