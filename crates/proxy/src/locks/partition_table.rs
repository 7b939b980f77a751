//! A table in a partition, of this process or of a cluster.
//!
//! The table is a state machine behind a mutex, which is held for microseconds. A few threads execute
//! its transactions: they bring the results back to it and take the next transactions. One more thread
//! calls it when something is due.
//!
//! ```text
//! thread with clients ──request──▶ machine ──transactions──▶ executors ──▶ partition
//!          ▲                         │ ▲                        │
//!          └──────lock replies───────┘ └────────results─────────┘
//! ```
//!
//! Invariants:
//! 1. The mutex is not held while a transaction is executed, nor while lock replies are posted.
//! 2. The clock is read after a result has come, and before the machine's commands are carried out.
//! 3. A transaction that has waited for a thread for its whole timeout is not executed any more: the
//!    machine has given it up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::locks::shared::{self, Operation, Shared, SharedCommand, TransactionNumber};
use ::locks::{LockLimits, MonotonicTime, Request, Ticket};
use base::transaction::Abort;
use parking_lot::{Condvar, Mutex};

use super::figures::{LockFigures, LockTimes, SharedFigures};
use super::mailboxes::Mailboxes;
use super::{Execute, LockOutcome, LockStartError, clock};

/// The longest sleep of the thread that calls the machine when something is due.
const IDLE: Duration = Duration::from_secs(60);

/// Limit of requests that wait for one key: the machine looks at all of them at each event of the key.
const WAITERS: usize = 1_000;
/// How long a stop waits for what is under way: cancelled requests give their locks back, and released
/// locks become free.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which a stop checks.
const LOOK: Duration = Duration::from_millis(2);

/// See the module documentation.
pub(crate) struct PartitionTable {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Inner {
    machine: Mutex<Shared>,
    executor: Arc<dyn Execute>,
    mail: Arc<Mailboxes>,
    jobs: Mutex<Jobs>,
    has_jobs: Condvar,
    alarm: Mutex<Alarm>,
    rings: Condvar,
    transaction_timeout: Duration,
    /// How long transactions took.
    times: LockTimes,
}

/// A transaction that is to be executed.
struct Job {
    number: TransactionNumber,
    operations: Vec<Operation>,
    since: MonotonicTime,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    stop: bool,
}

/// The time at which the machine wants to be called.
#[derive(Default)]
struct Alarm {
    due: Option<MonotonicTime>,
    stop: bool,
}

/// The results of a call of the machine.
struct PendingActions {
    answers: Vec<(Ticket, LockOutcome)>,
    due: Option<MonotonicTime>,
}

impl PartitionTable {
    /// Creates a table under `prefix`.
    ///
    /// # Errors
    /// Returns [`LockStartError::Thread`] if a thread cannot start.
    pub(crate) fn start(
        executor: Arc<dyn Execute>,
        prefix: Vec<u8>,
        limits: LockLimits,
        mail: Arc<Mailboxes>,
    ) -> Result<PartitionTable, LockStartError> {
        let limits = LockLimits {
            waiters: limits.waiters.min(WAITERS),
            ..limits
        };
        let options = shared::Options {
            limits,
            prefix,
            ..shared::Options::default()
        };
        let executors = options.transactions;
        let inner = Arc::new(Inner {
            transaction_timeout: options.transaction_timeout,
            // The number differs between any two runs of proxies, up to chance.
            machine: Mutex::new(Shared::new(options, fastrand::u64(..), clock::now())),
            executor,
            mail,
            jobs: Mutex::default(),
            has_jobs: Condvar::new(),
            alarm: Mutex::default(),
            rings: Condvar::new(),
            times: LockTimes::default(),
        });
        let kept = PartitionTable {
            inner,
            threads: Mutex::default(),
        };
        for index in 0..executors {
            kept.spawn(format!("locks-{index}"), Inner::execute_jobs)?;
        }
        kept.spawn("locks-alarm".to_owned(), Inner::watch_alarm)?;
        Ok(kept)
    }

    fn spawn(&self, name: String, body: fn(&Inner)) -> Result<(), LockStartError> {
        let inner = Arc::clone(&self.inner);
        let spawned = std::thread::Builder::new()
            .name(name)
            .spawn(move || body(&inner));
        match spawned {
            Ok(thread) => {
                self.threads.lock().push(thread);
                Ok(())
            }
            Err(error) => {
                self.stop();
                Err(LockStartError::Thread { error })
            }
        }
    }

    /// Takes a request. `None`: its answer comes as a lock reply.
    pub(crate) fn ask(
        &self,
        ticket: Ticket,
        key: &[u8],
        request: &Request<'_>,
        now: MonotonicTime,
    ) -> Option<LockOutcome> {
        let orders = {
            let mut machine = self.inner.machine.lock();
            if let Err(error) = machine.request(ticket, key, request, now) {
                return Some(Err(error));
            }
            self.inner.step(&mut machine)
        };
        self.inner.carry_out(orders);
        None
    }

    /// Cancels a request. Returns `true` if it was there.
    pub(crate) fn cancel(&self, ticket: Ticket, key: &[u8]) -> bool {
        let (found, orders) = {
            let mut machine = self.inner.machine.lock();
            let found = machine.cancel(key, ticket, clock::now());
            (found, self.inner.step(&mut machine))
        };
        self.inner.carry_out(orders);
        found
    }

