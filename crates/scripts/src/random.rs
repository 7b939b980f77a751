//! The generator behind `math.random`: the sequence of POSIX's `lrand48`, which begins anew in each
//! run of a script.

/// The number of different fractions.
const RANGE: i64 = 0x7fff_ffff;

/// A linear congruential generator with 48 bits of state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Default for Random {
    fn default() -> Random {
        Random::seeded(0)
    }
}

impl Random {
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
