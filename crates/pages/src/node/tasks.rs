//! Threads that run tasks, and their messages to the reader loops.
//!
//! A task's batches wait for their reader: it gives credit, and without credit the task's thread
//! waits. So a reader that does not take its results holds a thread and no more memory than its
//! credit, which is at most the node's [limit](super::Limits::credit). After [`PATIENCE`] without
//! credit the task is ended, and its reader gets the reason.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::Waker;
use parking_lot::{Condvar, Mutex};

use super::Shared;
use super::loading::LoadHandle;
use super::options::NodeOptions;
use super::shelf::Opened;
use crate::Wanted;
use crate::remote::wire::Kind;
use crate::task::WorkTimes;

/// How long a task waits for its reader.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most tasks that wait for a thread.
const QUEUE: usize = 4096;

/// Runs tasks: the part of a query that runs beside the pages.
pub trait Worker: Send + Sync {
    /// Runs a task over a table, and gives its results to `out`. As long as it has no results it asks
    /// regularly whether they are [wanted](Output::wanted), and ends when they are not.
    ///
    /// # Errors
    /// Returns why the task did not complete.
    fn run(&self, table: &Arc<Opened>, task: &[u8], out: &mut dyn Output) -> Result<(), Outcome>;

    /// Returns the recent costs of tasks, for readers that choose where to run theirs.
    fn times(&self) -> WorkTimes {
        WorkTimes::default()
    }
}

/// The receiver of a task's results.
pub trait Output {
    /// Takes a batch, and waits for room for it. Returns `false` if no more batches are wanted.
    fn batch(&mut self, batch: Vec<u8>) -> bool;

    /// Returns the question whether more results are wanted.
    fn wanted(&self) -> Wanted;
}

/// A worker that runs no tasks.
#[derive(Clone, Copy, Debug)]
pub struct NoWorker;

impl Worker for NoWorker {
    fn run(&self, _: &Arc<Opened>, _: &[u8], _: &mut dyn Output) -> Result<(), Outcome> {
        let text = "this node gives pages away and runs no operators";
        Err(Outcome::Refused(text.to_owned()))
    }
}

/// Why a task did not complete, or a change was not made; each with a text for people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Outcome {
    /// The task is invalid here.
    #[error("{0}")]
    Refused(String),
    /// A page is corrupt, or cannot be read.
    #[error("{0}")]
    Page(String),
    /// A value cannot be computed.
    #[error("{0}")]
    Value(String),
    /// The node ends, or has too much to do; another node may do it.
    #[error("{0}")]
    Busy(String),
    /// The task's results were not taken for long: another node would wait in vain, too.
    #[error("{0}")]
    Untaken(String),
    /// It is unknown whether a requested change was made.
    #[error("{0}")]
    Doubtful(String),
}

impl Outcome {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Outcome::Refused(_) => Kind::Refused,
            Outcome::Page(_) => Kind::Page,
            Outcome::Value(_) => Kind::Value,
            Outcome::Busy(_) => Kind::Busy,
            Outcome::Untaken(_) => Kind::Untaken,
            Outcome::Doubtful(_) => Kind::Doubtful,
        }
    }
}

/// The reader and the request to which a message belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asker {
    pub(super) reader: usize,
    pub(super) visit: u64,
    pub(super) request: u32,
}

/// A message of a task, a load or the blocking worker.
#[derive(Debug)]
pub(super) enum News {
    Batch(Vec<u8>),
    Finished,
    Failed(Outcome),
    /// An answer, of a load or of the blocking worker.
    Told(Vec<u8>),
    /// A version that was opened.
    Opened(Arc<Opened>),
    /// A load that has begun.
    Begun(LoadHandle),
}

/// Messages to a reader loop.
#[derive(Debug)]
pub(super) struct Mailbox {
    notifications: Mutex<Vec<(Asker, News)>>,
    waker: Arc<Waker>,
}

impl Mailbox {
    pub(super) fn new(waker: Arc<Waker>) -> Mailbox {
        let notifications = Mutex::default();
        Mailbox {
            notifications,
            waker,
        }
    }

    /// Takes all messages.
    pub(super) fn take(&self, into: &mut Vec<(Asker, News)>) {
        into.append(&mut self.notifications.lock());
    }

    pub(super) fn put(&self, asker: Asker, notifications: News) {
        let was_empty = {
            let mut all = self.notifications.lock();
            all.push((asker, notifications));
            all.len() == 1
        };
        if was_empty && let Err(error) = self.waker.wake() {
            tracing::error!(%error, "a storage node's thread cannot be woken");
        }
    }
}

/// Controls a running task.
#[derive(Debug, Default)]
pub(super) struct Control {
    credit: Mutex<u32>,
    /// The most credit that it may have; credit beyond this number is ignored.
    most: u32,
    changed: Condvar,
    cancelled: AtomicBool,
    /// `true` if it was cancelled because its reader gave no credit.
    untaken: AtomicBool,
}

impl Control {
    pub(super) fn with_credit(credit: u32, most: u32) -> Arc<Control> {
        Arc::new(Control {
            credit: Mutex::new(credit.min(most)),
            most,
            ..Control::default()
        })
    }

    pub(super) fn add_credit(&self, more: u32) {
        let mut credit = self.credit.lock();
        *credit = credit.saturating_add(more).min(self.most);
        self.changed.notify_one();
    }

    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        // A thread that is about to wait holds the lock until it waits.
        drop(self.credit.lock());
        self.changed.notify_one();
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Waits for credit up to `patience`, and takes one. Returns `false` if no more batches are
    /// wanted.
    fn take(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut credit = self.credit.lock();
        while *credit == 0 && !self.is_cancelled() {
            let waited = self.changed.wait_until(&mut credit, deadline);
            if waited.timed_out() && *credit == 0 && !self.is_cancelled() {
                self.untaken.store(true, Ordering::Release);
                // An incomplete result must not be taken for a complete one.
                self.cancelled.store(true, Ordering::Release);
            }
        }
        *credit = credit.saturating_sub(1);
        !self.is_cancelled()
    }
}

