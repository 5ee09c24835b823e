//! Identity and Access Management.

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_iam::Client;
use aws_sdk_iam::types;
use cloudprovider_aws::node_class::spec::Tags;
use cloudprovider_aws::service::{Error, Iam, InstanceProfile, Kind};

use crate::fault::{fault, incomplete, unusable};
use crate::pages;

/// IAM by the SDK.
#[derive(Debug)]
pub(crate) struct IamClient(Client);

impl IamClient {
    pub(crate) fn new(config: &SdkConfig) -> Self {
        Self(Client::new(config))
    }
}

fn profile(profile: &types::InstanceProfile) -> InstanceProfile {
    let tags = profile.tags().iter().map(|tag| (tag.key().to_owned(), tag.value().to_owned()));
    InstanceProfile {
        name: profile.instance_profile_name().to_owned(),
        path: profile.path().to_owned(),
        role: profile.roles().first().map(|role| role.role_name().to_owned()),
        tags: tags.collect(),
    }
}

fn to_tags(call: &'static str, tags: &Tags) -> Result<Vec<types::Tag>, Error> {
    let tag = |(key, value): (&String, &String)| types::Tag::builder().key(key).value(value).build();
    tags.iter().map(tag).collect::<Result<_, _>>().map_err(|error| unusable(call, error.to_string()))
}

#[async_trait]
impl Iam for IamClient {
    async fn get_instance_profile(&self, name: &str) -> Result<InstanceProfile, Error> {
        const CALL: &str = "iam:GetInstanceProfile";
        let answer = self.0.get_instance_profile().instance_profile_name(name).send().await;
        let answer = answer.map_err(|error| fault(CALL, &error))?;
        answer.instance_profile().map(profile).ok_or_else(|| incomplete(CALL, "instance profile"))
    }

    async fn list_instance_profiles(&self, path: &str) -> Result<Vec<InstanceProfile>, Error> {
        let call = self.0.list_instance_profiles().path_prefix(path).into_paginator();
        let pages = pages::all("iam:ListInstanceProfiles", call.send()).await?;
        let found = pages.iter().flat_map(|page| page.instance_profiles()).map(profile);
        // Who lists profiles removes some, so those of others are kept out whatever the service does with the path.
        Ok(found.filter(|profile| profile.path.starts_with(path)).collect())
    }

    async fn create_instance_profile(&self, name: &str, path: &str, tags: &Tags) -> Result<(), Error> {
        const CALL: &str = "iam:CreateInstanceProfile";
        let call = self.0.create_instance_profile().instance_profile_name(name).path(path);
        let answer = call.set_tags(Some(to_tags(CALL, tags)?)).send().await;
        answer.map(drop).map_err(|error| fault(CALL, &error))
    }

    async fn tag_instance_profile(&self, name: &str, tags: &Tags) -> Result<(), Error> {
        const CALL: &str = "iam:TagInstanceProfile";
        let call = self.0.tag_instance_profile().instance_profile_name(name);
        let answer = call.set_tags(Some(to_tags(CALL, tags)?)).send().await;
        answer.map(drop).map_err(|error| fault(CALL, &error))
    }

    async fn add_role(&self, profile: &str, role: &str) -> Result<(), Error> {
        let call = self.0.add_role_to_instance_profile().instance_profile_name(profile).role_name(role);
        call.send().await.map(drop).map_err(|error| fault("iam:AddRoleToInstanceProfile", &error))
    }

    async fn remove_role(&self, profile: &str, role: &str) -> Result<(), Error> {
        let call = self.0.remove_role_from_instance_profile().instance_profile_name(profile).role_name(role);
        call.send().await.map(drop).map_err(|error| fault("iam:RemoveRoleFromInstanceProfile", &error))
    }

    async fn delete_instance_profile(&self, name: &str) -> Result<(), Error> {
        let call = self.0.delete_instance_profile().instance_profile_name(name);
        call.send().await.map(drop).map_err(|error| fault("iam:DeleteInstanceProfile", &error))
    }

    async fn role_exists(&self, name: &str) -> Result<bool, Error> {
        match self.0.get_role().role_name(name).send().await {
            Ok(_) => Ok(true),
            Err(error) => match fault("iam:GetRole", &error) {
                error if error.kind == Kind::NotFound => Ok(false),
                error => Err(error),
            },
        }
    }
}
