//! A ring of io_uring with sockets: receives that go on by themselves, and sends that leave together with the
//! wait, so that a turn of a thread with any number of sockets is one system call.
//!
//! | module | concept |
//! |---|---|
//! | this | submits requests to the kernel, waits, and records their outcomes |
//! | `request` | requests, and how completions name them |
//! | `completion` | outcomes of requests |
//! | `sockets` | sockets, each open as long as requests name it |
//! | `buffers` | memory that the kernel receives into |
//! | `waker` | ends a wait from any thread |
//!
//! A [`IoRing`] belongs to one thread, which alone may [`IoRing::wait`]; its [`Waker`] may be used from any thread.
//! It needs Linux 6.1 or later.
//!
//! Safety contract:
//! 1. The bytes of a send are owned by `outgoing`, untouched, until the kernel has taken its
//!    request from the queue and all completions of that call have been seen.
//! 2. Buffers live until every request that may receive is over: a ring whose requests cannot be
//!    ended leaks them.
//! 3. A socket is open while requests name it: every request is counted by `Sockets`, whose places
//!    hold sockets until none is under way. So a place among completions is always that of the socket
//!    for which the request was made.
//! 4. A ring is used by one thread after its first wait, as the kernel requires: borrows of `self`
//!    ensure that.

#![allow(unsafe_code)]

mod buffers;
mod completion;
mod request;
mod sockets;
mod waker;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue};

pub use buffers::BufferId;
pub use completion::{ReceiveEnd, SocketCompletion};
pub use sockets::SocketId;
pub use waker::Waker;

use buffers::{Buffers, COUNT};
use request::{CANCEL, COMING, GROUP, RECEIVE, ROOM, SEND, WAKE};
use sockets::Sockets;

/// Requests that can be queued before the kernel is called.
const ENTRIES: u32 = 1024;
/// Completions that can wait to be seen; the kernel keeps any more, at a cost.
const COMPLETIONS: u32 = 8192;
/// The number of times that the kernel may report that it has no memory for a request before that
/// counts as an error.
const PATIENCE: u32 = 1000;
/// Memory for sends that is kept for later: how many pieces, and of what capacity.
const SPARE: usize = 64;
const SPARE_CAPACITY: usize = 16 * 1024;
/// The time that a ring that is dropped waits for its requests to end.
const ENDING: Duration = Duration::from_millis(200);

struct Outgoing {
    place: usize,
    bytes: Vec<u8>,
    /// The kernel's result, if it reported one.
    result: Option<i32>,
}

/// A ring of requests to the kernel. See the module.
pub struct IoRing {
    ring: IoUring,
    /// Present until the ring is dropped.
    buffers: Option<Buffers>,
    sockets: Sockets,
    outgoing: Vec<Outgoing>,
    /// Memory for completions while they are looked at.
    seen: Vec<cqueue::Entry>,
    spare: Vec<Vec<u8>>,
    waker: Waker,
    /// The number of requests under way, those of the waker included.
    under_way: usize,
    started: bool,
}

impl IoRing {
    /// Returns a ring without sockets.
    ///
    /// # Errors
    /// Returns an error if the kernel is too old, or refuses the ring to this process.
    pub fn new() -> io::Result<IoRing> {
        // The thread that makes a ring has its blocking calls interrupted when the ring ends. So
        // the ring is made by a thread that is gone then.
        let made = std::thread::Builder::new().spawn(|| {
            IoUring::builder()
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_submit_all()
                // The first thread that waits is the one that may.
                .setup_r_disabled()
                .setup_cqsize(COMPLETIONS)
                .build(ENTRIES)
        })?;
        let ring = made
            .join()
            .map_err(|_| io::Error::other("a thread has panicked"))??;
        let features = ring.params();
        if !features.is_feature_nodrop() || !features.is_feature_skip_cqe_on_success() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let buffers = Buffers::new();
        let submitter = ring.submitter();
        // SAFETY: the table has as many entries, and lives as long as the ring uses it (rule 2).
        unsafe { submitter.register_buf_ring_with_flags(buffers.table(), COUNT, GROUP, 0) }?;
        let waker = Waker::new()?;
        let mut ring = IoRing {
            ring,
            buffers: Some(buffers),
            sockets: Sockets::default(),
            outgoing: Vec::new(),
            seen: Vec::new(),
            spare: Vec::new(),
            waker,
            under_way: 0,
            started: false,
        };
        ring.watch_waker()?;
        Ok(ring)
    }

