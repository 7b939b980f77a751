//! `kumiki import --by-scan`: the keys of a real redis-server come one by one.

use testkit::Client;
use testkit::peers::{self, Group};
use testkit::process::Redis;

use crate::support::keys::{contents, fill};
use crate::support::process::{run, start_server};

#[test]
fn the_keys_of_a_server_that_lets_no_client_replicate_come_one_by_one() {
    let Some(program) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    let redis = Redis::start(&program, &["--rename-command", "PSYNC", ""]);
    let mut at_source = Client::connect(redis.address);
    fill(&mut at_source);
    // A deadline comes as what is left of it.
    at_source.told("PERSIST later");
    at_source.told("PERSIST hash");
    let node = start_server(&["--ephemeral"]);
    let (url, to) = (
        format!("redis://{}", redis.address),
        node.address.to_string(),
    );
    let (code, _, errors) = run(&["import", &url, "--to", &to]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("--by-scan"), "{errors}");
    let (code, out, errors) = run(&["import", &url, "--to", &to, "--by-scan"]);
    assert_eq!(code, Some(0), "{out}{errors}");
    let mut at_node = Client::connect(node.address);
    for database in [0, 3, 15] {
        let (expected, found) = (
            contents(&mut at_source, database),
            contents(&mut at_node, database),
        );
        for (key, value) in &expected {
            assert_eq!(found.get(key), Some(value), "{key} of database {database}");
        }
        assert_eq!(found.len(), expected.len(), "database {database}");
    }
    assert_eq!(at_node.told("FCALL hello 0"), "hi");
    at_source.told("SELECT 3");
    at_source.told("PEXPIRE text 500000");
    let only = format!("{url}/3");
    let (code, out, errors) = run(&["import", &only, "--to", &to, "--by-scan", "--replace"]);
    assert_eq!(code, Some(0), "{out}{errors}");
    assert!(out.contains("imported 1 keys"), "{out}");
    at_node.told("SELECT 3");
    let left: i64 = at_node.told("PTTL text").parse().expect("a number");
    assert!((400_000..=500_000).contains(&left), "{left}");
}

#[test]
fn a_scan_goes_on_where_it_ended() {
    let Some(program) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    let redis = Redis::start(&program, &[]);
    let mut at_source = Client::connect(redis.address);
    let script = "for i = 1, 20000 do redis.call('SET', 'key:' .. i, i) end";
    at_source.call(&["EVAL", script, "0"]);
    at_source.call(&["SET", "refused", &"x".repeat(100_000)]);
    let small = start_server(&["--ephemeral", "--max-value", "64kb"]);
    let (url, to) = (
        format!("redis://{}", redis.address),
        small.address.to_string(),
    );
    let (code, _, errors) = run(&["import", &url, "--to", &to, "--by-scan"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("refuses 'refused'"), "{errors}");
    let position = errors.split("--continue-at ").nth(1).expect("a position");
    at_source.told("DEL refused");
    let position = position.trim();
    let args = [
        "import",
        &url,
        "--to",
        &to,
        "--by-scan",
        "--continue-at",
        position,
    ];
    let (code, out, errors) = run(&args);
    assert_eq!(code, Some(0), "{out}{errors}");
    let mut at_node = Client::connect(small.address);
    assert_eq!(at_node.told("DBSIZE"), "20000");
    let (code, _, errors) = run(&[
        "import",
        &url,
        "--to",
        &to,
        "--by-scan",
        "--continue-at",
        "7",
    ]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("a database and a cursor"), "{errors}");
}
