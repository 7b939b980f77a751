//! Requests to the kernel about sockets, and what comes of them.
//!
//! What the kernel is told with each request, in its `user_data`: the kind in the upper eight bits,
//! a number in the others.
//!
//! | kind | request | number |
//! |---|---|---|
//! | [`RECEIVE`] | receive until told otherwise, into any of the [`Buffers`] | the socket's place |
//! | [`ROOM`] | tell when there is room to send, or the connection is made or broken | the same |
//! | [`COMING`] | tell whenever somebody connects to a listener | the same |
//! | [`CANCEL`] | cancel what is received | the same |
//! | [`SEND`] | send at once, as much as there is room for | place among `outgoing` |
//! | [`WAKE`] | tell whenever the eventfd of [`Waker`]s is written to | – |
//!
//! Sends never wait in the kernel (`MSG_DONTWAIT`), and report only if they could not send
//! everything. So they are over when the call that submits them returns, a wait for one completion
//! is a wait for something to do, and one system call both sends and waits.
//!
//! Safety contract:
//! 1. What a send reads is owned by `outgoing`, untouched, until the kernel has taken its request
//!    from the queue and all completions of that call have been seen.
//! 2. Buffers live until every request that may receive is over: a ring whose requests cannot be
//!    ended leaks them.
//! 3. A socket is open while requests name it: its place holds it, and is freed when none is under
//!    way. So a place among completions is always that of the socket for which the request was made.
//! 4. A ring is used by one thread after its first wait, as the kernel wants it: borrows of `self`
//!    see to that.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::Shutdown;
use slab::Slab;

use crate::buffers::{BufferId, Buffers, COUNT};

/// Requests that can be queued before the kernel is called.
const ENTRIES: u32 = 1024;
/// Completions that can wait to be seen; more than that the kernel keeps, at a cost.
const COMPLETIONS: u32 = 8192;
/// The name of the group of buffers.
const GROUP: u16 = 0;
/// How often the kernel may say that it has no memory for a request before it is believed.
const PATIENCE: u32 = 1000;
/// Memory for sends that is kept for later: how many pieces, and of what capacity.
const SPARE: usize = 64;
const SPARE_CAPACITY: usize = 16 * 1024;
/// How long a ring that is dropped waits for its requests to end.
const ENDING: Duration = Duration::from_millis(200);

const KIND: u32 = 56;
const RECEIVE: u64 = 1 << KIND;
const ROOM: u64 = 2 << KIND;
const COMING: u64 = 3 << KIND;
const CANCEL: u64 = 4 << KIND;
const SEND: u64 = 5 << KIND;
const WAKE: u64 = 6 << KIND;
const ENDED: u64 = 7 << KIND;

/// A socket of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketId(usize);

/// Why nothing more is received.
#[derive(Debug)]
pub enum Finish {
    /// The peer has ended.
    End,
    /// It was asked for by [`Ring::hold`], or the kernel had no buffer left: [`Ring::receive`] goes
    /// on.
    Held,
    /// The connection is broken.
    Broken(io::Error),
}

/// What has come of requests. `key` is what the socket was added with.
#[derive(Debug)]
pub enum Done {
    /// Bytes have come. The buffer must be given back.
    Received {
        /// Whose.
        key: usize,
        /// Where they are.
        buffer: BufferId,
    },
    /// Nothing more is received.
    Finished {
        /// Whose.
        key: usize,
        /// Why.
        why: Finish,
    },
    /// Not everything could be sent.
    Unsent {
        /// Whose.
        key: usize,
        /// What was to be sent.
        bytes: Vec<u8>,
        /// How much of it was, or why nothing was ([`io::ErrorKind::WouldBlock`]: there is no room).
        result: io::Result<usize>,
    },
    /// There is room to send, the connection is made, or it is broken.
    Room {
        /// Whose.
        key: usize,
    },
    /// Somebody connects.
    Coming {
        /// To which listener.
        key: usize,
    },
}

