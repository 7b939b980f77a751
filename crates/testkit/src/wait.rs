//! Waits until a condition holds, with a time limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time that a condition may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The time for which a test goes on that has not seen enough events.
const LONGEST: Duration = Duration::from_secs(60);
/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `is_so` returns `true`.
///
/// # Panics
/// Panics if it does not within [`PATIENCE`]; the message begins with `what`.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually_some(what, || is_so().then_some(()));
}

/// Waits until `found` returns a value, and returns it.
///
/// # Panics
/// Panics in the same cases as [`eventually`].
#[track_caller]
pub fn eventually_some<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        let elapsed = begin.elapsed();
        assert!(elapsed < PATIENCE, "{what}: not within {PATIENCE:?}");
        sleep(PAUSE);
    }
}

/// Waits until a test has seen enough events; the scheduler decides how fast they come. Also
/// returns after a minute; the test checks again if it was enough.
pub fn go_on_until(mut is_enough: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_enough() && begin.elapsed() < LONGEST {
        sleep(PAUSE);
    }
}

/// Sets the flag when it is dropped. A thread scope waits for its threads even if its closure
/// panics: threads that run until the flag is set then end, and the panic is reported instead of a
/// test that hangs.
#[derive(Debug)]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_returned_when_it_is_there() {
        let mut looks = 0;
        let found = eventually_some("the third look", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!((found, looks), (3, 3));
    }
}
