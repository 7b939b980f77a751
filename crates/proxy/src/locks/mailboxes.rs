//! Answers that come later, on their way to the threads that have the clients.
//!
//! A ticket names its thread, so that the thread that has an answer knows the mailbox that it belongs
//! in.
//!
//! | bits of a ticket | meaning |
//! |---|---|
//! | 0…46 | which of the thread's requests |
//! | 47 | whether it is to prolong a lease |
//! | 48…63 | the thread |

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ::locks::Ticket;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::LockOutcome;
use crate::runtime::thread_waker::ThreadWaker;

const THREAD_SHIFT: u32 = 48;
const RENEWS: u64 = 1 << 47;

/// A mailbox for each thread that has clients.
pub(crate) struct Mailboxes {
    boxes: Box<[CachePadded<Mailbox>]>,
}

/// The answers for one thread.
#[derive(Default)]
struct Mailbox {
    lock_replies: Mutex<Vec<(Ticket, LockOutcome)>>,
    has_some: AtomicBool,
    next: AtomicU64,
    waker: OnceLock<Arc<ThreadWaker>>,
}

impl Mailboxes {
    /// Creates mailboxes for `threads` threads.
    pub(crate) fn new(threads: usize) -> Mailboxes {
        let boxes = (0..threads).map(|_| CachePadded::default());
        Mailboxes {
            boxes: boxes.collect(),
        }
    }

    /// Sets the waker of a thread.
    pub(crate) fn set_waker(&self, thread: usize, waker: &Arc<ThreadWaker>) {
        let _ = self.boxes[thread].waker.set(Arc::clone(waker));
    }

    /// Returns a ticket that no other request has, for a request of this thread. `renews`: the request
    /// is to prolong a lease.
    pub(crate) fn ticket(&self, thread: u16, renews: bool) -> Ticket {
        let number = &self.boxes[usize::from(thread)].next;
        let number = number.fetch_add(1, Ordering::Relaxed);
        let kind = if renews { RENEWS } else { 0 };
        Ticket(u64::from(thread) << THREAD_SHIFT | kind | number)
    }

    /// Returns `true` if a ticket's request is to prolong a lease.
    pub(crate) fn renews(ticket: Ticket) -> bool {
        ticket.0 & RENEWS != 0
    }

    /// Puts an answer into the mailbox of its thread, and wakes the thread.
    pub(crate) fn post(&self, ticket: Ticket, outcome: LockOutcome) {
        let mailbox = &self.boxes[(ticket.0 >> THREAD_SHIFT) as usize];
        mailbox.lock_replies.lock().push((ticket, outcome));
        mailbox.has_some.store(true, Ordering::Release);
        if let Some(waker) = mailbox.waker.get() {
            waker.wake();
        }
    }

    /// Returns `true` if a thread has lock replies.
    pub(crate) fn has_some(&self, thread: usize) -> bool {
        self.boxes[thread].has_some.load(Ordering::Acquire)
    }

    /// Takes the lock replies of a thread.
    pub(crate) fn take(&self, thread: usize, into: &mut Vec<(Ticket, LockOutcome)>) {
        let mailbox = &self.boxes[thread];
        if mailbox.has_some.load(Ordering::Acquire) {
            let mut lock_replies = mailbox.lock_replies.lock();
            mailbox.has_some.store(false, Ordering::Release);
            into.append(&mut lock_replies);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::locks::Answer;

    #[test]
    fn replies_arrive_in_the_mailbox_of_their_thread() {
        let mail = Mailboxes::new(2);
        let tickets = [
            mail.ticket(1, true),
            mail.ticket(0, false),
            mail.ticket(1, false),
        ];
        assert_eq!(tickets.map(Mailboxes::renews), [true, false, false]);
        assert!(tickets[0] != tickets[2]);
        for ticket in tickets {
            mail.post(ticket, Ok(Answer::Released));
        }
        let mut found = Vec::new();
        assert!(mail.has_some(0) && mail.has_some(1));
        mail.take(1, &mut found);
        let found: Vec<Ticket> = found.into_iter().map(|(ticket, _)| ticket).collect();
        assert_eq!(found, [tickets[0], tickets[2]]);
        assert!(mail.has_some(0) && !mail.has_some(1));
    }
}
