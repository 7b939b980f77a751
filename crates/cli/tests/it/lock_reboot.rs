//! Locks after the machine was restarted, when the clock that leases are measured by begins again,
//! and the time of day may be any: over the real store, and with real processes.

use std::future::Future;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::support::cluster::{Cluster, Keeping};
use crate::support::words::token;
use base::clock::ManualClock;
use base::partition::Partition;
use disk::{Crash, FaultDisk};
use locks::shared::{self, Shared, transaction};
use locks::{Answer, FencingToken, LockLease, MonotonicTime, Request, Ticket};
use store::Db;
use testkit::process::Server;
use testkit::{Client, Frame, free_address};

/// A year, in milliseconds.
const YEAR_MS: u64 = 365 * 86_400_000;
/// The time of day in the beginning.
const NOW_MS: u64 = 55 * YEAR_MS;

/// A table in a store, between two starts of a machine.
struct Life {
    table: Shared,
    db: Db,
    wall: Arc<ManualClock>,
    since_boot: Duration,
    tickets: u64,
}

impl Life {
    fn start(disk: &FaultDisk, number: u64, since_boot: Duration, wall_ms: u64) -> Life {
        let wall = Arc::new(ManualClock::new(wall_ms));
        let options = store::Options {
            disk: Arc::new(disk.clone()),
            clock: Arc::clone(&wall) as Arc<_>,
            ..store::Options::in_dir("/locks")
        };
        let table = shared::Options {
            sweep: Duration::from_secs(1),
            ..shared::Options::default()
        };
        Life {
            table: Shared::new(table, number, MonotonicTime::default() + since_boot),
            db: Db::open(options).expect("the disk is sound"),
            wall,
            since_boot,
            tickets: 0,
        }
    }

    fn pass(&mut self, time: Duration) {
        self.since_boot += time;
        self.wall.advance(time.as_millis() as u64);
    }

    fn ask(&mut self, key: &str, request: &Request<'_>) -> Answer {
        self.tickets += 1;
        let (asked, now) = (
            Ticket(self.tickets),
            MonotonicTime::default() + self.since_boot,
        );
        let taken = self.table.request(asked, key.as_bytes(), request, now);
        taken.expect("it is taken");
        for _ in 0..100 {
            let mut out = Vec::new();
            self.table.step(now, &mut out);
            for command in out {
                match command {
                    shared::SharedCommand::Transact { number, operations } => {
                        let done = wait_for(self.db.execute(&transaction(&operations)));
                        self.table.transacted(number, done, now);
                    }
                    shared::SharedCommand::Answer { ticket, outcome } => {
                        assert_eq!(ticket, asked);
                        return outcome.expect("the store answers");
                    }
                }
            }
        }
        panic!("{request:?} was not answered");
    }

    fn acquire(&mut self, key: &str, owner: &str, lease: Duration) -> Result<FencingToken, String> {
        let request = Request::Acquire {
            owner: owner.as_bytes(),
            lease: LockLease::For(lease),
            wait: Duration::ZERO,
        };
        match self.ask(key, &request) {
            Answer::Granted { token, .. } => Ok(token),
            Answer::Held(lock) => Err(String::from_utf8_lossy(&lock.value).into_owned()),
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, key: &str, owner: &str) {
        let owner = owner.as_bytes();
        let answer = self.ask(key, &Request::Release { owner });
        assert_eq!(answer, Answer::Released);
    }
}

/// Waits on this thread.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        std::thread::park();
    }
}

/// Starts a machine on which one lock is held and another one was released long ago; then starts it
/// again after a power failure, at this time of day.
fn reboot(wall_ms: u64, with_checkpoint: bool, since_boot: [Duration; 2]) {
    let lease = Duration::from_secs(60);
    let disk = FaultDisk::new();
    let mut life = Life::start(&disk, 1, since_boot[0], NOW_MS);
    let gone = life.acquire("gone", "ann", lease).expect("it is free");
    life.release("gone", "ann");
    // Long enough that it is forgotten.
    life.pass(Duration::from_secs(20));
    let held = life.acquire("held", "ann", lease).expect("it is free");
    if with_checkpoint {
        life.db.checkpoint().expect("a checkpoint");
    }
    let disk = disk.crash(Crash::DropAll, 1);
    drop(life);
    let mut life = Life::start(&disk, 2, since_boot[1], wall_ms);
    let next = life.acquire("gone", "bob", lease).expect("it is free");
    assert!(next > gone, "{next} after {gone}");
    // It is unknown how long the machine was off: the lease begins anew.
    assert_eq!(life.acquire("held", "bob", lease), Err("ann".to_owned()));
    life.pass(lease - Duration::from_secs(1));
    assert_eq!(life.acquire("held", "bob", lease), Err("ann".to_owned()));
    life.pass(lease / 32 + Duration::from_secs(2));
    let next = life
        .acquire("held", "bob", lease)
        .expect("its lease is over");
    assert!(next > held, "{next} after {held}");
}

