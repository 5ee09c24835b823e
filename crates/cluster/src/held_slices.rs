//! Devices of nodes whose drivers are being rolled out.
//!
//! A driver that is replaced takes its ResourceSlices away and publishes them again, or publishes them anew slice by
//! slice. If that counted, pods that wait for devices would get machines of their own within seconds, although the
//! devices come back. So the last complete slices of a pool on a node count for a while after the pool was lost
//! ([`HeldSlices::hold`]).
//!
//! Differs: `held-devices`. kube-scheduler does not see such devices; its pods wait for them as they wait for a node
//! that restarts.
//!
//! * A pool is complete if all slices of its newest generation are there. A complete pool describes itself, whatever it
//!   was before: devices that a driver takes out of it are gone at once.
//! * A driver that publishes a pool which the node did not have has described itself anew: none of its lost pools is
//!   held.
//! * The time runs from the first loss. It starts again only after the pool was complete for as long as it is held, so
//!   that a driver which publishes and withdraws every second is believed for that time once.
//!
//! Left out: pools that several nodes can use, which no single driver's end takes away.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_types::{DriverName, NodeScope, PoolName, ResourceSlice};
use model::{DurationMs, NodeName, Timestamp};

/// Slices by their objects' names.
type Slices = BTreeMap<Arc<str>, Arc<ResourceSlice>>;

/// The pools of nodes, each with what it was when it was last complete.
#[derive(Debug, Clone)]
pub struct HeldSlices {
    /// How long the slices of a lost pool count.
    timeout: DurationMs,
    drivers: BTreeMap<(NodeName, DriverName), BTreeMap<PoolName, Pool>>,
}

/// A pool of a driver on a node.
#[derive(Debug, Clone, Default)]
struct Pool {
    /// What is published.
    published: Slices,
    /// What was published when it was last complete; nothing if that was never seen, or does not count any more.
    complete: Slices,
    state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// It was never complete.
    #[default]
    Coming,
    /// It has been complete since then. The time of its last loss, if that may still count.
    Complete { since: Timestamp, lost: Option<Timestamp> },
    /// It is not complete any more. It was lost at these times, the first of them counts.
    Lost { first: Timestamp, last: Timestamp },
}

/// A driver whose devices on a node are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldDriver {
    /// The node.
    pub node: NodeName,
    /// The driver.
    pub driver: DriverName,
    /// Until when.
    pub until: Timestamp,
}

impl HeldSlices {
    /// Nothing published yet; lost pools are held for that long, not at all for zero.
    pub fn new(timeout: DurationMs) -> Self {
        Self { timeout, drivers: BTreeMap::new() }
    }

    /// Takes up that a slice came, changed or went, at that time.
    pub fn change(&mut self, before: Option<&Arc<ResourceSlice>>, after: Option<&Arc<ResourceSlice>>, now: Timestamp) {
        // What replaces a slice is there before the slice is gone, so that the pool was complete all the time.
        let same = before.is_some() && before.and_then(|slice| key(slice)) == after.and_then(|slice| key(slice));
        if let Some((of, pool)) = before.filter(|_| !same).and_then(|slice| key(slice))
            && let Some(known) = self.drivers.get_mut(&of).and_then(|pools| pools.get_mut(&pool))
        {
            known.published.remove(&before.map_or_else(Arc::default, |slice| Arc::clone(&slice.meta.name.name)));
            self.look(&of, &pool, now);
        }
        if let Some(after) = after
            && let Some((of, pool)) = key(after)
        {
            let known = self.drivers.entry(of.clone()).or_default().entry(pool.clone()).or_default();
            known.published.insert(Arc::clone(&after.meta.name.name), Arc::clone(after));
            self.look(&of, &pool, now);
        }
        self.forget_past(now);
    }

    /// Forgets a node that is gone.
    pub fn forget(&mut self, node: &NodeName) {
        self.drivers.retain(|(of, _), _| of != node);
    }

    /// Puts the last complete slices of lost pools in the place of what is left of them.
    pub fn hold(&self, slices: &mut BTreeMap<Arc<str>, Arc<ResourceSlice>>, now: Timestamp) {
        for (pool, _) in self.held_pools(now).map(|(_, _, pool, until)| (pool, until)) {
            for name in pool.published.keys() {
                slices.remove(name);
            }
            for (name, slice) in &pool.complete {
                // An object of that name may be another pool's by now.
                slices.entry(Arc::clone(name)).or_insert_with(|| Arc::clone(slice));
            }
        }
    }

