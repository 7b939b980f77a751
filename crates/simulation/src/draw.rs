//! Random decisions of a seed.

use std::time::Duration;

use fastrand::Rng;

/// Returns one of some values, each with the same probability.
///
/// # Panics
/// Panics if there are none.
pub fn one_of<T: Copy>(random: &mut Rng, values: &[T]) -> T {
    values[random.usize(..values.len())]
}

/// Draws the frequency of a fault in a run, as a share of 1000: zero in half of the runs, in the
/// others up to `most`.
pub fn share(random: &mut Rng, most: u32) -> u32 {
    if random.bool() {
        random.u32(1..=most)
    } else {
        0
    }
}

/// Returns `true` in `of_thousand` of a thousand cases.
pub fn chance(random: &mut Rng, of_thousand: u32) -> bool {
    random.u32(..1000) < of_thousand
}

/// Draws a time of 10 µs or more, at most 10 µs above a limit, and more often short than long.
pub fn mostly_short(random: &mut Rng, limit: Duration) -> Duration {
    let part = random.f64();
    Duration::from_micros(10) + limit.mul_f64(part * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_their_ranges_and_reach_them() {
        let random = &mut Rng::with_seed(1);
        let values: Vec<u8> = (0..1000).map(|_| one_of(random, &[1, 2, 3])).collect();
        assert!([1, 2, 3].iter().all(|value| values.contains(value)));
        let shares: Vec<u32> = (0..1000).map(|_| share(random, 7)).collect();
        assert!((0..=7).all(|share| shares.contains(&share)));
        let never = shares.iter().filter(|share| **share == 0).count();
        assert!((400..600).contains(&never), "{never} of 1000");
        assert!(!(0..1000).any(|_| chance(random, 0)));
        assert!((0..1000).all(|_| chance(random, 1000)));
    }

    #[test]
    fn times_are_more_often_short_than_long() {
        let random = &mut Rng::with_seed(2);
        let limit = Duration::from_millis(1);
        let times: Vec<Duration> = (0..1000).map(|_| mostly_short(random, limit)).collect();
        let least = Duration::from_micros(10);
        assert!(
            times
                .iter()
                .all(|time| (least..=limit + least).contains(time))
        );
        let short = times.iter().filter(|time| **time < limit / 2).count();
        assert!(short > 600, "{short} of 1000 are below the middle");
    }
}
