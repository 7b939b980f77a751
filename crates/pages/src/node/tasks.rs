//! Threads that run tasks, and what they say to the desks.
//!
//! A task's batches wait for their reader: it gives credit, and without it the task's thread waits.
//! So a reader that does not take what it asked for holds a thread and no more memory than its
//! credit, which nobody has more of than the node's [limit](super::Limits::credit); after [`PATIENCE`]
//! without credit the task is ended, and its reader told that it was for that.

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
use crate::remote::WorkTimes;
use crate::remote::wire::Kind;

/// How long a task waits for its reader.
const PATIENCE: Duration = Duration::from_secs(120);
/// Tasks that wait for a thread, at most.
const QUEUE: usize = 4096;

/// Runs tasks: the part of a query that runs beside the pages.
pub trait Worker: Send + Sync {
    /// Runs a task over a table, and gives what comes out to `out`. As long as nothing comes out it
    /// asks now and then whether that is [wanted](Output::wanted), and ends when it is not.
    ///
    /// # Errors
    /// Why the task has no end.
    fn run(&self, table: &Arc<Opened>, task: &[u8], out: &mut dyn Output) -> Result<(), Outcome>;

    /// Returns what tasks have taken lately, for readers who choose where to run theirs.
    fn times(&self) -> WorkTimes {
        WorkTimes::default()
    }
}

/// Where a task's results go.
pub trait Output {
    /// Takes a batch, and waits for room for it. False if nobody wants more.
    fn batch(&mut self, batch: Vec<u8>) -> bool;

    /// Whether anybody wants more.
    fn wanted(&self) -> Wanted;
}

/// Runs nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoWorker;

impl Worker for NoWorker {
    fn run(&self, _: &Arc<Opened>, _: &[u8], _: &mut dyn Output) -> Result<(), Outcome> {
        let text = "this node gives pages away and runs no operators";
        Err(Outcome::Refused(text.to_owned()))
    }
}

/// Why a task has no end, or a change was not made; each with a text for people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Outcome {
    /// The task makes no sense here.
    #[error("{0}")]
    Refused(String),
    /// A page is corrupt, or cannot be read.
    #[error("{0}")]
    Page(String),
    /// A value cannot be computed.
    #[error("{0}")]
    Value(String),
    /// The node ends, or has too much to do; another one may do it.
    #[error("{0}")]
    Busy(String),
    /// Nobody took the task's results for long: another node would wait in vain, too.
    #[error("{0}")]
    Untaken(String),
    /// Nobody knows whether a change was made that was asked for.
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

/// Whose task it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asker {
    pub(super) guest: usize,
    pub(super) visit: u64,
    pub(super) request: u32,
}

/// What a task, a load or the clerk says.
#[derive(Debug)]
pub(super) enum News {
    Batch(Vec<u8>),
    Finished,
    Failed(Outcome),
    /// An answer, of a load or of the clerk.
    Told(Vec<u8>),
    /// What was opened.
    Opened(Arc<Opened>),
    /// A load that has begun.
    Begun(LoadHandle),
}

/// What was said to a desk.
#[derive(Debug)]
pub(super) struct Mailbox {
    news: Mutex<Vec<(Asker, News)>>,
    waker: Arc<Waker>,
}

impl Mailbox {
    pub(super) fn new(waker: Arc<Waker>) -> Mailbox {
        let news = Mutex::default();
        Mailbox { news, waker }
    }

    /// Takes what was said.
    pub(super) fn take(&self, into: &mut Vec<(Asker, News)>) {
        into.append(&mut self.news.lock());
    }

    pub(super) fn put(&self, asker: Asker, news: News) {
        let was_empty = {
            let mut all = self.news.lock();
            all.push((asker, news));
            all.len() == 1
        };
        if was_empty && let Err(error) = self.waker.wake() {
            tracing::error!(%error, "a storage node's thread cannot be woken");
        }
    }
}

/// A task's reins.
#[derive(Debug, Default)]
pub(super) struct Control {
    credit: Mutex<u32>,
    /// The credit that it has at most: what is given beyond that is not.
    most: u32,
    changed: Condvar,
    cancelled: AtomicBool,
    /// Whether it was cancelled because nobody gave credit.
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
        // Whoever is about to wait holds the lock until it does.
        drop(self.credit.lock());
        self.changed.notify_one();
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Waits for credit for so long, and takes one; false if nobody wants more.
    fn take(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut credit = self.credit.lock();
        while *credit == 0 && !self.is_cancelled() {
            let waited = self.changed.wait_until(&mut credit, deadline);
            if waited.timed_out() && *credit == 0 && !self.is_cancelled() {
                self.untaken.store(true, Ordering::Release);
                // What was not sent must not be taken for the end.
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
    /// Those that run.
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

    /// Takes a job; gives it back if too many wait.
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

    /// Returns what tasks have taken lately.
    pub(super) fn times(&self) -> WorkTimes {
        self.worker.times()
    }

    /// Ends the threads; what they run is cancelled, what waits is not begun.
    pub(super) fn end(&self) {
        self.ending.store(true, Ordering::Release);
        // Whoever has taken a job has noted it as running before the queue is free again.
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
        // Who ends the threads may have looked at those that run just before.
        if self.ending.load(Ordering::Acquire) {
            job.control.cancel();
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let news = self.run(&job);
            self.running
                .lock()
                .retain(|control| !Arc::ptr_eq(control, &job.control));
            self.count(-1);
            job.mailbox.put(job.asker, news);
        }
    }

    fn run(&self, job: &Job) -> News {
        if job.control.is_cancelled() {
            return before_its_time(&job.control);
        }
        let mut out = job;
        let worker = &self.worker;
        let run = std::panic::AssertUnwindSafe(|| worker.run(&job.opened, &job.task, &mut out));
        // A task that panics is one reader's misfortune, not the node's.
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

/// Returns what must not be taken for the end of a task that was cancelled.
fn before_its_time(control: &Control) -> News {
    News::Failed(match control.untaken.load(Ordering::Acquire) {
        true => Outcome::Untaken(format!(
            "nobody took the results of a task for {} s, so that the storage node ended it",
            PATIENCE.as_secs()
        )),
        false => Outcome::Busy("the task was ended before its time".to_owned()),
    })
}

#[cfg(test)]
mod tests;
