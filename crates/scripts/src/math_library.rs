//! The functions of `math` that have a state.

use crate::failure::FunctionFailure;
use crate::lua::{LuaStack, NativeFunction};
use crate::number::truncate;
use crate::random::Random;

/// The functions of the table.
pub(crate) const FUNCTIONS: [(&str, NativeFunction); 2] =
    [("random", random), ("randomseed", random_seed)];

/// `math.random`
fn random(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let generator = &stack.context().random;
    let mut state = generator.get();
    let fraction = state.next();
    generator.set(state);
    let empty = |argument| FunctionFailure::Argument(argument, "interval is empty".into());
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
        _ => return Err(FunctionFailure::message("wrong number of arguments")),
    };
    stack.push_number(result);
    Ok(1)
}

/// `math.randomseed`
fn random_seed(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let seed = truncate(stack.check_number(1)?);
    stack.context().random.set(Random::seeded(seed as i32));
    Ok(0)
}

/// Returns an argument as an integer of 32 bits, in 64 so that sums do not overflow.
fn integer(stack: &LuaStack<'_>, index: i32) -> Result<i64, FunctionFailure> {
    Ok(i64::from(truncate(stack.check_number(index)?) as i32))
}
