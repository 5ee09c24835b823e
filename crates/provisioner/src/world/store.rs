//! What the controller knows about the cluster: one table per kind, kept up to date by one watch per kind.
//!
//! The tables hold pruned objects behind `Arc`s, and indexes that are updated in the same step. [`ClusterStore::write`]
//! is synchronous and needs no runtime, so tests apply objects and read the answer. Two ways to read:
//!
//! * [`ClusterStore::read`]: a guard for a few look-ups. It blocks writers and cannot be held across an `await`.
//! * [`ClusterStore::snapshot`]: the whole state as of now, to keep as long as needed. Cheap; but the next write to a
//!   table that a snapshot still holds copies that table's map (pointers, not objects), so a snapshot is for planning,
//!   not for every reconcile.
//!
//! Whoever must act on a change subscribes with [`ClusterStore::on`] and puts the keys it is interested in on its
//! own work queue; queues hold a key once, so nothing here grows with the number of changes.
//!
//! Differs: `cluster-sync`. Karpenter's cluster state counts as synced only while no NodeClaim is launching, so one
//! slow launch stops all planning. Here synced means that every watch has delivered its first list; a launching
//! NodeClaim is planned with as the machine that it will become.

use std::fmt;
use std::sync::Arc;

use decode::limit_range::TemplateResources;
use model::Interner;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::runtime::supervision::Supervision;

pub mod change;
mod follow;
pub mod gates;
pub mod index;
pub mod kinds;
pub mod object;
mod pages;
pub mod raw;
pub mod rebuild;
pub mod state;
pub mod table;
#[cfg(test)]
pub(crate) mod test_objects;
pub mod watch;

pub use change::Delta;
use change::Subscribers;
pub use index::Index;
pub use kinds::{Kept, Kind};
pub use object::{
    CsiNode, Namespace, NodeClass, NodeClassKey, NodeRecord, PodGroupRecord, Revision, Stored, VolumeAttachment,
};
pub use raw::RawObject;
pub use state::State;
pub use table::Table;
pub use watch::Watches;

/// The cluster as the controller knows it. See the [module](self).
pub struct ClusterStore {
    state: RwLock<State>,
    subscribers: RwLock<Subscribers>,
    synced: tokio::sync::watch::Sender<bool>,
    /// Told when a change is left half done.
    supervision: Supervision,
}

