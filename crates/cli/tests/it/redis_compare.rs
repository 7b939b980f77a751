//! Every command beside a real `redis-server`: hand-picked and generated calls, errors included.
//!
//! The expectation is Redis's live answer, byte for byte; `rules.rs` says where something
//! else counts, and `docs/differences-from-redis.md` lists the differences that stay. A new case
//! is a new line in `redis_compare/*.txt`.
//!
//! | variable | meaning |
//! |---|---|
//! | `KUMIKI_REQUIRE_PEERS=1` | fail where Redis is not installed, instead of saying so |
//! | `KUMIKI_COMPARE_SEED` | the seed of the generated calls |
//! | `KUMIKI_COMPARE_CALLS` | how many calls are generated |
//! | `KUMIKI_COMPARE_SUBJECT` | a `redis-server` in our server's place: checks this test itself |
//!
//! | module | role |
//! |---|---|
//! | [`script`] | reads the hand-picked calls of `*.txt` |
//! | [`rules`] | which two replies count as equal |
//! | [`session`] | connections to both servers, and what they answered |
//! | [`generate`] | random calls from a seed |
//! | [`shrink`] | the shortest calls that still differ |
//! | [`described`] | what `COMMAND` says of each command |
//! | [`differences`] | the differences that are documented |

mod described;
mod differences;
mod generate;
mod rules;
mod script;
mod session;
mod shrink;

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::process::start_server;
use generate::{Generator, state};
use rules::Rule;
use script::{Script, parse};
use session::{Pair, Protocol, Session};
use shrink::shrink;
use testkit::peers::{self, Group};
use testkit::process::{Redis, Server};

/// Calls between two looks at the whole state.
const ROUND: usize = 3000;
/// Generated calls on the server that keeps nothing; the one that syncs gets a tenth.
const CALLS: usize = 600_000;

/// How the subject keeps its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keeping {
    Ephemeral,
    Durable,
}

/// Both servers, alive as long as this.
struct Servers {
    /// Redis, and one of two subjects.
    _all: (Redis, Option<Redis>, Option<Server>),
    pair: Pair,
}

impl Servers {
    fn start(program: &Path, keeping: Keeping, options: &[String]) -> Servers {
        let of_redis: Vec<&str> = options.iter().map(String::as_str).collect();
        let redis = Redis::start(program, &of_redis);
        let own = own_subject().map(|program| Redis::start(&program, &of_redis));
        let server = own.is_none().then(|| match keeping {
            Keeping::Ephemeral => start_server(&[&["--ephemeral".to_owned()], options].concat()),
            Keeping::Durable => start_server(options),
        });
        let subject = own.as_ref().map(|redis| redis.address);
        let subject = subject.or(server.as_ref().map(|server| server.address));
        let password = options.iter().position(|flag| flag == "--requirepass");
        let pair = Pair {
            redis: redis.address,
            subject: subject.expect("one of the two"),
            password: password.map(|at| options[at + 1].clone()),
        };
        Servers {
            _all: (redis, own, server),
            pair,
        }
    }
}

fn own_subject() -> Option<PathBuf> {
    std::env::var_os("KUMIKI_COMPARE_SUBJECT").map(PathBuf::from)
}

fn now_ms() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    u64::try_from(now.as_millis()).expect("a clock before the end of time")
}

/// Returns the scripts and their names.
fn scripts() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/redis_compare");
    let files = fs::read_dir(dir).expect("the scripts");
    let paths = files.map(|file| file.expect("a file").path());
    let mut scripts: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "txt"))
        .map(|path| {
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            (name, fs::read_to_string(&path).expect("a script"))
        })
        .collect();
    scripts.sort();
    scripts
}

fn parsed(name: &str, text: &str) -> Script {
    parse(text, now_ms()).unwrap_or_else(|what| panic!("{name}, {what}"))
}

