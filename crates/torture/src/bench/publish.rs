//! Publish/subscribe beside redis-server: deliveries to many subscribers, and the processor time of each.
//!
//! One core is the servers', another that of all clients. Every byte that a subscriber gets is compared with
//! what was published.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use reactor::{Network, SocketEvent, Sockets};
use tempfile::TempDir;
use xtask::interrupt;

use super::machine::{Meter, SERVER_CORE};
use super::report::median;
use crate::server::{Program, ServerUnderTest};

/// Bytes of a message.
const PAYLOAD: usize = 100;
/// Messages of a publisher that are on their way to subscribers at a time.
const AHEAD: u64 = 64;
/// The time without a delivery after which a run fails.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes read from a subscriber's connection at a time.
const READ: usize = 64 * 1024;

/// The options.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Subscribers of the channel.
    pub subscribers: usize,
    /// Runs with each server.
    pub rounds: usize,
    /// The time of a run.
    pub time: Duration,
}

/// The figures of a run.
#[derive(Clone, Copy, Debug)]
struct Deliveries {
    per_second: f64,
    /// Processor time of the server for each, in microseconds.
    cpu_us: f64,
}

/// Measures the server `binary` and redis-server by turns, and prints a table.
///
/// # Errors
/// Returns an error if a server cannot be started, or if a subscriber does not get what was published. A
/// missed aim is no error: it is reported.
pub fn run(binary: &Path, options: &Options) -> Result<()> {
    let dir = TempDir::with_prefix("kumiki-bench-")?;
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let programs = [
        Program::kumiki(binary.to_owned(), words(&["--ephemeral", "--threads", "1"])),
        Program::Redis {
            args: words(&["--appendonly", "no"]),
        },
    ];
    let wrapper: Vec<String> = words(&["taskset", "-c", SERVER_CORE]);
    let mut servers = Vec::new();
    for program in &programs {
        let mut server = program.start(&dir.path().join(program.name()), &wrapper)?;
        server.wait_ready()?;
        servers.push(server);
    }
    let pids: Vec<_> = servers.iter().map(ServerUnderTest::pid).collect();
    let meter = Meter::new(&pids);
    let mut runs: [Vec<Deliveries>; 2] = Default::default();
    for round in 0..options.rounds {
        for at in [round % 2, 1 - round % 2] {
            interrupt::check()?;
            let before = meter.read()?;
            let (count, time) = measure(servers[at].addr(), options)
                .with_context(|| format!("publishing through {}", programs[at].name()))?;
            let used = meter.since(&before)?.servers[at];
            runs[at].push(Deliveries {
                per_second: count as f64 / time.as_secs_f64(),
                cpu_us: used * 1e6 / count as f64,
            });
        }
    }
    let of =
        |at: usize, field: fn(&Deliveries) -> f64| median(runs[at].iter().map(field).collect());
    println!(
        "{} subscribers, messages of {PAYLOAD} bytes",
        options.subscribers
    );
    println!("server  | deliveries/s | processor time of each, µs");
    for (at, program) in programs.iter().enumerate() {
        let rate = of(at, |run| run.per_second);
        println!(
            "{:<7} | {rate:>12.0} | {:>26.3}",
            program.name(),
            of(at, |run| run.cpu_us)
        );
    }
    let rate = of(0, |run| run.per_second) / of(1, |run| run.per_second);
    let cpu = of(0, |run| run.cpu_us) / of(1, |run| run.cpu_us);
    let word = |met| if met { "met" } else { "missed" };
    println!(
        "rate: {rate:.2} of Redis's (aim: at least 1.0, {})",
        word(rate >= 1.0)
    );
    println!(
        "processor time: {cpu:.2} of Redis's (aim: less than 1.0, {})",
        word(cpu < 1.0)
    );
    servers
        .iter_mut()
        .try_for_each(|server| server.kill().map(drop))
}

fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    testkit::client::encode(words, &mut bytes);
    bytes
}

/// A subscriber's connection.
struct Subscriber {
    stream: <Sockets as Network>::Stream,
    /// Bytes that it got, the confirmation not counted.
    bytes: usize,
}

/// The subscribers, and what they get.
struct Subscribers {
    network: Sockets,
    all: Vec<Subscriber>,
    events: Vec<SocketEvent>,
    /// The message many times, one behind the other.
    expected: Vec<u8>,
    message: usize,
    buffer: Vec<u8>,
}

