//! Keys of all types, and what they have, in Kumiki and in Redis.

use std::collections::BTreeMap;

use testkit::{Client, Reply};

/// Commands that make values of all types, in all encodings that the server has, in several databases.
pub(crate) fn fill(client: &mut Client) {
    let mut tell = |command: &str| {
        let reply = client.told(command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    };
    let long = "long text ".repeat(50).replace(' ', "_");
    for command in [
        "SET text hello",
        "SET number -12345",
        "SET small 7",
        "SET float 3.25",
        &format!("SET long {long}"),
        "SET soon 1 PX 1",
        "SET later 1 PXAT 4102444800123",
        "SETBIT bits 1000 1",
        "PFADD visitors a b c d",
        "RPUSH list a b c 1 2 3",
        "SADD numbers 1 2 3 70000 5000000000",
        "SADD words a b c",
        "ZADD scores 1.5 a -inf b inf c 3 d",
        "GEOADD places 13.361389 38.115556 Palermo 15.087269 37.502669 Catania",
        "HSET hash name value other 12",
        "EXPIREAT hash 4102444800",
        "XADD stream 1-1 temperature 20 place roof",
        "XADD stream 1-2 temperature 21 place roof",
        "XADD stream 5-0 other fields here too",
        "XDEL stream 1-2",
        "XGROUP CREATE stream readers 0",
        "XREADGROUP GROUP readers one COUNT 1 STREAMS stream >",
        "XGROUP CREATECONSUMER stream readers two",
        "XGROUP CREATE stream others $",
        "SELECT 3",
        "SET text in-database-3",
        "SELECT 15",
        "RPUSH list x",
        "SELECT 0",
    ] {
        tell(command);
    }
    for number in 0..700 {
        tell(&format!("RPUSH many:list element-{number}-{long}"));
        tell(&format!("SADD many:set member-{number}"));
        tell(&format!("ZADD many:scores {number}.25 member-{number}"));
        tell(&format!("HSET many:hash field-{number} {number}"));
        tell(&format!("SADD many:numbers {}", number * 3));
        tell(&format!("XADD many:stream * number {number}"));
        tell(&format!("SET key:{number} value-{number}"));
    }
    let library = "#!lua name=mine\nredis.register_function('hello', function() return 'hi' end)";
    assert_eq!(client.call(&["FUNCTION", "LOAD", library]).shown(), "mine");
}

/// Returns the contents of a database: each key with its type, its deadline and its elements in a fixed order.
pub(crate) fn contents(client: &mut Client, database: u32) -> BTreeMap<String, String> {
    assert_eq!(client.told(&format!("SELECT {database}")), "+OK");
    let keys = items(client.call(&["KEYS", "*"]));
    keys.into_iter()
        .map(|key| {
            let text = described(client, &key);
            (key, text)
        })
        .collect()
}

/// Returns the elements of a reply as texts.
pub(crate) fn items(reply: Reply) -> Vec<String> {
    match reply {
        Reply::Array(items) => items.iter().map(Reply::shown).collect(),
        other => vec![other.shown()],
    }
}

fn described(client: &mut Client, key: &str) -> String {
    let kind = client.call(&["TYPE", key]).shown();
    let deadline = client.call(&["PEXPIRETIME", key]).shown();
    let mut parts = |args: &[&str], is_ordered: bool| {
        let mut items = items(client.call(args));
        if !is_ordered {
            items.sort();
        }
        items.join(" ")
    };
    let value = match kind.trim_start_matches('+') {
        "string" => parts(&["GET", key], true),
        "list" => parts(&["LRANGE", key, "0", "-1"], true),
        "set" => parts(&["SMEMBERS", key], false),
        "zset" => parts(&["ZRANGE", key, "0", "-1", "WITHSCORES"], true),
        "hash" => {
            let names = parts(&["HKEYS", key], false);
            names + &parts(&["HVALS", key], false)
        }
        "stream" => {
            let mut all = parts(&["XRANGE", key, "-", "+"], true);
            all += &parts(&["XINFO", "GROUPS", key], true);
            for group in ["readers", "others"] {
                all += &parts(&["XPENDING", key, group], true);
            }
            all
        }
        other => panic!("{key} is a {other}"),
    };
    format!("{kind} {deadline} {value}")
}
