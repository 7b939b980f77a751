//! Eviction: policies, figures, events, and what clients learn of the use of keys.

use std::time::{Duration, Instant};

use base::eviction::{EvictionPolicy, EvictionSettings};
use kumiki_server::Config;
use testkit::{Client, Reply, eventually};

use crate::support::replica::alone_with;
use crate::support::{Served, bulk, config, durable_with, ephemeral, error, int, ok};

const LIMIT: u64 = 8 << 20;
const VALUE: usize = 1000;
/// So many keys of this size need about twice the limit.
const KEYS: usize = 14_000;

fn served_with(policy: EvictionPolicy, samples: usize) -> Served {
    ephemeral(config_with(policy, samples))
}

fn config_with(policy: EvictionPolicy, samples: usize) -> Config {
    Config {
        maxmemory: LIMIT,
        eviction: EvictionSettings {
            policy,
            samples,
            ..EvictionSettings::default()
        },
        ..config()
    }
}

fn key(number: usize) -> String {
    format!("key:{number}")
}

fn set_all(client: &mut Client, keys: impl Iterator<Item = usize>, expire: bool) -> usize {
    let value = "x".repeat(VALUE);
    let mut refused = 0;
    let keys: Vec<usize> = keys.collect();
    for some in keys.chunks(100) {
        for number in some {
            let (key, ttl) = (key(*number), (100_000 + number).to_string());
            match expire {
                true => client.push(&["SET", &key, &value, "EX", &ttl]),
                false => client.push(&["SET", &key, &value]),
            }
        }
        client.flush().expect("sent");
        for _ in some {
            let reply = client.reply();
            if reply != ok() {
                assert!(error(&reply).starts_with("OOM "), "{reply:?}");
                refused += 1;
            }
        }
    }
    refused
}

fn count_of(client: &mut Client, keys: impl Iterator<Item = usize>) -> usize {
    let keys: Vec<String> = keys.map(key).collect();
    let mut count = 0;
    for some in keys.chunks(500) {
        let mut call = vec!["EXISTS"];
        call.extend(some.iter().map(String::as_str));
        let Reply::Int(found) = client.call(&call) else {
            panic!("no number");
        };
        count += found as usize;
    }
    count
}

fn info(client: &mut Client, field: &str) -> u64 {
    let Reply::Bulk(text) = client.call(&["INFO", "everything"]) else {
        panic!("no text");
    };
    let text = String::from_utf8(text).unwrap();
    let found = text.lines().find_map(|line| line.strip_prefix(field));
    let found = found.and_then(|rest| rest.strip_prefix(':'));
    found.expect("the field is there").trim().parse().unwrap()
}

#[test]
fn writes_go_on_at_the_limit_and_memory_stays_below_it() {
    for policy in EvictionPolicy::ALL {
        let served = served_with(policy, 5);
        let mut client = served.client();
        let expire = policy.is_volatile();
        let refused = set_all(&mut client, 0..KEYS, expire);
        if policy == EvictionPolicy::NoEviction {
            assert!(refused > 1000, "{refused}");
            assert_eq!(info(&mut client, "evicted_keys"), 0);
            continue;
        }
        assert_eq!(refused, 0, "{policy}");
        let Reply::Int(keys) = client.call(&["DBSIZE"]) else {
            panic!("no number");
        };
        let evicted = info(&mut client, "evicted_keys");
        assert_eq!(evicted as usize + keys as usize, KEYS, "{policy}");
        assert!((4_500..8_000).contains(&keys), "{policy}: {keys} keys");
        eventually("memory is freed", || {
            info(&mut client, "used_memory") < LIMIT + LIMIT / 16
        });
    }
}

