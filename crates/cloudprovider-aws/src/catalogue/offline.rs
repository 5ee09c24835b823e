//! The catalogue that offline commands plan with: a region, prices, and types from the built-in data or from a file.
//!
//! A file of instance types is a document of four optional parts:
//!
//! ```yaml
//! region: eu-central-1
//! # As in a file of prices.
//! onDemand: {m5.large: 0.115}
//! spot: {m5.large: {eu-central-1a: 0.05}}
//! # What `aws ec2 describe-instance-types` prints, for types that are not built in. Zones that sell them go with it.
//! InstanceTypes: []
//! zones: {m99.large: [eu-central-1a]}
//! ```
//!
//! The options `--region` and `--prices` say the first three of them too. Prices are built in for one region only; those
//! of another are never planned with it, so they have to be given.
//!
//! Node classes are not read offline: machines are those of one that says nothing but that its images are AL2023.

use std::collections::BTreeMap;

use cloudprovider::InstanceType;
use cloudprovider::declaration::{Catalogue, CatalogueError, CatalogueInput};
use serde::Deserialize;
use serde_json::Value;

use super::{instance_types, regions, supplement, zones_of};
use crate::devices;
use crate::instance_types::info::InstanceTypeInfo;
use crate::instance_types::offerings::{Market, Zone};
use crate::instance_types::settings::{MachineOptions, NodeSettings};
use crate::instance_types::{Resolver, efas};
use crate::node_class::AmiFamily;
use crate::options;
use crate::pricing::{BUILT_IN_REGION, Listed, Prices};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    region: Option<String>,
    #[serde(default, rename = "onDemand")]
    on_demand: Listed,
    #[serde(default)]
    spot: BTreeMap<String, Listed>,
    #[serde(default, rename = "InstanceTypes")]
    instance_types: Vec<Value>,
    #[serde(default)]
    zones: BTreeMap<String, Vec<String>>,
}

/// The types that are sold in the region which file and options say, else [`BUILT_IN_REGION`]. Types of the file come
/// beside those that are built in; a record in it that cannot be read is left out. A type of which no price is known is
/// there, and cannot be launched.
///
/// # Errors
/// If the file has another form, or the region is not built in, is said in two ways, or has no price; or if a price is
/// none.
pub fn of_input(input: &CatalogueInput) -> Result<Catalogue, CatalogueError> {
    let wrong = |reason: String| CatalogueError(format!("instance types of EC2: {reason}"));
    let file: File = match &input.instance_types {
        Some(text) => serde_saphyr::from_str(text).map_err(|error| wrong(error.to_string()))?,
        None => File::default(),
    };
    let region = match (input.options.text(options::REGION.flag), file.region.as_deref()) {
        (Some(option), Some(file)) if option != file => {
            return Err(wrong(format!("region: the file says {file}, and --region {option}")));
        }
        (Some(region), _) | (None, Some(region)) => region,
        (None, None) => BUILT_IN_REGION,
    };
    if !regions().any(|known| known == region) {
        let known: Vec<_> = regions().collect();
        return Err(wrong(format!("region: {region:?} is none of {}", known.join(", "))));
    }
    let built_in = if region == BUILT_IN_REGION { Prices::built_in() } else { Prices::default() };
    let mut prices = built_in.with(file.on_demand, file.spot).map_err(|error| wrong(error.to_string()))?;
    if let Some(text) = input.options.text(options::PRICES.flag) {
        prices = prices.read_over(text).map_err(|error| wrong(error.to_string()))?;
    }
    if prices == Prices::default() {
        return Err(wrong(format!(
            "region: no prices are built in for {region}, only those of {BUILT_IN_REGION}; give a file of its prices \
             with --{}",
            options::PRICES.flag
        )));
    }
    let mut left_out = Vec::new();
    let mut given = BTreeMap::new();
    for (index, record) in file.instance_types.into_iter().enumerate() {
        let name = record.get("InstanceType").and_then(Value::as_str).unwrap_or_default().to_owned();
        match serde_json::from_value::<InstanceTypeInfo>(record) {
            Ok(info) => {
                given.insert(name, supplement(info));
            }
            Err(error) => left_out.push(wrong(format!("InstanceTypes[{index}] ({name:?}): {error}"))),
        }
    }
    Ok(Catalogue { instance_types: sold_in(region, &given, &file.zones, &prices), left_out })
}

