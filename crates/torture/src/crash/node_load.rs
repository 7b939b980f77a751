//! The load on a cluster: connections to all nodes, which continue while nodes die and come back.
//!
//! A connection's operations touch keys of all nodes, so that most of those with several keys are
//! transactions over several partitions. Some transfers watch the keys that they read: `WATCH MGET
//! MULTI SET SET EXEC`. A node executes an operation with a single key only if it has that key, so
//! that a share of these operations is redirected.
//!
//! The meaning of a reply to an operation:
//!
//! | reply | means |
//! |---|---|
//! | success | it has taken effect, and is durable |
//! | an error `MOVED`, `TRYAGAIN`, `CLUSTERDOWN`, `LOADING`, `EXECABORT`; a null from `EXEC` | it has no effect, now or later |
//! | an error `UNKNOWN`, `MISCONF`; none, because the connection ended | anything |
//! | any other | the node is wrong |

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::crash::load::{Chooser, Log, Record, Ticks};
use crate::crash::op::{CrashOp, account_key};
use testkit::{Client, Reply};

/// The most operations that are sent ahead of their replies.
const DEPTH: usize = 6;
/// How long any reply may take. Nodes come back within a second; requests that wait for them then
/// end.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait before connecting again.
const PAUSE: Duration = Duration::from_millis(2);

/// The state that the connections of one round share.
pub struct CrashNodeRound<'a> {
    /// The order of events.
    pub ticks: &'a Ticks,
    /// Set when the round is over: outstanding replies are still read.
    pub over: &'a AtomicBool,
    /// Taken by the thread that reads the next success, which kills these processes at once: this
    /// is the best chance to detect an acknowledgement that came too early.
    pub victims: &'a Mutex<Vec<Pid>>,
    /// Operations that were refused without effect, and their errors.
    pub refused: &'a Mutex<Vec<String>>,
}

