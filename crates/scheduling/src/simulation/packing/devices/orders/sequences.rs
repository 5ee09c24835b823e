//! In which orders copies of claims come that may come in any.

use super::{Kind, Part, Place};
use crate::tuning::{MAX_IN_TURNS, MAX_PERMUTED, MAX_PERMUTED_PLACES};

/// The orders that are tried: by kind, and where `by_place`, within each kind by place, there and back. Few places come
/// in each order beside that, since it matters most where the kinds come as planned.
pub(super) fn all<'p, 'c>(
    parts: &'p [Part<'c>],
    kinds: &'p [Kind<'c>],
    by_place: bool,
) -> impl Iterator<Item = Vec<Part<'c>>> + use<'p, 'c> {
    let mut places: Vec<Place> = Vec::new();
    for part in parts.iter().filter(|_| by_place) {
        if !places.contains(&part.place) {
            places.push(part.place);
        }
    }
    orders(kinds.len()).into_iter().enumerate().flat_map(move |(number, order)| {
        let of_kind = |kind: &Kind<'c>| parts.iter().filter(|part| part.kind() == *kind).copied().collect();
        let by_kind: Vec<Vec<Part<'c>>> = order.iter().filter_map(|&kind| kinds.get(kind)).map(of_kind).collect();
        let mut sequences = vec![by_kind.concat()];
        let orders_of_places = match (number, places.len()) {
            (0, 2..=MAX_PERMUTED_PLACES) => orders(places.len()),
            (_, 0 | 1) => Vec::new(),
            (_, count) => vec![(0..count).rev().collect()],
        };
        for order in orders_of_places {
            let rank = |part: &Part<'c>| order.iter().position(|&at| places.get(at) == Some(&part.place));
            let mut by_kind = by_kind.clone();
            by_kind.iter_mut().for_each(|parts| parts.sort_by_key(rank));
            let sequence = by_kind.concat();
            if !sequences.contains(&sequence) {
                sequences.push(sequence);
            }
        }
        sequences.extend(in_turns(&by_kind));
        sequences
    })
}

/// Orders of so many kinds: all of few, rotations there and back of many. Those with a late one first come first, since
/// the earlier ones were there when nothing else was.
fn orders(kinds: usize) -> Vec<Vec<usize>> {
    if kinds > MAX_PERMUTED {
        let rotation = |first: usize| (0..kinds).map(move |index| (first + index) % kinds).collect::<Vec<_>>();
        let back = |first: usize| rotation(first).into_iter().rev().collect();
        return (0..kinds).flat_map(|first| [rotation(first), back(first)]).collect();
    }
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    for kind in 0..kinds {
        let longer = |order: &Vec<usize>| {
            let order = order.clone();
            (0..=order.len()).rev().map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, kind);
                longer
            })
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders
}

/// One copy of each kind after the other; `None` if there are too many, or if no kind has several.
fn in_turns<'c>(by_kind: &[Vec<Part<'c>>]) -> Option<Vec<Part<'c>>> {
    let copies = by_kind.iter().flatten().map(|part| part.copies).sum::<u32>();
    if copies > MAX_IN_TURNS || copies as usize == by_kind.len() {
        return None;
    }
    let one = |part: &Part<'c>| std::iter::repeat_n(Part { copies: 1, ..*part }, part.copies as usize);
    let mut waiting: Vec<Vec<Part<'c>>> =
        by_kind.iter().map(|parts| parts.iter().flat_map(one).rev().collect()).collect();
    let mut turns = Vec::new();
    while turns.len() < copies as usize {
        turns.extend(waiting.iter_mut().filter_map(Vec::pop));
    }
    Some(turns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::packing::devices::orders::Whose;

    #[test]
    fn all_orders_of_few_kinds_are_tried_and_each_of_many_begins_once() {
        for (kinds, count) in [(1, 1), (2, 2), (3, 6), (4, 24), (6, 12)] {
            let mut all = orders(kinds);
            assert_eq!(all.len(), count);
            assert_eq!(all.first().map(|order| order.first().copied()), Some(Some(0)));
            assert!((0..kinds).all(|kind| all.iter().any(|order| order.first() == Some(&kind))));
            all.sort();
            all.dedup();
            assert_eq!(all.len(), count, "none twice");
        }
    }

    #[test]
    fn turns_take_one_of_each_as_long_as_there_are() {
        let class = model::Id::from_index(0);
        let part = |copies| Part { place: Place::New, whose: Whose::Pods(class, 0), claims: &[], copies };
        let kinds = vec![vec![part(1)], vec![part(2), part(1)]];
        assert_eq!(in_turns(&kinds).map(|turns| turns.len()), Some(4));
        assert!(in_turns(&[vec![part(1)], vec![part(1)]]).is_none());
        assert!(in_turns(&[vec![part(MAX_IN_TURNS)], vec![part(1)]]).is_none());
    }
}
