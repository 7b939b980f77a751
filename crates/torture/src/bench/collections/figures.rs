//! Memory, and the figures that depend on the size of collections.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
use tempfile::TempDir;
use testkit::Reply;

use super::aim::Aim;
use super::content::{CLIENTS, Content, LARGE, send};
use super::options::Options;
use crate::bench::cell::{Asked, BenchMode};
use crate::bench::machine::SERVER_CORE;
use crate::bench::report::median;
use crate::bench::{STORES, Servers, Side};
use crate::server::{Program, ServerUnderTest};

/// Small hashes whose memory is measured, and the fields of each.
const HASHES: u64 = 1_000_000;
const FIELDS: u64 = 10;
/// Collections of a recovery, and the elements of each.
const RECOVERED: u64 = 1000;
const RECOVERED_ELEMENTS: u64 = 5000;

/// Prints the bytes of both processes for the same content, each in servers of its own.
pub(super) fn memory(binary: &Path, options: &Options) -> Result<()> {
    println!("\nmemory for                        | kumiki MiB | redis MiB | ratio | aim");
    let one = |content: Content| {
        move |server: &ServerUnderTest| send(server, content.additions(content.key(), 0, LARGE))
    };
    let hashes = |server: &ServerUnderTest| {
        let hashes = (0..HASHES).map(|key| {
            let mut words = vec!["HSET".to_owned(), format!("hash:{key:07}")];
            for field in 0..FIELDS {
                words.extend([format!("field:{field:04}"), format!("{:010}", key + field)]);
            }
            words
        });
        send(server, hashes)
    };
    let pending = |server: &ServerUnderTest| {
        let (content, key) = (Content::Streams, Content::Streams.key());
        let additions = content.additions(key, 0, LARGE);
        send(server, additions.chain(content.groups(key, LARGE)))
    };
    type Fill<'a> = &'a dyn Fn(&ServerUnderTest) -> Result<()>;
    let rows: [(&str, f64, Fill<'_>); 7] = [
        ("one hash of 1 M", 0.6, &one(Content::Hashes)),
        ("one set of 1 M", 0.6, &one(Content::Sets)),
        ("one sorted set of 1 M", 0.75, &one(Content::SortedSets)),
        ("one list of 1 M", 1.0, &one(Content::Lists)),
        ("one stream of 1 M", 1.0, &one(Content::Streams)),
        ("the same, all entries pending", 1.0, &pending),
        ("1 M hashes of 10 fields", 1.15, &hashes),
    ];
    for (name, bound, fill) in rows {
        let servers = Servers::start(binary, BenchMode::Ephemeral, &options.io)?;
        let mut bytes = [0.0; 2];
        for side in STORES {
            let server = servers.server(side);
            let before = resident(server.pid())?;
            fill(server)?;
            // What was replaced last is freed by the next transactions.
            thread::sleep(Duration::from_secs(1));
            bytes[side as usize] = resident(server.pid())? - before;
        }
        let ratio = bytes[0] / bytes[1];
        println!(
            "{name:<33} | {:>10.1} | {:>9.1} | {ratio:>5.2} | {}",
            bytes[0] / 1048576.0,
            bytes[1] / 1048576.0,
            Aim::AtMost(bound).of(ratio)
        );
    }
    Ok(())
}

/// Returns the memory of a process that is resident, in bytes.
pub(super) fn resident(pid: Pid) -> Result<f64> {
    let path = format!("/proc/{}/status", pid.as_raw_pid());
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    Ok(kib.context("no VmRSS")?.trim().parse::<f64>()? * 1024.0)
}

/// Returns a number that `INFO` shows.
fn info(server: &ServerUnderTest, field: &str) -> Result<f64> {
    let reply = server.connect()?.expect(&["INFO", "everything"])?;
    let text = match reply {
        Reply::Bulk(text) => String::from_utf8(text)?,
        other => anyhow::bail!("INFO is answered with {other:?}"),
    };
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let value = fields.find_map(|(name, value)| (name == field).then_some(value));
    let value = value.with_context(|| format!("INFO has no {field}"))?;
    Ok(value.trim().parse()?)
}

/// Prints the bytes of the log for a change of a large collection.
pub(super) fn log(binary: &Path, options: &Options) -> Result<()> {
    println!("\nlog bytes of one command on a collection of 1 M | bytes | aim");
    let servers = Servers::start(binary, BenchMode::Durable, &options.io)?;
    let server = servers.server(Side::Kumiki);
    for (content, words) in [
        (Content::Hashes, "HSET hash element:N value"),
        (Content::SortedSets, "ZADD zset N element:N"),
        (Content::Lists, "RPUSH list N"),
        (Content::Streams, "XADD stream * field N"),
    ] {
        send(server, content.additions(content.key(), 0, LARGE))?;
        let before = info(server, "log_bytes")?;
        let count = 10_000;
        let commands = (0..count).map(|number| {
            let number = format!("{:012}", number * 97);
            let words = words.replace('N', &number);
            words.split(' ').map(str::to_owned).collect()
        });
        send(server, commands)?;
        let bytes = (info(server, "log_bytes")? - before) / f64::from(count);
        println!(
            "{words:<47} | {bytes:>5.0} | {}",
            Aim::AtMost(150.0).of(bytes)
        );
    }
    Ok(())
}

/// Prints the time of a look-up by rank or position in 10 M elements, by that in 10,000.
pub(super) fn ranks(binary: &Path, options: &Options) -> Result<()> {
    println!("\nCPU of a command, µs                | 10 k | 10 M | ratio | aim");
    let sizes = [10_000, 10_000_000];
    for (content, words) in [
        (Content::SortedSets, "ZRANK zset element:__rand_int__"),
        (Content::Lists, "LINDEX list MIDDLE"),
    ] {
        let mut times = [0.0; 2];
        for (time, size) in times.iter_mut().zip(sizes) {
            let servers = Servers::start(binary, BenchMode::Ephemeral, &options.io)?;
            let server = servers.server(Side::Kumiki);
            send(server, content.additions(content.key(), 0, size))?;
            let asked = Asked {
                addr: server.addr(),
                authority: None,
                keys: size,
                is_pinned: true,
            };
            let words = words.replace("MIDDLE", &(size / 2).to_string());
            let words: Vec<&str> = words.split(' ').collect();
            let mut all = Vec::new();
            for _ in 0..options.rounds {
                let before = servers.meter.read()?;
                asked.benchmark(CLIENTS, 16, options.requests, &words)?;
                let used = servers.meter.since(&before)?.servers[0];
                all.push(used * 1e6 / options.requests as f64);
            }
            *time = median(all);
        }
        let ratio = times[1] / times[0];
        println!(
            "{words:<35} | {:>4.2} | {:>4.2} | {ratio:>5.2} | {}",
            times[0],
            times[1],
            Aim::AtMost(3.0).of(ratio)
        );
    }
    Ok(())
}

/// Prints the longest time for which another client waits while a collection of 1 M is deleted.
pub(super) fn deletion(binary: &Path, options: &Options) -> Result<()> {
    println!("\nlongest stall during DEL of 1 M | kumiki ms | redis ms | aim");
    let servers = Servers::start(binary, BenchMode::Ephemeral, &options.io)?;
    for content in [
        Content::Hashes,
        Content::Lists,
        Content::Sets,
        Content::SortedSets,
        Content::Streams,
    ] {
        let mut stalls = [0.0; 2];
        for side in STORES {
            let server = servers.server(side);
            let mut all = Vec::new();
            for _ in 0..options.rounds {
                send(server, content.additions(content.key(), 0, LARGE))?;
                all.push(longest_wait_during(server, &["DEL", content.key()])?);
            }
            stalls[side as usize] = median(all);
        }
        println!(
            "{:<31} | {:>9.2} | {:>8.2} | {}",
            content.key(),
            stalls[0],
            stalls[1],
            Aim::AtMost(5.0).of(stalls[0])
        );
    }
    Ok(())
}

/// Returns the longest round trip of a client while another one has a command executed, and a second longer, in
/// milliseconds.
fn longest_wait_during(server: &ServerUnderTest, words: &[&str]) -> Result<f64> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| -> Result<f64> {
            let mut client = server.connect()?;
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                client.expect(&["GET", "other"])?;
                longest = longest.max(begun.elapsed());
            }
            Ok(longest.as_secs_f64() * 1e3)
        });
        thread::sleep(Duration::from_millis(100));
        let executed = server
            .connect()
            .and_then(|mut client| Ok(client.expect(words)?));
        thread::sleep(Duration::from_secs(1));
        is_over.store(true, Ordering::Relaxed);
        executed?;
        waiting.join().expect("it does not panic")
    })
}

