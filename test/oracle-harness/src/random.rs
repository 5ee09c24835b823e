//! Random choices that are the same everywhere.

/// SplitMix64: small, seeded.
pub struct Random(u64);

impl Random {
    /// The choices of one case; cases do not depend on each other.
    pub fn of_case(seed: u64, case: u64) -> Self {
        let mut random = Self(seed);
        let start = random.next() ^ case.wrapping_mul(0xD134_2543_DE82_EF95);
        Self(start)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Less than a bound; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or(0)
    }

    /// True so many times of a hundred.
    #[allow(dead_code, reason = "each example has its own way of asking")]
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// True once in so many times.
    #[allow(dead_code, reason = "each example has its own way of asking")]
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// One of a list that is not empty.
    pub fn pick<'l, T>(&mut self, list: &'l [T]) -> &'l T {
        &list[self.below(list.len())]
    }
}
