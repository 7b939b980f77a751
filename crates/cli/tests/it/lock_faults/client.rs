//! A client of locks: acquires, writes under guards, renews, asks, overstays, and releases or not.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::history::{Denial, Effect, Grant, History, Note, Write};
use testkit::client::Answer;
use testkit::{Client as Connection, Frame};

/// The longest lease that is requested.
pub(crate) const LONGEST_LEASE_MS: u64 = 1_500;

/// The state that clients and faults share.
pub(crate) struct Stage {
    /// The addresses of the running proxies.
    pub(crate) proxies: Mutex<Vec<SocketAddr>>,
    pub(crate) keys: usize,
    pub(crate) is_over: AtomicBool,
    pub(crate) grants: AtomicUsize,
    pub(crate) fenced: AtomicUsize,
}

/// A client, and what it has seen.
pub(crate) struct Client<'a> {
    stage: &'a Stage,
    number: usize,
    names: usize,
    owner: String,
    random: fastrand::Rng,
    connection: Option<Connection>,
    seen: History,
}

/// A lock that a client counts on.
struct HeldLock {
    key: usize,
    token: i64,
    told: Instant,
    until: Instant,
    grants: Vec<Grant>,
}

/// The result of a request about a lock.
enum Reply {
    /// A list, a number or nothing.
    Frame(Frame),
    /// Nothing has happened.
    Nothing,
    /// It is not known.
    Unknown,
}

