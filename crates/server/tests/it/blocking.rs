//! Clients that wait for keys: whose turn it is, what ends their wait, and what they are answered.

use std::time::{Duration, Instant};

use crate::support::replica::alone;
use crate::support::{Served, bulk, config, durable_with, ephemeral, error, int};
use testkit::{Client, Reply, eventually};

/// Waits until so many clients wait.
#[track_caller]
pub(crate) fn await_blocked(client: &mut Client, count: usize) {
    let field = format!("blocked_clients:{count}\r");
    eventually("the clients wait", || {
        let Reply::Bulk(text) = client.call(&["INFO", "clients"]) else {
            panic!("no text")
        };
        String::from_utf8_lossy(&text)
            .lines()
            .any(|line| format!("{line}\r") == field)
    });
}

/// Sends a command, given as words, after which so many clients wait.
#[track_caller]
pub(crate) fn block(served: &Served, command: &str, count: usize) -> Client {
    let mut client = served.client();
    client.send(&command.split(' ').collect::<Vec<_>>());
    await_blocked(&mut served.client(), count);
    client
}

/// Returns the number of a client, which sends nothing else meanwhile.
fn id_of(client: &mut Client) -> String {
    client.told("CLIENT ID")
}

fn list(elements: &[&str]) -> Reply {
    Reply::Array(elements.iter().map(|element| bulk(element)).collect())
}

#[test]
fn sixty_four_clients_are_served_in_the_order_in_which_they_came() {
    for served in [ephemeral(config()), durable_with(config())] {
        let mut clients: Vec<Client> = (1..=64)
            .map(|count| {
                let command = match count % 2 {
                    0 => "BLPOP other list 0",
                    _ => "BLMPOP 0 2 list other LEFT",
                };
                block(&served, command, count)
            })
            .collect();
        // In three commands, so that some wait while others are served.
        let mut pusher = served.client();
        for range in [0..1, 1..30, 30..64] {
            let mut args = vec!["RPUSH".to_owned(), "list".to_owned()];
            args.extend(range.map(|number| number.to_string()));
            pusher.send(&args);
        }
        let pushed = [pusher.reply(), pusher.reply(), pusher.reply()];
        assert_eq!(pushed, [int(1), int(29), int(34)]);
        for (number, client) in clients.iter_mut().enumerate() {
            let expected = match number % 2 {
                0 => format!("[list [{number}]]"),
                _ => format!("[list {number}]"),
            };
            assert_eq!(client.reply().shown(), expected);
        }
        assert_eq!(pusher.call(&["EXISTS", "list"]), int(0));
    }
}

/// The next command of the connection that pushes comes after the clients that wait.
#[test]
fn clients_that_wait_come_before_the_next_command() {
    let served = ephemeral(config());
    let mut pusher = served.client();
    for round in 0..50 {
        let mut waiting = block(&served, "BLPOP list 0", 1);
        let element = round.to_string();
        pusher.send(&["RPUSH", "list", &element]);
        pusher.send(&["LPOP", "list"]);
        assert_eq!((pusher.reply(), pusher.reply()), (int(1), Reply::Null));
        assert_eq!(waiting.reply(), list(&["list", &element]));
    }
}

/// Who has the reply of a push sees that the clients that waited have had their turn.
#[test]
fn clients_that_wait_come_before_the_reply() {
    let served = ephemeral(config());
    let (mut pusher, mut other) = (served.client(), served.client());
    for _ in 0..50 {
        let mut waiting = block(&served, "BRPOPLPUSH list to 0", 1);
        assert_eq!(pusher.told("LPUSH list x"), "1");
        assert_eq!(other.told("LRANGE to 0 -1"), "[x]");
        assert_eq!(waiting.reply(), bulk("x"));
        assert_eq!(other.told("DEL to"), "1");
    }
}

