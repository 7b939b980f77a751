//! Crash rounds: the real binary, killed under load, judged by books kept outside of it.
//!
//! In one round, several connections drive load; after a random time the server gets SIGKILL
//! (sometimes SIGTERM, which must be as safe); it is restarted on the same data (sometimes killed
//! again while it recovers); everything that was acknowledged or shown must be there, every
//! transaction wholly or not at all. The next round continues with the same data. After 25 rounds
//! the store is flushed, killed, found empty, and a new directory begun.
//!
//! A kill alone loses nothing that reached the page cache. On the disk `forgetful`, which keeps
//! unsynced data in the process's own memory, a kill loses all of it, as a power failure does.
//!
//! As many connections again run the workload [`testkit::workload::collections`], which judges itself; not with
//! redis-server, whose hashes have no fields that expire before release 7.4.
//!
//! With checkpoints, segments and the log between two checkpoints are so small that kills meet
//! checkpoints, rotations and removals in every state; [`coverage`] says how often they did.

pub mod collections;
pub mod coverage;
pub mod ledger;
pub mod load;
pub mod node_load;
pub mod nodes;
pub mod op;
pub mod private_keys;
pub mod shared_keys;
pub mod value;
pub mod verdict;

use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use testkit::SetOnDrop;
use testkit::workload::{Collections, Workload};

use crate::chaos::session::World;
use crate::crash::collections::DrivenClient;
use crate::crash::coverage::CrashCoverage;
use crate::crash::ledger::CrashLedger;
use crate::crash::load::{CrashRound, Log, SOON_MS, Ticks, drive};
use crate::crash::verdict::{CrashVerdict, FoundKeys};
use crate::server::{Program, ServerUnderTest};
use xtask::interrupt;

/// Rounds over one data directory.
pub(crate) const WIPE: u64 = 25;
/// The longest time of load.
const LOAD_MS: u64 = 80;

/// How long to wait for a reply at which to kill.
const REPLY_WAIT: Duration = Duration::from_millis(50);
/// Settings of the log. Each start takes one of them, so that data written under one is recovered
/// under another.
const SETTINGS: &[&[&str]] = &[
    &[],
    &["--loggers", "1"],
    &["--loggers", "2", "--log-buffer-size", "64KiB"],
    &["--loggers", "3", "--log-buffers", "2"],
    &["--epoch-time", "1ms"],
    &[
        "--epoch-time",
        "0.5ms",
        "--max-epoch-diff",
        "2",
        "--loggers",
        "2",
    ],
];

/// Settings with which checkpoints follow each other.
pub(crate) const CHECKPOINTS: &[&[&str]] = &[
    &[
        "--checkpoint-log-size",
        "24KiB",
        "--log-segment-size",
        "8KiB",
    ],
    &[
        "--checkpoint-log-size",
        "48KiB",
        "--log-segment-size",
        "16KiB",
        "--log-warm-up",
    ],
    &[
        "--checkpoint-log-size",
        "200KiB",
        "--log-segment-size",
        "64KiB",
    ],
];
/// The log's devices; the first is the default.
const DEVICES: &[&[&str]] = &[&[], &["--log-device", "direct"], &["--log-device", "map"]];

/// How the server waits for its connections; `auto` is io_uring where the system has it.
const IO: &[&[&str]] = &[&["--io", "epoll"], &["--io", "auto"]];

/// The file layer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ServerDisk {
    /// The machine's.
    Real,
    /// One that drops unsynced data when the process dies.
    Forgetful,
}

/// A bug that must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CrashBug {
    /// The server replies before the sync.
    EarlyReply,
    /// A node of a cluster votes for a transaction before its part is durable.
    EarlyDecision,
    /// A client that has waited for an element of a list gets it, and the list keeps it.
    DoubledPop,
    /// Commands that read before they write are answered before they are durable.
    EarlyMove,
    /// A recovery applies the last change of a collection's elements twice.
    RepeatedElements,
}

