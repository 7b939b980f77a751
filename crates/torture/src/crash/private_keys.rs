//! The book of one connection's own keys.
//!
//! No other connection writes these keys, and the server executes a connection's requests in order.
//! So the state after a crash must always be the state after some prefix of the connection's
//! requests, and the prefix must contain all acknowledged ones. Comparing whole states shows more
//! than comparing keys one by one: it also detects a later write that survived while an earlier one
//! did not, and a partial transaction.

use std::collections::BTreeMap;

use crate::crash::load::Record;
use crate::crash::op::{CrashCell, CrashExpiry, CrashOp, OWN_KEYS, own_key};
use crate::crash::value::CrashValue;
use crate::crash::verdict::{CrashVerdict, FoundCell, FoundKeys};

/// The tolerance of a remaining time to live: requests wait in queues.
const TTL_SLACK_MS: i64 = 1500;

/// As [`TTL_SLACK_MS`], if a request may also wait for a transaction over several nodes, ten
/// seconds at most.
const SCATTERED_TTL_SLACK_MS: i64 = 11_500;

type Assignments = [(String, Option<CrashCell>)];
type State = BTreeMap<String, CrashCell>;

/// The keys of one connection as they were last found.
#[derive(Debug)]
pub struct PrivateKeys {
    connection: usize,
    settled: State,
    /// `true` if its requests always take effect in their order.
    ordered: bool,
}

impl PrivateKeys {
    /// Creates the book of a connection that has written nothing.
    #[must_use]
    pub fn new(connection: usize) -> PrivateKeys {
        PrivateKeys {
            connection,
            settled: State::new(),
            ordered: true,
        }
    }

    /// As [`PrivateKeys::new`], if requests for different keys may be lost out of order: the keys
    /// lie on several nodes, and some of these died.
    #[must_use]
    pub fn scattered(connection: usize) -> PrivateKeys {
        PrivateKeys {
            ordered: false,
            ..PrivateKeys::new(connection)
        }
    }

    /// Compares the state that was found with what `records` allow, and takes it over for the next
    /// round.
    pub fn judge(&mut self, records: &[Record], found: &FoundKeys, verdict: &mut CrashVerdict) {
        let (acked, open) = split(records);
        if !self.ordered {
            self.judge_keys(&acked, &open, found, verdict);
            return self.adopt(found);
        }
        let mut state = self.settled.clone();
        for cells in &acked {
            apply(&mut state, cells);
        }
        let mut rest = open.iter();
        while !self.matches(&state, found) {
            let Some(cells) = rest.next() else {
                self.diagnose(&acked, &open, found, verdict);
                return self.adopt(found);
            };
            apply(&mut state, cells);
        }
        state.retain(|_, cell| !matches!(cell.expiry, CrashExpiry::Soon(_)));
        self.settled = state;
    }

    fn keys(&self) -> impl Iterator<Item = String> + use<> {
        let connection = self.connection;
        (0..OWN_KEYS).map(move |key| own_key(connection, key))
    }

    fn matches(&self, state: &State, found: &FoundKeys) -> bool {
        self.keys()
            .all(|key| self.agrees(state.get(&key), found.cells.get(&key)))
    }

    /// Reports a state that no prefix fits: says of each key what is wrong with it, or, if every
    /// key could be right by itself, that they cannot be right together.
    fn diagnose(
        &self,
        acked: &[&Assignments],
        open: &[&Assignments],
        found: &FoundKeys,
        verdict: &mut CrashVerdict,
    ) {
        let before = verdict.lost.len() + verdict.wrong.len();
        self.judge_keys(acked, open, found, verdict);
        if before == verdict.lost.len() + verdict.wrong.len() {
            let connection = self.connection;
            verdict.partial.push(format!(
                "the keys of connection {connection} show no prefix of what it sent"
            ));
        }
    }

    /// Judges each key by itself: it must have the last acknowledged value, or one of a request
    /// without an answer.
    fn judge_keys(
        &self,
        acked: &[&Assignments],
        open: &[&Assignments],
        found: &FoundKeys,
        verdict: &mut CrashVerdict,
    ) {
        for key in self.keys() {
            let mut past = vec![self.settled.get(&key)];
            past.extend(acked.iter().filter_map(|cells| assigned(cells, &key)));
            let mut allowed = vec![past[past.len() - 1]];
            allowed.extend(open.iter().filter_map(|cells| assigned(cells, &key)));
            self.diagnose_key(&key, &past, &allowed, found, verdict);
        }
    }

