//! The generator behind `math.random`: the sequence of POSIX's `lrand48`. Each run of a script begins with another
//! seed, so that nothing of it shows in a later one, and numbers that name things differ.

use std::hash::{BuildHasher, RandomState};

/// The number of different fractions.
const RANGE: i64 = 0x7fff_ffff;

/// A linear congruential generator with 48 bits of state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates the generator of a seed that is drawn.
    pub(crate) fn drawn() -> Random {
        Random::seeded(RandomState::new().hash_one(0) as i32)
    }

    /// Creates the generator of a seed.
    pub(crate) fn seeded(seed: i32) -> Random {
        Random(u64::from(seed as u32) << 16 | 0x330e)
    }

    /// Returns the next number, from 0 to below 1.
    pub(crate) fn next(&mut self) -> f64 {
        let next = self.0.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb);
        self.0 = next & 0xffff_ffff_ffff;
        ((self.0 >> 17) as i64 % RANGE) as f64 / RANGE as f64
    }
}
