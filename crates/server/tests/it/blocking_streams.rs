//! Clients that wait for entries of streams: by ids of their own, and as consumers of groups.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::blocking::{await_blocked, block};
use crate::support::replica::alone;
use crate::support::{config, durable_with, ephemeral, error, int};
use testkit::{Client, Reply, eventually};

const GONE: &str = "UNBLOCKED the stream key no longer exists";
const NO_GROUP: &str = "NOGROUP the consumer group this client was blocked on no longer exists";

/// One entry is for all who wait for it; who waits for a later one goes on.
#[test]
fn an_entry_is_for_all_readers() {
    for served in [ephemeral(config()), durable_with(config())] {
        let mut client = served.client();
        client.told("XADD s 1 a b");
        let mut later = block(&served, "XREAD BLOCK 0 STREAMS s 9", 1);
        let mut readers: Vec<Client> = (2..=40)
            .map(|count| {
                let command = match count % 3 {
                    0 => "XREAD BLOCK 0 STREAMS s $",
                    1 => "XREAD BLOCK 0 COUNT 1 STREAMS other s 0 1",
                    _ => "XREAD BLOCK 60000 STREAMS none s $ 1-0",
                };
                block(&served, command, count)
            })
            .collect();
        client.send(&["XADD", "s", "2", "c", "d"]);
        client.send(&["INFO", "clients"]);
        assert_eq!(client.reply().shown(), "2-0");
        assert!(client.reply().shown().contains("blocked_clients:1\r\n"));
        for reader in &mut readers {
            assert_eq!(reader.reply().shown(), "[[s [[2-0 [c d]]]]]");
        }
        assert_eq!(client.told("XADD s 10 e f"), "10-0");
        assert_eq!(later.reply().shown(), "[[s [[10-0 [e f]]]]]");
    }
}

#[test]
fn the_last_id_is_that_of_when_the_command_came() {
    let served = ephemeral(config());
    let mut client = served.client();
    for id in ["1", "2"] {
        client.call(&["XADD", "s", id, "f", "v"]);
    }
    client.told("XDEL s 2");
    // Behind the deleted one, and only once of a key.
    let mut waiting = block(&served, "XREAD BLOCK 0 STREAMS s s none $ $ $", 1);
    // What comes and goes wakes none; what comes together is seen together.
    for command in [
        "MULTI",
        "XADD s 3 f v",
        "XDEL s 3",
        "EXEC",
        "MULTI",
        "XADD s 4 f one",
        "XADD s 5 f two",
        "XADD other 1 f v",
        "EXEC",
    ] {
        assert!(!client.told(command).starts_with('-'), "{command}");
    }
    assert_eq!(
        waiting.reply().shown(),
        "[[s [[4-0 [f one]] [5-0 [f two]]]]]"
    );
    // One that is not there has no last id.
    let mut waiting = block(&served, "XREAD BLOCK 0 STREAMS none $", 1);
    assert_eq!(client.told("XADD none 0-1 f v"), "0-1");
    assert_eq!(waiting.reply().shown(), "[[none [[0-1 [f v]]]]]");
    // As of Redis 7.4.
    let mut waiting = block(&served, "XREAD BLOCK 0 STREAMS new +", 1);
    assert_eq!(client.told("XADD new 1 f v"), "1-0");
    assert_eq!(waiting.reply().shown(), "[[new [[1-0 [f v]]]]]");
    assert_eq!(
        client.told("XREAD BLOCK 0 STREAMS new +"),
        "[[new [[1-0 [f v]]]]]"
    );
}

