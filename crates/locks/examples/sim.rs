//! Runs simulated proxies from many seeds and judges each.
//!
//! ```text
//! cargo run --release -p kumiki-locks --features simulation --example sim -- locks --seeds 10000
//! cargo run --release -p kumiki-locks --features simulation --example sim -- locks --seed 77 --trace
//! ```

use std::process::ExitCode;
use std::time::Instant;

use kumiki_locks::simulation::{self, Reached, Run};

const USAGE: &str =
    "usage: sim locks [--seeds N] [--first N] [--seed N [--trace]] [--expect-failure]";

/// A point that fewer of a thousand seeds meet is not met often enough.
const PER_THOUSAND: u64 = 3;

/// What was asked for.
struct Arguments {
    first: u64,
    seeds: u64,
    seed: Option<u64>,
    trace: bool,
    expect_failure: bool,
}

fn main() -> ExitCode {
    let Some(arguments) = parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // A run that panics is reported as a failure of its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let failed = match arguments.seed {
        Some(seed) => one(seed, &arguments),
        None => many(&arguments),
    };
    if failed == arguments.expect_failure {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn parse() -> Option<Arguments> {
    let mut words = std::env::args().skip(1);
    (words.next()? == "locks").then_some(())?;
    let mut arguments = Arguments {
        first: 0,
        seeds: 200,
        seed: None,
        trace: false,
        expect_failure: false,
    };
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse().ok();
        match &*word {
            "--seeds" => arguments.seeds = number()?,
            "--first" => arguments.first = number()?,
            "--seed" => arguments.seed = Some(number()?),
            "--trace" => arguments.trace = true,
            "--expect-failure" => arguments.expect_failure = true,
            _ => return None,
        }
    }
    Some(arguments)
}

/// Runs one seed. Returns whether it failed.
fn one(seed: u64, arguments: &Arguments) -> bool {
    let run = simulation::run(seed, arguments.trace);
    run.trace.iter().for_each(|line| println!("{line}"));
    println!("seed {seed}: trace {:016x}", run.hash);
    print!("{}", run.reached);
    report(&run)
}

/// Runs many seeds until one fails. Returns whether one did, or whether all together have met too
/// little.
fn many(arguments: &Arguments) -> bool {
    let begin = Instant::now();
    let mut reached = Reached::default();
    for seed in arguments.first..arguments.first + arguments.seeds {
        let run = simulation::run(seed, false);
        if report(&run) {
            return true;
        }
        reached.count(&run.reached);
    }
    let ms = begin.elapsed().as_secs_f64() * 1000.0;
    let each = ms / arguments.seeds as f64;
    println!("{} seeds passed, {each:.2} ms each", arguments.seeds);
    println!("seeds in which");
    print!("{reached}");
    let rare: Vec<_> = reached
        .rarer_than(arguments.seeds * PER_THOUSAND / 1000)
        .collect();
    if !rare.is_empty() {
        println!("not met often enough: {rare:?}");
    }
    !rare.is_empty()
}

fn report(run: &Run) -> bool {
    if let Some(failure) = &run.failure {
        println!("seed {} failed: {failure}", run.seed);
        println!("run it again with --seed {} --trace", run.seed);
    }
    run.failure.is_some()
}
