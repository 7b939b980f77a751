//! Fields of hashes that expire are removed by the server, and announced.

use crate::support::replica::alone;
use crate::support::{bulk, config, durable, ephemeral, int, ok};
use kumiki_server::Durability;
use testkit::{Client, Reply, eventually};

/// More fields than one transaction removes.
const MANY: usize = 600;

fn event(name: &str, key: &str) -> Reply {
    let channel = format!("__keyevent@0__:{name}");
    let parts = ["pmessage", "__keyevent*", &channel, key];
    Reply::Array(parts.map(bulk).to_vec())
}

/// Has a server announce events of hashes and of keys in general, and a client subscribe to them.
fn subscribed(mut client: Client) -> Client {
    let set = client.call(&["CONFIG", "SET", "notify-keyspace-events", "Egh"]);
    assert_eq!(set, ok());
    client.call(&["PSUBSCRIBE", "__keyevent*"]);
    client
}

/// Sets so many fields that expire soon.
fn set_expiring(client: &mut Client, key: &str, count: usize) {
    let fields: Vec<String> = (0..count).map(|field| format!("field {field}")).collect();
    let count = count.to_string();
    let mut command = vec!["HSETEX", key, "PX", "50", "FIELDS", &count];
    for field in &fields {
        command.extend([field, "value"]);
    }
    assert_eq!(client.call(&command), int(1));
}

/// Waits until no field of a hash has a deadline any more, although no client writes it.
fn await_removal(client: &mut Client, key: &str) {
    eventually("the fields are removed", || {
        client.call(&["OBJECT", "ENCODING", key]) == bulk("listpack")
    });
}

#[test]
fn expired_fields_are_removed_and_announced() {
    let served = durable(Durability::Group);
    let mut subscriber = subscribed(served.client());
    let mut client = served.client();
    for (key, count) in [("small", 3), ("large", MANY)] {
        client.call(&["HSET", key, "lasting", "value"]);
        set_expiring(&mut client, key, count);
        for name in ["hset", "hset", "hexpire", "hexpired"] {
            assert_eq!(subscriber.reply(), event(name, key));
        }
        await_removal(&mut client, key);
        assert_eq!(client.call(&["HLEN", key]), int(1));
        client.call(&["DEL", key]);
        // One for each transaction that has removed some.
        while subscriber.reply() != event("del", key) {}
    }
}

#[test]
fn a_key_goes_with_its_last_field() {
    let served = ephemeral(config());
    let mut subscriber = subscribed(served.client());
    let mut client = served.client();
    for (key, count) in [("small", 3), ("large", MANY)] {
        set_expiring(&mut client, key, count);
        for name in ["hset", "hexpire", "hexpired", "del"] {
            assert_eq!(subscriber.reply(), event(name, key));
        }
        assert_eq!(client.call(&["EXISTS", key]), int(0));
        assert_eq!(client.call(&["DBSIZE"]), int(0));
    }
}

/// A key is held until what one transaction has removed is agreed upon.
#[test]
fn the_leader_of_a_replicated_partition_removes_them() {
    let replica = alone();
    let mut client = replica.client();
    client.call(&["HSET", "h", "lasting", "value"]);
    set_expiring(&mut client, "h", MANY);
    set_expiring(&mut client, "gone", 3);
    await_removal(&mut client, "h");
    assert_eq!(client.call(&["HLEN", "h"]), int(1));
    eventually("the key is gone", || {
        client.call(&["EXISTS", "gone"]) == int(0)
    });
}

#[test]
fn payloads_have_deadlines_of_fields() {
    let served = ephemeral(config());
    let mut client = served.client();
    for count in [3, MANY] {
        client.call(&["DEL", "h", "copy"]);
        for field in 0..count {
            let (name, at) = (format!("field {field}"), 4_102_444_800_000 + field % 3);
            let args = ["FIELDS", "1", &name, "value"];
            client.call(&[&["HSETEX", "h", "PXAT", &at.to_string()][..], &args].concat());
        }
        client.call(&["HSET", "h", "lasting", "value"]);
        let Reply::Bulk(payload) = client.call(&["DUMP", "h"]) else {
            panic!("it is there");
        };
        let restore: [&[u8]; 4] = [b"RESTORE", b"copy", b"0", &payload];
        assert_eq!(client.call(&restore), ok());
        for (name, at) in [
            ("field 0", 4_102_444_800_000),
            ("field 2", 4_102_444_800_002),
            ("lasting", -1),
        ] {
            let found = client.call(&["HPEXPIRETIME", "copy", "FIELDS", "1", name]);
            assert_eq!(found, Reply::Array(vec![int(at)]), "{name}");
        }
        assert_eq!(client.call(&["HLEN", "copy"]), int(count as i64 + 1));
    }
}

#[test]
fn fields_expire_in_every_database() {
    let served = ephemeral(config());
    let mut client = served.client();
    client.call(&["HSET", "h", "lasting", "value"]);
    assert_eq!(client.call(&["SELECT", "3"]), ok());
    client.call(&["HSET", "h", "lasting", "value"]);
    set_expiring(&mut client, "h", 3);
    set_expiring(&mut client, "gone", 3);
    await_removal(&mut client, "h");
    assert_eq!(client.call(&["HLEN", "h"]), int(1));
    eventually("the key is gone", || {
        client.call(&["EXISTS", "gone"]) == int(0)
    });
    assert_eq!(client.call(&["SELECT", "0"]), ok());
    assert_eq!(client.call(&["HLEN", "h"]), int(1));
}
