//! What a NodeClaim becomes: the request for its machine, and the launch templates that the request names.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::labels as kubernetes;
use api::{NodeClaim, NodeSelectorRequirement, NodeSelectorRequirementWithMinValues, annotations};
use cloudprovider::launch::{LaunchOption, fits, launch_candidates, launch_options};
use cloudprovider::{CapacityType, Error, InstanceType, LabelRequirements, Offering, OfferingKey, ResourceList};
use model::{NodePoolName, Quantity};

use super::fleet::{Candidate, Choice, FleetInput, FleetRequest, MachineKind, choose};
use super::placement_group::PlacementGroup;
use super::template::{AddressFamily, LaunchTemplate, Market, Placement, TemplateInput, TemplateKey, tags};
use crate::declaration::provider_labels;
use crate::node_class::NodeClass;
use crate::node_class::kubelet::Kubelet;
use crate::node_class::spec::Tags;
use crate::node_class::status::Ami;
use crate::user_data::{self, Boot};
use crate::{devices, labels};

/// Tenancies in the order in which they are taken.
const TENANCIES: [&str; 2] = ["default", "dedicated"];

/// What a launch is made from.
#[derive(Clone, Copy)]
pub struct LaunchInput<'a> {
    /// What is launched.
    pub claim: &'a NodeClaim,
    /// Its node class.
    pub class: &'a NodeClass,
    /// The kubelet's settings in it.
    pub kubelet: &'a Kubelet,
    /// The cluster.
    pub cluster: &'a user_data::Cluster,
    /// The NodePool's instance types, NodeOverlays applied if there are any.
    pub types: &'a [Arc<InstanceType>],
    /// Whose prices EC2 chooses by.
    pub choice: Choice,
    /// The placement group.
    pub placement_group: Option<&'a PlacementGroup>,
    /// The subnet to use in each zone.
    pub subnets: &'a BTreeMap<String, String>,
    /// Whether an offering is not to be asked for now.
    pub is_out: &'a dyn Fn(&OfferingKey) -> bool,
}

impl std::fmt::Debug for LaunchInput<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaunchInput").field("class", &self.class.name).finish_non_exhaustive()
    }
}

/// A launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// What is asked of EC2.
    pub request: FleetRequest,
    /// The launch templates that it names, by name.
    pub templates: BTreeMap<String, LaunchTemplate>,
    /// What each of them is for.
    pub keys: BTreeMap<String, TemplateKey>,
    /// What may be launched, what EC2 takes first before others.
    pub offerings: Vec<OfferingKey>,
}

/// The NodePool of a NodeClaim; empty if it has none.
pub fn node_pool(claim: &NodeClaim) -> NodePoolName {
    let labels = claim.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(kubernetes::NODEPOOL)).map_or("", String::as_str).into()
}

/// What a NodeClaim asks of labels and of resources.
///
/// # Errors
/// [`Error::CreateFailed`], naming the field that makes no sense.
pub fn asked(claim: &NodeClaim) -> Result<(LabelRequirements, ResourceList), Error> {
    let invalid = |field: &str, error: &dyn std::fmt::Display| Error::CreateFailed {
        reason: "InvalidNodeClaim".to_owned(),
        message: format!("spec.{field}: {error}"),
    };
    let requirements =
        LabelRequirements::of_claim(claim, &provider_labels(&[])).map_err(|error| invalid("requirements", &error))?;
    let requests = cloudprovider::instance_type::resources_from_api(&claim.spec.resources.requests)
        .map_err(|error| invalid("resources.requests", &error))?;
    Ok((requirements, requests))
}

/// The partition of a placement group that a launch asks for: the first in byte order that is allowed, where a
/// requirement speaks of partitions at all; else EC2 chooses.
pub fn asked_partition(requirements: &LabelRequirements, group: &PlacementGroup) -> Option<i32> {
    const KEY: &str = labels::PLACEMENT_GROUP_PARTITION;
    let is_asked = requirements.keys().any(|key| key == KEY);
    let names = group.partition_names();
    let mut allowed = names.iter().filter(|name| is_asked && requirements.allow_value(KEY, Some(name)));
    allowed.next()?.parse().ok()
}

/// The image for a type: the first of the status whose requirements the type meets.
pub fn image_of<'a>(images: &'a [Ami], instance_type: &InstanceType) -> Option<&'a Ami> {
    images.iter().find(|image| meets(instance_type, &image.requirements))
}

/// Whether every machine of the type that there can be might meet the requirements. A label that the type does not have
/// is absent.
fn meets(instance_type: &InstanceType, requirements: &[NodeSelectorRequirement]) -> bool {
    let all: Vec<_> = requirements
        .iter()
        .map(|it| NodeSelectorRequirementWithMinValues {
            key: it.key.clone(),
            operator: it.operator.clone(),
            values: it.values.clone(),
            min_values: None,
        })
        .collect();
    let Ok(parsed) = LabelRequirements::parse(&all, &provider_labels(&[])) else { return false };
    parsed.keys().all(|key| match instance_type.requirements.get(key) {
        Some(values) if !values.is_empty() => values.iter().any(|value| parsed.allow_value(key, Some(value))),
        Some(_) | None => parsed.allow_value(key, None),
    })
}

