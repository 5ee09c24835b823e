//! Follows one kind: a list in pages, then a watch from there on, and so on for ever.
//!
//! A page is told while it comes, item by item (`pages`).
//!
//! A watch is a connection on which nothing need happen for hours, so a connection that has died looks like a quiet
//! kind. Therefore the API server is asked to end each watch after [`WATCH_S`] at most, and one that is silent beyond
//! that is taken for dead (`client::deadlines`). The next watch goes on where the last one ended, by the resource
//! version of the last event or bookmark, so that costs one request and no list.
//!
//! kube's own watcher does not tell of bookmarks and of watches that begin, which are the signs of life here.

use std::io;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt;
use futures::io::{AsyncBufRead, AsyncBufReadExt};
use futures::stream::BoxStream;
use kube::Client;
use kube::api::{Api, ApiResource, ListParams, WatchEvent, WatchParams};
use kube::core::{Request, Status};
use tokio::time::Instant;

use super::pages::{self, End, Item, PageReader};
use super::raw::RawObject;
use crate::runtime::jitter::jittered;

/// When the API server ends a watch, in seconds; different for each, so that they do not all begin anew together.
const WATCH_S: RangeInclusive<u64> = 15..=30;
/// Objects per page of a list, at most.
const PAGE_SIZE: u32 = 500;
/// Objects per page, however large they are.
const SMALLEST_PAGE: u32 = 10;
/// What a page shall weigh at most, if each object weighs what those of the last page did. The API server holds it
/// whole, and it has to arrive within the deadline of one request.
const PAGE_BYTES: u64 = 8 << 20;
/// A watch that ended sooner, and said nothing, was not served.
const SHORTEST: Duration = Duration::from_secs(1);

/// What was seen of a kind.
#[derive(Debug)]
pub(super) enum Seen {
    /// A list begins.
    ListBegan,
    /// An object of the list.
    Listed(RawObject),
    /// An object of the list that cannot be read but for its metadata, and why.
    Unreadable(RawObject, String),
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
    #[error("the list broke off")]
    BrokeOff(#[source] io::Error),
    #[error("cannot read the list")]
    Page(#[source] pages::Error),
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
    client: Client,
    resource: ApiResource,
    fields: Option<&'static str>,
    page_size: u32,
    state: State,
}

enum State {
    Start,
    /// A page that is on its way.
    Page(Box<Page>),
    Listing(Next),
    Watching(Watching),
}

enum Next {
    /// The page that this token stands for; the first without one.
    Page(Option<String>),
    WatchFrom(String),
}

struct Page {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
    reader: PageReader,
}

struct Watching {
    version: String,
    stream: BoxStream<'static, kube::Result<WatchEvent<RawObject>>>,
    began: Instant,
    is_silent: bool,
}

impl Follower {
    /// Follows all objects of a kind that have these fields.
    pub(super) fn new(client: Client, resource: ApiResource, fields: Option<&'static str>) -> Self {
        Self { client, resource, fields, page_size: PAGE_SIZE, state: State::Start }
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
                // A page that fails begins the list anew.
                State::Page(mut page) => match page.next(&self.resource).await? {
                    Some(item) => {
                        self.state = State::Page(page);
                        return Ok(match item {
                            Item::Read(object) => Seen::Listed(object),
                            Item::Unreadable(object, problem) => Seen::Unreadable(object, problem),
                        });
                    }
                    None => {
                        let end = page.reader.end().map_err(Failure::Page)?;
                        self.page_size = next_page_size(self.page_size, &end);
                        if let Some(token) = end.continue_token {
                            self.state = State::Listing(Next::Page(Some(token)));
                            continue;
                        }
                        let version = end.resource_version.ok_or(Failure::NoResourceVersion)?;
                        self.state = State::Listing(Next::WatchFrom(version));
                        return Ok(Seen::ListEnded);
                    }
                },
                State::Listing(Next::Page(token)) => self.state = State::Page(Box::new(self.page(token).await?)),
                State::Listing(Next::WatchFrom(version)) => {
                    self.watch(version).await?;
                    return Ok(Seen::Heard);
                }
                State::Watching(watching) => return self.event(watching).await,
            }
        }
    }

    /// Asks for a page of the list.
    async fn page(&mut self, token: Option<String>) -> Result<Page, Failure> {
        let mut params = ListParams::default().limit(self.page_size);
        params.field_selector = self.fields.map(str::to_owned);
        params.continue_token = token;
        let request = Request::new(self.api().resource_url());
        let request = request.list(&params).map_err(kube::Error::BuildRequest).map_err(Failure::List)?;
        let body = self.client.request_stream(request).await.map_err(Failure::List)?;
        Ok(Page { body: Box::pin(body), reader: PageReader::new() })
    }

    fn api(&self) -> Api<RawObject> {
        Api::all_with(self.client.clone(), &self.resource)
    }

    async fn watch(&mut self, version: String) -> Result<(), Failure> {
        let longest = jittered(Duration::from_secs(*WATCH_S.end())).as_secs().max(*WATCH_S.start());
        let mut params = WatchParams::default().timeout(u32::try_from(longest).unwrap_or(u32::MAX));
        params.field_selector = self.fields.map(str::to_owned);
        match self.api().watch(&params, &version).await {
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
            Err(error) if is_no_event(&error) => {
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

impl Page {
    /// The next item, as soon as it is there; `None` at the end of the page.
    async fn next(&mut self, resource: &ApiResource) -> Result<Option<Item>, Failure> {
        loop {
            let text = self.body.fill_buf().await.map_err(Failure::BrokeOff)?;
            if text.is_empty() {
                return Ok(None);
            }
            let (read, item) = self.reader.read(text, resource).map_err(Failure::Page)?;
            self.body.consume_unpin(read);
            if item.is_some() {
                return Ok(item);
            }
        }
    }
}

/// Whether a line of a watch was no event. kube takes it for a Status then, which it is if it has none of its fields.
fn is_no_event(error: &kube::Error) -> bool {
    match error {
        kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => **status == Status::default(),
        _ => false,
    }
}

/// How many objects to ask for after a page of so many bytes and items.
fn next_page_size(last: u32, end: &End) -> u32 {
    match end.bytes.checked_div(end.items as u64) {
        // Nothing was learned.
        None => last,
        Some(each) => u32::try_from(PAGE_BYTES / each.max(1)).unwrap_or(PAGE_SIZE).clamp(SMALLEST_PAGE, PAGE_SIZE),
    }
}

#[cfg(test)]
mod tests;
