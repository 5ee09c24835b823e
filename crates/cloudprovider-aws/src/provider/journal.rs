//! Batches that are written down before their machines are asked for.
//!
//! There is a document for each open batch, and one that lists them: the index says which claims have a batch. The
//! index is written with the version that it was read at. That makes it the one place where it is decided who asks for
//! a claim's machine: a controller that has lost its lease and does not know it yet fails there, before it calls EC2.
//!
//! A claim leaves the index when it is known that no machine comes for it, or when its machine has the tag that names
//! the claim. A batch of which no claim is left is removed, and so are documents that the index does not list.
//!
//! Invariant: a call to EC2 is only made for a batch that the index lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Timestamp, Uid};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::cluster::{Cluster, Expected, Failure};
use crate::launch::batch::{Batch, launched_at};
use crate::service::ec2::FleetAnswer;

/// The index's name.
const INDEX: &str = "dovetail-ec2-launches";
/// What the name of a batch's document begins with.
const BATCH: &str = "dovetail-ec2-launch-";
/// Claims that may be in the index at once. It stays well below what the API server takes.
const MAX_CLAIMS: usize = 8_000;

/// The index as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Index {
    /// The claims of each batch, by token.
    batches: BTreeMap<String, BTreeSet<Uid>>,
}

/// A batch that is written down.
#[derive(Debug, Clone)]
pub(super) struct Open {
    /// What was asked for.
    pub(super) batch: Arc<Batch>,
    /// What EC2 answered; none as long as that is not known.
    pub(super) answer: Option<Arc<FleetAnswer>>,
    /// Whether somebody may have called already, so that the call must not be given up.
    pub(super) may_be_called: bool,
}

impl Open {
    /// When the machines were asked for.
    pub(super) fn at(&self) -> Timestamp {
        launched_at(&self.batch.token).unwrap_or_default()
    }
}

/// Why a batch cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotOpened {
    /// These of its claims have a batch already.
    Busy(BTreeSet<Uid>),
    /// It could not be written down.
    Failed(String),
}

impl From<Failure> for NotOpened {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.to_string())
    }
}

#[derive(Debug, Default)]
struct State {
    /// The version that the index was read at; none if there is none.
    version: Option<String>,
    is_loaded: bool,
    index: Index,
    open: BTreeMap<String, Open>,
}

/// The journal. What is in memory is a copy.
pub(super) struct Journal {
    cluster: Arc<dyn Cluster>,
    state: Mutex<State>,
}

impl Journal {
    pub(super) fn new(cluster: Arc<dyn Cluster>) -> Self {
        Self { cluster, state: Mutex::default() }
    }

    /// Writes a batch down. Afterwards its machines may be asked for.
    pub(super) async fn open(&self, batch: &Arc<Batch>) -> Result<(), NotOpened> {
        let state = &mut *self.state.lock().await;
        let text = serde_json::to_string(&**batch).map_err(|error| NotOpened::Failed(error.to_string()))?;
        let name = format!("{BATCH}{}", batch.token);
        let claims: BTreeSet<_> = batch.claims.iter().map(|claim| claim.uid.clone()).collect();
        self.load(state).await?;
        let mut is_written = false;
        loop {
            let busy: BTreeSet<_> = claims.iter().filter(|uid| state.index.of(uid).is_some()).cloned().collect();
            let listed: usize = state.index.batches.values().map(BTreeSet::len).sum();
            let refused = if !busy.is_empty() {
                Some(NotOpened::Busy(busy))
            } else if listed + claims.len() > MAX_CLAIMS {
                Some(NotOpened::Failed(format!("{listed} launches wait for the tags of their machines")))
            } else {
                None
            };
            if let Some(refused) = refused {
                if is_written {
                    self.cluster.remove(&name).await?;
                }
                return Err(refused);
            }
            if !is_written {
                self.cluster.write(&name, &text, Expected::Absent).await?;
                is_written = true;
            }
            let mut index = state.index.clone();
            index.batches.insert(batch.token.clone(), claims.clone());
            match self.write(state, index).await {
                Ok(()) => {
                    let open = Open { batch: Arc::clone(batch), answer: None, may_be_called: false };
                    state.open.insert(batch.token.clone(), open);
                    return Ok(());
                }
                // Another controller was here, and what it has opened counts; or it was ourselves, and the answer was
                // lost.
                Err(Failure::Conflict(_)) => self.reload(state).await?,
                Err(failure) => return Err(failure.into()),
            }
            if state.open.contains_key(&batch.token) {
                return Ok(());
            }
        }
    }