#[test]
fn chains_of_moves_end_before_the_next_command() {
    let served = ephemeral(config());
    let mut pusher = served.client();
    for _ in 0..20 {
        let mut first = block(&served, "BLMOVE a b RIGHT LEFT 0", 1);
        let mut second = block(&served, "BRPOPLPUSH b c 0", 2);
        let mut third = block(&served, "BLMOVE c a LEFT RIGHT 0", 3);
        pusher.send(&["RPUSH", "a", "x"]);
        for key in ["a", "b", "c"] {
            pusher.send(&["LRANGE", key, "0", "-1"]);
        }
        assert_eq!(pusher.reply(), int(1));
        let lists = [pusher.reply(), pusher.reply(), pusher.reply()];
        assert_eq!(lists, [list(&["x"]), list(&[]), list(&[])]);
        for client in [&mut first, &mut second, &mut third] {
            assert_eq!(client.reply(), bulk("x"));
        }
        assert_eq!(pusher.call(&["DEL", "a"]), int(1));
    }
}

/// Each command by which a key gets a list.
#[test]
fn every_command_that_brings_a_list_serves_clients() {
    let served = ephemeral(config());
    let mut client = served.client();
    let cases: [&[&str]; 14] = [
        &["LPUSH list x"],
        &["RPUSH list x"],
        &["RPUSH from x", "LMOVE from list LEFT LEFT"],
        &["RPUSH from x", "RPOPLPUSH from list"],
        &["RPUSH from x", "BLMOVE from list LEFT LEFT 0"],
        &["RPUSH from x", "RENAME from list"],
        &["RPUSH from x", "RENAMENX from list"],
        &["RPUSH from x", "COPY from list"],
        &["SELECT 1", "RPUSH list x", "MOVE list 0"],
        &["SELECT 1", "RPUSH list x", "SWAPDB 0 1"],
        &[
            "SET list string",
            "MULTI",
            "DEL list",
            "RPUSH list x",
            "EXEC",
        ],
        &["MULTI", "RPUSH list y", "DEL list", "RPUSH list x", "EXEC"],
        &["MULTI", "RPUSH from x", "RENAME from list", "EXEC"],
        &["EVAL redis.call('RPUSH',KEYS[1],'x') 1 list"],
    ];
    for case in cases {
        let mut waiting = block(&served, "BLPOP none list 0", 1);
        for command in case {
            let reply = client.told(command);
            assert!(!reply.starts_with('-'), "{command}: {reply}");
        }
        assert_eq!(waiting.reply(), list(&["list", "x"]), "{case:?}");
        assert_eq!(client.told("SELECT 0"), "+OK");
        client.told("FLUSHALL");
    }
}

#[test]
fn a_key_of_another_type_is_waited_for_and_a_wrong_destination_is_not() {
    let served = ephemeral(config());
    let mut client = served.client();
    let mut waiting = block(&served, "BLPOP key other 0", 1);
    assert_eq!(client.told("SET key string"), "+OK");
    assert_eq!(client.told("PING"), "+PONG");
    await_blocked(&mut client, 1);
    assert_eq!(client.told("RPUSH other x"), "1");
    assert_eq!(waiting.reply(), list(&["other", "x"]));
    // One that begins to wait meets the type at once.
    assert!(error(&waiting.call(&["BLPOP", "key", "0"])).starts_with("WRONGTYPE"));
    let mut waiting = block(&served, "BLMOVE from key LEFT LEFT 0", 1);
    let mut behind = block(&served, "BLPOP from 0", 2);
    assert_eq!(client.told("RPUSH from x"), "1");
    assert!(error(&waiting.reply()).starts_with("WRONGTYPE"));
    assert_eq!(behind.reply(), list(&["from", "x"]));
}

#[test]
fn a_time_that_is_over_is_answered_and_not_before() {
    let served = durable_with(config());
    let mut client = served.client();
    for command in [
        "BLPOP list other 0.05",
        "BRPOP list 0.05",
        "BLMOVE list other LEFT LEFT 0.05",
        "BRPOPLPUSH list other 0.05",
        "BLMPOP 0.05 2 list other LEFT",
    ] {
        let begin = Instant::now();
        assert_eq!(client.told(command), "nil", "{command}");
        assert!(begin.elapsed() >= Duration::from_millis(50), "{command}");
    }
    // The next one in the queue does not lose its place.
    let mut first = block(&served, "BLPOP list 0.2", 1);
    let mut second = block(&served, "BLPOP list 0", 2);
    assert_eq!(first.reply(), Reply::NullArray);
    await_blocked(&mut client, 1);
    assert_eq!(client.told("RPUSH list x"), "1");
    assert_eq!(second.reply(), list(&["list", "x"]));
}

