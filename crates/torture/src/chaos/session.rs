//! A client of the partition: it follows redirects, and classifies the outcomes of its requests.
//!
//! | a reply says | then |
//! |---|---|
//! | `MOVED` | nothing has happened; the next request goes to the node that it names |
//! | `CLUSTERDOWN` `TRYAGAIN` `LOADING` `EXECABORT`, or no node takes the connection | nothing has happened; the next request goes to any node, a little later |
//! | `UNKNOWN` `MISCONF`, or there is none | anything may have happened, or may happen later |
//! | any other error | the node is wrong |

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use testkit::workload::{Ended, Plan, Subject, resp};
use testkit::{Client, Reply};

/// How long to wait if no node serves.
const PAUSE: Duration = Duration::from_millis(8);

/// The state that all clients of a round share.
#[derive(Debug)]
pub struct World {
    /// The addresses of the nodes for clients.
    pub addresses: Vec<SocketAddr>,
    /// Set when the round's load is over.
    pub over: AtomicBool,
    /// The node that has served last.
    pub leader: AtomicU16,
    /// Replies that no node should give.
    pub wrong: Mutex<Vec<String>>,
    /// Counts of requests that were served, that had no effect, and whose outcome is unknown.
    pub served: [AtomicU64; 3],
    origin: Instant,
}

/// The outcome of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChaosAnswer {
    /// They were answered.
    Done(Vec<Reply>),
    /// Nothing has happened, and nothing will.
    Void,
    /// It is not known.
    Unknown,
}

impl World {
    /// Creates the world of clients of these nodes, which begins now.
    #[must_use]
    pub fn new(addresses: Vec<SocketAddr>) -> World {
        World {
            addresses,
            over: AtomicBool::new(false),
            leader: AtomicU16::new(1),
            wrong: Mutex::new(Vec::new()),
            served: Default::default(),
            origin: Instant::now(),
        }
    }

    /// Returns the nanoseconds on the clock of all clients.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Returns `true` if the round's load is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// One client.
#[derive(Debug)]
pub struct ChaosSession<'a> {
    world: &'a World,
    /// The node that is asked next, from 0 on.
    at: usize,
    client: Option<Client>,
    patience: Duration,
    rng: fastrand::Rng,
}

impl<'a> ChaosSession<'a> {
    /// Creates a client that starts at any node and waits so long for each reply.
    #[must_use]
    pub fn new(world: &'a World, patience: Duration, mut rng: fastrand::Rng) -> ChaosSession<'a> {
        ChaosSession {
            at: rng.usize(..world.addresses.len()),
            world,
            client: None,
            patience,
            rng,
        }
    }

    /// Sends requests at once and reads their replies. After [`ChaosAnswer::Done`] the connection is
    /// still the same.
    pub fn ask(&mut self, requests: &[&[&str]]) -> ChaosAnswer {
        let answer = self.exchange(requests);
        let kind = match &answer {
            ChaosAnswer::Done(_) => 0,
            ChaosAnswer::Void => 1,
            ChaosAnswer::Unknown => 2,
        };
        self.world.served[kind].fetch_add(1, Ordering::Relaxed);
        if requests.len() == 1 && kind == 0 {
            // A single request was executed by the node that was asked.
            let node = u16::try_from(self.at + 1).expect("few nodes");
            self.world.leader.store(node, Ordering::Relaxed);
        }
        answer
    }

    /// Returns the node that is asked next, from 0 on; after [`ChaosAnswer::Done`], the one that has
    /// answered.
    #[must_use]
    pub fn node(&self) -> usize {
        self.at
    }

    /// Ends the connection, and with it its watches.
    pub fn leave(&mut self) {
        self.client = None;
    }

    fn exchange(&mut self, requests: &[&[&str]]) -> ChaosAnswer {
        let address = self.world.addresses[self.at];
        if self.client.is_none() {
            self.client = Client::connect_within(address, self.patience).ok();
        }
        let Some(client) = &mut self.client else {
            self.wander();
            return ChaosAnswer::Void;
        };
        requests.iter().for_each(|request| client.push(request));
        let mut replies = Vec::with_capacity(requests.len());
        let mut sent = client.flush();
        while sent.is_ok() && replies.len() < requests.len() {
            sent = client.try_reply().map(|reply| replies.push(reply));
        }
        if let Err(error) = sent {
            if error.kind() == std::io::ErrorKind::InvalidData {
                self.complain(&format!("{requests:?} was answered with nonsense: {error}"));
            }
            self.wander();
            return ChaosAnswer::Unknown;
        }
        self.judge(requests, replies)
    }

    fn judge(&mut self, requests: &[&[&str]], replies: Vec<Reply>) -> ChaosAnswer {
        let errors: Vec<&str> = replies.iter().filter_map(error).collect();
        let Some(first) = errors.first() else {
            return ChaosAnswer::Done(replies);
        };
        if let Some(wrong) = errors
            .iter()
            .find(|text| ErrorMeaning::of(text) == ErrorMeaning::Wrong)
        {
            self.complain(&format!("{requests:?} was answered with {wrong:?}"));
        }
        if errors
            .iter()
            .any(|text| ErrorMeaning::of(text) != ErrorMeaning::Void)
        {
            self.wander();
            return ChaosAnswer::Unknown;
        }
        match moved(first).and_then(|to| self.world.addresses.iter().position(|at| *at == to)) {
            Some(at) => {
                self.client = None;
                self.at = at;
            }
            None => self.wander(),
        }
        ChaosAnswer::Void
    }

    /// Switches to another node, a little later.
    fn wander(&mut self) {
        self.client = None;
        self.at = self.rng.usize(..self.world.addresses.len());
        thread::sleep(PAUSE);
    }

    fn complain(&self, text: &str) {
        complain(self.world, self.at, text);
    }
}

impl Subject for ChaosSession<'_> {
    fn run(&mut self, plan: &Plan) -> Ended {
        let by_script = plan.steps.len() > 1 && self.rng.bool();
        let requests = match by_script {
            true => vec![resp::script(plan)],
            false => resp::requests(plan),
        };
        let requests: Vec<Vec<&str>> = requests
            .iter()
            .map(|words| words.iter().map(String::as_str).collect())
            .collect();
        let requests: Vec<&[&str]> = requests.iter().map(Vec::as_slice).collect();
        match self.ask(&requests) {
            ChaosAnswer::Done(replies) => resp::ended(plan, &replies).unwrap_or_else(|wrong| {
                self.complain(&wrong.to_string());
                Ended::Unknown
            }),
            ChaosAnswer::Void => Ended::Aborted,
            ChaosAnswer::Unknown => Ended::Unknown,
        }
    }
}

