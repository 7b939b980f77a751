//! Queues of completions, and the events that tell of them.
//!
//! Safety contract: that of [`super`], of which this keeps 1.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Duration;

use super::super::ffi;
use super::{Context, checked, made};

/// The number of completions that are taken at once.
pub(in crate::verbs) const BATCH: usize = 16;

/// The channel of queues' events, as a descriptor that does not block.
pub(in crate::verbs) struct Channel {
    raw: NonNull<ffi::Channel>,
    context: Arc<Context>,
}

// SAFETY: contract 5.
unsafe impl Send for Channel {}
// SAFETY: contract 5.
unsafe impl Sync for Channel {}

impl Channel {
    pub(in crate::verbs) fn new(context: &Arc<Context>) -> io::Result<Channel> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.ibv_create_comp_channel)(context.raw.as_ptr()) };
        let channel = Channel {
            raw: made(raw)?,
            context: Arc::clone(context),
        };
        // SAFETY: the descriptor is the channel's, and is open.
        let failed = unsafe {
            let flags = libc::fcntl(channel.fd(), libc::F_GETFL);
            libc::fcntl(channel.fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)
        };
        match failed {
            0 => Ok(channel),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the descriptor, which is readable when there is an event.
    pub(in crate::verbs) fn fd(&self) -> c_int {
        // SAFETY: the library's struct is there as long as the channel.
        unsafe { (*self.raw.as_ptr()).fd }
    }

    /// Takes all events.
    pub(in crate::verbs) fn take(&self) {
        let library = &self.context.library;
        let (mut queue, mut user) = (null_mut(), null_mut());
        loop {
            // SAFETY: the channel is there, and so are the places for what it returns.
            let failed = unsafe {
                (library.ibv_get_cq_event)(self.raw.as_ptr(), &raw mut queue, &raw mut user)
            };
            if failed != 0 {
                return;
            }
            // SAFETY: the queue is there: giving one back waits until its events that were taken
            // are acknowledged, and drops those that were not.
            unsafe { (library.ibv_ack_cq_events)(queue, 1) };
        }
    }

    /// Waits for an event, but not longer than `timeout`.
    pub(in crate::verbs) fn wait(&self, timeout: Duration) {
        let mut poll = libc::pollfd {
            fd: self.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let timeout = timeout.as_millis().min(1 << 30) as c_int;
        // SAFETY: it is one descriptor. An error is no event, and the caller looks anyway.
        unsafe { libc::poll(&raw mut poll, 1, timeout) };
    }
}

/// Waits until one of these descriptors is readable, but not longer than `timeout`. An error counts
/// as readable.
pub(crate) fn wait_for_either(descriptors: [c_int; 2], timeout: Duration) -> [bool; 2] {
    let mut polled = descriptors.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // Less than a millisecond is rounded up, so that a short time is not spent in a loop.
    let timeout = timeout.as_micros().div_ceil(1000).min(1 << 30) as c_int;
    // SAFETY: there are two. If the call fails, none is readable, and the caller looks anyway.
    unsafe { libc::poll(polled.as_mut_ptr(), 2, timeout) };
    polled.map(|polled| polled.revents != 0)
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: contract 1.
        unsafe { (self.context.library.ibv_destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

/// A queue of completions.
pub(super) struct Queue {
    pub(super) raw: NonNull<ffi::Completions>,
    /// The channel of its events; `None` if no thread waits for them.
    pub(super) channel: Option<Arc<Channel>>,
    context: Arc<Context>,
}

// SAFETY: contract 5.
unsafe impl Send for Queue {}

impl Queue {
    pub(super) fn new(
        context: &Arc<Context>,
        channel: Option<&Arc<Channel>>,
        depth: u32,
    ) -> io::Result<Queue> {
        let events = channel.map_or(null_mut(), |channel| channel.raw.as_ptr());
        // SAFETY: the context is there, and so is the channel, if any.
        let raw = unsafe {
            let library = &context.library;
            let depth = depth.max(1) as c_int;
            (library.ibv_create_cq)(context.raw.as_ptr(), depth, null_mut(), events, 0)
        };
        Ok(Queue {
            raw: made(raw)?,
            channel: channel.cloned(),
            context: Arc::clone(context),
        })
    }

    /// Takes completions, and returns their number.
    pub(super) fn poll(&self, into: &mut [ffi::Completion; BATCH]) -> io::Result<usize> {
        // SAFETY: the queue's context is open, and there is room.
        let count = unsafe { ffi::poll(self.raw.as_ptr(), BATCH as c_int, into.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| io::Error::other("the queue of completions is broken"))
    }

    /// Asks for an event with the next completion, if there is a channel for it.
    pub(super) fn ask_for_event(&self) -> io::Result<()> {
        if self.channel.is_none() {
            return Ok(());
        }
        // SAFETY: the queue's context is open, and it has a channel.
        checked(unsafe { ffi::ask_for_event(self.raw.as_ptr()) })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: contract 1; pairs keep their queues.
        unsafe { (self.context.library.ibv_destroy_cq)(self.raw.as_ptr()) };
    }
}
