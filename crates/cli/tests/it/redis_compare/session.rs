//! Connections to Redis and to the subject, and their answers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::rules::{Queue, Rule};
use super::script::{Action, Case, Step};
use testkit::client::{Answer, encode};
use testkit::frame::show;
use testkit::{Client, Frame};

/// The most calls that are sent before their replies are read.
const PIPELINE: usize = 100;
/// The most steps of one iteration; one that takes more does not end.
const SCAN_STEPS: usize = 10_000;
/// The most replies that are read while waiting for a close.
const UNTIL_CLOSED: usize = 100;

/// Two servers that should answer alike.
#[derive(Clone)]
pub(crate) struct Pair {
    /// Redis.
    pub(crate) redis: SocketAddr,
    /// The server that is compared with it.
    pub(crate) subject: SocketAddr,
    /// Their password.
    pub(crate) password: Option<String>,
}

/// The protocol with which new connections start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

/// A command on one of several connections.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Call {
    /// The connection's number.
    pub(crate) connection: usize,
    /// The command and its arguments.
    pub(crate) args: Vec<Vec<u8>>,
}

/// Two answers that should be equal and are not.
pub(crate) struct Mismatch {
    /// The call.
    pub(crate) call: String,
    /// The line of the script, or the index of the call.
    pub(crate) at: usize,
    /// The rule that they broke.
    pub(crate) rule: Rule,
    /// The answer of Redis.
    pub(crate) redis: Answer,
    /// The answer of the subject.
    pub(crate) subject: Answer,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.at, self.call)?;
        if self.rule != Rule::Exact {
            writeln!(f, "    rule     {:?}", self.rule)?;
        }
        writeln!(f, "    redis    {:?}", self.redis)?;
        write!(f, "    subject  {:?}", self.subject)
    }
}

/// One connection to each server.
struct Connection {
    redis: Client,
    subject: Client,
    queue: Queue,
}

/// Connections that start on empty databases.
pub(crate) struct Session<'a> {
    pair: &'a Pair,
    protocol: Protocol,
    connections: BTreeMap<usize, Connection>,
}

