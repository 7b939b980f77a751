//! The requests that wait for lock replies, by thread.
//!
//! A protocol has one [`PendingRequests`]. Its clients keep a [`PendingRequest`] for each request that
//! is answered by lock reply, under the client's own number of the request.
//!
//! Invariant: a lock reply finds its client as long as the request has been neither cancelled nor
//! forgotten, and is dropped after that.

use std::collections::HashMap;

use ::locks::{Request, Ticket};
use bytes::Bytes;

use super::LockOutcome;
use super::lock_service::LockService;
use crate::runtime::protocol::DeferredReply;
use crate::runtime::query::ClientId;

/// Limit of requests of one connection that wait for the locks' answer; its next request waits for one
/// of these.
pub(crate) const MOST_ASKED: usize = 256;

/// A reply of the locks that comes after its request.
pub(crate) type LockReply = DeferredReply<LockOutcome>;

/// The pending requests of one thread.
#[derive(Default)]
pub(crate) struct PendingRequests {
    /// The thread, once it has had a client.
    thread: Option<u16>,
    /// The client, and its number of the request.
    asked: HashMap<Ticket, (ClientId, u64), foldhash::fast::RandomState>,
    taken: Vec<(Ticket, LockOutcome)>,
}

/// A request whose answer comes as a lock reply.
#[derive(Debug)]
pub(crate) struct PendingRequest<T> {
    ticket: Ticket,
    key: Bytes,
    pub(crate) aim: WhenAbandoned,
    /// Data that the protocol needs for the answer.
    pub(crate) about: T,
}

/// What happens with a request when its client no longer waits for the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WhenAbandoned {
    /// It is to acquire the lock, and waits while another owner has it: it is cancelled.
    HoldsLater,
    /// It is to acquire the lock, if no other owner has it: it is cancelled.
    Holds,
    /// It frees the lock, or asks about it: it is executed.
    Other,
}

impl WhenAbandoned {
    /// Returns the kind of a client's request. For [`Request::Change`] the caller must know the kind
    /// itself.
    pub(crate) fn of(request: &Request<'_>) -> WhenAbandoned {
        match request {
            Request::Acquire { wait, .. } if !wait.is_zero() => WhenAbandoned::HoldsLater,
            Request::Acquire { .. } => WhenAbandoned::Holds,
            Request::Renew { .. } | Request::Release { .. } => WhenAbandoned::Other,
            Request::Info | Request::Change(_) => WhenAbandoned::Other,
        }
    }
}

impl<T> PendingRequest<T> {
    /// Creates a pending request for `key` with this ticket.
    pub(crate) fn new(
        ticket: Ticket,
        key: &[u8],
        aim: WhenAbandoned,
        about: T,
    ) -> PendingRequest<T> {
        PendingRequest {
            ticket,
            key: Bytes::copy_from_slice(key),
            aim,
            about,
        }
    }
}

impl PendingRequests {
    /// Sets the thread, when it has a client.
    pub(crate) fn are_of(&mut self, thread: u16) {
        self.thread = Some(thread);
    }

    /// Records that a client's request with this number is answered by lock reply.
    pub(crate) fn expect<T>(
        &mut self,
        client: ClientId,
        sequence: u64,
        question: &PendingRequest<T>,
    ) {
        self.asked.insert(question.ticket, (client, sequence));
    }

    /// Returns `true` if there are lock replies.
    pub(crate) fn has_some(&self, locks: Option<&LockService>) -> bool {
        match (locks, self.thread) {
            (Some(locks), Some(thread)) => locks.has_lock_replies(thread),
            _ => false,
        }
    }

    /// Takes the lock replies, each with its client.
    pub(crate) fn collect(&mut self, locks: Option<&LockService>, into: &mut Vec<LockReply>) {
        let (Some(locks), Some(thread)) = (locks, self.thread) else {
            return;
        };
        if !locks.has_lock_replies(thread) {
            return;
        }
        locks.take_lock_replies(thread, &mut self.taken);
        for (ticket, outcome) in self.taken.drain(..) {
            // A request that was given up is not in the map any more.
            if let Some((client, sequence)) = self.asked.remove(&ticket) {
                into.push(DeferredReply::awaited(client, sequence, outcome));
            }
        }
    }

    /// Cancels a request: it grants nothing, and no lock reply comes. Returns `false` if the request
    /// has been answered meanwhile and the lock reply is on its way.
    pub(crate) fn cancel<T>(&mut self, locks: &LockService, question: &PendingRequest<T>) -> bool {
        let Some(&(client, _)) = self.asked.get(&question.ticket) else {
            return false;
        };
        let found = locks.cancel(client.thread, question.ticket, &question.key);
        if found {
            self.asked.remove(&question.ticket);
        }
        found
    }

