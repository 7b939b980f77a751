//! The thread that calls the storage, whose calls may block.
//!
//! A storage may wait: for a lock that is held during a sync, or for files that are opened, made or removed.
//! So reader loops, which must not wait, never call it: they give jobs to the blocking worker, whose answers
//! come to the reader loop's mailbox.
//!
//! 1. Jobs are done one after the other, in the order in which they were given.
//! 2. Each has one answer, also when the blocking worker ends.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::load_thread::LoadHandle;
use super::mailbox::{Mailbox, Notification};
use super::reply_address::ReplyAddress;
use super::storage::{NodeStorage, OpenTable};
use crate::error::Error;
use crate::table::Version;

/// A call of the storage.
#[derive(Debug)]
pub(super) enum BlockingJob {
    Tables,
    Open(String, Version),
    File(String, usize),
    Remove(String),
    Load(Vec<u8>),
}

/// A message to the blocking worker's thread.
enum Order {
    Do(BlockingJob, ReplyAddress, Arc<Mailbox>),
    /// Drops a version. The thread that drops the last reference may remove its files.
    Release(Arc<OpenTable>),
}

/// See the [module](self).
pub(super) struct BlockingWorker {
    orders: Mutex<Option<Sender<Order>>>,
    ending: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for BlockingWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingWorker").finish_non_exhaustive()
    }
}

impl BlockingWorker {
    pub(super) fn start(storage: Arc<dyn NodeStorage>) -> io::Result<Arc<BlockingWorker>> {
        let (orders, come) = channel();
        let ending = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("pages-storage".to_owned());
        let is_ending = Arc::clone(&ending);
        let thread = thread.spawn(move || work(&*storage, &come, &is_ending))?;
        Ok(Arc::new(BlockingWorker {
            orders: Mutex::new(Some(orders)),
            ending,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Gives it a job; the answer comes to the mailbox.
    pub(super) fn give(&self, job: BlockingJob, to: ReplyAddress, mailbox: &Arc<Mailbox>) {
        if !self.order(Order::Do(job, to, Arc::clone(mailbox))) {
            mailbox.put(to, is_ending());
        }
    }

    /// Drops an open version.
    pub(super) fn release(&self, opened: Arc<OpenTable>) {
        self.order(Order::Release(opened));
    }

    /// Sends an order. Returns `true` if the thread will get it; otherwise it is dropped.
    fn order(&self, order: Order) -> bool {
        let orders = self.orders.lock();
        orders
            .as_ref()
            .is_some_and(|orders| orders.send(order).is_ok())
    }

    /// Ends the thread: the current job is completed, and those that wait are refused.
    pub(super) fn end(&self) {
        self.ending.store(true, Ordering::Release);
        drop(self.orders.lock().take());
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that opens tables has panicked");
        }
    }
}

fn is_ending() -> Notification {
    let text = "the storage node is ending".to_owned();
    Notification::Failed(Error::Busy(text))
}

fn work(storage: &dyn NodeStorage, orders: &Receiver<Order>, ending: &AtomicBool) {
    while let Ok(order) = orders.recv() {
        match order {
            Order::Do(_, to, mailbox) if ending.load(Ordering::Acquire) => {
                mailbox.put(to, is_ending());
            }
            Order::Do(job, to, mailbox) => {
                mailbox.put(to, run(storage, job, &mailbox));
            }
            Order::Release(opened) => drop(opened),
        }
    }
}

fn run(storage: &dyn NodeStorage, job: BlockingJob, mailbox: &Arc<Mailbox>) -> Notification {
    let changes = matches!(job, BlockingJob::Remove(_));
    // A panic of the storage affects one reader, not the node.
    let done = catch_unwind(AssertUnwindSafe(|| answer(storage, job, mailbox)));
    let done = done.unwrap_or_else(|_| {
        let text = "this made the storage node panic; its log says where".to_owned();
        Err(match changes {
            true => Error::Doubtful(text),
            false => Error::Refused(text),
        })
    });
    done.unwrap_or_else(Notification::Failed)
}

fn answer(
    storage: &dyn NodeStorage,
    job: BlockingJob,
    mailbox: &Arc<Mailbox>,
) -> Result<Notification, Error> {
    match job {
        BlockingJob::Tables => storage.tables().map(Notification::Answer),
        BlockingJob::Open(name, version) => {
            storage.open(&name, version).map(Notification::OpenTable)
        }
        BlockingJob::File(name, unit) => storage.file(&name, unit).map(Notification::OpenTable),
        BlockingJob::Remove(name) => storage
            .remove(&name)
            .map(|()| Notification::Answer(Vec::new())),
        BlockingJob::Load(definition) => storage.load(&definition).and_then(|load| {
            let mailbox = Arc::clone(mailbox);
            let reply = move |to, done: Result<Vec<u8>, Error>| {
                mailbox.put(
                    to,
                    done.map_or_else(Notification::Failed, Notification::Answer),
                );
            };
            let load = LoadHandle::start(load, reply);
            load.map(Notification::Begun).map_err(Error::refused)
        }),
    }
}