impl CrashNodeRound<'_> {
    /// Kills the processes that a thread which reads a success is to kill.
    pub fn kill_victims(&self) {
        for pid in self.victims.lock().drain(..) {
            // It may have ended already, which is as good.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Drives one connection to the node at `addr` until the round is over, and connects again when
/// the node comes back.
#[must_use]
pub fn drive(
    round: &CrashNodeRound<'_>,
    addr: SocketAddr,
    connection: usize,
    rng: fastrand::Rng,
) -> Log {
    let mut driver = Driver {
        round,
        chooser: Chooser {
            ticks: round.ticks,
            connection,
            rng,
        },
        open: VecDeque::new(),
        log: Log::default(),
    };
    while !driver.is_over() {
        let Ok(client) = Client::try_connect(addr) else {
            thread::sleep(PAUSE);
            continue;
        };
        if client.set_patience(PATIENCE).is_ok() {
            // For any end of the connection, unanswered operations stay open.
            let _ = driver.converse(client);
        }
        driver.log.records.extend(driver.open.drain(..));
        if driver.log.complaint.is_some() {
            break;
        }
    }
    driver.log
}

struct Driver<'a> {
    round: &'a CrashNodeRound<'a>,
    chooser: Chooser<'a>,
    /// Sent and not answered.
    open: VecDeque<Record>,
    log: Log,
}

/// The connection, or the round, is over.
struct Ended;

type Step = Result<(), Ended>;

impl Driver<'_> {
    fn is_over(&self) -> bool {
        self.round.over.load(Ordering::SeqCst)
    }

    fn converse(&mut self, mut client: Client) -> Step {
        while !self.is_over() {
            if self.open.is_empty() && self.chooser.rng.u32(0..6) == 0 {
                self.watched_transfer(&mut client)?;
                continue;
            }
            for _ in 0..self.chooser.rng.usize(0..=DEPTH - self.open.len()) {
                let op = self.chooser.choose();
                op.push(&mut client);
                self.note(op);
            }
            let sent = client.flush();
            let keep = self.chooser.rng.usize(0..DEPTH);
            while self.open.len() > if sent.is_ok() { keep } else { 0 } {
                self.read_reply(&mut client)?;
            }
        }
        while !self.open.is_empty() {
            self.read_reply(&mut client)?;
        }
        Ok(())
    }

    fn note(&mut self, op: CrashOp) {
        let sent = self.round.ticks.next();
        self.open.push_back(Record {
            op,
            sent,
            acked: None,
        });
    }

    /// Reads the replies of the oldest open operation.
    fn read_reply(&mut self, client: &mut Client) -> Step {
        let mut last = Reply::Null;
        for _ in 0..self.open[0].op.replies() {
            last = self.receive(client)?;
        }
        self.settle(&last)
    }

    fn receive(&mut self, client: &mut Client) -> Result<Reply, Ended> {
        client.try_reply().map_err(|error| {
            use std::io::ErrorKind::{InvalidData, TimedOut, WouldBlock};
            if matches!(error.kind(), InvalidData | TimedOut | WouldBlock) {
                let op = self.open.front().map(|record| &record.op);
                self.log.complaint = Some(format!("no answer to {op:?}: {error}"));
            }
            Ended
        })
    }

    /// Records the meaning of the last reply to the oldest open operation.
    fn settle(&mut self, last: &Reply) -> Step {
        let mut record = self.open.pop_front().expect("it was sent");
        match last {
            Reply::Error(text) if is_void(text) => {
                self.refuse(&record, text);
            }
            Reply::Error(text) if is_unknown(text) => self.log.records.push(record),
            _ => match record.op.judge(last) {
                Ok(shown) => {
                    self.round.kill_victims();
                    record.acked = Some((self.round.ticks.next(), shown));
                    self.log.records.push(record);
                }
                Err(complaint) => {
                    self.log.complaint = Some(format!("{complaint:#}"));
                    return Err(Ended);
                }
            },
        }
        Ok(())
    }

    fn refuse(&self, record: &Record, how: &str) {
        let line = format!("{}: {:?}: {how}", record.sent, record.op);
        self.round.refused.lock().push(line);
    }

    /// Moves an amount between accounts whose values it has read and watches.
    fn watched_transfer(&mut self, client: &mut Client) -> Step {
        let op = self.chooser.transfer();
        let CrashOp::Transfer { from, to, amount } = op else {
            unreachable!("that is what was drawn");
        };
        let (from, to) = (account_key(from), account_key(to));
        client.push(&["WATCH", &from, &to]);
        client.push(&["MGET", &from, &to]);
        client.flush().map_err(|_| Ended)?;
        let watched = self.receive(client)? == Reply::Status("OK".to_owned());
        let read = self.receive(client)?;
        let Some([a, b]) = numbers(&read).filter(|_| watched) else {
            // One of them was refused: a block that depends on it would be refused, too.
            client.push(&["UNWATCH"]);
            client.flush().map_err(|_| Ended)?;
            return self.receive(client).map(drop);
        };
        client.push(&["MULTI"]);
        client.push(&["SET", &from, &(a - amount).to_string()]);
        client.push(&["SET", &to, &(b + amount).to_string()]);
        client.push(&["EXEC"]);
        self.note(op);
        client.flush().map_err(|_| Ended)?;
        let mut last = Reply::Null;
        for _ in 0..4 {
            last = self.receive(client)?;
        }
        if matches!(last, Reply::Null | Reply::NullArray) {
            let record = self.open.pop_front().expect("it was sent");
            self.refuse(&record, "what was watched has changed");
            return Ok(());
        }
        self.settle(&last)
    }
}

fn numbers(reply: &Reply) -> Option<[i64; 2]> {
    match reply {
        Reply::Array(both) if both.len() == 2 => Some([number(&both[0])?, number(&both[1])?]),
        _ => None,
    }
}

fn number(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Null => Some(0),
        Reply::Bulk(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

/// Returns `true` if an error says that nothing has happened.
fn is_void(error: &str) -> bool {
    [
        "MOVED ",
        "TRYAGAIN ",
        "CLUSTERDOWN ",
        "LOADING ",
        "EXECABORT ",
    ]
    .iter()
    .any(|code| error.starts_with(code))
}

/// Returns `true` if an error says that anything may have happened.
fn is_unknown(error: &str) -> bool {
    ["UNKNOWN ", "COMMITTED ", "MISCONF "]
        .iter()
        .any(|code| error.starts_with(code))
}