impl CrashBug {
    /// Returns the name by which it is planted.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CrashBug::EarlyReply => "early-reply",
            CrashBug::EarlyDecision => "early-decision",
            CrashBug::DoubledPop => "doubled-pop",
            CrashBug::EarlyMove => "early-move",
            CrashBug::RepeatedElements => "repeated-elements",
        }
    }
}

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of crashes.
    pub rounds: u64,
    /// The seed of the load and of the moments; the interleaving of threads is the system's.
    pub seed: u64,
    /// The number of connections.
    pub connections: usize,
    /// `true` if the data of a failed round is kept for an investigation.
    pub keep: bool,
    /// `true` if the server makes checkpoints all the time.
    pub checkpoints: bool,
    /// Further arguments of the server; none: settings that change with each start.
    pub server: Vec<String>,
}

impl ServerDisk {
    /// Returns the arguments of `kumiki serve` for it.
    #[must_use]
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            ServerDisk::Real => &[],
            ServerDisk::Forgetful => &["--disk", "forgetful"],
        }
    }
}

/// Runs the rounds up to the first complaint and prints the sum.
///
/// # Errors
/// Returns an error if a round cannot be run at all; a complaint is no error here.
pub fn run(program: &Program, options: &Options) -> Result<CrashVerdict> {
    let started = Instant::now();
    let mut sum = CrashVerdict::default();
    let mut crash = Crash::new(program, options)?;
    let mut done = 0;
    while done < options.rounds && sum.is_clean() {
        interrupt::check()?;
        let last = done + 1 == options.rounds || (done + 1) % WIPE == 0;
        sum.add(crash.round().with_context(|| crash.place(done))?);
        if last && sum.is_clean() {
            sum.add(crash.flush()?);
            crash.renew()?;
        }
        done += 1;
        if done % WIPE == 0 {
            println!("crash: {done} rounds, {sum}");
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "crash: {done} rounds in {seconds:.1} s (seed {}), {sum}",
        options.seed
    );
    if options.checkpoints {
        println!("crash: {}", crash.coverage);
        if sum.is_clean() && options.rounds >= WIPE {
            crash.coverage.require()?;
        }
    }
    let is_judged = has_collections(program) && options.rounds >= WIPE;
    if sum.is_clean() && is_judged && sum.collections == 0 {
        bail!("no transaction on collections took effect");
    }
    if !sum.is_clean() {
        print!("{}", sum.complaints());
        println!(
            "crash: this was {}; the last events were:",
            crash.place(done - 1)
        );
        for event in &crash.events[crash.events.len().saturating_sub(8)..] {
            println!("  {event}");
        }
        if options.keep {
            println!("crash: the data stays at {}", crash.keep().display());
        }
    }
    Ok(sum)
}

struct Crash<'a> {
    program: &'a Program,
    options: &'a Options,
    rng: fastrand::Rng,
    ticks: Ticks,
    dir: TempDir,
    ledger: CrashLedger,
    collections: Collections,
    server: ServerUnderTest,
    coverage: CrashCoverage,
    /// The actions on the server since the directory was begun.
    events: Vec<String>,
}

/// Returns `true` if the server has all commands of the workload on collections.
fn has_collections(program: &Program) -> bool {
    !matches!(program, Program::Redis { .. })
}

