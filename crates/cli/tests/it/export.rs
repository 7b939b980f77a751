//! `kumiki export rdb`: a real redis-server loads the file.

use std::path::Path;

use testkit::Client;
use testkit::peers::{self, Group};
use testkit::process::Redis;

use crate::support::keys::{contents, fill};
use crate::support::process::{run, start_server};

fn export(file: &Path, from: std::net::SocketAddr, more: &[&str]) -> (Option<i32>, String, String) {
    let (file, from) = (file.to_str().expect("a path"), from.to_string());
    run(&[&["export", "rdb", file, "--from", &from], more].concat())
}

#[test]
fn a_real_server_loads_the_file() {
    let Some(program) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    let node = start_server(&["--ephemeral"]);
    let mut at_node = Client::connect(node.address);
    fill(&mut at_node);
    let binary: &[&[u8]] = &[b"SET", b"\x00\xff\r\n", b"\xfe\x00"];
    at_node.call(binary);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("exported.rdb");
    let (code, out, errors) = export(&file, node.address, &[]);
    assert_eq!(code, Some(0), "{out}{errors}");
    let place = directory.path().to_str().expect("a path");
    let options = ["--dir", place, "--dbfilename", "exported.rdb"];
    let redis = Redis::start(&program, &options);
    let mut at_redis = Client::connect(redis.address);
    testkit::eventually("it has loaded the file", || {
        at_redis.told("PING") == "+PONG" && at_redis.told("DBSIZE") != "0"
    });
    let binary: &[&[u8]] = &[b"GET", b"\x00\xff\r\n"];
    assert_eq!(
        at_redis.call(binary),
        testkit::Reply::Bulk(b"\xfe\x00".to_vec())
    );
    for client in [&mut at_node, &mut at_redis] {
        let binary: &[&[u8]] = &[b"DEL", b"\x00\xff\r\n"];
        client.call(binary);
    }
    for database in [0, 3, 15, 1] {
        let (expected, found) = (
            contents(&mut at_node, database),
            contents(&mut at_redis, database),
        );
        for (key, value) in &expected {
            assert_eq!(found.get(key), Some(value), "{key} of database {database}");
        }
        assert_eq!(found.len(), expected.len(), "database {database}");
    }
    assert_eq!(at_redis.told("FCALL hello 0"), "hi");
    // The way back: the file comes to another node as well.
    let other = start_server(&["--ephemeral"]);
    let (file, to) = (file.to_str().expect("a path"), other.address.to_string());
    let (code, out, errors) = run(&["import", file, "--to", &to]);
    assert_eq!(code, Some(0), "{out}{errors}");
}

#[test]
fn a_file_is_replaced_only_on_request_and_only_by_a_whole_one() {
    let node = start_server(&["--ephemeral"]);
    let mut client = Client::connect(node.address);
    client.told("SET a 1");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("dump.rdb");
    std::fs::write(&file, "mine").expect("a file");
    let (code, _, errors) = export(&file, node.address, &[]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("--force"), "{errors}");
    // A hash with a field that expires is nothing for Redis 7.0.
    client.told("HSET hash field 1");
    client.told("HPEXPIRE hash 500000 FIELDS 1 field");
    let (code, _, errors) = export(&file, node.address, &["--force"]);
    assert_eq!(code, Some(1));
    assert!(
        errors.contains("'hash'") && errors.contains("--redis 7.4"),
        "{errors}"
    );
    assert_eq!(std::fs::read(&file).expect("the file"), b"mine");
    let (code, out, errors) = export(&file, node.address, &["--force", "--redis", "7.4"]);
    assert_eq!(code, Some(0), "{out}{errors}");
    assert!(out.contains("2 keys"), "{out}");
    assert!(
        std::fs::read(&file)
            .expect("the file")
            .starts_with(b"REDIS0012")
    );
    let names = std::fs::read_dir(directory.path()).expect("the directory");
    assert_eq!(names.count(), 1);
}
