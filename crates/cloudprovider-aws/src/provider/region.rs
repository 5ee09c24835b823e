//! What the region sells: types, the zones that have them, and prices.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use model::DurationMs;

use crate::catalogue;
use crate::instance_types::info::InstanceTypeInfo;
use crate::pricing::Prices;
use crate::service::ec2::TypeInZone;

/// How long EC2's word on what is sold counts.
pub(crate) const SOLD_FRESH: DurationMs = DurationMs::from_seconds(12 * 3600);

/// What is sold in the region, whoever buys it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Region {
    /// The types, by name.
    pub(super) types: Arc<BTreeMap<String, InstanceTypeInfo>>,
    /// The names of the zones that sell each type.
    pub(super) sold: Arc<BTreeMap<String, Vec<String>>>,
    /// What machines cost.
    pub(super) prices: Arc<Prices>,
}

/// The types that are built in, which stand for those of the region until EC2 tells them.
pub(super) fn built_in() -> Arc<BTreeMap<String, InstanceTypeInfo>> {
    Arc::new(catalogue::instance_types().clone())
}

/// The zones of each type.
pub(super) fn sold(offerings: Vec<TypeInZone>) -> BTreeMap<String, Vec<String>> {
    let mut sold: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for TypeInZone { instance_type, zone } in offerings {
        sold.entry(instance_type).or_default().push(zone);
    }
    for zones in sold.values_mut() {
        zones.sort();
        zones.dedup();
    }
    sold
}

/// A record that lacks something.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Incomplete {
    pub(super) instance_type: String,
    missing: &'static str,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no {}", self.instance_type, self.missing)
    }
}

/// The types that EC2 tells of, by name, and the records that lack something. The built-in record stands for one of
/// those; a type that has none is left out.
pub(super) fn types(told: Vec<InstanceTypeInfo>) -> (BTreeMap<String, InstanceTypeInfo>, Vec<Incomplete>) {
    let mut types = BTreeMap::new();
    let mut incomplete = Vec::new();
    for info in told {
        let name = info.instance_type.clone();
        let Some(missing) = info.missing() else {
            types.insert(name, catalogue::supplement(info));
            continue;
        };
        if let Some(known) = catalogue::instance_types().get(&name) {
            types.insert(name.clone(), known.clone());
        }
        incomplete.push(Incomplete { instance_type: name, missing });
    }
    (types, incomplete)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> InstanceTypeInfo {
        InstanceTypeInfo { instance_type: name.to_owned(), ..catalogue::instance_types()["m5.large"].clone() }
    }

    #[test]
    fn a_record_that_lacks_something_is_named_and_the_built_in_one_stands_for_it() {
        let mut known = record("m5.xlarge");
        known.network_info.network_cards.clear();
        let mut new = record("m99.large");
        new.memory_info.size_in_mib = 0;
        let (types, incomplete) = types(vec![record("m98.large"), known, new, record("nameless")]);
        assert_eq!(types.keys().collect::<Vec<_>>(), ["m5.xlarge", "m98.large"]);
        assert_eq!(types["m5.xlarge"], catalogue::instance_types()["m5.xlarge"]);
        assert_eq!(
            incomplete.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "m5.xlarge has no network cards",
                "m99.large has no memory",
                "nameless has no family and size in its name"
            ]
        );
    }
}
