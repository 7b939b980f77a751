//! Tickets, for which transactions wait that go through consensus.
//!
//! A ticket is the number of a turn of the member. Turns take submissions in their order, so that
//! tickets resolve in order.
//!
//! | waiting transaction | gets the ticket of | which resolves when |
//! |---|---|---|
//! | a writing transaction | the turn that will take its entry | the entry is committed and applied |
//! | a read | the next turn | a round of messages that began after the read has shown that no other member leads |
//! | either, when leadership is lost | – | never: it is *lost* |
//!
//! Invariants:
//! 1. A waiting thread asks [`Tickets::is_lost`] before [`Tickets::resolved`]: when the tickets of
//!    the next leadership resolve, the number passes those that were lost.
//! 2. A submission belongs to the leadership in which it was executed: the submitter holds
//!    [`Tickets::admission`] during both, and leadership begins and ends while no thread holds it.

mod groups;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Epoch, TransactionId};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use groups::GroupBoundaries;

/// The approximate number of bytes that may wait in the queue.
const MOST_BYTES: usize = 256 << 20;

/// The contents of one entry of the log.
#[derive(Debug)]
pub(crate) struct Submission {
    /// The entry's payload.
    pub(crate) payload: Vec<u8>,
    /// The transaction whose holds are given back when the entry is applied.
    pub(crate) release: Option<TransactionId>,
    /// The client whose transaction it is; 0 if it belongs to no client.
    pub(crate) client: u64,
    /// The client whose transactions share a place in a group; 0 if the entry has a place by
    /// itself.
    pub(crate) source: u64,
    /// The number under which the outcome is kept until it is fetched: for entries that are
    /// executed after consensus.
    pub(crate) number: Option<u64>,
}

/// An entry that waits for a turn.
#[derive(Debug)]
pub(crate) enum QueuedEntry {
    Submission(Submission),
    /// It states this time. What was executed before is in front of it: on other members a key may leave as soon as
    /// the log says that its deadline has passed.
    Tick(u64),
}

#[derive(Debug, Default)]
struct SubmissionQueue {
    entries: VecDeque<QueuedEntry>,
    bytes: usize,
    groups: GroupBoundaries,
    /// `true` if a read waits for the next turn.
    reads: bool,
    /// The number of entries that state the time.
    ticks: usize,
    /// The greatest time that an entry has ever stated.
    ticked_ms: u64,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Tickets {
    queue: Mutex<SubmissionQueue>,
    /// The number of clients whose entries one turn takes.
    group: usize,
    /// The next turn's number.
    next: AtomicU64,
    resolved: AtomicU64,
    /// The greatest lost ticket.
    last_lost: AtomicU64,
    /// Lost tickets: those above the first number, up to the second.
    lost: Mutex<Vec<(u64, u64)>>,
    /// `true` if this member leads and may serve.
    serving: AtomicBool,
    admission: RwLock<()>,
    /// The number of leaderships so far.
    leaderships: AtomicU64,
}

/// The entries and reads that a turn takes.
#[derive(Debug, Default)]
pub(crate) struct SubmissionGroup {
    pub(crate) ticket: u64,
    pub(crate) entries: Vec<QueuedEntry>,
    pub(crate) reads: bool,
}

impl Tickets {
    pub(crate) fn new(group: usize) -> Tickets {
        Tickets {
            queue: Mutex::default(),
            group: group.max(1),
            next: AtomicU64::new(1),
            resolved: AtomicU64::new(0),
            last_lost: AtomicU64::new(0),
            lost: Mutex::default(),
            serving: AtomicBool::new(false),
            admission: RwLock::new(()),
            leaderships: AtomicU64::new(0),
        }
    }

    /// Returns the guard that is held while a transaction is executed and submitted.
    pub(crate) fn admission(&self) -> RwLockReadGuard<'_, ()> {
        self.admission.read()
    }

