//! What the NodeOverlay CRD demands.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::CustomResourceExt;

use super::{
    complete, dynamic_resources, rules,
    schema::{Constrain, at},
};
use crate::NodeOverlay;

/// A number without sign.
const PRICE: &str = r"^\d+(\.\d+)?$";
/// A signed number, or a signed percentage that takes away no more than everything.
const PRICE_ADJUSTMENT: &str = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$";

pub(super) fn crd() -> CustomResourceDefinition {
    complete(NodeOverlay::crd(), &[prices, weight, capacity, requirements, dynamic_resources::rules, rules::conditions])
}

fn prices(root: &mut JSONSchemaProps) {
    at(root, "spec")
        .rule("!has(self.price) || !has(self.priceAdjustment)", "cannot set both 'price' and 'priceAdjustment'");
    at(root, "spec.price").pattern(PRICE);
    at(root, "spec.priceAdjustment").pattern(PRICE_ADJUSTMENT);
}

fn weight(root: &mut JSONSchemaProps) {
    at(root, "spec.weight").range(Some(1.0), Some(10_000.0));
}

fn capacity(root: &mut JSONSchemaProps) {
    at(root, "spec.capacity")
        .rule("self.all(x, !(x in ['cpu', 'memory', 'ephemeral-storage', 'pods']))", "invalid resource restricted");
}

fn requirements(root: &mut JSONSchemaProps) {
    let list = at(root, "spec.requirements");
    rules::requirements(list);
    rules::requirement_key_is_not_hostname(list);
    list.rule(
        "self.all(x, x.operator == 'NotIn' ? x.values.size() != 0 : true)",
        "requirements with operator 'NotIn' must have a value defined",
    );
    rules::in_has_values(list);
    rules::comparison_has_one_integer(
        list,
        "requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value",
    );
}
