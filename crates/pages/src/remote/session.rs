//! One thread's link to a storage node: many pages under way, replies in any order.
//!
//! A turn consists of calls of [`Session::read`] as long as there is [room](Session::room), then
//! [`Session::turn`], which sends the requests and waits until a reply has come, then
//! [`Session::next_page`] for each page that has come.
//!
//! Pages lie where the node has put them: in a window of this side's memory where the transport has
//! one, else in memory of their own.

mod changes;
mod options;
mod page_memory;
mod replies;
mod request_table;
mod windows;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::NodeId;
use fabric::tcp::{Tcp, TcpOptions, Transport};
use fabric::{Inbox, Link, Messages, Peer};
use foldhash::HashMap;
use reactor::{Network, SocketEvent, SocketWaker, Sockets};
use slab::Slab;

pub use options::SessionOptions;
use page_memory::PageMemory;
pub use page_memory::{PageReply, ReceivedPage};
use request_table::RequestTable;
pub use request_table::TaskEvent;

use super::window::Reserved;
use crate::error::Error;
use crate::protocol::{
    CLUSTER, INLINE, ListedTable, NodeQuery, NodeRequest, NodeStatus, PAGE_REQUEST, PageRequest,
    begin_read,
};
use crate::table::{Table, Version};

/// The peer of the link; its number has no meaning.
const NODE: NodeId = NodeId(1);
const FIRST_LINK: usize = 0;
/// The most pages that are requested in one message.
const BATCH: usize = 256;
/// The percentage of a window's slots that are kept for pages to come: a page that would take one of
/// these is copied out.
const KEPT_FREE: usize = 50;

/// A session; see the [module](self).
pub struct Session {
    options: SessionOptions,
    network: Sockets,
    events: Vec<SocketEvent>,
    fabric: Tcp<Sockets>,
    inbox: Inbox,
    link: Link,
    /// `false` before the handshake is complete.
    up: bool,
    lost: Option<String>,
    began: Instant,
    windows: HashMap<usize, PageMemory>,
    next_window: u16,
    pending: Slab<Pending>,
    arrived: VecDeque<PageReply>,
    /// A message that requests pages: its handle, and its bytes.
    batch: Option<(u32, Vec<u8>)>,
    next_request: u32,
    requests: RequestTable,
    window_answers: HashMap<u16, Result<Vec<u8>, Error>>,
    message: Vec<u8>,
}

/// A requested page.
#[derive(Debug)]
struct Pending {
    token: u64,
    slot: Option<Reserved>,
    unit: usize,
}

/// A table, or a file, that is open at the node.
#[derive(Clone, Debug)]
pub struct TableHandle {
    handle: u32,
    unit: usize,
    /// The table; a file has none.
    pub table: Option<Arc<Table>>,
    /// Pages of the file; zero for a table.
    pub pages: u64,
}

impl TableHandle {
    /// Returns the node's number of it, and the bytes of a page.
    pub(super) fn place(&self) -> (u32, usize) {
        (self.handle, self.unit)
    }