    /// Returns the guard that is held while leadership begins or ends.
    pub(crate) fn change(&self) -> RwLockWriteGuard<'_, ()> {
        self.admission.write()
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.serving.load(Ordering::SeqCst)
    }

    pub(crate) fn leaderships(&self) -> u64 {
        self.leaderships.load(Ordering::SeqCst)
    }

    /// Admits transactions from now on; called by the holder of [`Tickets::change`].
    pub(crate) fn open(&self) {
        self.leaderships.fetch_add(1, Ordering::SeqCst);
        self.serving.store(true, Ordering::SeqCst);
    }

    /// Ends the leadership: every ticket that has not resolved is lost. Called by the holder of
    /// [`Tickets::change`].
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        self.serving.store(false, Ordering::SeqCst);
        let groups = queue.groups.len() as u64;
        queue.groups.clear();
        queue.entries.clear();
        queue.bytes = 0;
        queue.reads = false;
        queue.ticks = 0;
        let next = self.next.load(Ordering::SeqCst);
        let (from, to) = (self.resolved.load(Ordering::SeqCst), next + groups);
        self.lost.lock().push((from, to));
        self.last_lost.store(to, Ordering::SeqCst);
        self.next.store(to + 1, Ordering::SeqCst);
    }

    /// Stops admitting transactions; open tickets stay open. A leader that hands over resolves them
    /// first.
    pub(crate) fn pause(&self) {
        self.serving.store(false, Ordering::SeqCst);
    }

    /// Takes the entry of a transaction that was executed at `time_ms`. Only the holder of
    /// [`Tickets::admission`] calls it, while serving. Returns `None` if a deadline has passed
    /// since then, so that the transaction must be executed again. `note` gets the ticket before another entry can
    /// be submitted or this one be taken.
    pub(crate) fn submit(
        &self,
        submission: Submission,
        time_ms: u64,
        note: impl FnOnce(u64),
    ) -> Option<u64> {
        let mut queue = self.queue.lock();
        if time_ms < queue.ticked_ms {
            return None;
        }
        let bytes = submission.payload.len();
        queue.groups.add(submission.source, bytes, self.group);
        let before = queue.groups.len() - 1;
        let ticket = self.next.load(Ordering::SeqCst) + before as u64;
        queue.bytes += bytes;
        queue.entries.push_back(QueuedEntry::Submission(submission));
        note(ticket);
        Some(ticket)
    }

    /// Returns `true` if so much waits that no transaction should be admitted.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.lock().bytes > MOST_BYTES
    }

    /// Puts an entry that states the time behind those that wait.
    pub(crate) fn tick(&self, time_ms: u64) {
        let mut queue = self.queue.lock();
        queue.ticked_ms = queue.ticked_ms.max(time_ms);
        if let Some(QueuedEntry::Tick(last)) = queue.entries.back_mut() {
            *last = time_ms.max(*last);
            return;
        }
        queue.groups.add(0, 0, self.group);
        queue.entries.push_back(QueuedEntry::Tick(time_ms));
        queue.ticks += 1;
    }

    /// Returns the ticket of a read that has just been executed under the leadership of this
    /// number; `None` if that has ended.
    pub(crate) fn read(&self, leadership: u64) -> Option<u64> {
        let mut queue = self.queue.lock();
        // Leadership ends with the queue locked.
        if !self.is_serving() || self.leaderships() != leadership {
            return None;
        }
        queue.reads = true;
        // A read that has seen a key expire waits for the entry that says so.
        let before = match queue.ticks {
            0 => 0,
            _ => queue.groups.len() - 1,
        };
        Some(self.next.load(Ordering::SeqCst) + before as u64)
    }

    /// Returns a ticket that is lost, if there is one.
    pub(crate) fn last_lost(&self) -> Epoch {
        Epoch(self.last_lost.load(Ordering::SeqCst))
    }

    /// Returns the number of entries that wait for a turn, [`usize::MAX`] if the next turn gets no more by waiting
    /// longer, and whether reads wait for it.
    pub(crate) fn waiting(&self) -> (usize, bool) {
        let queue = self.queue.lock();
        let is_full = queue.ticks > 0 || queue.groups.len() > 1;
        let entries = match is_full {
            true => usize::MAX,
            false => queue.entries.len(),
        };
        (entries, queue.reads)
    }

    /// Takes the work of the next turn; returns `None` if there is none.
    pub(crate) fn take(&self) -> Option<SubmissionGroup> {
        let mut queue = self.queue.lock();
        if queue.entries.is_empty() && !queue.reads {
            return None;
        }
        let count = queue.groups.take();
        let entries: Vec<QueuedEntry> = queue.entries.drain(..count).collect();
        for entry in &entries {
            match entry {
                QueuedEntry::Submission(submission) => queue.bytes -= submission.payload.len(),
                QueuedEntry::Tick(_) => queue.ticks -= 1,
            }
        }
        let reads = std::mem::take(&mut queue.reads);
        let ticket = self.next.fetch_add(1, Ordering::SeqCst);
        Some(SubmissionGroup {
            ticket,
            entries,
            reads,
        })
    }

    pub(crate) fn resolve(&self, ticket: u64) {
        self.resolved.store(ticket, Ordering::SeqCst);
    }

    pub(crate) fn resolved(&self) -> Epoch {
        Epoch(self.resolved.load(Ordering::SeqCst))
    }

    pub(crate) fn is_lost(&self, ticket: Epoch) -> bool {
        if ticket.0 > self.last_lost.load(Ordering::SeqCst) {
            return false;
        }
        let lost = self.lost.lock();
        lost.iter()
            .any(|(from, to)| (from + 1..=*to).contains(&ticket.0))
    }
}