    fn adopt(&mut self, found: &FoundKeys) {
        self.settled.clear();
        for key in self.keys() {
            let cell = found.cells.get(&key);
            if let Some((cell, value)) = cell.and_then(|c| Some((c, CrashValue::decode(&c.bytes)?)))
            {
                let expiry = match u64::try_from(cell.ttl_ms) {
                    Ok(ms) => CrashExpiry::Late(ms, cell.read_at),
                    Err(_) => CrashExpiry::Never,
                };
                self.settled.insert(key, CrashCell { value, expiry });
            }
        }
    }

    /// Judges one key. `past` has its values up to the last acknowledged write, `allowed` that one
    /// and later ones.
    fn diagnose_key(
        &self,
        key: &str,
        past: &[Option<&CrashCell>],
        allowed: &[Option<&CrashCell>],
        found: &FoundKeys,
        verdict: &mut CrashVerdict,
    ) {
        let cell = found.cells.get(key);
        if allowed.iter().any(|expected| self.agrees(*expected, cell)) {
            return;
        }
        let value = cell.and_then(|cell| CrashValue::decode(&cell.bytes));
        let held = |cells: &[Option<&CrashCell>]| {
            value.is_some()
                && cells
                    .iter()
                    .any(|cell| cell.map(|cell| cell.value) == value)
        };
        let acked = allowed[0];
        match cell {
            None => verdict
                .lost
                .push(format!("{key} is absent; acknowledged was {acked:?}")),
            Some(cell) if held(allowed) => {
                let ttl_ms = cell.ttl_ms;
                verdict.wrong.push(format!(
                    "{key} has {ttl_ms} ms to live instead of {acked:?}"
                ));
            }
            Some(_) if held(past) => {
                verdict.lost.push(format!(
                    "{key} went back to {value:?}; acknowledged was {acked:?}"
                ));
            }
            Some(_) => verdict
                .wrong
                .push(format!("{key} holds what no client sent: {value:?}")),
        }
    }

    fn agrees(&self, expected: Option<&CrashCell>, cell: Option<&FoundCell>) -> bool {
        let expected = expected.filter(|e| !matches!(e.expiry, CrashExpiry::Soon(_)));
        match (expected, cell) {
            (None, None) => true,
            (Some(expected), Some(cell)) => {
                let ttl_fits = match expected.expiry {
                    CrashExpiry::Late(ms, set) => {
                        let passed = cell.read_at.duration_since(set).as_millis() as i64;
                        (cell.ttl_ms - (ms as i64 - passed)).abs() <= self.slack_ms()
                    }
                    CrashExpiry::Never | CrashExpiry::Soon(_) => cell.ttl_ms == -1,
                };
                ttl_fits && CrashValue::decode(&cell.bytes) == Some(expected.value)
            }
            _ => false,
        }
    }

    fn slack_ms(&self) -> i64 {
        if self.ordered {
            TTL_SLACK_MS
        } else {
            SCATTERED_TTL_SLACK_MS
        }
    }
}

fn split(records: &[Record]) -> (Vec<&Assignments>, Vec<&Assignments>) {
    let (mut acked, mut open) = (Vec::new(), Vec::new());
    for record in records {
        if let CrashOp::Assign { cells, .. } = &record.op {
            let list = if record.acked.is_some() {
                &mut acked
            } else {
                &mut open
            };
            list.push(cells.as_slice());
        }
    }
    (acked, open)
}

fn apply(state: &mut State, cells: &Assignments) {
    for (key, cell) in cells {
        match cell {
            Some(cell) => state.insert(key.clone(), *cell),
            None => state.remove(key),
        };
    }
}

/// Returns the value that an operation leaves in a key, if it writes the key at all.
fn assigned<'c>(cells: &'c Assignments, key: &str) -> Option<Option<&'c CrashCell>> {
    cells
        .iter()
        .find(|(k, _)| k == key)
        .map(|(_, cell)| cell.as_ref())
}
