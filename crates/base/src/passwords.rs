//! Passwords of clients: their comparison, and the delay of the answer to a wrong one.

use std::time::Duration;

/// The delay of the answer to a connection's first wrong password.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// The delays of the answers to one connection's wrong passwords: each is twice as long as the one
/// before, up to a second. A server executes nothing else of the connection meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct LoginDelay {
    next: Duration,
}

impl Default for LoginDelay {
    fn default() -> LoginDelay {
        LoginDelay { next: FIRST_DELAY }
    }
}

impl LoginDelay {
    /// Counts a wrong password, and returns the delay of its answer.
    pub fn count(&mut self) -> Duration {
        let delay = self.next;
        self.next = (2 * delay).min(LONGEST_DELAY);
        delay
    }
}

/// Returns `true` if the passwords are the same. The time that it takes depends on the length of
/// `given` alone.
#[must_use]
pub fn is_same_password(given: &[u8], expected: &[u8]) -> bool {
    let mut difference = u8::from(given.len() != expected.len());
    for (at, &byte) in given.iter().enumerate() {
        let other = if expected.is_empty() {
            !byte
        } else {
            expected[at % expected.len()]
        };
        difference |= std::hint::black_box(byte ^ other);
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_compared_whole() {
        assert!(is_same_password(b"secret", b"secret"));
        for given in [
            &b""[..],
            b"s",
            b"secre",
            b"secretsecret",
            b"Secret",
            b"secret\0",
        ] {
            assert!(!is_same_password(given, b"secret"), "{given:?}");
        }
        assert!(is_same_password(b"", b"") && !is_same_password(b"x", b""));
    }

    #[test]
    fn delays_double_up_to_a_second() {
        let mut delay = LoginDelay::default();
        let delays: Vec<u128> = (0..7).map(|_| delay.count().as_millis()).collect();
        assert_eq!(delays, [50, 100, 200, 400, 800, 1000, 1000]);
    }
}