/// A task that is to be run.
pub(super) struct Job {
    pub(super) opened: Arc<Opened>,
    pub(super) task: Vec<u8>,
    pub(super) control: Arc<Control>,
    pub(super) asker: Asker,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Output for &Job {
    fn batch(&mut self, batch: Vec<u8>) -> bool {
        let wanted = self.control.take(PATIENCE);
        if wanted {
            self.mailbox.put(self.asker, News::Batch(batch));
        }
        wanted
    }

    fn wanted(&self) -> Wanted {
        let control = Arc::clone(&self.control);
        Wanted::new(move || !control.is_cancelled())
    }
}

/// The threads.
pub(super) struct Tasks {
    queue: Mutex<VecDeque<Job>>,
    come: Condvar,
    ending: AtomicBool,
    /// The tasks that run.
    running: Mutex<Vec<Arc<Control>>>,
    worker: Arc<dyn Worker>,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Tasks");
        shown.field("waiting", &self.queue.lock().len());
        shown.finish_non_exhaustive()
    }
}

impl Tasks {
    pub(super) fn start(
        options: &NodeOptions,
        worker: Arc<dyn Worker>,
        shared: &Arc<Shared>,
    ) -> io::Result<Arc<Tasks>> {
        let tasks = Arc::new(Tasks {
            queue: Mutex::default(),
            come: Condvar::new(),
            ending: AtomicBool::new(false),
            running: Mutex::default(),
            worker,
            shared: Arc::clone(shared),
            threads: Mutex::default(),
        });
        for number in 0..options.task_threads.max(1) {
            let thread = std::thread::Builder::new().name(format!("tasks-{number}"));
            let all = Arc::clone(&tasks);
            let thread = thread.spawn(move || all.work())?;
            tasks.threads.lock().push(thread);
        }
        Ok(tasks)
    }

    /// Queues a job; gives it back if too many wait.
    pub(super) fn put(&self, job: Job) -> Result<(), Job> {
        let mut queue = self.queue.lock();
        if queue.len() >= QUEUE || self.ending.load(Ordering::Acquire) {
            return Err(job);
        }
        self.count(1);
        queue.push_back(job);
        self.come.notify_one();
        Ok(())
    }

    /// Returns the recent costs of tasks.
    pub(super) fn times(&self) -> WorkTimes {
        self.worker.times()
    }

    /// Ends the threads. Running tasks are cancelled, and waiting ones are not begun.
    pub(super) fn end(&self) {
        self.ending.store(true, Ordering::Release);
        // A thread that has taken a job registers it as running before it unlocks the queue.
        let waiting = std::mem::take(&mut *self.queue.lock());
        for control in self.running.lock().iter() {
            control.cancel();
        }
        for job in waiting {
            self.count(-1);
            let text = "the storage node is ending".to_owned();
            job.mailbox
                .put(job.asker, News::Failed(Outcome::Busy(text)));
        }
        self.come.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that runs tasks has panicked");
            }
        }
    }

    fn count(&self, by: i64) {
        let under_way = &self.shared.figures.tasks_under_way;
        under_way.fetch_add(by as u64, Ordering::Relaxed);
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if self.ending.load(Ordering::Acquire) {
                return None;
            }
            if let Some(job) = queue.pop_front() {
                self.take_up(&job);
                return Some(job);
            }
            self.come.wait(&mut queue);
        }
    }

    fn take_up(&self, job: &Job) {
        self.running.lock().push(Arc::clone(&job.control));
        // The thread that calls `Tasks::end` may have looked at the running tasks just before.
        if self.ending.load(Ordering::Acquire) {
            job.control.cancel();
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let notifications = self.run(&job);
            self.running
                .lock()
                .retain(|control| !Arc::ptr_eq(control, &job.control));
            self.count(-1);
            job.mailbox.put(job.asker, notifications);
        }
    }

    fn run(&self, job: &Job) -> News {
        if job.control.is_cancelled() {
            return before_its_time(&job.control);
        }
        let mut out = job;
        let worker = &self.worker;
        let run = std::panic::AssertUnwindSafe(|| worker.run(&job.opened, &job.task, &mut out));
        // A panic of a task affects one reader, not the node.
        match std::panic::catch_unwind(run) {
            Ok(Ok(()) | Err(Outcome::Busy(_))) if job.control.is_cancelled() => {
                before_its_time(&job.control)
            }
            Ok(Ok(())) => {
                self.shared.figures.tasks.fetch_add(1, Ordering::Relaxed);
                News::Finished
            }
            Ok(Err(outcome)) => News::Failed(outcome),
            Err(_) => News::Failed(Outcome::Refused(
                "the task made the node's operator panic; its log says where".to_owned(),
            )),
        }
    }
}

/// Returns the failure of a task that was cancelled, so that it is not taken for complete.
fn before_its_time(control: &Control) -> News {
    News::Failed(match control.untaken.load(Ordering::Acquire) {
        true => Outcome::Untaken(format!(
            "the reader did not take the results of a task for {} s, so that the storage node ended it",
            PATIENCE.as_secs()
        )),
        false => Outcome::Busy("the task was ended before its time".to_owned()),
    })
}

#[cfg(test)]
mod tests;
