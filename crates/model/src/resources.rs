//! Amounts of resources as dense integer vectors.
//!
//! CPU is counted in milli-CPU, every other resource in whole units (bytes, pieces), the units kube-scheduler works
//! in. A resource that is not set is zero.

use std::fmt;

use smallvec::SmallVec;

use crate::id::Id;
use crate::intern::{Interner, ResourceId};
use crate::quantity::{self, Format, Quantity};

/// An amount for each resource.
///
/// Stored without trailing zeros, so equality and hash see amounts only.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct ResourceVec {
    amounts: SmallVec<[i64; 8]>,
}

/// A sum or difference of amounts left the range of `i64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("amount of a resource out of range")]
pub struct Overflow {
    /// The resource.
    pub resource: ResourceId,
}

impl ResourceVec {
    /// Nothing of anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// The amount of `resource`.
    pub fn get(&self, resource: ResourceId) -> i64 {
        self.amounts.get(resource.index()).copied().unwrap_or(0)
    }

    /// Sets the amount of `resource`.
    pub fn set(&mut self, resource: ResourceId, amount: i64) {
        let index = resource.index();
        if index >= self.amounts.len() {
            if amount == 0 {
                return;
            }
            self.amounts.resize(index + 1, 0);
        }
        if let Some(slot) = self.amounts.get_mut(index) {
            *slot = amount;
        }
        self.trim();
    }

    /// Sets the amount of `resource` from a quantity: milli-CPU for [`ResourceId::CPU`], whole units otherwise;
    /// fractions are rounded away from zero.
    pub fn set_quantity(&mut self, resource: ResourceId, quantity: &Quantity) -> Result<(), quantity::Error> {
        let amount = if resource == ResourceId::CPU { quantity.milli_value()? } else { quantity.value()? };
        self.set(resource, amount);
        Ok(())
    }

    /// The amount of `resource` as a quantity: decimal for CPU and counts, binary for memory and storage.
    pub fn quantity(&self, resource: ResourceId) -> Quantity {
        let amount = self.get(resource);
        if resource == ResourceId::CPU {
            return Quantity::from_milli(amount, Format::DecimalSi);
        }
        let format = if resource == ResourceId::MEMORY || resource == ResourceId::EPHEMERAL_STORAGE {
            Format::BinarySi
        } else {
            Format::DecimalSi
        };
        // Only i64::MIN has no quantity, one off the one given for it.
        Quantity::from_i64(amount.max(-i64::MAX), format).unwrap_or(Quantity::ZERO)
    }

    /// Adds `other`; on overflow nothing is changed.
    pub fn checked_add_assign(&mut self, other: &Self) -> Result<(), Overflow> {
        *self = self.zip(other, i64::checked_add)?;
        Ok(())
    }

    /// Subtracts `other`, below zero if need be; on overflow nothing is changed.
    pub fn checked_sub_assign(&mut self, other: &Self) -> Result<(), Overflow> {
        *self = self.zip(other, i64::checked_sub)?;
        Ok(())
    }

    /// Adds `count` times `other`; on overflow nothing is changed.
    pub fn checked_add_multiple(&mut self, other: &Self, count: i64) -> Result<(), Overflow> {
        *self = self.zip(other, |a, b| b.checked_mul(count).and_then(|product| a.checked_add(product)))?;
        Ok(())
    }

    /// Adds `other`, stopping at the ends of `i64`.
    pub fn saturating_add_assign(&mut self, other: &Self) {
        self.zip_assign(other, i64::saturating_add);
    }

    /// Subtracts `other`, below zero if need be, stopping at the ends of `i64`.
    pub fn saturating_sub_assign(&mut self, other: &Self) {
        self.zip_assign(other, i64::saturating_sub);
    }

    /// Raises each amount to that of `other` if it is lower.
    pub fn max_assign(&mut self, other: &Self) {
        self.zip_assign(other, i64::max);
    }

    /// Lowers each amount to that of `other` if it is higher.
    pub fn min_assign(&mut self, other: &Self) {
        self.zip_assign(other, i64::min);
    }