impl ClusterStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::supervised(Supervision::default())
    }

    /// An empty store that tells when a panic has left a change of it half done: an index that was not updated, or a
    /// subscriber that was not told. Whose panic it is does not matter, and a reconciler's is no failure otherwise.
    pub fn supervised(supervision: Supervision) -> Self {
        Self {
            supervision,
            state: RwLock::new(State::default()),
            subscribers: RwLock::default(),
            synced: tokio::sync::watch::Sender::new(false),
        }
    }

    /// The state for a few look-ups. Do not ask for it twice at the same time on one thread.
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// The state as of now, to keep.
    pub fn snapshot(&self) -> State {
        self.state.read().clone()
    }

    /// Calls `notify` after every change of an object of this kind, with the state that the change is part of. It runs
    /// inside the write, so it only computes keys and puts them on a queue; it must not touch the store. Who subscribes
    /// first is told first.
    pub fn on<T: Stored>(&self, notify: impl Fn(&Delta<'_, T::Key, T>, &State) + Send + Sync + 'static) {
        self.subscribers.write().add(notify);
    }

    /// As [`Self::on`], for several kinds of which no more matters than that something has changed.
    pub fn on_any_of(&self, kinds: &[Kind], notify: impl Fn(Kind, &State) + Send + Sync + 'static) {
        self.subscribers.write().add_to_all(kinds, notify);
    }

    /// Stores an object, unless a newer revision of it is known or it is known to be deleted. Says whether it was
    /// stored.
    ///
    /// Besides the watches, whoever has just created or patched an object stores the API server's answer here, so that
    /// its own next look sees it.
    pub fn apply<T: Stored>(&self, object: T, revision: Revision) -> bool {
        self.apply_shared(Arc::new(object), revision)
    }

    /// Applies an object that is shared already.
    pub fn apply_shared<T: Stored>(&self, object: Arc<T>, revision: Revision) -> bool {
        let mut state = self.state.write();
        self.apply_to(&mut state, object, revision)
    }

    /// Stores an object that is made with the store's interner.
    ///
    /// # Errors
    /// Those of `make`; nothing is stored then.
    pub fn apply_with<T: Stored, E>(
        &self,
        revision: Revision,
        make: impl FnOnce(&mut Interner) -> Result<T, E>,
    ) -> Result<bool, E> {
        let mut state = self.state.write();
        let object = make(Arc::make_mut(&mut state.interner))?;
        Ok(self.apply_to(&mut state, Arc::new(object), revision))
    }

    /// Whether this state of the object, or a later one, is stored.
    pub(crate) fn has<T: Stored>(&self, key: &T::Key, revision: &Revision) -> bool {
        T::table(&self.state.read()).revision(key).is_some_and(|known| !revision.supersedes(known))
    }

    /// Adds names that are to mean the same in every later snapshot of the same epoch, which is given back too.
    pub fn intern<R>(&self, add: impl FnOnce(&mut Interner) -> R) -> (R, u64) {
        let mut state = self.state.write();
        (add(Arc::make_mut(&mut state.interner)), state.epoch)
    }

    /// Notes what devices read of a pod; `None` if it can't want any. Noted before the pod itself is stored, so that no
    /// plan sees a pod with claims without them; forgotten with the pod.
    pub(crate) fn note_devices(&self, pod: &model::Uid, devices: Option<dra_types::Pod>) {
        let mut state = self.state.write();
        match devices {
            Some(devices) => {
                Arc::make_mut(&mut state.device_pods).insert(pod.clone(), Arc::new(devices));
            }
            None if state.device_pods.contains_key(pod) => {
                Arc::make_mut(&mut state.device_pods).remove(pod);
            }
            None => {}
        }
    }

    /// Notes what the containers of a DaemonSet's template say of their resources. Forgotten with the DaemonSet.
    pub(crate) fn note_template_resources(&self, daemon_set: &model::Uid, resources: Option<TemplateResources>) {
        let mut state = self.state.write();
        if state.template_resources.get(daemon_set).map(AsRef::as_ref) == resources.as_ref() {
            return;
        }
        let known = Arc::make_mut(&mut state.template_resources);
        match resources {
            Some(resources) => drop(known.insert(daemon_set.clone(), Arc::new(resources))),
            None => drop(known.remove(daemon_set)),
        }
    }

    /// Notes of which release the cluster is, with which gates.
    pub(crate) fn note_kubernetes(&self, kubernetes: Option<dra_types::Compat>) {
        self.state.write().kubernetes = kubernetes;
    }

    /// Forgets an object. `uid` keeps a late event of an earlier object of that name from removing its successor.
    pub fn delete<T: Stored>(&self, key: &T::Key, uid: &model::Uid) {
        let mut state = self.state.write();
        state.bury(T::KIND, uid);
        self.remove_from::<T>(&mut state, key, Some(uid));
    }

    /// Forgets an object whatever its uid: a new list does not have it.
    pub fn forget<T: Stored>(&self, key: &T::Key) {
        self.remove_from::<T>(&mut self.state.write(), key, None);
    }

    /// Notes that an object could not be decoded. What was known of it before is kept for a NodeClaim or Node, which
    /// stand for a machine, and dropped for every other kind.
    pub fn reject<T: Stored>(&self, key: &T::Key, error: String) {
        let mut state = self.state.write();
        if !matches!(T::KIND, Kind::NodeClaim | Kind::Node) {
            self.remove_from::<T>(&mut state, key, None);
        }
        state.undecodable.insert((T::KIND, key.to_string()), error);
    }

    /// Notes that a kind's first list is complete.
    pub fn mark_synced(&self, kind: Kind) {
        let synced = {
            let mut state = self.state.write();
            state.synced.insert(kind);
            state.is_synced()
        };
        if synced {
            self.synced.send_replace(true);
        }
    }

    /// Whether every watch has delivered its first list.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until [`Self::is_synced`].
    pub async fn wait_until_synced(&self) {
        // The sender lives in self, so the channel cannot close while we wait.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Forgets which objects of a kind could not be decoded, but for those that still exist.
    pub(crate) fn retain_undecodable(&self, kind: Kind, exists: impl Fn(&str) -> bool) {
        self.state.write().undecodable.retain(|(other, key), _| *other != kind || exists(key));
    }

    fn apply_to<T: Stored>(&self, state: &mut State, after: Arc<T>, revision: Revision) -> bool {
        let _whole = Whole(&self.supervision);
        if state.is_buried(T::KIND, &revision.uid) {
            return false;
        }
        let key = after.key();
        state.note_decodable(T::KIND, &key);
        let Some(before) = T::table_mut(state).insert(key.clone(), Arc::clone(&after), revision) else {
            return false;
        };
        T::reindex(state, before.as_ref(), Some(&after));
        self.subscribers.read().notify(&Delta { key: &key, before: before.as_ref(), after: Some(&after) }, state);
        true
    }

    fn remove_from<T: Stored>(&self, state: &mut State, key: &T::Key, uid: Option<&model::Uid>) {
        let _whole = Whole(&self.supervision);
        state.note_decodable(T::KIND, key);
        let Some(before) = T::table_mut(state).remove(key, uid) else { return };
        T::reindex(state, Some(&before), None);
        self.subscribers.read().notify::<T>(&Delta { key, before: Some(&before), after: None }, state);
    }
}

/// Tells of a panic that goes through the change of the store in which this is.
struct Whole<'a>(&'a Supervision);

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("a change of the store panicked and is half done");
        }
    }
}

impl Default for ClusterStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ClusterStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterStore").field("synced", &self.is_synced()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