    /// Forgets a request of a client that has gone. A request that would hold a lock is cancelled; if
    /// the lock has been granted already, it ends with its lease. Every other request is executed: a
    /// lock whose release has been sent becomes free.
    pub(crate) fn forget<T>(&mut self, locks: &LockService, question: &PendingRequest<T>) {
        if question.aim != WhenAbandoned::Other {
            self.cancel(locks, question);
        }
        self.asked.remove(&question.ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ::locks::{Answer, LockLease};
    use base::partition::OwnedReply;
    use base::transaction::{Abort, Transaction};
    use disk::RealDisk;

    use super::*;
    use crate::locks::{Execute, LockStorage, Options};

    const CLIENT: ClientId = ClientId {
        place: 3,
        thread: 0,
        number: 7,
    };

    fn acquire(owner: &[u8], wait_s: u64) -> Request<'_> {
        Request::Acquire {
            owner,
            lease: LockLease::For(Duration::from_secs(5)),
            wait: Duration::from_secs(wait_s),
        }
    }

    fn locks(keeping: LockStorage) -> LockService {
        let options = Options {
            keeping,
            longest_lease: Duration::from_secs(60),
        };
        LockService::start(&options, 1).expect("it starts")
    }

    /// Sends a request that is answered by lock reply.
    fn ask(
        locks: &LockService,
        lock_replies: &mut PendingRequests,
        request: &Request<'_>,
    ) -> PendingRequest<u8> {
        let ticket = locks.ask(0, b"k", request).expect_err("it waits");
        let question = PendingRequest::new(ticket, b"k", WhenAbandoned::of(request), 9);
        lock_replies.expect(CLIENT, 5, &question);
        question
    }

    #[test]
    fn who_is_granted_a_lock_before_it_gives_up_is_told_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let locks = locks(LockStorage::Memory {
            disk: Arc::new(RealDisk),
            directory: directory.path().to_owned(),
        });
        let mut lock_replies = PendingRequests::default();
        lock_replies.are_of(0);
        for is_granted_before in [false, true] {
            let held = locks.ask(0, b"k", &acquire(b"a", 0)).expect("at once");
            assert!(matches!(held, Ok(Answer::Granted { .. })), "{held:?}");
            let question = ask(&locks, &mut lock_replies, &acquire(b"b", 30));
            let release = |owner| locks.ask(0, b"k", &Request::Release { owner });
            if is_granted_before {
                assert_eq!(release(b"a"), Ok(Ok(Answer::Released)));
            }
            assert_eq!(lock_replies.cancel(&locks, &question), !is_granted_before);
            let mut found = Vec::new();
            lock_replies.collect(Some(&locks), &mut found);
            assert_eq!(found.len(), usize::from(is_granted_before));
            for lock_reply in found {
                assert_eq!((lock_reply.client, lock_reply.sequence), (CLIENT, 5));
                assert!(matches!(lock_reply.outcome, Ok(Answer::Granted { .. })));
            }
            let holder: &[u8] = if is_granted_before { b"b" } else { b"a" };
            assert_eq!(release(holder), Ok(Ok(Answer::Released)));
        }
        assert_eq!(locks.figures().cancelled, 1);
    }

    /// An executor that never answers in time.
    struct Slow;

    impl Execute for Slow {
        fn execute(&self, _: &Transaction<'_>) -> Result<Vec<OwnedReply>, Abort> {
            std::thread::sleep(Duration::from_millis(100));
            Err(Abort::Cancelled)
        }
    }

    #[test]
    fn a_release_is_carried_out_though_its_client_has_gone() {
        let locks = locks(LockStorage::Partition {
            name: "slow",
            executor: Arc::new(Slow),
            prefix: b"locks/".to_vec(),
        });
        let mut lock_replies = PendingRequests::default();
        lock_replies.are_of(0);
        let owner = &b"me"[..];
        let (release, acquires) = (Request::Release { owner }, acquire(owner, 0));
        for (request, cancelled) in [(release, 0), (acquires, 1)] {
            let question = ask(&locks, &mut lock_replies, &request);
            lock_replies.forget(&locks, &question);
            assert_eq!(locks.figures().cancelled, cancelled);
        }
        locks.stop();
        // The answer to the release finds no client.
        let mut found = Vec::new();
        assert!(lock_replies.has_some(Some(&locks)));
        lock_replies.collect(Some(&locks), &mut found);
        assert!(found.is_empty() && !lock_replies.has_some(Some(&locks)));
    }
}
