//! Reduces many calls that end in a mismatch to few.

use std::time::{Duration, Instant};

use super::session::{Call, Mismatch, Pair, Protocol, Session};

/// How long to look for fewer calls.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the fewest calls found that still end in a mismatch, and that mismatch. `calls` ended in
/// `mismatch` when they ran on empty databases.
pub(crate) fn shrink(
    pair: &Pair,
    protocol: Protocol,
    mut calls: Vec<Call>,
    mut mismatch: Mismatch,
) -> (Vec<Call>, Mismatch) {
    let begin = Instant::now();
    calls.truncate(mismatch.at + 1);
    let mut chunk = calls.len().div_ceil(2);
    while begin.elapsed() < PATIENCE {
        let mut smaller = false;
        let mut at = 0;
        while at < calls.len() && begin.elapsed() < PATIENCE {
            let mut fewer = calls.clone();
            fewer.drain(at..(at + chunk).min(calls.len()));
            match Session::new(pair, protocol).pipeline(&fewer) {
                Some(found) => {
                    fewer.truncate(found.at + 1);
                    (calls, mismatch, smaller) = (fewer, found, true);
                }
                None => at += chunk,
            }
        }
        match (smaller, chunk) {
            (false, 1) => break,
            (true, _) => chunk = chunk.min(calls.len()).max(1),
            (false, _) => chunk = chunk.div_ceil(2),
        }
    }
    (calls, mismatch)
}
