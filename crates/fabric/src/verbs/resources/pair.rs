//! Queue pairs.
//!
//! Safety contract: that of [`super`], of which this keeps 3.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use base::memory::WORD;

use super::super::ffi;
use super::queue::{BATCH, Channel, Queue};
use super::{Domain, Registered, checked, made};

/// Memory of the other side.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct PeerMemory {
    pub(in crate::verbs) address: u64,
    pub(in crate::verbs) key: u32,
}

impl PeerMemory {
    /// Returns the memory `words` words behind this.
    pub(in crate::verbs) fn behind(self, words: usize) -> PeerMemory {
        let address = self.address.wrapping_add((words * WORD) as u64);
        PeerMemory { address, ..self }
    }
}

/// An operation for a queue pair.
pub(in crate::verbs) struct Work {
    pub(in crate::verbs) id: u64,
    /// One of [`ffi::operation`].
    pub(in crate::verbs) operation: u32,
    /// The memory here, the word at which it begins, and the bytes.
    pub(in crate::verbs) here: (Arc<Registered>, usize, usize),
    /// The memory of the peer, if the operation names any.
    pub(in crate::verbs) there: Option<PeerMemory>,
    /// The number that goes with a message.
    pub(in crate::verbs) immediate: u32,
    pub(in crate::verbs) signalled: bool,
}

/// A queue pair with its queues of completions.
pub(in crate::verbs) struct Pair {
    raw: NonNull<ffi::Pair>,
    sent: Queue,
    received: Queue,
    /// The memory of work that may be in progress, in the order in which it was posted.
    under_way: VecDeque<(u64, Arc<Registered>)>,
    /// Memory for messages.
    inbox: Option<Arc<Registered>>,
    domain: Arc<Domain>,
}

// SAFETY: contract 5.
unsafe impl Send for Pair {}

impl Pair {
    /// Makes a pair with these numbers of places. Without events no thread can sleep until
    /// something is complete, and the pair needs no descriptor.
    pub(in crate::verbs) fn new(
        domain: &Arc<Domain>,
        sends: u32,
        receives: u32,
        events: bool,
    ) -> io::Result<Pair> {
        let context = &domain.context;
        let channel = match events {
            true => Some(Arc::new(Channel::new(context)?)),
            false => None,
        };
        let sent = Queue::new(context, channel.as_ref(), sends)?;
        let received = Queue::new(context, channel.as_ref(), receives)?;
        let mut init = ffi::PairInit {
            user: null_mut(),
            sent: sent.raw.as_ptr(),
            received: received.raw.as_ptr(),
            shared: null_mut(),
            depths: ffi::Depths {
                sends,
                receives: receives.max(1),
                send_pieces: 1,
                receive_pieces: 1,
                inline: 0,
            },
            kind: ffi::RELIABLE_CONNECTION,
            all_signalled: 0,
        };
        let library = &domain.context.library;
        // SAFETY: the domain and the queues are there, and the pair keeps them.
        let raw = made(unsafe { (library.ibv_create_qp)(domain.raw.as_ptr(), &raw mut init) })?;
        Ok(Pair {
            raw,
            sent,
            received,
            under_way: VecDeque::new(),
            inbox: None,
            domain: Arc::clone(domain),
        })
    }

    /// Returns the number by which peers name it.
    pub(in crate::verbs) fn number(&self) -> u32 {
        // SAFETY: the library's struct is there as long as the pair.
        unsafe { (*self.raw.as_ptr()).number }
    }

    /// Changes the attributes that `mask` names.
    pub(in crate::verbs) fn change(
        &self,
        attributes: &ffi::PairAttributes,
        mask: c_int,
    ) -> io::Result<()> {
        let mut attributes = *attributes;
        let library = &self.domain.context.library;
        // SAFETY: the pair is there, and the struct is the one that is read.
        checked(unsafe { (library.ibv_modify_qp)(self.raw.as_ptr(), &raw mut attributes, mask) })
    }

    /// Posts work.
    pub(in crate::verbs) fn post(&mut self, work: Work) -> io::Result<()> {
        let (memory, at, bytes) = work.here;
        let piece = memory.piece(at, bytes);
        let there = work.there.unwrap_or(PeerMemory { address: 0, key: 0 });
        let mut send = ffi::SendWork {
            id: work.id,
            next: null_mut(),
            pieces: &raw const piece,
            count: c_int::from(bytes > 0),
            operation: work.operation,
            flags: if work.signalled { ffi::SIGNALLED } else { 0 },
            immediate: work.immediate.to_be(),
            remote: there.address,
            remote_key: there.key,
            unused: [0; 19],
        };
        self.under_way.push_back((work.id, memory));
        // SAFETY: the work is one, its piece is registered, and the pair keeps that memory until
        // the work is complete (contract 3).
        let posted = checked(unsafe { ffi::post_send(self.raw.as_ptr(), &raw mut send) });
        if posted.is_err() {
            self.under_way.pop_back();
        }
        posted
    }

    /// Posts memory for a message: a number of bytes from word `at` on, of the same memory each
    /// time.
    pub(in crate::verbs) fn post_receive(
        &mut self,
        id: u64,
        memory: &Arc<Registered>,
        at: usize,
        bytes: usize,
    ) -> io::Result<()> {
        let inbox = self.inbox.get_or_insert_with(|| Arc::clone(memory));
        assert!(Arc::ptr_eq(inbox, memory), "one memory for messages");
        let piece = memory.piece(at, bytes);
        let mut receive = ffi::ReceiveWork {
            id,
            next: null_mut(),
            pieces: &raw const piece,
            count: 1,
        };
        // SAFETY: as above; the pair keeps the memory as long as it is there.
        checked(unsafe { ffi::post_receive(self.raw.as_ptr(), &raw mut receive) })
    }

    /// Takes completions of work. The memory of complete work is no longer kept.
    pub(in crate::verbs) fn poll_sent(
        &mut self,
        into: &mut [ffi::Completion; BATCH],
    ) -> io::Result<usize> {
        let count = self.sent.poll(into)?;
        for completion in &into[..count] {
            let is_over = |(id, _): &(u64, _)| *id <= completion.id;
            while self.under_way.front().is_some_and(is_over) {
                self.under_way.pop_front();
            }
        }
        Ok(count)
    }

    /// Takes completions of messages.
    pub(in crate::verbs) fn poll_received(
        &self,
        into: &mut [ffi::Completion; BATCH],
    ) -> io::Result<usize> {
        self.received.poll(into)
    }

    /// Asks for an event with the next completion of any kind.
    pub(in crate::verbs) fn ask_for_event(&self) -> io::Result<()> {
        self.sent.ask_for_event()?;
        self.received.ask_for_event()
    }

    /// Asks for an event with the next message that arrives.
    pub(in crate::verbs) fn ask_for_receive_event(&self) -> io::Result<()> {
        self.received.ask_for_event()
    }

    /// Returns the channel of events, if there is one.
    pub(in crate::verbs) fn channel(&self) -> Option<&Arc<Channel>> {
        self.sent.channel.as_ref()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: contract 1; queues, memory and domain are dropped after this.
        unsafe { (self.domain.context.library.ibv_destroy_qp)(self.raw.as_ptr()) };
    }
}