/// The types that some zone of the region sells, ordered by name. What is `given` replaces what is built in.
fn sold_in(
    region: &str,
    given: &BTreeMap<String, InstanceTypeInfo>,
    given_zones: &BTreeMap<String, Vec<String>>,
    prices: &Prices,
) -> Vec<InstanceType> {
    let settings = NodeSettings::of_family(AmiFamily::Al2023);
    let resolver = Resolver { region, settings: &settings, options: &MachineOptions::default() };
    let mut infos: BTreeMap<&String, &InstanceTypeInfo> = instance_types().iter().collect();
    infos.extend(given);
    let mut sold = Vec::new();
    for (name, info) in infos {
        let zones = given_zones.get(name).cloned().unwrap_or_else(|| zones_of(name, region));
        if zones.is_empty() {
            continue;
        }
        let zones: Vec<_> = zones.into_iter().map(|name| Zone { name, id: None, has_subnet: true }).collect();
        let market = Market { zones: &zones, prices, reservations: &[], is_out_of_stock: &|_| false };
        let mut instance_type = resolver.resolve(info, None);
        instance_type.dynamic_resources = devices::dynamic_resources(info, efas(info, &settings));
        market.add_offerings(&mut instance_type, info, &settings);
        sold.push(instance_type);
    }
    sold
}

#[cfg(test)]
mod tests {
    use api::labels::ZONE;
    use cloudprovider::options::{OptionValue, OptionValues};

    use super::*;

