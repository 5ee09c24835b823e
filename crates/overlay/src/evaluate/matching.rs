//! Which instance types and offerings an overlay selects.
//!
//! Overlays ask for the same few labels over and over, and types share their values. So each label's values are looked
//! up once for a list of types ([`Columns`]), and an overlay's requirement is checked once for each different set of
//! values.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use cloudprovider::{InstanceType, Offering};

use super::{Pool, value_of_pool};
use crate::Overlay;

/// The values of labels that types may have, by list of types and label.
#[derive(Debug, Default)]
pub(super) struct Columns<'a>(BTreeMap<(usize, usize, &'a str), Rc<Column<'a>>>);

/// The values of one label.
#[derive(Debug, Default)]
struct Column<'a> {
    /// The different ones.
    values: Vec<&'a BTreeSet<String>>,
    /// The set of each type, by position; `None` if the type does not define the label.
    of_type: Vec<Option<usize>>,
}

impl<'a> Columns<'a> {
    fn get(&mut self, types: &'a [Arc<InstanceType>], key: &'a str) -> Rc<Column<'a>> {
        let column = self.0.entry((types.as_ptr().addr(), types.len(), key));
        Rc::clone(column.or_insert_with(|| Rc::new(Column::new(types, key))))
    }
}

impl<'a> Column<'a> {
    fn new(types: &'a [Arc<InstanceType>], key: &str) -> Self {
        let mut column = Self::default();
        let mut places: BTreeMap<&BTreeSet<String>, usize> = BTreeMap::new();
        for instance_type in types {
            let place = instance_type.requirements.get(key).map(|values| {
                *places.entry(values).or_insert_with(|| {
                    column.values.push(values);
                    column.values.len() - 1
                })
            });
            column.of_type.push(place);
        }
        column
    }
}

/// A label that an overlay asks for.
struct Asked<'a> {
    key: &'a str,
    of_pool: Option<&'a str>,
    column: Rc<Column<'a>>,
    /// For each different set of values: whether the overlay allows one of them.
    is_allowed: Vec<bool>,
}

/// The types that match, by position, each with the positions of the offerings that do.
pub(super) fn matches<'a>(
    overlay: &'a Overlay,
    pool: &Pool<'a>,
    columns: &mut Columns<'a>,
) -> Vec<(usize, Vec<usize>)> {
    let mut asked = Vec::new();
    for key in overlay.requirements.keys() {
        let of_pool = value_of_pool(pool, key);
        let allows = |value: Option<&str>| overlay.requirements.allow_value(key, value);
        // What the NodePool itself says must match, whatever the type.
        if of_pool.is_some() && !allows(of_pool) {
            return Vec::new();
        }
        let column = columns.get(pool.types, key);
        let is_allowed = column.values.iter().map(|values| match of_pool {
            Some(value) => values.contains(value),
            None if values.is_empty() => allows(None),
            None => values.iter().any(|value| allows(Some(value))),
        });
        let is_allowed = is_allowed.collect();
        asked.push(Asked { key, of_pool, column, is_allowed });
    }
    let mut found = Vec::new();
    for (place, instance_type) in pool.types.iter().enumerate() {
        if asked.iter().all(|asked| allows_type(overlay, asked, place, instance_type)) {
            let offerings = instance_type.offerings.iter().enumerate();
            let matching = offerings.filter(|(_, offering)| allows_offering(overlay, &asked, offering));
            let matching: Vec<usize> = matching.map(|(offering, _)| offering).collect();
            if !matching.is_empty() {
                found.push((place, matching));
            }
        }
    }
    found
}

/// Whether a machine of that type may have a value that the overlay asks for. A label that neither the type nor the
/// NodePool defines is absent.
fn allows_type(overlay: &Overlay, asked: &Asked<'_>, place: usize, instance_type: &InstanceType) -> bool {
    match (asked.column.of_type.get(place).copied().flatten(), asked.of_pool) {
        (Some(values), _) => asked.is_allowed.get(values).copied().unwrap_or(false),
        (None, Some(_)) => true,
        (None, None) => {
            let allows = |value: Option<&str>| overlay.requirements.allow_value(asked.key, value);
            let labels = instance_type.offerings.iter().filter_map(|offering| offering.label(asked.key));
            let mut labels = labels.peekable();
            match labels.peek() {
                None => allows(None),
                Some(_) => labels.any(|value| allows(Some(value))),
            }
        }
    }
}

/// Whether the labels that the offering decides satisfy the overlay's requirements.
fn allows_offering(overlay: &Overlay, asked: &[Asked<'_>], offering: &Offering) -> bool {
    let meets = |key: &str, value: &str| overlay.requirements.allow_value(key, Some(value));
    asked.iter().all(|asked| offering.label(asked.key).is_none_or(|value| meets(asked.key, value)))
}
