//! Locks taken and given back, one after the other, and the answers that each must get.
//!
//! Invariants:
//! 1. No other client uses these locks: each is granted, and each is given back.
//! 2. Tokens of one lock rise from grant to grant.
//! 3. A request for a lock that another owner has is refused, with the owner's name; and a client
//!    that does not have it cannot give it back. One turn of [`SECOND`] checks that; it is not part
//!    of the latencies.

use std::time::Instant;

use super::lock_client::{LockAnswer, LockClient};
use crate::error::RunError;
use crate::latency::Latencies;

/// How many locks there are, in turn.
const NAMES: usize = 1000;
/// One turn in so many has a second owner.
const SECOND: u64 = 16;
/// The second owner.
const OTHER: &[u8] = b"other";

/// Turns of one owner.
pub(super) struct LockTurns<D> {
    client: D,
    turn: u64,
    tokens: Vec<u64>,
    /// `true` if the second owner takes the first lock beforehand, to see that it is found.
    planted: bool,
}

/// The latencies.
#[derive(Default)]
pub(super) struct LockLatencies {
    pub(super) acquire: Latencies,
    pub(super) release: Latencies,
}

impl<D: LockClient> LockTurns<D> {
    pub(super) fn new(client: D, planted: bool) -> LockTurns<D> {
        LockTurns {
            client,
            turn: 0,
            tokens: vec![0; NAMES],
            planted,
        }
    }

    /// Runs so many turns.
    ///
    /// # Errors
    /// Returns an error if an answer is missing or wrong.
    pub(super) fn run(&mut self, count: u64, took: &mut LockLatencies) -> Result<(), RunError> {
        (0..count).try_for_each(|_| {
            self.turn += 1;
            self.one(took)
                .map_err(|error| RunError::Failed(format!("turn {}: {error}", self.turn)))
        })
    }

    fn one(&mut self, took: &mut LockLatencies) -> Result<(), RunError> {
        let place = self.turn as usize % NAMES;
        // Five bytes, as in the paper.
        let name = format!("{place:05}").into_bytes();
        let owner = format!("{:05}", self.turn % 100_000).into_bytes();
        if std::mem::take(&mut self.planted) {
            self.client.acquire(&name, OTHER)?;
        }
        let begun = Instant::now();
        let grant = self.client.acquire(&name, &owner)?;
        took.acquire.record(begun.elapsed());
        self.check(place, &grant)?;
        if self.turn.is_multiple_of(SECOND) {
            self.second(&name, &owner)?;
        }
        let begun = Instant::now();
        let had = self.client.release(&name, &owner)?;
        took.release.record(begun.elapsed());
        match had {
            true => Ok(()),
            false => Err(RunError::Failed("the lock was lost".to_owned())),
        }
    }

    fn check(&mut self, place: usize, grant: &LockAnswer) -> Result<(), RunError> {
        let last = &mut self.tokens[place];
        match grant {
            LockAnswer::Granted { token: Some(token) } if *token <= *last => Err(RunError::Failed(
                format!("the lock was granted with token {token} after {last}"),
            )),
            LockAnswer::Granted { token } => {
                *last = token.unwrap_or(0);
                Ok(())
            }
            LockAnswer::Refused { holder } => Err(RunError::Failed(format!(
                "a lock that is free was refused: {} has it",
                holder.escape_ascii()
            ))),
        }
    }

    fn second(&mut self, name: &[u8], owner: &[u8]) -> Result<(), RunError> {
        let grant = self.client.acquire(name, OTHER)?;
        let holder = owner.to_vec();
        if grant != (LockAnswer::Refused { holder }) {
            return Err(RunError::Failed(format!("a lock that is held: {grant:?}")));
        }
        match self.client.release(name, OTHER)? {
            true => Err(RunError::Failed(
                "who did not hold the lock has given it back".to_owned(),
            )),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A table of locks with a planted fault.
    #[derive(Default)]
    struct Table {
        held: HashMap<Vec<u8>, Vec<u8>>,
        token: u64,
        grants_twice: bool,
        keeps_token: bool,
        anyone_releases: bool,
    }

    impl LockClient for Table {
        fn acquire(&mut self, name: &[u8], owner: &[u8]) -> Result<LockAnswer, RunError> {
            if let Some(holder) = self.held.get(name)
                && !self.grants_twice
            {
                let holder = holder.clone();
                return Ok(LockAnswer::Refused { holder });
            }
            self.held.insert(name.to_vec(), owner.to_vec());
            self.token += u64::from(!self.keeps_token || self.token == 0);
            let token = Some(self.token);
            Ok(LockAnswer::Granted { token })
        }

        fn release(&mut self, name: &[u8], owner: &[u8]) -> Result<bool, RunError> {
            let is_holder = self.held.get(name).is_some_and(|holder| holder == owner);
            let released = is_holder || self.anyone_releases;
            if released {
                self.held.remove(name);
            }
            Ok(released)
        }
    }

    fn run(table: Table, planted: bool) -> Result<(), RunError> {
        LockTurns::new(table, planted).run(3000, &mut LockLatencies::default())
    }

    #[test]
    fn a_table_that_is_right_passes() {
        let mut took = LockLatencies::default();
        let mut turns = LockTurns::new(Table::default(), false);
        turns.run(3000, &mut took).unwrap();
        assert_eq!((took.acquire.count(), took.release.count()), (3000, 3000));
        assert!(turns.client.held.is_empty());
    }

    #[test]
    fn what_is_wrong_is_found() {
        let right = Table::default;
        let wrong = [
            Table {
                grants_twice: true,
                ..right()
            },
            Table {
                keeps_token: true,
                ..right()
            },
            Table {
                anyone_releases: true,
                ..right()
            },
        ];
        for (table, says) in wrong.into_iter().zip(["Granted", "after", "given it back"]) {
            let found = run(table, false).unwrap_err().to_string();
            assert!(found.contains(says), "{found}");
        }
        let found = run(right(), true).unwrap_err().to_string();
        assert!(found.contains("other has it"), "{found}");
    }
}
