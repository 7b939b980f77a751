//! `SORT`, HyperLogLogs and payloads of collections: over nodes, in databases, and in snapshots.

use testkit::{Client, Reply};

use crate::support::nodes::nodes;
use crate::support::{bulk, config, ephemeral, int, ok};

/// The payload of the list 3, 1, 20, 2.
const LIST: &[u8] =
    b"\x12\x01\x02\x0f\x0f\x00\x00\x00\x04\x00\x03\x01\x01\x01\x14\x01\x02\x01\xff\x0a\x00+\xcc\x88\xbc\xcep\x89\x7f";

fn restore(client: &mut Client, key: &str) -> Reply {
    let call: [&[u8]; 5] = [b"RESTORE", key.as_bytes(), b"0", LIST, b"REPLACE"];
    client.call(&call)
}

fn list(elements: &[&str]) -> Reply {
    Reply::Array(elements.iter().map(|element| bulk(element)).collect())
}

#[test]
fn weights_may_be_on_any_node() {
    let nodes = nodes(3);
    let [from, to, gone] = [1, 2, 3].map(|node| nodes.key_of(node, "list"));
    let none = nodes.key_of(1, "none");
    let weights = [("1", "30"), ("2", "10"), ("3", "20"), ("20", "-1")];
    for (element, weight) in weights {
        let key = format!("weight{element}");
        assert_eq!(
            nodes.client(1).call(&["MSET", &key, weight, &none, ""]),
            ok()
        );
        assert_eq!(nodes.client(1).call(&["DEL", &none, &gone]), int(1));
    }
    for node in 1..=3 {
        let mut client = nodes.client(node);
        let mut owner = nodes.client(1);
        assert_eq!(restore(&mut owner, &from), ok());
        let sort: &[&str] = &["SORT", &from, "BY", "weight*"];
        assert_eq!(owner.call(sort), list(&["20", "2", "3", "1"]));
        let stored = [sort, &["GET", "weight*", "GET", "#", "STORE", &to]].concat();
        assert_eq!(client.call(&stored), int(8));
        let shown = ["-1", "20", "10", "2", "20", "3", "30", "1"];
        let by_none = nodes.client(2).call(&["SORT", &to, "BY", "nosort"]);
        assert_eq!(by_none, list(&shown));
        assert_eq!(client.call(&["COPY", &to, &gone]), int(1));
        assert_eq!(client.call(&["SORT", &none, "STORE", &gone]), int(0));
        assert_eq!(nodes.client(3).call(&["EXISTS", &gone]), int(0));
        let set: &[&str] = &["MSET", "weight2", "99", &gone, ""];
        for call in [&["MULTI"][..], set, sort, &["DEL", &gone]] {
            client.call(call);
        }
        let done = Reply::Array(vec![ok(), list(&["20", "3", "1", "2"]), int(1)]);
        assert_eq!(client.call(&["EXEC"]), done);
        let reset = client.call(&["MSET", "weight2", "10", &none, ""]);
        assert_eq!(reset, ok());
        assert_eq!(client.call(&["DEL", &none, &gone]), int(1));
    }
}

#[test]
fn hyper_log_logs_of_several_nodes_are_merged() {
    let nodes = nodes(3);
    let [one, two, to] = [1, 2, 3].map(|node| nodes.key_of(node, "count"));
    let [mut of_one, mut of_two, mut of_to] = [1, 2, 3].map(|node| nodes.client(node));
    for node in 1..=3 {
        let mut client = nodes.client(node);
        let before = int(i64::from(node > 1) * 3);
        assert_eq!(client.call(&["DEL", &one, &two, &to]), before);
        assert_eq!(of_one.call(&["PFADD", &one, "a", "b"]), int(1));
        assert_eq!(of_two.call(&["PFADD", &two, "b", "c"]), int(1));
        assert_eq!(of_one.call(&["PFCOUNT", &one]), int(2));
        assert_eq!(client.call(&["PFCOUNT", &one, &two, &to]), int(3));
        assert_eq!(client.call(&["PFMERGE", &to, &one, &two]), ok());
        assert_eq!(of_to.call(&["PFCOUNT", &to]), int(3));
        let encoding = of_to.call(&["PFDEBUG", "ENCODING", &to]);
        assert_eq!(encoding, Reply::status("sparse"));
    }
}

#[test]
fn patterns_name_keys_of_the_selected_database() {
    let server = ephemeral(config());
    let mut client = server.client();
    for (database, weights) in [("1", ["4", "3", "2", "1"]), ("0", ["1", "2", "3", "4"])] {
        assert_eq!(client.call(&["SELECT", database]), ok());
        for (element, weight) in ["1", "2", "3", "20"].iter().zip(weights) {
            assert_eq!(client.call(&["SET", &format!("w{element}"), weight]), ok());
        }
        assert_eq!(restore(&mut client, "list"), ok());
    }
    let sort = ["SORT", "list", "BY", "w*", "STORE", "sorted"];
    let shown = [
        "SORT", "sorted", "BY", "nosort", "GET", "#", "LIMIT", "0", "2",
    ];
    for (database, expected) in [("0", ["1", "2"]), ("1", ["20", "3"])] {
        assert_eq!(client.call(&["SELECT", database]), ok());
        assert_eq!(client.call(&sort), int(4));
        assert_eq!(client.call(&shown), list(&expected));
    }
}

#[test]
fn snapshots_have_the_payloads_of_collections() {
    let server = ephemeral(config());
    let mut client = server.client();
    assert_eq!(restore(&mut client, "list"), ok());
    assert_eq!(client.call(&["HSET", "hash", "f", "v"]), int(1));
    let hash = client.call(&["DUMP", "hash"]);
    assert!(matches!(
        client.call(&["KUMIKI.SNAPSHOT", "BEGIN"]),
        Reply::Array(_)
    ));
    let Reply::Array(piece) = client.call(&["KUMIKI.SNAPSHOT", "NEXT"]) else {
        panic!("no piece");
    };
    let Reply::Array(entries) = &piece[1] else {
        panic!("no entries: {piece:?}");
    };
    let of_entry = |entry: &Reply| match entry {
        Reply::Array(fields) => fields[..3].to_vec(),
        other => panic!("{other:?}"),
    };
    let expected = [
        vec![bulk("hash"), bulk("hash"), hash],
        vec![bulk("list"), bulk("list"), Reply::Bulk(LIST.to_vec())],
    ];
    assert_eq!(entries.iter().map(of_entry).collect::<Vec<_>>(), expected);
}
