//! Drives clients: as fast as they go, one request at a time, or at a rate.
//!
//! A transaction has up to two ends: when its client knows the outcome, and when the outcome is
//! *complete* (for a store: durable). A client that does not wait for the second gets a *ticket*,
//! and another thread records in [`Completions`] when tickets became complete. So a latency does
//! not depend on when its client looks next, even if it is blocked or late.
//!
//! | pace | a transaction begins | its latency counts from |
//! |---|---|---|
//! | [`LoadSchedule::Saturated`] | when the one before it is committed | its beginning |
//! | [`LoadSchedule::Closed`] | when the one before it is complete | its beginning |
//! | [`LoadSchedule::Open`] | on a schedule that does not care about the others | when it was to begin |
//!
//! Invariants:
//! 1. A transaction counts if it began, or was to begin, within the window; in an open loop also if
//!    the client came to it only later. So a stall counts for all transactions that were due in
//!    that time (no coordinated omission).
//! 2. Every counted transaction of a saturated or closed loop is complete when [`drive`] returns.
//! 3. In an open loop, transactions that could not begin within another window's time after the end
//!    are reported as unserved.
//! 4. The window of a saturated or closed loop ends only after a transaction began in it.

mod completions;
mod tasks;
mod window;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use completions::{Completions, DONE};
pub(crate) use tasks::client_runtime;
pub use tasks::{AsyncClient, drive_tasks};
pub use window::MeasurementWindow;

use completions::CompletionReader;
use window::ExtensibleWindow;

use crate::error::RunError;
use crate::latency::Latencies;
use crate::sample::MetricValues;

/// How long before its time a client of an open loop stops sleeping: sleeps end late.
const SLEEP_MARGIN: Duration = Duration::from_micros(80);

/// One thread's client of the system that is measured.
pub trait BlockingClient: Send {
    /// Runs one transaction, verifying what it sees. Returns a ticket, or [`DONE`].
    ///
    /// # Errors
    /// The text says what went wrong, or which result is impossible.
    fn run(&mut self) -> Result<u64, RunError>;

    /// Waits until the transaction with this ticket is complete.
    ///
    /// # Errors
    /// Returns an error if it never will be.
    fn settle(&mut self, ticket: u64) -> Result<(), RunError>;
}

/// When transactions begin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadSchedule {
    /// As soon as the one before is committed.
    Saturated,
    /// As soon as the one before is complete.
    Closed,
    /// At this many a second, all clients together.
    Open {
        /// Transactions a second.
        rate: f64,
    },
}

/// How long to drive.
#[derive(Clone, Copy, Debug)]
pub struct DrivePlan {
    /// When transactions begin.
    pub pace: LoadSchedule,
    /// Time that does not count.
    pub warm_up: Duration,
    /// Time that counts.
    pub time: Duration,
}

/// The results of a drive.
#[derive(Clone, Debug, Default)]
pub struct DriveResult {
    /// Transactions that count.
    pub transactions: u64,
    /// Transactions of an open loop that were never begun.
    pub unserved: u64,
    /// From beginning to completeness.
    pub latency: Latencies,
    /// From beginning to commit.
    pub service: Latencies,
    /// From when they should have begun to when they did; open loops alone.
    pub late: Latencies,
    /// The window's length.
    pub window: Duration,
}

impl DriveResult {
    /// Adds the figures of this result.
    pub fn add_figures(&self, values: &mut MetricValues) {
        let seconds = self.window.as_secs_f64();
        values.set("throughput", self.transactions as f64 / seconds);
        self.latency.add_figures(values);
        values.set("service", self.service.mean_ms());
        if self.late.count() > 0 {
            values.set("late", self.late.mean_ms());
            values.set("unserved", self.unserved as f64);
        }
    }

    /// Adds the transactions of clients that were driven at the same time.
    pub(crate) fn merge(&mut self, other: &DriveResult) {
        self.transactions += other.transactions;
        self.unserved += other.unserved;
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        self.late.merge(&other.late);
    }
}

/// A moment at which the caller of the drive may want to take figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEdge {
    /// The window begins.
    Begin,
    /// The window ends.
    End,
}

/// Runs the clients, each on a thread of its own, and returns them.
///
/// # Errors
/// Returns the first error of a client, or the user's request to stop.
pub fn drive<C: BlockingClient>(
    clients: Vec<C>,
    completions: &Completions,
    plan: DrivePlan,
    stop: &AtomicBool,
    mut at: impl FnMut(WindowEdge),
) -> Result<(DriveResult, Vec<C>), RunError> {
    let first = MeasurementWindow::after(plan.warm_up, plan.time, completions.origin());
    let window = match plan.pace {
        LoadSchedule::Open { .. } => ExtensibleWindow::fixed(first),
        LoadSchedule::Saturated | LoadSchedule::Closed => ExtensibleWindow::new(first),
    };
    let broken = AtomicBool::new(false);
    let clients_total = clients.len();
    let ended = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(clients)
            .map(|(number, client)| {
                let run = ClientLoop {
                    client,
                    reader: completions.reader(),
                    plan,
                    window: &window,
                    lane: (number, clients_total),
                    driven: DriveResult::default(),
                };
                let (stop, broken) = (stop, &broken);
                scope.spawn(move || run.all(stop, broken))
            })
            .collect();
        let give_up = || stop.load(Ordering::Relaxed) || broken.load(Ordering::Relaxed);
        first.sleep_until(first.begin, give_up);
        at(WindowEdge::Begin);
        while let Some(left) = window.until_end().filter(|_| !give_up()) {
            std::thread::sleep(left);
        }
        at(WindowEdge::End);
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.collect::<Vec<_>>()
    });
    let mut all = DriveResult {
        window: Duration::from_nanos(window.current().length()),
        ..DriveResult::default()
    };
    let mut clients = Vec::new();
    for end in ended {
        let end = end.map_err(|_| RunError::Failed("a client panicked".to_owned()))?;
        let (driven, client) = end?;
        all.merge(&driven);
        clients.push(client);
    }
    if stop.load(Ordering::Relaxed) {
        return Err(RunError::Interrupted);
    }
    Ok((all, clients))
}