    /// Returns an error if the node has another table of that name.
    pub(super) fn check(&self, table: &Table, node: SocketAddr) -> Result<(), Error> {
        if self
            .table
            .as_ref()
            .is_some_and(|found| found.id == table.id)
        {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "storage node {node}: table {} is another one by now; ask again",
            table.name
        )))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("address", &self.options.address)
            .field("under_way", &self.pending.len())
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Connects to a node.
    ///
    /// # Errors
    /// Returns an error if the node does not answer, or refuses; the text says why.
    pub fn connect(options: SessionOptions) -> Result<Session, Error> {
        let cannot = |error: io::Error| Error::Lost(error.to_string());
        let mut network = Sockets::open().map_err(cannot)?;
        let mut fabric = TcpOptions::new(Peer::Client, options.secret.clone(), CLUSTER);
        fabric.peers.insert(NODE, options.address);
        fabric.transport = options.transport;
        fabric.encryption = options.encryption;
        fabric.shm = options.shm.clone();
        fabric.verbs = options.verbs.clone();
        fabric.limits.handshake = options.patience;
        let mut fabric = Tcp::new(fabric, &mut network, FIRST_LINK).map_err(cannot)?;
        let link = fabric.connect(NODE);
        let mut session = Session {
            options,
            network,
            events: Vec::new(),
            fabric,
            inbox: Inbox::default(),
            link,
            up: false,
            lost: None,
            began: Instant::now(),
            windows: HashMap::default(),
            next_window: 0,
            pending: Slab::new(),
            arrived: VecDeque::new(),
            batch: None,
            next_request: 0,
            requests: RequestTable::default(),
            window_answers: HashMap::default(),
            message: Vec::new(),
        };
        session.wait_for("the handshake", None, |session| session.up.then_some(()))?;
        Ok(session)
    }

    /// Returns the node's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.options.address
    }

    /// Returns how long the node may be silent about a request.
    pub(super) fn patience(&self) -> Duration {
        self.options.patience
    }

    /// Returns what ends a [turn](Session::turn) of this session from another thread.
    pub(super) fn waker(&mut self) -> Result<SocketWaker, Error> {
        let waker = self.network.waker();
        waker.map_err(|error| Error::Lost(error.to_string()))
    }

    /// Returns the transport of messages; `None` if the link is down.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        self.fabric.transport_of(self.link)
    }

    /// Returns the node's tables.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn tables(&mut self) -> Result<Vec<ListedTable>, Error> {
        let answer = self.ask(NodeQuery::Tables)?;
        ListedTable::decode(&answer).map_err(|error| self.malformed(&error))
    }

    /// Returns how busy the node is.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn status(&mut self) -> Result<NodeStatus, Error> {
        let answer = self.ask(NodeQuery::Status)?;
        NodeStatus::decode(&answer).map_err(|error| self.malformed(&error))
    }

    /// Opens a version of a table; the newest one for version 0.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(&mut self, name: &str, version: Version) -> Result<TableHandle, Error> {
        let answer = self.ask(NodeQuery::Open(version.0, name))?;
        self.opened_table(&answer)
    }

    /// Makes a handle of the answer to [`NodeQuery::Open`].
    pub(super) fn opened_table(&mut self, answer: &[u8]) -> Result<TableHandle, Error> {
        let Some((handle, table)) = answer.split_first_chunk() else {
            return Err(self.malformed(&"an answer without a handle"));
        };
        let table = Table::decode(table).map_err(|error| self.malformed(&error))?;
        let unit = table.page_size.bytes();
        self.prepare(unit)?;
        Ok(TableHandle {
            handle: u32::from_le_bytes(*handle),
            unit,
            table: Some(Arc::new(table)),
            pages: 0,
        })
    }

    /// Opens a file that the node shows, as pages of so many bytes.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open_file(&mut self, name: &str, unit: usize) -> Result<TableHandle, Error> {
        let answer = self.ask(NodeQuery::File(unit as u32, name))?;
        self.opened_file(unit, &answer)
    }

    /// Makes a handle of the answer to [`NodeQuery::File`].
    pub(super) fn opened_file(&mut self, unit: usize, answer: &[u8]) -> Result<TableHandle, Error> {
        let Ok(answer) = <[u8; 12]>::try_from(answer) else {
            return Err(self.malformed(&"an answer that is none"));
        };
        let (handle, pages) = answer.split_at(4);
        self.prepare(unit)?;
        Ok(TableHandle {
            handle: u32::from_le_bytes(handle.try_into().expect("4 bytes")),
            unit,
            table: None,
            pages: u64::from_le_bytes(pages.try_into().expect("8 bytes")),
        })
    }

    /// Closes a table or file.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn close(&mut self, open: &TableHandle) -> Result<(), Error> {
        self.send_request(&NodeRequest::Close {
            handle: open.handle,
        })
    }

    /// Returns how many more pages of this table or file may be requested at present.
    #[must_use]
    pub fn room(&self, open: &TableHandle) -> usize {
        self.room_for(open.unit)
    }

    /// Returns how many more pages of so many bytes may be requested at present.
    pub(super) fn room_for(&self, unit: usize) -> usize {
        let room = self.options.depth - self.pending.len().min(self.options.depth);
        match self.windows.get(&unit) {
            Some(PageMemory::Window(_, slots)) => room.min(slots.free()),
            _ => room,
        }
    }

    /// Returns the number of pages that were requested and have not come.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Requests a page; the token identifies it. The request is sent with the next
    /// [turn](Session::turn).
    ///
    /// # Panics
    /// Panics without [room](Session::room).
    pub fn read(&mut self, open: &TableHandle, segment: u16, page: u32, token: u64) {
        self.request_page(open.place(), segment, page, token);
    }

    /// Requests a page of the [place](TableHandle::place) of an open table.
    pub(super) fn request_page(
        &mut self,
        (handle, unit): (u32, usize),
        segment: u16,
        page: u32,
        token: u64,
    ) {
        let (window, slot) = match self.windows.get(&unit) {
            Some(PageMemory::Window(window, slots)) => {
                let slot = slots.reserve().expect("there is room");
                (*window, Some(slot))
            }
            _ => (INLINE, None),
        };
        let place = slot.as_ref().map_or(0, Reserved::place);
        let tag = self.pending.insert(Pending { token, slot, unit });
        let wanted = PageRequest {
            tag: tag as u32,
            segment,
            window,
            page,
            slot: place,
        };
        match &mut self.batch {
            Some((batched, message)) if *batched == handle => {
                message.extend_from_slice(&wanted.encode());
            }
            _ => {
                self.send_batch();
                let mut message = std::mem::take(&mut self.message);
                message.clear();
                begin_read(&mut message, handle);
                message.extend_from_slice(&wanted.encode());
                self.batch = Some((handle, message));
            }
        }
        let batch = self.batch.as_ref();
        if batch.is_some_and(|(_, message)| message.len() >= BATCH * PAGE_REQUEST) {
            self.send_batch();
        }
    }

    /// Sends the message that requests pages.
    fn send_batch(&mut self) {
        if let Some((_, message)) = self.batch.take() {
            if let Err(error) = self.fabric.send(self.link, &message) {
                self.lose(&error.to_string());
            }
            self.message = message;
        }
    }

    /// Returns the next page that has come, or failed to come.
    pub fn next_page(&mut self) -> Option<PageReply> {
        self.arrived.pop_front()
    }

    /// Has the node run a task over an open table. At most `credit` batches come before the task is
    /// given [more credit](Session::give_credit). Returns the task's number.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn run(&mut self, open: &TableHandle, credit: u32, task: &[u8]) -> Result<u32, Error> {
        let request = self.next_request();
        self.requests.register_task(request);
        self.send_request(&NodeRequest::Run {
            request,
            handle: open.handle,
            credit,
            task,
        })?;
        Ok(request)
    }

    /// Returns the next event of a task, if one has come.
    pub fn next_event(&mut self, task: u32) -> Option<TaskEvent> {
        self.requests.take_event(task)
    }

    /// Returns when the task or request began, or the node last reported that it is under way.
    pub(super) fn last_heard(&self, task: u32) -> Option<Instant> {
        self.requests.last_heard(task)
    }

    /// Allows a task to send so many more batches.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn give_credit(&mut self, request: u32, credit: u32) -> Result<(), Error> {
        self.send_request(&NodeRequest::Credit { request, credit })
    }

    /// Cancels a task; its later events are ignored.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn cancel(&mut self, request: u32) -> Result<(), Error> {
        self.requests.forget(request);
        self.send_request(&NodeRequest::Cancel { request })
    }

    /// Sends requests, and receives replies; waits for replies, but at most `at_most`.
    ///
    /// # Errors
    /// Returns an error if the link is down: no requested page comes any more.
    pub fn turn(&mut self, at_most: Duration) -> Result<(), Error> {
        self.send_batch();
        self.fabric.flush(&mut self.network);
        let timeout = self.fabric.timeout(self.began.elapsed());
        let timeout = timeout.map_or(at_most, |timeout| timeout.min(at_most));
        let (fabric, network) = (&self.fabric, &mut self.network);
        if let Err(error) = fabric.wait(network, &mut self.events, Some(timeout)) {
            self.lose(&error.to_string());
        }
        for event in self.events.drain(..) {
            self.fabric.on_event(event);
        }
        self.fabric.tick(&mut self.network, self.began.elapsed());
        let mut inbox = std::mem::take(&mut self.inbox);
        self.fabric.receive(&mut self.network, &mut inbox);
        for (link, event) in inbox.iter() {
            if link == self.link {
                self.on_event(event);
            }
        }
        inbox.clear();
        self.inbox = inbox;
        self.check()
    }

    /// Waits for the answer to a request, for as long as the node reports that it is under way.
    pub(super) fn answer_to(&mut self, request: u32) -> Result<Vec<u8>, Error> {
        self.wait_for("an answer", Some(request), |session| {
            session.requests.take(request)
        })?
    }

    /// Returns the number of a new request to which an answer will come.
    fn new_request(&mut self) -> u32 {
        let request = self.next_request();
        self.requests.register(request);
        request
    }

    fn next_request(&mut self) -> u32 {
        self.next_request = self.next_request.wrapping_add(1) & (u32::MAX >> 1);
        self.next_request
    }

    fn ask(&mut self, query: NodeQuery<'_>) -> Result<Vec<u8>, Error> {
        let request = self.begin_query(query)?;
        self.answer_to(request)
    }

    /// Asks the node, and returns the number of the request.
    pub(super) fn begin_query(&mut self, query: NodeQuery<'_>) -> Result<u32, Error> {
        let request = self.new_request();
        self.send_request(&NodeRequest::Query { request, query })?;
        Ok(request)
    }

    /// Takes the answer to a request, if it has come.
    pub(super) fn take_answer(&mut self, request: u32) -> Option<Result<Vec<u8>, Error>> {
        self.requests.take(request)
    }

    fn send_request(&mut self, request: &NodeRequest<'_>) -> Result<(), Error> {
        self.check()?;
        self.send_batch();
        let mut message = std::mem::take(&mut self.message);
        message.clear();
        request.encode(&mut message);
        if let Err(error) = self.fabric.send(self.link, &message) {
            self.lose(&error.to_string());
        }
        self.message = message;
        self.check()
    }

    /// Takes turns until `ready` returns a value, or the patience is over. When the node reports that
    /// this request is under way, the patience begins anew.
    fn wait_for<T>(
        &mut self,
        what: &str,
        request: Option<u32>,
        mut ready: impl FnMut(&mut Session) -> Option<T>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        loop {
            if let Some(found) = ready(self) {
                return Ok(found);
            }
            let last_heard = request.and_then(|request| self.requests.last_heard(request));
            let deadline = last_heard.map_or(begun, |last_heard| last_heard.max(begun))
                + self.options.patience;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = format!("{what} has not come in {:?}", self.options.patience);
                self.lose(&text);
            }
            self.turn(left)?;
        }
    }

    fn check(&self) -> Result<(), Error> {
        match &self.lost {
            Some(why) => Err(Error::Lost(why.clone())),
            None => Ok(()),
        }
    }

    /// Gives up the link.
    fn lose(&mut self, why: &str) {
        if self.lost.is_none() {
            let address = self.options.address;
            // The fabric names the node, too.
            let why = why.strip_prefix(&format!("{address}: ")).unwrap_or(why);
            self.lost = Some(format!("storage node {address}: {why}"));
            self.fabric.close(self.link);
        }
    }

    fn malformed(&mut self, what: &dyn std::fmt::Display) -> Error {
        self.lose(&format!("it sent a malformed message: {what}"));
        Error::Lost(self.lost.clone().unwrap_or_default())
    }
}