    fn input(file: Option<&str>, options: &[(&'static str, &str)]) -> CatalogueInput {
        let mut values = OptionValues::default();
        for (flag, text) in options {
            values.set(flag, OptionValue::Text((*text).to_owned()));
        }
        CatalogueInput { instance_types: file.map(str::to_owned), options: values }
    }

    fn refused(file: Option<&str>, options: &[(&'static str, &str)]) -> String {
        of_input(&input(file, options)).unwrap_err().to_string()
    }

    fn launchable(types: &[InstanceType]) -> Vec<(&str, &str, i64)> {
        let offerings = types.iter().flat_map(|it| it.offerings.iter().map(move |offering| (it, offering)));
        let launchable = offerings.filter(|(_, offering)| offering.launchable());
        launchable.map(|(it, offering)| (it.name.as_str(), offering.zone.as_str(), offering.price.0)).collect()
    }

    fn find<'a>(types: &'a [InstanceType], name: &str) -> Option<&'a InstanceType> {
        types.iter().find(|it| it.name == name)
    }

    #[test]
    fn the_default_catalogue_is_ordered_and_sells_types_in_the_zones_of_its_region() {
        let types = of_input(&CatalogueInput::default()).unwrap().instance_types;
        assert!(types.len() > 1300, "{}", types.len());
        assert!(types.iter().zip(types.iter().skip(1)).all(|(a, b)| a.name < b.name));
        assert!(types.iter().flat_map(|it| &it.offerings).all(|it| it.zone.starts_with("us-east-1")));
        assert!(types.iter().all(|it| !it.offerings.is_empty() && it.requirements.contains_key(ZONE)));
        assert_eq!(find(&types, "hpc6a.48xlarge"), None);
    }

    #[test]
    fn a_file_says_region_and_prices_and_brings_types_that_are_newer() {
        let text = r#"{
            "region": "eu-central-1", "onDemand": {"m99.large": 0.1, "m5.large": "0.115"},
            "zones": {"m99.large": ["eu-central-1b"]},
            "InstanceTypes": [
                {"InstanceType": "m99.large", "VCpuInfo": {"DefaultVCpus": 2}, "MemoryInfo": {"SizeInMiB": 8192},
                 "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]}, "SupportedUsageClasses": ["on-demand"],
                 "NetworkInfo": {"Ipv4AddressesPerInterface": 10, "NetworkCards": [
                    {"NetworkCardIndex": 0, "MaximumNetworkInterfaces": 3, "BaselineBandwidthInGbps": 0.75}]},
                 "TimeTravel": {"Supported": true}},
                {"InstanceType": "m98.large"}
            ]}"#;
        let read = of_input(&input(Some(text), &[])).unwrap();
        let [left_out] = read.left_out.as_slice() else { panic!("{:?}", read.left_out) };
        let expected = r#"instance types of EC2: InstanceTypes[1] ("m98.large"): missing field `VCpuInfo`"#;
        assert_eq!(left_out.to_string(), expected);
        let newer = find(&read.instance_types, "m99.large").unwrap();
        assert_eq!(newer.capacity["pods"].to_string(), "29");
        let told = |it: &InstanceType| {
            it.offerings.iter().map(|it| (it.zone.clone(), it.price.0, it.available)).collect::<Vec<_>>()
        };
        assert_eq!(told(newer), [("eu-central-1b".to_owned(), 100_000_000, true)]);
        let known = find(&read.instance_types, "m5.large").unwrap();
        assert!(told(known).iter().all(|(zone, price, _)| zone.starts_with("eu-central-1") && *price == 115_000_000));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused_with_the_reason() {
        let refused = |text: &str| refused(Some(text), &[]);
        assert!(refused("region: mars").starts_with("instance types of EC2: region: \"mars\" is none of af-south-1, "));
        assert_eq!(
            refused("onDemand: {m5.large: 0}"),
            "instance types of EC2: prices: onDemand.m5.large: 0 is not above zero"
        );
        assert!(refused("colour: red").contains("colour"));
    }

    #[test]
    fn of_another_region_only_what_has_a_price_there_can_be_launched() {
        let options = [("region", "eu-central-1"), ("prices", "onDemand: {c5.large: 0.097}")];
        let file = "spot: {m5.large: {eu-central-1b: 0.04}}";
        let read = of_input(&input(Some(file), &options)).unwrap();
        let found = launchable(&read.instance_types);
        let spot_and_on_demand = |zone| [("c5.large", zone, 97_000_000); 2];
        let mut expected = ["eu-central-1a", "eu-central-1b", "eu-central-1c"].map(spot_and_on_demand).concat();
        expected.sort_unstable();
        expected.push(("m5.large", "eu-central-1b", 40_000_000));
        let mut sorted = found.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, expected);
        assert!(find(&read.instance_types, "r5.large").is_some());
    }

    #[test]
    fn a_region_whose_prices_nobody_knows_is_refused_with_how_to_give_them() {
        let expected = "instance types of EC2: region: no prices are built in for eu-central-1, only those of \
                        us-east-1; give a file of its prices with --prices";
        assert_eq!(refused(None, &[("region", "eu-central-1")]), expected);
        assert_eq!(refused(Some("region: eu-central-1"), &[]), expected);
        assert!(of_input(&input(None, &[("region", BUILT_IN_REGION)])).is_ok());
    }

    #[test]
    fn file_and_option_that_say_two_regions_are_refused() {
        let expected = "instance types of EC2: region: the file says eu-west-1, and --region us-east-1";
        assert_eq!(refused(Some("region: eu-west-1"), &[("region", "us-east-1")]), expected);
    }

    #[test]
    fn prices_of_the_option_are_taken_over_those_of_the_file_and_both_over_the_built_in_ones() {
        let file = "onDemand: {m5.large: 1, c5.large: 1}";
        let read = of_input(&input(Some(file), &[("prices", "onDemand: {m5.large: 2}")])).unwrap();
        let price = |name| find(&read.instance_types, name).unwrap().offerings[0].price.0;
        assert_eq!((price("m5.large"), price("c5.large")), (2_000_000_000, 1_000_000_000));
        assert_eq!(price("m5.xlarge"), 192_000_000);
    }
}