/// Makes the launch of a NodeClaim.
///
/// # Errors
/// [`Error::InsufficientCapacity`] if nothing that the claim allows can be launched now, with everything that it allows
/// and has run out; [`Error::CreateFailed`] if the claim or its node class makes no sense.
pub fn resolve(input: &LaunchInput<'_>) -> Result<Launch, Error> {
    let (requirements, requests) = asked(input.claim)?;
    let has_min_values = requirements.min_values().next().is_some();
    let options = launch_options(input.types, &requirements, &requests, input.is_out);
    let kept = launch_candidates(&options, &requirements)
        .map_err(|unmet| Error::CreateFailed { reason: "MinValuesNotMet".to_owned(), message: unmet.to_string() })?;
    let candidates: Vec<_> = kept.iter().filter_map(|option| candidate(input, option, &requests)).collect();
    let chosen = choose(candidates, has_min_values);
    let templates_by_key = templates(input, &chosen, &requirements)?;
    let tags = machine_tags(input);
    let launch_templates: BTreeMap<_, _> =
        templates_by_key.iter().map(|(key, template)| (key.clone(), template.name())).collect();
    let fleet = FleetInput {
        launch_templates: &launch_templates,
        tags: &tags,
        // A text for EC2 that names what may be launched would be wrong where variety was given up.
        context: input.class.spec.context.as_deref(),
        choice: input.choice,
    };
    let Some(request) = FleetRequest::new(&chosen, &fleet) else {
        return Err(nothing_left(input, &requirements, &requests));
    };
    let keys = launch_templates.iter().map(|(key, name)| (name.clone(), key.clone())).collect();
    let offerings = chosen.iter().map(offering_key).collect();
    let templates = templates_by_key.into_values().map(|template| (template.name(), template)).collect();
    Ok(Launch { request, templates, keys, offerings })
}

/// Why nothing can be launched, with what would do and has run out.
fn nothing_left(input: &LaunchInput<'_>, requirements: &LabelRequirements, requests: &ResourceList) -> Error {
    let mut offerings = Vec::new();
    for instance_type in input.types {
        for offering in requirements.allowed_offerings(instance_type) {
            if fits(requests, &offering.allocatable(instance_type)) {
                offerings.push(offering.key(&instance_type.name));
            }
        }
    }
    let message = match offerings.first() {
        None => "no offering of any instance type meets the requirements and holds the requests".to_owned(),
        Some(first) => format!("none of {} offerings can be launched now, such as {first}", offerings.len()),
    };
    Error::InsufficientCapacity { message, offerings }
}

fn offering_key(candidate: &Candidate) -> OfferingKey {
    OfferingKey {
        instance_type: candidate.instance_type.as_str().into(),
        zone: candidate.zone.clone(),
        capacity_type: candidate.key.market.capacity_type(),
        reservation_id: candidate.key.market.reservation().map(str::to_owned),
    }
}

/// None where there is no image for the type, or no subnet in the zone.
fn candidate(input: &LaunchInput<'_>, option: &LaunchOption<'_>, requests: &ResourceList) -> Option<Candidate> {
    let instance_type = option.instance_type;
    let image = image_of(&input.class.status.amis, instance_type)?;
    let subnet = input.subnets.get(&option.offering.zone)?;
    let amount = |resource: &str| {
        let amount = instance_type.capacity.get(resource).copied().unwrap_or(Quantity::ZERO);
        amount.value().ok().and_then(|amount| u32::try_from(amount).ok()).unwrap_or(0)
    };
    let wants_efa = wants_adapters(input.claim, requests);
    let is_exotic = [
        labels::resources::NVIDIA_GPU,
        labels::resources::AMD_GPU,
        labels::resources::HABANA_GAUDI,
        labels::resources::AWS_NEURON,
    ]
    .into_iter()
    .any(|resource| instance_type.capacity.contains_key(resource))
        || instance_type.certain_label(labels::INSTANCE_SIZE).is_some_and(|size| size.starts_with("metal"));
    Some(Candidate {
        instance_type: instance_type.name.to_string(),
        zone: option.offering.zone.clone(),
        subnet_id: Some(subnet.clone()),
        key: TemplateKey {
            image_id: image.id.clone(),
            max_pods: amount(api::resources::PODS),
            efa_count: if wants_efa { amount(labels::resources::EFA) } else { 0 },
            market: market(option.offering),
            reserved: input.kubelet.computed.reserved(&instance_type.overhead),
        },
        price: option.offering.price,
        kind: if is_exotic { MachineKind::Exotic } else { MachineKind::Ordinary },
    })
}

