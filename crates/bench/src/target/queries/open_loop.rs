//! Clients that send on a schedule, whether or not earlier queries have been answered: an open loop, as
//! the paper's clients are.
//!
//! One thread has the connections of all clients, and the query that is due goes to the client whose
//! turn it is. A client sends it at once unless as many queries as it has keys are under way; otherwise
//! the query waits in the client until a reply comes. So two queries on one key are never under way
//! together, and what every key must hold at the end is known.
//!
//! | figure | queries |
//! |---|---|
//! | throughput | answered within the window |
//! | latencies | due within the window, from when they were due to their reply |
//! | `late` | the same, from when they were due to when they were sent |
//! | `unserved` | due within the window, and not answered within another window's time after it |

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::client_script::{ClientScript, KEYS};
use super::packet_counts::PacketCounts;
use super::query_run::QueryRun;
use crate::driver::{DriveResult, MeasurementWindow};
use crate::error::RunError;
use crate::sample::{RunSample, TimelinePoint};

/// How long the last replies may take after the time in which they count: reading the keys back needs
/// all of them.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest pause between two looks at the schedule.
const PAUSE: Duration = Duration::from_micros(100);
/// Moments of the window, of which each has a rate and a latency.
const MOMENTS: usize = 20;
/// Bytes read at a time.
const ROOM: usize = 16 * 1024;

/// Sends at this rate, all clients together.
pub(super) fn measure(
    run: &QueryRun<'_>,
    rate: f64,
    sample: &mut RunSample,
) -> Result<Vec<ClientScript>, RunError> {
    let clients = OpenLoopClients::connect(run);
    let mut clients = clients.map_err(|error| RunError::failed("connecting")(&error))?;
    let before = PacketCounts::at(run.nodes.addresses());
    let used = clients.drive(run, rate)?;
    let after = PacketCounts::at(run.nodes.addresses());
    run.add_figures(&clients.driven, used, sample);
    sample.values.set("offered", rate);
    sample.timeline = clients.timeline();
    let asked: u64 = clients.clients.iter().map(|one| one.script.asked()).sum();
    if let (Some(before), Some(after)) = (before, after) {
        let [all, requests] = after.since(before).map(|count| count as f64);
        sample.values.set("packets", all / asked as f64);
        sample.values.set("per-packet", asked as f64 / requests);
    }
    Ok(clients.clients.into_iter().map(|one| one.script).collect())
}

struct OpenLoopClients {
    poll: Poll,
    clients: Vec<OpenLoopClient>,
    /// Connections of each client.
    targets: usize,
    driven: DriveResult,
    window: MeasurementWindow,
    /// Replies, and the sum of their latencies in milliseconds, in each moment of the window.
    moments: [(u64, f64); MOMENTS],
    room: Vec<u8>,
}

struct OpenLoopClient {
    script: ClientScript,
    links: Vec<OpenLoopLink>,
    /// When the queries that wait were due.
    waiting: VecDeque<u64>,
    under_way: u64,
}

struct OpenLoopLink {
    stream: TcpStream,
    output: Vec<u8>,
    input: Vec<u8>,
    sent: VecDeque<SentQuery>,
}

struct SentQuery {
    due: u64,
    expected: Box<[u8]>,
}

impl OpenLoopClients {
    fn connect(run: &QueryRun<'_>) -> Result<OpenLoopClients, RunError> {
        let targets = run.targets();
        let poll = Poll::new().map_err(RunError::of)?;
        let mut clients = Vec::new();
        for number in 0..run.job.clients {
            let mut links = Vec::new();
            for (place, &target) in targets.iter().enumerate() {
                let token = Token(number * targets.len() + place);
                let link = OpenLoopLink::connect(target, &poll, token);
                links.push(link.map_err(|error| format!("{target}: {error}"))?);
            }
            clients.push(OpenLoopClient {
                script: run.script(number),
                links,
                waiting: VecDeque::new(),
                under_way: 0,
            });
        }
        let scale = run.context.scale;
        Ok(OpenLoopClients {
            poll,
            clients,
            targets: targets.len(),
            driven: DriveResult {
                window: scale.time,
                ..DriveResult::default()
            },
            window: MeasurementWindow::after(scale.warm_up, scale.time, Instant::now()),
            moments: [(0, 0.0); MOMENTS],
            room: vec![0; ROOM],
        })
    }

