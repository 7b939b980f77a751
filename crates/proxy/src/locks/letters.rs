//! Who is to get the letters of a thread.
//!
//! A face has one [`Letters`]; its clients keep a [`Question`] for each request that is answered by
//! letter, under the number by which they know it.
//!
//! Invariant: a letter finds its client as long as the question has neither been cancelled nor
//! forgotten, and nobody after that.

use std::collections::HashMap;

use ::locks::{Request, Ticket};
use bytes::Bytes;

use super::Outcome;
use super::desk::LockDesk;
use crate::machine::face::Letter;
use crate::machine::query::ClientId;

/// So many requests of one connection may wait for the locks' answer; its next one waits for one of
/// them.
pub(crate) const MOST_ASKED: usize = 256;

/// The letters of one thread.
#[derive(Default)]
pub(crate) struct Letters {
    /// The thread, once it has had a client.
    thread: Option<u16>,
    /// The client, and which of its requests.
    asked: HashMap<Ticket, (ClientId, u64), foldhash::fast::RandomState>,
    taken: Vec<(Ticket, Outcome)>,
}

/// A request whose answer comes as a letter.
#[derive(Debug)]
pub(crate) struct Question<T> {
    ticket: Ticket,
    key: Bytes,
    pub(crate) aim: Aim,
    /// What the face has to know for the answer.
    pub(crate) about: T,
}

/// What becomes of a request when nobody waits for its answer any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aim {
    /// It is to hold the lock, as soon as others do not: it is cancelled.
    HoldsLater,
    /// It is to hold the lock, if nobody else does: it is cancelled.
    Holds,
    /// It frees the lock, or asks about it: it is carried out.
    Other,
}

impl Aim {
    /// What a request of a client is for. Whoever asks for a change knows what that is for.
    pub(crate) fn of(request: &Request<'_>) -> Aim {
        match request {
            Request::Acquire { wait, .. } if !wait.is_zero() => Aim::HoldsLater,
            Request::Acquire { .. } => Aim::Holds,
            Request::Renew { .. } | Request::Release { .. } => Aim::Other,
            Request::Info | Request::Change(_) => Aim::Other,
        }
    }
}

impl<T> Question<T> {
    /// A request for `key` that has this ticket.
    pub(crate) fn new(ticket: Ticket, key: &[u8], aim: Aim, about: T) -> Question<T> {
        Question {
            ticket,
            key: Bytes::copy_from_slice(key),
            aim,
            about,
        }
    }
}

impl Letters {
    /// The thread has a client.
    pub(crate) fn are_of(&mut self, thread: u16) {
        self.thread = Some(thread);
    }

    /// A client's request of this number is answered by letter.
    pub(crate) fn expect<T>(&mut self, client: ClientId, sequence: u64, question: &Question<T>) {
        self.asked.insert(question.ticket, (client, sequence));
    }

    /// Whether there are some.
    pub(crate) fn has_some(&self, desk: Option<&LockDesk>) -> bool {
        match (desk, self.thread) {
            (Some(desk), Some(thread)) => desk.has_letters(thread),
            _ => false,
        }
    }

    /// Takes them, each with whom it is for.
    pub(crate) fn collect(&mut self, desk: Option<&LockDesk>, into: &mut Vec<Letter>) {
        let (Some(desk), Some(thread)) = (desk, self.thread) else {
            return;
        };
        if !desk.has_letters(thread) {
            return;
        }
        desk.take_letters(thread, &mut self.taken);
        for (ticket, outcome) in self.taken.drain(..) {
            // Whoever has given up is not there any more.
            if let Some((client, sequence)) = self.asked.remove(&ticket) {
                into.push(Letter {
                    client,
                    sequence,
                    outcome,
                });
            }
        }
    }

    /// Cancels a request: it grants nothing, and no letter comes. If it says `false` the request has
    /// been answered meanwhile, and the letter is on its way.
    pub(crate) fn cancel<T>(&mut self, desk: &LockDesk, question: &Question<T>) -> bool {
        let Some(&(client, _)) = self.asked.get(&question.ticket) else {
            return false;
        };
        let found = desk.cancel(client.thread, question.ticket, &question.key);
        if found {
            self.asked.remove(&question.ticket);
        }
        found
    }