impl Client<'_> {
    pub(crate) fn new(stage: &Stage, number: usize) -> Client<'_> {
        Client {
            stage,
            number,
            names: 0,
            owner: format!("c{number}"),
            random: fastrand::Rng::with_seed(number as u64),
            connection: None,
            seen: History::default(),
        }
    }

    /// Runs until it is stopped. Returns what it has seen.
    pub(crate) fn run(mut self) -> History {
        while !self.stage.is_over.load(Ordering::SeqCst) {
            let key = self.random.usize(..self.stage.keys);
            let Some(mut held) = self.acquire(key) else {
                continue;
            };
            self.stage.grants.fetch_add(1, Ordering::SeqCst);
            self.hold(&mut held);
            self.leave(held);
        }
        self.seen
    }

    fn acquire(&mut self, key: usize) -> Option<HeldLock> {
        let lease = self.lease();
        let named = format!("k{key}");
        let asked = Instant::now();
        let wait = self.random.u64(..400).to_string();
        let owner = self.owner.clone();
        let (px, lease_ms) = ("PX", lease.as_millis().to_string());
        let acquire = ["LOCK.ACQUIRE", &named, &owner, px, &lease_ms, "WAIT", &wait];
        if self.random.u8(..30) == 0 {
            // It goes away while it waits.
            if let Some(mut connection) = self.connection.take() {
                connection.send(&acquire);
                self.note(asked, format!("{acquire:?}: goes away"));
            }
        }
        match self.ask(&acquire) {
            Reply::Frame(frame) => {
                let token = token_of(&frame)?;
                let grant = self.grant(key, token, asked, lease);
                Some(HeldLock {
                    key,
                    token,
                    told: grant.told,
                    until: grant.until,
                    grants: vec![grant],
                })
            }
            Reply::Nothing => None,
            // Often it asks again by the same name, and gets the same lock if it has it.
            Reply::Unknown => {
                if self.random.u8(..4) == 0 {
                    self.rename();
                }
                None
            }
        }
    }

    fn grant(&self, key: usize, token: i64, asked: Instant, lease: Duration) -> Grant {
        Grant {
            key,
            owner: self.owner.clone(),
            token,
            asked,
            told: Instant::now(),
            until: asked + lease,
        }
    }

    fn hold(&mut self, held: &mut HeldLock) {
        for _ in 0..self.random.u8(1..4) {
            match self.random.u8(..20) {
                0..10 => self.write(held.key, held.token),
                10..14 => self.renew(held),
                14..18 => self.look(held),
                18 => std::thread::sleep(Duration::from_millis(self.random.u64(1..30))),
                _ => {
                    // Like a client that is paused, and does not know how late it is.
                    let late = Duration::from_millis(self.random.u64(50..600));
                    let left = held.until.saturating_duration_since(Instant::now());
                    std::thread::sleep(left + late);
                    self.write(held.key, held.token);
                }
            }
        }
    }

    /// Gives the lock up, or leaves it to its lease.
    fn leave(&mut self, mut held: HeldLock) {
        if self.random.u8(..10) > 0 {
            let asked = Instant::now();
            let (named, owner) = (format!("k{}", held.key), self.owner.clone());
            match self.ask(&["LOCK.RELEASE", &named, &owner]) {
                Reply::Frame(frame) if frame.int() == Some(0) => {
                    self.deny(&held, asked, "release: it does not hold it".to_owned());
                }
                Reply::Frame(_) | Reply::Nothing => {}
                // It may still take effect, and must not meet another lock then.
                Reply::Unknown => self.rename(),
            }
            self.seen.releases.push((held.key, held.token, asked));
        }
        self.seen.grants.append(&mut held.grants);
    }

    /// Writes under the guard of the lock, in one piece.
    fn write(&mut self, key: usize, token: i64) {
        let (lock, data, token_text) = (format!("k{key}"), format!("data{key}"), token.to_string());
        let asked = Instant::now();
        let Some(connection) = self.connect() else {
            return;
        };
        connection.send(&["MULTI"]);
        connection.send(&["LOCK.GUARD", &lock, &token_text]);
        connection.send(&["SET", &data, &token_text]);
        connection.send(&["EXEC"]);
        let mut last = None;
        for _ in 0..4 {
            match connection.receive() {
                Answer::Reply(frame) => last = Some(frame),
                Answer::Closed | Answer::Broken(_) => {
                    self.connection = None;
                    last = None;
                    break;
                }
            }
        }
        let effect = match last {
            Some(frame) if frame.frames().is_some() => Effect::Applied,
            Some(frame) if frame.raw.starts_with(b"-FENCED ") => {
                self.stage.fenced.fetch_add(1, Ordering::SeqCst);
                Effect::Fenced
            }
            _ => Effect::Unknown,
        };
        self.seen.writes.push(Write {
            key,
            token,
            asked,
            told: Instant::now(),
            effect,
        });
    }

    fn renew(&mut self, held: &mut HeldLock) {
        let (lease, asked) = (self.lease(), Instant::now());
        let (named, owner) = (format!("k{}", held.key), self.owner.clone());
        let lease_ms = lease.as_millis().to_string();
        let Reply::Frame(frame) = self.ask(&["LOCK.RENEW", &named, &owner, "PX", &lease_ms]) else {
            return;
        };
        match token_of(&frame) {
            Some(token) => {
                let grant = self.grant(held.key, token, asked, lease);
                held.until = held.until.max(grant.until);
                held.grants.push(grant);
            }
            None => self.deny(held, asked, format!("renew: {frame:?}")),
        }
    }

    /// Asks, mostly another proxy, for the holder of the lock.
    fn look(&mut self, held: &HeldLock) {
        self.connection = None;
        let asked = Instant::now();
        let named = format!("k{}", held.key);
        let Reply::Frame(frame) = self.ask(&["LOCK.INFO", &named]) else {
            return;
        };
        let fields = frame.frames().unwrap_or_default();
        let is_own = fields.get(1).and_then(Frame::bytes) == Some(self.owner.as_bytes())
            && fields.get(3).and_then(Frame::int) == Some(held.token);
        if !is_own {
            self.deny(held, asked, format!("info: {frame:?}"));
        }
    }

    fn deny(&mut self, held: &HeldLock, asked: Instant, what: String) {
        self.seen.denials.push(Denial {
            key: held.key,
            owner: self.owner.clone(),
            token: held.token,
            counted: (held.told, held.until),
            asked,
            told: Instant::now(),
            what,
        });
    }

    fn lease(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(300..=LONGEST_LEASE_MS))
    }

    fn rename(&mut self) {
        self.names += 1;
        self.owner = format!("c{}-{}", self.number, self.names);
    }

    fn note(&mut self, asked: Instant, text: String) {
        let told = Instant::now();
        self.seen.notes.push(Note { asked, told, text });
    }

    fn ask(&mut self, command: &[&str]) -> Reply {
        let asked = Instant::now();
        let Some(connection) = self.connect() else {
            return Reply::Nothing;
        };
        let answer = connection.answer(command);
        let text = match &answer {
            Answer::Reply(frame) => String::from_utf8_lossy(&frame.raw).replace("\r\n", " "),
            broken => format!("{broken:?}"),
        };
        self.note(asked, format!("{} {command:?}: {text}", self.owner));
        match answer {
            Answer::Reply(frame) if frame.is_error() => {
                let is_unknown = frame.raw.starts_with(b"-LOCKUNKNOWN ");
                let is_harmless = frame.raw.starts_with(b"-LOCKUNAVAILABLE ")
                    || frame.raw.starts_with(b"-LOCKSTOPPING ");
                assert!(is_unknown || is_harmless, "{command:?}: {frame:?}");
                std::thread::sleep(Duration::from_millis(20));
                if is_unknown {
                    Reply::Unknown
                } else {
                    Reply::Nothing
                }
            }
            Answer::Reply(frame) => Reply::Frame(frame),
            Answer::Closed | Answer::Broken(_) => {
                self.connection = None;
                Reply::Unknown
            }
        }
    }

    /// Returns the connection, or a new one to a running proxy. `None` if that one does not answer.
    fn connect(&mut self) -> Option<&mut Connection> {
        if self.connection.is_none() {
            let proxies = self.stage.proxies.lock().expect("whole").clone();
            let proxy = proxies[self.random.usize(..proxies.len())];
            self.connection = Connection::try_connect(proxy).ok();
            if self.connection.is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.connection.as_mut()
    }
}

/// Returns the token of a grant; `None` if it is none.
fn token_of(frame: &Frame) -> Option<i64> {
    match frame.frames() {
        Some([one, token, _]) if one.int() == Some(1) => token.int(),
        _ => None,
    }
}