    /// Returns a waker of the thread that waits.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Adds a socket, which must not block.
    pub fn add(&mut self, socket: OwnedFd, key: usize) -> SocketId {
        self.sockets.add(socket, key)
    }

    /// Adds the descriptor of a poll, to be watched by [`IoRing::await_connections`]: it is reported when the poll
    /// has events.
    ///
    /// # Errors
    /// Returns an error if the process has no descriptor left.
    pub fn add_poll(&mut self, poll: &mio::Poll, key: usize) -> io::Result<SocketId> {
        // SAFETY: the poll is open during this call.
        let descriptor = unsafe { BorrowedFd::borrow_raw(poll.as_raw_fd()) };
        Ok(self.add(descriptor.try_clone_to_owned()?, key))
    }

    /// Returns the socket itself.
    ///
    /// # Panics
    /// Panics if the socket was removed.
    #[must_use]
    pub fn socket(&self, id: SocketId) -> BorrowedFd<'_> {
        self.sockets.socket(id)
    }

    /// Closes a socket, after the bytes that are being sent; no outcome of it is reported any more.
    ///
    /// # Panics
    /// Panics if the socket was removed before.
    pub fn remove(&mut self, id: SocketId) {
        self.sockets.remove(id);
    }

    /// Receives from now on, until [`SocketCompletion::Finished`].
    ///
    /// # Errors
    /// Returns an error if the kernel takes no requests.
    pub fn receive(&mut self, id: SocketId) -> io::Result<()> {
        self.push_request(id, request::receive(self.sockets.fd(id), id.0))
    }

    /// Stops receiving: [`ReceiveEnd::Paused`] follows, perhaps after bytes that came meanwhile.
    ///
    /// # Errors
    /// Returns an error if the kernel takes no requests.
    pub fn pause(&mut self, id: SocketId) -> io::Result<()> {
        self.push_request(id, request::cancel(RECEIVE, id.0))
    }

    /// Reports once when there is room to send, or the connection is made or broken.
    ///
    /// # Errors
    /// Returns an error if the kernel takes no requests.
    pub fn await_room(&mut self, id: SocketId) -> io::Result<()> {
        self.push_request(id, request::room(self.sockets.fd(id), id.0))
    }

    /// Reports each peer that connects to a listener.
    ///
    /// # Errors
    /// Returns an error if the kernel takes no requests.
    pub fn await_connections(&mut self, id: SocketId) -> io::Result<()> {
        self.push_request(id, request::coming(self.sockets.fd(id), id.0))
    }

    /// Sends with the next wait. [`SocketCompletion::Unsent`] follows if that is not possible, no outcome if it
    /// is.
    ///
    /// # Errors
    /// Returns an error if the kernel takes no requests.
    ///
    /// # Panics
    /// Panics if other bytes are sent on the socket with that wait.
    pub fn send(&mut self, id: SocketId, bytes: Vec<u8>) -> io::Result<()> {
        self.sockets.begin_send(id);
        let entry = request::send(self.sockets.fd(id), &bytes, self.outgoing.len());
        // The heap's memory stays at its address when the vector moves.
        self.outgoing.push(Outgoing {
            place: id.0,
            bytes,
            result: None,
        });
        self.push_request(id, entry)
    }

    /// Returns empty memory for bytes to send.
    pub fn memory(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Returns the bytes that were received.
    ///
    /// # Panics
    /// Panics if the buffer has been given back.
    #[must_use]
    pub fn bytes(&self, buffer: BufferId) -> &[u8] {
        self.buffers
            .as_ref()
            .expect("there until the drop")
            .bytes(buffer)
    }

    /// Returns `true` if a buffer of received bytes has not been given back.
    #[must_use]
    pub fn holds_buffers(&self) -> bool {
        let buffers = self.buffers.as_ref().expect("there until the drop");
        buffers.are_held()
    }

    /// Gives a buffer back.
    ///
    /// # Panics
    /// Panics if the buffer was given back before.
    pub fn give_back(&mut self, buffer: BufferId) {
        let buffers = self.buffers.as_mut().expect("there until the drop");
        buffers.give_back(buffer);
    }

    /// Sends all queued bytes, waits until a request is done, the waker was used, or the time has
    /// passed, and appends the outcomes.
    ///
    /// # Errors
    /// Returns an error if the kernel does not take requests; the ring cannot be used any more
    /// then.
    pub fn wait(
        &mut self,
        done: &mut Vec<SocketCompletion>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.start()?;
        let ready = !self.ring.completion().is_empty();
        let mut waits = !ready && timeout != Some(Duration::ZERO);
        let mut woken = false;
        let mut refused = 0;
        loop {
            let result = self.enter(waits, timeout);
            // Only the first call waits: the others submit what it could not take.
            waits = false;
            if let Err(error) = result {
                may_repeat(error, &mut refused)?;
            }
            self.take(done, &mut woken)?;
            let queue = self.ring.submission();
            if queue.is_empty() && !queue.cq_overflow() {
                break;
            }
        }
        self.settle(done);
        if woken { self.watch_waker() } else { Ok(()) }
    }

    fn start(&mut self) -> io::Result<()> {
        if !self.started {
            self.ring.submitter().register_enable_rings()?;
            self.started = true;
        }
        Ok(())
    }

    /// Submits the queued requests, has the kernel do the work that is due, and waits for a
    /// completion if asked.
    fn enter(&mut self, waits: bool, timeout: Option<Duration>) -> io::Result<usize> {
        let queued = self.ring.submission().len() as u32;
        let submitter = self.ring.submitter();
        let flags = EnterFlags::GETEVENTS.bits();
        match timeout {
            Some(timeout) if waits => {
                let time = Timespec::from(timeout);
                let args = SubmitArgs::new().timespec(&time);
                let flags = flags | EnterFlags::EXT_ARG.bits();
                // SAFETY: memory that requests name is valid (rules 1 and 2), and so are the
                // arguments, which the flags say there are.
                unsafe { submitter.enter(queued, 1, flags, Some(&args)) }
            }
            // SAFETY: as above; there are no arguments.
            _ => unsafe {
                submitter.enter::<libc::sigset_t>(queued, u32::from(waits), flags, None)
            },
        }
    }

    fn take(&mut self, done: &mut Vec<SocketCompletion>, woken: &mut bool) -> io::Result<()> {
        let mut seen = std::mem::take(&mut self.seen);
        seen.extend(self.ring.completion());
        for entry in seen.drain(..) {
            let (kind, number) = request::named(entry.user_data());
            let (result, flags) = (entry.result(), entry.flags());
            let over = !cqueue::more(flags);
            self.under_way -= usize::from(over && kind != SEND);
            match kind {
                SEND => self.outgoing[number].result = Some(result),
                WAKE => *woken |= over,
                RECEIVE => self.received(number, result, flags, done),
                ROOM => self.tell(number, over, done, |key| SocketCompletion::Room { key }),
                COMING => {
                    self.tell(number, over, done, |key| SocketCompletion::Incoming { key });
                    let lives = self.sockets.key(number).is_some();
                    if lives && result & i32::from(libc::POLLHUP) != 0 && result >= 0 {
                        self.end_listener(SocketId(number), over)?;
                    } else if over && lives && result >= 0 {
                        self.await_connections(SocketId(number))?;
                    }
                }
                CANCEL => self.sockets.release(number, true),
                _ => {}
            }
        }
        self.seen = seen;
        Ok(())
    }

    /// Removes a listener that was shut down. Its poll would go on for ever, unless it is `over`.
    fn end_listener(&mut self, id: SocketId, over: bool) -> io::Result<()> {
        if !over {
            self.push_request(id, request::cancel(COMING, id.0))?;
        }
        self.sockets.remove(id);
        Ok(())
    }

    fn received(
        &mut self,
        place: usize,
        result: i32,
        flags: u32,
        done: &mut Vec<SocketCompletion>,
    ) {
        let key = self.sockets.key(place);
        if let Some(id) = cqueue::buffer_select(flags) {
            let buffers = self.buffers.as_mut().expect("there until the drop");
            let buffer = buffers.take(id, usize::try_from(result).unwrap_or(0));
            match key {
                Some(key) if result > 0 => done.push(SocketCompletion::Received { key, buffer }),
                _ => buffers.give_back(buffer),
            }
        }
        if !cqueue::more(flags)
            && let Some(key) = key
        {
            let why = match -result {
                0 => ReceiveEnd::ClosedByPeer,
                ..0 | libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN => {
                    ReceiveEnd::Paused
                }
                code => ReceiveEnd::Broken(io::Error::from_raw_os_error(code)),
            };
            done.push(SocketCompletion::Finished { key, why });
        }
        self.sockets.release(place, !cqueue::more(flags));
    }

    fn tell(
        &mut self,
        place: usize,
        over: bool,
        done: &mut Vec<SocketCompletion>,
        what: impl FnOnce(usize) -> SocketCompletion,
    ) {
        if let Some(key) = self.sockets.key(place) {
            done.push(what(key));
        }
        self.sockets.release(place, over);
    }

    /// Appends the outcomes of the sends that failed; all sends are over.
    fn settle(&mut self, done: &mut Vec<SocketCompletion>) {
        let mut outgoing = std::mem::take(&mut self.outgoing);
        self.under_way -= outgoing.len();
        for mut it in outgoing.drain(..) {
            let key = self.sockets.key(it.place);
            self.sockets.end_send(it.place);
            if let (Some(result), Some(key)) = (it.result, key) {
                let sent = usize::try_from(result);
                done.push(SocketCompletion::Unsent {
                    key,
                    bytes: it.bytes,
                    result: sent.map_err(|_| io::Error::from_raw_os_error(-result)),
                });
            } else if self.spare.len() < SPARE && it.bytes.capacity() <= SPARE_CAPACITY {
                it.bytes.clear();
                self.spare.push(it.bytes);
            }
        }
        self.outgoing = outgoing;
    }

    fn push_request(&mut self, id: SocketId, entry: Entry) -> io::Result<()> {
        self.push(entry)?;
        self.sockets.asked(id);
        Ok(())
    }

    fn watch_waker(&mut self) -> io::Result<()> {
        self.push(request::wake(self.waker.event()))
    }

    fn push(&mut self, entry: Entry) -> io::Result<()> {
        let mut refused = 0;
        loop {
            // SAFETY: everything that a request names stays valid: a socket until the request is
            // over (rule 3), the bytes of a send until it is over (rule 1), buffers as long as the
            // ring (rule 2).
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                self.under_way += 1;
                return Ok(());
            }
            self.start()?;
            if let Err(error) = self.ring.submit() {
                may_repeat(error, &mut refused)?;
            }
        }
    }
}