    /// Whether each amount above zero is at most that of `total`. A resource that is not asked for fits even where
    /// `total` is overdrawn, as in kube-scheduler.
    pub fn fits_in(&self, total: &Self) -> bool {
        self.amounts
            .iter()
            .enumerate()
            .all(|(index, &amount)| amount <= 0 || amount <= total.amounts.get(index).copied().unwrap_or(0))
    }

    /// The resources that do not fit in `total`, in id order; see [`ResourceVec::fits_in`].
    pub fn exceeding<'a>(&'a self, total: &'a Self) -> impl Iterator<Item = ResourceId> + 'a {
        self.iter()
            .filter(|&(resource, amount)| amount > 0 && amount > total.get(resource))
            .map(|(resource, _)| resource)
    }

    /// The first resource by *name* that does not fit in `total`.
    pub fn first_exceeding(&self, total: &Self, interner: &Interner) -> Option<ResourceId> {
        self.exceeding(total).min_by_key(|&resource| interner.resource_name(resource))
    }

    /// How often `self` fits into `total`, at most `limit`.
    pub fn times_in(&self, total: &Self, limit: u32) -> u32 {
        self.iter().filter(|&(_, amount)| amount > 0).fold(limit, |times, (resource, amount)| {
            let here = total.get(resource).max(0) / amount;
            times.min(u32::try_from(here).unwrap_or(u32::MAX))
        })
    }

    /// The amounts in id order, up to the last that is not zero.
    pub fn as_slice(&self) -> &[i64] {
        &self.amounts
    }

    /// The amounts that are not zero, in id order.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceId, i64)> + '_ {
        self.amounts
            .iter()
            .enumerate()
            .filter(|&(_, &amount)| amount != 0)
            .map(|(index, &amount)| (ResourceId::from_index(index), amount))
    }

    /// Whether every amount is zero.
    pub fn is_zero(&self) -> bool {
        self.amounts.is_empty()
    }

    /// Whether some amount is below zero.
    pub fn has_negative(&self) -> bool {
        self.amounts.iter().any(|&amount| amount < 0)
    }

    /// Prints `cpu: 500m, memory: 1Gi`, sorted by name.
    pub fn display<'a>(&'a self, interner: &'a Interner) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            let mut names: Vec<_> =
                self.iter().map(|(resource, _)| (interner.resource_name(resource), resource)).collect();
            names.sort_unstable();
            for (index, (name, resource)) in names.into_iter().enumerate() {
                let separator = if index == 0 { "" } else { ", " };
                write!(f, "{separator}{name}: {}", self.quantity(resource))?;
            }
            Ok(())
        })
    }

    fn zip(&self, other: &Self, op: impl Fn(i64, i64) -> Option<i64>) -> Result<Self, Overflow> {
        let len = self.amounts.len().max(other.amounts.len());
        let mut amounts = SmallVec::with_capacity(len);
        for index in 0..len {
            let resource = ResourceId::from_index(index);
            amounts.push(op(self.get(resource), other.get(resource)).ok_or(Overflow { resource })?);
        }
        let mut sum = Self { amounts };
        sum.trim();
        Ok(sum)
    }

    fn zip_assign(&mut self, other: &Self, op: impl Fn(i64, i64) -> i64) {
        if self.amounts.len() < other.amounts.len() {
            self.amounts.resize(other.amounts.len(), 0);
        }
        let others = other.amounts.iter().copied().chain(std::iter::repeat(0));
        for (amount, other) in self.amounts.iter_mut().zip(others) {
            *amount = op(*amount, other);
        }
        self.trim();
    }

    fn trim(&mut self) {
        let len = self.amounts.iter().rposition(|&amount| amount != 0).map_or(0, |last| last + 1);
        self.amounts.truncate(len);
    }
}

impl FromIterator<(ResourceId, i64)> for ResourceVec {
    fn from_iter<T: IntoIterator<Item = (ResourceId, i64)>>(amounts: T) -> Self {
        let mut vec = Self::new();
        for (resource, amount) in amounts {
            vec.set(resource, amount);
        }
        vec
    }
}

impl fmt::Debug for ResourceVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