/// Whether pods want Elastic Fabric Adapters: by the resource, or by claims on the driver that publishes them.
fn wants_adapters(claim: &NodeClaim, requests: &ResourceList) -> bool {
    let drivers = claim.metadata.annotations.as_ref().and_then(|it| it.get(annotations::REQUESTED_DRA_DRIVERS));
    let is_claimed = drivers.is_some_and(|drivers| drivers.split(',').any(devices::publishes_adapters));
    is_claimed || requests.get(labels::resources::EFA).is_some_and(|amount| amount.sign() > 0)
}

fn market(offering: &Offering) -> Market {
    let is = |label: &str, value: &str| offering.label(label) == Some(value);
    match (offering.capacity_type, &offering.reservation) {
        (CapacityType::Spot, _) => Market::Spot,
        (CapacityType::Reserved, Some(it)) if is(labels::CAPACITY_RESERVATION_TYPE, "capacity-block") => {
            Market::CapacityBlock(it.id.clone())
        }
        (CapacityType::Reserved, Some(it)) if is(labels::CAPACITY_RESERVATION_INTERRUPTIBLE, kubernetes::TRUE) => {
            Market::InterruptibleReservation(it.id.clone())
        }
        (CapacityType::Reserved, Some(it)) => Market::Reservation(it.id.clone()),
        (CapacityType::OnDemand | CapacityType::Reserved, _) => Market::OnDemand,
    }
}

/// Tags of all that is made for the claim.
fn machine_tags(input: &LaunchInput<'_>) -> Tags {
    tags(&input.class.spec.tags, &input.cluster.name, &node_pool(input.claim), &input.class.name)
}

fn templates(
    input: &LaunchInput<'_>,
    candidates: &[Candidate],
    requirements: &LabelRequirements,
) -> Result<BTreeMap<TemplateKey, LaunchTemplate>, Error> {
    let status = &input.class.status;
    let groups: Vec<_> = status.security_groups.iter().map(|group| group.id.clone()).collect();
    let tenancy = TENANCIES.into_iter().find(|it| requirements.allow_value(labels::INSTANCE_TENANCY, Some(it)));
    let placement = Placement {
        tenancy: tenancy.map(str::to_owned),
        group_id: input.placement_group.map(|group| group.id.clone()),
        partition: input.placement_group.and_then(|group| asked_partition(requirements, group)),
    };
    let tags = machine_tags(input);
    let common = TemplateInput {
        node_class: &input.class.spec,
        security_groups: &groups,
        instance_profile: status.instance_profile.as_deref().unwrap_or_default(),
        tags: &tags,
        placement: &placement,
        addresses: if input.cluster.dns_ip.is_some_and(|ip| ip.is_ipv6()) {
            AddressFamily::V6
        } else {
            AddressFamily::V4
        },
    };
    let mut templates = BTreeMap::new();
    for key in candidates.iter().map(|candidate| &candidate.key) {
        if !templates.contains_key(key) {
            let told = user_data(input, key).map_err(|error| Error::CreateFailed {
                reason: match error {
                    user_data::Error::TooLarge { .. } => "UserDataSizeLimitExceeded",
                    user_data::Error::ServiceCidrUnknown
                    | user_data::Error::Mime(_)
                    | user_data::Error::Toml(_)
                    | user_data::Error::Yaml(_) => "InvalidUserData",
                }
                .to_owned(),
                message: format!("EC2NodeClass {}: {error}", input.class.name),
            })?;
            templates.insert(key.clone(), LaunchTemplate::new(&common, key, told));
        }
    }
    Ok(templates)
}

fn user_data(input: &LaunchInput<'_>, key: &TemplateKey) -> Result<String, user_data::Error> {
    let (claim, spec) = (input.claim, &input.class.spec);
    let mut of_claim: BTreeMap<_, _> = claim.metadata.labels.clone().unwrap_or_default();
    of_claim.insert(kubernetes::CAPACITY_TYPE.to_owned(), key.market.capacity_type().to_string());
    let image = input.class.status.amis.iter().find(|image| image.id == key.image_id);
    let told = user_data::render(&Boot {
        cluster: input.cluster,
        family: spec.ami_family,
        user_data: spec.user_data.as_deref(),
        kubelet: &input.kubelet.with(&key.reserved),
        max_pods: key.max_pods,
        labels: &user_data::node_labels(&of_claim, spec.ami_family),
        taints: &user_data::node_taints(&claim.spec.taints, &claim.spec.startup_taints),
        instance_store: spec.instance_store_policy,
        image_version: image.and_then(|image| image.name.as_deref()).and_then(bottlerocket_version),
    })?;
    user_data::encode(&told)
}

/// The version in the name of an image of Bottlerocket, such as `bottlerocket-aws-k8s-1.33-x86_64-v1.45.0-abc`.
fn bottlerocket_version(name: &str) -> Option<&str> {
    let parts = name.split('-');
    parts.filter_map(|part| part.strip_prefix('v')).find(|it| it.starts_with(|it: char| it.is_ascii_digit()))
}
