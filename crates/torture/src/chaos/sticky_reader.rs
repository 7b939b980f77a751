//! Readers that stay at one node, whether it leads or not, and wait for it.
//!
//! They continue to send requests while it does not answer. A replaced leader that wakes up finds
//! their requests first; some of these were sent after its successor had acknowledged writes, and
//! must not be answered from its old state.

use std::io;
use std::thread;
use std::time::Duration;

use history::Outcome;
use history::recorder::{HistoryLog, Recorder};

use super::load::{REGISTERS, register};
use super::session::{self, World};
use testkit::workload::resp::number;
use testkit::{Client, Reply};

/// The most requests that wait for their replies.
const OPEN: usize = 64;
/// How long to wait for a reply before another request is sent.
const GAP: Duration = Duration::from_millis(30);
/// How long to wait for a reply when no more are sent.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long to wait before connecting again.
const PAUSE: Duration = Duration::from_millis(10);

/// A reader.
pub struct StickyReader<'a> {
    world: &'a World,
    /// Its node, from 0 on.
    at: usize,
    /// One for each request that may wait: in a history a process does one thing after the other.
    logs: Vec<HistoryLog<'a>>,
    round: u64,
    rng: fastrand::Rng,
}

impl<'a> StickyReader<'a> {
    /// Creates a reader of a round's registers at node `at`, from 0 on.
    #[must_use]
    pub fn new(
        world: &'a World,
        recorder: &'a Recorder,
        at: usize,
        round: u64,
        rng: fastrand::Rng,
    ) -> StickyReader<'a> {
        StickyReader {
            world,
            at,
            logs: (0..OPEN).map(|_| recorder.process()).collect(),
            round,
            rng,
        }
    }

    /// Reads until the round's load is over.
    pub fn run(mut self) {
        while !self.world.is_over() {
            let address = self.world.addresses[self.at];
            if let Ok(mut client) = Client::connect_within(address, PATIENCE) {
                // The outcome of requests on a broken connection stays unknown.
                let _ = self.converse(&mut client);
            }
            thread::sleep(PAUSE);
        }
    }

    fn converse(&mut self, client: &mut Client) -> io::Result<()> {
        while !self.world.is_over() {
            self.ask(client)?;
            thread::sleep(Duration::from_micros(self.rng.u64(0..4000)));
        }
        Ok(())
    }

    /// Sends requests until there is an answer, and takes the answers to all of them.
    fn ask(&mut self, client: &mut Client) -> io::Result<()> {
        let mut open = Vec::new();
        for log in &mut self.logs {
            let key = register(self.round, self.rng.usize(..REGISTERS));
            let entry = log.begin();
            client.push(&["GET", &key]);
            client.flush()?;
            open.push((entry, key));
            if self.world.is_over() || client.has_reply(GAP)? {
                break;
            }
        }
        client.set_patience(PATIENCE)?;
        for (mut entry, key) in open {
            match client.try_reply()? {
                Reply::Error(text) => {
                    session::note_error(self.world, self.at, &text);
                    entry.end(Outcome::Aborted);
                }
                reply => {
                    entry.read(&key, number(&reply), None);
                    entry.end(Outcome::Committed);
                }
            }
        }
        Ok(())
    }
}
