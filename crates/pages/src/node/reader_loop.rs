//! One thread's turn: readers' messages, the reads that follow from them, and the replies.
//!
//! The steps of a turn: sleep until something happens, or look again at once while something is expected
//! → readers' messages → reads are begun, of each reader in turn → completed reads → messages of tasks,
//! loads and the blocking worker → replies leave → the links of readers beyond their limits are closed.
//!
//! Invariants:
//! 1. A turn blocks only where it waits for events. Calls of the storage are made by the blocking worker, and loads and tasks run
//!    on threads of their own: they answer by the mailbox.
//! 2. A reader's place is used again for another reader only with another number of visit; reads that
//!    were begun for the earlier one are dropped when they complete.
//! 3. An invalid message of a reader ends its link alone.

mod notifications;
mod reading;
mod replies;
mod requests;

use std::collections::HashMap;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::NodeId;
use base::log_limit::LogLimit;
use disk::reads::{CompletedRead, ReadMethod, ReadQueue};
use fabric::tcp::{ConnectionBalancer, Tcp, TcpOptions};
use fabric::{Event, Inbox, Link, Messages, Peer};
use mio::unix::SourceFd;
use mio::{Interest, Token};
use reactor::{Network, SocketEvent, SocketWaker, Sockets};
use slab::Slab;

use super::blocking_worker::BlockingWorker;
use super::figures::PendingFigures;
use super::load_thread::LoadHandle;
use super::mailbox::{Mailbox, Notification};
use super::open_files::OpenFiles;
use super::options::NodeOptions;
use super::page_buffers::PageBuffers;
use super::read_target::ReadTarget;
use super::reader_connection::{Handle, ReaderConnection};
use super::reply_address::ReplyAddress;
use super::state::NodeState;
use super::task_pool::TaskPool;
use crate::protocol::{CLUSTER, NodeFailureKind};

const BELL: usize = 0;
const FIRST_LINK: usize = 1;
/// Pages that this thread reads by itself before it reports them. Their readers work on them while it
/// reads the next ones.
const AT_ONCE: usize = 64;

/// The least time between two log lines of one kind that readers cause, at each reader loop.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// See the [module](self).
pub(super) struct ReaderLoop {
    options: NodeOptions,
    blocking_worker: Arc<BlockingWorker>,
    tasks: Arc<TaskPool>,
    state: Arc<NodeState>,
    network: Sockets,
    events: Vec<SocketEvent>,
    waker: Arc<SocketWaker>,
    fabric: Tcp<Sockets>,
    inbox: Inbox,
    reads: Box<dyn ReadQueue<ReadTarget>>,
    done: Vec<CompletedRead<ReadTarget>>,
    files: OpenFiles,
    buffers: PageBuffers,
    readers: Slab<ReaderConnection>,
    by_link: HashMap<Link, usize>,
    generations: u64,
    /// Readers with pages that are not begun, in the order of their turns.
    waiting: std::collections::VecDeque<usize>,
    /// Readers that have replies to be sent.
    to_reply: Vec<usize>,
    /// `true` if links of readers are to be closed.
    is_condemning: bool,
    /// When waiting readers are next told that their requests are under way.
    next_progress: Instant,
    /// Threads of loads that are over, or nearly so.
    leaving: Vec<JoinHandle<()>>,
    mailbox: Arc<Mailbox>,
    notifications: Vec<(ReplyAddress, Notification)>,
    /// A buffer that is kept for its memory.
    message: Vec<u8>,
    began: Instant,
    /// Limits log lines that readers cause, by their text.
    log_limit: LogLimit<&'static str>,
    /// The counts that this thread has added to the figures.
    counted: PendingFigures,
}

/// Where a reader loop's readers come from.
pub(super) struct LoopHandle {
    /// The node's listener, for the first reader loop.
    pub(super) listener: Option<TcpListener>,
    /// The distribution of links among all reader loops.
    pub(super) deal: Arc<ConnectionBalancer<Sockets>>,
    /// The reader loop's place among them.
    pub(super) number: usize,
}

