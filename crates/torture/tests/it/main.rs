//! The harnesses judge a real peer: one that keeps its word, and one that does not.
//!
//! These tests need peers of the group `redis`; see `testkit::peers`.

use testkit::peers::{Group, in_path, require};
use torture::crash::{self, Options};
use torture::server::Program;
use torture::trace;

fn redis(args: &[&str]) -> Program {
    Program::Redis {
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
    }
}

fn have(programs: &[&str]) -> bool {
    let is_there = |program: &&str| in_path(program).is_some();
    let missing: Vec<_> = programs.iter().filter(|one| !is_there(one)).collect();
    require(Group::Redis, &format!("{programs:?}"), missing.is_empty())
}

fn rounds(rounds: u64) -> Options {
    Options {
        rounds,
        seed: 7,
        connections: 4,
        checkpoints: false,
        keep: false,
        server: vec![],
    }
}

#[test]
fn the_ledger_finds_nothing_where_a_server_keeps_its_word() {
    if have(&["redis-server"]) {
        let server = redis(&["--appendonly", "yes", "--appendfsync", "always"]);
        let verdict = crash::run(&server, &rounds(6)).unwrap();
        assert!(verdict.is_clean(), "{}", verdict.complaints());
        assert!(verdict.acknowledged > 100, "hardly any load: {verdict}");
    }
}

#[test]
fn the_ledger_finds_loss_where_a_server_keeps_nothing() {
    if have(&["redis-server"]) {
        let verdict = crash::run(&redis(&["--appendonly", "no"]), &rounds(3)).unwrap();
        assert!(!verdict.lost.is_empty(), "{verdict}");
    }
}

#[test]
fn the_trace_tells_a_sync_before_the_reply_from_one_after_it() {
    if have(&["redis-server", "strace"]) {
        let always = redis(&["--appendonly", "yes", "--appendfsync", "always"]);
        assert_eq!(trace::run(&always).unwrap(), Vec::<String>::new());
        let no = redis(&["--appendonly", "yes", "--appendfsync", "no"]);
        assert!(!trace::run(&no).unwrap().is_empty());
    }
}
