//! How much of a device's capacity one request takes (KEP-5075). Amounts are nano-units.

use std::collections::BTreeMap;

use model::Quantity;

use dra_types::{CapacityRange, DeviceCapacity, QualifiedName, RequestPolicy};

const UNIT: i128 = 1_000_000_000;
const MILLI: i128 = 1_000_000;
const MAX_UNITS: i128 = i64::MAX as i128;

/// Why no amount can be computed. From 1.37 on upstream then fails the pod; earlier releases skip the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCapacity {
    /// The rounded amount does not fit into 64 bits.
    #[error("the amount cannot be represented")]
    NotRepresentable,
    /// The amount taken is negative.
    #[error("the amount is negative")]
    Negative,
}

/// What one request takes of each capacity of a device, in the order of the device's capacities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Allowed amounts.
    Amounts(Box<[i128]>),
    /// The device does not have a capacity that is asked for, or its policy forbids the amount.
    Unusable,
}

/// What a request takes of each capacity, before looking at what is free.
pub(crate) fn demand(
    requests: &BTreeMap<QualifiedName, Quantity>,
    capacity: &BTreeMap<QualifiedName, DeviceCapacity>,
    fractional: bool,
) -> Result<Demand, BadCapacity> {
    if requests.keys().any(|name| !capacity.contains_key(name)) {
        return Ok(Demand::Unusable);
    }
    let mut amounts = Vec::with_capacity(capacity.len());
    for (name, capacity) in capacity {
        let amount = consumed(requests.get(name).map(|amount| amount.to_nano()), capacity, fractional)?;
        if amount < 0 {
            return Err(BadCapacity::Negative);
        }
        amounts.push(amount);
    }
    let allowed = |(capacity, amount): (&DeviceCapacity, &i128)| match &capacity.request_policy {
        Some(policy) => allows(policy, *amount, fractional),
        None => true,
    };
    if capacity.values().zip(&amounts).all(allowed) {
        Ok(Demand::Amounts(amounts.into()))
    } else {
        Ok(Demand::Unusable)
    }
}

fn consumed(requested: Option<i128>, capacity: &DeviceCapacity, fractional: bool) -> Result<i128, BadCapacity> {
    let policy = capacity.request_policy.as_deref();
    let Some(requested) = requested else {
        return Ok(policy.and_then(|policy| policy.default).unwrap_or(capacity.value).to_nano());
    };
    let Some(policy) = policy else { return Ok(requested) };
    match &policy.valid_range {
        Some(range) if range.min.is_some() => round_up(requested, range, fractional),
        _ => Ok(policy
            .valid_values
            .iter()
            .map(|value| value.to_nano())
            .find(|value| requested <= *value)
            .unwrap_or(requested)),
    }
}

/// The least amount of a range that covers a request.
fn round_up(requested: i128, range: &CapacityRange, fractional: bool) -> Result<i128, BadCapacity> {
    let min = range.min.map_or(0, Quantity::to_nano);
    if requested < min {
        return Ok(min);
    }
    let Some(step) = range.step.map(Quantity::to_nano) else { return Ok(requested) };
    let unit = step_unit(range, fractional);
    if unit == MILLI && requested % MILLI != 0 {
        return Err(BadCapacity::NotRepresentable);
    }
    let (requested, min, step) = (whole(requested, unit), whole(min, unit), whole(step, unit));
    if step <= 0 {
        return Err(BadCapacity::NotRepresentable);
    }
    let added = requested - min;
    let steps = added / step + i128::from(added % step > 0);
    let rounded = min + step * steps;
    if rounded > MAX_UNITS { Err(BadCapacity::NotRepresentable) } else { Ok(rounded * unit) }
}

/// The unit in which steps are counted: thousandths if the gate is on and all numbers of the range have them exactly.
fn step_unit(range: &CapacityRange, fractional: bool) -> i128 {
    let exact = |quantity: &Quantity| {
        quantity.to_nano() % MILLI == 0 && (quantity.to_nano() / MILLI).unsigned_abs() <= MAX_UNITS.unsigned_abs()
    };
    let positive_step = range.step.is_none_or(|step| step.to_nano() >= MILLI);
    let all_exact = [&range.min, &range.max, &range.step].into_iter().flatten().all(exact);
    if fractional && all_exact && positive_step { MILLI } else { UNIT }
}

/// A number of units, rounded away from zero as Go's `Value()` does.
fn whole(nano: i128, unit: i128) -> i128 {
    nano / unit + if nano % unit == 0 { 0 } else { nano.signum() }
}

