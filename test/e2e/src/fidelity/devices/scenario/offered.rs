//! What machines of a scenario offer, so that pods claim what there is.

use super::{Family, Writer, ZONES};

/// What the machines of one overlay publish.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Offered {
    pub(super) gpus: Gpus,
    /// GPUs of another model, which are larger and share no roots with cards.
    pub(super) other_gpus: Gpus,
    pub(super) nics: u64,
    pub(super) boards: u64,
    /// Whether boards can be had by the quarter.
    pub(super) has_quarters: bool,
    pub(super) shared: u64,
    pub(super) advanced: u64,
}

/// GPUs of one model.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gpus {
    pub(super) model: &'static str,
    pub(super) count: u64,
    pub(super) is_tainted: bool,
}

impl Offered {
    /// How many devices of a family each machine has for itself.
    fn count(&self, family: Family) -> u64 {
        match family {
            Family::Gpu => self.gpus.count,
            Family::Nic => self.nics,
            Family::Partition => self.boards,
            Family::Shared => self.shared,
            Family::Advanced => self.advanced,
            Family::Link | Family::Attached => 0,
        }
    }
}

/// Devices of zones, each of which has a number of them whatever machines come.
#[derive(Debug, Default)]
pub(super) struct OfZones(Vec<(Family, &'static str, u64)>);

impl OfZones {
    pub(super) fn add(&mut self, family: Family, zones: &[&'static str], each: u64) {
        self.0.extend(zones.iter().map(|zone| (family, *zone, each)));
    }

    fn of(&mut self, family: Family, zone: Option<&str>) -> impl Iterator<Item = &mut u64> {
        let is_it = move |entry: &&mut (Family, &'static str, u64)| {
            entry.0 == family && zone.is_none_or(|zone| entry.1 == zone)
        };
        self.0.iter_mut().filter(is_it).map(|(_, _, left)| left)
    }

    /// How many pods that want so many each get them in that zone, or in all of them; `None` if there is no end to
    /// them.
    pub(super) fn pods(&mut self, family: Family, each: u64, zone: Option<&str>) -> Option<u64> {
        let is_limited = self.0.iter().any(|(known, ..)| *known == family);
        (is_limited && each > 0).then(|| self.of(family, zone).map(|left| *left / each).sum())
    }

    pub(super) fn take(&mut self, family: Family, each: u64, zone: Option<&str>, pods: u64) {
        let mut pods = if each == 0 { 0 } else { pods };
        for left in self.of(family, zone) {
            let here = pods.min(left.checked_div(each).unwrap_or(0));
            *left -= here * each;
            pods -= here;
        }
    }
}

impl Writer {
    /// Whether the DaemonSet's pod takes a device of a family on each machine.
    pub(super) fn held(&self, family: Family) -> u64 {
        u64::from(self.held_by_agent == Some(family))
    }

    /// Whether each machine has a device of the family beside the one that the DaemonSet's pod would take.
    pub(super) fn can_spare(&self, family: Family) -> bool {
        self.offered.iter().all(|offered| offered.count(family) > 1)
    }

    /// Zones of the NodePool's machines, of those that pods ask for.
    pub(super) fn zones(&self) -> Vec<&'static str> {
        ZONES.into_iter().filter(|zone| self.pool_zones.as_ref().is_none_or(|zones| zones.contains(zone))).collect()
    }

    /// Families of which a pod may still want devices in that zone.
    pub(super) fn families_left(&mut self, zone: Option<&str>) -> Vec<Family> {
        let left = |family: &Family| self.of_zones.pods(*family, 1, zone).is_none_or(|pods| pods > 0);
        self.families.iter().copied().filter(left).collect()
    }
}
