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
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::mailbox::{Mailbox, Notification};
use super::options::NodeOptions;
use super::reply_address::ReplyAddress;
use super::state::NodeState;
use super::storage::OpenTable;
use super::task_control::TaskControl;
use super::worker::{Output, TaskRunner};
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::task::WorkTimes;

/// How long a task waits for its reader.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most tasks that wait for a thread.
const QUEUE: usize = 4096;

/// A task that is to be run.
pub(super) struct TaskJob {
    pub(super) opened: Arc<OpenTable>,
    pub(super) task: Vec<u8>,
    pub(super) control: Arc<TaskControl>,
    pub(super) to: ReplyAddress,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Output for &TaskJob {
    fn batch(&mut self, batch: Vec<u8>) -> bool {
        let wanted = self.control.take(PATIENCE);
        if wanted {
            self.mailbox.put(self.to, Notification::Batch(batch));
        }
        wanted
    }

    fn cancellation(&self) -> Cancellation {
        let control = Arc::clone(&self.control);
        Cancellation::new(move || control.is_cancelled())
    }
}

/// The threads.
pub(super) struct TaskPool {
    queue: Mutex<VecDeque<TaskJob>>,
    arrived: Condvar,
    ending: AtomicBool,
    /// The tasks that run.
    running: Mutex<Vec<Arc<TaskControl>>>,
    worker: Arc<dyn TaskRunner>,
    state: Arc<NodeState>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for TaskPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Tasks");
        shown.field("waiting", &self.queue.lock().len());
        shown.finish_non_exhaustive()
    }
}

impl TaskPool {
    pub(super) fn start(
        options: &NodeOptions,
        worker: Arc<dyn TaskRunner>,
        state: &Arc<NodeState>,
    ) -> io::Result<Arc<TaskPool>> {
        let tasks = Arc::new(TaskPool {
            queue: Mutex::default(),
            arrived: Condvar::new(),
            ending: AtomicBool::new(false),
            running: Mutex::default(),
            worker,
            state: Arc::clone(state),
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
    pub(super) fn put(&self, job: TaskJob) -> Result<(), TaskJob> {
        let mut queue = self.queue.lock();
        if queue.len() >= QUEUE || self.ending.load(Ordering::Acquire) {
            return Err(job);
        }
        self.count(1);
        queue.push_back(job);
        self.arrived.notify_one();
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
                .put(job.to, Notification::Failed(Error::Busy(text)));
        }
        self.arrived.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that runs tasks has panicked");
            }
        }
    }

    fn count(&self, by: i64) {
        let under_way = &self.state.figures.tasks_under_way;
        under_way.fetch_add(by as u64, Ordering::Relaxed);
    }

    fn next(&self) -> Option<TaskJob> {
        let mut queue = self.queue.lock();
        loop {
            if self.ending.load(Ordering::Acquire) {
                return None;
            }
            if let Some(job) = queue.pop_front() {
                self.register(&job);
                return Some(job);
            }
            self.arrived.wait(&mut queue);
        }
    }

    fn register(&self, job: &TaskJob) {
        self.running.lock().push(Arc::clone(&job.control));
        // The thread that calls `TaskPool::end` may have looked at the running tasks just before.
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
            job.mailbox.put(job.to, notifications);
        }
    }

    fn run(&self, job: &TaskJob) -> Notification {
        if job.control.is_cancelled() {
            return cancelled(&job.control);
        }
        let mut out = job;
        let worker = &self.worker;
        let run = std::panic::AssertUnwindSafe(|| worker.run(&job.opened, &job.task, &mut out));
        // A panic of a task affects one reader, not the node.
        match std::panic::catch_unwind(run) {
            Ok(Ok(()) | Err(Error::Busy(_))) if job.control.is_cancelled() => {
                cancelled(&job.control)
            }
            Ok(Ok(())) => {
                self.state.figures.tasks.fetch_add(1, Ordering::Relaxed);
                Notification::Finished
            }
            Ok(Err(outcome)) => Notification::Failed(outcome),
            Err(_) => Notification::Failed(Error::Refused(
                "the task made the node's operator panic; its log says where".to_owned(),
            )),
        }
    }
}

/// Returns the failure of a task that was cancelled, so that it is not taken for complete.
fn cancelled(control: &TaskControl) -> Notification {
    Notification::Failed(match control.is_untaken() {
        true => Error::ResultsNotTaken(format!(
            "the reader did not take the results of a task for {} s, so that the storage node ended it",
            PATIENCE.as_secs()
        )),
        false => Error::Busy("the task was ended before its time".to_owned()),
    })
}

#[cfg(test)]
mod tests;
