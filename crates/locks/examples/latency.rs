//! Measures the time of a request to the table in memory, including that of reading the clock, on
//! one thread and on several.
//!
//! ```text
//! cargo run --release -p kumiki-locks --example latency -- [threads]
//! ```

use std::time::{Duration, Instant};

use kumiki_locks::authority::{Authority, AuthorityCommand, Options};
use kumiki_locks::{Answer, LockLease, MonotonicTime, Request, Ticket};

const KEYS: usize = 1_000;
const ROUNDS: usize = 2_000;

fn main() {
    let words = std::env::args().nth(1);
    let threads = words.and_then(|word| word.parse().ok()).unwrap_or(2);
    for threads in [1, threads] {
        let mut out = Vec::new();
        let table = Authority::new(
            &Options::default(),
            None,
            0,
            MonotonicTime::default(),
            &mut out,
        );
        carry_out(&table, &mut out);
        let begin = Instant::now();
        let means: Vec<[Duration; 4]> = std::thread::scope(|scope| {
            let table = &table;
            let started =
                (0..threads).map(|thread| scope.spawn(move || measure(table, thread, begin)));
            let started: Vec<_> = started.collect();
            let ended = started.into_iter().map(|one| one.join().expect("it ends"));
            ended.collect()
        });
        for (at, what) in ["acquire", "renew", "info", "release"].iter().enumerate() {
            let sum: Duration = means.iter().map(|means| means[at]).sum();
            let mean = sum.as_nanos() / means.len() as u128;
            println!("{threads} threads, {what:>8}: {mean} ns");
        }
    }
}

/// Keeps ledgers at once, so that only the table is measured.
fn carry_out(table: &Authority, out: &mut Vec<AuthorityCommand>) {
    while let Some(command) = out.pop() {
        if matches!(command, AuthorityCommand::KeepLedger(_)) {
            table.ledger_kept(Ok(()), MonotonicTime::default(), out);
        }
    }
}

/// Returns the mean time of each request in the best of all rounds, so that other programs disturb
/// it less. Each thread has its own keys.
fn measure(table: &Authority, thread: usize, begin: Instant) -> [Duration; 4] {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("{thread}:{key}")).collect();
    let owner = b"somebody".as_slice();
    let lease = LockLease::For(Duration::from_secs(10));
    let wait = Duration::ZERO;
    let requests = [
        Request::Acquire { owner, lease, wait },
        Request::Renew { owner, lease },
        Request::Info,
        Request::Release { owner },
    ];
    let mut best = [Duration::MAX; 4];
    let mut out = Vec::new();
    for _ in 0..ROUNDS {
        for (request, best) in requests.iter().zip(&mut best) {
            let start = Instant::now();
            for key in &keys {
                let now = MonotonicTime::default() + begin.elapsed();
                let outcome = table.request(Ticket(0), key.as_bytes(), request, now, &mut out);
                let held = matches!(outcome, Some(Ok(Answer::Held(_) | Answer::NotHeld(_))));
                assert!(outcome.is_some() && !held, "{outcome:?}");
                carry_out(table, &mut out);
            }
            *best = start.elapsed().min(*best);
        }
    }
    best.map(|best| best / KEYS as u32)
}
