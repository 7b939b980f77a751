//! Reads by threads: the owner's part, for any kind of threads.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, Outcome};
use super::ledger::Ledger;
use super::over::Over;
use super::{Done, FileId, Landing, Read, ReadFile, Reads};

/// The number of times that the owner yields to other threads before it sleeps, if reads are fast.
const LOOKS: usize = 8;

/// Threads that read.
pub(super) trait Team: Send {
    /// Publishes all jobs, to be done soon; each job's outcome is handed over once, or appended at
    /// once.
    fn publish(&mut self, jobs: &mut Vec<Job>, outcomes: &mut Vec<Outcome>);

    /// Does some of the published jobs itself, if that does not take long. Returns `true` if it
    /// has.
    fn help(&mut self, outcomes: &mut Vec<Outcome>) -> bool {
        let _ = outcomes;
        false
    }

    /// Returns `true` if reads take so little time that sleeping for them is not worth it.
    fn is_fast(&self) -> bool {
        false
    }

    /// Forgets jobs that were not begun, and returns when no job is being done.
    fn stop(&mut self);
}

/// See the [module](self).
pub(super) struct ByThreads<L: Landing, T: Team> {
    ledger: Ledger<L>,
    /// Jobs that are submitted and not published.
    gathered: Vec<Job>,
    /// The outcomes of the owner's own reads, and memory for those of other threads.
    outcomes: Vec<Outcome>,
    over: Arc<Over>,
    team: T,
}

impl<L: Landing, T: Team> ByThreads<L, T> {
    /// Returns at most `depth` reads by a team that hands over to the [`Over`] with which it is
    /// made.
    pub(super) fn new(
        depth: usize,
        team: impl FnOnce(Arc<Over>) -> io::Result<T>,
    ) -> io::Result<ByThreads<L, T>> {
        let over = Arc::new(Over::new(depth)?);
        Ok(ByThreads {
            ledger: Ledger::new(depth),
            gathered: Vec::with_capacity(depth),
            outcomes: Vec::with_capacity(depth),
            team: team(Arc::clone(&over))?,
            over,
        })
    }

    /// Appends the outcomes of reads to `done`.
    fn tell(&mut self, done: &mut Vec<Done<L>>) {
        for outcome in self.outcomes.drain(..) {
            done.push(self.ledger.end(outcome).0);
        }
    }
}

impl<L: Landing, T: Team> Reads<L> for ByThreads<L, T> {
    fn add(&mut self, file: Arc<ReadFile>) -> FileId {
        self.ledger.add(file).0
    }

    fn remove(&mut self, file: FileId) {
        self.ledger.remove(file);
    }

    fn room(&self) -> usize {
        self.ledger.room()
    }

    fn submit(&mut self, read: Read<L>) {
        self.gathered
            .extend(self.ledger.submit(read).map(|(job, _)| job));
    }

    fn start(&mut self) -> io::Result<()> {
        if !self.gathered.is_empty() {
            self.team.publish(&mut self.gathered, &mut self.outcomes);
        }
        Ok(())
    }

    fn finish(&mut self, done: &mut Vec<Done<L>>) -> usize {
        let before = done.len();
        self.ledger.take_ended(done);
        self.tell(done);
        self.over.take(&mut self.outcomes);
        self.tell(done);
        done.len() - before
    }

    fn wait(&mut self, done: &mut Vec<Done<L>>, at_most: Option<Duration>) -> usize {
        let until = at_most.and_then(|time| Instant::now().checked_add(time));
        self.start().expect("threads take all jobs");
        let mut looks = 0;
        loop {
            let n = self.finish(done);
            if n > 0 || self.ledger.begun() == 0 {
                return n;
            }
            if self.team.help(&mut self.outcomes) {
                continue;
            }
            if looks == LOOKS || !self.team.is_fast() {
                self.over.wait(until);
                return self.finish(done);
            }
            looks += 1;
            std::thread::yield_now();
        }
    }

    fn under_way(&self) -> usize {
        self.ledger.under_way()
    }

    fn arm(&mut self) -> bool {
        !self.ledger.has_ended() && self.outcomes.is_empty() && self.over.arm()
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.over.bell()
    }
}

impl<L: Landing, T: Team> Drop for ByThreads<L, T> {
    fn drop(&mut self) {
        self.team.stop();
        self.ledger.clear();
    }
}
