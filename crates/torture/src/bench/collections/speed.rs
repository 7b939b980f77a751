//! Rates and processor times of commands, by redis-benchmark.

use std::path::Path;

use anyhow::{Context, Result};
use xtask::interrupt;

use super::aim::Aim;
use super::content::{CLIENTS, Content, LARGE, SMALL, SMALL_LISTS, Size};
use super::options::Options;
use crate::bench::cell::{Asked, BenchMode, Sample};
use crate::bench::report::median;
use crate::bench::{STORES, Servers, Side};

/// A command that is measured. `K` in its words is the key of its type, `E` an element.
struct Command {
    words: &'static str,
    content: Content,
}

/// In this order: pushes make what pops take.
const COMMANDS: [Command; 12] = [
    Command {
        words: "HSET K E value",
        content: Content::Hashes,
    },
    Command {
        words: "HGET K E",
        content: Content::Hashes,
    },
    Command {
        words: "LPUSH K value",
        content: Content::Lists,
    },
    Command {
        words: "LPOP K",
        content: Content::Lists,
    },
    Command {
        words: "SADD K E",
        content: Content::Sets,
    },
    Command {
        words: "ZADD K __rand_int__ E",
        content: Content::SortedSets,
    },
    Command {
        words: "ZRANGE K 40 49",
        content: Content::SortedSets,
    },
    Command {
        words: "ZRANK K E",
        content: Content::SortedSets,
    },
    Command {
        words: "XADD K * field value",
        content: Content::Streams,
    },
    Command {
        words: "XRANGE K __rand_int__-0 + COUNT 10",
        content: Content::Streams,
    },
    Command {
        words: "XREADGROUP GROUP group consumer COUNT 1 STREAMS K >",
        content: Content::Streams,
    },
    // Of a small stream most of these ids are of no entry.
    Command {
        words: "XACK K pending __rand_int__-0",
        content: Content::Streams,
    },
];

impl Command {
    fn name(&self) -> &str {
        self.words.split(' ').next().unwrap_or_default()
    }

    /// Returns the words for redis-benchmark.
    fn words(&self, size: Size) -> Vec<String> {
        let words = self.words.split(' ').map(|word| match (word, size) {
            ("K", Size::Small) => format!("{}:__rand_int__", self.content.key()),
            ("K", Size::Large) => self.content.key().to_owned(),
            ("E", _) => "element:__rand_int__".to_owned(),
            _ => word.to_owned(),
        });
        words.collect()
    }

    /// Returns the number below which its random numbers are.
    fn range(&self, size: Size) -> u64 {
        match (size, self.content) {
            (Size::Large, _) => LARGE,
            (Size::Small, Content::Lists | Content::Streams) => SMALL_LISTS,
            (Size::Small, _) => SMALL,
        }
    }
}

/// Compares rates and processor times.
pub(super) fn run(binary: &Path, mode: BenchMode, options: &Options) -> Result<()> {
    println!(
        "\n{:<9} {:<5} {:>3} {:<10} | {:>9} {:>9} {:>5} {:<14} | {:>6} {:>6} {:>5} aim",
        "mode",
        "size",
        "P",
        "command",
        "kumiki/s",
        "redis/s",
        "ratio",
        "aim",
        "CPU µs",
        "redis",
        "ratio",
    );
    for size in [Size::Small, Size::Large] {
        let servers = Servers::start(binary, mode, &options.io)?;
        for side in STORES {
            for content in Content::ALL {
                content.fill(servers.server(side), size)?;
            }
        }
        let pipelines: &[u32] = match mode {
            BenchMode::Durable => &[16],
            _ => &[16, 1],
        };
        for &pipeline in pipelines {
            let mut runs = vec![[Vec::new(), Vec::new()]; COMMANDS.len()];
            for round in 0..options.rounds {
                for (command, runs) in COMMANDS.iter().zip(&mut runs) {
                    for at in [round % 2, 1 - round % 2] {
                        interrupt::check()?;
                        let measured =
                            measure(&servers, STORES[at], command, size, pipeline, options)
                                .with_context(|| {
                                    format!("{} by {:?}", command.name(), STORES[at])
                                })?;
                        runs[at].push(measured);
                    }
                }
            }
            for (command, [kumiki, redis]) in COMMANDS.iter().zip(&runs) {
                let of = |runs: &[(Sample, f64)], field: fn(&(Sample, f64)) -> f64| {
                    median(runs.iter().map(field).collect())
                };
                let rates = [kumiki, redis].map(|runs| of(runs, |run| run.0.rate));
                let times = [kumiki, redis].map(|runs| of(runs, |run| run.1));
                let (rate, time) = (rates[0] / rates[1], times[0] / times[1]);
                let aims = match (mode, pipeline, size) {
                    (BenchMode::Durable, ..) => [Some(Aim::AtLeast(1.5)), None],
                    (_, 1, _) => [None, Some(Aim::AtMost(1.0))],
                    (_, _, Size::Small) => [Some(Aim::AtLeast(1.3)), None],
                    (_, _, Size::Large) => [Some(Aim::AtLeast(1.0)), None],
                };
                let word = |aim: Option<Aim>, value| aim.map_or(String::new(), |aim| aim.of(value));
                println!(
                    "{mode:<9} {size:<5} {pipeline:>3} {:<10} | {:>9.0} {:>9.0} {rate:>5.2} {:<14} | {:>6.2} \
                     {:>6.2} {time:>5.2} {}",
                    command.name(),
                    rates[0],
                    rates[1],
                    word(aims[0], rate),
                    times[0],
                    times[1],
                    word(aims[1], time),
                );
            }
        }
        for side in STORES {
            for content in Content::ALL {
                content.check(servers.server(side), size)?;
            }
        }
    }
    Ok(())
}

/// Runs a command. Returns the results of redis-benchmark, and the server's processor time for a request in
/// microseconds.
fn measure(
    servers: &Servers,
    side: Side,
    command: &Command,
    size: Size,
    pipeline: u32,
    options: &Options,
) -> Result<(Sample, f64)> {
    let requests = match pipeline {
        1 => options.requests / 4,
        _ => options.requests,
    };
    let asked = Asked {
        addr: servers.addrs[side as usize],
        authority: None,
        keys: command.range(size),
        is_pinned: true,
    };
    let words = command.words(size);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let before = servers.meter.read()?;
    let sample = asked.benchmark(CLIENTS, pipeline, requests, &words)?;
    let used = servers.meter.since(&before)?.servers[side as usize];
    if command.content == Content::Streams && command.name() != "XRANGE" {
        command.content.fill(servers.server(side), size)?;
    }
    Ok((sample, used * 1e6 / requests as f64))
}