    /// Adds the figures of the table itself.
    pub(crate) fn add_to(&self, figures: &mut LockFigures) {
        let (counters, held, open) = {
            let machine = self.inner.machine.lock();
            (*machine.counters(), machine.held(), machine.open())
        };
        figures.held = held as u64;
        figures.waiting = open as u64;
        figures.expired = counters.expired + counters.lapsed;
        figures.kept = self.inner.times.read();
        figures.shared = Some(SharedFigures {
            transactions: counters.transactions,
            takeovers: counters.takeovers,
            overtaken: counters.overtaken,
            uncertain: counters.uncertain,
        });
    }

    /// Ends the threads, once everything has been carried out that does not wait for other clients, or
    /// when that takes too long. Requests that have no answer then get none.
    pub(crate) fn stop(&self) {
        let begin = Instant::now();
        while self.inner.machine.lock().owed() > 0 && begin.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
        self.inner.jobs.lock().stop = true;
        self.inner.has_jobs.notify_all();
        self.inner.alarm.lock().stop = true;
        self.inner.rings.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("a thread of the locks has panicked");
            }
        }
    }
}

impl Inner {
    /// Makes the machine do what is due. Its transactions are handed on while the mutex is held, so
    /// that they keep their order; the rest is for [`Inner::carry_out`].
    fn step(&self, machine: &mut Shared) -> PendingActions {
        let mut out = Vec::new();
        let now = clock::now();
        machine.step(now, &mut out);
        let mut answers = Vec::new();
        for command in out {
            match command {
                SharedCommand::Transact { number, operations } => {
                    let job = Job {
                        number,
                        operations,
                        since: now,
                    };
                    self.jobs.lock().waiting.push_back(job);
                    self.has_jobs.notify_one();
                }
                SharedCommand::Answer { ticket, outcome } => answers.push((ticket, outcome)),
            }
        }
        let due = machine.next_due();
        PendingActions { answers, due }
    }

    fn carry_out(&self, orders: PendingActions) {
        for (ticket, outcome) in orders.answers {
            self.mail.post(ticket, outcome);
        }
        if let Some(due) = orders.due {
            let mut alarm = self.alarm.lock();
            // An alarm that is set too late is corrected when it rings: another call may have come
            // between.
            if alarm.due.is_none_or(|set| due < set) {
                alarm.due = Some(due);
                self.rings.notify_one();
            }
        }
    }

    /// Runs one of the threads that execute transactions.
    fn execute_jobs(&self) {
        while let Some(job) = self.next_job() {
            let late = clock::now().since(job.since) >= self.transaction_timeout;
            let result = if late {
                let what = "transactions of locks wait too long".to_owned();
                Err(Abort::Unavailable { what })
            } else {
                let transaction = shared::transaction(&job.operations);
                let begin = Instant::now();
                let result = self.executor.execute(&transaction);
                self.times.record(begin.elapsed());
                result
            };
            let orders = {
                let mut machine = self.machine.lock();
                machine.transacted(job.number, result, clock::now());
                self.step(&mut machine)
            };
            self.carry_out(orders);
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        loop {
            if jobs.stop {
                return None;
            }
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(job);
            }
            self.has_jobs.wait(&mut jobs);
        }
    }

    /// Runs the thread that calls the machine when something is due.
    fn watch_alarm(&self) {
        loop {
            {
                let mut alarm = self.alarm.lock();
                loop {
                    if alarm.stop {
                        return;
                    }
                    let left = alarm.due.map_or(IDLE, |due| due.since(clock::now()));
                    if left.is_zero() {
                        break;
                    }
                    self.rings.wait_for(&mut alarm, left);
                }
                alarm.due = None;
            }
            let orders = {
                let mut machine = self.machine.lock();
                self.step(&mut machine)
            };
            self.carry_out(orders);
        }
    }
}

#[cfg(test)]
mod tests {
    use base::partition::OwnedReply;
    use base::transaction::Transaction;

    use super::*;

    /// An executor that is slow, and refuses.
    struct Slow;

    impl Execute for Slow {
        fn execute(&self, _: &Transaction<'_>) -> Result<Vec<OwnedReply>, Abort> {
            std::thread::sleep(Duration::from_millis(30));
            Err(Abort::Cancelled)
        }
    }

    #[test]
    fn what_was_sent_is_carried_out_before_it_stops() {
        let mail = Arc::new(Mailboxes::new(1));
        let (prefix, to) = (b"locks/".to_vec(), Arc::clone(&mail));
        let kept = PartitionTable::start(Arc::new(Slow), prefix, LockLimits::default(), to);
        let kept = kept.expect("it starts");
        for key in 0..12 {
            let (ticket, owner) = (mail.ticket(0, false), &b"me"[..]);
            let request = Request::Release { owner };
            let outcome = kept.ask(ticket, &[key], &request, clock::now());
            assert_eq!(outcome, None);
        }
        kept.stop();
        let mut lock_replies = Vec::new();
        mail.take(0, &mut lock_replies);
        assert_eq!(lock_replies.len(), 12);
    }
}