impl ReaderLoop {
    pub(super) fn new(
        options: &NodeOptions,
        handle: LoopHandle,
        blocking_worker: Arc<BlockingWorker>,
        tasks: Arc<TaskPool>,
        state: Arc<NodeState>,
    ) -> io::Result<ReaderLoop> {
        let mut network = Sockets::open()?;
        let waker = Arc::new(network.waker()?);
        let mut fabric = TcpOptions::new(Peer::Node(NodeId(1)), options.secret.clone(), CLUSTER);
        fabric.listener = handle.listener;
        fabric.transport = options.transport;
        fabric.encryption = options.encryption;
        fabric.shm = options.shm.clone();
        fabric.verbs = options.verbs.clone();
        fabric.budget = Arc::clone(&state.in_flight);
        fabric.limits.queue = options.limits.inline_bytes;
        fabric.limits.message = options.limits.message;
        let mut fabric = Tcp::new(fabric, &mut network, FIRST_LINK)?;
        fabric.join(handle.deal.register(handle.number, Arc::clone(&waker)));
        let depth = match options.way {
            ReadMethod::Inline => options.depth.min(AT_ONCE),
            _ => options.depth,
        };
        let reads = options.way.reads(depth)?;
        let bell = reads.bell().as_raw_fd();
        let mut bell = SourceFd(&bell);
        network
            .registry()?
            .register(&mut bell, Token(BELL), Interest::READABLE)?;
        Ok(ReaderLoop {
            mailbox: Arc::new(Mailbox::new(Arc::clone(&waker))),
            options: options.clone(),
            blocking_worker,
            tasks,
            state,
            network,
            events: Vec::new(),
            waker,
            fabric,
            inbox: Inbox::default(),
            reads,
            done: Vec::new(),
            files: OpenFiles::default(),
            buffers: PageBuffers::default(),
            readers: Slab::new(),
            by_link: HashMap::new(),
            generations: 0,
            waiting: std::collections::VecDeque::new(),
            to_reply: Vec::new(),
            is_condemning: false,
            next_progress: Instant::now(),
            leaving: Vec::new(),
            notifications: Vec::new(),
            message: Vec::new(),
            began: Instant::now(),
            log_limit: LogLimit::new(LOG_INTERVAL),
            counted: PendingFigures::default(),
        })
    }

    pub(super) fn waker(&self) -> Arc<SocketWaker> {
        Arc::clone(&self.waker)
    }

    /// Takes turns until the node ends.
    pub(super) fn run(mut self) -> io::Result<()> {
        while !self.state.ending.load(Ordering::Acquire) {
            let timeout = self.timeout();
            self.turn(timeout)?;
        }
        self.end()
    }

    /// Gives reads that are under way time to complete, and closes the links.
    fn end(mut self) -> io::Result<()> {
        let deadline = Instant::now() + self.options.limits.farewell;
        while self.reads.under_way() > 0 && Instant::now() < deadline {
            self.turn(Some(Duration::from_millis(1)))?;
        }
        self.fabric.close_all();
        while self.fabric.connections() > 0 && Instant::now() < deadline {
            self.turn(Some(Duration::from_millis(1)))?;
        }
        // The caller that stops a node may open its tables again at once. This reader loop may not have heard
        // of the last loads that the blocking worker has begun.
        self.deliver_notifications();
        for reader in std::mem::take(&mut self.readers) {
            let loads = reader.1.loads.into_values();
            self.leaving.extend(loads.map(LoadHandle::end));
        }
        for thread in self.leaving {
            if thread.join().is_err() {
                tracing::error!("a thread that loads rows has panicked");
            }
        }
        Ok(())
    }

    /// Returns how long the poll may sleep.
    fn timeout(&mut self) -> Option<Duration> {
        // A reader that waits for room or for buffers goes on when a read completes, and one that waits
        // for its link when that has drained: neither is a reason to stay awake.
        let timeout = self.fabric.timeout(self.began.elapsed());
        let timeout = timeout.into_iter().chain(self.until_progress()).min();
        if timeout == Some(Duration::ZERO) {
            return timeout;
        }
        // They may have become able to go on in the turn's last step.
        let can_go_on = |&reader: &usize| self.readers[reader].overflow.is_empty();
        if self.reads.under_way() == 0 && self.waiting.iter().any(can_go_on) {
            return Some(Duration::ZERO);
        }
        let mut readers = self.readers.iter();
        if readers.any(|(_, reader)| !reader.written.is_empty()) {
            // A device does not report that it is done; other threads may have the processor until it
            // is.
            std::thread::yield_now();
            return Some(Duration::ZERO);
        }
        if self.reads.under_way() > 0 && !self.reads.arm() {
            return Some(Duration::ZERO);
        }
        timeout
    }

    fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let (fabric, network) = (&self.fabric, &mut self.network);
        fabric.wait(network, &mut self.events, timeout)?;
        for event in self.events.drain(..) {
            if self.fabric.owns(event.token) {
                self.fabric.on_event(event);
            }
        }
        let (fabric, network) = (&mut self.fabric, &mut self.network);
        fabric.tick(network, self.began.elapsed());
        let mut inbox = std::mem::take(&mut self.inbox);
        fabric.receive(network, &mut inbox);
        for (link, event) in inbox.iter() {
            self.on_event(link, event);
        }
        inbox.clear();
        self.inbox = inbox;
        self.finish_reads();
        // Readers whose links take messages again may have pages begun again.
        self.reply();
        self.begin_reads()?;
        // Some reads may be complete: all, if this thread reads by itself.
        self.finish_reads();
        self.deliver_notifications();
        self.send_progress();
        self.reply();
        self.disconnect_condemned();
        // The figures count a page before its reader hears of it.
        self.publish_figures();
        self.fabric.flush(&mut self.network);
        Ok(())
    }

    fn on_event(&mut self, link: Link, event: Event<'_>) {
        match event {
            Event::Up(_) => self.accept(link),
            Event::Message(message) => {
                let Some(&reader) = self.by_link.get(&link) else {
                    return;
                };
                if let Err(why) = self.on_message(reader, message) {
                    self.disconnect(reader, &why.to_string());
                }
            }
            Event::Drained => {
                if let Some(&reader) = self.by_link.get(&link) {
                    self.mark_for_reply(reader);
                    self.queue_up(reader);
                }
            }
            Event::Down(why) => {
                if let Some(reader) = self.by_link.remove(&link) {
                    tracing::debug!(?link, why, "a reader has gone");
                    self.remove_reader(reader);
                }
            }
        }
    }

    fn accept(&mut self, link: Link) {
        if self.readers.len() >= self.options.limits.readers {
            if let Some(left_out) = self.log_limit.count("too many", self.began.elapsed()) {
                tracing::warn!("a reader is turned away: there are too many{left_out}");
            }
            self.fabric.close(link);
            return;
        }
        self.generations += 1;
        let reader = self
            .readers
            .insert(ReaderConnection::new(link, self.generations));
        self.by_link.insert(link, reader);
        let readers = &self.state.figures.readers;
        readers.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the link of a reader that breaks the protocol, and tells it why.
    fn disconnect(&mut self, reader: usize, why: &str) {
        let link = self.readers[reader].link;
        if let Some(left_out) = self.log_limit.count("refused", self.began.elapsed()) {
            tracing::warn!(?link, why, "the link of a reader is closed{left_out}");
        }
        self.fail(reader, u32::MAX, NodeFailureKind::Refused, why);
        self.by_link.remove(&link);
        self.reply();
        self.fabric.close(link);
        self.remove_reader(reader);
    }

    /// Releases everything that a reader had.
    fn remove_reader(&mut self, reader: usize) {
        let gone = self.readers.remove(reader);
        for task in gone.tasks.values() {
            task.control.cancel();
        }
        for load in gone.loads.into_values() {
            self.end_load(load);
        }
        for handle in gone.handles.into_values() {
            self.close(handle);
        }
        for memory in gone.registered {
            self.reads.unregister(memory);
        }
        self.waiting.retain(|&waiting| waiting != reader);
        self.to_reply.retain(|&to_reply| to_reply != reader);
        let readers = &self.state.figures.readers;
        readers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Closes a version that a reader no longer needs.
    fn close(&mut self, handle: Handle) {
        self.files.close(&handle.opened, &mut *self.reads);
        self.blocking_worker.release(handle.opened);
    }

    /// Ends a load; its thread may have some work left.
    fn end_load(&mut self, load: LoadHandle) {
        self.leaving.retain(|thread| !thread.is_finished());
        self.leaving.push(load.end());
    }

    /// Notes that a reader has a reply to be sent.
    #[inline]
    fn mark_for_reply(&mut self, reader: usize) {
        if !std::mem::replace(&mut self.readers[reader].is_marked, true) {
            self.to_reply.push(reader);
        }
    }

    /// Puts a reader in the queue if it has pages to be begun.
    fn queue_up(&mut self, reader: usize) {
        if !self.readers[reader].queue.is_empty() && !self.waiting.contains(&reader) {
            self.waiting.push_back(reader);
        }
    }
}
