//! What bounds the allocator's work and its messages, with what happens at the bound and what set it. Steps of searches
//! are not among them: whoever asks brings a budget. Limits of the API are where the API is read. Where "nothing is
//! recorded", the history has neither a measurement of the number itself nor a reason for just this one.

/// What the proof of a refusal costs, roughly, in looks at devices: so many, and so many for each device. As long as a
/// walk has cost less it goes on without one, and ends without one if it ends before; from then on the proof is made.
/// `cargo xtask bench dra`: "2 of 8 GPUs on one root, each has its own" takes 1.8 µs by walking and 4.4 with a proof.
pub(crate) const LOOKS_BEFORE_PROOF: usize = 32;
/// See [`LOOKS_BEFORE_PROOF`].
pub(crate) const LOOKS_BEFORE_PROOF_PER_DEVICE: usize = 5;

/// So many looks at devices that were looked at before, and that a constraint does not admit, cost what one costs that
/// asks everything. `cargo xtask bench dra`: "2 of 32 GPUs on one root, each has its own" takes 10 µs by walking, and
/// 20 where all looks count alike and a proof comes.
pub(crate) const SHORT_LOOKS: usize = 4;

/// Steps for the reason of a refusal, when somebody reads it. Without one it says that no combination will do. Nothing
/// is recorded; counting takes a step for each test and each value of an attribute.
pub(crate) const REASON_STEPS: u64 = 10_000;

/// Combinations of domain values that are looked at for one machine shape, and domains of one template. The last ones
/// are left out, so that no machine is planned into them. Nothing is recorded; each combination is a search of its own,
/// whose time `cargo xtask bench dra` shows.
pub(crate) const MAX_DOMAINS: usize = 256;

/// Devices that a report names beside their number; the rest is only counted. Chosen to be read.
/// `dovetail dra allocate` prints them.
pub(crate) const NAMED_DEVICES: usize = 4;

/// Values that a line names before the rest is left out. Chosen to be read; `dovetail dra allocate` prints them.
pub(crate) const NAMED_VALUES: usize = 4;
