//! Where the built-in types are sold.
//!
//! The first line of the file lists the regions, each with the letters of its zones; every other line a type, and for
//! each region the set of zones that sell it: a hexadecimal number with a bit for each letter, the first the lowest.

use std::collections::BTreeMap;
use std::sync::LazyLock;

const ZONES: &str = include_str!("../../data/zones.txt");

struct Zones {
    /// By region: its place among the columns, and the letters of its zones.
    regions: BTreeMap<&'static str, (usize, &'static str)>,
    types: BTreeMap<&'static str, Vec<u32>>,
}

static PARSED: LazyLock<Zones> = LazyLock::new(|| parse(ZONES).expect("a test reads the built-in zones"));

/// The regions of which something is built in, ordered by name.
pub fn regions() -> impl Iterator<Item = &'static str> {
    PARSED.regions.keys().copied()
}

/// The names of the zones of a region that sell a type, in order; none where the region is not built in.
pub fn zones_of(instance_type: &str, region: &str) -> Vec<String> {
    let Some((column, letters)) = PARSED.regions.get(region) else { return Vec::new() };
    let set = PARSED.types.get(instance_type).and_then(|sets| sets.get(*column)).copied().unwrap_or(0);
    let sold = letters.chars().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
    sold.map(|(_, letter)| format!("{region}{letter}")).collect()
}

fn parse(text: &'static str) -> Option<Zones> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let header = lines.next()?.strip_prefix("regions ")?;
    let mut regions = BTreeMap::new();
    for (column, word) in header.split(' ').enumerate() {
        let (region, letters) = word.split_once(':')?;
        regions.insert(region, (column, letters));
    }
    let mut types = BTreeMap::new();
    for line in lines {
        let (name, sets) = line.split_once(' ')?;
        let sets: Option<Vec<_>> = sets.split(' ').map(|set| u32::from_str_radix(set, 16).ok()).collect();
        types.insert(name, sets.filter(|sets| sets.len() == regions.len())?);
    }
    Some(Zones { regions, types })
}