/// Complains about an error in the answer to a read if no node should give it.
pub(super) fn note_error(world: &World, at: usize, error: &str) {
    if ErrorMeaning::of(error) == ErrorMeaning::Wrong {
        complain(world, at, &format!("a read was answered with {error:?}"));
    }
}

fn complain(world: &World, at: usize, text: &str) {
    let node = at + 1;
    world.wrong.lock().push(format!("node {node}: {text}"));
}

/// The meaning of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorMeaning {
    Void,
    Unknown,
    Wrong,
}

impl ErrorMeaning {
    fn of(error: &str) -> ErrorMeaning {
        match error.split(' ').next() {
            Some("MOVED" | "CLUSTERDOWN" | "TRYAGAIN" | "LOADING" | "EXECABORT") => {
                ErrorMeaning::Void
            }
            Some("UNKNOWN" | "COMMITTED" | "MISCONF") => ErrorMeaning::Unknown,
            _ => ErrorMeaning::Wrong,
        }
    }
}

/// Returns the error of a reply, also one in a block.
fn error(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Error(text) => Some(text),
        Reply::Array(items) => items.iter().find_map(error),
        _ => None,
    }
}

/// Returns the address in `MOVED slot host:port`.
fn moved(error: &str) -> Option<SocketAddr> {
    let mut words = error.split(' ');
    let is_moved = words.next() == Some("MOVED");
    words.nth(1).filter(|_| is_moved)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_whether_something_may_have_happened() {
        assert_eq!(
            ErrorMeaning::of("MOVED 3 10.231.0.2:7001"),
            ErrorMeaning::Void
        );
        assert_eq!(
            ErrorMeaning::of("CLUSTERDOWN no member leads"),
            ErrorMeaning::Void
        );
        assert_eq!(ErrorMeaning::of("UNKNOWN ask again"), ErrorMeaning::Unknown);
        assert_eq!(ErrorMeaning::of("ERR unknown command"), ErrorMeaning::Wrong);
        let to = moved("MOVED 3 10.231.0.2:7001").unwrap();
        assert_eq!(to.to_string(), "10.231.0.2:7001");
        assert_eq!(moved("CLUSTERDOWN 3 10.231.0.2:7001"), None);
        let block = Reply::Array(vec![Reply::Int(1), Reply::Error("ERR".to_owned())]);
        assert_eq!(error(&block), Some("ERR"));
    }
}
