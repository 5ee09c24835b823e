//! libFuzzer's entry point. `DOVETAIL_FUZZ_TARGET` names the target; the arguments are libFuzzer's.

#![no_main]

use std::sync::LazyLock;

use fastrand::Rng;
use fuzz::Target;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("DOVETAIL_FUZZ_TARGET").unwrap_or_default();
    Target::of_name(&name).unwrap_or_else(|| panic!("DOVETAIL_FUZZ_TARGET={name} names no target"))
});

fuzz_target!(|bytes: &[u8]| TARGET.run(bytes));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut random = Rng::with_seed(seed.into());
    // Bytes are changed too, so that the parsers themselves are looked at.
    if random.u8(..4) == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let changed = TARGET.mutate(&mut random, &data[..size], &data[..size]);
    let length = changed.len().min(max_size);
    data[..length].copy_from_slice(&changed[..length]);
    length
});
