//! Dense typed indices and the vector they index.
//!
//! An id is a `u32` newtype made by [`define_id!`](crate::define_id). It means something only together with the
//! table that gave it out; ids of two tables never mix because their types differ.

use std::fmt::{self, Debug};
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A dense index that is its own type.
pub trait Id: Copy + Eq + Ord + Hash + Debug {
    /// The id of the `index`-th entry.
    ///
    /// # Panics
    /// If `index` does not fit in 32 bits. Tables are bounded far below that.
    fn from_index(index: usize) -> Self;

    /// The position of this id's entry in its table.
    fn index(self) -> usize;
}

/// Defines a `u32` newtype that implements [`Id`].
///
/// ```
/// model::define_id! {
///     /// A machine that the plan would create.
///     pub struct BinId;
/// }
/// use model::Id;
/// assert_eq!(BinId::from_index(3).index(), 3);
/// ```
#[macro_export]
macro_rules! define_id {
    ($(#[$meta:meta])* $vis:vis struct $name:ident;) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(u32);

        impl $crate::id::Id for $name {
            fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("a table of ids holds fewer than 2^32 entries"))
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

/// A vector indexed by an [`Id`].
///
/// This is the one container of the core that may be indexed with `[]`. Invariant: an id is only ever used with the
/// vector that `push` returned it from, or with one of the same length that runs parallel to it; nothing is ever
/// removed. So an index that is out of bounds is a defect of the caller, never bad input.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdVec<I, T> {
    items: Vec<T>,
    ids: PhantomData<fn(I) -> I>,
}

impl<I: Id, T> IdVec<I, T> {
    /// An empty vector.
    pub const fn new() -> Self {
        Self { items: Vec::new(), ids: PhantomData }
    }

    /// An empty vector with room for `capacity` entries.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::from(Vec::with_capacity(capacity))
    }

    /// `len` copies of `value`, to run parallel to a table of that length.
    pub fn filled(value: T, len: usize) -> Self
    where
        T: Clone,
    {
        Self::from(vec![value; len])
    }

    /// Appends an entry and returns its id.
    pub fn push(&mut self, item: T) -> I {
        let id = I::from_index(self.items.len());
        self.items.push(item);
        id
    }

    /// The id that the next `push` will return.
    pub fn next_id(&self) -> I {
        I::from_index(self.items.len())
    }

    /// The entry of `id`, if there is one.
    ///
    /// Not called `get`: clippy's `indexing_slicing` then takes indexing by id for a slice's.
    pub fn try_get(&self, id: I) -> Option<&T> {
        self.items.get(id.index())
    }

    /// The entry of `id` for changing, if there is one.
    pub fn try_get_mut(&mut self, id: I) -> Option<&mut T> {
        self.items.get_mut(id.index())
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The entries in id order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// The entries in id order, for changing.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }

    /// The entries with their ids, in id order.
    pub fn iter_enumerated(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.items.iter().enumerate().map(|(index, item)| (I::from_index(index), item))
    }

    /// All ids, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.items.len()).map(I::from_index)
    }

    /// The entries as a slice in id order.
    pub fn as_slice(&self) -> &[T] {
        &self.items
    }

    /// A vector parallel to this one.
    pub fn map<U>(&self, f: impl FnMut(&T) -> U) -> IdVec<I, U> {
        IdVec::from(self.items.iter().map(f).collect::<Vec<_>>())
    }
}

impl<I, T> Default for IdVec<I, T> {
    fn default() -> Self {
        Self { items: Vec::new(), ids: PhantomData }
    }
}

impl<I, T> From<Vec<T>> for IdVec<I, T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, ids: PhantomData }
    }
}

impl<I: Id, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<It: IntoIterator<Item = T>>(items: It) -> Self {
        Self::from(items.into_iter().collect::<Vec<_>>())
    }
}

impl<'a, I: Id, T> IntoIterator for &'a IdVec<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<I, T> IntoIterator for IdVec<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

#[allow(clippy::indexing_slicing, reason = "an id is used with the vector it came from, see the type's invariant")]
impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

#[allow(clippy::indexing_slicing, reason = "an id is used with the vector it came from, see the type's invariant")]
impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}

impl<I, T: Debug> Debug for IdVec<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    define_id! {
        struct RowId;
    }

    #[test]
    fn push_returns_the_id_of_the_entry() {
        let mut rows = IdVec::<RowId, &str>::new();
        let a = rows.push("a");
        assert_eq!(rows.next_id(), RowId::from_index(1));
        let b = rows.push("b");
        rows[a] = "A";
        assert_eq!((rows[a], rows[b], rows.len()), ("A", "b", 2));
        assert_eq!(rows.try_get(RowId::from_index(2)), None);
        assert_eq!(rows.iter_enumerated().collect::<Vec<_>>(), [(a, &"A"), (b, &"b")]);
        assert_eq!(rows.ids().rev().collect::<Vec<_>>(), [b, a]);
        assert_eq!(rows.map(|row| row.len())[b], 1);
    }

    #[test]
    fn debug_shows_type_and_number() {
        assert_eq!(format!("{:?}", RowId::from_index(7)), "RowId(7)");
    }

    #[test]
    #[should_panic(expected = "fewer than 2^32")]
    fn an_index_beyond_32_bits_is_refused() {
        RowId::from_index(1 << 32);
    }
}