fn allows(policy: &RequestPolicy, amount: i128, fractional: bool) -> bool {
    if policy.default.is_some_and(|default| default.to_nano() == amount) {
        return true;
    }
    if let Some(range) = &policy.valid_range {
        if range.max.is_some_and(|max| amount > max.to_nano()) {
            return false;
        }
        let Some(step) = range.step.map(Quantity::to_nano) else { return true };
        let unit = step_unit(range, fractional);
        if unit == MILLI && amount % MILLI != 0 {
            return false;
        }
        let step = whole(step, unit);
        return step > 0 && (whole(amount, unit) - whole(range.min.map_or(0, Quantity::to_nano), unit)) % step == 0;
    }
    policy.valid_values.is_empty() || policy.valid_values.iter().any(|value| value.to_nano() == amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    fn range(min: &str, max: Option<&str>, step: Option<&str>) -> Option<CapacityRange> {
        Some(CapacityRange { min: Some(quantity(min)), max: max.map(quantity), step: step.map(quantity) })
    }

    /// What a request for `requested` of a capacity of 10 takes; None if the device cannot give it.
    fn taken(policy: Option<RequestPolicy>, requested: Option<&str>, fractional: bool) -> Option<i128> {
        let name = || QualifiedName::from("memory");
        let capacity =
            [(name(), DeviceCapacity { value: quantity("10"), request_policy: policy.map(Box::new) })].into();
        let requests = requested.map(|amount| (name(), quantity(amount))).into_iter().collect();
        match demand(&requests, &capacity, fractional).unwrap() {
            Demand::Amounts(amounts) => Some(amounts[0]),
            Demand::Unusable => None,
        }
    }

    fn units(amount: i128) -> Option<i128> {
        Some(amount * UNIT)
    }

    #[test]
    fn without_policy_a_request_takes_what_it_says_and_no_request_takes_all() {
        assert_eq!(taken(None, Some("3"), false), units(3));
        assert_eq!(taken(None, None, false), units(10));
        assert_eq!(taken(None, Some("11"), false), units(11), "what is too much is seen when it is added up");
    }

    #[test]
    fn ranges_round_up_from_the_least_in_steps_and_end_at_the_most() {
        let policy = |default| {
            Some(RequestPolicy {
                default: Some(quantity(default)),
                valid_values: vec![],
                valid_range: range("2", Some("8"), Some("3")),
            })
        };
        for (requested, expected) in [
            (Some("1"), units(2)),
            (Some("3"), units(5)),
            (Some("5500m"), units(8)),
            (Some("9"), None),
            (None, units(5)),
        ] {
            assert_eq!(taken(policy("5"), requested, false), expected, "{requested:?}");
        }
    }

    #[test]
    fn fractional_steps_count_in_thousandths_only_with_the_gate() {
        let policy = || {
            Some(RequestPolicy { default: None, valid_values: vec![], valid_range: range("500m", None, Some("500m")) })
        };
        assert_eq!(taken(policy(), Some("1200m"), true), Some(1_500 * MILLI));
        assert_eq!(taken(policy(), Some("1200m"), false), units(2));
    }

    #[test]
    fn listed_values_round_up_and_nothing_else_is_given() {
        let policy = || {
            Some(RequestPolicy { default: None, valid_values: vec![quantity("2"), quantity("4")], valid_range: None })
        };
        for (requested, expected) in [("1", units(2)), ("3", units(4)), ("4", units(4)), ("5", None)] {
            assert_eq!(taken(policy(), Some(requested), false), expected, "{requested}");
        }
    }

    #[test]
    fn a_capacity_that_the_device_lacks_makes_it_unusable() {
        let requests = [(QualifiedName::from("cores"), quantity("1"))].into();
        assert_eq!(demand(&requests, &BTreeMap::new(), false), Ok(Demand::Unusable));
    }

    #[test]
    fn amounts_that_cannot_be_are_named() {
        let negative = [(QualifiedName::from("memory"), quantity("-1"))].into();
        let capacity =
            [(QualifiedName::from("memory"), DeviceCapacity { value: quantity("10"), request_policy: None })].into();
        assert_eq!(demand(&negative, &capacity, true), Err(BadCapacity::Negative));
        let step = RequestPolicy { default: None, valid_values: vec![], valid_range: range("0", None, Some("5")) };
        let capacity = [(
            QualifiedName::from("memory"),
            DeviceCapacity { value: quantity("10"), request_policy: Some(Box::new(step)) },
        )]
        .into();
        let huge = [(QualifiedName::from("memory"), quantity("9223372036854775807"))].into();
        assert_eq!(demand(&huge, &capacity, false), Err(BadCapacity::NotRepresentable));
    }
}
