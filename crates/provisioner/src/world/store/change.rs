//! What a write changed, and which subscribers are notified.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Kept, Kind, State, Stored};

/// An object before and after a change. Both are there for an update, one of them for a creation or deletion.
#[derive(Debug)]
pub struct Delta<'a, K, V> {
    /// Its name.
    pub key: &'a K,
    /// As it was.
    pub before: Option<&'a Arc<V>>,
    /// As it is.
    pub after: Option<&'a Arc<V>>,
}

impl<'a, K, V> Delta<'a, K, V> {
    /// The object as it is, or as it was if it is gone.
    pub fn latest(&self) -> Option<&'a Arc<V>> {
        self.after.or(self.before)
    }

    /// Whether `property` differs between before and after; creation and deletion count.
    pub fn changed<P: PartialEq>(&self, property: impl Fn(&V) -> P) -> bool {
        match (self.before, self.after) {
            (Some(before), Some(after)) => property(before) != property(after),
            (Some(_), None) | (None, Some(_)) => true,
            (None, None) => false,
        }
    }
}

/// Called with every change of an object of one kind, and the state that the change is part of.
type OfKind<T> = Box<dyn Fn(&Delta<'_, <T as Kept>::Key, T>, &State) + Send + Sync>;

/// Called when any object of one of its kinds has changed.
type OfFact = Arc<dyn Fn(Kind, &State) + Send + Sync>;

enum Subscriber {
    /// An [`OfKind`] of the kind's type.
    Typed(Box<dyn Any + Send + Sync>),
    /// Needs no more than the fact.
    Fact(OfFact),
}

/// Who is told of changes: by kind, in the order in which they subscribed.
#[derive(Default)]
pub(super) struct Subscribers(BTreeMap<Kind, Vec<Subscriber>>);

impl Subscribers {
    pub(super) fn add<T: Stored>(&mut self, notify: impl Fn(&Delta<'_, T::Key, T>, &State) + Send + Sync + 'static) {
        let notify: OfKind<T> = Box::new(notify);
        self.0.entry(T::KIND).or_default().push(Subscriber::Typed(Box::new(notify)));
    }

    pub(super) fn add_to_all(&mut self, kinds: &[Kind], notify: impl Fn(Kind, &State) + Send + Sync + 'static) {
        let notify: OfFact = Arc::new(notify);
        for &kind in kinds {
            self.0.entry(kind).or_default().push(Subscriber::Fact(Arc::clone(&notify)));
        }
    }

    pub(super) fn notify<T: Stored>(&self, delta: &Delta<'_, T::Key, T>, state: &State) {
        for subscriber in self.0.get(&T::KIND).into_iter().flatten() {
            match subscriber {
                Subscriber::Typed(notify) => {
                    if let Some(notify) = notify.downcast_ref::<OfKind<T>>() {
                        notify(delta, state);
                    }
                }
                Subscriber::Fact(notify) => notify(T::KIND, state),
            }
        }
    }
}
