//! Chance, so that those who failed together do not try again together.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Between half of it and all of it.
pub(crate) fn jittered(duration: Duration) -> Duration {
    // The standard library seeds each state differently.
    let random = RandomState::new().hash_one(duration) % 1024;
    let half = duration / 2;
    half + half.mul_f64(f64::from(u32::try_from(random).unwrap_or_default()) / 1024.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn delays_differ_and_stay_between_half_and_all() {
        let whole = Duration::from_secs(4);
        let delays: BTreeSet<Duration> = (0..200).map(|_| jittered(whole)).collect();
        assert!(delays.len() > 50, "{} different delays of 200", delays.len());
        assert!(delays.iter().all(|delay| (whole / 2..=whole).contains(delay)), "{delays:?}");
    }
}
