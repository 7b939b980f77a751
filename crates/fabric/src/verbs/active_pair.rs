//! A queue pair and the work in progress on it.
//!
//! Work has numbers, from zero on. A queue pair completes its work in order, so that one number
//! tells which work is complete. Only some of it is *signalled*, and has a completion; earlier work
//! is complete then, too.
//!
//! Invariants:
//! 1. There is always a signal to wait for when the queue or the staging memory is full: at most a
//!    quarter of each is without a signal behind it.
//! 2. The first failure ends the line. Nothing is posted afterwards, and it is not known if
//!    incomplete work has taken place.
//! 3. Staging memory is used again when the work that names it is complete.
//! 4. Writing and sending do not wait for the device. Work for which the queue has no room is kept,
//!    and posted by the thread that looks for completions. A write waits only if more is kept than
//!    the staging memory holds. No work overtakes the work that is kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use base::memory::{RemoteError, WORD};

use super::ffi::{Completion, WITH_IMMEDIATE, operation, status};
use super::options::Depths;
use super::resources::{BATCH, Pair, PeerMemory, Registered, Work};
use super::staging_ring::StagingRing;

/// The number of looks for completions without a pause.
const SPINS: u32 = 200;
/// The number of looks between which other threads may run.
const YIELDS: u32 = 50;
/// The longest sleep between two looks.
const NAP: Duration = Duration::from_millis(10);
/// The longest sleep if no event ends it.
const DOZE: Duration = Duration::from_micros(100);

/// A message that has come: the place of its memory, its length in bytes, and its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedMessage {
    pub(super) place: u64,
    pub(super) len: usize,
    pub(super) number: Option<u32>,
}

/// See the [module](self).
pub(super) struct ActivePair {
    pub(super) pair: Pair,
    /// The number of the next work; all work below `done` is complete.
    next: u64,
    done: u64,
    /// The error, and the work that failed.
    failed: Option<(u64, RemoteError)>,
    /// The work, and the words of staging memory, without a signal behind them.
    silent: u32,
    silent_words: usize,
    sends: u64,
    signal_every: u32,
    /// The longest time for any work; the device gives up much earlier.
    spin_policy: Duration,
    staging: StagingRing,
    memory: Arc<Registered>,
    /// Words to be written for which there was no room, and their number.
    deferred: VecDeque<(PeerMemory, Vec<u64>)>,
    deferred_words: usize,
    pub(super) arrived: VecDeque<ReceivedMessage>,
    /// Tells if the peer lives, if there is a source that knows it sooner than the device.
    is_alive: Option<Box<dyn Fn() -> bool + Send>>,
}

impl ActivePair {
    pub(super) fn new(
        pair: Pair,
        staging: Arc<Registered>,
        depths: &Depths,
        spin_policy: Duration,
    ) -> ActivePair {
        ActivePair {
            pair,
            next: 0,
            done: 0,
            failed: None,
            silent: 0,
            silent_words: 0,
            sends: u64::from(depths.sends),
            signal_every: depths.signal_every,
            spin_policy,
            staging: StagingRing::new(depths.staging_words),
            memory: staging,
            deferred: VecDeque::new(),
            deferred_words: 0,
            arrived: VecDeque::new(),
            is_alive: None,
        }
    }

    /// Sets the greatest time for which threads wait. If the device does not complete work within
    /// it, the line ends.
    pub(super) fn be_patient(&mut self, spin_policy: Duration) {
        self.spin_policy = spin_policy;
    }

    /// Sets a function that is called during waits, and tells if the peer lives.
    pub(super) fn watch(&mut self, is_alive: Box<dyn Fn() -> bool + Send>) {
        self.is_alive = Some(is_alive);
    }

    /// Returns the greatest number of words that are written or sent in one piece.
    pub(super) fn piece(&self) -> usize {
        self.staging.words() / 4
    }

    /// Begins to read words of the peer to word `at` of `here`. Returns the work's number. Waits
    /// for room.
    pub(super) fn read(
        &mut self,
        here: &Arc<Registered>,
        at: usize,
        count: usize,
        there: PeerMemory,
    ) -> Result<u64, RemoteError> {
        self.check()?;
        if !self.has_room(0) {
            self.wait_until(|line| line.has_room(0))?;
        }
        let here = (Arc::clone(here), at, count * WORD);
        self.post(operation::READ, here, Some(there), 0, true)
    }

