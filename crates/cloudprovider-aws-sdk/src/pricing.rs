//! Pricing, which answers with a text of JSON for each type.
//!
//! What is asked for is what `pkg/providers/pricing` of karpenter-provider-aws 1.15 asks for.

use std::collections::BTreeMap;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_pricing::Client;
use aws_sdk_pricing::types::{Filter, FilterType};
use cloudprovider_aws::service::{Error, OnDemandPrice, PriceList, Pricing};
use model::PriceNanoUsdPerHour;
use serde::Deserialize;

use crate::fault::unusable;
use crate::pages;

const CALL: &str = "pricing:GetProducts";
const SERVICE: &str = "AmazonEC2";
/// Most prices of a page.
const PAGE: i32 = 100;

/// Pricing by the SDK.
#[derive(Debug)]
pub(crate) struct PricingClient {
    client: Client,
    currency: &'static str,
}

impl PricingClient {
    /// For prices of a region, by a configuration of the region that serves them.
    pub(crate) fn new(config: &SdkConfig, region: &str) -> Self {
        let currency = if region.starts_with("cn-") { "CNY" } else { "USD" };
        Self { client: Client::new(config), currency }
    }
}

fn filters(region: &str, list: PriceList) -> Result<Vec<Filter>, Error> {
    let (tenancy, family) = match list {
        PriceList::Shared => ("Shared", "Compute Instance"),
        PriceList::BareMetal => ("Dedicated", "Compute Instance (bare metal)"),
    };
    let filters = [
        ("regionCode", region),
        ("serviceCode", SERVICE),
        ("preInstalledSw", "NA"),
        ("operatingSystem", "Linux"),
        ("capacitystatus", "Used"),
        ("marketoption", "OnDemand"),
        ("tenancy", tenancy),
        ("productFamily", family),
    ];
    let filter = |(field, value)| Filter::builder().field(field).value(value).r#type(FilterType::TermMatch).build();
    filters.map(filter).into_iter().collect::<Result<_, _>>().map_err(|error| unusable(CALL, error.to_string()))
}

#[async_trait]
impl Pricing for PricingClient {
    async fn get_products(&self, region: &str, list: PriceList) -> Result<Vec<OnDemandPrice>, Error> {
        let call = self.client.get_products().service_code(SERVICE).max_results(PAGE);
        let call = call.set_filters(Some(filters(region, list)?)).into_paginator();
        let pages = pages::all(CALL, call.send()).await?;
        let products = pages.iter().flat_map(|page| page.price_list());
        Ok(products.filter_map(|text| price(text, self.currency)).collect())
    }
}

/// A product of the price list; only what is read of it.
#[derive(Deserialize)]
struct Listed {
    product: Product,
    terms: Terms,
}

#[derive(Deserialize)]
struct Product {
    attributes: Attributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attributes {
    instance_type: String,
}

#[derive(Deserialize)]
struct Terms {
    #[serde(rename = "OnDemand", default)]
    on_demand: BTreeMap<String, Term>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    #[serde(default)]
    price_dimensions: BTreeMap<String, Dimension>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dimension {
    #[serde(default)]
    price_per_unit: BTreeMap<String, String>,
}

/// The price of a product; none where the text has none that can be read, which leaves the price that is known.
fn price(text: &str, currency: &str) -> Option<OnDemandPrice> {
    let listed: Listed = serde_json::from_str(text).ok()?;
    let dimensions = listed.terms.on_demand.values().flat_map(|term| term.price_dimensions.values());
    let prices = dimensions.filter_map(|dimension| dimension.price_per_unit.get(currency));
    let price = prices.filter_map(|text| PriceNanoUsdPerHour::parse_rounded(text).ok()).find(|it| it.0 > 0)?;
    Some(OnDemandPrice { instance_type: listed.product.attributes.instance_type, price })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(price: &str) -> String {
        format!(
            r#"{{"product": {{"productFamily": "Compute Instance", "attributes": {{"instanceType": "m5.large"}}}},
                "terms": {{"OnDemand": {{"A.B": {{"priceDimensions": {{"A.B.C": {{"unit": "Hrs",
                "pricePerUnit": {{"USD": "{price}"}}}}}}}}}}}}}}"#
        )
    }

    #[test]
    fn a_price_is_read_in_its_currency_and_nothing_is_no_price() {
        let price = |text: &str, currency| price(text, currency).map(|it| (it.instance_type, it.price.0));
        assert_eq!(price(&listed("0.0960000000"), "USD"), Some(("m5.large".to_owned(), 96_000_000)));
        assert_eq!(price(&listed("0.0960000000"), "CNY"), None);
        for text in ["0.0000000000", "-1", "much"] {
            assert_eq!(price(&listed(text), "USD"), None, "{text}");
        }
        assert_eq!(price("{", "USD"), None);
    }
}
