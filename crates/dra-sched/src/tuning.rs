//! What bounds the allocator's work and its messages, with what happens at the bound and what set it. Steps are not
//! among them: whoever asks brings a budget. Limits of the API are where the API is read. Where "nothing is recorded",
//! the history has neither a measurement of the number itself nor a reason for just this one.

/// How many looks at each device the proof of a refusal costs, roughly. As long as a walk has cost less, and what fails
/// is that devices are not alike, it goes on without one; from then on the proof is made. Nothing is recorded;
/// `cargo xtask bench dra` shows what it saves.
pub(crate) const PROOF_PATIENCE: usize = 8;

/// Combinations of domain values that are looked at for one machine shape, and domains of one template. The last ones
/// are left out, so that no machine is planned into them. Nothing is recorded; each combination is a search of its own,
/// whose time `cargo xtask bench dra` shows.
pub(crate) const MAX_DOMAINS: usize = 256;

/// Devices that a report names beside their number; the rest is only counted. Chosen to be read.
/// `dovetail dra allocate` prints them.
pub(crate) const NAMED_DEVICES: usize = 4;

/// Values that a line names before the rest is left out. Chosen to be read; `dovetail dra allocate` prints them.
pub(crate) const NAMED_VALUES: usize = 4;
