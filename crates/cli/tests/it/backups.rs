//! `kumiki backup` of a node and of a cluster, restored elsewhere.

mod mistakes;
mod object_stores;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use history::{History, HistoryOp, Key, Outcome, RecordedTransaction, Recorder, check};
use rustix::process::Signal;
use tempfile::TempDir;
use testkit::workload::resp::{Connected, Writes};
use testkit::workload::{Ended, Seen, Subject, Transfers, Workload, mixed, read, transfers};
use testkit::{Client, eventually, eventually_some};

use crate::support::cluster::{Cluster, Keeping};
use crate::support::files::copy;
use crate::support::keys::{contents, fill};
use crate::support::process::{Background, run, start_server};
use crate::support::transfers::until_stopped;

/// Runs a command that succeeds. Returns its output.
#[track_caller]
fn done(args: &[&str]) -> String {
    let (code, out, errors) = run(args);
    assert_eq!(code, Some(0), "{args:?}: {out}{errors}");
    out
}

/// Backs up the server at an address. Returns the backup's name.
#[track_caller]
fn back_up(from: std::net::SocketAddr, to: &str) -> String {
    let out = done(&["backup", "create", "--from", &from.to_string(), "--to", to]);
    let (name, _) = out.split_once(": ").expect("the name of the backup");
    name.to_owned()
}

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

#[test]
fn a_node_is_backed_up_and_restored_with_everything() {
    let place = Place::new();
    let (backups, data) = (place.text("backups"), place.text("data"));
    let node = start_server(&["--data", &data]);
    let mut client = Client::connect(node.address);
    fill(&mut client);
    let databases = [0, 3, 15];
    let all = |client: &mut Client| databases.map(|database| contents(client, database));
    let first = (back_up(node.address, &backups), all(&mut client));
    assert_eq!(client.told("SELECT 0"), "+OK");
    assert_eq!(client.told("SAVE"), "+OK");
    client.told("SET text changed");
    client.told("DEL many:list");
    let second = (back_up(node.address, &backups), all(&mut client));
    let listed = done(&["backup", "list", &backups]);
    for (name, kind) in [(&first.0, "full"), (&second.0, "")] {
        let line = listed.lines().find(|line| line.starts_with(name.as_str()));
        assert!(
            line.is_some_and(|line| line.contains(kind)),
            "{name}: {listed}"
        );
    }
    let verified = done(&["backup", "verify", &backups]);
    assert!(verified.contains("2 backups"), "{verified}");
    drop(node);
    for (number, (name, expected)) in [first, second].into_iter().enumerate() {
        let to = place.text(&format!("restored{number}"));
        done(&[
            "backup", "restore", "--backup", &backups, "--to", &to, "--at", &name,
        ]);
        let checked = done(&["check", &to]);
        assert!(checked.contains("sound"), "{checked}");
        let node = start_server(&["--data", &to]);
        let mut client = Client::connect(node.address);
        assert_eq!(all(&mut client), expected, "{name}");
        client.told("SELECT 0");
        assert_eq!(client.told("FCALL hello 0"), "hi");
        assert_eq!(client.told("SET later 1"), "+OK");
        assert_eq!(client.told("SAVE"), "+OK");
    }
}

#[test]
fn backups_follow_a_node_until_a_signal_comes() {
    let place = Place::new();
    let backups = place.text("backups");
    let node = start_server(&["--data", &place.text("data")]);
    let mut client = Client::connect(node.address);
    let from = node.address.to_string();
    let following = Background::start(&[
        "backup", "create", "--from", &from, "--to", &backups, "--follow", "--every", "50ms",
    ]);
    let count = || {
        following
            .said()
            .lines()
            .filter(|line| line.contains("as of"))
            .count()
    };
    for number in 0..5 {
        client.told(&format!("SET key:{number} 1"));
        assert_eq!(client.told("SAVE"), "+OK");
        let before = count();
        eventually("another backup is made", || count() > before + 1);
    }
    following.signal(Signal::TERM);
    let (code, said) = following.end();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        said.lines().filter(|line| line.contains("full")).count(),
        1,
        "{said}"
    );
    let to = place.text("restored");
    done(&["backup", "restore", "--backup", &backups, "--to", &to]);
    let restored = start_server(&["--data", &to]);
    assert_eq!(Client::connect(restored.address).told("DBSIZE"), "5");
}

/// The prefix of the names under which the times of backups are recorded.
const BACKUP: &str = "backup:";

/// Returns what was recorded until a backup, and what it holds behind that: transactions that began after it are left
/// out, and those that ran meanwhile may be in it or not.
fn history_until(all: &History, number: usize, found: &[(String, Option<i64>)]) -> History {
    let name = format!("{BACKUP}{number}");
    let keys = (0..all.names() as u32).map(Key);
    let key_of = |name: &str| keys.clone().find(|key| all.name(*key) == name);
    let mark = key_of(&name).expect("its times were recorded");
    let is_mark = |one: &&RecordedTransaction| {
        one.ops
            .iter()
            .any(|op| matches!(op, HistoryOp::Read { key, .. } if *key == mark))
    };
    let times = all.transactions.iter().find(is_mark).expect("its times");
    let (begin, end) = (times.start, times.end);
    let mut until = all.clone();
    until
        .transactions
        .retain(|one| one.start <= end && one.outcome != Outcome::Aborted);
    for one in &mut until.transactions {
        if one.end >= begin {
            one.outcome = Outcome::Unknown;
            one.ops.retain(|op| !matches!(op, HistoryOp::Read { .. }));
        }
    }
    let ops = found.iter().filter_map(|(name, value)| {
        let (key, value, version) = (key_of(name)?, *value, None);
        Some(HistoryOp::Read {
            key,
            value,
            version,
        })
    });
    let last = until.transactions.iter().map(|one| one.end).max();
    let start = last.unwrap_or_default() + 1;
    until.transactions.push(RecordedTransaction {
        process: u32::MAX,
        id: u64::MAX,
        start,
        end: start + 1,
        outcome: Outcome::Committed,
        ops: ops.collect(),
    });
    until
}