impl<'a> Session<'a> {
    /// Creates a session after emptying both databases.
    pub(crate) fn new(pair: &'a Pair, protocol: Protocol) -> Session<'a> {
        for address in [pair.redis, pair.subject] {
            let mut client = Client::connect(address);
            if let Some(password) = &pair.password {
                client.frame(&["AUTH", password]);
            }
            assert_eq!(client.frame(&["FLUSHALL"]).raw, b"+OK\r\n");
        }
        Session {
            pair,
            protocol,
            connections: BTreeMap::new(),
        }
    }

    /// Plays a case to its end, or until a connection's answer is not RESP.
    pub(crate) fn play(&mut self, case: &Case) -> Vec<Mismatch> {
        let mut mismatches = Vec::new();
        for step in &case.steps {
            let before = mismatches.len();
            self.step(step, &mut mismatches);
            if mismatches[before..]
                .iter()
                .any(|m| m.redis.is_last() || m.subject.is_last())
            {
                break;
            }
        }
        mismatches
    }

    fn step(&mut self, step: &Step, mismatches: &mut Vec<Mismatch>) {
        let connection = self.connection(step.connection);
        let mut check = |call: String, rule: Rule, redis: Answer, subject: Answer| {
            let pinned = match (&step.pinned, &subject) {
                (Some(pinned), Answer::Reply(reply)) => *pinned == reply.raw,
                (Some(_), _) => false,
                (None, _) => true,
            };
            if !pinned || !rule.holds(&redis, &subject) {
                mismatches.push(Mismatch {
                    call,
                    at: step.line,
                    rule,
                    redis,
                    subject,
                });
            }
        };
        match &step.action {
            Action::Wait { ms } => thread::sleep(Duration::from_millis(*ms)),
            Action::Send(bytes) => {
                connection.redis.send_raw(bytes);
                connection.subject.send_raw(bytes);
            }
            Action::Read { count, rule } => {
                for _ in 0..count.unwrap_or(UNTIL_CLOSED) {
                    let (redis, subject) = connection.receive();
                    let over = redis.is_last() || subject.is_last();
                    check("(reads)".into(), rule.clone(), redis, subject);
                    if over {
                        break;
                    }
                }
            }
            Action::Call {
                args,
                rule: Rule::Scan,
            } => {
                let redis = scan(&mut connection.redis, args);
                let subject = scan(&mut connection.subject, args);
                check(line(args), Rule::Scan, redis, subject);
            }
            Action::Call { args, rule } => {
                let rule = connection.queue.rule(args, rule.clone());
                connection.redis.send(args);
                connection.subject.send(args);
                let (redis, subject) = connection.receive();
                check(line(args), rule, redis, subject);
            }
        }
    }

    /// Makes the calls in their order; calls of one connection that follow each other are
    /// pipelined. Returns the first mismatch.
    pub(crate) fn pipeline(&mut self, calls: &[Call]) -> Option<Mismatch> {
        let mut done = 0;
        while done < calls.len() {
            let number = calls[done].connection;
            let batch = calls[done..].iter().take(PIPELINE);
            let batch = batch.take_while(|call| call.connection == number).count();
            let connection = self.connection(number);
            let mut bytes = Vec::new();
            for call in &calls[done..done + batch] {
                encode(&call.args, &mut bytes);
            }
            connection.redis.send_raw(&bytes);
            connection.subject.send_raw(&bytes);
            for (index, call) in calls.iter().enumerate().skip(done).take(batch) {
                let rule = connection.queue.rule(&call.args, Rule::usual(&call.args));
                let (redis, subject) = connection.receive();
                if !rule.holds(&redis, &subject) {
                    let call = call.to_string();
                    return Some(Mismatch {
                        call,
                        at: index,
                        rule,
                        redis,
                        subject,
                    });
                }
            }
            done += batch;
        }
        None
    }

    fn connection(&mut self, number: usize) -> &mut Connection {
        self.connections.entry(number).or_insert_with(|| {
            let mut connection = Connection {
                redis: Client::connect(self.pair.redis),
                subject: Client::connect(self.pair.subject),
                queue: Queue::default(),
            };
            if self.protocol == Protocol::Resp3 {
                connection.redis.frame(&["HELLO", "3"]);
                connection.subject.frame(&["HELLO", "3"]);
            }
            connection
        })
    }
}

impl Connection {
    fn receive(&mut self) -> (Answer, Answer) {
        (self.redis.receive(), self.subject.receive())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.connection != 1 {
            write!(f, "@{} ", self.connection)?;
        }
        f.write_str(&line(&self.args))
    }
}

/// Returns a command as a line of a script.
fn line(args: &[Vec<u8>]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_.:*?-+".contains(b);
    let word = |arg: &Vec<u8>| match arg.iter().all(plain) && !arg.is_empty() {
        true => String::from_utf8_lossy(arg).into_owned(),
        false => show(arg),
    };
    args.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Follows a `SCAN` from cursor to cursor. Returns all keys that it gave, each once and in order,
/// as one frame, or the answer that was not a step of an iteration.
fn scan(client: &mut Client, args: &[Vec<u8>]) -> Answer {
    let mut args = args.to_vec();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for _ in 0..SCAN_STEPS {
        let answer = client.answer(&args);
        let Answer::Reply(frame) = &answer else {
            return answer;
        };
        let Some([cursor, found]) = frame.frames() else {
            return answer;
        };
        let (Some(cursor), Some(found)) = (cursor.bytes(), found.frames()) else {
            return answer;
        };
        keys.extend(found.iter().map(|key| key.raw.clone()));
        args[1] = cursor.to_vec();
        if cursor == b"0" {
            keys.sort_unstable();
            keys.dedup();
            let raw = [format!("*{}\r\n", keys.len()).into_bytes(), keys.concat()].concat();
            return Answer::Reply(Frame::parse(&raw).expect("it was made of frames"));
        }
    }
    Answer::Broken(format!(
        "the iteration does not end within {SCAN_STEPS} steps"
    ))
}