#[test]
fn at_any_time_of_day_after_a_reboot_locks_are_held_and_tokens_grow() {
    let long = Duration::from_secs(1_000 * 86_400);
    for wall_ms in [NOW_MS, 0, NOW_MS - YEAR_MS, NOW_MS + 10 * YEAR_MS] {
        for with_checkpoint in [false, true] {
            for since_boot in [[long, Duration::ZERO], [Duration::from_secs(5), long]] {
                reboot(wall_ms, with_checkpoint, since_boot);
            }
        }
    }
}

/// Returns the first words of a command that starts a process as if the machine had run for three
/// years longer. `None`, with a message, if this machine cannot do that.
fn longer_since_boot() -> Option<&'static [&'static str]> {
    const OFFSET: &str = "100000000";
    const WAYS: [&[&str]; 2] = [
        &["unshare", "--time", "--boottime", OFFSET],
        &[
            "unshare",
            "--user",
            "--map-current-user",
            "--time",
            "--boottime",
            OFFSET,
        ],
    ];
    let works = |way: &&&[&str]| {
        let output = Command::new(way[0])
            .args(&way[1..])
            .args(["cat", "/proc/uptime"])
            .stderr(Stdio::null())
            .output();
        output.is_ok_and(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let seconds = text
                .split('.')
                .next()
                .and_then(|text| text.parse::<u64>().ok());
            seconds.is_some_and(|seconds| seconds >= 100_000_000)
        })
    };
    let found = WAYS.iter().find(works).copied();
    if found.is_none() {
        eprintln!("left out: this machine has no time namespaces for tests");
    }
    found
}

/// Returns a proxy before this cluster; `first` are the words before its command.
fn start(first: &[&str], file: &str, more: &[&str]) -> Server {
    let started = Server::insist_at(free_address().expect("a free port"), |address, dir| {
        let kumiki = env!("CARGO_BIN_EXE_kumiki");
        let words = [first, &[kumiki, "proxy", "--cluster", file]].concat();
        let mut command = Command::new(words[0]);
        command.current_dir(dir).args(&words[1..]).args(more);
        command.args(["--listen", &address.to_string()]);
        command
    });
    started.unwrap_or_else(|said| panic!("it does not start: {said}"))
}

fn acquire(server: &Server, owner: &str) -> Frame {
    let mut client = Client::connect(server.address);
    client.frame(&["LOCK.ACQUIRE", "k", owner, "PX", "1500"])
}

#[test]
fn a_process_whose_machine_was_started_anew_grants_nothing_twice() {
    const LEASE: Duration = Duration::from_millis(1500);
    let Some(longer) = longer_since_boot() else {
        return;
    };
    let cluster = Cluster::start(1, Keeping::Nothing);
    let file = cluster.file();
    for keeping in ["durable", "memory"] {
        let data = tempfile::tempdir().expect("a directory");
        let data = data.path().display().to_string();
        let more = ["--locks", keeping, "--data", &data, "--max-lease", "1500ms"];
        let mut last = 0;
        let mut proxy = start(longer, &file, &more);
        // Back to a clock that has just begun, and to one that is far ahead again.
        for (owner, next, first) in [("ann", "bob", &[][..]), ("cid", "dot", longer)] {
            let mut held = None;
            testkit::eventually("a grant", || {
                held = Some((Instant::now(), acquire(&proxy, owner)));
                held.as_ref()
                    .is_some_and(|(_, frame)| token(frame).is_some())
            });
            let (asked, frame) = held.expect("it was asked for");
            let granted = token(&frame).expect("a token");
            assert!(granted > last, "{keeping}: {granted} after {last}");
            proxy.kill();
            proxy = start(first, &file, &more);
            let mut tries = 0;
            testkit::eventually("another grant", || {
                let frame = acquire(&proxy, next);
                let Some(token) = token(&frame) else {
                    tries += 1;
                    return false;
                };
                assert!(asked.elapsed() >= LEASE, "{keeping}: {:?}", asked.elapsed());
                assert!(token > granted, "{keeping}: {token} after {granted}");
                last = token;
                true
            });
            assert!(tries > 0, "{keeping}: it was granted at once");
        }
    }
}
