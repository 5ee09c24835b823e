//! The hash format of Go's `mitchellh/hashstructure` v2 (`FormatV2`), as far as a NodePool's template needs it.
//!
//! Every value becomes 64 bits of FNV-1. A struct starts from its type's name; each field that is not zero is joined by
//! exclusive or, and the sum hashed again. Maps are joined the same way, with one last hash; slices taken as sets
//! without.

use std::collections::BTreeMap;

/// Seconds from the year 1, from which Go counts, to 1970.
const GO_EPOCH_SECONDS: i64 = 62_135_596_800;

/// The hash of a struct while its fields are added, in their order in Go.
pub(super) struct Struct(u64);

impl Struct {
    pub(super) fn named(type_name: &str) -> Self {
        Self(hash_str(type_name))
    }

    /// Adds a field; `None` is a zero value, which is left out.
    pub(super) fn field(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.0 = hash_again(self.0 ^ ordered(hash_str(name), value));
        }
    }

    pub(super) fn finish(self) -> u64 {
        self.0
    }
}

pub(super) fn hash_str(text: &str) -> u64 {
    fnv1(text.bytes())
}

pub(super) fn hash_i64(value: i64) -> u64 {
    fnv1(value.to_le_bytes())
}

pub(super) fn hash_map(entries: &BTreeMap<String, String>) -> u64 {
    hash_again(hash_set(entries.iter().map(|(key, value)| ordered(hash_str(key), hash_str(value)))))
}

pub(super) fn hash_set(members: impl Iterator<Item = u64>) -> u64 {
    members.fold(0, |sum, member| sum ^ member)
}

/// A `time.Time` that was read from JSON by a process whose local time is UTC: Go's binary form of it, version 1.
pub(super) fn hash_time(seconds: i64, nanos: i32) -> u64 {
    let offset_minutes: i16 = 0;
    let bytes = std::iter::once(1)
        .chain(seconds.saturating_add(GO_EPOCH_SECONDS).to_be_bytes())
        .chain(nanos.to_be_bytes())
        .chain(offset_minutes.to_be_bytes());
    fnv1(bytes)
}

fn ordered(first: u64, second: u64) -> u64 {
    fnv1(first.to_le_bytes().into_iter().chain(second.to_le_bytes()))
}

fn hash_again(sum: u64) -> u64 {
    fnv1(sum.to_le_bytes())
}

/// FNV-1 (not 1a) with 64 bits.
fn fnv1(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(byte))
}