    /// Runs the schedule, and waits for the replies. Returns the processor time that was used before
    /// the window and at its end.
    fn drive(&mut self, run: &QueryRun<'_>, rate: f64) -> Result<[[f64; 3]; 2], RunError> {
        let scale = run.context.scale;
        self.window = MeasurementWindow::after(scale.warm_up, scale.time, Instant::now());
        let window = self.window;
        let interval = 1e9 / rate;
        let counts_until = window.end + window.length();
        let ends_by = counts_until + PATIENCE.as_nanos() as u64;
        let mut used = [None; 2];
        let mut begun = 0;
        let mut events = Events::with_capacity(1024);
        let mut unserved = None;
        loop {
            let now = window.now();
            for (used, at) in used.iter_mut().zip([window.begin, window.end]) {
                if now >= at && used.is_none() {
                    *used = Some(run.used());
                }
            }
            if run.context.stop.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted);
            }
            let mut idle = true;
            loop {
                let due = window.start + (begun as f64 * interval) as u64;
                if due > now || due >= window.end {
                    break;
                }
                let client = begun as usize % self.clients.len();
                begun += 1;
                idle = false;
                self.clients[client].waiting.push_back(due);
                self.send(client)?;
            }
            let waited = self.poll.poll(&mut events, Some(Duration::ZERO));
            match waited {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other.map_err(RunError::of)?,
            }
            for event in &events {
                idle = false;
                let (client, link) = (
                    event.token().0 / self.targets,
                    event.token().0 % self.targets,
                );
                self.receive(client, link)?;
                self.send(client)?;
            }
            let is_over = now >= window.end;
            let left = || -> u64 {
                let left = |one: &OpenLoopClient| one.under_way + one.waiting.len() as u64;
                self.clients.iter().map(left).sum()
            };
            if is_over && idle {
                if left() == 0 {
                    break;
                }
                if now > ends_by {
                    let what = format!("{} queries have had no reply for {PATIENCE:?}", left());
                    return Err(RunError::Failed(what));
                }
            }
            if now >= counts_until && unserved.is_none() {
                // What was not begun is given up, so that a run ends soon.
                let due_within = |due: &&u64| window.contains(**due);
                let count = |one: &OpenLoopClient| {
                    let sent = one.links.iter().flat_map(|link| &link.sent);
                    let sent = sent.filter(|sent| window.contains(sent.due)).count();
                    sent + one.waiting.iter().filter(due_within).count()
                };
                unserved = Some(self.clients.iter().map(count).sum::<usize>() as u64);
                self.clients.iter_mut().for_each(|one| one.waiting.clear());
            }
            if idle {
                std::thread::sleep(PAUSE);
            }
        }
        self.driven.unserved = unserved.unwrap_or(0);
        Ok(used.map(Option::unwrap_or_default))
    }

    /// Returns the rate and the mean latency of each moment.
    fn timeline(&self) -> Vec<TimelinePoint> {
        let length = self.window.length() as f64 / 1e9 / MOMENTS as f64;
        let moment = |(place, &(count, latency)): (usize, &(u64, f64))| TimelinePoint {
            at: (place + 1) as f64 * length,
            rate: count as f64 / length,
            latency: if count == 0 {
                0.0
            } else {
                latency / count as f64
            },
            ..TimelinePoint::default()
        };
        self.moments.iter().enumerate().map(moment).collect()
    }

    /// Sends what waits in a client, as far as it may.
    fn send(&mut self, client: usize) -> Result<(), RunError> {
        let one = &mut self.clients[client];
        while one.under_way < KEYS
            && let Some(due) = one.waiting.pop_front()
        {
            let node = one.script.turn();
            let place = node.min(one.links.len() - 1);
            let link = &mut one.links[place];
            link.output.extend_from_slice(one.script.request());
            link.sent.push_back(SentQuery {
                due,
                expected: one.script.expected().into(),
            });
            one.under_way += 1;
            if self.window.contains(due) {
                let late = self.window.now().saturating_sub(due);
                self.driven.late.record(Duration::from_nanos(late));
            }
        }
        one.links.iter_mut().try_for_each(OpenLoopLink::flush)
    }

    /// Reads the replies on a connection, and checks them.
    fn receive(&mut self, client: usize, link: usize) -> Result<(), RunError> {
        let one = &mut self.clients[client];
        let link = &mut one.links[link];
        link.flush()?;
        link.fill(&mut self.room)?;
        let mut at = 0;
        while let Some(sent) = link.sent.front() {
            let expected = &sent.expected[..];
            let reply = &link.input[at..];
            if !reply.starts_with(expected) {
                if expected.starts_with(reply) {
                    break;
                }
                let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
                let shown = &reply[..reply.len().min(expected.len() + 40)];
                return Err(RunError::Failed(format!(
                    "client {client} was answered {} instead of {}",
                    text(shown),
                    text(expected)
                )));
            }
            at += expected.len();
            let due = sent.due;
            link.sent.pop_front();
            one.under_way -= 1;
            let now = self.window.now();
            if self.window.contains(now) {
                self.driven.transactions += 1;
                let moment = (now - self.window.begin) * MOMENTS as u64 / self.window.length();
                let (count, latency) = &mut self.moments[moment as usize];
                *count += 1;
                *latency += (now - due) as f64 / 1e6;
            }
            if self.window.contains(due) && now < self.window.end + self.window.length() {
                let took = Duration::from_nanos(now - due);
                self.driven.latency.record(took);
                self.driven.service.record(took);
            }
        }
        link.input.drain(..at);
        match link.sent.is_empty() && !link.input.is_empty() {
            true => Err(RunError::Failed(format!(
                "client {client} was answered {}, which it had not asked for",
                link.input.escape_ascii()
            ))),
            false => Ok(()),
        }
    }
}

impl OpenLoopLink {
    fn connect(target: SocketAddr, poll: &Poll, token: Token) -> std::io::Result<OpenLoopLink> {
        let stream = std::net::TcpStream::connect(target)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, token, both)?;
        Ok(OpenLoopLink {
            stream,
            output: Vec::new(),
            input: Vec::new(),
            sent: VecDeque::new(),
        })
    }

    fn flush(&mut self) -> Result<(), RunError> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(RunError::of(error)),
            }
        }
        Ok(())
    }

    /// Reads what is there.
    fn fill(&mut self, room: &mut [u8]) -> Result<(), RunError> {
        loop {
            match self.stream.read(room) {
                Ok(0) => return Err(RunError::Failed("a connection was closed".to_owned())),
                Ok(count) => self.input.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(RunError::of(error)),
            }
        }
    }
}