impl<'a> Crash<'a> {
    fn new(program: &'a Program, options: &'a Options) -> Result<Crash<'a>> {
        let dir = TempDir::with_prefix("kumiki-crash-")?;
        let mut rng = fastrand::Rng::with_seed(options.seed);
        let mut events = Vec::new();
        let mut server = start(program, options, &dir, &mut rng, &mut events)?;
        server.wait_ready()?;
        let collections = Collections::default();
        if has_collections(program) {
            collections::set_up(&collections, vec![server.addr()])?;
        }
        Ok(Crash {
            program,
            options,
            rng,
            ticks: Ticks::default(),
            dir,
            ledger: CrashLedger::new(options.connections),
            collections,
            server,
            coverage: CrashCoverage::default(),
            events,
        })
    }

    fn place(&self, round: u64) -> String {
        format!("round {} of seed {}", round + 1, self.options.seed)
    }

    /// Runs one round. The server runs before it, and after it unless it refused to start.
    fn round(&mut self) -> Result<CrashVerdict> {
        let (logs, driven) = self.load_and_kill()?;
        let ended = Instant::now();
        self.coverage.look(&self.dir.path().join("data"))?;
        if let Err(refusal) = self.restart()? {
            return Ok(refusal);
        }
        // Keys that expire soon are gone by now, although no request looked at them.
        let gone = Duration::from_millis(SOON_MS + 20);
        thread::sleep(gone.saturating_sub(ended.elapsed()));
        let found = FoundKeys::read(&mut self.server.connect()?)?;
        let mut verdict = self.ledger.judge(logs, &found);
        let addresses = vec![self.server.addr()];
        if has_collections(self.program) {
            collections::check(&mut self.collections, driven, addresses, &mut verdict)?;
        }
        Ok(verdict)
    }

    fn load_and_kill(&mut self) -> Result<(Vec<Log>, Vec<DrivenClient>)> {
        let connections = self.options.connections;
        let start = Barrier::new(connections + 1);
        let (ending, armed) = (AtomicBool::new(false), AtomicBool::new(false));
        let round = CrashRound {
            addr: self.server.addr(),
            ticks: &self.ticks,
            start: &start,
            ending: &ending,
            armed: &armed,
            pid: self.server.pid(),
        };
        let rngs: Vec<_> = (0..connections).map(|_| self.rng.fork()).collect();
        let world = World::new(vec![self.server.addr()]);
        let clients = match has_collections(self.program) {
            true => connections,
            false => 0,
        };
        let clients: Vec<_> = (0..clients)
            .map(|_| (self.collections.start(self.rng.fork()), self.rng.fork()))
            .collect();
        let after = Duration::from_micros(self.rng.u64(1000..LOAD_MS * 1000));
        let end = End::draw(&mut self.rng);
        self.events
            .push(format!("ended after {after:?} of load: {end:?}"));
        let server = &mut self.server;
        thread::scope(|scope| {
            let (round, world) = (&round, &world);
            let _ended = SetOnDrop(&world.over);
            let driven = clients.into_iter().map(|(client, rng)| {
                let may_fail = || round.ending.load(Ordering::SeqCst);
                scope.spawn(move || {
                    collections::drive(world, client, rng, may_fail, || round.kill_if_armed())
                })
            });
            let driven: Vec<_> = driven.collect();
            let drivers: Vec<_> = rngs
                .into_iter()
                .enumerate()
                .map(|(connection, rng)| scope.spawn(move || drive(round, connection, rng)))
                .collect();
            start.wait();
            thread::sleep(after);
            let ended = end.bring(server, round);
            world.over.store(true, Ordering::SeqCst);
            let driven = driven.into_iter();
            let driven = driven
                .map(|one| one.join().expect("a client panicked"))
                .collect();
            let logs = drivers
                .into_iter()
                .map(|d| d.join().expect("a driver panicked"))
                .collect();
            ended.map(|()| (logs, driven))
        })
    }

    /// Starts the server over the data that it left. If the server finds that it cannot recover
    /// acknowledged data, and ends, all of that is lost: the inner error says so.
    fn restart(&mut self) -> Result<Result<(), CrashVerdict>> {
        while self.rng.u32(0..8) == 0 {
            let mut early = self.start()?;
            thread::sleep(Duration::from_micros(self.rng.u64(0..20_000)));
            early.kill()?;
            self.events.push("killed while it started".to_owned());
        }
        self.server = self.start()?;
        match self.server.wait_ready() {
            Err(error) if self.server.exited()?.is_some() => {
                let lost = vec![format!("everything: {error}")];
                Ok(Err(CrashVerdict {
                    lost,
                    ..CrashVerdict::default()
                }))
            }
            ready => ready.map(Ok),
        }
    }

    fn start(&mut self) -> Result<ServerUnderTest> {
        start(
            self.program,
            self.options,
            &self.dir,
            &mut self.rng,
            &mut self.events,
        )
    }

    /// Checks that an acknowledged FLUSHALL survives a kill like any other write.
    fn flush(&mut self) -> Result<CrashVerdict> {
        self.server.connect()?.expect(&["FLUSHALL"])?;
        self.server.kill()?;
        if let Err(refusal) = self.restart()? {
            return Ok(refusal);
        }
        let found = FoundKeys::read(&mut self.server.connect()?)?;
        let mut verdict = CrashVerdict {
            acknowledged: 1,
            ..CrashVerdict::default()
        };
        let left = found.cells.len() + found.collections;
        if left > 0 {
            verdict
                .lost
                .push(format!("FLUSHALL, of which {left} keys are left"));
        }
        Ok(verdict)
    }

    /// Begins with an empty directory.
    fn renew(&mut self) -> Result<()> {
        self.server.kill()?;
        self.dir = TempDir::with_prefix("kumiki-crash-")?;
        self.events.clear();
        self.coverage.forget_files();
        self.ledger = CrashLedger::new(self.options.connections);
        self.server = self.start()?;
        self.server.wait_ready()?;
        self.collections = Collections::default();
        if has_collections(self.program) {
            collections::set_up(&self.collections, vec![self.server.addr()])?;
        }
        Ok(())
    }

    /// Stops the server and leaves its data in place. Returns the directory.
    fn keep(&mut self) -> PathBuf {
        // It has ended by itself if this fails, and the guard reaps it.
        let _ = self.server.kill();
        self.dir.disable_cleanup(true);
        self.dir.path().to_owned()
    }
}

