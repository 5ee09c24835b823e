//! The calls of the services beside EC2.

use async_trait::async_trait;
use cloudprovider::CapacityType;

use super::{Cloud, error};
use crate::catalogue;
use crate::node_class::spec::Tags;
use crate::service::{
    ClusterDescription, Eks, Error, Iam, InstanceProfile, Message, OnDemandPrice, PriceList, Pricing, Sqs, Ssm, Sts,
    ZonalShift, ZonalShifts,
};

fn no_such_entity(call: &'static str, kind: &str, name: &str) -> Error {
    error(call, "NoSuchEntity", format!("{kind} {name} cannot be found."))
}

#[async_trait]
impl Ssm for Cloud {
    async fn get_parameter(&self, name: &str) -> Result<String, Error> {
        const CALL: &str = "ssm:GetParameter";
        self.call(CALL, 0, |state, _| {
            state.parameters.get(name).cloned().ok_or_else(|| error(CALL, "ParameterNotFound", name))
        })
        .await
    }
}

#[async_trait]
impl Iam for Cloud {
    async fn get_instance_profile(&self, name: &str) -> Result<InstanceProfile, Error> {
        const CALL: &str = "iam:GetInstanceProfile";
        self.call(CALL, 0, |state, _| {
            state.profiles.get(name).cloned().ok_or_else(|| no_such_entity(CALL, "Instance Profile", name))
        })
        .await
    }

    async fn list_instance_profiles(&self, path: &str) -> Result<Vec<InstanceProfile>, Error> {
        self.call("iam:ListInstanceProfiles", 0, |state, _| {
            let below = state.profiles.values().filter(|profile| profile.path.starts_with(path));
            // A list tells no tags.
            Ok(below.map(|profile| InstanceProfile { tags: Tags::new(), ..profile.clone() }).collect())
        })
        .await
    }

    async fn create_instance_profile(&self, name: &str, path: &str, tags: &Tags) -> Result<(), Error> {
        const CALL: &str = "iam:CreateInstanceProfile";
        self.call(CALL, 0, |state, _| {
            if state.profiles.contains_key(name) {
                return Err(error(CALL, "EntityAlreadyExists", format!("Instance Profile {name} already exists.")));
            }
            let profile =
                InstanceProfile { name: name.to_owned(), path: path.to_owned(), role: None, tags: tags.clone() };
            state.profiles.insert(name.to_owned(), profile);
            Ok(())
        })
        .await
    }

    async fn tag_instance_profile(&self, name: &str, tags: &Tags) -> Result<(), Error> {
        const CALL: &str = "iam:TagInstanceProfile";
        self.call(CALL, 0, |state, _| {
            let profile = state.profiles.get_mut(name);
            let profile = profile.ok_or_else(|| no_such_entity(CALL, "Instance Profile", name))?;
            profile.tags.extend(tags.clone());
            Ok(())
        })
        .await
    }

    async fn add_role(&self, profile: &str, role: &str) -> Result<(), Error> {
        const CALL: &str = "iam:AddRoleToInstanceProfile";
        self.call(CALL, 0, |state, _| {
            if !state.roles.contains(role) {
                return Err(no_such_entity(CALL, "The role with name", role));
            }
            let found = state.profiles.get_mut(profile);
            let found = found.ok_or_else(|| no_such_entity(CALL, "Instance Profile", profile))?;
            if found.role.is_some() {
                return Err(error(
                    CALL,
                    "LimitExceeded",
                    "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1",
                ));
            }
            found.role = Some(role.to_owned());
            Ok(())
        })
        .await
    }

    async fn remove_role(&self, profile: &str, role: &str) -> Result<(), Error> {
        const CALL: &str = "iam:RemoveRoleFromInstanceProfile";
        self.call(CALL, 0, |state, _| {
            let found = state.profiles.get_mut(profile);
            let found = found.ok_or_else(|| no_such_entity(CALL, "Instance Profile", profile))?;
            if found.role.as_deref() != Some(role) {
                return Err(no_such_entity(CALL, "The role with name", role));
            }
            found.role = None;
            Ok(())
        })
        .await
    }

    async fn delete_instance_profile(&self, name: &str) -> Result<(), Error> {
        const CALL: &str = "iam:DeleteInstanceProfile";
        self.call(CALL, 0, |state, _| {
            let profile = state.profiles.get(name).ok_or_else(|| no_such_entity(CALL, "Instance Profile", name))?;
            if profile.role.is_some() {
                return Err(error(CALL, "DeleteConflict", "Cannot delete entity, must remove roles first."));
            }
            state.profiles.remove(name);
            Ok(())
        })
        .await
    }

    async fn role_exists(&self, name: &str) -> Result<bool, Error> {
        self.call("iam:GetRole", 0, |state, _| Ok(state.roles.contains(name))).await
    }
}

#[async_trait]
impl Sqs for Cloud {
    /// Does not wait where there is none, and hides nothing.
    async fn receive(&self) -> Result<Vec<Message>, Error> {
        self.call("sqs:ReceiveMessage", 0, |state, _| Ok(state.messages.iter().take(10).cloned().collect())).await
    }

    async fn delete(&self, receipt: &str) -> Result<(), Error> {
        self.call("sqs:DeleteMessage", 0, |state, _| {
            state.messages.retain(|message| message.receipt != receipt);
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl Eks for Cloud {
    async fn describe_cluster(&self, name: &str) -> Result<ClusterDescription, Error> {
        const CALL: &str = "eks:DescribeCluster";
        self.call(CALL, 0, |state, _| {
            let missing = || error(CALL, "ResourceNotFoundException", format!("No cluster found for name: {name}."));
            state.clusters.get(name).cloned().ok_or_else(missing)
        })
        .await
    }
}

#[async_trait]
impl Pricing for Cloud {
    async fn get_products(&self, _: &str, list: PriceList) -> Result<Vec<OnDemandPrice>, Error> {
        self.call("pricing:GetProducts", 0, |state, _| {
            let is_listed = |name: &str| {
                let is_metal = catalogue::instance_types().get(name).is_some_and(|info| info.bare_metal);
                is_metal == (list == PriceList::BareMetal)
            };
            let price = |name: &String| {
                let price = state.prices.price(name, "", CapacityType::OnDemand)?;
                Some(OnDemandPrice { instance_type: name.clone(), price })
            };
            Ok(state.prices.on_demand().keys().filter(|name| is_listed(name)).filter_map(price).collect())
        })
        .await
    }
}

#[async_trait]
impl Sts for Cloud {
    async fn account_id(&self) -> Result<String, Error> {
        self.call("sts:GetCallerIdentity", 0, |state, _| Ok(state.account.clone())).await
    }
}

#[async_trait]
impl ZonalShifts for Cloud {
    async fn get_managed_resource(&self, arn: &str) -> Result<Vec<ZonalShift>, Error> {
        const CALL: &str = "arc-zonal-shift:GetManagedResource";
        self.call(CALL, 0, |state, _| {
            let shifts = state.zonal_shifts.clone();
            shifts.ok_or_else(|| {
                error(CALL, "AccessDeniedException", format!("Resource {arn} is not a managed resource"))
            })
        })
        .await
    }
}
