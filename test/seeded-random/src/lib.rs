//! Random choices of tests and benchmarks, the same everywhere and in every release: SplitMix64 (Steele, Lea, Flood,
//! OOPSLA 2014). A seed is all that a failure needs, and seeds are named in tests, documents and recorded results. So
//! what a seed stands for never changes: not the numbers, nor how a choice is made of them, nor how many a choice
//! takes.

use std::ops::Range;
use std::time::Duration;

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// That of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// That of one case of a run with this seed; cases do not depend on each other.
    #[must_use]
    pub fn of_case(seed: u64, case: u64) -> Self {
        Self(Self(seed).number() ^ case.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// At least 0 and below `end`; 0 if that is not positive.
    pub fn below<N: TryFrom<u64> + TryInto<u64>>(&mut self, end: N) -> N {
        let below = self.number() % end.try_into().unwrap_or(0).max(1);
        N::try_from(below).unwrap_or_else(|_| unreachable!("{below} is below a number of that type"))
    }

    /// In a range; its start if it is empty.
    pub fn within(&mut self, range: &Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// A time in a range, in whole milliseconds.
    pub fn time_within(&mut self, range: &Range<Duration>) -> Duration {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.within(&(ms(range.start)..ms(range.end))))
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// True so many times in a thousand.
    pub fn per_mille(&mut self, share: u32) -> bool {
        self.below(1000) < share
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of them.
    ///
    /// # Panics
    /// There is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// From 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Of a normal distribution of mean 0 and deviation 1, as the sum of twelve uniform ones: additions only, so that
    /// no machine's mathematics makes another case of it.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first three are those of the authors' own program for this seed.
    #[test]
    fn a_seed_stands_for_the_same_choices_for_ever() {
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.number()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        let mut random = Random::of_case(1, 2);
        let choices = [random.below(1000), random.within(&(10..20)), u64::from(*random.pick(&[1_u8, 2, 3, 5, 8]))];
        assert_eq!(choices, [297, 11, 2]);
        let mut random = Random::new(7);
        assert_eq!((random.percent(50), random.per_mille(500), random.one_in(2)), (false, false, true));
        assert_eq!(random.time_within(&(Duration::ZERO..Duration::from_secs(1))), Duration::from_millis(203));
        let bits = (random.unit().to_bits(), random.normal().to_bits());
        assert_eq!(bits, (0.452_441_895_011_468_36_f64.to_bits(), 0.737_555_107_346_703_5_f64.to_bits()));
    }

    #[test]
    fn numbers_of_every_type_are_below_their_end_and_none_is_negative() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            assert!((0..3).contains(&random.below(3_i64)) && random.below(3_usize) < 3);
            assert!(random.below(u64::MAX) < u64::MAX && (0..i32::MAX).contains(&random.below(i32::MAX)));
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert_eq!((random.below(0_u64), random.below(-5_i64), random.within(&(7..7))), (0, 0, 7));
    }
}