    /// The drivers with a pool that is held at that time, by node and name.
    pub fn held(&self, now: Timestamp) -> Vec<HeldDriver> {
        let mut held: Vec<HeldDriver> = Vec::new();
        for (node, driver, _, until) in self.held_pools(now) {
            match held.last_mut().filter(|last| last.node == *node && last.driver == *driver) {
                Some(last) => last.until = last.until.max(until),
                None => held.push(HeldDriver { node: node.clone(), driver: driver.clone(), until }),
            }
        }
        held
    }

    fn held_pools(&self, now: Timestamp) -> impl Iterator<Item = (&NodeName, &DriverName, &Pool, Timestamp)> {
        self.drivers.iter().flat_map(move |((node, driver), pools)| {
            pools.values().filter_map(move |pool| {
                let State::Lost { first, .. } = pool.state else { return None };
                let until = first.saturating_add(self.timeout);
                (until > now && !pool.complete.is_empty()).then_some((node, driver, pool, until))
            })
        })
    }

    /// Sees whether a pool is complete now.
    fn look(&mut self, of: &(NodeName, DriverName), name: &PoolName, now: Timestamp) {
        let timeout = self.timeout;
        let Some(pools) = self.drivers.get_mut(of) else { return };
        let Some(pool) = pools.get_mut(name) else { return };
        let complete = newest_generation(&pool.published);
        let is_new = pool.state == State::Coming;
        pool.state = match (pool.state, complete.is_some()) {
            (State::Coming, false) => State::Coming,
            (State::Coming, true) => State::Complete { since: now, lost: None },
            (State::Complete { since, lost }, true) => State::Complete { since, lost },
            (State::Complete { since, lost }, false) => {
                let is_settled = since.saturating_add(timeout) <= now;
                State::Lost { first: lost.filter(|_| !is_settled).unwrap_or(now), last: now }
            }
            (State::Lost { first, .. }, true) => State::Complete { since: now, lost: Some(first) },
            (State::Lost { first, last }, false) => State::Lost { first, last },
        };
        let Some(complete) = complete else { return };
        pool.complete = complete;
        if is_new {
            for pool in pools.values_mut().filter(|pool| matches!(pool.state, State::Lost { .. })) {
                pool.complete = Slices::new();
            }
        }
    }

    /// Forgets pools of which nothing is left, once they may come back as new ones.
    fn forget_past(&mut self, now: Timestamp) {
        let timeout = self.timeout;
        let is_past = |pool: &Pool| match pool.state {
            State::Lost { last, .. } => last.saturating_add(timeout) <= now,
            State::Coming | State::Complete { .. } => true,
        };
        self.drivers.retain(|_, pools| {
            pools.retain(|_, pool| !(pool.published.is_empty() && is_past(pool)));
            !pools.is_empty()
        });
    }
}

/// Whose pool a slice is of, if it is of one node only.
fn key(slice: &ResourceSlice) -> Option<((NodeName, DriverName), PoolName)> {
    match &slice.node_scope {
        Some(NodeScope::Node(node)) => Some(((node.clone(), slice.driver.clone()), slice.pool.name.clone())),
        Some(NodeScope::Selector(_) | NodeScope::AllNodes | NodeScope::PerDevice) | None => None,
    }
}

