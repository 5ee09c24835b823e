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
//! The options `--region` and `--prices` say the first three of them too. Prices are built in for one region only;
//! those of another are never planned with it, so they have to be given.
//!
//! Without a node class, machines are those of one that says nothing but that its images are AL2023.

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
use crate::node_class::kubelet::{Expressions, Kubelet};
use crate::node_class::{self, AmiFamily};
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
    let region = Region::of_input(input)?;
    Ok(Catalogue { instance_types: region.sold_to(&Launches::default()), left_out: region.left_out })
}

/// The types of [`of_input`] as an EC2NodeClass changes them: capacity and overhead, which of them can be launched, and
/// the devices that are attached. Only the zones of the subnets in its status can be launched in, if it has any.
///
/// Capacity reservations in its status have no part: what is left of them is not told there. The strategy of a
/// placement group is not told either.
///
/// # Errors
/// As [`of_input`]; and if the object is no EC2NodeClass that a server would store, if no kubelet takes its settings,
/// or if its subnets are in another region.
pub fn of_node_class(input: &CatalogueInput, node_class: &Value) -> Result<Catalogue, CatalogueError> {
    let region = Region::of_input(input)?;
    let launches = Launches::of_node_class(node_class, &region.name).map_err(CatalogueError)?;
    Ok(Catalogue { instance_types: region.sold_to(&launches), left_out: region.left_out })
}

/// What can be had in a region, and what it costs.
struct Region {
    name: String,
    /// Types that replace those that are built in, or come beside them.
    given: BTreeMap<String, InstanceTypeInfo>,
    /// The zones of types, in place of those that are built in.
    zones: BTreeMap<String, Vec<String>>,
    prices: Prices,
    left_out: Vec<CatalogueError>,
}

/// How machines are launched.
struct Launches {
    settings: NodeSettings,
    /// The zones that have subnets, with their ids as far as they are known; every zone where absent.
    zones: Option<BTreeMap<String, Option<String>>>,
}

impl Default for Launches {
    fn default() -> Self {
        Self { settings: NodeSettings::of_family(AmiFamily::Al2023), zones: None }
    }
}

impl Launches {
    fn of_node_class(object: &Value, region: &str) -> Result<Self, String> {
        let listed = |problems: Vec<String>| problems.join("; ");
        let class = node_class::decode(object)
            .map_err(|error| listed(error.problems.iter().map(ToString::to_string).collect()))?;
        // Whether the controller's gate is on is not known here; what it would compute with it is shown.
        let kubelet = Kubelet::read(&class.spec.kubelet, class.spec.ami_family, Expressions::Allowed)
            .map_err(|problems| listed(problems.iter().map(ToString::to_string).collect()))?;
        let subnets: BTreeMap<_, _> =
            class.status.subnets.iter().map(|it| (it.zone.clone(), it.zone_id.clone())).collect();
        if !subnets.is_empty() && !subnets.keys().any(|zone| zone.starts_with(region)) {
            let zones = subnets.into_keys().collect::<Vec<_>>().join(", ");
            return Err(format!(
                "status.subnets: they are in {zones}, not in {region}; --{} says the region",
                options::REGION.flag
            ));
        }
        let settings = NodeSettings::of_node_class(&class, &kubelet, None)?;
        Ok(Self { settings, zones: Some(subnets).filter(|zones| !zones.is_empty()) })
    }

    fn zone(&self, name: String) -> Zone {
        match &self.zones {
            None => Zone { name, id: None, has_subnet: true, is_shifted: false },
            Some(zones) => {
                let subnet = zones.get(&name);
                Zone { id: subnet.cloned().flatten(), has_subnet: subnet.is_some(), is_shifted: false, name }
            }
        }
    }
}

