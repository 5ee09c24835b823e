//! What selectors find.

use std::collections::BTreeMap;

use model::Timestamp;

use crate::discovery::findings::MinorVersion;
use crate::discovery::{
    FoundImage, ImageOwners, alias_parameters, capacity_reservations, image_queries, placement_group, security_groups,
    select_images, subnets,
};
use crate::node_class::decode::{
    CapacityReservationTerm, ImageSelection, ImageTerm, PlacementGroupTerm, SecurityGroupTerm, SubnetTerm,
};
use crate::node_class::status::Ami;
use crate::service::ec2::{CapacityReservation, Filter, PlacementGroup, Query, SecurityGroup, Subnet};
use crate::service::{Ec2, Error, Kind, Ssm};

/// What was found of everything, or why not.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) images: Result<Vec<Ami>, Error>,
    pub(super) reservations: Result<Vec<CapacityReservation>, Error>,
    pub(super) placement_group: Result<Option<PlacementGroup>, Error>,
    pub(super) subnets: Result<Vec<Subnet>, Error>,
    pub(super) security_groups: Result<Vec<SecurityGroup>, Error>,
    pub(super) profile: Result<String, super::profile::NoProfile>,
}

/// Who is asked.
pub(super) struct Look<'a> {
    pub(super) ec2: &'a dyn Ec2,
    pub(super) ssm: &'a dyn Ssm,
    pub(super) kubernetes: MinorVersion,
    pub(super) now: Timestamp,
}

/// What does not exist is not found, and that is an answer.
fn or_none<T>(found: Result<Vec<T>, Error>) -> Result<Vec<T>, Error> {
    match found {
        Err(error) if error.kind == Kind::NotFound => Ok(Vec::new()),
        found => found,
    }
}

impl Look<'_> {
    pub(super) async fn subnets(&self, terms: &[SubnetTerm]) -> Result<Vec<Subnet>, Error> {
        let mut found = Vec::new();
        for query in subnets(terms) {
            found.extend(or_none(self.ec2.describe_subnets(&query).await)?);
        }
        Ok(found)
    }

    pub(super) async fn security_groups(&self, terms: &[SecurityGroupTerm]) -> Result<Vec<SecurityGroup>, Error> {
        let mut found = Vec::new();
        for query in security_groups(terms) {
            found.extend(or_none(self.ec2.describe_security_groups(&query).await)?);
        }
        Ok(found)
    }

    pub(super) async fn reservations(
        &self,
        terms: &[CapacityReservationTerm],
    ) -> Result<Vec<CapacityReservation>, Error> {
        let mut found = Vec::new();
        for query in capacity_reservations(terms) {
            // One id that does not exist must not hide the others.
            let each: Vec<_> = match &query.ids[..] {
                [] => vec![query],
                ids => ids.iter().map(|id| Query { ids: vec![id.clone()], filters: query.filters.clone() }).collect(),
            };
            for query in each {
                found.extend(or_none(self.ec2.describe_capacity_reservations(&query).await)?);
            }
        }
        Ok(found)
    }

    pub(super) async fn placement_group(
        &self,
        term: Option<&PlacementGroupTerm>,
    ) -> Result<Option<PlacementGroup>, Error> {
        let Some(term) = term else { return Ok(None) };
        Ok(or_none(self.ec2.describe_placement_groups(&placement_group(term)).await)?.into_iter().next())
    }

    pub(super) async fn images(&self, selection: &ImageSelection) -> Result<Vec<Ami>, Error> {
        let found = match selection {
            ImageSelection::Alias(alias) => {
                let MinorVersion(minor) = self.kubernetes;
                let mut for_types = BTreeMap::new();
                for parameter in alias_parameters(alias, &format!("1.{minor}")) {
                    if let Some(id) = self.parameter(&parameter.name).await? {
                        for_types.entry(id).or_insert_with(Vec::new).extend(parameter.variants);
                    }
                }
                self.images_for(for_types).await?
            }
            ImageSelection::Terms(terms) => self.images_of(terms).await?,
        };
        Ok(select_images(found, self.now))
    }

    /// The value of a parameter, if it is there and the id of an image.
    async fn parameter(&self, name: &str) -> Result<Option<String>, Error> {
        match self.ssm.get_parameter(name).await {
            Ok(value) => Ok(Some(value).filter(|value| value.starts_with("ami-"))),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Images of which it is known what types they are for, each as often as there are kinds of those.
    async fn images_for(
        &self,
        for_types: BTreeMap<String, Vec<Vec<api::NodeSelectorRequirement>>>,
    ) -> Result<Vec<FoundImage>, Error> {
        if for_types.is_empty() {
            return Ok(Vec::new());
        }
        let by_id = Filter { name: "image-id".to_owned(), values: for_types.keys().cloned().collect() };
        let query = Query { ids: Vec::new(), filters: vec![by_id, Filter::new("state", "available")] };
        let images = or_none(self.ec2.describe_images(&query, &[]).await)?;
        let with_types = images.into_iter().flat_map(|image| {
            let kinds = for_types.get(&image.id).cloned().unwrap_or_default();
            kinds.into_iter().map(move |requirements| FoundImage { image: image.clone(), requirements })
        });
        Ok(with_types.collect())
    }

    async fn images_of(&self, terms: &[ImageTerm]) -> Result<Vec<FoundImage>, Error> {
        let mut by_parameter = BTreeMap::new();
        for term in terms {
            if let ImageTerm::Parameter(name) = term
                && let Some(id) = self.parameter(name).await?
            {
                by_parameter.insert(name.clone(), id);
            }
        }
        let mut found = Vec::new();
        for (query, owners) in image_queries(terms, &by_parameter) {
            let owners = match owners {
                ImageOwners::Any => Vec::new(),
                ImageOwners::These(owners) => owners,
            };
            let images = or_none(self.ec2.describe_images(&query, &owners).await)?;
            found.extend(images.into_iter().map(|image| FoundImage { image, requirements: Vec::new() }));
        }
        Ok(found)
    }
}