    /// Forgets a request of a client that has gone. What would hold a lock is cancelled; if it has
    /// been granted already, that ends with its lease. Everything else is carried out: a lock whose
    /// release has been sent is free.
    pub(crate) fn forget<T>(&mut self, desk: &LockDesk, question: &Question<T>) {
        if question.aim != Aim::Other {
            self.cancel(desk, question);
        }
        self.asked.remove(&question.ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ::locks::{Answer, Lease};
    use base::partition::OwnedReply;
    use base::transaction::{Abort, Transaction};
    use disk::RealDisk;

    use super::*;
    use crate::locks::{Execute, Keeping, Options};

    const CLIENT: ClientId = ClientId {
        place: 3,
        thread: 0,
        number: 7,
    };

    fn acquire(owner: &[u8], wait_s: u64) -> Request<'_> {
        Request::Acquire {
            owner,
            lease: Lease::For(Duration::from_secs(5)),
            wait: Duration::from_secs(wait_s),
        }
    }

    fn desk(keeping: Keeping) -> LockDesk {
        let options = Options {
            keeping,
            longest_lease: Duration::from_secs(60),
        };
        LockDesk::start(&options, 1).expect("it starts")
    }

    /// Asks for what is answered by letter.
    fn ask(desk: &LockDesk, letters: &mut Letters, request: &Request<'_>) -> Question<u8> {
        let ticket = desk.ask(0, b"k", request).expect_err("it waits");
        let question = Question::new(ticket, b"k", Aim::of(request), 9);
        letters.expect(CLIENT, 5, &question);
        question
    }

    #[test]
    fn who_is_granted_a_lock_before_it_gives_up_is_told_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let desk = desk(Keeping::Memory {
            disk: Arc::new(RealDisk),
            directory: directory.path().to_owned(),
        });
        let mut letters = Letters::default();
        letters.are_of(0);
        for is_granted_before in [false, true] {
            let held = desk.ask(0, b"k", &acquire(b"a", 0)).expect("at once");
            assert!(matches!(held, Ok(Answer::Granted { .. })), "{held:?}");
            let question = ask(&desk, &mut letters, &acquire(b"b", 30));
            let release = |owner| desk.ask(0, b"k", &Request::Release { owner });
            if is_granted_before {
                assert_eq!(release(b"a"), Ok(Ok(Answer::Released)));
            }
            assert_eq!(letters.cancel(&desk, &question), !is_granted_before);
            let mut found = Vec::new();
            letters.collect(Some(&desk), &mut found);
            assert_eq!(found.len(), usize::from(is_granted_before));
            for letter in found {
                assert_eq!((letter.client, letter.sequence), (CLIENT, 5));
                assert!(matches!(letter.outcome, Ok(Answer::Granted { .. })));
            }
            let holder: &[u8] = if is_granted_before { b"b" } else { b"a" };
            assert_eq!(release(holder), Ok(Ok(Answer::Released)));
        }
        assert_eq!(desk.figures().cancelled, 1);
    }

    /// It never answers in time.
    struct Slow;

    impl Execute for Slow {
        fn execute(&self, _: &Transaction<'_>) -> Result<Vec<OwnedReply>, Abort> {
            std::thread::sleep(Duration::from_millis(100));
            Err(Abort::Cancelled)
        }
    }

    #[test]
    fn a_release_is_carried_out_though_its_client_has_gone() {
        let desk = desk(Keeping::Partition {
            name: "slow",
            executor: Arc::new(Slow),
            prefix: b"locks/".to_vec(),
        });
        let mut letters = Letters::default();
        letters.are_of(0);
        let owner = &b"me"[..];
        let (release, acquires) = (Request::Release { owner }, acquire(owner, 0));
        for (request, cancelled) in [(release, 0), (acquires, 1)] {
            let question = ask(&desk, &mut letters, &request);
            letters.forget(&desk, &question);
            assert_eq!(desk.figures().cancelled, cancelled);
        }
        desk.stop();
        // The answer to the release finds nobody.
        let mut found = Vec::new();
        assert!(letters.has_some(Some(&desk)));
        letters.collect(Some(&desk), &mut found);
        assert!(found.is_empty() && !letters.has_some(Some(&desk)));
    }
}