/// Plays every case in both protocols. Returns one line for each mismatch.
fn play_scripts(redis: &Path, keeping: Keeping) {
    let mut report = Vec::new();
    let mut lines = 0;
    let plain = Servers::start(redis, keeping, &[]);
    for (name, text) in scripts() {
        let Script {
            options, durable, ..
        } = parsed(&name, &text);
        if durable.is_some_and(|durable| durable != (keeping == Keeping::Durable)) {
            continue;
        }
        let own = (!options.is_empty()).then(|| Servers::start(redis, keeping, &options));
        let pair = &own.as_ref().unwrap_or(&plain).pair;
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            // Parsed again: its times should be of now.
            for case in parsed(&name, &text).cases {
                lines += case.steps.len();
                let mismatches = Session::new(pair, protocol).play(&case);
                let ours =
                    |rule: &Rule| matches!(rule, Rule::Differs(_)) && own_subject().is_some();
                for mismatch in mismatches.iter().filter(|m| !ours(&m.rule)) {
                    report.push(format!(
                        "{name} ({}, {protocol:?}) line {mismatch}",
                        case.name
                    ));
                }
            }
        }
    }
    assert!(
        report.is_empty(),
        "{} of {lines} lines differ:\n{}",
        report.len(),
        report.join("\n")
    );
    assert!(lines > 1000, "only {lines} lines were played");
}

/// Plays generated calls in rounds, each on empty databases and with its own seed.
fn play_generated(redis: &Path, keeping: Keeping, calls: usize) {
    let servers = Servers::start(redis, keeping, &[]);
    let first_seed = setting("KUMIKI_COMPARE_SEED", 1);
    for seed in first_seed..first_seed + calls.div_ceil(ROUND) as u64 {
        let protocol = if seed % 2 == 0 {
            Protocol::Resp2
        } else {
            Protocol::Resp3
        };
        let mut calls = Generator::new(seed, now_ms() / 1000).calls(ROUND);
        calls.extend(state());
        let Some(mismatch) = Session::new(&servers.pair, protocol).pipeline(&calls) else {
            continue;
        };
        let (calls, mismatch) = shrink(&servers.pair, protocol, calls, mismatch);
        let lines: Vec<String> = calls.iter().map(ToString::to_string).collect();
        panic!(
            "seed {seed}, {protocol:?}:\n{}\n{mismatch}",
            lines.join("\n")
        );
    }
}

fn setting<T: FromStr>(variable: &str, default: T) -> T {
    std::env::var(variable)
        .ok()
        .map_or(default, |text| match text.parse() {
            Ok(value) => value,
            Err(_) => panic!("{variable}={text} is not a number"),
        })
}

#[test]
fn scripts_ephemeral() {
    let Some(redis) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    play_scripts(&redis, Keeping::Ephemeral);
}

#[test]
fn scripts_durable() {
    let Some(redis) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    play_scripts(&redis, Keeping::Durable);
}

#[test]
fn commands_are_described_as_in_redis() {
    let Some(redis) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    let servers = Servers::start(&redis, Keeping::Ephemeral, &[]);
    let compared = described::compare(servers.pair.redis, servers.pair.subject);
    assert!(compared > 80, "only {compared} commands were compared");
}

#[test]
fn generated_ephemeral() {
    let Some(redis) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    play_generated(
        &redis,
        Keeping::Ephemeral,
        setting("KUMIKI_COMPARE_CALLS", CALLS),
    );
}

#[test]
fn generated_durable() {
    let Some(redis) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    play_generated(
        &redis,
        Keeping::Durable,
        setting("KUMIKI_COMPARE_CALLS", CALLS) / 10,
    );
}

#[test]
fn the_documented_differences_are_those_of_the_scripts() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/differences-from-redis.md");
    let documented = differences::documented(&fs::read_to_string(docs).expect("the list"));
    let scripts: Vec<Script> = scripts()
        .iter()
        .map(|(name, text)| parsed(name, text))
        .collect();
    assert_eq!(documented, differences::shown(&scripts));
}