    /// Begins to write words.
    pub(super) fn write(&mut self, words: &[u64], there: PeerMemory) -> Result<(), RemoteError> {
        self.check()?;
        let piece = self.piece();
        for (index, words) in words.chunks(piece).enumerate() {
            let there = there.behind(index * piece);
            if !self.has_room(words.len()) {
                self.poll();
            }
            if self.has_room(words.len()) {
                self.post_write(words, there)?;
                continue;
            }
            let bound = self.staging.words();
            if self.deferred_words + words.len() > bound {
                self.wait_until(|line| line.deferred_words + piece <= bound)?;
            }
            self.deferred_words += words.len();
            self.deferred.push_back((there, words.to_vec()));
        }
        Ok(())
    }

    /// Writes nothing: the peer's device answers nevertheless.
    pub(super) fn touch(&mut self) -> Result<(), RemoteError> {
        self.check()?;
        let nowhere = PeerMemory { address: 0, key: 0 };
        let here = (Arc::clone(&self.memory), 0, 0);
        self.post(operation::WRITE, here, Some(nowhere), 0, true)?;
        Ok(())
    }

    /// Returns `true` if no work is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.next == self.done
    }

    fn post_write(&mut self, words: &[u64], there: PeerMemory) -> Result<(), RemoteError> {
        let at = self.staging.take(self.next, words.len());
        for (place, word) in self.memory.words()[at..].iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
        let here = (Arc::clone(&self.memory), at, words.len() * WORD);
        let signalled = self.signals(words.len());
        self.post(operation::WRITE, here, Some(there), 0, signalled)?;
        Ok(())
    }

    /// Posts the work that is kept, as far as there is room.
    fn post_kept(&mut self) {
        while let Some((there, words)) = self.deferred.pop_front() {
            // There is no earlier work in the queue any more.
            if self.failed.is_some() || !self.has_room_now(words.len()) {
                self.deferred.push_front((there, words));
                return;
            }
            self.deferred_words -= words.len();
            // A failure is kept, too, for the next caller.
            drop(self.post_write(&words, there));
        }
    }

    /// Begins to send a message with a number; there must be [room](ActivePair::has_room) for its
    /// words.
    pub(super) fn send(&mut self, message: &[u8], number: u32) -> Result<(), RemoteError> {
        self.check()?;
        let words = message.len().div_ceil(WORD);
        let at = self.staging.take(self.next, words);
        self.memory.store(at, message);
        let here = (Arc::clone(&self.memory), at, message.len());
        let signalled = self.signals(words);
        self.post(operation::SEND_IMMEDIATE, here, None, number, signalled)?;
        Ok(())
    }

    /// Gives memory for a message back to the device.
    pub(super) fn expect(
        &mut self,
        place: u64,
        memory: &Arc<Registered>,
        bytes: usize,
    ) -> Result<(), RemoteError> {
        let at = place as usize * bytes / WORD;
        let posted = self.pair.post_receive(place, memory, at, bytes);
        posted.map_err(|error| self.fail(self.next, format!("no memory for messages: {error}")))
    }

    /// Returns `true` if one more work with this many words of staging memory can be posted now.
    pub(super) fn has_room(&self, words: usize) -> bool {
        self.deferred.is_empty() && self.has_room_now(words)
    }

    fn has_room_now(&self, words: usize) -> bool {
        self.next - self.done < self.sends && self.staging.has_room(words)
    }

    /// Decides if the next work, which uses this many words of staging memory, is to be signalled.
    fn signals(&mut self, words: usize) -> bool {
        self.silent += 1;
        self.silent_words += words;
        self.silent >= self.signal_every || self.silent_words >= self.piece()
    }

    fn post(
        &mut self,
        operation: u32,
        here: (Arc<Registered>, usize, usize),
        there: Option<PeerMemory>,
        immediate: u32,
        signalled: bool,
    ) -> Result<u64, RemoteError> {
        let id = self.next;
        let work = Work {
            id,
            operation,
            here,
            there,
            immediate,
            signalled,
        };
        // The device sees all earlier stores.
        fence(Ordering::SeqCst);
        let posted = self.pair.post(work);
        posted.map_err(|error| self.fail(id, format!("the device takes no work: {error}")))?;
        if signalled {
            (self.silent, self.silent_words) = (0, 0);
        }
        self.next += 1;
        Ok(id)
    }

    /// Ends the line, unless it has ended already.
    fn fail(&mut self, id: u64, text: String) -> RemoteError {
        let error = RemoteError::Lost(text);
        self.failed.get_or_insert((id, error.clone()));
        error
    }

    /// Checks that the line has not ended.
    ///
    /// # Errors
    /// Returns an error if the line has ended.
    pub(super) fn check(&self) -> Result<(), RemoteError> {
        match &self.failed {
            None => Ok(()),
            Some((_, error)) => Err(ended(error)),
        }
    }

    /// Returns `true` if the work of this number is complete.
    pub(super) fn is_done(&self, id: u64) -> bool {
        id < self.done
    }

    /// Takes completions, and posts the work that is kept. [`ActivePair::check`] tells if the line has
    /// ended.
    pub(super) fn poll(&mut self) {
        let mut batch = [Completion::default(); BATCH];
        loop {
            match self.pair.poll_sent(&mut batch) {
                Ok(count) => {
                    batch[..count]
                        .iter()
                        .for_each(|completion| self.complete(completion));
                    if count < BATCH {
                        break;
                    }
                }
                Err(error) => {
                    self.fail(self.done, error.to_string());
                    break;
                }
            }
        }
        self.post_kept();
        // Later reads see what the device has written.
        fence(Ordering::SeqCst);
    }

    fn complete(&mut self, completion: &Completion) {
        if completion.status == status::SUCCESS {
            self.done = self.done.max(completion.id + 1);
            self.staging.give_back(completion.id);
        } else if self.failed.is_none() {
            self.failed = Some((completion.id, meaning(completion.status)));
        }
    }

    /// Takes the messages that have come.
    pub(super) fn poll_messages(&mut self) {
        let mut batch = [Completion::default(); BATCH];
        let count = match self.pair.poll_received(&mut batch) {
            Ok(count) => count,
            Err(error) => {
                self.fail(self.done, error.to_string());
                0
            }
        };
        for completion in &batch[..count] {
            if completion.status == status::SUCCESS {
                let number = u32::from_be(completion.immediate);
                self.arrived.push_back(ReceivedMessage {
                    place: completion.id,
                    len: completion.len as usize,
                    number: (completion.flags & WITH_IMMEDIATE != 0).then_some(number),
                });
            } else if self.failed.is_none() {
                self.failed = Some((self.done, meaning(completion.status)));
            }
        }
        fence(Ordering::SeqCst);
    }

    /// Waits until work `first` to `last` is complete.
    ///
    /// # Errors
    /// Returns an error if the work is not complete, and will never be known to be.
    pub(super) fn wait_for(&mut self, first: u64, last: u64) -> Result<(), RemoteError> {
        match self.wait_until(|line| line.is_done(last)) {
            Ok(()) => Ok(()),
            Err(error) => match &self.failed {
                // The failure happened in this work; otherwise an earlier failure ended it.
                Some((id, cause)) if (first..=last).contains(id) => Err(cause.clone()),
                _ => Err(error),
            },
        }
    }

    /// Looks for completions until `is_so` returns `true`: first without a pause, then letting
    /// others run, then asleep until there is one.
    fn wait_until(&mut self, is_so: impl Fn(&ActivePair) -> bool) -> Result<(), RemoteError> {
        for look in 0..SPINS + YIELDS {
            self.poll();
            if is_so(self) {
                return Ok(());
            }
            self.check()?;
            match look < SPINS {
                true => std::hint::spin_loop(),
                false => thread::yield_now(),
            }
        }
        let deadline = Instant::now() + self.spin_policy;
        loop {
            let asked = self.pair.ask_for_event();
            asked.map_err(|error| self.fail(self.done, error.to_string()))?;
            // A completion from before the request has no event.
            self.poll();
            if is_so(self) {
                return Ok(());
            }
            self.check()?;
            if self.is_alive.as_ref().is_some_and(|is_alive| !is_alive()) {
                return Err(self.fail(self.done, "the peer has ended".to_owned()));
            }
            if Instant::now() > deadline {
                let text = format!(
                    "the device has completed nothing for {:?}",
                    self.spin_policy
                );
                return Err(self.fail(self.done, text));
            }
            match self.pair.channel() {
                Some(channel) => {
                    channel.wait(NAP);
                    channel.take();
                }
                None => thread::sleep(DOZE),
            }
        }
    }
}

/// Returns the error of a line after the failure that has ended it.
fn ended(error: &RemoteError) -> RemoteError {
    match error {
        RemoteError::Lost(text) => RemoteError::Lost(text.clone()),
        error => RemoteError::Lost(format!("the connection has ended, because {error}")),
    }
}

/// Returns the meaning of a completion's status.
fn meaning(of: u32) -> RemoteError {
    match of {
        status::REMOTE_ACCESS | status::REMOTE_INVALID => {
            RemoteError::Refused("the device that holds it knows no such grant".to_owned())
        }
        status::RETRIES_EXCEEDED => RemoteError::Lost("the peer does not answer".to_owned()),
        status::FLUSHED => RemoteError::Lost("the connection has ended".to_owned()),
        _ => RemoteError::Lost(format!("the device has ended the connection (status {of})")),
    }
}