/// Has a ring's wait end, this one or the next. Clones wake the same ring.
#[derive(Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// See [`Waker`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn wake(&self) -> io::Result<()> {
        rustix::io::write(&*self.0, &1_u64.to_ne_bytes())?;
        Ok(())
    }
}

struct Socket {
    socket: OwnedFd,
    key: usize,
    /// Requests that are not over.
    under_way: u32,
    /// A send is among them.
    sending: bool,
    removed: bool,
}

struct Outgoing {
    place: usize,
    bytes: Vec<u8>,
    /// What the kernel said, if it said anything.
    result: Option<i32>,
}

/// See the module.
pub struct Ring {
    ring: IoUring,
    /// There until the ring is dropped.
    buffers: Option<Buffers>,
    sockets: Slab<Socket>,
    outgoing: Vec<Outgoing>,
    /// Memory for completions while they are looked at.
    seen: Vec<cqueue::Entry>,
    spare: Vec<Vec<u8>>,
    waker: Waker,
    /// Requests that are under way, those of the waker included.
    under_way: usize,
    started: bool,
}

impl Ring {
    /// A ring without sockets.
    ///
    /// # Errors
    /// If the kernel is too old for it, or refuses it to this process.
    pub fn new() -> io::Result<Ring> {
        // Whoever makes a ring has its blocking calls interrupted when the ring ends. So it is made
        // by a thread that is gone then.
        let made = std::thread::spawn(|| {
            IoUring::builder()
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_submit_all()
                // Whoever waits first is the one who may.
                .setup_r_disabled()
                .setup_cqsize(COMPLETIONS)
                .build(ENTRIES)
        });
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
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut ring = Ring {
            ring,
            buffers: Some(buffers),
            sockets: Slab::new(),
            outgoing: Vec::new(),
            seen: Vec::new(),
            spare: Vec::new(),
            waker: Waker(Arc::new(event)),
            under_way: 0,
            started: false,
        };
        ring.watch_waker()?;
        Ok(ring)
    }

    /// What wakes the thread that waits.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Takes a socket, which must not block.
    pub fn add(&mut self, socket: OwnedFd, key: usize) -> SocketId {
        SocketId(self.sockets.insert(Socket {
            socket,
            key,
            under_way: 0,
            sending: false,
            removed: false,
        }))
    }

