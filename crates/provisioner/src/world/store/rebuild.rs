//! Getting rid of names that nothing uses any more.
//!
//! The interner only grows, and each Job, ReplicaSet and pod brings names of its own. So once it holds several times
//! the names that it needed when it was last built, the store is built anew beside the old one: a second set of watches
//! fills a second store with an interner of its own; when all kinds are listed, its state takes the place of the old
//! one, and the old watches end. Controllers notice nothing but changes they had not seen yet.
//!
//! What a controller wrote into the old store by itself (NodeClaims and NodePools only) is carried over if the new
//! lists are older; should it have been deleted meanwhile, the old watches, which run on for [`GRACE`], say so.

use std::sync::Arc;
use std::time::Duration;

use api::{NodeClaim, NodePool};
use cloudprovider::NodeClassKind;
use parking_lot::RwLock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::object::Stored;
use super::{ClusterStore, Delta, State, Watches, Whole};

/// Below this many names nothing is done: about ten megabytes.
const MIN_NAMES: usize = 100_000;
/// How many times the names of the last build there must be.
const GROWTH: usize = 4;
/// How often the interner is looked at.
const PERIOD: Duration = Duration::from_secs(60);
/// Longest that the new lists may take.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Longest that building a store anew may take before it counts as hanging.
const BOUND: Duration = Duration::from_secs(420);
/// How long old watches go on after the change.
const GRACE: Duration = Duration::from_secs(10);

/// The store that a set of watches fills.
#[derive(Debug)]
pub struct Feed(RwLock<Arc<ClusterStore>>);

impl Feed {
    /// Fills that store.
    pub fn new(store: Arc<ClusterStore>) -> Self {
        Self(RwLock::new(store))
    }

    /// The store, which stays the one while `write` runs.
    pub(super) fn with<R>(&self, write: impl FnOnce(&ClusterStore) -> R) -> R {
        write(&self.0.read())
    }

    /// From now on fills `store`, which takes over what was filled before.
    fn redirect(&self, store: &Arc<ClusterStore>) {
        let mut target = self.0.write();
        let state = target.snapshot();
        store.replace(state);
        *target = Arc::clone(store);
    }
}

/// Watches every kind until stopped, and builds the store anew when that is worth it.
pub async fn keep_watching(watches: Watches, store: Arc<ClusterStore>, node_classes: Vec<NodeClassKind>) {
    let stop = watches.stop.clone();
    let mut current = start(&watches, &store, &node_classes);
    let beat = watches.beats.beat("store rebuild", BOUND);
    let mut ticks = tokio::time::interval(PERIOD);
    loop {
        beat.due_in(PERIOD);
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => break,
        }
        beat.busy();
        if !store.has_dead_names() {
            continue;
        }
        let beside = Arc::new(ClusterStore::supervised(watches.supervision.clone()));
        let next = start(&watches, &beside, &node_classes);
        match tokio::time::timeout(TIMEOUT, beside.wait_until_synced()).await {
            Ok(()) => {
                let before = store.read().interner.value_count();
                next.feed.redirect(&store);
                let after = store.read().interner.value_count();
                info!(before, after, "rebuilt the store to drop unused names");
                tokio::time::sleep(GRACE).await;
                end(std::mem::replace(&mut current, next)).await;
            }
            Err(_) => {
                warn!(timeout = ?TIMEOUT, "could not rebuild the store in time, trying again later");
                end(next).await;
            }
        }
    }
    end(current).await;
}

/// One set of watches.
struct Running {
    feed: Arc<Feed>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

fn start(watches: &Watches, store: &Arc<ClusterStore>, node_classes: &[NodeClassKind]) -> Running {
    let (feed, stop) = (Arc::new(Feed::new(Arc::clone(store))), watches.stop.child_token());
    let mut own = watches.clone();
    own.feed = Arc::clone(&feed);
    own.stop = stop.clone();
    Running { tasks: own.start(node_classes), feed, stop }
}

async fn end(mut running: Running) {
    running.stop.cancel();
    running.tasks.shutdown().await;
}

impl ClusterStore {
    /// Whether most names are likely to be unused.
    fn has_dead_names(&self) -> bool {
        let state = self.read();
        let names = state.interner.value_count();
        debug!(name_count = names, at_last_build = state.names_when_built, "counted the names in the store");
        state.is_synced() && names > MIN_NAMES && names > state.names_when_built.saturating_mul(GROWTH)
    }

    /// Puts `next`, a state of the same cluster, in place of this one, and tells what differs.
    pub(super) fn replace(&self, mut next: State) {
        let _whole = Whole(&self.supervision);
        next.names_when_built = next.interner.value_count();
        let mut state = self.state.write();
        next.epoch = state.epoch + 1;
        next.bury_all(&state);
        next.kubernetes = next.kubernetes.or(state.kubernetes);
        carry_over::<NodeClaim>(&state, &mut next);
        carry_over::<NodePool>(&state, &mut next);
        let before = std::mem::replace(&mut *state, next);
        let state: &State = &state;
        self.tell_differences(&before, state);
    }

    pub(super) fn tell_difference<T: Stored>(&self, before: &State, after: &State) {
        let (old, new) = (T::table(before), T::table(after));
        for (key, object) in new.iter() {
            if old.revision(key) != new.revision(key) {
                self.subscribers.read().notify::<T>(&Delta { key, before: old.get(key), after: Some(object) }, after);
            }
        }
        for (key, object) in old.iter().filter(|(key, _)| !new.contains(key)) {
            self.subscribers.read().notify::<T>(&Delta { key, before: Some(object), after: None }, after);
        }
    }
}

/// Brings objects over that are newer than anything of their kind in `next`. They hold no interned names.
fn carry_over<T: Stored>(state: &State, next: &mut State) {
    let table = T::table(next);
    let newest = table.keys().filter_map(|key| table.revision(key)).map(|it| it.resource_version).max().unwrap_or(0);
    for (key, object) in T::table(state).iter() {
        let Some(revision) = T::table(state).revision(key).filter(|revision| revision.resource_version > newest) else {
            continue;
        };
        if next.is_buried(T::KIND, &revision.uid) {
            continue;
        }
        if let Some(before) = T::table_mut(next).insert(key.clone(), Arc::clone(object), revision.clone()) {
            T::reindex(next, before.as_ref(), Some(object));
        }
    }
}