/// Prints the time of a start with a log of 5 M elements, by that with a log of as many strings.
pub(super) fn recovery(binary: &Path, options: &Options) -> Result<()> {
    println!("\nrecovery of 5 M | seconds | by strings | aim");
    let mut strings = f64::NAN;
    for name in ["strings", "hash", "list", "set", "zset"] {
        let dir = TempDir::with_prefix("kumiki-bench-")?;
        let args = ["--io", &options.io, "--checkpoint-log-size", "64gb"];
        let program = Program::kumiki(binary.to_owned(), args.map(str::to_owned).into());
        let wrapper = ["taskset", "-c", SERVER_CORE].map(str::to_owned).to_vec();
        let data = dir.path().join("data");
        let mut server = program.start(&data, &wrapper)?;
        server.wait_ready()?;
        let content = Content::ALL
            .into_iter()
            .find(|content| content.key() == name);
        let pairs = RECOVERED * RECOVERED_ELEMENTS;
        match content {
            // The elements come by turns, so that most entries of the log are parts of a collection.
            Some(content) => (0..RECOVERED_ELEMENTS).step_by(200).try_for_each(|from| {
                let keys = 0..RECOVERED;
                send(
                    &server,
                    keys.flat_map(|key| {
                        content.additions(&format!("{name}:{key}"), from, from + 200)
                    }),
                )
            })?,
            None => send(
                &server,
                (0..pairs).step_by(200).map(|from| {
                    let mut words = vec!["MSET".to_owned()];
                    for number in from..from + 200 {
                        words.extend([format!("element:{number:012}"), "value".to_owned()]);
                    }
                    words
                }),
            )?,
        }
        server.kill()?;
        let mut all = Vec::new();
        for _ in 0..options.rounds.min(3) {
            let begun = Instant::now();
            let mut server = program.start(&data, &wrapper)?;
            server.wait_ready()?;
            all.push(begun.elapsed().as_secs_f64());
            let keys = server.connect()?.expect(&["DBSIZE"])?;
            let wanted = content.map_or(pairs, |_| RECOVERED);
            ensure!(
                keys == Reply::Int(wanted as i64),
                "{keys:?} keys were recovered"
            );
            server.kill()?;
        }
        let time = median(all);
        let Some(content) = content else {
            strings = time;
            println!("{name:<15} | {time:>7.2} |");
            continue;
        };
        let ratio = time / strings;
        println!(
            "{:<15} | {time:>7.2} | {ratio:>10.2} | {}",
            content.key(),
            Aim::AtMost(1.3).of(ratio)
        );
    }
    Ok(())
}
