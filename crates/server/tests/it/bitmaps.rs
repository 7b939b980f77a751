//! Commands that write bits, and values that are carried over: over nodes, among conflicting clients, and at
//! the limit of values.

use kumiki_server::{Config, Limits};
use testkit::{Client, Reply};

use crate::support::nodes::nodes;
use crate::support::{bulk, config, ephemeral, int, ok, replica};

#[test]
fn bits_and_values_move_between_nodes() {
    let nodes = nodes(3);
    let [to, one, two] = [1, 2, 3].map(|node| nodes.key_of(node, "key"));
    for node in 1..=3 {
        let mut client = nodes.client(node);
        let set = nodes.client(1).call(&["MSET", &one, "a", &two, "bbb"]);
        assert_eq!(set, ok());
        let mut owner = nodes.client(1);
        assert_eq!(owner.call(&["SET", &to, "x", "EX", "1000"]), ok());
        assert_eq!(client.call(&["BITOP", "OR", &to, &one, &two]), int(3));
        assert_eq!(nodes.get(&to), bulk("cbb"));
        assert_eq!(owner.call(&["TTL", &to]), int(-1));
        let payload = match nodes.client(2).call(&["DUMP", &one]) {
            Reply::Bulk(payload) => payload,
            other => panic!("{other:?}"),
        };
        let restore: [&[u8]; 5] = [b"RESTORE", to.as_bytes(), b"0", &payload, b"REPLACE"];
        for call in [&[&b"MULTI"[..]][..], &restore, &[b"DEL", one.as_bytes()]] {
            client.call(call);
        }
        assert_eq!(client.call(&["EXEC"]), Reply::Array(vec![ok(), int(1)]));
        assert_eq!((nodes.get(&to), nodes.get(&one)), (bulk("a"), Reply::Null));
    }
}

#[test]
fn conflicting_clients_lose_no_bit() {
    const BITS: i64 = 64;
    const CLIENTS: usize = 4;
    let own = ephemeral(config());
    let replicated = replica::alone();
    let connections: [&(dyn Fn() -> Client + Sync); 2] =
        [&|| own.client(), &|| replicated.client()];
    let list = |number| Reply::Array(vec![int(number)]);
    for connect in connections {
        std::thread::scope(|scope| {
            for number in 0..CLIENTS as i64 {
                scope.spawn(move || {
                    let mut client = connect();
                    for at in (number..BITS).step_by(CLIENTS) {
                        let set = client.call(&["SETBIT", "bits", &at.to_string(), "1"]);
                        assert_eq!(set, int(0));
                        let sum = client.call(&["BITFIELD", "sum", "INCRBY", "u16", "3", "1"]);
                        assert!(matches!(sum, Reply::Array(_)), "{sum:?}");
                    }
                });
            }
        });
        let mut client = connect();
        let bits = client.call(&["BITFIELD", "bits", "GET", "i64", "0"]);
        let sum = client.call(&["BITFIELD", "sum", "GET", "u16", "3"]);
        assert_eq!((bits, sum), (list(-1), list(BITS)));
    }
}

#[test]
fn values_do_not_become_longer_than_the_limit() {
    let mut limits = Limits::default();
    limits.request.bulk = 64;
    let server = ephemeral(Config { limits, ..config() });
    let mut client = server.client();
    let too_long =
        Reply::Error("ERR string exceeds maximum allowed size (proto-max-bulk-len)".into());
    assert_eq!(client.call(&["SETBIT", "a", "511", "1"]), int(0));
    for call in [
        &["SETBIT", "a", "512", "1"][..],
        &["SETBIT", "new", "4294967295", "1"],
        &["BITFIELD", "a", "SET", "u8", "508", "1"],
        &[
            "BITFIELD",
            "new",
            "SET",
            "u8",
            "0",
            "1",
            "SET",
            "i64",
            "4294967295",
            "1",
        ],
    ] {
        assert_eq!(client.call(call), too_long, "{call:?}");
    }
    assert_eq!(client.call(&["STRLEN", "a"]), int(64));
    assert_eq!(client.call(&["EXISTS", "new"]), int(0));
    // It says that it has 100 bytes, of which a match stands for 99.
    let payload = b"\x00\xc3\x05\x40\x64\x00a\xe0\x5a\x00\x0a\x00\x71\x62\xa4\xb3\xd5\x1a\x58\x41";
    let restored = client.call(&[b"RESTORE", &b"new"[..], b"0", payload]);
    assert_eq!(restored, too_long);
    assert_eq!(client.call(&["EXISTS", "new"]), int(0));
}
