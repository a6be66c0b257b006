//! Random numbers that mean the same everywhere.

/// A small generator (splitmix64) of its own, so that a seed means the same on every machine and in every release.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The numbers of a seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// One of the independent streams of a seed.
    pub(crate) fn stream(seed: u64, stream: u64) -> Self {
        let mut rng = Self::of_seed(seed);
        rng.0 ^= stream.wrapping_mul(0x2545_f491_4f6c_dd1d);
        rng.next();
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `0..bound`.
    ///
    /// # Panics
    ///
    /// When `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// In `low..high`.
    ///
    /// # Panics
    ///
    /// When that is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of these.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// In `0.0..1.0`.
    pub(crate) fn fraction(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 20)
    }
}
