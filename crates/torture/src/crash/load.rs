//! The load: several connections, each a thread that sends operations ahead of their replies.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::crash::op::{
    ACCOUNTS, COUNTERS, CrashCell, CrashExpiry, CrashOp, GROUPS, How, OWN_KEYS, ObservedState,
    own_key,
};
use crate::crash::value::CrashValue;
use testkit::{Client, Reply};

/// The most operations that are sent ahead of their replies.
const DEPTH: usize = 16;
/// The longest expiry that counts as soon, in milliseconds.
pub const SOON_MS: u64 = 30;
/// The shortest expiry that counts as late.
const LATE_MS: u64 = 3_600_000;

/// Orders what threads do: a later event has a greater tick. Ticks are also the ids of values.
#[derive(Debug, Default)]
pub struct Ticks(AtomicU64);

impl Ticks {
    /// Returns the next tick.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// An operation that was sent, and its known outcome.
#[derive(Clone, Debug)]
pub struct Record {
    /// The operation.
    pub op: CrashOp,
    /// The tick before it was sent.
    pub sent: u64,
    /// The tick after its reply came, with what the reply showed; `None` while the outcome is
    /// unknown.
    pub acked: Option<(u64, ObservedState)>,
}

/// The operations of one connection in one round.
#[derive(Debug, Default)]
pub struct Log {
    /// In the order of sending; those with a reply come first.
    pub records: Vec<Record>,
    /// A reply that no right server gives.
    pub complaint: Option<String>,
}

/// The state that the connections of one round share.
pub struct CrashRound<'a> {
    /// The server.
    pub addr: SocketAddr,
    /// The order of events.
    pub ticks: &'a Ticks,
    /// Passed by each connection, and by the thread that will end the round, when all are
    /// connected.
    pub start: &'a Barrier,
    /// Set before the server is ended. From then on errors and silence are expected.
    pub ending: &'a AtomicBool,
    /// While set, the thread that reads a reply clears it and kills the server at once: this is the
    /// best chance to detect an acknowledgement that came too early.
    pub armed: &'a AtomicBool,
    /// The server's process.
    pub pid: Pid,
}

impl CrashRound<'_> {
    /// Kills the server, if a thread that reads a success is to do so.
    pub fn kill_if_armed(&self) {
        if self.armed.swap(false, Ordering::SeqCst) {
            // It may have ended already, which is as good.
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }
}

/// Drives one connection until the server goes away.
#[must_use]
pub fn drive(round: &CrashRound<'_>, connection: usize, rng: fastrand::Rng) -> Log {
    let client = Client::try_connect(round.addr);
    round.start.wait();
    let mut log = Log::default();
    match client {
        Ok(client) => Driver {
            round,
            chooser: Chooser {
                ticks: round.ticks,
                connection,
                rng,
            },
            client,
            acked: 0,
            log: &mut log,
        }
        .drive(),
        Err(error) => log.complaint = Some(format!("cannot connect: {error}")),
    }
    log
}

struct Driver<'a> {
    round: &'a CrashRound<'a>,
    chooser: Chooser<'a>,
    client: Client,
    /// The number of records that have their reply.
    acked: usize,
    log: &'a mut Log,
}

impl Driver<'_> {
    fn drive(&mut self) {
        loop {
            let room = DEPTH - (self.log.records.len() - self.acked);
            for _ in 0..self.chooser.rng.usize(1..=room) {
                let op = self.chooser.choose();
                op.push(&mut self.client);
                let sent = self.round.ticks.next();
                self.log.records.push(Record {
                    op,
                    sent,
                    acked: None,
                });
            }
            // When sending fails, replies to earlier requests may still wait to be read.
            let keep = if self.client.flush().is_ok() {
                self.chooser.rng.usize(0..DEPTH)
            } else {
                0
            };
            while self.log.records.len() - self.acked > keep {
                if !self.read_reply() {
                    return;
                }
            }
        }
    }

    /// Reads the replies of the oldest open operation. Returns `false` when the round is over.
    fn read_reply(&mut self) -> bool {
        let record = &mut self.log.records[self.acked];
        let mut last = Reply::Null;
        for _ in 0..record.op.replies() {
            match self.client.try_reply() {
                Ok(reply) => last = reply,
                Err(error) => {
                    if !self.round.ending.load(Ordering::SeqCst) {
                        self.log.complaint = Some(format!("the connection ended: {error}"));
                    }
                    return false;
                }
            }
        }
        match record.op.judge(&last) {
            Ok(shown) => {
                self.round.kill_if_armed();
                record.acked = Some((self.round.ticks.next(), shown));
                self.acked += 1;
                true
            }
            Err(_)
                if matches!(last, Reply::Error(_)) && self.round.ending.load(Ordering::SeqCst) =>
            {
                false
            }
            Err(complaint) => {
                self.log.complaint = Some(format!("{complaint:#}"));
                false
            }
        }
    }
}