impl Subscribers {
    fn connect(to: SocketAddr, count: usize) -> Result<Subscribers> {
        let mut network = Sockets::open()?;
        let confirmed = request(&[b"subscribe", b"news"]);
        let confirmed = [b"*3\r\n", &confirmed[4..], b":1\r\n"].concat();
        let mut all = Vec::new();
        for token in 0..count {
            let mut stream = network.connect(to, token)?;
            // A connection to this machine is made before the call returns, or refused.
            network.connected(&stream)?;
            let subscribe = request(&[b"SUBSCRIBE", b"news"]);
            let written = network.write(&mut stream, &[IoSlice::new(&subscribe)])?;
            ensure!(written == subscribe.len(), "a request was taken in part");
            let (mut got, begun) = (vec![0; confirmed.len()], Instant::now());
            let mut have = 0;
            while have < got.len() {
                match network.read(&mut stream, &mut got[have..]) {
                    Ok(0) => bail!("a subscriber was closed"),
                    Ok(count) => have += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        ensure!(begun.elapsed() < PATIENCE, "no confirmation came");
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            ensure!(
                got == confirmed,
                "SUBSCRIBE was answered with {}",
                got.escape_ascii()
            );
            all.push(Subscriber { stream, bytes: 0 });
        }
        let payload = [b'x'; PAYLOAD];
        let message = request(&[b"message", b"news", &payload]);
        Ok(Subscribers {
            network,
            all,
            events: Vec::new(),
            message: message.len(),
            expected: message.repeat(READ / message.len() + 3),
            buffer: vec![0; READ],
        })
    }

    /// Takes what has come, waiting for it for a moment. Returns the bytes.
    fn take(&mut self) -> Result<usize> {
        let wait = Duration::from_millis(5);
        self.network.wait(&mut self.events, Some(wait))?;
        let mut taken = 0;
        for event in self.events.drain(..) {
            let Some(subscriber) = self.all.get_mut(event.token) else {
                continue;
            };
            loop {
                let count = match self.network.read(&mut subscriber.stream, &mut self.buffer) {
                    Ok(0) => bail!("a subscriber was closed"),
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                };
                let from = subscriber.bytes % self.message;
                let is_right = self.buffer[..count] == self.expected[from..from + count];
                ensure!(is_right, "a subscriber got other bytes than were published");
                subscriber.bytes += count;
                taken += count;
                if count < self.buffer.len() {
                    break;
                }
            }
        }
        Ok(taken)
    }
}

/// Publishes for as long as `options` say. Returns the number of deliveries and their time.
fn measure(to: SocketAddr, options: &Options) -> Result<(u64, Duration)> {
    let mut subscribers = Subscribers::connect(to, options.subscribers)?;
    let mut publisher = TcpStream::connect(to)?;
    publisher.set_nodelay(true)?;
    publisher.set_read_timeout(Some(PATIENCE))?;
    let payload = [b'x'; PAYLOAD];
    let publish = request(&[b"PUBLISH", b"news", &payload]);
    let each = options.subscribers as u64;
    let reply = format!(":{each}\r\n");
    let (mut published, mut bytes) = (0_u64, 0_usize);
    let (begun, mut last) = (Instant::now(), Instant::now());
    loop {
        let delivered = (bytes / subscribers.message) as u64;
        let is_over = begun.elapsed() >= options.time;
        let open = published - delivered / each;
        if !is_over && open <= AHEAD / 2 {
            let more = AHEAD - open;
            publisher.write_all(&publish.repeat(more as usize))?;
            published += more;
        }
        if is_over && delivered == published * each {
            break;
        }
        let taken = subscribers.take()?;
        bytes += taken;
        last = if taken > 0 { Instant::now() } else { last };
        ensure!(
            last.elapsed() < PATIENCE,
            "{delivered} of {} messages came",
            published * each
        );
    }
    let time = begun.elapsed();
    let mut replies = vec![0; reply.len() * published as usize];
    publisher.read_exact(&mut replies)?;
    ensure!(
        replies == reply.repeat(published as usize).as_bytes(),
        "PUBLISH was not answered with {each}"
    );
    let whole = published as usize * subscribers.message;
    let is_even = subscribers
        .all
        .iter()
        .all(|subscriber| subscriber.bytes == whole);
    ensure!(is_even, "not every subscriber got every message");
    Ok((published * each, time))
}