    /// The socket itself.
    ///
    /// # Panics
    /// If it was removed.
    #[must_use]
    pub fn socket(&self, id: SocketId) -> BorrowedFd<'_> {
        self.sockets[id.0].socket.as_fd()
    }

    /// Closes a socket, behind what was sent; nothing more is told of it.
    ///
    /// # Panics
    /// If it was removed before.
    pub fn remove(&mut self, id: SocketId) {
        let socket = &mut self.sockets[id.0];
        assert!(!socket.removed, "a socket is removed once");
        socket.removed = true;
        if socket.under_way > 0 {
            // Requests hold on to the socket; this ends it for the peer at once, and them with it.
            // What was never connected is told of by an error, and need not be ended.
            let _ = rustix::net::shutdown(&socket.socket, Shutdown::Both);
        } else {
            self.sockets.remove(id.0);
        }
    }

    /// Receives from now on, until [`Done::Finished`].
    ///
    /// # Errors
    /// If the kernel takes no requests.
    pub fn receive(&mut self, id: SocketId) -> io::Result<()> {
        let entry = opcode::RecvMulti::new(self.fd(id), GROUP).build();
        self.ask(id, entry.user_data(RECEIVE | id.0 as u64))
    }

    /// Receives no more: [`Finish::Held`] follows, perhaps behind some that came meanwhile.
    ///
    /// # Errors
    /// If the kernel takes no requests.
    pub fn hold(&mut self, id: SocketId) -> io::Result<()> {
        let entry = opcode::AsyncCancel::new(RECEIVE | id.0 as u64).build();
        self.ask(id, entry.user_data(CANCEL | id.0 as u64))
    }

    /// Tells once when there is room to send, or the connection is made or broken.
    ///
    /// # Errors
    /// If the kernel takes no requests.
    pub fn await_room(&mut self, id: SocketId) -> io::Result<()> {
        let entry = opcode::PollAdd::new(self.fd(id), libc::POLLOUT as u32).build();
        self.ask(id, entry.user_data(ROOM | id.0 as u64))
    }

    /// Tells whenever somebody connects to a listener.
    ///
    /// # Errors
    /// If the kernel takes no requests.
    pub fn await_connections(&mut self, id: SocketId) -> io::Result<()> {
        let poll = opcode::PollAdd::new(self.fd(id), libc::POLLIN as u32).multi(true);
        self.ask(id, poll.build().user_data(COMING | id.0 as u64))
    }

    /// Sends with the next wait. [`Done::Unsent`] follows if that is not possible, nothing if it is.
    ///
    /// # Errors
    /// If the kernel takes no requests.
    ///
    /// # Panics
    /// If something else is sent on the socket with that wait.
    pub fn send(&mut self, id: SocketId, bytes: Vec<u8>) -> io::Result<()> {
        let socket = &mut self.sockets[id.0];
        assert!(!std::mem::replace(&mut socket.sending, true), "two sends");
        let flags = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let entry = opcode::Send::new(self.fd(id), bytes.as_ptr(), bytes.len() as u32)
            .flags(flags)
            .build()
            .flags(Flags::SKIP_SUCCESS)
            .user_data(SEND | self.outgoing.len() as u64);
        // The heap's memory stays where it is when the vector moves.
        self.outgoing.push(Outgoing {
            place: id.0,
            bytes,
            result: None,
        });
        self.ask(id, entry)
    }

    /// Empty memory for what is to be sent.
    pub fn memory(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// What was received.
    ///
    /// # Panics
    /// If the buffer has been given back.
    #[must_use]
    pub fn bytes(&self, buffer: BufferId) -> &[u8] {
        self.buffers
            .as_ref()
            .expect("there until the drop")
            .bytes(buffer)
    }

    /// Gives a buffer back.
    ///
    /// # Panics
    /// If that was done before.
    pub fn give_back(&mut self, buffer: BufferId) {
        let buffers = self.buffers.as_mut().expect("there until the drop");
        buffers.give_back(buffer);
    }

    /// Sends what is to be sent, waits until something is done, the waker was used, or the time has
    /// passed, and appends what was done.
    ///
    /// # Errors
    /// If the kernel does not take requests; the ring is of no use then.
    pub fn wait(&mut self, done: &mut Vec<Done>, timeout: Option<Duration>) -> io::Result<()> {
        self.start()?;
        let ready = !self.ring.completion().is_empty();
        let mut waits = !ready && timeout != Some(Duration::ZERO);
        let mut woken = false;
        let mut refused = 0;
        loop {
            let result = self.enter(waits, timeout);
            // Only the first call waits: the others are for what it could not take.
            waits = false;
            if let Err(error) = result {
                match error.raw_os_error() {
                    Some(libc::ETIME | libc::EINTR) => {}
                    Some(libc::EAGAIN | libc::EBUSY) if refused < PATIENCE => {
                        refused += 1;
                        std::thread::yield_now();
                    }
                    _ => return Err(error),
                }
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

    /// Submits what is queued, has the kernel do what is due, and waits for a completion if asked.
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

    fn take(&mut self, done: &mut Vec<Done>, woken: &mut bool) -> io::Result<()> {
        let mut seen = std::mem::take(&mut self.seen);
        seen.extend(self.ring.completion());
        for entry in seen.drain(..) {
            let (kind, number) = (entry.user_data() >> KIND << KIND, entry.user_data());
            let number = (number & !(u64::MAX << KIND)) as usize;
            let (result, flags) = (entry.result(), entry.flags());
            let over = !cqueue::more(flags);
            self.under_way -= usize::from(over && kind != SEND);
            match kind {
                SEND => self.outgoing[number].result = Some(result),
                WAKE => *woken |= over,
                RECEIVE => self.received(number, result, flags, done),
                ROOM => self.tell(number, over, done, |key| Done::Room { key }),
                COMING => {
                    self.tell(number, over, done, |key| Done::Coming { key });
                    let lives = self.sockets.get(number).is_some_and(|it| !it.removed);
                    if over && lives && result >= 0 {
                        self.await_connections(SocketId(number))?;
                    }
                }
                CANCEL => self.release(number, true),
                _ => {}
            }
        }
        self.seen = seen;
        Ok(())
    }

    fn received(&mut self, place: usize, result: i32, flags: u32, done: &mut Vec<Done>) {
        let socket = &self.sockets[place];
        let (key, removed) = (socket.key, socket.removed);
        if let Some(id) = cqueue::buffer_select(flags) {
            let buffers = self.buffers.as_mut().expect("there until the drop");
            let buffer = buffers.take(id, usize::try_from(result).unwrap_or(0));
            if removed || result <= 0 {
                buffers.give_back(buffer);
            } else {
                done.push(Done::Received { key, buffer });
            }
        }
        if !cqueue::more(flags) && !removed {
            let why = match -result {
                0 => Finish::End,
                ..0 | libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN => Finish::Held,
                code => Finish::Broken(io::Error::from_raw_os_error(code)),
            };
            done.push(Done::Finished { key, why });
        }
        self.release(place, !cqueue::more(flags));
    }

    fn tell(
        &mut self,
        place: usize,
        over: bool,
        done: &mut Vec<Done>,
        what: impl FnOnce(usize) -> Done,
    ) {
        let socket = &self.sockets[place];
        if !socket.removed {
            done.push(what(socket.key));
        }
        self.release(place, over);
    }

    /// A request of a socket may be over, and the socket with it.
    fn release(&mut self, place: usize, over: bool) {
        let socket = &mut self.sockets[place];
        socket.under_way -= u32::from(over);
        if socket.under_way == 0 && socket.removed {
            self.sockets.remove(place);
        }
    }

    /// All sends are over: tells of those that failed.
    fn settle(&mut self, done: &mut Vec<Done>) {
        let mut outgoing = std::mem::take(&mut self.outgoing);
        self.under_way -= outgoing.len();
        for mut it in outgoing.drain(..) {
            let socket = &mut self.sockets[it.place];
            socket.sending = false;
            let (key, removed) = (socket.key, socket.removed);
            self.release(it.place, true);
            if let Some(result) = it.result
                && !removed
            {
                let sent = usize::try_from(result);
                done.push(Done::Unsent {
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

    fn fd(&self, id: SocketId) -> Fd {
        Fd(self.sockets[id.0].socket.as_raw_fd())
    }

    fn ask(&mut self, id: SocketId, entry: Entry) -> io::Result<()> {
        self.sockets[id.0].under_way += 1;
        self.push(entry)
    }

    fn watch_waker(&mut self) -> io::Result<()> {
        let fd = Fd(self.waker.0.as_raw_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true);
        self.push(poll.build().user_data(WAKE))
    }

    fn push(&mut self, entry: Entry) -> io::Result<()> {
        self.under_way += 1;
        loop {
            // SAFETY: what a request names stays valid: a socket until it is over (rule 3), what is
            // sent until it is sent (rule 1), buffers as long as the ring (rule 2).
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.start()?;
            match self.ring.submit() {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

impl Drop for Ring {
    /// Ends all requests, so that the kernel no longer uses the buffers.
    fn drop(&mut self) {
        if !self.started {
            return;
        }
        for (_, socket) in &mut self.sockets {
            socket.removed = true;
        }
        let all = opcode::AsyncCancel2::new(CancelBuilder::any()).build();
        let asked = self.push(all.user_data(ENDED)).is_ok();
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