/// Starts a cluster from restored directories, at other addresses.
fn start_restored(dir: &Path, nodes: usize) -> Cluster {
    Cluster::start_prepared(nodes, "", |data| {
        let name = data.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix("node"));
        let number: usize = number
            .and_then(|text| text.parse().ok())
            .expect("a node's number");
        copy(&dir.join(format!("node{}", number + 1)), data);
    })
}

const NODES: usize = 3;
const BACKUPS: usize = 5;

#[test]
fn every_backup_of_a_cluster_under_transfers_is_one_state_of_it() {
    let place = Place::new();
    let backups = place.text("backups");
    let cluster = Cluster::start(NODES, Keeping::Data);
    let addresses: Vec<_> = (0..NODES).map(|node| cluster.address(node)).collect();
    let connected = |process: usize| {
        let client = Client::connect(addresses[process % NODES]);
        Connected::new(client, Writes::Block)
    };
    let accounts = Transfers::new(transfers::Options {
        accounts: 30,
        scans: false,
        ..transfers::Options::default()
    });
    let set_up = connected(0).run(&accounts.setup());
    assert!(matches!(set_up, Ended::Committed(_)));
    let recorder = Recorder::new();
    let options = mixed::Options {
        processes: 4,
        transactions: usize::MAX,
        at_most: Duration::from_secs(3600),
        keys: 12,
        weights: mixed::Weights {
            scan: 0,
            ..mixed::Weights::default()
        },
        ..mixed::Options::default()
    };
    let (stop, committed) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut names = Vec::new();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (mut teller, stop) = (accounts.start(Rng::with_seed(number)), &stop);
            let (committed, connected) = (&committed, &connected);
            scope.spawn(move || {
                let mut subject = connected(number as usize);
                until_stopped(&mut teller, &mut subject, stop, committed);
            });
        }
        for number in 0..options.processes {
            let (options, recorder, stop) = (&options, &recorder, &stop);
            let connected = &connected;
            scope.spawn(move || {
                let mut subject = connected(number as usize + 1);
                let mut log = recorder.process();
                let mut plans = mixed::Plans::new(options, log.process());
                while !stop.load(Ordering::SeqCst) {
                    let plan = plans.draw();
                    let entry = log.begin();
                    let ended = subject.run(&plan);
                    testkit::workload::record(entry, &plan, &ended);
                }
            });
        }
        let mut log = recorder.process();
        for number in 0..BACKUPS {
            let before = committed.load(Ordering::SeqCst);
            eventually("transfers go on", || {
                committed.load(Ordering::SeqCst) > before + 100
            });
            let mut entry = log.begin();
            entry.read(&format!("{BACKUP}{number}"), None, None);
            let from = cluster.address(number % NODES);
            names.push(back_up(from, &backups));
            entry.end(Outcome::Aborted);
            if number == 1 {
                // A chain goes on over checkpoints of the nodes, or another one begins.
                let mut node = Client::connect(cluster.address(2));
                assert_eq!(node.told("SAVE"), "+OK");
            }
        }
        drop(log);
        stop.store(true, Ordering::SeqCst);
    });
    let history = recorder.finish();
    assert!(check::strictly_serializable(&history).is_accepted());
    drop(cluster);
    done(&["backup", "verify", &backups]);
    let hot: Vec<String> = (0..history.names() as u32)
        .map(|key| history.name(Key(key)).to_owned())
        .filter(|name| !name.starts_with(BACKUP))
        .collect();
    for (number, name) in names.iter().enumerate() {
        let to = place.path(&format!("restored{number}"));
        let shown = to.display().to_string();
        done(&[
            "backup", "restore", "--backup", &backups, "--to", &shown, "--at", name,
        ]);
        let cluster = start_restored(&to, NODES);
        let client = Client::connect(cluster.address(number % NODES));
        let mut subject = Connected::new(client, Writes::Block);
        // Parts that were prepared are decided first.
        let balances = eventually_some("the accounts are read", || {
            read(&mut subject, &accounts.reads())
        });
        let sum: i64 = balances.iter().filter_map(Seen::value).sum();
        assert_eq!(sum, 30 * 100, "{name}: {balances:?}");
        let plan = testkit::workload::Plan::reading(hot.iter().cloned());
        let found = eventually_some("the keys are read", || read(&mut subject, &plan));
        let found = found.iter().map(Seen::value);
        let found: Vec<(String, Option<i64>)> = hot.iter().cloned().zip(found).collect();
        let until = history_until(&history, number, &found);
        let verdict = check::strictly_serializable(&until);
        assert!(verdict.is_accepted(), "{name}: {verdict:?}");
        // It goes on as a cluster does.
        let mut teller = accounts.start(Rng::with_seed(99));
        for _ in 0..20 {
            use testkit::workload::Client as _;
            let plan = teller.plan();
            let ended = subject.run(&plan);
            let seen = teller.end(&plan, &ended, testkit::workload::Times::default());
            seen.expect("the sum is the same in every audit");
        }
    }
}
