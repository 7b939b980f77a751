//! Runs simulated clusters from many seeds and judges each.
//!
//! ```text
//! cargo run --release -p kumiki-cluster --features simulation --example sim -- 2pc --seeds 10000
//! cargo run --release -p kumiki-cluster --features simulation --example sim -- ramp --seed 77 --trace
//! ```

use std::process::ExitCode;
use std::time::Instant;

use kumiki_cluster::simulation::{self, Counts, Reached, Run, Scenario};

const USAGE: &str = "usage: sim 2pc|ramp [--seeds N] [--first N] [--seed N [--trace] [--history]] \
                     [--expect-failure]";

/// What was asked for.
struct Arguments {
    scenario: Scenario,
    first: u64,
    seeds: u64,
    seed: Option<u64>,
    trace: bool,
    history: bool,
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
    let scenario = words.next()?;
    let mut known = [Scenario::TwoPhaseCommit, Scenario::Ramp].into_iter();
    let mut arguments = Arguments {
        scenario: known.find(|one| one.name() == scenario)?,
        first: 0,
        seeds: 200,
        seed: None,
        trace: false,
        history: false,
        expect_failure: false,
    };
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse().ok();
        match &*word {
            "--seeds" => arguments.seeds = number()?,
            "--first" => arguments.first = number()?,
            "--seed" => arguments.seed = Some(number()?),
            "--trace" => arguments.trace = true,
            "--history" => arguments.history = true,
            "--expect-failure" => arguments.expect_failure = true,
            _ => return None,
        }
    }
    Some(arguments)
}

/// Runs one seed. Returns whether it failed.
fn one(seed: u64, arguments: &Arguments) -> bool {
    let keeps = arguments.trace || arguments.history;
    let run = simulation::run(arguments.scenario, seed, keeps);
    if arguments.trace {
        run.trace.iter().for_each(|line| println!("{line}"));
    }
    if arguments.history {
        print!("{}", run.history);
    }
    println!("seed {seed}: {:?}, trace {:016x}", run.counts, run.hash);
    print!("{}", run.reached);
    report(&run)
}

/// Runs many seeds until one fails. Returns whether one did.
fn many(arguments: &Arguments) -> bool {
    let begin = Instant::now();
    let (mut reached, mut sum) = (Reached::default(), Counts::default());
    for seed in arguments.first..arguments.first + arguments.seeds {
        let run = simulation::run(arguments.scenario, seed, false);
        if report(&run) {
            return true;
        }
        reached.count(&run.reached);
        sum.add(&run.counts);
    }
    let ms = begin.elapsed().as_secs_f64() * 1000.0;
    println!(
        "{} seeds passed, {:.2} ms each; {sum:?}",
        arguments.seeds,
        ms / arguments.seeds as f64
    );
    println!("seeds in which");
    print!("{reached}");
    false
}

fn report(run: &Run) -> bool {
    if let Some(failure) = &run.failure {
        println!("seed {} failed: {failure}", run.seed);
        println!("run it again with --seed {} --trace", run.seed);
    }
    run.failure.is_some()
}
