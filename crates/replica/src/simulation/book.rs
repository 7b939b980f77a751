//! The answers that clients got, and checks that they are consistent.
//!
//! 1. The reads and writes of recorded keys are strictly serializable ([`history`]).
//! 2. Counters: each acknowledged addition counts once, each of unknown outcome at most once, and
//!    no client sees less than what was acknowledged before.
//! 3. Money is neither made nor lost.
//! 4. A key that expires exists until then, and never afterwards.
//! 5. Tokens of a lock, and times that were returned, do not go back.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use history::{History, Outcome, Verdict};

use super::job::{ACCOUNTS, COUNTERS, DEPOSIT, PlannedStep, PlannedTransaction, SeenValues};

/// The numbers of transactions by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Transactions that took effect.
    pub committed: u64,
    /// Transactions that did not take effect.
    pub aborted: u64,
    /// Transactions whose outcome is not known.
    pub unknown: u64,
    /// Reads of state that may be old.
    pub stale: u64,
    /// States that were compared at equal indexes.
    pub states: u64,
    /// The milliseconds until the partition served after the faults, for each run.
    pub served_ms: Vec<u64>,
}

impl ::simulation::Counts for RunCounts {
    fn add(&mut self, other: &RunCounts) {
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.unknown += other.unknown;
        self.stale += other.stale;
        self.states += other.states;
        self.served_ms.extend(&other.served_ms);
    }

    fn text(&self) -> String {
        let RunCounts {
            committed,
            aborted,
            unknown,
            stale,
            states,
            served_ms,
        } = self;
        let mut text = format!(
            "transactions: {committed} committed, {aborted} aborted, {unknown} of unknown outcome, \
             {stale} reads of old states\n{states} states compared by their indexes\n"
        );
        let mut served = served_ms.clone();
        served.sort_unstable();
        if let (Some(median), Some(most)) = (served.get(served.len() / 2), served.last()) {
            text += &format!(
                "served again after the faults within {median} ms (median), {most} ms (most)\n"
            );
        }
        text
    }
}

/// A description of what cannot have happened.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Inconsistency(String);

type CallSpan = (Duration, Duration);

struct CounterRead {
    span: CallSpan,
    counter: usize,
    added: bool,
    value: i64,
}

/// A key that expires.
#[derive(Default)]
struct ExpiringKey {
    ms: i64,
    /// The time of the write; `None` if its outcome is not known.
    written: Option<CallSpan>,
    looks: Vec<(CallSpan, bool)>,
}

/// See the module's description.
#[derive(Default)]
pub(super) struct RunRecord {
    text: String,
    next: u64,
    pub(super) counts: RunCounts,
    counted: Vec<CounterRead>,
    /// Additions of unknown outcome.
    unknown: [u64; COUNTERS],
    /// Additions that were begun, and their times.
    begun: Vec<(usize, Duration)>,
    lent: BTreeMap<usize, ExpiringKey>,
    /// Tokens that were accepted, and times that were returned.
    tokens: Vec<(CallSpan, i64)>,
    times: Vec<(CallSpan, i64)>,
    wrong: Option<String>,
}

impl RunRecord {
    /// Returns the history as text, for other checkers.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Notes that a transaction is sent.
    pub(super) fn begin(&mut self, job: &PlannedTransaction, now: Duration) {
        for step in &job.steps {
            match step {
                PlannedStep::Count(counter) => self.begun.push((*counter, now)),
                PlannedStep::Lend(index, ms) => {
                    let lent = ExpiringKey {
                        ms: *ms,
                        ..ExpiringKey::default()
                    };
                    self.lent.insert(*index, lent);
                }
                _ => {}
            }
        }
    }

