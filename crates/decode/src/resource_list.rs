//! Lists of resources: sums in exact arithmetic, rounded once at the end.
//!
//! CPU ends in milli-CPU and everything else in whole units, rounded up, as kube-scheduler counts. The API server
//! rounds each stored amount up to thousandths; manifests that never met an API server are rounded here the same way.

use std::collections::BTreeMap;

use model::{Interner, Quantity, ResourceId, ResourceVec, quantity};

use crate::error::{Problem, Reason};
use crate::field::Field;

const NANO_PER_MILLI: i128 = 1_000_000;
const MILLI_PER_UNIT: i128 = 1000;

/// Amounts by resource name, in thousandths. A resource that is listed with zero differs from one that is not listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourceList<'v> {
    milli: BTreeMap<&'v str, i128>,
}

impl<'v> ResourceList<'v> {
    /// Reads a map from resource to quantity.
    pub(crate) fn decode(list: &Field<'v, '_>) -> Result<Self, Problem> {
        let mut milli = BTreeMap::new();
        for (name, amount) in list.entries()? {
            if name.is_empty() {
                return Err(amount.problem(Reason::Missing));
            }
            let Some(quantity) = amount.quantity()? else { continue };
            milli.insert(
                name,
                quantity.to_nano().div_euclid(NANO_PER_MILLI) + i128::from(quantity.to_nano() % NANO_PER_MILLI != 0),
            );
        }
        Ok(Self { milli })
    }

    /// These amounts, in thousandths.
    pub(crate) fn from_milli(milli: BTreeMap<&'v str, i128>) -> Self {
        Self { milli }
    }

    /// The amounts in thousandths.
    pub(crate) fn into_milli(self) -> BTreeMap<&'v str, i128> {
        self.milli
    }

    /// Sets one entry to that of `other`, if it has it.
    pub(crate) fn copy_entry(&mut self, name: &'v str, other: &Self) {
        if let Some(&amount) = other.milli.get(name) {
            self.milli.insert(name, amount);
        }
    }

    /// Takes from `other` what is not listed here.
    pub(crate) fn default_to(&mut self, other: &Self) {
        for (&name, &amount) in &other.milli {
            self.milli.entry(name).or_insert(amount);
        }
    }

    /// Adds `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        for (&name, &amount) in &other.milli {
            let sum = self.milli.entry(name).or_insert(0);
            *sum = sum.saturating_add(amount);
        }
    }

    /// Raises each amount to that of `other`.
    pub(crate) fn max(&mut self, other: &Self) {
        for (&name, &amount) in &other.milli {
            let most = self.milli.entry(name).or_insert(amount);
            *most = amount.max(*most);
        }
    }

    /// The names listed.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'v str> + '_ {
        self.milli.keys().copied()
    }

    /// The amounts as the planner counts them. `field` is blamed for a total that no machine has.
    pub(crate) fn to_vec(&self, field: &Field<'_, '_>, interner: &mut Interner) -> Result<ResourceVec, Problem> {
        let mut vec = ResourceVec::new();
        for (&name, &milli) in &self.milli {
            let resource = interner.resource(name);
            let amount = if resource == ResourceId::CPU {
                milli
            } else {
                milli.div_euclid(MILLI_PER_UNIT) + i128::from(milli % MILLI_PER_UNIT != 0)
            };
            // A quarter of the range is left free, so that sums over the pods of a node cannot leave it.
            let amount = i64::try_from(amount)
                .ok()
                .filter(|&amount| amount <= i64::MAX / 4)
                .ok_or_else(|| field.problem(Reason::TotalOutOfRange(name.to_owned())))?;
            vec.set(resource, amount);
        }
        Ok(vec)
    }
}
/// Adds one resource to a vector; amounts below zero are errors.
pub fn set(vec: &mut ResourceVec, name: &str, amount: &Quantity, interner: &mut Interner) -> Result<(), Reason> {
    if amount.sign() < 0 {
        return Err(Reason::NegativeQuantity(amount.to_string()));
    }
    let resource = interner.resource(name);
    vec.set_quantity(resource, amount)?;
    if vec.get(resource) > i64::MAX / 4 {
        return Err(quantity::Error::OutOfRange.into());
    }
    Ok(())
}
