//! What was taken of some devices and counters at one time.

use super::{Amounts, ClusterLedger, Taken, Usage};
use crate::inventory::unit::{CounterKey, Unit};

/// What was taken of some devices and counters at one time.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Snapshot {
    /// Devices given out whole, certainly.
    in_base: Vec<Unit>,
    /// Devices given out whole by what is planned.
    withheld: Vec<Unit>,
    shares_in_base: Vec<(Unit, Amounts)>,
    shares_withheld: Vec<(Unit, Amounts)>,
    /// What is drawn of counters, over what devices in base draw.
    drawn: Vec<(CounterKey, i128)>,
}

impl Taken<'_> {
    pub(crate) fn snapshot(
        &self,
        devices: impl Iterator<Item = Unit>,
        counters: impl Iterator<Item = CounterKey>,
    ) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let base = &self.cluster.base;
        for key in devices {
            if base.dedicated.contains(&key) {
                snapshot.in_base.push(key);
            } else if self.is_dedicated(key) {
                snapshot.withheld.push(key);
            }
            let of_base = base.shares.get(&key).map(|(_, amounts)| amounts);
            if let Some(amounts) = of_base {
                snapshot.shares_in_base.push((key, amounts.clone()));
            }
            if let Some(amounts) = self.withheld_shares(key) {
                snapshot.shares_withheld.push((key, amounts));
            }
        }
        for counter in counters {
            let drawn = self.drawn(counter);
            if drawn != 0 {
                snapshot.drawn.push((counter, drawn));
            }
        }
        snapshot
    }
}

impl Snapshot {
    /// A ledger in which this is taken, and nothing else.
    pub(crate) fn ledger(&self) -> ClusterLedger {
        let mut ledger = ClusterLedger::default();
        ledger.base.dedicated.extend(&self.in_base);
        for (key, amounts) in &self.shares_in_base {
            ledger.base.shares.insert(*key, (1, amounts.clone()));
        }
        let bin = ledger.open();
        let mut usage = Usage::default();
        usage.dedicated.extend(&self.withheld);
        for (key, amounts) in &self.shares_withheld {
            usage.shares.insert(*key, (1, amounts.clone()));
        }
        usage.counters.extend(self.drawn.iter().copied());
        ledger.withhold(bin, usage);
        ledger
    }
}
