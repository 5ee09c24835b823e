//! Names to small integers and back.
//!
//! One interner belongs to the writer of the cluster's state and only ever grows; snapshots hold it frozen. Cloning is
//! cheap: entries sit in chunks behind `Arc`s, only the last chunk and the flat lookup table are copied. So the writer
//! keeps an `Arc<Interner>`, hands clones of the `Arc` to snapshots, and interns through `Arc::make_mut`.
//!
//! It also lets pods of equal shape share one: a cluster has hundreds of thousands of pods and a few hundred shapes.
//!
//! Ids given out stay valid in every later version of the same interner. Their order is the order of first sight and
//! must never reach an output or a decision.

use std::sync::{Arc, Weak};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

use crate::define_id;
use crate::id::Id;
use crate::pod::PodShape;

define_id! {
    /// The key of a label, taint or requirement.
    pub struct KeyId;
}
define_id! {
    /// The value of a label, taint or requirement.
    pub struct ValueId;
}
define_id! {
    /// A resource that machines have and pods request: `cpu`, `memory`, `nvidia.com/gpu`.
    pub struct ResourceId;
}

impl ValueId {
    /// The empty string.
    pub const EMPTY: Self = Self(0);
}

impl ResourceId {
    /// `cpu`, counted in milli-CPU.
    pub const CPU: Self = Self(0);
    /// `memory`, in bytes.
    pub const MEMORY: Self = Self(1);
    /// `ephemeral-storage`, in bytes.
    pub const EPHEMERAL_STORAGE: Self = Self(2);
    /// `pods`, the number of pods.
    pub const PODS: Self = Self(3);
}

const PREDEFINED_RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];
const CHUNK_LEN: usize = 256;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Gives each key, value and resource name a dense id. See the [module](self).
#[derive(Clone)]
pub struct Interner {
    keys: Table,
    values: Table,
    resources: Table,
    shapes: Arc<Shapes>,
}

impl Interner {
    /// An interner that knows [`ValueId::EMPTY`] and the constants of [`ResourceId`] only.
    pub fn new() -> Self {
        let mut interner = Self {
            keys: Table::default(),
            values: Table::default(),
            resources: Table::default(),
            shapes: Arc::default(),
        };
        interner.values.intern("");
        for name in PREDEFINED_RESOURCES {
            interner.resources.intern(name);
        }
        interner
    }

    /// The id of a key, new if it was never seen.
    pub fn key(&mut self, name: &str) -> KeyId {
        KeyId::from_index(self.keys.intern(name))
    }

    /// The id of a value, new if it was never seen.
    pub fn value(&mut self, name: &str) -> ValueId {
        ValueId::from_index(self.values.intern(name))
    }

    /// The id of a resource, new if it was never seen.
    pub fn resource(&mut self, name: &str) -> ResourceId {
        ResourceId::from_index(self.resources.intern(name))
    }

    /// The shape that all pods of this shape share while there is one of them.
    pub fn shape(&mut self, shape: PodShape) -> Arc<PodShape> {
        Arc::make_mut(&mut self.shapes).share(shape)
    }

    /// Adds the names that `other`, a later version of `base`, knows beyond it. Their ids here may be others than
    /// there.
    pub fn learn(&mut self, other: &Self, base: &Self) {
        self.keys.learn(&other.keys, &base.keys);
        self.values.learn(&other.values, &base.values);
        self.resources.learn(&other.resources, &base.resources);
    }

    /// Whether it knows more names than `base`, of which it is a later version.
    pub fn has_more_than(&self, base: &Self) -> bool {
        let tables = [(&self.keys, &base.keys), (&self.values, &base.values), (&self.resources, &base.resources)];
        tables.iter().any(|(own, base)| own.len() > base.len())
    }

    /// The id of a key that was seen before.
    pub fn find_key(&self, name: &str) -> Option<KeyId> {
        self.keys.find(name).map(KeyId::from_index)
    }

    /// The id of a value that was seen before.
    pub fn find_value(&self, name: &str) -> Option<ValueId> {
        self.values.find(name).map(ValueId::from_index)
    }

    /// The id of a resource that was seen before.
    pub fn find_resource(&self, name: &str) -> Option<ResourceId> {
        self.resources.find(name).map(ResourceId::from_index)
    }

    /// The text of a key.
    ///
    /// # Panics
    /// This and its siblings panic if the id comes from an interner that is not an ancestor of this one.
    pub fn key_name(&self, id: KeyId) -> &str {
        &self.keys.entry(id.index()).name
    }

