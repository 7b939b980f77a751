//! The thread that does the shelf's work.
//!
//! A shelf may wait: for a lock that is held during a sync, or for files that are opened, made or removed.
//! So reader loops, which must not wait, never call it: they give jobs to the blocking worker, whose answers come to the
//! reader loop's mailbox.
//!
//! 1. Errands are done one after the other, in the order in which they were given.
//! 2. Each has one answer, also when the blocking worker ends.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::loading::LoadHandle;
use super::shelf::{Opened, Shelf};
use super::tasks::{Asker, Mailbox, News, Outcome};
use crate::table::Version;

/// A call of the shelf.
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
    Do(BlockingJob, Asker, Arc<Mailbox>),
    /// Drops a version. The thread that drops the last reference may remove its files.
    LetGo(Arc<Opened>),
}

/// See the [module](self).
pub(super) struct BlockingWorker {
    orders: Mutex<Option<Sender<Order>>>,
    ending: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for BlockingWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clerk").finish_non_exhaustive()
    }
}

impl BlockingWorker {
    pub(super) fn start(shelf: Arc<dyn Shelf>) -> io::Result<Arc<BlockingWorker>> {
        let (orders, come) = channel();
        let ending = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("pages-clerk".to_owned());
        let is_ending = Arc::clone(&ending);
        let thread = thread.spawn(move || work(&*shelf, &come, &is_ending))?;
        Ok(Arc::new(BlockingWorker {
            orders: Mutex::new(Some(orders)),
            ending,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Gives an job; the answer comes to the mailbox.
    pub(super) fn give(&self, job: BlockingJob, asker: Asker, mailbox: &Arc<Mailbox>) {
        if !self.order(Order::Do(job, asker, Arc::clone(mailbox))) {
            mailbox.put(asker, is_ending());
        }
    }

    /// Lets go of an open version.
    pub(super) fn let_go(&self, opened: Arc<Opened>) {
        self.order(Order::LetGo(opened));
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

fn is_ending() -> News {
    let text = "the storage node is ending".to_owned();
    News::Failed(Outcome::Busy(text))
}

fn work(shelf: &dyn Shelf, orders: &Receiver<Order>, ending: &AtomicBool) {
    while let Ok(order) = orders.recv() {
        match order {
            Order::Do(_, asker, mailbox) if ending.load(Ordering::Acquire) => {
                mailbox.put(asker, is_ending());
            }
            Order::Do(job, asker, mailbox) => {
                mailbox.put(asker, run(shelf, job, &mailbox));
            }
            Order::LetGo(opened) => drop(opened),
        }
    }
}

fn run(shelf: &dyn Shelf, job: BlockingJob, mailbox: &Arc<Mailbox>) -> News {
    let changes = matches!(job, BlockingJob::Remove(_));
    // A panic of the shelf affects one reader, not the node.
    let done = catch_unwind(AssertUnwindSafe(|| answer(shelf, job, mailbox)));
    let done = done.unwrap_or_else(|_| {
        let text = "this made the storage node panic; its log says where".to_owned();
        Err(match changes {
            true => Outcome::Doubtful(text),
            false => Outcome::Refused(text),
        })
    });
    done.unwrap_or_else(News::Failed)
}

fn answer(shelf: &dyn Shelf, job: BlockingJob, mailbox: &Arc<Mailbox>) -> Result<News, Outcome> {
    let answer = match job {
        BlockingJob::Tables => shelf.tables().map(News::Told),
        BlockingJob::Open(name, version) => shelf.open(&name, version).map(News::Opened),
        BlockingJob::File(name, unit) => shelf.file(&name, unit).map(News::Opened),
        BlockingJob::Remove(name) => return shelf.remove(&name).map(|()| News::Told(Vec::new())),
        BlockingJob::Load(definition) => shelf.load(&definition).and_then(|load| {
            let load = LoadHandle::start(load, Arc::clone(mailbox));
            load.map(News::Begun).map_err(|error| error.to_string())
        }),
    };
    answer.map_err(Outcome::Refused)
}