#[cfg(test)]
mod tests {
    use super::groups::{EACH, GROUP_BYTES};
    use super::*;

    fn entry() -> Submission {
        Submission {
            payload: Vec::new(),
            release: None,
            client: 0,
            source: 0,
            number: None,
        }
    }

    fn submit(tickets: &Tickets) -> u64 {
        tickets
            .submit(entry(), 5, |_| ())
            .expect("no deadline has passed")
    }

    #[test]
    fn what_was_executed_before_a_tick_is_in_front_of_it_or_executed_again() {
        let tickets = Tickets::new(2);
        tickets.open();
        assert_eq!(tickets.submit(entry(), 5, |_| ()), Some(1));
        assert_eq!(tickets.read(1), Some(1));
        tickets.tick(6);
        tickets.tick(7);
        assert_eq!(tickets.submit(entry(), 6, |_| ()), None);
        assert_eq!(tickets.submit(entry(), 7, |_| ()), Some(2));
        assert_eq!(tickets.read(1), Some(2), "it may have seen a key expire");
        let mut order = Vec::new();
        while let Some(group) = tickets.take() {
            let ticks = group.entries.iter().map(|entry| match entry {
                QueuedEntry::Submission(_) => 0,
                QueuedEntry::Tick(time_ms) => *time_ms,
            });
            order.push((group.ticket, ticks.collect::<Vec<_>>()));
        }
        assert_eq!(order, [(1, vec![0, 7]), (2, vec![0])]);
        assert_eq!(tickets.submit(entry(), 6, |_| ()), None);
        assert_eq!(tickets.read(1), Some(3));
    }

    #[test]
    fn an_entry_has_the_ticket_of_the_turn_that_takes_it() {
        let tickets = Tickets::new(2);
        tickets.open();
        let drawn: Vec<u64> = (0..5).map(|_| submit(&tickets)).collect();
        assert_eq!(drawn, [1, 1, 2, 2, 3]);
        for (ticket, count) in [(1, 2), (2, 2), (3, 1)] {
            let group = tickets.take().unwrap();
            assert_eq!((group.ticket, group.entries.len()), (ticket, count));
        }
        assert!(tickets.take().is_none());
        assert_eq!(submit(&tickets), 4);
    }

    #[test]
    fn a_full_group_waits_for_no_more_entries() {
        let tickets = Tickets::new(2);
        tickets.open();
        assert_eq!(tickets.waiting(), (0, false));
        submit(&tickets);
        submit(&tickets);
        assert_eq!(tickets.waiting(), (2, false));
        submit(&tickets);
        assert_eq!(tickets.waiting().0, usize::MAX, "the first group is full");
        tickets.take().unwrap();
        assert_eq!(tickets.waiting().0, 1);
        tickets.tick(6);
        assert_eq!(tickets.waiting().0, usize::MAX, "the time is stated now");
    }

    /// Returns the sizes of the groups into which entries of these sources fall.
    fn groups(group: usize, sources: &[u64]) -> Vec<usize> {
        let tickets = Tickets::new(group);
        tickets.open();
        let submitted: Vec<u64> = sources
            .iter()
            .map(|&source| {
                let submission = Submission { source, ..entry() };
                tickets.submit(submission, 5, |_| ()).expect("in time")
            })
            .collect();
        let mut sizes = Vec::new();
        while let Some(taken) = tickets.take() {
            sizes.push(taken.entries.len());
            let mine = submitted.iter().filter(|ticket| **ticket == taken.ticket);
            assert_eq!(mine.count(), taken.entries.len(), "the promised ticket");
        }
        sizes
    }