    /// The text of a value.
    pub fn value_name(&self, id: ValueId) -> &str {
        &self.values.entry(id.index()).name
    }

    /// The text of a resource.
    pub fn resource_name(&self, id: ResourceId) -> &str {
        &self.resources.entry(id.index()).name
    }

    /// The text of a value as a shared string.
    pub fn value_arc(&self, id: ValueId) -> Arc<str> {
        Arc::clone(&self.values.entry(id.index()).name)
    }

    /// The value as an integer, by the rules of Go's `strconv.ParseInt(s, 10, 64)`: an optional sign and digits,
    /// nothing else. Parsed once, when the value was interned.
    pub fn value_int(&self, id: ValueId) -> Option<i64> {
        self.values.entry(id.index()).int
    }

    /// How many keys there are; ids are below it.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// How many values there are; ids are below it.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// How many resources there are; ids are below it.
    pub fn resource_count(&self) -> usize {
        self.resources.len()
    }
}

impl Default for Interner {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Interner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interner")
            .field("keys", &self.key_count())
            .field("values", &self.value_count())
            .field("resources", &self.resource_count())
            .finish()
    }
}

#[derive(Clone)]
struct Entry {
    name: Arc<str>,
    int: Option<i64>,
}

/// Entries in chunks of [`CHUNK_LEN`]; all but the last are full and never change again.
#[derive(Clone, Default)]
struct Table {
    full: Vec<Arc<[Entry]>>,
    tail: Arc<Vec<Entry>>,
    index: HashTable<u32>,
}

impl Table {
    fn len(&self) -> usize {
        self.full.len() * CHUNK_LEN + self.tail.len()
    }

    fn entry(&self, index: usize) -> &Entry {
        self.get(index).expect("an id is used with the interner that gave it out, or a later version of it")
    }

    fn get(&self, index: usize) -> Option<&Entry> {
        let (chunk, offset) = (index / CHUNK_LEN, index % CHUNK_LEN);
        match self.full.get(chunk) {
            Some(entries) => entries.get(offset),
            None if chunk == self.full.len() => self.tail.get(offset),
            None => None,
        }
    }

    fn learn(&mut self, other: &Self, base: &Self) {
        for index in base.len()..other.len() {
            self.intern(&other.entry(index).name);
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        let found = self.index.find(hash(name), |&index| *self.entry(index as usize).name == *name)?;
        Some(*found as usize)
    }

    fn intern(&mut self, name: &str) -> usize {
        if let Some(index) = self.find(name) {
            return index;
        }
        let index = self.len();
        let stored = u32::try_from(index).expect("an interner holds fewer than 2^32 names");
        let tail = Arc::make_mut(&mut self.tail);
        tail.push(Entry { name: name.into(), int: parse_int(name) });
        if tail.len() == CHUNK_LEN {
            self.full.push(std::mem::take(tail).into());
        }
        // Taken out for the call, because growing the index reads the names.
        let mut lookup = std::mem::take(&mut self.index);
        lookup.insert_unique(hash(name), stored, |&index| hash(&self.entry(index as usize).name));
        self.index = lookup;
        index
    }
}

/// Shapes in use, by their hash.
#[derive(Clone, Default)]
struct Shapes {
    known: HashTable<(u64, Weak<PodShape>)>,
    /// How many there may be before unused ones are dropped.
    limit: usize,
}

impl Shapes {
    /// Below this number, unused shapes are not looked for.
    const MIN_LIMIT: usize = 256;

    fn share(&mut self, shape: PodShape) -> Arc<PodShape> {
        let hash = FixedState::with_seed(SEED).hash_one(&shape);
        let is_it = |(other, known): &(u64, Weak<PodShape>)| {
            *other == hash && known.upgrade().is_some_and(|known| *known == shape)
        };
        if let Some(known) = self.known.find(hash, is_it).and_then(|(_, known)| known.upgrade()) {
            return known;
        }
        if self.known.len() >= self.limit.max(Self::MIN_LIMIT) {
            self.known.retain(|(_, known)| known.strong_count() > 0);
            self.limit = 2 * self.known.len();
        }
        let shape = Arc::new(shape);
        self.known.insert_unique(hash, (hash, Arc::downgrade(&shape)), |(hash, _)| *hash);
        shape
    }
}

fn hash(name: &str) -> u64 {
    FixedState::with_seed(SEED).hash_one(name)
}

/// Go's `strconv.ParseInt(s, 10, 64)`, which Rust's own parser agrees with: one optional sign, then digits.
fn parse_int(name: &str) -> Option<i64> {
    name.parse().ok()
}

#[cfg(test)]
mod tests;