impl Region {
    fn of_input(input: &CatalogueInput) -> Result<Self, CatalogueError> {
        let wrong = |reason: String| CatalogueError(format!("instance types of EC2: {reason}"));
        let file: File = match &input.instance_types {
            Some(text) => serde_saphyr::from_str(text).map_err(|error| wrong(error.to_string()))?,
            None => File::default(),
        };
        let name = region(input.options.text(options::REGION.flag), file.region.as_deref()).map_err(wrong)?;
        let built_in = if name == BUILT_IN_REGION { Prices::built_in() } else { Prices::default() };
        let mut prices = built_in.with(file.on_demand, file.spot).map_err(|error| wrong(error.to_string()))?;
        if let Some(text) = input.options.text(options::PRICES.flag) {
            prices = prices.read_over(text).map_err(|error| wrong(error.to_string()))?;
        }
        if prices == Prices::default() {
            return Err(wrong(format!(
                "region: no prices are built in for {name}, only those of {BUILT_IN_REGION}; give a file of its prices \
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
        Ok(Self { name: name.to_owned(), given, zones: file.zones, prices, left_out })
    }

    /// The types that some zone sells, ordered by name.
    fn sold_to(&self, launches: &Launches) -> Vec<InstanceType> {
        let settings = &launches.settings;
        let resolver = Resolver { region: &self.name, settings, options: &MachineOptions::default() };
        let mut infos: BTreeMap<&String, &InstanceTypeInfo> = instance_types().iter().collect();
        infos.extend(&self.given);
        let mut sold = Vec::new();
        for (name, info) in infos {
            let zones = self.zones.get(name).cloned().unwrap_or_else(|| zones_of(name, &self.name));
            if zones.is_empty() {
                continue;
            }
            let zones: Vec<_> = zones.into_iter().map(|name| launches.zone(name)).collect();
            let market = Market { zones: &zones, prices: &self.prices, reservations: &[], is_out_of_stock: &|_| false };
            let mut instance_type = resolver.resolve(info);
            instance_type.dynamic_resources = devices::dynamic_resources(info, efas(info, settings), &settings.drivers);
            market.add_offerings(&mut instance_type, info, settings);
            sold.push(instance_type);
        }
        sold
    }
}

/// The region to plan for, of an option and a file.
fn region<'a>(option: Option<&'a str>, file: Option<&'a str>) -> Result<&'a str, String> {
    let name = match (option, file) {
        (Some(option), Some(file)) if option != file => {
            return Err(format!("region: the file says {file}, and --{} {option}", options::REGION.flag));
        }
        (Some(name), _) | (None, Some(name)) => name,
        (None, None) => BUILT_IN_REGION,
    };
    if regions().any(|known| known == name) {
        return Ok(name);
    }
    let known: Vec<_> = regions().collect();
    Err(format!("region: {name:?} is none of {}", known.join(", ")))
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

    fn of_class(spec: Value, status: Value) -> Result<Vec<InstanceType>, String> {
        let mut class = serde_json::json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "c"},
            "spec": {
                "role": "node", "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
                "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}],
            },
        });
        if !status.is_null() {
            class["status"] = status;
        }
        class["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let read = of_node_class(&CatalogueInput::default(), &class);
        read.map(|read| read.instance_types).map_err(|error| error.to_string())
    }

    #[test]
    fn a_node_class_changes_what_machines_hold() {
        let spec = serde_json::json!({
            "instanceStorePolicy": "RAID0",
            "kubelet": {"maxPods": 30, "kubeReserved": {"cpu": "250m"}, "evictionHard": {"memory.available": "5%"}},
        });
        let types = of_class(spec, Value::Null).unwrap();
        let m5d = find(&types, "m5d.large").unwrap();
        let amount = |list: &cloudprovider::ResourceList, resource| list[resource].to_string();
        assert_eq!(amount(&m5d.capacity, "pods"), "30");
        assert_eq!(amount(&m5d.capacity, "ephemeral-storage"), "75G");
        assert_eq!(amount(&m5d.overhead.kube_reserved, "cpu"), "250m");
        // 7577 MiB, of which 5 %.
        assert_eq!(amount(&m5d.capacity, "memory"), "7577Mi");
        let kept = m5d.overhead.eviction_threshold["memory"].value().unwrap();
        assert_eq!(u64::try_from(kept).unwrap(), (7577_u64 << 20).div_ceil(20));
        // Bottlerocket reckons the kubelet's memory from the most pods: 255 MiB, and 11 for each.
        assert_eq!(amount(&m5d.overhead.kube_reserved, "memory"), "585Mi");
        let plain = of_input(&CatalogueInput::default()).unwrap().instance_types;
        assert_eq!(amount(&find(&plain, "m5d.large").unwrap().capacity, "ephemeral-storage"), "20Gi");
    }

    #[test]
    fn machines_of_a_node_class_are_in_the_zones_of_its_subnets() {
        let status = serde_json::json!({"subnets": [{"id": "subnet-1", "zone": "us-east-1b", "zoneID": "use1-az2"}]});
        let types = of_class(Value::Object(serde_json::Map::new()), status).unwrap();
        let m5 = find(&types, "m5.large").unwrap();
        let launchable: BTreeMap<_, _> =
            m5.offerings.iter().filter(|it| it.launchable()).map(|it| (it.zone.as_str(), &it.labels)).collect();
        let labels = BTreeMap::from([(crate::labels::ZONE_ID.to_owned(), "use1-az2".to_owned())]);
        assert_eq!(launchable, BTreeMap::from([("us-east-1b", &labels)]));
        // The others keep their prices, for machines that run there.
        assert!(m5.offerings.iter().any(|it| it.zone == "us-east-1a" && !it.launchable()));
    }

    #[test]
    fn a_node_class_that_cannot_be_used_is_refused_with_the_field() {
        let refused = |spec: Value, status: Value| of_class(spec, status).unwrap_err();
        let kubelet = serde_json::json!({"kubelet": {"maxPods": "many"}});
        assert!(refused(kubelet, Value::Null).starts_with("spec.kubelet.maxPods: "));
        let elsewhere = serde_json::json!({"subnets": [{"id": "subnet-1", "zone": "eu-west-1a"}]});
        assert_eq!(
            refused(Value::Object(serde_json::Map::new()), elsewhere),
            "status.subnets: they are in eu-west-1a, not in us-east-1; --region says the region"
        );
        assert!(refused(serde_json::json!({"role": ""}), Value::Null).contains("spec.role"));
    }
}
