//! What one slow or hostile connection costs the other clients of its thread: their latencies beside it, and in a
//! control run without it, by turns.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tempfile::TempDir;
use testkit::{Client, Reply};
use xtask::interrupt;

use super::machine::SERVER_CORE;
use super::report::median;
use crate::percentiles::Percentiles;
use crate::server::{Program, ServerUnderTest};

/// The clients that are measured.
const CLIENTS: usize = 20;
/// The keys that they read.
const KEYS: u64 = 100_000;
/// Bytes of the value that a hostile client asks for.
const LARGE: usize = 1 << 20;
/// Most that the 99.9th percentile may lie above that of the control run.
const AIM: Duration = Duration::from_millis(5);
/// The time between two strokes of a hostile client: it must not take the core of the others' client.
const PAUSE: Duration = Duration::from_millis(10);

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds, of each of which every behaviour has one run.
    pub rounds: usize,
    /// The time of a run.
    pub time: Duration,
    /// `--io` of the server.
    pub io: String,
}

/// One of the other connection's behaviours.
struct Behaviour {
    name: &'static str,
    /// Makes one stroke with a connection; the connection is made anew after an error.
    stroke: fn(&mut TcpStream) -> std::io::Result<()>,
}

const BEHAVIOURS: [Behaviour; 7] = [
    Behaviour {
        name: "none (control)",
        stroke: |_| Ok(()),
    },
    Behaviour {
        name: "takes no replies",
        stroke: |stream| stream.write_all(&b"GET large\r\n".repeat(32)),
    },
    Behaviour {
        name: "takes 1 KiB of its replies at a time",
        stroke: |stream| {
            stream.write_all(b"GET large\r\n")?;
            stream.read_exact(&mut [0; 1024])
        },
    },
    Behaviour {
        name: "sends a value byte by byte",
        stroke: |stream| stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$400000000\r\nvalue"),
    },
    Behaviour {
        name: "sends 2000 commands at once",
        stroke: |stream| {
            stream.write_all(&b"GET key:000000000001\r\n".repeat(2000))?;
            drain(stream)
        },
    },
    Behaviour {
        name: "walks all keys (KEYS)",
        stroke: |stream| {
            stream.write_all(b"KEYS *7777*\r\n")?;
            drain(stream)
        },
    },
    Behaviour {
        name: "connects and leaves",
        // The error has a new connection made.
        stroke: |_| Err(ErrorKind::NotConnected.into()),
    },
];

/// Measures all behaviours against the server `binary`, and prints a table.
///
/// # Errors
/// Returns an error if the server cannot be started, does not survive, or answers wrongly. A missed aim is no
/// error: it is reported.
pub fn run(binary: &Path, options: &Options) -> Result<()> {
    let dir = TempDir::with_prefix("kumiki-bench-")?;
    let args = ["--ephemeral", "--threads", "1", "--io", &options.io];
    let program = Program::kumiki(binary.to_owned(), args.map(String::from).into());
    let wrapper = ["taskset", "-c", SERVER_CORE].map(String::from).into();
    let mut server = program.start(&dir.path().join("kumiki"), &wrapper)?;
    server.wait_ready()?;
    super::preload(&server, KEYS, 100)?;
    let large = vec![b'x'; LARGE];
    let mut client = server.connect()?;
    client.expect(&[b"SET".as_slice(), b"large", &large])?;
    let mut runs: Vec<Vec<Percentiles>> = BEHAVIOURS.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (behaviour, runs) in BEHAVIOURS.iter().zip(&mut runs) {
            interrupt::check()?;
            runs.push(measure(&server, behaviour, options.time)?);
        }
    }
    let of = |runs: &[Percentiles], field: fn(&Percentiles) -> Duration| {
        median(
            runs.iter()
                .map(|run| field(run).as_secs_f64() * 1e3)
                .collect(),
        )
    };
    let control = of(&runs[0], |run| run.p999);
    println!(
        "the other connection                 |  p50, ms  p99, ms  p99.9, ms | above the control | aim: 5 ms"
    );
    for (behaviour, runs) in BEHAVIOURS.iter().zip(&runs) {
        let p999 = of(runs, |run| run.p999);
        let above = p999 - control;
        let met = above <= AIM.as_secs_f64() * 1e3;
        println!(
            "{:<36} | {:>8.3} {:>8.3} {p999:>10.3} | {above:>17.3} | {}",
            behaviour.name,
            of(runs, |run| run.median),
            of(runs, |run| run.p99),
            if met { "met" } else { "missed" },
        );
    }
    server.stop()
}

/// Returns the latencies of the measured clients beside a connection with this behaviour.
fn measure(server: &ServerUnderTest, behaviour: &Behaviour, time: Duration) -> Result<Percentiles> {
    have_memory();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| behave(server.addr(), behaviour, &over));
        let latencies = ask(server, time);
        over.store(true, Ordering::Relaxed);
        Ok(Percentiles::of(latencies?))
    })
}

/// Touches more memory than a server lets clients hold, and frees it. A virtual machine gets memory of its host when
/// it is touched for the first time, which may take the host a hundred times longer than clearing a page; the run
/// would measure that.
fn have_memory() {
    let memory = vec![1_u8; 2 << 30];
    std::hint::black_box(&memory);
}

/// Reads keys by all clients at a time, and returns how long each reply took.
fn ask(server: &ServerUnderTest, time: Duration) -> Result<Vec<Duration>> {
    let clients: Result<Vec<Client>> = (0..CLIENTS).map(|_| server.connect()).collect();
    let (mut clients, begin) = (clients?, Instant::now());
    let (mut latencies, mut random) = (Vec::new(), fastrand::Rng::with_seed(1));
    while begin.elapsed() < time {
        let sent = Instant::now();
        for client in &mut clients {
            client.send(&[b"GET".to_vec(), super::benchmark_key(random.u64(..KEYS))]);
        }
        for client in &mut clients {
            match client.try_reply()? {
                Reply::Bulk(value) if value.len() == 100 => latencies.push(sent.elapsed()),
                other => bail!("a read was answered with {other:?}"),
            }
        }
    }
    Ok(latencies)
}

fn behave(addr: SocketAddr, behaviour: &Behaviour, over: &AtomicBool) {
    let mut stream: Option<TcpStream> = None;
    while !over.load(Ordering::Relaxed) {
        if stream.is_none() {
            stream = TcpStream::connect(addr).ok();
        }
        if let Some(connected) = &mut stream {
            // A write or a read that waits for longer ends the stroke: that is no reason for a new connection.
            let limited = connected
                .set_write_timeout(Some(PAUSE))
                .and_then(|()| connected.set_read_timeout(Some(PAUSE)));
            match limited.and_then(|()| (behaviour.stroke)(connected)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => stream = None,
                Ok(()) => {}
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reads and forgets what comes until nothing comes for a while.
fn drain(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut room = [0; 64 * 1024];
    while stream.read(&mut room)? > 0 {}
    Ok(())
}