    /// Notes that a transaction has committed, and that its client knows.
    pub(super) fn committed(
        &mut self,
        process: usize,
        job: &PlannedTransaction,
        seen: &SeenValues,
        span: CallSpan,
    ) {
        self.counts.committed += 1;
        self.record(process, span, Outcome::Committed, &seen.ops);
        if !seen.balances.is_empty() {
            self.audit(&seen.balances);
        }
        for &(counter, added, value) in &seen.counters {
            self.counted.push(CounterRead {
                span,
                counter,
                added,
                value,
            });
        }
        self.tokens
            .extend(seen.tokens.iter().map(|token| (span, *token)));
        self.times.extend(seen.times.iter().map(|now| (span, *now)));
        for (index, there) in &seen.looks {
            let lent = self.lent.entry(*index).or_default();
            lent.looks.push((span, *there));
        }
        for step in &job.steps {
            if let PlannedStep::Lend(index, _) = step {
                self.lent.entry(*index).or_default().written = Some(span);
            }
        }
    }

    /// Notes a transaction whose outcome is not known.
    pub(super) fn unknown(&mut self, process: usize, job: &PlannedTransaction, span: CallSpan) {
        self.counts.unknown += 1;
        self.record(process, span, Outcome::Unknown, &job.blind());
        for step in &job.steps {
            if let PlannedStep::Count(counter) = step {
                self.unknown[*counter] += 1;
            }
        }
    }

    pub(super) fn aborted(&mut self) {
        self.counts.aborted += 1;
    }

    /// Notes a read that may be older than now, but not older than `since`.
    pub(super) fn stale(&mut self, seen: &SeenValues, since: Duration, now: Duration) {
        self.counts.stale += 1;
        // The state may be so old that nothing had been paid in.
        if seen.balances.iter().any(Option::is_some) {
            self.audit(&seen.balances);
        }
        for &(counter, _, value) in &seen.counters {
            let known = self.counted.iter();
            let known = known.filter(|one| one.counter == counter && one.span.1 < since);
            if let Some(newest) = known
                .max_by_key(|one| one.value)
                .filter(|one| one.value > value)
            {
                let (at, of) = (newest.span.1, newest.value);
                self.wrong(format!(
                    "a read at {now:?} of what may be as old as {since:?} shows {value} in counter \
                     {counter}, which was {of} at {at:?}"
                ));
            }
        }
    }

    fn audit(&mut self, balances: &[Option<i64>]) {
        let sum: i64 = balances.iter().flatten().sum();
        if balances.len() != ACCOUNTS || sum != ACCOUNTS as i64 * DEPOSIT {
            self.wrong(format!("the accounts hold {balances:?}"));
        }
    }

    pub(super) fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// Returns the first error that was found.
    pub(super) fn take_wrong(&mut self) -> Option<String> {
        self.wrong.take()
    }

    /// Records operations as history.
    pub(super) fn record(&mut self, process: usize, span: CallSpan, outcome: Outcome, ops: &str) {
        if ops.is_empty() {
            return;
        }
        let (start, end) = (span.0.as_nanos(), span.1.as_nanos());
        let id = self.next;
        self.next += 1;
        let outcome = match outcome {
            Outcome::Committed => "committed",
            Outcome::Aborted => "aborted",
            Outcome::Unknown => "unknown",
        };
        writeln!(
            self.text,
            "{{\"process\":{process},\"id\":{id},\"start\":{start},\"end\":{end},\
             \"outcome\":\"{outcome}\",\"ops\":[{ops}]}}"
        )
        .expect("a string grows");
    }

    /// Checks that everything is consistent. `skew` is the greatest difference of clocks.
    ///
    /// # Errors
    /// Returns a description of the inconsistency.
    pub(super) fn judge(&self, skew: Duration) -> Result<(), Inconsistency> {
        (0..COUNTERS).try_for_each(|counter| self.judge_counter(counter))?;
        for (index, lent) in &self.lent {
            lent.judge(skew)
                .map_err(|error| Inconsistency(format!("key e{index}: {error}")))?;
        }
        never_back(&self.tokens)
            .map_err(|error| Inconsistency(format!("tokens go back: {error}")))?;
        never_back(&self.times)
            .map_err(|error| Inconsistency(format!("the time goes back: {error}")))?;
        let history: History = history::json::read(self.text.as_bytes())
            .map_err(|error| Inconsistency(error.to_string()))?;
        match history::check::strictly_serializable(&history) {
            Verdict::Accepted => Ok(()),
            other => Err(Inconsistency(format!(
                "the history is not strictly serializable: {other:?}"
            ))),
        }
    }

