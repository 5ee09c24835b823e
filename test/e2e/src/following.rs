//! Following all objects of a kind for as long as a test runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use futures::{Stream, StreamExt, stream};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;

/// Tells of every object, and of each again whenever it changes; with whether it is there still. Ends never: what goes
/// wrong is tried again.
pub(crate) async fn follow<K>(api: Api<K>, config: watcher::Config, mut note: impl FnMut(K, bool))
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut changes = changes(api, config).boxed();
    while let Some((object, is_there)) = changes.next().await {
        note(object, is_there);
    }
}

/// Every object, and each again whenever it changes; with whether it is there still. Ends never.
pub fn changes<K>(api: Api<K>, config: watcher::Config) -> impl Stream<Item = (K, bool)>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut seen = Seen { there: BTreeMap::new(), listed: BTreeSet::new() };
    watcher(api, config)
        .default_backoff()
        .flat_map(move |event| stream::iter(event.map(|it| seen.changes(it)).unwrap_or_default()))
}

/// Objects by namespace and name.
struct Seen<K> {
    there: BTreeMap<Name, K>,
    /// By the list that is being read.
    listed: BTreeSet<Name>,
}

type Name = (Option<String>, String);

impl<K: kube::Resource<DynamicType = ()> + Clone> Seen<K> {
    /// What an event says has changed. A watch that broke begins with a list, in which those that went are missing.
    fn changes(&mut self, event: watcher::Event<K>) -> Vec<(K, bool)> {
        match event {
            watcher::Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                self.listed.insert(name(&object));
                self.apply(object)
            }
            watcher::Event::InitDone => {
                let gone = self.there.extract_if(.., |name, _| !self.listed.contains(name));
                gone.map(|(_, object)| (object, false)).collect()
            }
            watcher::Event::Apply(object) => self.apply(object),
            watcher::Event::Delete(object) => {
                self.there.remove(&name(&object));
                vec![(object, false)]
            }
        }
    }

    /// One of the same name that went unseen is told of first.
    fn apply(&mut self, object: K) -> Vec<(K, bool)> {
        let before = self.there.insert(name(&object), object.clone());
        let gone = before.filter(|before| before.uid() != object.uid());
        gone.map(|before| (before, false)).into_iter().chain([(object, true)]).collect()
    }
}

fn name<K: kube::Resource>(object: &K) -> Name {
    (object.namespace(), object.name_any())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

    use super::*;

    fn object(name: &str, uid: &str) -> ConfigMap {
        let metadata = ObjectMeta { name: Some(name.to_owned()), uid: Some(uid.to_owned()), ..ObjectMeta::default() };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    #[test]
    fn what_went_while_the_watch_was_broken_is_told_of() {
        let mut seen = Seen { there: BTreeMap::new(), listed: BTreeSet::new() };
        let mut told = |events: Vec<watcher::Event<ConfigMap>>| -> Vec<String> {
            let changes = events.into_iter().flat_map(|event| seen.changes(event));
            let words = |is_there| if is_there { "there" } else { "gone" };
            changes.map(|(it, is_there)| format!("{} {}", it.uid().unwrap(), words(is_there))).collect()
        };
        let list = |objects: &[(&str, &str)]| {
            let listed = objects.iter().map(|(name, uid)| InitApply(object(name, uid)));
            [Init].into_iter().chain(listed).chain([InitDone]).collect()
        };
        assert_eq!(told(list(&[("a", "a1"), ("b", "b1")])), ["a1 there", "b1 there"]);
        assert_eq!(told(vec![Apply(object("c", "c1")), Delete(object("a", "a1"))]), ["c1 there", "a1 gone"]);
        assert_eq!(told(list(&[("c", "c2")])), ["c1 gone", "c2 there", "b1 gone"]);
    }
}
