//! What clients do in a round.
//!
//! | operation | entered in |
//! |---|---|
//! | `GET`; `GETSET`; `SET`, of values that nobody else writes | the history |
//! | blocks of two `GETSET`, and of three `GET` | the history |
//! | `WATCH`, `GET`, `GET`, and a block of two `SET` | the history |
//! | `INCR` and `GET` of a counter | the books |
//! | blocks of `DECRBY` and `INCRBY`, and of a `GET` of all accounts | the books |
//!
//! Registers are those of a round: its history begins with nothing, and is judged by itself. Counters
//! and accounts stay.

use std::thread;
use std::time::Duration;

use history::recorder::{Log, Recorder};
use history::{Outcome, Value};

use super::books::{Count, Known, Page, Transfer};
use super::session::{Answer, Session, World};
use crate::client::Reply;

/// Registers of a round.
pub const REGISTERS: usize = 6;
/// Counters.
pub const COUNTERS: usize = 3;
/// Accounts.
pub const ACCOUNTS: usize = 5;

/// A register of a round.
#[must_use]
pub fn register(round: u64, index: usize) -> String {
    format!("r{round}:{index}")
}

/// A counter.
#[must_use]
pub fn counter(index: usize) -> String {
    format!("counter:{index}")
}

/// An account.
#[must_use]
pub fn account(index: usize) -> String {
    format!("account:{index}")
}

/// A client that does all kinds of operations.
pub struct Worker<'a> {
    world: &'a World,
    session: Session<'a>,
    log: Log<'a>,
    page: Page,
    rng: fastrand::Rng,
    round: u64,
    written: Value,
}

impl<'a> Worker<'a> {
    /// The client of a round.
    #[must_use]
    pub fn new(
        world: &'a World,
        recorder: &'a Recorder,
        round: u64,
        mut rng: fastrand::Rng,
    ) -> Worker<'a> {
        let log = recorder.process();
        // Some give up while a leader sleeps, and ask another one; some wait until it wakes up.
        let patience = [1, 3, 12][rng.usize(..3)];
        Worker {
            world,
            session: Session::new(world, Duration::from_secs(patience), rng.fork()),
            page: Page::default(),
            rng,
            round,
            // No other client and no other round has the same number.
            written: (round as Value * 1000 + Value::from(log.process())) * 1_000_000,
            log,
        }
    }

    /// Works until the round's load is over.
    #[must_use]
    pub fn run(mut self) -> Page {
        while !self.world.is_over() {
            match self.rng.u32(0..100) {
                0..30 => self.get(),
                30..45 => self.get_set(),
                45..48 => self.set(),
                48..56 => self.block(),
                56..64 => self.watched(),
                64..70 => self.view(),
                70..84 => self.count(),
                84..88 => self.read_counter(),
                88..96 => self.transfer(),
                _ => self.audit(),
            }
            thread::sleep(Duration::from_micros(self.rng.u64(0..3000)));
        }
        self.page
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
        if let Answer::Done(replies) = &answer {
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
        if let Answer::Done(replies) = &answer {
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
        let Answer::Done(seen) = read else {
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

    fn count(&mut self) {
        let index = self.rng.usize(..COUNTERS);
        self.note(index, &["INCR", &counter(index)], |reply| match reply {
            Some(Reply::Int(value)) => Some(Known::Incremented(*value)),
            _ => Some(Known::Perhaps),
        });
    }

    fn read_counter(&mut self) {
        let index = self.rng.usize(..COUNTERS);
        self.note(index, &["GET", &counter(index)], |reply| {
            Some(Known::Read(number(reply?).unwrap_or(0)))
        });
    }

    fn note(
        &mut self,
        counter: usize,
        request: &[&str],
        known: impl Fn(Option<&Reply>) -> Option<Known>,
    ) {
        let start = self.world.now();
        let known = match self.session.ask(&[request]) {
            Answer::Done(replies) => known(replies.first()),
            Answer::Unknown => known(None),
            Answer::Void => None,
        };
        let end = self.world.now();
        self.page.counts.extend(known.map(|known| Count {
            counter,
            start,
            end,
            known,
        }));
    }

    fn transfer(&mut self) {
        let from = self.rng.usize(..ACCOUNTS);
        let to = (from + self.rng.usize(1..ACCOUNTS)) % ACCOUNTS;
        let amount = self.rng.i64(1..100);
        let text = amount.to_string();
        let answer = self.session.ask(&[
            &["MULTI"],
            &["DECRBY", &account(from), &text],
            &["INCRBY", &account(to), &text],
            &["EXEC"],
        ]);
        if answer != Answer::Void {
            self.page.transfers.push(Transfer {
                from,
                to,
                amount,
                is_known: matches!(answer, Answer::Done(_)),
            });
        }
    }

    fn audit(&mut self) {
        let names: Vec<String> = (0..ACCOUNTS).map(account).collect();
        let gets: Vec<[&str; 2]> = names.iter().map(|name| ["GET", name]).collect();
        let mut requests: Vec<&[&str]> = vec![&["MULTI"]];
        requests.extend(gets.iter().map(|get| &get[..]));
        requests.push(&["EXEC"]);
        let answer = self.session.ask(&requests);
        let balances = block_of(&answer).map(|all| all.iter().map(|one| number(one).unwrap_or(0)));
        self.page.audits.extend(balances.map(Iterator::collect));
    }
}

/// How a transaction ended. A null of `EXEC` says that what was watched has changed.
fn outcome(answer: &Answer) -> Outcome {
    match answer {
        Answer::Done(replies) if replies.last() == Some(&Reply::Array(None)) => Outcome::Aborted,
        Answer::Done(_) => Outcome::Committed,
        Answer::Void => Outcome::Aborted,
        Answer::Unknown => Outcome::Unknown,
    }
}

/// The replies in a block, if it was executed.
fn block_of(answer: &Answer) -> Option<&[Reply]> {
    match answer {
        Answer::Done(replies) => match replies.last() {
            Some(Reply::Array(Some(items))) => Some(items),
            _ => None,
        },
        _ => None,
    }
}

/// A number that was read; `None` if there was none.
#[must_use]
pub fn number(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Bulk(Some(text)) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_of_exec_is_an_abort_and_silence_is_not() {
        let ok = Reply::Simple("OK".to_owned());
        let done = |last| Answer::Done(vec![ok.clone(), last]);
        assert_eq!(outcome(&done(Reply::Array(None))), Outcome::Aborted);
        assert_eq!(outcome(&done(Reply::Bulk(None))), Outcome::Committed);
        assert_eq!(outcome(&Answer::Unknown), Outcome::Unknown);
        let items = vec![Reply::Int(1)];
        let block = done(Reply::Array(Some(items.clone())));
        assert_eq!(block_of(&block), Some(&items[..]));
        assert_eq!(block_of(&done(Reply::Array(None))), None);
    }
}
