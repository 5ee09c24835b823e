//! Whether a machine that does not exist yet can be given labels that satisfy requirements.
//!
//! Karpenter's rule: a key that the machine's side does not mention is fine if it is one that providers set anyway (a
//! well-known label), or if the requirement can do without it. Any other key must be declared by the NodePool, since
//! nobody would set the label.

use std::fmt;

use super::set::{Requirements, first_by_name};
use crate::idset::IdSet;
use crate::intern::{Interner, KeyId};
use crate::spelling::edit_distance;

/// Why requirements cannot be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incompatible {
    /// The key; the first by name of those that fail for the reason given.
    pub key: KeyId,
    /// The reason.
    pub kind: IncompatibleKind,
}

/// The ways in which a key can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IncompatibleKind {
    /// Required, but the machine's side does not declare it.
    Undefined,
    /// Both sides restrict it and have no value in common.
    NoCommonValue,
}

impl Requirements {
    /// Whether a machine described by `self` can satisfy `other`. Keys in `allow_undefined` need not be declared.
    ///
    /// Differs: `exists-not-in`. Karpenter lets an undeclared key pass if the last operator on it is NotIn or
    /// DoesNotExist; here it passes if absence satisfies the requirement, which also holds for combinations such as
    /// Exists with NotIn.
    pub fn compatible(
        &self,
        other: &Self,
        allow_undefined: &IdSet<KeyId>,
        interner: &Interner,
    ) -> Result<(), Incompatible> {
        let undefined = other.iter().filter(|requirement| {
            !requirement.values.allows_absent()
                && !allow_undefined.contains(requirement.key)
                && !self.contains_key(requirement.key)
        });
        if let Some(key) = first_by_name(undefined.map(|requirement| requirement.key), interner) {
            return Err(Incompatible { key, kind: IncompatibleKind::Undefined });
        }
        self.intersects(other, interner).map_err(|key| Incompatible { key, kind: IncompatibleKind::NoCommonValue })
    }
}

impl Incompatible {
    /// The key that was probably meant, if the failing one is undefined and looks like a slip: the first by name of the
    /// allowed ones, else of those that `ours` declares.
    pub fn hint(&self, ours: &Requirements, allow_undefined: &IdSet<KeyId>, interner: &Interner) -> Option<KeyId> {
        if self.kind != IncompatibleKind::Undefined {
            return None;
        }
        let wanted = interner.key_name(self.key);
        let resembles = |&key: &KeyId| looks_like(wanted, interner.key_name(key));
        first_by_name(allow_undefined.iter().filter(resembles), interner)
            .or_else(|| first_by_name(ours.iter().map(|requirement| requirement.key).filter(resembles), interner))
    }

    /// Prints the reason in Karpenter's words. `ours` and `theirs` are the two sides that were compared.
    pub fn display<'a>(
        &'a self,
        ours: &'a Requirements,
        theirs: &'a Requirements,
        allow_undefined: &'a IdSet<KeyId>,
        interner: &'a Interner,
    ) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| match self.kind {
            IncompatibleKind::Undefined => {
                write!(f, "label {:?} does not have known values", interner.key_name(self.key))?;
                match self.hint(ours, allow_undefined, interner) {
                    Some(hint) => write!(f, " (typo of {:?}?)", interner.key_name(hint)),
                    None => Ok(()),
                }
            }
            IncompatibleKind::NoCommonValue => {
                write!(f, "key {}", interner.key_name(self.key))?;
                match (theirs.get(self.key), ours.get(self.key)) {
                    (Some(wanted), Some(offered)) => {
                        write!(f, ", {} not in {}", wanted.display(interner), offered.display(interner))
                    }
                    _ => f.write_str(", no common value"),
                }
            }
        })
    }
}

/// Karpenter's three signs of a slip: part of the known key, nearly the known key, or the known key with another
/// prefix.
fn looks_like(wanted: &str, known: &str) -> bool {
    let suffix = wanted.split_once('/').map_or(wanted, |(_, suffix)| suffix);
    wanted != known
        && !suffix.is_empty()
        && (known.contains(wanted) || known.ends_with(suffix) || edit_distance(wanted, known) < known.len() / 5)
}
