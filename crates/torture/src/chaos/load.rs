//! The operations of clients in a round.
//!
//! | operation | entered in |
//! |---|---|
//! | `GET`; `GETSET`; `SET`, of values that no other client writes | the history |
//! | blocks of two `GETSET`, and of three `GET` | the history |
//! | `WATCH`, `GET`, `GET`, and a block of two `SET` | the history |
//! | those of [`Counters`], [`Transfers`] and [`Collections`], which are half of all | these workloads |
//!
//! Registers belong to a round: its history begins empty, and is judged by itself. Counters,
//! accounts and collections stay.

use std::thread;
use std::time::Duration;

use history::recorder::{HistoryLog, Recorder};
use history::{Outcome, Value};

use super::session::{ChaosAnswer, ChaosSession, World};
use testkit::workload::resp::number;
use testkit::workload::{
    Client, Collections, Counters, Ended, Seen, Subject, Times, Transfers, Workload, counters,
    transfers,
};
use testkit::{Reply, TestkitError};

/// Registers of a round.
pub const REGISTERS: usize = 6;

/// What stays over all rounds.
#[derive(Debug)]
pub struct Books {
    /// Counters that all clients increment.
    pub counters: Counters,
    /// Accounts between which all clients move amounts.
    pub transfers: Transfers,
    /// Collections that all clients change.
    pub collections: Collections,
}

/// What was found in the end, for each part of the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBooks {
    /// Counters.
    pub counters: Vec<Seen>,
    /// Accounts.
    pub accounts: Vec<Seen>,
    /// Collections.
    pub collections: Vec<Seen>,
}

impl Books {
    /// Creates the books of an empty partition.
    #[must_use]
    pub fn new() -> Books {
        Books {
            counters: Counters::new(counters::Options {
                counters: 3,
                prefix: "counter:".to_owned(),
                reads: 0.2,
            }),
            transfers: Transfers::new(transfers::Options {
                accounts: 5,
                balance: 0,
                amount: 100,
                audit_every: 3,
                scans: false,
                ..transfers::Options::default()
            }),
            collections: Collections::default(),
        }
    }

    /// Judges what the workers of a round have seen, and what was found in the end, if it was read. Returns complaints.
    pub fn check(&mut self, done: Vec<Done>, found: Option<&FoundBooks>) -> Vec<String> {
        let (mut complaints, mut counting) = (Vec::new(), Vec::new());
        let (mut tellers, mut collecting) = (Vec::new(), Vec::new());
        for one in done {
            complaints.extend(one.complaints);
            counting.push(one.counting);
            tellers.push(one.teller);
            collecting.push(one.collecting);
        }
        let found_counters = found.map(|found| &found.counters[..]);
        complaints.extend(self.counters.check(counting, found_counters));
        let found_accounts = found.map(|found| &found.accounts[..]);
        complaints.extend(self.transfers.check(tellers, found_accounts));
        let found_collections = found.map(|found| &found.collections[..]);
        complaints.extend(self.collections.check(collecting, found_collections));
        complaints
    }
}

impl Default for Books {
    fn default() -> Books {
        Books::new()
    }
}

/// A worker's operations on counters, accounts and collections.
#[derive(Debug)]
pub struct Done {
    counting: <Counters as Workload>::Client,
    teller: <Transfers as Workload>::Client,
    collecting: <Collections as Workload>::Client,
    complaints: Vec<String>,
}

/// Returns a register of a round.
#[must_use]
pub fn register(round: u64, index: usize) -> String {
    format!("r{round}:{index}")
}

/// A client that does all kinds of operations.
pub struct ChaosWorker<'a> {
    world: &'a World,
    session: ChaosSession<'a>,
    log: HistoryLog<'a>,
    done: Done,
    rng: fastrand::Rng,
    round: u64,
    written: Value,
}