#[test]
fn the_keys_in_use_stay() {
    const USED: usize = 1000;
    for policy in [EvictionPolicy::AllKeysLru, EvictionPolicy::AllKeysLfu] {
        let served = served_with(policy, 10);
        let mut client = served.client();
        set_all(&mut client, 0..6000, false);
        // The server knows the second of a use, and no more.
        let from = Instant::now();
        while from.elapsed() < Duration::from_millis(2_100) {
            for number in 0..USED {
                client.push(&["GET", &key(number)]);
            }
            client.flush().expect("sent");
            for _ in 0..USED {
                client.reply();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // There are more keys that were not used than are to be evicted.
        set_all(&mut client, 6000..10_000, false);
        let evicted = info(&mut client, "evicted_keys");
        assert!((1500..4800).contains(&evicted), "{policy}: {evicted}");
        let left = count_of(&mut client, 0..USED);
        assert!(left > USED - 20, "{policy}: {left} of {USED} are left");
    }
}

#[test]
fn keys_without_a_deadline_are_never_evicted_by_volatile_policies() {
    let served = served_with(EvictionPolicy::VolatileTtl, 10);
    let mut client = served.client();
    assert_eq!(set_all(&mut client, 0..2000, false), 0);
    assert_eq!(set_all(&mut client, 2000..6000, true), 0);
    assert!(
        set_all(&mut client, 6000..KEYS, false) > 1000,
        "none is left"
    );
    assert_eq!(count_of(&mut client, 0..2000), 2000);
    assert_eq!(count_of(&mut client, 2000..6000), 0);
    // Reading and deleting goes on.
    assert_eq!(client.call(&["DEL", &key(0)]), int(1));
    assert_eq!(client.call(&["STRLEN", &key(1)]), int(VALUE as i64));
}

#[test]
fn a_limit_holds_from_the_next_command_on() {
    let served = ephemeral(config());
    let mut client = served.client();
    for round in 0..50 {
        assert_eq!(client.call(&["SET", "key", "value"]), ok(), "{round}");
        assert_eq!(client.call(&["CONFIG", "SET", "maxmemory", "1"]), ok());
        let refused = client.call(&["SET", "key", "value"]);
        assert!(error(&refused).starts_with("OOM "), "{round}: {refused:?}");
        assert_eq!(client.call(&["CONFIG", "SET", "maxmemory", "0"]), ok());
    }
}

#[test]
fn settings_change_while_the_server_runs() {
    let served = ephemeral(config());
    let mut client = served.client();
    set_all(&mut client, 0..4000, false);
    for (name, value) in [
        ("maxmemory-policy", "allkeys-random"),
        ("maxmemory-samples", "7"),
        ("lfu-log-factor", "0"),
        ("lfu-decay-time", "0"),
        ("maxmemory", "2097152"),
    ] {
        assert_eq!(client.call(&["CONFIG", "SET", name, value]), ok());
        let shown = client.call(&["CONFIG", "GET", name]);
        assert_eq!(shown, Reply::Array(vec![bulk(name), bulk(value)]));
    }
    let refused = client.call(&["CONFIG", "SET", "maxmemory-policy", "lru"]);
    let text = "ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - argument(s) must be \
        one of the following: noeviction, allkeys-lru";
    assert!(error(&refused).starts_with(text), "{refused:?}");
    assert!(matches!(
        client.call(&["CONFIG", "SET", "maxmemory-samples", "0"]),
        Reply::Error(_)
    ));
    eventually("keys go without a further command", || {
        served.db.stats().keys < 2000
    });
    let text = client.call(&["INFO", "memory"]);
    let Reply::Bulk(text) = text else { panic!() };
    assert!(String::from_utf8_lossy(&text).contains("maxmemory_policy:allkeys-random"));
}

#[test]
fn clients_learn_of_the_use_of_keys() {
    let served = served_with(EvictionPolicy::AllKeysLfu, 5);
    let mut client = served.client();
    assert_eq!(client.call(&["SET", "k", "1"]), ok());
    assert_eq!(client.call(&["OBJECT", "FREQ", "k"]), int(5));
    assert_eq!(client.call(&["OBJECT", "FREQ", "absent"]), Reply::Null);
    assert_eq!(client.call(&["GET", "k"]), bulk("1"));
    assert_eq!(client.call(&["OBJECT", "FREQ", "k"]), int(6));
    // These are no uses.
    for call in [
        &["OBJECT", "ENCODING", "k"][..],
        &["TYPE", "k"],
        &["TTL", "k"],
        &["EXISTS", "k"],
        &["MEMORY", "USAGE", "k"],
        &["SCAN", "0"],
    ] {
        for _ in 0..20 {
            client.call(call);
        }
    }
    assert_eq!(client.call(&["OBJECT", "FREQ", "k"]), int(6));
    assert_eq!(client.call(&["CLIENT", "NO-TOUCH", "ON"]), ok());
    assert_eq!(client.call(&["CONFIG", "SET", "lfu-log-factor", "0"]), ok());
    assert_eq!(client.call(&["GET", "k"]), bulk("1"));
    assert_eq!(client.call(&["OBJECT", "FREQ", "k"]), int(6));
    assert_eq!(client.call(&["TOUCH", "k", "absent"]), int(1));
    assert_eq!(client.call(&["OBJECT", "FREQ", "k"]), int(7));
    assert_eq!(client.call(&["CLIENT", "NO-TOUCH", "OFF"]), ok());
    assert_eq!(client.call(&["APPEND", "k", "2"]), int(2));
    assert_eq!(client.call(&["OBJECT", "FREQ", "k"]), int(8));
    let refused = client.call(&["OBJECT", "IDLETIME", "k"]);
    assert!(
        error(&refused).contains("LFU maxmemory policy is selected"),
        "{refused:?}"
    );
    let Reply::Bulk(dump) = client.call(&["DUMP", "k"]) else {
        panic!("no dump");
    };
    let restore = |client: &mut Client, option: &str, value: &str| {
        let args: [&[u8]; 7] = [
            b"RESTORE",
            b"r",
            b"0",
            &dump,
            b"REPLACE",
            option.as_bytes(),
            value.as_bytes(),
        ];
        assert_eq!(client.call(&args), ok());
    };
    restore(&mut client, "FREQ", "99");
    assert_eq!(client.call(&["OBJECT", "FREQ", "r"]), int(99));
    let policy = ["CONFIG", "SET", "maxmemory-policy", "volatile-lru"];
    assert_eq!(client.call(&policy), ok());
    restore(&mut client, "IDLETIME", "1000");
    let Reply::Int(idle) = client.call(&["OBJECT", "IDLETIME", "r"]) else {
        panic!("no number");
    };
    assert!((1000..1010).contains(&idle), "{idle}");
    assert_eq!(client.call(&["GET", "r"]), bulk("12"));
    let Reply::Int(idle) = client.call(&["OBJECT", "IDLETIME", "r"]) else {
        panic!("no number");
    };
    assert!((0..10).contains(&idle), "{idle}");
    let refused = client.call(&["OBJECT", "FREQ", "r"]);
    assert!(
        error(&refused).contains("policy is not selected"),
        "{refused:?}"
    );
}

#[test]
fn evicted_keys_are_announced() {
    let served = served_with(EvictionPolicy::AllKeysRandom, 5);
    let mut client = served.client();
    let notify = ["CONFIG", "SET", "notify-keyspace-events", "Ee"];
    assert_eq!(client.call(&notify), ok());
    let mut subscriber = served.client();
    subscriber.call(&["SUBSCRIBE", "__keyevent@0__:evicted"]);
    set_all(&mut client, 0..KEYS, false);
    for _ in 0..1000 {
        let Reply::Array(message) = subscriber.reply() else {
            panic!("no message");
        };
        assert_eq!(message[1], bulk("__keyevent@0__:evicted"));
        let Reply::Bulk(key) = &message[2] else {
            panic!("no key");
        };
        assert!(key.starts_with(b"key:"));
    }
}

/// Memory is freed when the deletions are durable; writers go on meanwhile.
#[test]
fn a_durable_server_evicts_while_syncs_are_under_way() {
    let served = durable_with(config_with(EvictionPolicy::AllKeysLru, 5));
    let mut client = served.client();
    assert_eq!(set_all(&mut client, 0..KEYS, false), 0);
    let keys = served.db.stats().keys;
    assert!((4_500..8_000).contains(&keys), "{keys} keys");
    let left = count_of(&mut client, 0..KEYS);
    assert_eq!(left as u64, keys);
    eventually("memory is freed", || {
        info(&mut client, "used_memory") < LIMIT + LIMIT / 16
    });
}

#[test]
fn all_databases_and_large_collections_are_evicted() {
    let served = served_with(EvictionPolicy::AllKeysRandom, 5);
    let mut client = served.client();
    let element = "e".repeat(500);
    for list in 0..40 {
        client.call(&["SELECT", &(list % 3).to_string()]);
        for _ in 0..10 {
            let mut push = vec!["RPUSH".to_owned(), format!("list:{list}")];
            push.extend((0..100).map(|_| element.clone()));
            let push: Vec<&str> = push.iter().map(String::as_str).collect();
            let pushed = client.call(&push);
            assert!(matches!(pushed, Reply::Int(_)), "{pushed:?}");
        }
    }
    assert!(info(&mut client, "evicted_keys") >= 20);
    eventually("memory is freed", || {
        info(&mut client, "used_memory") < LIMIT + LIMIT / 8
    });
}

/// The leader of a replicated partition evicts by entries of its log.
#[test]
fn replicated_partitions_evict() {
    let replica = alone_with(config_with(EvictionPolicy::AllKeysLru, 5));
    let mut client = replica.client();
    assert_eq!(set_all(&mut client, 0..KEYS, false), 0);
    eventually("as many keys are left as have room", || {
        let left = count_of(&mut client, 0..KEYS);
        let evicted = info(&mut client, "evicted_keys") as usize;
        (4_500..8_000).contains(&left) && left + evicted == KEYS
    });
    eventually("memory is freed", || {
        info(&mut client, "used_memory") < LIMIT + LIMIT / 16
    });
    // Reads and writes go on.
    assert_eq!(client.call(&["SET", "another", "1"]), ok());
    assert_eq!(client.call(&["GET", "another"]), bulk("1"));
}
