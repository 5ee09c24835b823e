//! Which offering a NodeClaim gets. Pure.

use std::sync::Arc;

use api::NodeClaim;
use api::labels::ProviderLabels;
use cloudprovider::instance_type::resources_from_api;
use cloudprovider::launch::{LaunchOption, launch_options, min_values_unmet};
use cloudprovider::{Error, InstanceType, LabelRequirements, OfferingKey, ResourceList};

/// What a NodeClaim asks for, understood.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Of labels.
    pub requirements: LabelRequirements,
    /// Of resources.
    pub requests: ResourceList,
}

impl Asked {
    /// Reads it from the NodeClaim.
    ///
    /// # Errors
    /// [`Error::CreateFailed`] naming the field that makes no sense.
    pub fn of(claim: &NodeClaim, labels: &ProviderLabels) -> Result<Self, Error> {
        let invalid = |field: &str, error: &dyn std::fmt::Display| Error::CreateFailed {
            reason: "InvalidNodeClaim".to_owned(),
            message: format!("spec.{field}: {error}"),
        };
        Ok(Self {
            requirements: LabelRequirements::of_claim(claim, labels)
                .map_err(|error| invalid("requirements", &error))?,
            requests: resources_from_api(&claim.spec.resources.requests)
                .map_err(|error| invalid("resources.requests", &error))?,
        })
    }
}

/// The cheapest machine that meets what is asked, and the offerings that were found to have none on the way there.
#[derive(Debug, Clone)]
pub struct Choice<'a> {
    /// The machine.
    pub option: LaunchOption<'a>,
    /// Cheaper offerings, in order, that turned out to have no machines.
    pub without_capacity: Vec<OfferingKey>,
}

/// Tries everything that the claim allows, cheapest first, like a cloud that is handed a list: those that
/// `is_unavailable` are known to have no machines and are not tried, those without `has_capacity` turn out to have
/// none.
///
/// Differs: `kwok-any-type`. Karpenter's kwok provider needs a requirement on the instance type and takes any of the
/// cheapest at random.
///
/// # Errors
/// [`Error::InsufficientCapacity`] if nothing is left, with every offering that would have done.
pub fn choose<'a>(
    instance_types: &'a [Arc<InstanceType>],
    asked: &'a Asked,
    is_unavailable: impl Fn(&OfferingKey) -> bool,
    has_capacity: impl Fn(&LaunchOption<'a>) -> bool,
) -> Result<Choice<'a>, Error> {
    let options = launch_options(instance_types, &asked.requirements, &asked.requests, |_| false);
    if options.is_empty() {
        return Err(Error::InsufficientCapacity {
            message: "no offering of any instance type meets the requirements and holds the requests".to_owned(),
            offerings: Vec::new(),
        });
    }
    let types = options.iter().map(|option| &**option.instance_type);
    if let Some(unmet) = min_values_unmet(types, &asked.requirements) {
        return Err(Error::CreateFailed { reason: "MinValuesNotMet".to_owned(), message: unmet.to_string() });
    }
    let mut without_capacity = Vec::new();
    for option in &options {
        if !is_unavailable(&option.key()) {
            if has_capacity(option) {
                return Ok(Choice { option: *option, without_capacity });
            }
            without_capacity.push(option.key());
        }
    }
    let offerings: Vec<_> = options.iter().map(LaunchOption::key).collect();
    let first = offerings.first().map(ToString::to_string).unwrap_or_default();
    let message = format!("none of {} offerings has a machine, the cheapest being {first}", offerings.len());
    Err(Error::InsufficientCapacity { message, offerings })
}

#[cfg(test)]
mod tests {
    use api::{NodeSelectorRequirementWithMinValues, Operator, labels};

    use super::*;
    use crate::catalogue::default_instance_types;
    use crate::names;

    fn asked(values: &[(&str, &[&str])], cpu: &str) -> Asked {
        let requirements: Vec<_> = values
            .iter()
            .map(|(key, values)| NodeSelectorRequirementWithMinValues {
                key: (*key).to_owned(),
                operator: Operator::In,
                values: values.iter().map(|value| (*value).to_owned()).collect(),
                min_values: None,
            })
            .collect();
        Asked {
            requirements: LabelRequirements::parse(&requirements, &ProviderLabels::default()).unwrap(),
            requests: [("cpu".to_owned(), model::Quantity::parse(cpu).unwrap())].into(),
        }
    }

