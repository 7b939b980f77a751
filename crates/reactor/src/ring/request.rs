//! Requests to the kernel, and how their completions name them.
//!
//! Each request carries, in its `user_data`, the kind in the upper eight bits and a number in the
//! others.
//!
//! | kind | request | number |
//! |---|---|---|
//! | [`RECEIVE`] | receive until cancelled, into any of the buffers | the socket's place |
//! | [`ROOM`] | report when there is room to send, or the connection is made or broken | the same |
//! | [`COMING`] | report each peer that connects to a listener | the same |
//! | [`CANCEL`] | cancel a request of the socket | the same |
//! | [`SEND`] | send at once, as much as there is room for | place among what is sent |
//! | [`WAKE`] | report whenever the eventfd of [`Waker`](super::Waker)s is written to | – |
//! | [`ENDED`] | cancel everything | – |
//!
//! Sends never wait in the kernel (`MSG_DONTWAIT`), and report only if they could not send
//! everything. So they are over when the call that submits them returns, a wait for one completion
//! is a wait for something to do, and one system call both sends and waits.

use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd};

/// The name of the group of buffers.
pub(super) const GROUP: u16 = 0;

const KIND: u32 = 56;
pub(super) const RECEIVE: u64 = 1 << KIND;
pub(super) const ROOM: u64 = 2 << KIND;
pub(super) const COMING: u64 = 3 << KIND;
pub(super) const CANCEL: u64 = 4 << KIND;
pub(super) const SEND: u64 = 5 << KIND;
pub(super) const WAKE: u64 = 6 << KIND;
pub(super) const ENDED: u64 = 7 << KIND;

/// Returns the kind and the number of the request that a completion names.
pub(super) fn named(user_data: u64) -> (u64, usize) {
    let kind = user_data >> KIND << KIND;
    (kind, (user_data & !(u64::MAX << KIND)) as usize)
}

pub(super) fn receive(socket: Fd, place: usize) -> Entry {
    let entry = opcode::RecvMulti::new(socket, GROUP).build();
    entry.user_data(RECEIVE | place as u64)
}

/// Returns a request to cancel the socket's request of this kind.
pub(super) fn cancel(kind: u64, place: usize) -> Entry {
    let entry = opcode::AsyncCancel::new(kind | place as u64).build();
    entry.user_data(CANCEL | place as u64)
}

pub(super) fn room(socket: Fd, place: usize) -> Entry {
    let entry = opcode::PollAdd::new(socket, libc::POLLOUT as u32).build();
    entry.user_data(ROOM | place as u64)
}

pub(super) fn coming(listener: Fd, place: usize) -> Entry {
    poll_for_ever(listener).user_data(COMING | place as u64)
}

pub(super) fn wake(event: Fd) -> Entry {
    poll_for_ever(event).user_data(WAKE)
}

/// Returns a request that reports each time that there is something to read.
fn poll_for_ever(of: Fd) -> Entry {
    let poll = opcode::PollAdd::new(of, libc::POLLIN as u32).multi(true);
    poll.build()
}

/// Returns a request to send; the kernel reads the bytes until the request is over.
pub(super) fn send(socket: Fd, bytes: &[u8], place: usize) -> Entry {
    let flags = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
    opcode::Send::new(socket, bytes.as_ptr(), bytes.len() as u32)
        .flags(flags)
        .build()
        .flags(Flags::SKIP_SUCCESS)
        .user_data(SEND | place as u64)
}

pub(super) fn cancel_all() -> Entry {
    let all = opcode::AsyncCancel2::new(CancelBuilder::any()).build();
    all.user_data(ENDED)
}
