//! The result of a run.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::coverage::{Coverage, Point};

/// Numbers that a simulation counts besides points, such as the transactions that took effect.
pub trait Counts: Clone + Default + Send {
    /// Adds the numbers of another run.
    fn add(&mut self, other: &Self);

    /// Returns lines for people.
    fn text(&self) -> String;
}

/// A simulation that counts nothing else.
impl Counts for () {
    fn add(&mut self, (): &()) {}

    fn text(&self) -> String {
        String::new()
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Run<P, C = ()> {
    /// The seed, which gives the same run again.
    pub seed: u64,
    /// The error, if there is one.
    pub failure: Option<String>,
    /// A hash of the events: the same for the same events.
    pub hash: u64,
    /// The points that were reached.
    pub reached: Coverage<P>,
    /// The numbers that were counted.
    pub counts: C,
    /// All events, if requested.
    pub trace: Vec<String>,
    /// The history as JSON lines, if requested and if the simulation has one.
    pub history: String,
}

impl<P: Point, C: Counts> Run<P, C> {
    /// Returns the result of a run of which only the failure is known.
    #[must_use]
    pub fn failed(seed: u64, failure: String) -> Run<P, C> {
        Run {
            seed,
            failure: Some(failure),
            hash: 0,
            reached: Coverage::default(),
            counts: C::default(),
            trace: Vec::new(),
            history: String::new(),
        }
    }
}

/// Calls a function, and returns its panic as an error.
///
/// # Errors
/// Returns the panic's message. Data that the function was changing may be half changed.
pub fn catch(run: impl FnOnce()) -> Result<(), Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let message = message(panic.as_ref()).unwrap_or("no message");
        Panicked(message.to_owned())
    })
}

/// The panic of a run, with its message: a bug of the simulated code, or of the simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked(pub String);

impl std::fmt::Display for Panicked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a panic: {}", self.0)
    }
}

impl std::error::Error for Panicked {}

fn message(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_failure() {
        assert_eq!(catch(|| {}), Ok(()));
        let fixed = catch(|| panic!("too early"));
        assert_eq!(
            fixed.map_err(|panic| panic.to_string()),
            Err("a panic: too early".to_owned())
        );
        let built = catch(|| panic!("at {}", 7));
        assert_eq!(
            built.map_err(|panic| panic.to_string()),
            Err("a panic: at 7".to_owned())
        );
        let other = catch(|| std::panic::panic_any(7));
        assert_eq!(
            other.map_err(|panic| panic.to_string()),
            Err("a panic: no message".to_owned())
        );
    }
}
