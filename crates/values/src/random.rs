//! Elements that are drawn at random.

use base::nested::NestedReply;
use base::transaction::{CallError, OpError};
use fastrand::Rng;
use hashbrown::HashSet;

/// The longest reply, in bytes: a client can ask for one element any number of times.
const LONGEST_REPLY: usize = 256 << 20;
/// The least number of bytes that an item takes in a reply.
const LEAST_ITEM: usize = 5;

/// Returns the number of elements that are drawn from so many. If `count` is negative, the same element may come again.
///
/// # Errors
/// Returns an error if the reply would be too long.
pub(crate) fn drawn(count: i64, elements: usize) -> Result<usize, OpError> {
    let asked = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    match count < 0 && elements > 0 {
        true if asked > LONGEST_REPLY / LEAST_ITEM => Err(OpError::Call(CallError::ReplyTooLong)),
        true => Ok(asked),
        false => Ok(asked.min(elements)),
    }
}

/// Adds elements that are drawn at random to a reply: [`drawn`] says how many.
///
/// # Errors
/// Returns an error if the reply becomes too long.
pub(crate) fn add_random<T>(
    reply: &mut NestedReply,
    (elements, count, seed): (&[T], i64, u64),
    add: impl Fn(&T, &mut NestedReply),
) -> Result<(), OpError> {
    let (mut rng, number) = (Rng::with_seed(seed), drawn(count, elements.len())?);
    if count >= 0 {
        let positions = distinct_positions(&mut rng, number, elements.len());
        positions.iter().for_each(|at| add(&elements[*at], reply));
        return Ok(());
    }
    for _ in 0..number {
        add(&elements[rng.usize(..elements.len())], reply);
        if reply.as_bytes().len() > LONGEST_REPLY {
            return Err(OpError::Call(CallError::ReplyTooLong));
        }
    }
    Ok(())
}

/// Of so many elements at least for each one that is drawn, and at most for each one that is present, positions are
/// drawn.
const FEW: usize = 8;

/// Draws so many elements by their positions, distinct ones unless `count` is negative. `positions` are the number of
/// positions, and of those at which `at` returns an element. `None`: it is better to look at all elements.
pub(crate) fn few_positions<T>(
    rng: &mut Rng,
    count: i64,
    (positions, present): (usize, usize),
    at: impl Fn(usize) -> Option<T>,
) -> Option<Vec<T>> {
    let asked = usize::try_from(count.unsigned_abs()).ok()?;
    if asked > present / FEW || present < positions / FEW {
        return None;
    }
    let (mut seen, mut drawn) = (HashSet::new(), Vec::with_capacity(asked));
    while drawn.len() < asked {
        let position = rng.usize(..positions);
        if count < 0 || seen.insert(position) {
            drawn.extend(at(position));
        }
    }
    Some(drawn)
}

/// Returns `number` of the positions below `len`, in ascending order.
pub(crate) fn distinct_positions(rng: &mut Rng, number: usize, len: usize) -> Vec<usize> {
    let mut left = number;
    // Each position is taken with the probability that the rest of the positions needs.
    let is_taken = |at: &usize| {
        let taken = rng.usize(..len - at) < left;
        left -= usize::from(taken);
        taken
    };
    (0..len).filter(is_taken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_distinct_and_drawn_alike() {
        let mut rng = Rng::with_seed(5);
        let mut drawn = [0; 10];
        for _ in 0..10_000 {
            let number = rng.usize(..=10);
            let positions = distinct_positions(&mut rng, number, 10);
            assert_eq!(positions.len(), number);
            assert!(positions.is_sorted_by(|one, next| one < next));
            positions.iter().for_each(|at| drawn[*at] += 1);
        }
        // Each is drawn 5,000 times, give or take fifty.
        assert!(
            drawn.iter().all(|times| (4700..5300).contains(times)),
            "{drawn:?}"
        );
    }

    #[test]
    fn long_replies_are_refused() {
        assert_eq!(drawn(-3, 2), Ok(3));
        assert_eq!(drawn(3, 2), Ok(2));
        assert_eq!(drawn(-3, 0), Ok(0));
        assert_eq!(drawn(i64::MAX, 2), Ok(2));
        let too_long = Err(OpError::Call(CallError::ReplyTooLong));
        assert_eq!(drawn(-i64::MAX, 2), too_long);
        let element = vec![0; 1 << 20];
        let mut reply = NestedReply::default();
        let add = |element: &Vec<u8>, reply: &mut NestedReply| reply.bytes(element);
        assert!(add_random(&mut reply, (&[element], -300, 1), add).is_err());
    }
}