    /// The batch of a claim.
    pub(super) async fn of_claim(&self, uid: &Uid) -> Result<Option<Open>, Failure> {
        let state = &mut *self.state.lock().await;
        self.load(state).await?;
        Ok(state.index.of(uid).and_then(|token| state.open.get(token)).cloned())
    }

    /// All open batches, by token.
    pub(super) async fn all(&self) -> Result<Vec<Open>, Failure> {
        let state = &mut *self.state.lock().await;
        self.load(state).await?;
        Ok(state.open.values().cloned().collect())
    }

    /// Notes that a batch is about to be asked for.
    pub(super) async fn called(&self, token: &str) {
        if let Some(open) = self.state.lock().await.open.get_mut(token) {
            open.may_be_called = true;
        }
    }

    /// Notes what EC2 answered.
    pub(super) async fn answered(&self, token: &str, answer: Arc<FleetAnswer>) {
        if let Some(open) = self.state.lock().await.open.get_mut(token) {
            open.answer = Some(answer);
        }
    }

    /// Takes claims out of the index. Batches of which none is left are removed.
    pub(super) async fn close(&self, done: &BTreeSet<Uid>) -> Result<(), Failure> {
        if done.is_empty() {
            return Ok(());
        }
        let state = &mut *self.state.lock().await;
        self.load(state).await?;
        loop {
            let mut index = state.index.clone();
            index.batches.values_mut().for_each(|claims| claims.retain(|uid| !done.contains(uid)));
            index.batches.retain(|_, claims| !claims.is_empty());
            if index == state.index {
                return Ok(());
            }
            match self.write(state, index).await {
                Ok(()) => break,
                Err(Failure::Conflict(_)) => self.reload(state).await?,
                Err(failure) => return Err(failure),
            }
        }
        let gone: Vec<_> =
            state.open.keys().filter(|token| !state.index.batches.contains_key(*token)).cloned().collect();
        for token in gone {
            state.open.remove(&token);
            // One that stays is removed at the next sweep.
            let _ = self.cluster.remove(&format!("{BATCH}{token}")).await;
        }
        Ok(())
    }

    /// Removes documents of batches that the index does not list: of a crash before the index was written, or after.
    pub(super) async fn sweep(&self) -> Result<(), Failure> {
        let state = &mut *self.state.lock().await;
        self.reload(state).await?;
        for name in self.cluster.names().await? {
            if name.strip_prefix(BATCH).is_some_and(|token| !state.index.batches.contains_key(token)) {
                self.cluster.remove(&name).await?;
            }
        }
        Ok(())
    }

    async fn load(&self, state: &mut State) -> Result<(), Failure> {
        if state.is_loaded { Ok(()) } else { self.reload(state).await }
    }

    /// Reads the index, and the batches that are not known yet. Of those nobody here knows whether they were asked for.
    async fn reload(&self, state: &mut State) -> Result<(), Failure> {
        let document = self.cluster.read(INDEX).await?;
        let index = match &document {
            Some(document) => parsed(INDEX, &document.text)?,
            None => Index::default(),
        };
        let mut open = BTreeMap::new();
        for token in index.batches.keys() {
            if let Some(known) = state.open.remove(token) {
                open.insert(token.clone(), known);
                continue;
            }
            let name = format!("{BATCH}{token}");
            let document = self.cluster.read(&name).await?;
            let document =
                document.ok_or_else(|| Failure::Other(format!("{name}, which {INDEX} lists, is missing")))?;
            let batch = Arc::new(parsed(&name, &document.text)?);
            open.insert(token.clone(), Open { batch, answer: None, may_be_called: true });
        }
        *state = State { version: document.map(|document| document.version), is_loaded: true, index, open };
        Ok(())
    }

    async fn write(&self, state: &mut State, index: Index) -> Result<(), Failure> {
        let text = serde_json::to_string(&index).map_err(|error| Failure::Other(error.to_string()))?;
        let expected = state.version.as_deref().map_or(Expected::Absent, Expected::Version);
        match self.cluster.write(INDEX, &text, expected).await {
            Ok(version) => {
                (state.version, state.index) = (Some(version), index);
                Ok(())
            }
            Err(failure) => {
                // Whether it was written is not known where there was no answer.
                state.is_loaded = false;
                Err(failure)
            }
        }
    }
}

impl Index {
    fn of(&self, uid: &Uid) -> Option<&String> {
        self.batches.iter().find(|(_, claims)| claims.contains(uid)).map(|(token, _)| token)
    }
}

fn parsed<T: serde::de::DeserializeOwned>(name: &str, text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::Other(format!("{name} cannot be read: {error}")))
}