/// Draws the operations of one connection.
pub(super) struct Chooser<'a> {
    pub(super) ticks: &'a Ticks,
    pub(super) connection: usize,
    pub(super) rng: fastrand::Rng,
}

impl Chooser<'_> {
    pub(super) fn choose(&mut self) -> CrashOp {
        match self.rng.u32(0..100) {
            0..30 => {
                let value = self.value();
                let expiry = self.expiry();
                self.assign(Some(CrashCell { value, expiry }))
            }
            30..38 => self.assign(None),
            38..50 => self.assign_many(),
            50..66 => CrashOp::Add {
                counter: self.rng.usize(0..COUNTERS),
                by: self.rng.i64(1..10),
            },
            66..78 => self.transfer(),
            78..90 => {
                let (group, stamp, how) = (self.rng.usize(0..GROUPS), self.value(), self.how());
                CrashOp::Stamp { group, stamp, how }
            }
            90..95 => CrashOp::ReadCounter(self.rng.usize(0..COUNTERS)),
            _ => CrashOp::ReadGroup(self.rng.usize(0..GROUPS)),
        }
    }

    fn assign(&mut self, cell: Option<CrashCell>) -> CrashOp {
        let key = own_key(self.connection, self.rng.usize(0..OWN_KEYS));
        CrashOp::Assign {
            cells: vec![(key, cell)],
            how: How::MSet,
        }
    }

    fn assign_many(&mut self) -> CrashOp {
        let first = self.rng.usize(0..OWN_KEYS);
        let count = self.rng.usize(2..=6);
        let value = self.value();
        let cells = (first..first + count)
            .map(|key| own_key(self.connection, key % OWN_KEYS))
            .map(|key| {
                (
                    key,
                    Some(CrashCell {
                        value,
                        expiry: CrashExpiry::Never,
                    }),
                )
            })
            .collect();
        CrashOp::Assign {
            cells,
            how: self.how(),
        }
    }

    pub(super) fn transfer(&mut self) -> CrashOp {
        let from = self.rng.usize(0..ACCOUNTS);
        let to = (from + self.rng.usize(1..ACCOUNTS)) % ACCOUNTS;
        CrashOp::Transfer {
            from,
            to,
            amount: self.rng.i64(1..1000),
        }
    }

    /// Draws a value: mostly short; some take several pages, a few more than a whole log buffer.
    fn value(&mut self) -> CrashValue {
        let len = match self.rng.u32(0..2000) {
            0 => self.rng.usize(600_000..900_000),
            1..100 => self.rng.usize(1000..9000),
            _ => self.rng.usize(CrashValue::MIN_LEN..120),
        };
        CrashValue {
            id: self.ticks.next(),
            len,
        }
    }

    fn expiry(&mut self) -> CrashExpiry {
        match self.rng.u32(0..6) {
            0 => CrashExpiry::Soon(self.rng.u64(1..=SOON_MS)),
            1 => CrashExpiry::Late(self.rng.u64(LATE_MS..LATE_MS * 10), Instant::now()),
            _ => CrashExpiry::Never,
        }
    }

    fn how(&mut self) -> How {
        if self.rng.bool() {
            How::MSet
        } else {
            How::Multi
        }
    }
}