    fn types() -> Vec<Arc<InstanceType>> {
        default_instance_types().into_iter().map(Arc::new).collect()
    }

    #[test]
    fn the_cheapest_machine_that_holds_the_requests_is_chosen() {
        let types = types();
        let cases = [
            (asked(&[], "0"), "c-1x-amd64-linux/test-zone-a/spot"),
            // One CPU less the kubelet's 100m does not hold one CPU.
            (asked(&[], "1"), "c-2x-amd64-linux/test-zone-a/spot"),
            (asked(&[(labels::CAPACITY_TYPE, &["on-demand"])], "3900m"), "c-4x-amd64-linux/test-zone-a/on-demand"),
            (
                asked(&[(labels::ZONE, &["test-zone-d"]), (labels::OS, &["windows"])], "0"),
                "c-1x-amd64-windows/test-zone-d/spot",
            ),
            (
                asked(&[("failure-domain.beta.kubernetes.io/zone", &["test-zone-c"])], "0"),
                "c-1x-amd64-linux/test-zone-c/spot",
            ),
            (asked(&[(names::KWOK_INSTANCE_FAMILY, &["m"])], "0"), "m-1x-amd64-linux/test-zone-a/spot"),
        ];
        for (asked, expected) in cases {
            let choice = choose(&types, &asked, |_| false, |_| true).unwrap();
            assert_eq!(choice.option.key().to_string(), expected, "{asked:?}");
        }
    }

    #[test]
    fn offerings_without_machines_are_passed_over_and_told() {
        let types = types();
        let asked = asked(&[(labels::INSTANCE_TYPE, &["c-1x-amd64-linux"])], "0");
        let full = |option: &LaunchOption<'_>| option.offering.zone != "test-zone-a";
        let choice = choose(&types, &asked, |key| key.zone == "test-zone-b", full).unwrap();
        assert_eq!(choice.option.key().to_string(), "c-1x-amd64-linux/test-zone-c/spot");
        let told: Vec<_> = choice.without_capacity.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["c-1x-amd64-linux/test-zone-a/spot"]);
    }

    /// The sixty cheapest of the 144 types have only five numbers of CPUs.
    #[test]
    fn all_types_that_the_claim_allows_count_for_min_values() {
        let types = types();
        let with_min_values = |min_values| {
            let requirement = NodeSelectorRequirementWithMinValues {
                key: names::KWOK_INSTANCE_CPU.to_owned(),
                operator: Operator::Exists,
                values: Vec::new(),
                min_values: Some(min_values),
            };
            let requirements = LabelRequirements::parse(&[requirement], &ProviderLabels::default()).unwrap();
            let asked = Asked { requirements, requests: ResourceList::new() };
            let chosen = choose(&types, &asked, |_| false, |_| true);
            chosen.map(|choice| choice.option.key().to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(with_min_values(12).as_deref(), Ok("c-1x-amd64-linux/test-zone-a/spot"));
        assert!(with_min_values(13).unwrap_err().contains("12 of 13 values"));
    }

    #[test]
    fn running_out_of_everything_is_insufficient_capacity_with_all_offerings() {
        let types = types();
        let asked = asked(&[(labels::INSTANCE_TYPE, &["c-1x-amd64-linux"]), (labels::ZONE, &["test-zone-a"])], "0");
        let error = choose(&types, &asked, |_| false, |_| false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "insufficient capacity, none of 2 offerings has a machine, the cheapest being c-1x-amd64-linux/test-zone-a/spot"
        );
        let Error::InsufficientCapacity { offerings, .. } = error else { unreachable!() };
        assert_eq!(offerings.len(), 2);
    }

    #[test]
    fn a_claim_that_makes_no_sense_fails_naming_the_field() {
        let mut claim: NodeClaim = serde_json::from_value(serde_json::json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"},
            "spec": {
                "requirements": [{"key": "k", "operator": "Near", "values": ["x"]}],
                "resources": {"requests": {"cpu": "one"}},
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            },
        }))
        .unwrap();
        let error = |claim: &NodeClaim| Asked::of(claim, &ProviderLabels::default()).unwrap_err().to_string();
        assert!(error(&claim).contains("spec.requirements: requirement on \"k\": unknown operator \"Near\""));
        claim.spec.requirements.clear();
        assert!(error(&claim).contains("spec.resources.requests: cpu: quantity \"one\""));
    }
}