impl<'a> ChaosWorker<'a> {
    /// Creates the client of a round.
    #[must_use]
    pub fn new(
        world: &'a World,
        recorder: &'a Recorder,
        books: &Books,
        round: u64,
        mut rng: fastrand::Rng,
    ) -> ChaosWorker<'a> {
        let log = recorder.process();
        // Some give up while a leader sleeps, and ask another node; some wait until it wakes up.
        let patience = [1, 3, 12][rng.usize(..3)];
        ChaosWorker {
            world,
            session: ChaosSession::new(world, Duration::from_secs(patience), rng.fork()),
            done: Done {
                counting: books.counters.start(rng.fork()),
                teller: books.transfers.start(rng.fork()),
                collecting: books.collections.start(rng.fork()),
                complaints: Vec::new(),
            },
            rng,
            round,
            // No other client and no other round has the same number.
            written: (round as Value * 1000 + Value::from(log.process())) * 1_000_000,
            log,
        }
    }

    /// Works until the round's load is over.
    #[must_use]
    pub fn run(mut self) -> Done {
        while !self.world.is_over() {
            match self.rng.u32(0..200) {
                0..30 => self.get(),
                30..45 => self.get_set(),
                45..48 => self.set(),
                48..56 => self.block(),
                56..64 => self.watched(),
                64..70 => self.view(),
                70..88 => self.transact(|done| &mut done.counting),
                88..100 => self.transact(|done| &mut done.teller),
                _ => self.transact(|done| &mut done.collecting),
            }
            thread::sleep(Duration::from_micros(self.rng.u64(0..3000)));
        }
        self.done
    }

    /// Executes the next transaction of a workload.
    fn transact<C: Client>(&mut self, client: impl Fn(&mut Done) -> &mut C) {
        let done = transact(self.world, &mut self.session, client(&mut self.done));
        let complaint = done.err().map(|error| error.to_string());
        self.done.complaints.extend(complaint);
    }

    fn register(&mut self) -> String {
        register(self.round, self.rng.usize(..REGISTERS))
    }

    fn registers<const N: usize>(&mut self) -> [String; N] {
        let mut all: Vec<usize> = (0..REGISTERS).collect();
        self.rng.shuffle(&mut all);
        std::array::from_fn(|index| register(self.round, all[index]))
    }

    fn value(&mut self) -> (Value, String) {
        self.written += 1;
        (self.written, self.written.to_string())
    }

    fn get(&mut self) {
        let key = self.register();
        let mut entry = self.log.begin();
        let answer = self.session.ask(&[&["GET", &key]]);
        if let ChaosAnswer::Done(replies) = &answer {
            entry.read(&key, number(&replies[0]), None);
        }
        entry.end(outcome(&answer));
    }

    fn get_set(&mut self) {
        let key = self.register();
        let (value, text) = self.value();
        let mut entry = self.log.begin();
        let answer = self.session.ask(&[&["GETSET", &key, &text]]);
        let outcome = outcome(&answer);
        if let ChaosAnswer::Done(replies) = &answer {
            entry.read(&key, number(&replies[0]), None);
        }
        if outcome != Outcome::Aborted {
            entry.write(&key, value, None);
        }
        entry.end(outcome);
    }

    fn set(&mut self) {
        let key = self.register();
        let (value, text) = self.value();
        let mut entry = self.log.begin();
        let outcome = outcome(&self.session.ask(&[&["SET", &key, &text]]));
        if outcome != Outcome::Aborted {
            entry.write(&key, value, None);
        }
        entry.end(outcome);
    }

    fn block(&mut self) {
        let [a, b] = self.registers();
        let [(x, x_text), (y, y_text)] = [self.value(), self.value()];
        let mut entry = self.log.begin();
        let answer = self.session.ask(&[
            &["MULTI"],
            &["GETSET", &a, &x_text],
            &["GETSET", &b, &y_text],
            &["EXEC"],
        ]);
        let outcome = outcome(&answer);
        if let Some(seen) = block_of(&answer) {
            entry.read(&a, number(&seen[0]), None);
            entry.read(&b, number(&seen[1]), None);
        }
        if outcome != Outcome::Aborted {
            entry.write(&a, x, None);
            entry.write(&b, y, None);
        }
        entry.end(outcome);
    }

    fn watched(&mut self) {
        let [a, b] = self.registers();
        let [(x, x_text), (y, y_text)] = [self.value(), self.value()];
        let mut entry = self.log.begin();
        let read = self
            .session
            .ask(&[&["WATCH", &a, &b], &["GET", &a], &["GET", &b]]);
        let ChaosAnswer::Done(seen) = read else {
            self.session.leave();
            return entry.end(Outcome::Aborted);
        };
        let answer = self.session.ask(&[
            &["MULTI"],
            &["SET", &a, &x_text],
            &["SET", &b, &y_text],
            &["EXEC"],
        ]);
        let outcome = outcome(&answer);
        if outcome != Outcome::Aborted {
            entry.read(&a, number(&seen[1]), None);
            entry.read(&b, number(&seen[2]), None);
            entry.write(&a, x, None);
            entry.write(&b, y, None);
        }
        entry.end(outcome);
    }

    fn view(&mut self) {
        let keys: [String; 3] = self.registers();
        let mut entry = self.log.begin();
        let answer = self.session.ask(&[
            &["MULTI"],
            &["GET", &keys[0]],
            &["GET", &keys[1]],
            &["GET", &keys[2]],
            &["EXEC"],
        ]);
        for (key, seen) in keys.iter().zip(block_of(&answer).unwrap_or_default()) {
            entry.read(key, number(seen), None);
        }
        entry.end(outcome(&answer));
    }
}

/// Executes a client's next transaction, and returns its outcome.
///
/// # Errors
/// Returns an error if its results are wrong by themselves.
pub fn transact(
    world: &World,
    session: &mut ChaosSession<'_>,
    client: &mut impl Client,
) -> Result<Ended, TestkitError> {
    let (plan, start) = (client.plan(), world.now());
    let ended = session.run(&plan);
    let end = world.now();
    client.end(&plan, &ended, Times { start, end })?;
    Ok(ended)
}

/// Returns the outcome of a transaction. A null of `EXEC` says that a watched key has changed.
fn outcome(answer: &ChaosAnswer) -> Outcome {
    match answer {
        ChaosAnswer::Done(replies) if replies.last() == Some(&Reply::NullArray) => Outcome::Aborted,
        ChaosAnswer::Done(_) => Outcome::Committed,
        ChaosAnswer::Void => Outcome::Aborted,
        ChaosAnswer::Unknown => Outcome::Unknown,
    }
}

/// Returns the replies in a block, if it was executed.
fn block_of(answer: &ChaosAnswer) -> Option<&[Reply]> {
    match answer {
        ChaosAnswer::Done(replies) => match replies.last() {
            Some(Reply::Array(items)) => Some(items),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_of_exec_is_an_abort_and_silence_is_not() {
        let ok = Reply::Status("OK".to_owned());
        let done = |last| ChaosAnswer::Done(vec![ok.clone(), last]);
        assert_eq!(outcome(&done(Reply::NullArray)), Outcome::Aborted);
        assert_eq!(outcome(&done(Reply::Null)), Outcome::Committed);
        assert_eq!(outcome(&ChaosAnswer::Unknown), Outcome::Unknown);
        let items = vec![Reply::Int(1)];
        let block = done(Reply::Array(items.clone()));
        assert_eq!(block_of(&block), Some(&items[..]));
        assert_eq!(block_of(&done(Reply::NullArray)), None);
    }
}