/// One client's run.
struct ClientLoop<'c, C> {
    client: C,
    reader: CompletionReader<'c>,
    plan: DrivePlan,
    window: &'c ExtensibleWindow,
    /// The number of this client, and the number of clients.
    lane: (u64, usize),
    driven: DriveResult,
}

impl<C: BlockingClient> ClientLoop<'_, C> {
    fn all(mut self, stop: &AtomicBool, broken: &AtomicBool) -> Result<(DriveResult, C), RunError> {
        let ended = match self.plan.pace {
            LoadSchedule::Open { rate } => self.scheduled(rate, stop, broken),
            LoadSchedule::Saturated | LoadSchedule::Closed => self.back_to_back(stop, broken),
        };
        let ended = ended.and_then(|last| self.client.settle(last));
        if let Err(error) = ended {
            broken.store(true, Ordering::Relaxed);
            return Err(error);
        }
        self.reader.finish(&mut self.driven.latency);
        Ok((self.driven, self.client))
    }

    /// Runs one transaction after the other. Returns the newest ticket.
    fn back_to_back(&mut self, stop: &AtomicBool, broken: &AtomicBool) -> Result<u64, RunError> {
        let closed = self.plan.pace == LoadSchedule::Closed;
        let clock = self.window.current();
        let (mut last, mut now) = (DONE, clock.now());
        while self.window.admits(now) {
            if stop.load(Ordering::Relaxed) || broken.load(Ordering::Relaxed) {
                break;
            }
            let ticket = self.client.run()?;
            let mut done = clock.now();
            self.count(now, now, done);
            if closed {
                self.client.settle(ticket)?;
                done = clock.now();
            }
            let open = if closed { DONE } else { ticket };
            self.complete(now, done, open);
            last = last.max(ticket);
            now = done;
        }
        Ok(last)
    }

    /// Runs transactions at their times. Returns the newest ticket.
    fn scheduled(
        &mut self,
        rate: f64,
        stop: &AtomicBool,
        broken: &AtomicBool,
    ) -> Result<u64, RunError> {
        let step = 1e9 * self.lane.1 as f64 / rate;
        let offset = step * self.lane.0 as f64 / self.lane.1 as f64;
        let window = self.window.current();
        let patience = window.end + window.length();
        let mut last = DONE;
        for i in 0u64.. {
            let due = window.start + (offset + step * i as f64) as u64;
            if due >= window.end || stop.load(Ordering::Relaxed) || broken.load(Ordering::Relaxed) {
                break;
            }
            window.sleep_precisely(due, SLEEP_MARGIN);
            let begun = window.now();
            if begun >= patience {
                self.driven.unserved += ((window.end - due) as f64 / step).ceil() as u64;
                break;
            }
            let ticket = self.client.run()?;
            let done = window.now();
            self.count(due, begun, done);
            self.complete(due, done, ticket);
            last = last.max(ticket);
        }
        Ok(last)
    }

    fn count(&mut self, due: u64, begun: u64, done: u64) {
        if self.window.current().contains(due) {
            self.driven.transactions += 1;
            self.driven
                .service
                .record(Duration::from_nanos(done - begun));
            if matches!(self.plan.pace, LoadSchedule::Open { .. }) {
                self.driven
                    .late
                    .record(Duration::from_nanos(begun.saturating_sub(due)));
            }
        }
    }

    fn complete(&mut self, start: u64, done: u64, ticket: u64) {
        if self.window.current().contains(start) {
            self.reader
                .pending(ticket, start, done, &mut self.driven.latency);
        }
    }
}

/// Runs a slice of one kind, and adds it to the results of its slices.
pub(crate) fn drive_slice<C: BlockingClient>(
    client: C,
    plan: DrivePlan,
    stop: &AtomicBool,
    sum: &mut DriveResult,
) -> Result<C, RunError> {
    let (driven, clients) = drive(vec![client], &Completions::default(), plan, stop, |_| {})?;
    sum.window += driven.window;
    sum.merge(&driven);
    clients
        .into_iter()
        .next()
        .ok_or_else(|| RunError::Failed("the client is gone".to_owned()))
}

#[cfg(test)]
mod tests;
