//! Following all objects of a kind for as long as a test runs.

use std::fmt::Debug;

use futures::StreamExt;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use serde::de::DeserializeOwned;

/// Tells of every object, and of each again whenever it changes; with whether it is there still. Ends never: what goes
/// wrong is tried again.
pub(crate) async fn follow<K>(api: Api<K>, config: watcher::Config, mut note: impl FnMut(K, bool))
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = watcher(api, config).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => note(object, true),
            Ok(watcher::Event::Delete(object)) => note(object, false),
            Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
        }
    }
}