    #[test]
    fn a_group_is_one_of_clients() {
        assert_eq!(groups(2, &[7, 7, 7, 8, 8, 9, 9]), [5, 2]);
        assert_eq!(groups(2, &[7, 8, 7, 8, 9, 7]), [4, 2], "in turns");
        assert_eq!(groups(2, &[0, 0, 0]), [2, 1], "each by itself");
        assert_eq!(groups(2, &[7, 0, 7, 0]), [3, 1]);
        assert_eq!(groups(1, &[7, 7, 8]), [1, 1, 1], "no groups at all");
        assert_eq!(groups(2, &[7; 2 * EACH + 1]), [2 * EACH, 1], "a limit");
    }

    #[test]
    fn a_group_is_short() {
        let tickets = Tickets::new(2);
        tickets.open();
        let half = GROUP_BYTES / 2;
        for bytes in [half, half, 1, 3 * half, 1] {
            let payload = vec![0; bytes];
            let submission = Submission {
                payload,
                source: 7,
                ..entry()
            };
            tickets.submit(submission, 5, |_| ()).expect("in time");
        }
        let taken = std::iter::from_fn(|| tickets.take().map(|group| group.entries.len()));
        assert_eq!(taken.collect::<Vec<_>>(), [2, 1, 1, 1]);
    }

    /// In random histories, the turn whose ticket an entry got takes the entry, or the ticket is
    /// lost.
    #[test]
    fn random_histories_keep_their_promises() {
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            let most = random.usize(1..5);
            let tickets = Tickets::new(most);
            tickets.open();
            let mut waiting: VecDeque<u64> = VecDeque::new();
            let (mut now, mut lost) = (1, Vec::new());
            for _ in 0..300 {
                match random.u32(..12) {
                    0..6 => {
                        let source = random.u64(..6);
                        let submission = Submission { source, ..entry() };
                        waiting.extend(tickets.submit(submission, now, |_| ()));
                    }
                    6 => {
                        assert!(tickets.read(tickets.leaderships()).is_some());
                    }
                    7 => {
                        now += 1;
                        tickets.tick(now);
                    }
                    8 if random.u32(..4) == 0 => {
                        tickets.close();
                        lost.extend(waiting.drain(..));
                        tickets.open();
                    }
                    _ => {
                        let Some(group) = tickets.take() else {
                            assert!(waiting.is_empty());
                            continue;
                        };
                        let is_submission =
                            |entry: &&QueuedEntry| matches!(entry, QueuedEntry::Submission(_));
                        for _ in group.entries.iter().filter(is_submission) {
                            assert_eq!(waiting.pop_front(), Some(group.ticket), "seed {seed}");
                        }
                        assert_ne!(waiting.front(), Some(&group.ticket), "seed {seed}");
                        tickets.resolve(group.ticket);
                    }
                }
            }
            assert!(lost.iter().all(|&ticket| tickets.is_lost(Epoch(ticket))));
            assert!(
                waiting
                    .iter()
                    .all(|&ticket| !tickets.is_lost(Epoch(ticket)))
            );
        }
    }

    #[test]
    fn a_read_waits_for_the_next_turn() {
        let tickets = Tickets::new(2);
        tickets.open();
        assert_eq!(tickets.read(1), Some(1));
        let group = tickets.take().unwrap();
        assert!(group.reads && group.entries.is_empty());
        assert_eq!(tickets.read(1), Some(2));
        assert_eq!(tickets.read(0), None, "of an earlier leadership");
    }

    #[test]
    fn what_was_open_is_lost_and_stays_so() {
        let tickets = Tickets::new(1);
        tickets.open();
        let first = submit(&tickets);
        tickets.take().unwrap();
        tickets.resolve(first);
        let taken = submit(&tickets);
        tickets.take().unwrap();
        let queued = [submit(&tickets), submit(&tickets)];
        let read = tickets.read(1).unwrap();
        tickets.close();
        assert_eq!(tickets.read(1), None);
        assert!(!tickets.is_lost(Epoch(first)));
        for ticket in [taken, queued[0], queued[1], read] {
            assert!(tickets.is_lost(Epoch(ticket)), "{ticket}");
        }
        tickets.open();
        let next = submit(&tickets);
        assert!(next > queued[1] && !tickets.is_lost(Epoch(next)));
        tickets.take().unwrap();
        tickets.resolve(next);
        assert!(tickets.is_lost(Epoch(taken)), "the number has passed it");
    }
}