#[test]
fn a_wait_is_ended_by_another_client() {
    let served = ephemeral(config());
    let (mut client, mut waiting) = (served.client(), served.client());
    let id = id_of(&mut waiting);
    let unblock = |client: &mut Client, reason: &[&str]| {
        client.call(&[&["CLIENT", "UNBLOCK", &id], reason].concat())
    };
    assert_eq!(unblock(&mut client, &[]), int(0));
    for (reason, expected) in [
        (&[][..], "nil"),
        (&["TIMEOUT"], "nil"),
        (&["error"], "UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        waiting.send(&["BLPOP", "list", "0"]);
        await_blocked(&mut client, 1);
        let shown = client.told("CLIENT LIST");
        let line = shown
            .lines()
            .find(|line| line.contains(&format!("id={id} ")));
        assert!(line.is_some_and(|line| line.contains("flags=b")), "{shown}");
        assert_eq!(unblock(&mut client, reason), int(1));
        assert_eq!(unblock(&mut client, reason), int(0));
        assert!(waiting.reply().shown().ends_with(expected), "{reason:?}");
    }
    // What it sends meanwhile is executed afterwards, in order.
    waiting.send(&["BLPOP", "list", "0"]);
    waiting.send(&["RPUSH", "list", "x"]);
    waiting.send(&["BLPOP", "list", "0"]);
    await_blocked(&mut client, 1);
    assert_eq!(client.told("EXISTS list"), "0");
    assert_eq!(unblock(&mut client, &[]), int(1));
    let replies = [waiting.reply(), waiting.reply(), waiting.reply()];
    assert_eq!(replies, [Reply::NullArray, int(1), list(&["list", "x"])]);
}

/// Nothing is taken for clients that have gone, or were killed.
#[test]
fn clients_that_go_leave_their_queues() {
    let served = ephemeral(config());
    let mut client = served.client();
    let gone = block(&served, "BLPOP list 0", 1);
    let mut killed = served.client();
    let id = id_of(&mut killed);
    killed.send(&["BLPOP", "list", "0"]);
    await_blocked(&mut client, 2);
    let mut last = block(&served, "BLPOP list 0", 3);
    drop(gone);
    assert_eq!(client.call(&["CLIENT", "KILL", "ID", &id]), int(1));
    await_blocked(&mut client, 1);
    assert_eq!(client.told("RPUSH list x"), "1");
    assert_eq!(last.reply(), list(&["list", "x"]));
    assert!(killed.is_closed());
}

#[test]
fn a_server_that_stops_does_not_wait() {
    let mut served = ephemeral(config());
    let mut waiting = block(&served, "BLPOP list 0", 1);
    let server = served.server.take().expect("it runs");
    server.stopper().stop();
    assert!(waiting.is_closed());
    server.wait().expect("an end in good order");
}

#[test]
fn nothing_waits_in_blocks_and_scripts() {
    let served = ephemeral(config());
    let mut client = served.client();
    for command in [
        "MULTI",
        "BLPOP a 0",
        "BLMOVE a b LEFT LEFT 0",
        "BLMPOP 0 1 a LEFT",
    ] {
        client.told(command);
    }
    assert_eq!(client.told("EXEC"), "[nil nil nil]");
    for command in ["'BLPOP',KEYS[1],0", "'BLMOVE',KEYS[1],'b','LEFT','LEFT',0"] {
        let script = format!("return redis.call({command})");
        assert_eq!(client.call(&["EVAL", &script, "1", "a"]), Reply::Null);
    }
    let script = "redis.call('RPUSH',KEYS[1],'x') return redis.call('BRPOP',KEYS[1],0)";
    assert_eq!(client.call(&["EVAL", script, "1", "a"]), list(&["a", "x"]));
}

/// A client whose time passes while writes are paused is answered; one whose turn comes then waits for their end.
#[test]
fn turns_wait_for_the_end_of_a_pause() {
    let served = ephemeral(config());
    let mut client = served.client();
    let mut waiting = block(&served, "BLPOP list 0", 1);
    assert_eq!(client.told("CLIENT PAUSE 86400000 WRITE"), "+OK");
    let mut pusher = served.client();
    pusher.send(&["RPUSH", "list", "x"]);
    await_blocked(&mut client, 2);
    assert_eq!(client.told("CLIENT UNPAUSE"), "+OK");
    assert_eq!(pusher.reply(), int(1));
    assert_eq!(waiting.reply(), list(&["list", "x"]));
}

/// What a client takes is not answered before the log has it.
#[test]
fn what_is_taken_waits_for_durability() {
    let served = durable_with(config());
    let mut client = served.client();
    assert_eq!(client.told("SET before x"), "+OK");
    let mut waiting = block(&served, "BLPOP list 0", 1);
    served.gate.close();
    client.send(&["RPUSH", "list", "x"]);
    let mut other = served.client();
    await_blocked(&mut other, 0);
    assert!(waiting.is_silent(Duration::from_millis(200)));
    served.gate.open();
    assert_eq!(waiting.reply(), list(&["list", "x"]));
    assert_eq!(client.reply(), int(1));
}

#[test]
fn clients_wait_on_a_replicated_partition() {
    let replica = alone();
    let mut client = replica.client();
    for count in 0..20 {
        let mut waiting: Vec<Client> = Vec::new();
        for number in 1..=3 {
            let mut own = replica.client();
            own.send(&["BLPOP", "list", "0"]);
            await_blocked(&mut client, number);
            waiting.push(own);
        }
        let element = |number: usize| format!("{count}-{number}");
        let pushed = client.call(&["RPUSH", "list", &element(0), &element(1), &element(2)]);
        assert_eq!(pushed, int(3));
        for (number, own) in waiting.iter_mut().enumerate() {
            assert_eq!(own.reply(), list(&["list", &element(number)]));
        }
    }
    let mut waiting = replica.client();
    assert_eq!(waiting.told("BLMOVE list other LEFT LEFT 0.01"), "nil");
    waiting.send(&["BLMOVE", "list", "other", "LEFT", "LEFT", "0"]);
    await_blocked(&mut client, 1);
    replica.end_member();
    assert!(error(&waiting.reply()).starts_with("CLUSTERDOWN"));
}

/// A queue of jobs, which workers move to lists of their own. Workers are killed at any moment; each job is in
/// one list.
#[test]
fn no_job_of_a_queue_is_lost_or_done_twice() {
    const JOBS: usize = 600;
    const WORKERS: usize = 6;
    let served = durable_with(config());
    let work = |worker: usize| {
        let own = format!("worker-{worker}");
        loop {
            let mut client = served.client();
            // Jobs of one that was killed are done first.
            while let Ok(reply) = client.try_call(&["LMOVE", &own, "done", "LEFT", "RIGHT"]) {
                if reply == Reply::Null {
                    break;
                }
            }
            while let Ok(reply) = client.try_call(&["BLMOVE", "jobs", &own, "LEFT", "RIGHT", "0"]) {
                if reply == bulk("stop") {
                    return;
                }
                if client
                    .try_call(&["LMOVE", &own, "done", "LEFT", "RIGHT"])
                    .is_err()
                {
                    break;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|own| scope.spawn(move || work(own)))
            .collect();
        let mut client = served.client();
        for job in 0..JOBS {
            client.call(&["RPUSH", "jobs", &job.to_string()]);
            if job % 40 == 0 {
                client.told("CLIENT KILL TYPE normal SKIPME yes");
            }
        }
        eventually("all jobs are taken", || client.told("LLEN jobs") == "0");
        for _ in 0..WORKERS {
            client.call(&["RPUSH", "jobs", "stop"]);
        }
        workers
            .into_iter()
            .for_each(|worker| worker.join().expect("it ends"));
        let mut found = Vec::new();
        let lists = (0..WORKERS).map(|own| format!("worker-{own}"));
        for name in lists.chain(["done".to_owned(), "jobs".to_owned()]) {
            let Reply::Array(elements) = client.call(&["LRANGE", &name, "0", "-1"]) else {
                panic!("no list")
            };
            found.extend(elements.into_iter().map(|element| element.shown()));
        }
        found.retain(|job| job != "stop");
        let mut numbers: Vec<usize> = found
            .iter()
            .map(|job| job.parse().expect("a job"))
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..JOBS).collect::<Vec<_>>());
    });
}
