//! The generator behind `math.random`: the sequence of POSIX's `lrand48`, which begins anew in each
//! run of a script.

use crate::lua::{Failure, Stack};

/// One more than the largest value that becomes a fraction.
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
    fn seeded(seed: i32) -> Random {
        Random(u64::from(seed as u32) << 16 | 0x330e)
    }

    /// Returns the next number of 31 bits.
    fn next(&mut self) -> i64 {
        let next = self.0.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb);
        self.0 = next & 0xffff_ffff_ffff;
        (self.0 >> 17) as i64
    }
}

/// `math.random`
pub(crate) fn random(stack: &mut Stack<'_>) -> Result<i32, Failure> {
    let generator = &stack.host().random;
    let mut state = generator.get();
    let fraction = (state.next() % RANGE) as f64 / RANGE as f64;
    generator.set(state);
    let empty = |argument| Failure::Argument(argument, "interval is empty".into());
    let result = match stack.top() {
        0 => fraction,
        1 => {
            let upper = integer(stack, 1)?;
            if upper < 1 {
                return Err(empty(1));
            }
            (fraction * upper as f64).floor() + 1.0
        }
        2 => {
            let (lower, upper) = (integer(stack, 1)?, integer(stack, 2)?);
            if lower > upper {
                return Err(empty(2));
            }
            (fraction * (upper - lower + 1) as f64).floor() + lower as f64
        }
        _ => return Err(Failure::message("wrong number of arguments")),
    };
    stack.push_number(result);
    Ok(1)
}

/// `math.randomseed`
pub(crate) fn random_seed(stack: &mut Stack<'_>) -> Result<i32, Failure> {
    let seed = stack.check_number(1)? as i64;
    stack.host().random.set(Random::seeded(seed as i32));
    Ok(0)
}

/// Returns an argument as an integer of 32 bits, in 64 so that sums do not overflow.
fn integer(stack: &Stack<'_>, index: i32) -> Result<i64, Failure> {
    Ok(i64::from(stack.check_number(index)? as i64 as i32))
}