/// A reader without a group goes on waiting for a key that is deleted or gets a value of another type.
#[test]
fn a_reader_outlives_its_stream() {
    let served = ephemeral(config());
    let mut client = served.client();
    client.told("XADD s 5 f v");
    let mut waiting = block(&served, "XREAD BLOCK 0 STREAMS s $", 1);
    for command in [
        "DEL s",
        "SET s string",
        "DEL s",
        "XADD s 5 f v",
        "FLUSHALL",
        "XADD s 3 f v",
    ] {
        client.told(command);
        await_blocked(&mut client, 1);
    }
    assert_eq!(client.told("XADD s 6 f v"), "6-0");
    assert_eq!(waiting.reply().shown(), "[[s [[6-0 [f v]]]]]");
    client.told("SET s string");
    assert!(error(&client.call(&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"])).contains("WRONG"));
}

#[test]
fn consumers_of_a_group_are_served_in_the_order_in_which_they_came() {
    for served in [ephemeral(config()), durable_with(config())] {
        let mut client = served.client();
        for group in ["g", "h"] {
            client.call(&["XGROUP", "CREATE", "s", group, "$", "MKSTREAM"]);
        }
        let mut waiting: Vec<(usize, Client)> = (0..20)
            .map(|number| {
                let group = ["g", "h"][number % 2];
                let command =
                    format!("XREADGROUP GROUP {group} c{number} COUNT 1 BLOCK 0 STREAMS s >");
                (number, block(&served, &command, number + 1))
            })
            .collect();
        for id in 1..=10 {
            client.send(&["XADD", "s", &id.to_string(), "f", "v"]);
        }
        for id in 1..=10 {
            assert_eq!(client.reply().shown(), format!("{id}-0"));
        }
        for (number, own) in &mut waiting {
            let id = *number / 2 + 1;
            assert_eq!(own.reply().shown(), format!("[[s [[{id}-0 [f v]]]]]"));
        }
        let pending = client.told("XPENDING s h - + 10 c7");
        assert!(pending.starts_with("[[4-0 c7 "), "{pending}");
    }
}

/// Those who wait come before a consumer that has just come, but only those of its group.
#[test]
fn newcomers_get_in_the_line_of_their_group() {
    let served = ephemeral(config());
    let mut client = served.client();
    client.told("XGROUP CREATE s g $ MKSTREAM");
    client.told("XADD s 1 f v");
    client.told("XGROUP CREATE s other 0");
    client.told("XREADGROUP GROUP g own STREAMS s >");
    let mut first = block(&served, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >", 1);
    let read = "[[s [[1-0 [f v]]]]]";
    // Another group, a reader by id, and what is pending are answered at once.
    for command in [
        "XREADGROUP GROUP other a BLOCK 0 STREAMS s >",
        "XREAD BLOCK 0 STREAMS s 0",
        "XREADGROUP GROUP g own BLOCK 0 STREAMS s 0",
    ] {
        assert_eq!(client.told(command), read, "{command}");
    }
    assert_eq!(
        client.told("XREADGROUP GROUP g own BLOCK 0 STREAMS s 5"),
        "[[s []]]"
    );
    let mut second = block(&served, "XREADGROUP GROUP g b BLOCK 0 STREAMS s >", 2);
    assert_eq!(client.told("XGROUP SETID s g 0"), "+OK");
    assert_eq!(first.reply().shown(), read);
    await_blocked(&mut client, 1);
    assert_eq!(client.told("XADD s 2 f v"), "2-0");
    assert_eq!(second.reply().shown(), "[[s [[2-0 [f v]]]]]");
}

/// Each way in which a stream or its group goes.
#[test]
fn consumers_learn_that_their_stream_has_gone() {
    let served = ephemeral(config());
    let mut client = served.client();
    let cases: [(&[&str], &str); 15] = [
        (&["DEL s"], GONE),
        (&["UNLINK s"], GONE),
        (&["SET s string"], GONE),
        (&["RENAME s elsewhere"], GONE),
        (&["MOVE s 1"], GONE),
        (&["FLUSHDB"], GONE),
        (&["FLUSHALL"], GONE),
        (&["SWAPDB 0 1"], GONE),
        (&["PEXPIRE s 0"], GONE),
        (&["MULTI", "DEL s", "SADD s member", "EXEC"], GONE),
        (&["SADD set member", "SUNIONSTORE s set"], GONE),
        (&["SET string x", "COPY string s REPLACE"], GONE),
        (&["EVAL redis.call('DEL',KEYS[1]) 1 s"], GONE),
        (&["XGROUP DESTROY s g"], NO_GROUP),
        (&["XADD from 1 f v", "RENAME from s"], NO_GROUP),
    ];
    for (commands, expected) in cases {
        client.told("XGROUP CREATE s g $ MKSTREAM");
        let waiting = [1, 2, 3].map(|count| {
            let command = format!("XREADGROUP GROUP g c{count} BLOCK 0 STREAMS none s > >");
            client.told("XGROUP CREATE none g $ MKSTREAM");
            block(&served, &command, count)
        });
        for command in commands {
            let reply = client.told(command);
            assert!(!reply.starts_with('-'), "{command}: {reply}");
        }
        for mut own in waiting {
            assert_eq!(error(&own.reply()), expected, "{commands:?}");
        }
        client.told("FLUSHALL");
    }
    // A deadline that passes without any command on the key.
    client.told("XGROUP CREATE s g $ MKSTREAM");
    let mut waiting = block(&served, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >", 1);
    assert_eq!(client.told("PEXPIRE s 30"), "1");
    assert_eq!(error(&waiting.reply()), GONE);
    // A group that comes again at once is the group.
    client.told("XGROUP CREATE s g $ MKSTREAM");
    let mut waiting = block(&served, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >", 1);
    for command in [
        "MULTI",
        "XGROUP DESTROY s g",
        "XADD s 1 f v",
        "XGROUP CREATE s g 0",
        "EXEC",
    ] {
        client.told(command);
    }
    assert_eq!(waiting.reply().shown(), "[[s [[1-0 [f v]]]]]");
}

#[test]
fn a_wait_for_entries_ends() {
    let served = ephemeral(config());
    let mut client = served.client();
    client.told("XGROUP CREATE s g $ MKSTREAM");
    let commands = [
        "XREAD BLOCK 50 STREAMS s none $ $",
        "XREADGROUP GROUP g c BLOCK 50 STREAMS s >",
    ];
    for command in commands {
        let begin = Instant::now();
        assert_eq!(client.told(command), "nil", "{command}");
        assert!(begin.elapsed() >= Duration::from_millis(50), "{command}");
    }
    let mut waiting = served.client();
    let id = waiting.told("CLIENT ID");
    for command in commands {
        for (reason, expected) in [
            ("TIMEOUT", "nil"),
            ("ERROR", "UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        ] {
            let command = command.replace("50", "0");
            waiting.send(&command.split(' ').collect::<Vec<_>>());
            await_blocked(&mut client, 1);
            let unblocked = client.told(&format!("CLIENT UNBLOCK {id} {reason}"));
            assert_eq!(unblocked, "1");
            assert!(waiting.reply().shown().ends_with(expected), "{reason}");
        }
    }
    for (timeout, expected) in [
        ("-1", "ERR timeout is negative"),
        ("0.5", "ERR timeout is not an integer or out of range"),
        ("9223372036854775807", "ERR timeout is out of range"),
    ] {
        let reply = client.call(&["XREAD", "BLOCK", timeout, "STREAMS", "s", "$"]);
        assert_eq!(error(&reply), expected);
    }
    // The queues are empty: the consumer that comes next is the first one.
    let mut last = block(&served, "XREADGROUP GROUP g last BLOCK 0 STREAMS s >", 1);
    client.told("XADD s 1 f v");
    assert_eq!(last.reply().shown(), "[[s [[1-0 [f v]]]]]");
}

#[test]
fn reads_do_not_wait_in_blocks_and_scripts() {
    let served = ephemeral(config());
    let mut client = served.client();
    client.told("XGROUP CREATE s g $ MKSTREAM");
    for command in [
        "MULTI",
        "XREAD BLOCK 0 STREAMS s $",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
        "XADD s 1 f v",
        "XREAD BLOCK 0 STREAMS s 0",
    ] {
        client.told(command);
    }
    assert_eq!(client.told("EXEC"), "[nil nil 1-0 [[s [[1-0 [f v]]]]]]");
    // Without a command that reads before it writes.
    for command in [
        "MULTI",
        "XREAD BLOCK 0 STREAMS s $",
        "XREAD BLOCK 0 STREAMS s 0",
    ] {
        client.told(command);
    }
    assert_eq!(client.told("EXEC"), "[nil [[s [[1-0 [f v]]]]]]");
    for command in [
        "'XREAD','BLOCK','0','STREAMS',KEYS[1],'$'",
        "'XREADGROUP','GROUP','g','c','BLOCK','0','STREAMS',KEYS[1],'>'",
    ] {
        let script =
            format!("redis.call('XGROUP','SETID','s','g','$') return redis.call({command})");
        assert_eq!(client.call(&["EVAL", &script, "1", "s"]), Reply::Null);
    }
}

/// Clients of one key that wait for different types.
#[test]
fn types_do_not_hide_each_other() {
    let served = ephemeral(config());
    let mut client = served.client();
    let mut list = block(&served, "BLPOP key 0", 1);
    let mut sorted = block(&served, "BZPOPMIN key 0", 2);
    let mut stream = block(&served, "XREAD BLOCK 0 STREAMS key $", 3);
    let mut last = block(&served, "BLPOP key 0", 4);
    for (command, own, expected) in [
        ("XADD key 1 f v", &mut stream, "[[key [[1-0 [f v]]]]]"),
        ("ZADD key 1 m", &mut sorted, "[key m 1]"),
        ("RPUSH key x", &mut list, "[key x]"),
        ("RPUSH key y", &mut last, "[key y]"),
    ] {
        client.told(command);
        assert_eq!(own.reply().shown(), expected);
        client.told("DEL key");
    }
}

#[test]
fn entries_are_waited_for_on_a_replicated_partition() {
    let replica = alone();
    let mut client = replica.client();
    client.told("XGROUP CREATE s g $ MKSTREAM");
    let (mut reader, mut consumer) = (replica.client(), replica.client());
    for id in 1..=10 {
        reader.send(&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]);
        await_blocked(&mut client, 1);
        let args = ["GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">"];
        consumer.send(&[&["XREADGROUP"][..], &args].concat());
        await_blocked(&mut client, 2);
        assert_eq!(client.told(&format!("XADD s {id} f v")), format!("{id}-0"));
        let expected = format!("[[s [[{id}-0 [f v]]]]]");
        assert_eq!(reader.reply().shown(), expected);
        assert_eq!(consumer.reply().shown(), expected);
    }
    reader.send(&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]);
    await_blocked(&mut client, 1);
    replica.end_member();
    assert!(error(&reader.reply()).starts_with("CLUSTERDOWN"));
}

/// Consumers that are killed at any moment. Each entry is delivered to one of them, and to no other.
#[test]
fn no_entry_is_delivered_twice_or_lost() {
    const ENTRIES: usize = 400;
    const CONSUMERS: usize = 6;
    let served = durable_with(config());
    let mut client = served.client();
    client.told("XGROUP CREATE s g $ MKSTREAM");
    let consume = |own: usize| {
        let (name, mut seen) = (format!("c{own}"), Vec::new());
        loop {
            let mut client = served.client();
            let args = [
                "GROUP", "g", &name, "COUNT", "3", "BLOCK", "0", "STREAMS", "s", ">",
            ];
            while let Ok(reply) = client.try_call(&[&["XREADGROUP"][..], &args].concat()) {
                let Reply::Array(streams) = reply else {
                    assert_eq!(error(&reply), NO_GROUP);
                    return seen;
                };
                let Some(Reply::Array(stream)) = streams.first() else {
                    panic!("{streams:?}")
                };
                let Some(Reply::Array(entries)) = stream.get(1) else {
                    panic!("{stream:?}")
                };
                for entry in entries {
                    let Reply::Array(entry) = entry else {
                        panic!("{entry:?}")
                    };
                    seen.push(entry[0].shown());
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|own| scope.spawn(move || consume(own)))
            .collect();
        for entry in 1..=ENTRIES {
            client.call(&["XADD", "s", &entry.to_string(), "f", "v"]);
            if entry % 40 == 0 {
                client.told("CLIENT KILL TYPE normal SKIPME yes");
            }
        }
        eventually("all entries are delivered", || {
            client
                .told("XPENDING s g")
                .starts_with(&format!("[{ENTRIES} "))
        });
        await_blocked(&mut client, CONSUMERS);
        let Reply::Array(pending) = client.call(&["XPENDING", "s", "g", "-", "+", "1000"]) else {
            panic!("no entries")
        };
        let pending: BTreeSet<String> = pending
            .iter()
            .map(|entry| {
                let text = entry.shown();
                // Its deliveries.
                assert!(text.ends_with(" 1]"), "{text}");
                let id = text.trim_start_matches('[').split(' ').next();
                id.expect("an id").to_owned()
            })
            .collect();
        assert_eq!(pending.len(), ENTRIES);
        assert_eq!(client.call(&["XGROUP", "DESTROY", "s", "g"]), int(1));
        let mut all = BTreeSet::new();
        for consumer in consumers {
            for id in consumer.join().expect("it ends") {
                assert!(pending.contains(&id), "{id}");
                assert!(all.insert(id), "twice");
            }
        }
    });
}
