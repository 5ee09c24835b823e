//! One NodeOverlay, checked.

use api::labels::ProviderLabels;
use api::{DynamicResources, NodeOverlay, NodeSelectorRequirementWithMinValues};
use cloudprovider::ResourceList;
use cloudprovider::requirements::{self, LabelRequirements};
use model::{NodeOverlayName, price};
use thiserror::Error as ThisError;

use crate::{PriceChange, learn};

/// Resources that only the provider sets.
const RESTRICTED: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// Why an overlay is invalid, whatever instance types there are (reason `RuntimeValidation`).
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Invalid {
    /// A requirement is invalid.
    #[error("spec.requirements: {0}")]
    Requirements(#[from] requirements::Error),
    /// The text is not a price.
    #[error("spec.price: {0}")]
    Price(#[source] price::Error),
    /// The text is neither an amount nor a percentage.
    #[error("spec.priceAdjustment: {0}")]
    PriceAdjustment(#[source] price::Error),
    /// Both `price` and `priceAdjustment` are set.
    #[error("spec: price and priceAdjustment exclude each other")]
    TwoPrices,
    /// The amount is not a quantity.
    #[error("spec.capacity: {0}")]
    Capacity(#[from] cloudprovider::instance_type::InvalidResource),
    /// An amount below zero.
    #[error("spec.capacity.{0}: must not be negative")]
    Negative(String),
    /// The devices are invalid on any machine.
    #[error("spec.dynamicResources.{0}")]
    Devices(#[from] dra_templates::Error),
    /// Only the provider sets this resource.
    #[error("spec.capacity.{0}: this resource cannot be changed")]
    Restricted(String),
}

/// A valid NodeOverlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// Its name.
    pub name: NodeOverlayName,
    /// Where overlays correct the same thing, the highest wins. 0 if none was given; the least there is for one that
    /// was generated.
    pub weight: i32,
    /// What it does to prices.
    pub price: Option<PriceChange>,
    /// Resources that machines have in addition to, or instead of, what the provider says.
    pub capacity: ResourceList,
    /// What DRA drivers will publish on the machines.
    pub dynamic_resources: DynamicResources,
    pub(crate) requirements: LabelRequirements,
}

impl Overlay {
    /// Reads and checks a NodeOverlay.
    ///
    /// # Errors
    /// The first thing that is invalid.
    pub fn new(overlay: &NodeOverlay, labels: &ProviderLabels) -> Result<Self, Invalid> {
        let spec = &overlay.spec;
        let requirements = spec.requirements.iter().map(|requirement| NodeSelectorRequirementWithMinValues {
            key: requirement.key.clone(),
            operator: requirement.operator.clone(),
            values: requirement.values.clone(),
            min_values: None,
        });
        let requirements: Vec<_> = requirements.collect();
        let price = match (&spec.price, &spec.price_adjustment) {
            (None, None) => None,
            (Some(price), None) => Some(PriceChange::replacement(price).map_err(Invalid::Price)?),
            (None, Some(change)) => Some(PriceChange::adjustment(change).map_err(Invalid::PriceAdjustment)?),
            (Some(_), Some(_)) => return Err(Invalid::TwoPrices),
        };
        let capacity = spec.capacity.as_ref().map(cloudprovider::instance_type::resources_from_api);
        let capacity = capacity.transpose()?.unwrap_or_default();
        for (resource, amount) in &capacity {
            if RESTRICTED.contains(&resource.as_str()) {
                return Err(Invalid::Restricted(resource.clone()));
            }
            if amount.to_nano() < 0 {
                return Err(Invalid::Negative(resource.clone()));
            }
        }
        let dynamic_resources = spec.dynamic_resources.clone().unwrap_or_default();
        dra_templates::check(&dynamic_resources)?;
        Ok(Self {
            name: overlay.metadata.name.as_deref().unwrap_or_default().into(),
            // A generated overlay never takes precedence over one that a person wrote, whatever its weight.
            weight: if learn::is_generated(overlay) { i32::MIN } else { spec.weight.unwrap_or(0) },
            price,
            capacity,
            dynamic_resources,
            requirements: LabelRequirements::parse(&requirements, labels)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_with_its_field() {
        let refused = |spec: Value| {
            let object = json!({
                "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "o"}, "spec": spec,
            });
            let overlay: NodeOverlay = serde_json::from_value(object).unwrap();
            Overlay::new(&overlay, &ProviderLabels::default()).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let cases = [
            (json!({"requirements": [], "price": "ten"}), "spec.price: price \"ten\" is not a decimal number"),
            (
                json!({"requirements": [], "priceAdjustment": "x%"}),
                "spec.priceAdjustment: price \"x\" is not a decimal number",
            ),
            (
                json!({"requirements": [], "price": "1", "priceAdjustment": "+1"}),
                "spec: price and priceAdjustment exclude each other",
            ),
            (
                json!({"requirements": [], "capacity": {"cpu": "1"}}),
                "spec.capacity.cpu: this resource cannot be changed",
            ),
            (json!({"requirements": [], "capacity": {"a.b/c": "-1"}}), "spec.capacity.a.b/c: must not be negative"),
            (json!({"requirements": [], "capacity": {"a.b/c": "much"}}), "spec.capacity: a.b/c: "),
            (
                json!({"requirements": [], "dynamicResources": {"resourceSliceTemplates": [
                    {"metadata": {"name": "t"}, "spec": {"driver": "gpu.example.com"}}]}}),
                "spec.dynamicResources.resourceSliceTemplates[t].spec.devices: is required",
            ),
            (
                json!({"requirements": [{"key": "k", "operator": "In"}]}),
                "spec.requirements: requirement on \"k\": operator In needs a value",
            ),
        ];
        for (spec, expected) in cases {
            let error = refused(spec.clone());
            assert!(error.starts_with(expected) && !expected.is_empty(), "{spec}: {error:?}");
        }
        assert_eq!(refused(json!({"requirements": [], "price": "0.1", "weight": 5})), "");
    }
}