    /// Checks that values never go back in real time, and that each addition has its own value.
    fn judge_counter(&self, counter: usize) -> Result<(), Inconsistency> {
        let mut all: Vec<&CounterRead> = self
            .counted
            .iter()
            .filter(|one| one.counter == counter)
            .collect();
        all.sort_by_key(|one| one.span.0);
        let mut ended: Vec<&CounterRead> = all.clone();
        ended.sort_by_key(|one| one.span.1);
        let (mut next, mut least) = (0, 0);
        for one in &all {
            while next < ended.len() && ended[next].span.1 < one.span.0 {
                least = least.max(ended[next].value);
                next += 1;
            }
            if one.value < least + i64::from(one.added) {
                return Err(Inconsistency(format!(
                    "counter {counter} was {least} before {:?}, and then {} (added: {})",
                    one.span, one.value, one.added
                )));
            }
        }
        let mut added: Vec<i64> = all
            .iter()
            .filter(|one| one.added)
            .map(|one| one.value)
            .collect();
        let acknowledged = added.len() as u64;
        added.sort_unstable();
        if let Some(twice) = added.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Inconsistency(format!(
                "counter {counter} was told twice to be {}",
                twice[0]
            )));
        }
        // The last operation of all is a read of the final value.
        let last = all.last().map_or(0, |one| one.value) as u64;
        let most = acknowledged + self.unknown[counter];
        if !(acknowledged..=most).contains(&last) {
            return Err(Inconsistency(format!(
                "counter {counter} is {last}: {acknowledged} additions were acknowledged, of {} it is \
                 not known",
                self.unknown[counter]
            )));
        }
        let begun = self.begun.iter().filter(|(of, _)| *of == counter).count() as u64;
        debug_assert!(most <= begun);
        Ok(())
    }
}

/// Checks that numbers do not go back in real time.
fn never_back(told: &[(CallSpan, i64)]) -> Result<(), Inconsistency> {
    let mut begun = told.to_vec();
    begun.sort_by_key(|(span, _)| span.0);
    let mut ended = told.to_vec();
    ended.sort_by_key(|(span, _)| span.1);
    let (mut ended, mut least) = (ended.into_iter().peekable(), i64::MIN);
    for (span, number) in begun {
        while let Some((_, before)) = ended.next_if(|(earlier, _)| earlier.1 < span.0) {
            least = least.max(before);
        }
        if number < least {
            return Err(Inconsistency(format!(
                "{number} at {span:?}, after {least}"
            )));
        }
    }
    Ok(())
}

impl ExpiringKey {
    fn judge(&self, skew: Duration) -> Result<(), Inconsistency> {
        let mut looks = self.looks.clone();
        looks.sort_by_key(|(span, _)| span.0);
        let life = Duration::from_millis(self.ms as u64);
        let mut gone = self.written.map(|_| Duration::MAX);
        for (span, there) in &looks {
            let Some((begun, written)) = self.written else {
                break;
            };
            if *there {
                if gone.is_some_and(|gone| gone < span.0) {
                    return Err(Inconsistency(format!("there again at {span:?}")));
                }
                if span.0 > written + life + skew {
                    return Err(Inconsistency(format!(
                        "still there at {span:?}, written {begun:?}–{written:?} for {life:?}"
                    )));
                }
            } else if span.0 > written {
                if span.1 + skew < begun + life {
                    return Err(Inconsistency(format!(
                        "gone at {span:?}, written {begun:?}–{written:?} for {life:?}"
                    )));
                }
                gone = gone.map(|gone| gone.min(span.1));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_back_is_found_out() {
        let at = |from: u64, to: u64, number| {
            let span = (Duration::from_millis(from), Duration::from_millis(to));
            (span, number)
        };
        let concurrent = [at(0, 5, 6), at(3, 8, 5), at(6, 9, 6)];
        assert_eq!(never_back(&concurrent), Ok(()));
        let after = [at(6, 9, 5), at(0, 5, 6)];
        assert!(never_back(&after).is_err());
        assert_eq!(never_back(&[]), Ok(()));
    }
}