/// The slices of the newest generation, if all are there.
fn newest_generation(slices: &Slices) -> Option<Slices> {
    let generation = slices.values().map(|slice| slice.pool.generation).max()?;
    let newest: Slices = slices
        .iter()
        .filter(|(_, slice)| slice.pool.generation == generation)
        .map(|(name, slice)| (Arc::clone(name), Arc::clone(slice)))
        .collect();
    let count = newest.values().next().map_or(0, |slice| slice.pool.resource_slice_count);
    (usize::try_from(count) == Ok(newest.len())).then_some(newest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TIMEOUT: DurationMs = DurationMs::from_seconds(300);

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1000)
    }

    /// A slice `pool-index` of `n1`, of a generation of so many.
    fn slice(pool: &str, index: usize, (generation, count): (i64, i64)) -> Arc<ResourceSlice> {
        let devices = json!([{"name": format!("d{index}-of-{generation}")}]);
        let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": format!("{pool}-{index}")},
            "spec": {"driver": "gpu.example.com", "nodeName": "n1", "devices": devices,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": count}}});
        Arc::new(ResourceSlice::from_json(&object).unwrap())
    }

    /// What is published, and what is held of it.
    struct Stage {
        held: HeldSlices,
        published: Slices,
    }

    impl Stage {
        fn new() -> Self {
            Self { held: HeldSlices::new(TIMEOUT), published: Slices::new() }
        }

        fn publish(&mut self, slice: &Arc<ResourceSlice>, seconds: i64) {
            let before = self.published.insert(Arc::clone(&slice.meta.name.name), Arc::clone(slice));
            self.held.change(before.as_ref(), Some(slice), at(seconds));
        }

        fn withdraw(&mut self, name: &str, seconds: i64) {
            let before = self.published.remove(name);
            self.held.change(before.as_ref(), None, at(seconds));
        }

        /// The devices that count.
        fn devices(&self, seconds: i64) -> Vec<String> {
            let mut slices = self.published.clone();
            self.held.hold(&mut slices, at(seconds));
            slices.values().flat_map(|slice| &slice.devices).map(|device| device.name.to_string()).collect()
        }
    }

    #[test]
    fn a_pool_that_vanishes_counts_for_the_timeout_and_not_after_it() {
        let mut stage = Stage::new();
        stage.publish(&slice("n1", 0, (1, 1)), 0);
        stage.withdraw("n1-0", 1000);
        assert_eq!(stage.devices(1000), ["d0-of-1"]);
        assert_eq!(stage.devices(1299), ["d0-of-1"]);
        assert_eq!(stage.held.held(at(1299))[0].until, at(1300));
        assert_eq!(stage.devices(1300), Vec::<String>::new());
        assert_eq!(stage.held.held(at(1300)), []);
    }

    #[test]
    fn a_generation_of_which_slices_are_missing_does_not_count_until_it_is_whole() {
        let mut stage = Stage::new();
        stage.publish(&slice("n1", 0, (1, 2)), 0);
        assert_eq!(stage.devices(0), ["d0-of-1"], "what was never complete is left as it is");
        stage.publish(&slice("n1", 1, (1, 2)), 0);
        stage.publish(&slice("n1", 0, (2, 2)), 1000);
        assert_eq!(stage.devices(1000), ["d0-of-1", "d1-of-1"]);
        stage.publish(&slice("n1", 1, (2, 2)), 1001);
        assert_eq!(stage.devices(1001), ["d0-of-2", "d1-of-2"]);
        assert_eq!(stage.held.held(at(1001)), []);
    }

    #[test]
    fn a_driver_that_publishes_and_withdraws_every_second_is_believed_for_the_timeout_once() {
        let mut stage = Stage::new();
        stage.publish(&slice("n1", 0, (1, 1)), 0);
        for second in (1000..1600).step_by(2) {
            stage.withdraw("n1-0", second);
            let held = !stage.devices(second).is_empty();
            assert_eq!(held, second < 1300, "after {second} s");
            stage.publish(&slice("n1", 0, (1, 1)), second + 1);
        }
        // It has settled: the next loss is a new one.
        stage.withdraw("n1-0", 3000);
        assert_eq!(stage.devices(3299), ["d0-of-1"]);
        assert_eq!(stage.devices(3300), Vec::<String>::new());
    }

    #[test]
    fn pools_that_go_one_by_one_are_held_until_the_driver_publishes_a_new_one() {
        let mut stage = Stage::new();
        stage.publish(&slice("a", 0, (1, 1)), 0);
        stage.publish(&slice("b", 0, (1, 1)), 0);
        stage.withdraw("a-0", 1000);
        stage.withdraw("b-0", 1001);
        assert_eq!(stage.devices(1001).len(), 2);
        stage.publish(&slice("c", 0, (7, 1)), 1002);
        assert_eq!(stage.devices(1002), ["d0-of-7"]);
    }

    #[test]
    fn nothing_of_a_node_that_is_gone_or_of_several_nodes_is_held() {
        let mut stage = Stage::new();
        stage.publish(&slice("n1", 0, (1, 1)), 0);
        stage.withdraw("n1-0", 1000);
        stage.held.forget(&"n1".into());
        assert_eq!(stage.devices(1000), Vec::<String>::new());

        let mut zonal = (*slice("zone", 0, (1, 1))).clone();
        zonal.node_scope = Some(NodeScope::AllNodes);
        stage.publish(&Arc::new(zonal), 0);
        stage.withdraw("zone-0", 1000);
        assert_eq!(stage.devices(1000), Vec::<String>::new());
    }

    #[test]
    fn what_is_past_is_forgotten() {
        let mut stage = Stage::new();
        stage.publish(&slice("n1", 0, (1, 1)), 0);
        stage.withdraw("n1-0", 1000);
        stage.publish(&slice("n2", 0, (1, 2)), 2000);
        let names: Vec<String> =
            stage.held.drivers.values().flat_map(|it| it.keys()).map(ToString::to_string).collect();
        assert_eq!(names, ["n2"]);
    }
}
