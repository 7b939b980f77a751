//! How much a test does.
//!
//! | `KUMIKI_TESTS` | meaning |
//! |---|---|
//! | unset, or `usual` | enough to find what the test looks for, in seconds |
//! | `nightly` | four times as much or more; `cargo xtask nightly` sets it |

use std::env;

/// Returns `usual`, or `nightly` if the environment has `KUMIKI_TESTS=nightly`.
///
/// # Panics
/// Panics if the variable has a value that is not in the table of this module.
pub fn amount<T>(usual: T, nightly: T) -> T {
    of(env::var("KUMIKI_TESTS").ok().as_deref(), usual, nightly)
}

fn of<T>(value: Option<&str>, usual: T, nightly: T) -> T {
    match value {
        None | Some("usual") => usual,
        Some("nightly") => nightly,
        Some(other) => panic!("KUMIKI_TESTS is '{other}': it may be 'usual' or 'nightly'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nights_have_more() {
        assert_eq!(of(None, 1, 4), 1);
        assert_eq!(of(Some("usual"), 1, 4), 1);
        assert_eq!(of(Some("nightly"), 1, 4), 4);
    }

    #[test]
    #[should_panic(expected = "it may be 'usual' or 'nightly'")]
    fn a_slip_of_the_pen_is_not_taken_for_the_usual() {
        of(Some("nigthly"), 1, 4);
    }
}