/// How the server ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// By SIGKILL, at any moment.
    Sudden,
    /// By SIGKILL from the client that reads the next reply.
    AtReply,
    /// By SIGTERM.
    Gentle,
}

impl End {
    fn draw(rng: &mut fastrand::Rng) -> End {
        match rng.u32(0..10) {
            0 => End::Gentle,
            1..5 => End::Sudden,
            _ => End::AtReply,
        }
    }

    fn bring(self, server: &mut ServerUnderTest, round: &CrashRound<'_>) -> Result<()> {
        round.ending.store(true, Ordering::SeqCst);
        if let End::Gentle = self {
            return server.stop();
        }
        if let End::AtReply = self {
            round.armed.store(true, Ordering::SeqCst);
            let deadline = Instant::now() + REPLY_WAIT;
            while Instant::now() < deadline && server.exited()?.is_none() {
                thread::sleep(Duration::from_micros(200));
            }
        }
        server.kill().map(drop)
    }
}

fn start(
    program: &Program,
    options: &Options,
    dir: &TempDir,
    rng: &mut fastrand::Rng,
    events: &mut Vec<String>,
) -> Result<ServerUnderTest> {
    let mut settings: Vec<&str> = options.server.iter().map(String::as_str).collect();
    if settings.is_empty() {
        let mut draw = |from: &[&[&'static str]]| from[rng.usize(..from.len())].to_vec();
        settings = draw(SETTINGS);
        settings.extend(draw(DEVICES));
        settings.extend(draw(IO));
        if options.checkpoints {
            settings.extend(draw(CHECKPOINTS));
            settings.extend(["--log-level", "debug"]);
        }
    }
    events.push(format!("started with {settings:?}"));
    program
        .with(&settings)
        .start(&dir.path().join("data"), &vec![])
}

/// Turns a verdict with complaints into an error.
///
/// # Errors
/// Returns an error if there is a complaint.
pub fn require_clean(verdict: &CrashVerdict) -> Result<()> {
    if !verdict.is_clean() {
        bail!("the server broke its promise: {verdict}");
    }
    Ok(())
}

/// Checks that the planted bug was found; otherwise the harness is blind.
///
/// # Errors
/// Returns an error if there is no complaint.
pub fn require_found(verdict: &CrashVerdict) -> Result<()> {
    if verdict.is_clean() {
        bail!("the planted bug was not found: {verdict}");
    }
    println!("crash: the planted bug was found");
    Ok(())
}
