//! Follows one kind: a list in pages, then a watch from there on, and so on for ever.
//!
//! A watch is a connection on which nothing need happen for hours, so a connection that has died looks like a quiet
//! kind. Therefore the API server is asked to end each watch after [`WATCH_S`] at most, and one that is silent beyond
//! that is taken for dead (`client::deadlines`). The next watch goes on where the last one ended, by the resource version
//! of the last event or bookmark, so that costs one request and no list.
//!
//! kube's own watcher does not tell of bookmarks and of watches that begin, which are the signs of life here.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::Status;
use tokio::time::Instant;

use super::raw::RawObject;
use crate::jitter::jittered;

/// When the API server ends a watch, in seconds; different for each, so that they do not all begin anew together.
const WATCH_S: RangeInclusive<u64> = 15..=30;
/// Objects per page of a list.
const PAGE_SIZE: u32 = 500;
/// A watch that ended sooner, and said nothing, was not served.
const SHORTEST: Duration = Duration::from_secs(1);

/// What was seen of a kind.
#[derive(Debug)]
pub(super) enum Seen {
    /// A list begins.
    ListBegan,
    /// An object of the list.
    Listed(RawObject),
    /// The list is complete.
    ListEnded,
    /// An object has come or changed.
    Applied(RawObject),
    /// An object is gone.
    Deleted(RawObject),
    /// Nothing has changed, and the API server says so.
    Heard,
}

/// Why nothing was seen. The next question goes on from where that leaves us.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("cannot list")]
    List(#[source] kube::Error),
    #[error("cannot watch")]
    Watch(#[source] kube::Error),
    /// The API server has forgotten where we were; a list follows.
    #[error("the watch expired: {0}")]
    Expired(Box<Status>),
    #[error("the API server ended the watch: {0}")]
    Refused(Box<Status>),
    #[error("the watch ended as soon as it had begun")]
    EndedAtOnce,
    #[error("an answer without a resource version")]
    NoResourceVersion,
}

/// Follows one kind. See the [module](self).
pub(super) struct Follower {
    api: Api<RawObject>,
    fields: Option<&'static str>,
    state: State,
}

enum State {
    Start,
    /// Objects of a page that have not been told yet, and what comes after them.
    Page(VecDeque<RawObject>, Next),
    Listing(Next),
    Watching(Watching),
}

enum Next {
    /// The page that this token stands for; the first without one.
    Page(Option<String>),
    WatchFrom(String),
}

struct Watching {
    version: String,
    stream: BoxStream<'static, kube::Result<WatchEvent<RawObject>>>,
    began: Instant,
    is_silent: bool,
}

impl Follower {
    /// Follows all objects of a kind that have these fields.
    pub(super) fn new(api: Api<RawObject>, fields: Option<&'static str>) -> Self {
        Self { api, fields, state: State::Start }
    }

    /// What is seen next.
    ///
    /// # Errors
    /// That the API server did not tell. Ask again after a while.
    pub(super) async fn next(&mut self) -> Result<Seen, Failure> {
        loop {
            match std::mem::replace(&mut self.state, State::Start) {
                State::Start => {
                    self.state = State::Listing(Next::Page(None));
                    return Ok(Seen::ListBegan);
                }
                State::Page(mut objects, next) => match objects.pop_front() {
                    Some(object) => {
                        self.state = State::Page(objects, next);
                        return Ok(Seen::Listed(object));
                    }
                    None => {
                        let is_last = matches!(next, Next::WatchFrom(_));
                        self.state = State::Listing(next);
                        if is_last {
                            return Ok(Seen::ListEnded);
                        }
                    }
                },
                State::Listing(Next::Page(token)) => self.state = self.page(token).await?,
                State::Listing(Next::WatchFrom(version)) => {
                    self.watch(version).await?;
                    return Ok(Seen::Heard);
                }
                State::Watching(watching) => return self.event(watching).await,
            }
        }
    }

    /// A page of the list. One that fails begins the list anew.
    async fn page(&mut self, token: Option<String>) -> Result<State, Failure> {
        let mut params = ListParams::default().limit(PAGE_SIZE);
        params.field_selector = self.fields.map(str::to_owned);
        params.continue_token = token;
        let list = self.api.list(&params).await.map_err(Failure::List)?;
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let next = match given(list.metadata.continue_) {
            Some(token) => Next::Page(Some(token)),
            None => Next::WatchFrom(given(list.metadata.resource_version).ok_or(Failure::NoResourceVersion)?),
        };
        Ok(State::Page(list.items.into(), next))
    }

    async fn watch(&mut self, version: String) -> Result<(), Failure> {
        let longest = jittered(Duration::from_secs(*WATCH_S.end())).as_secs().max(*WATCH_S.start());
        let mut params = WatchParams::default().timeout(u32::try_from(longest).unwrap_or(u32::MAX));
        params.field_selector = self.fields.map(str::to_owned);
        match self.api.watch(&params, &version).await {
            Ok(stream) => {
                let (stream, began) = (stream.boxed(), Instant::now());
                self.state = State::Watching(Watching { version, stream, began, is_silent: true });
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 410 => Err(Failure::Expired(status)),
            Err(error) => {
                self.state = State::Listing(Next::WatchFrom(version));
                Err(Failure::Watch(error))
            }
        }
    }

    async fn event(&mut self, mut watching: Watching) -> Result<Seen, Failure> {
        let Some(event) = watching.stream.next().await else {
            let at_once = watching.is_silent && watching.began.elapsed() < SHORTEST;
            self.state = State::Listing(Next::WatchFrom(watching.version));
            return if at_once { Err(Failure::EndedAtOnce) } else { Ok(Seen::Heard) };
        };
        watching.is_silent = false;
        let (seen, version) = match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                let version = object.metadata.resource_version.clone();
                (Seen::Applied(object), version)
            }
            Ok(WatchEvent::Deleted(object)) => {
                let version = object.metadata.resource_version.clone();
                (Seen::Deleted(object), version)
            }
            Ok(WatchEvent::Bookmark(bookmark)) => (Seen::Heard, Some(bookmark.metadata.resource_version)),
            Ok(WatchEvent::Error(status)) if status.code == 410 => return Err(Failure::Expired(status.boxed())),
            Ok(WatchEvent::Error(status)) => {
                self.state = State::Listing(Next::WatchFrom(watching.version));
                return Err(Failure::Refused(status.boxed()));
            }
            // One event that is no object; those that follow may be.
            Err(error) if is_of_one_event(&error) => {
                self.state = State::Watching(watching);
                return Err(Failure::Watch(error));
            }
            Err(error) => {
                self.state = State::Listing(Next::WatchFrom(watching.version));
                return Err(Failure::Watch(error));
            }
        };
        watching.version = version.filter(|it| !it.is_empty()).ok_or(Failure::NoResourceVersion)?;
        self.state = State::Watching(watching);
        Ok(seen)
    }
}

/// Whether an event could not be read. kube tries to read it as a status too, whose fields are all optional, so it may have
/// become an empty one.
fn is_of_one_event(error: &kube::Error) -> bool {
    match error {
        kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => status.code == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