/// Returns the error of a call that submits requests, unless the call is to be repeated. `refused` counts how
/// often the kernel had no memory or no room.
fn may_repeat(error: io::Error, refused: &mut u32) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ETIME | libc::EINTR) => Ok(()),
        Some(libc::EAGAIN | libc::EBUSY) if *refused < PATIENCE => {
            *refused += 1;
            std::thread::yield_now();
            Ok(())
        }
        _ => Err(error),
    }
}

impl Drop for IoRing {
    /// Ends all requests, so that the kernel no longer uses the buffers.
    fn drop(&mut self) {
        if !self.started {
            return;
        }
        self.sockets.remove_all();
        let asked = self.push(request::cancel_all()).is_ok();
        let (mut done, mut woken) = (Vec::new(), false);
        for _ in 0..ENDING.as_millis() {
            if !asked || self.under_way <= self.outgoing.len() {
                break;
            }
            let _ = self.enter(true, Some(Duration::from_millis(1)));
            if self.take(&mut done, &mut woken).is_err() {
                break;
            }
        }
        if self.under_way > self.outgoing.len() || !self.ring.submission().is_empty() {
            // Rules 1 and 2.
            std::mem::forget(self.buffers.take());
            std::mem::forget(std::mem::take(&mut self.outgoing));
        }
    }
}
