//! Replicated partitions of real processes: nodes are killed, stopped and wiped; acknowledged
//! writes stay, and commands continue.

mod blocking;
mod deadlines;
mod eviction;
mod functions;
mod membership;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::support::clients::output;
use crate::support::replicas::{Follower, Outcome, Replicas, STEADY};
use crate::support::transfers;
use testkit::SetOnDrop;
use testkit::client::Answer;
use testkit::peers::{self, Group};
use testkit::wait::go_on_until;
use testkit::workload::{Ended, Subject, Workload};
use testkit::{Client, Frame, Reply, eventually};

fn text(frame: &Frame) -> String {
    String::from_utf8_lossy(frame.bytes().unwrap_or_default()).into_owned()
}

/// Returns the answer of a node that is asked directly.
fn ask(replicas: &Replicas, node: usize, args: &[&str]) -> String {
    text(&Client::connect(replicas.address(node)).frame(args))
}

/// Waits until the running nodes have executed the same entries.
fn wait_until_equal(replicas: &Replicas) {
    eventually("the replicas are equal", || {
        let applied = |node| replicas.said(node, "applied");
        let applied: Vec<_> = replicas.running().map(applied).collect();
        applied[0].is_some() && applied.iter().all(|one| *one == applied[0])
    });
}

/// Sets keys with rising numbers until it is stopped. Counts the acknowledged writes and returns
/// them, and the longest time without one.
fn write(
    mut client: Follower,
    name: &str,
    stop: &AtomicBool,
    count: &AtomicUsize,
) -> (Vec<u64>, Duration) {
    let (mut acknowledged, mut longest) = (Vec::new(), Duration::ZERO);
    let mut last = Instant::now();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (key, value) = (format!("{name}{number}"), number.to_string());
        if let Outcome::Reply(frame) = client.call(&["SET", &key, &value]) {
            assert_eq!(text(&frame), "OK");
            acknowledged.push(number);
            count.fetch_add(1, Ordering::Relaxed);
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    (acknowledged, longest)
}

/// Runs `disturb` while several clients write; then all acknowledged writes must be there. Returns
/// the longest time in which a client was not served.
fn write_while(replicas: &mut Replicas, disturb: impl FnOnce(&mut Replicas)) -> Duration {
    let stop = AtomicBool::new(false);
    let counts = [const { AtomicUsize::new(0) }; 3];
    let written: Vec<_> = std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        let writers: Vec<_> = ["a", "b", "c"]
            .map(|name| (name, replicas.client()))
            .into_iter()
            .zip(&counts)
            .map(|((name, client), count)| {
                let stop = &stop;
                scope.spawn(move || (name, write(client, name, stop, count)))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        disturb(replicas);
        std::thread::sleep(Duration::from_secs(1));
        go_on_until(|| {
            let enough = |count: &AtomicUsize| count.load(Ordering::Relaxed) > 10;
            counts.iter().all(enough) || writers.iter().any(|writer| writer.is_finished())
        });
        stop.store(true, Ordering::Relaxed);
        let ended = writers
            .into_iter()
            .map(|writer| writer.join().expect("it writes"));
        ended.collect()
    });
    let mut client = replicas.client();
    let mut longest = Duration::ZERO;
    for (name, (acknowledged, paused)) in written {
        assert!(
            acknowledged.len() > 10,
            "{name}: {} writes",
            acknowledged.len()
        );
        longest = longest.max(paused);
        for number in acknowledged {
            let value = client.insist(&["GET", &format!("{name}{number}")]);
            assert_eq!(
                text(&value),
                number.to_string(),
                "{name}{number} is missing"
            );
        }
    }
    longest
}

#[test]
fn a_leader_that_is_killed_is_replaced_and_nothing_acknowledged_is_missing() {
    let mut replicas = Replicas::start(1, 3);
    let first = replicas.leader(1);
    let longest = write_while(&mut replicas, |replicas| replicas.kill_node(first));
    assert!(
        longest < Duration::from_secs(15),
        "{longest:?} without a leader"
    );
    assert_ne!(replicas.leader(1), first);
    let (code, table, said) = replicas.command(&["status"]);
    assert_eq!(code, Some(1), "{table}{said}");
    assert!(said.contains(&format!("node {first}: ")), "{said}");
    // It comes back and catches up. It leaves files alone that do not belong to the replica.
    let data = replicas.data(first);
    let (code, report, said) = crate::support::process::run(&["check", &data]);
    assert!(
        code == Some(0) && report.contains("sound"),
        "{report}{said}"
    );
    let (code, _, said) = crate::support::process::run(&["serve", "--data", &data]);
    assert!(code == Some(1) && said.contains("--data"), "{said}");
    replicas.start_node(first);
    wait_until_equal(&replicas);
    eventually("all is well", || replicas.command(&["status"]).0 == Some(0));
    let (_, table, _) = replicas.command(&["status"]);
    assert_eq!(table.matches("follower").count(), 2, "{table}");
    assert_eq!(table.matches("leader").count(), 1, "{table}");
    let (_, json, _) = replicas.command(&["status", "--json"]);
    let leader = format!("\"leader\": {}", replicas.leader(1));
    assert!(
        json.contains(&leader) && json.contains("\"problems\": []"),
        "{json}"
    );
}

#[test]
fn leadership_is_handed_over_by_command_and_at_a_stop() {
    // Without a handover, the loss of the leader would not be noticed in time.
    let mut replicas = Replicas::start_with(1, 3, &["--election-timeout", "5s"]);
    let first = replicas.leader(1);
    let next = first % 3 + 1;
    replicas.transfer(&["--to", &next.to_string()]);
    // The former leader may not have heard from it for a moment.
    eventually("the next one leads", || replicas.leader(1) == next);
    let (code, out, _) = replicas.command(&["transfer", "--to", &next.to_string()]);
    assert_eq!(code, Some(0));
    assert!(out.contains("leads partition 1 already"), "{out}");
    let longest = write_while(&mut replicas, |replicas| {
        let status = replicas.stop_node(next);
        assert!(status.success(), "{status}");
    });
    assert!(
        longest < Duration::from_secs(4),
        "{longest:?} without a leader"
    );
    assert_ne!(replicas.leader(1), next);
    let (code, out, said) = replicas.command(&["remove", "--node", &next.to_string()]);
    assert_eq!(code, Some(0), "{out}{said}");
    // Of the two that are left both are needed.
    let left: Vec<usize> = replicas.running().collect();
    let other = left.iter().find(|node| **node != replicas.leader(1));
    replicas.kill_node(*other.expect("a follower"));
    let (code, _, said) = replicas.command(&["transfer", "--timeout", "20"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("kumiki: "), "{said}");
}

/// A client that knows no other node, such as one with an old list of nodes, is not refused.
#[test]
fn commands_wait_for_the_next_leader_while_a_leader_hands_over() {
    let mut replicas = Replicas::start_with(1, 3, &STEADY);
    for signalled in [false, true] {
        let leader = replicas.leader(1);
        let mut client = Client::connect(replicas.address(leader));
        let written = AtomicUsize::new(0);
        let refused = std::thread::scope(|scope| {
            // Until the node has gone, or sends the client on.
            let writer = scope.spawn(|| {
                loop {
                    match client.try_call(&["INCR", "foo"]) {
                        Ok(Reply::Error(text)) => return Some(text),
                        Ok(_) => written.fetch_add(1, Ordering::Relaxed),
                        Err(_) => return None,
                    };
                }
            });
            eventually("it writes", || written.load(Ordering::Relaxed) > 10);
            if signalled {
                assert!(replicas.stop_node(leader).success());
            } else {
                replicas.transfer(&[]);
            }
            writer.join().expect("it ends")
        });
        if let Some(text) = refused {
            assert!(text.starts_with("MOVED "), "{text}");
        }
    }
}

#[test]
fn other_nodes_than_the_leader_send_clients_to_it() {
    let replicas = Replicas::start_with(1, 3, &STEADY);
    let leader = replicas.leader(1);
    let follower = leader % 3 + 1;
    let to = replicas.address(leader).to_string();
    eventually("it knows the leader", || {
        ask(&replicas, follower, &["GET", "foo"]) == format!("MOVED 12182 {to}")
    });
    assert_eq!(
        ask(&replicas, follower, &["FLUSHALL"]),
        format!("MOVED 0 {to}")
    );
    // The slot is that of the key that the script names, not that of the key with which it begins.
    let script = ["EVAL", "return redis.call('GET', 'bar')", "1", "foo"];
    assert_eq!(
        ask(&replicas, follower, &script),
        format!("MOVED 12182 {to}")
    );
    let mut client = replicas.client();
    client.insist(&["SET", "foo", "bar"]);
    wait_until_equal(&replicas);
    // Each node answers commands that walk or count all its keys, like Redis's replicas.
    let mut plain = Client::connect(replicas.address(follower));
    eventually("it is fresh", || plain.frame(&["DBSIZE"]).int() == Some(1));
    for args in [
        &["KEYS", "f*"][..],
        &["CLUSTER", "GETKEYSINSLOT", "12182", "9"],
    ] {
        let keys = plain.frame(args);
        assert_eq!(keys.frames().map(<[Frame]>::len), Some(1), "{args:?}");
    }
    let page = plain.frame(&["SCAN", "0"]);
    let page = page.frames().expect("a cursor and keys");
    assert_eq!(
        page[1].frames().map(|keys| text(&keys[0])),
        Some("foo".to_owned())
    );
    assert!(text(&plain.frame(&["GET", "foo"])).starts_with("MOVED "));
    // A connection in this mode reads the data of a replica; it writes nothing there.
    let mut reader = Client::connect(replicas.address(follower));
    reader.frame(&["READONLY"]);
    eventually("it is fresh", || {
        text(&reader.frame(&["GET", "foo"])) == "bar"
    });
    assert_eq!(reader.frame(&["DBSIZE"]).int(), Some(1));
    assert_eq!(
        reader.frame(&["KEYS", "*"]).frames().map(<[Frame]>::len),
        Some(1)
    );
    assert!(text(&reader.frame(&["SET", "foo", "x"])).starts_with("MOVED "));
    reader.frame(&["READWRITE"]);
    assert!(text(&reader.frame(&["GET", "foo"])).starts_with("MOVED "));
    // The leader executes a block, whichever node gets it, and also one that watches.
    let mut block = Client::connect(replicas.address(follower));
    for args in [&["WATCH", "foo"][..], &["MULTI"], &["SET", "foo", "block"]] {
        assert!(!block.frame(args).is_error(), "{args:?}");
    }
    assert_eq!(block.frame(&["EXEC"]).frames().map(<[Frame]>::len), Some(1));
    assert_eq!(text(&client.insist(&["GET", "foo"])), "block");
    // The commands that clients with knowledge of clusters use.
    let nodes = ask(&replicas, follower, &["CLUSTER", "NODES"]);
    assert_eq!(
        nodes.matches(" slave ").count() + nodes.matches(",slave ").count(),
        2,
        "{nodes}"
    );
    let master = nodes
        .lines()
        .find(|line| line.contains("master"))
        .expect("one leads");
    assert!(
        master.contains(&to) && master.ends_with("0-16383"),
        "{nodes}"
    );
    let slots = Client::connect(replicas.address(follower)).frame(&["CLUSTER", "SLOTS"]);
    let range = slots.frames().expect("ranges")[0]
        .frames()
        .expect("a range")
        .to_vec();
    assert_eq!(range.len(), 5, "two bounds, three nodes");
    let port = range[2].frames().expect("the master")[1].int();
    assert_eq!(port, Some(replicas.address(leader).port().into()));
    // On a busy machine one of them may not have been heard for a moment.
    eventually("the follower says whom it follows", || {
        let info = ask(&replicas, follower, &["INFO", "replication"]);
        info.contains("role:slave") && info.contains("master_link_status:up")
    });
    eventually("the leader says who follows", || {
        let info = ask(&replicas, leader, &["INFO", "replication"]);
        info.contains("role:master") && info.contains("connected_slaves:2")
    });
}

/// Clients ask a connection's node for its role in these two ways.
#[test]
fn followers_and_the_leader_say_so_in_hello_and_role() {
    let replicas = Replicas::start(1, 3);
    eventually("all roles are known", || {
        let leader = replicas.leader(1);
        let mut followers = (1..=3).filter(|node| *node != leader);
        let said = |node, command| Client::connect(replicas.address(node)).told(command);
        let address = |node| replicas.address(node);
        let (host, port) = (address(leader).ip(), address(leader).port());
        let role = said(leader, "ROLE");
        role.starts_with("[master ")
            && said(leader, "HELLO 2").contains("role master")
            // A majority is the leader and one more.
            && said(leader, "WAIT 2 0") == "1"
            && said(leader, "WAITAOF 1 2 0") == "[1 1]"
            && followers.all(|node| {
                let follows = format!("[slave {host} {port} connected ");
                let listed = format!("[{} {} ", address(node).ip(), address(node).port());
                said(node, "HELLO 2").contains("role replica")
                    && said(node, "WAIT 2 0").contains("replica instances")
                    && said(node, "ROLE").starts_with(&follows)
                    && role.contains(&listed)
            })
    });
}

/// It sends no READONLY.
#[test]
fn redis_cli_walks_the_keys_of_a_follower() {
    let Some(program) = peers::program(Group::Redis, "redis-cli") else {
        return;
    };
    let replicas = Replicas::start(1, 3);
    let mut client = replicas.client();
    for number in 0..100 {
        let key = format!("key{number}");
        client.insist(&["SET", &key, &"x".repeat(number + 1)]);
    }
    let follower = replicas.leader(1) % 3 + 1;
    let port = replicas.address(follower).port().to_string();
    let mut command = Command::new(&program);
    command.args(["-p", &port, "--scan"]);
    // It may not have applied all of them, or not know how old its state is.
    eventually("all keys are listed", || {
        let scan = output(&command, "");
        let listed = String::from_utf8_lossy(&scan.stdout);
        let mut keys: Vec<&str> = listed.lines().filter(|line| !line.is_empty()).collect();
        keys.sort_unstable();
        keys.dedup();
        scan.status.success() && keys.len() == 100 && keys.iter().all(|key| key.starts_with("key"))
    });
}

/// Heartbeats wait behind an entry of the log, so its size is limited: the leader stays the leader.
#[test]
fn what_would_cost_the_leader_its_leadership_is_refused() {
    let replicas = Replicas::start_with(1, 3, &STEADY);
    let leader = replicas.leader(1);
    let mut client = Client::connect(replicas.address(leader));
    let long = "x".repeat((32 << 20) + 1);
    let refused = client.call(&["SET", "foo", &long]).shown();
    assert!(
        refused.contains("exceeds maximum allowed size"),
        "{refused}"
    );
    let half = &long[..24 << 20];
    assert_eq!(client.told("MULTI"), "+OK");
    for key in ["{foo}1", "{foo}2", "{foo}3"] {
        assert_eq!(client.call(&["SET", key, half]).shown(), "+QUEUED");
    }
    let refused = client.told("EXEC");
    assert!(refused.starts_with("-ERR "), "{refused}");
    assert_eq!(client.told("EXISTS {foo}1 {foo}2 {foo}3 foo"), "0");
    assert_eq!(replicas.leader(1), leader);
}

/// The longest value that is allowed, which is one entry of the log.
#[test]
fn the_longest_value_keeps_the_leader() {
    let replicas = Replicas::start_with(1, 3, &["--election-timeout", "1s"]);
    let long = "x".repeat(32 << 20);
    // On a slow machine another member may be elected at any time.
    eventually("a leader stays one", || {
        let leader = replicas.leader(1);
        let term = replicas.said(leader, "term");
        let mut client = Client::connect(replicas.address(leader));
        let said = client.try_call(&["SET", "foo", &long]);
        let is_set = said.is_ok_and(|reply| reply == Reply::Status("OK".to_owned()));
        if is_set {
            assert_eq!(client.told("STRLEN foo"), (32 << 20).to_string());
        }
        is_set && replicas.leader(1) == leader && replicas.said(leader, "term") == term
    });
}

#[test]
fn without_a_majority_nothing_is_served_and_nothing_is_lost() {
    let mut replicas = Replicas::start(1, 3);
    let mut client = replicas.client();
    client.insist(&["SET", "foo", "1"]);
    let leader = replicas.leader(1);
    let others: Vec<usize> = (1..=3).filter(|node| *node != leader).collect();
    others.iter().for_each(|node| replicas.kill_node(*node));
    // Depending on when it notices, its reply never becomes known, or it refuses.
    eventually("it refuses", || {
        ask(&replicas, leader, &["SET", "foo", "2"]).starts_with("CLUSTERDOWN ")
    });
    assert!(ask(&replicas, leader, &["GET", "foo"]).starts_with("CLUSTERDOWN "));
    let mut reader = Client::connect(replicas.address(leader));
    reader.frame(&["READONLY"]);
    eventually("what it has is too old", || {
        text(&reader.frame(&["GET", "foo"])).starts_with("CLUSTERDOWN ")
    });
    assert!(ask(&replicas, leader, &["CLUSTER", "INFO"]).contains("cluster_state:fail"));
    let (code, _, said) = replicas.command(&["status"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("has no leader: 1 of its 3 nodes answer, and 2 must"),
        "{said}"
    );
    replicas.start_node(others[0]);
    replicas.leader(1);
    let value = text(&client.insist(&["GET", "foo"]));
    assert!(value == "1" || value == "2", "{value}");
    assert_eq!(text(&client.insist(&["SET", "foo", "3"])), "OK");
}

#[test]
fn what_waits_when_leadership_is_lost_is_told_each_in_its_place() {
    let replicas = Replicas::start_with(1, 3, &STEADY);
    let mut setter = replicas.client();
    setter.insist(&["SET", "foo", "0"]);
    let leader = replicas.leader(1);
    let others: Vec<usize> = (1..=3).filter(|node| *node != leader).collect();
    let mut client = Client::connect(replicas.address(leader));
    assert_eq!(text(&client.frame(&["GET", "foo"])), "0");
    others.iter().for_each(|node| replicas.pause_node(*node));
    // No other transaction blocks them: they wait only for the other nodes.
    let commands: [&[&str]; 5] = [
        &["SET", "bar", "1"],
        &["PING"],
        &["GET", "foo"],
        &["SET", "hello", "1"],
        &["ECHO", "here"],
    ];
    commands.iter().for_each(|command| client.send(command));
    let replies: Vec<String> = commands
        .iter()
        .map(|_| match client.receive() {
            Answer::Reply(frame) => text(&frame),
            broken => panic!("{broken:?}"),
        })
        .collect();
    for (at, said) in replies.iter().enumerate() {
        match at {
            1 => assert_eq!(said, "PONG"),
            4 => assert_eq!(said, "here"),
            _ => assert!(
                said.starts_with("UNKNOWN the partition's leader changed"),
                "{said}"
            ),
        }
    }
    // The connection continues.
    assert!(text(&client.frame(&["GET", "foo"])).starts_with("CLUSTERDOWN "));
    others.iter().for_each(|node| replicas.resume_node(*node));
    assert_eq!(text(&setter.insist(&["SET", "bar", "2"])), "OK");
    assert_eq!(text(&setter.insist(&["GET", "bar"])), "2");
}

#[test]
fn a_watch_over_a_change_of_leaders_is_right() {
    let mut replicas = Replicas::start(1, 3);
    let mut client = replicas.client();
    client.insist(&["SET", "foo", "1"]);
    let leader = replicas.leader(1);
    let watcher = leader % 3 + 1;
    let mut connections: Vec<Client> = (0..2)
        .map(|_| Client::connect(replicas.address(watcher)))
        .collect();
    for connection in &mut connections {
        let mut said = String::new();
        eventually("it watches", || {
            said = text(&connection.frame(&["WATCH", "foo"]));
            said == "OK"
        });
    }
    replicas.kill_node(leader);
    replicas.leader(1);
    let outcomes: Vec<Frame> = connections
        .iter_mut()
        .map(|connection| {
            connection.frame(&["MULTI"]);
            connection.frame(&["INCR", "foo"]);
            connection.frame(&["EXEC"])
        })
        .collect();
    // The first takes effect unless its reply says otherwise; the second has seen a version that is
    // gone.
    let done = outcomes
        .iter()
        .filter(|outcome| outcome.frames().is_some())
        .count();
    let value = text(&client.insist(&["GET", "foo"]));
    assert!(done <= 1, "{outcomes:?}");
    let unknown = outcomes
        .iter()
        .any(|outcome| text(outcome).starts_with("UNKNOWN"));
    assert!(
        unknown || value == (1 + done).to_string(),
        "{value}: {outcomes:?}"
    );
}

#[test]
fn transactions_over_replicated_partitions_survive_their_leaders() {
    let mut replicas = Replicas::start(2, 3);
    let workload = transfers::accounts(2);
    let mut subject = replicas.client();
    eventually("the accounts are there", || {
        matches!(subject.run(&workload.setup()), Ended::Committed(_))
    });
    let (stop, committed) = (AtomicBool::new(false), AtomicU64::new(0));
    let clients = std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        let start = |seed| {
            let mut client = workload.start(fastrand::Rng::with_seed(seed));
            let (mut subject, stop, committed) = (replicas.client(), &stop, &committed);
            scope.spawn(move || {
                transfers::until_stopped(&mut client, &mut subject, stop, committed);
                client
            })
        };
        let clients: Vec<_> = (0..3).map(start).collect();
        for partition in [1, 2] {
            std::thread::sleep(Duration::from_millis(500));
            let leader = replicas.leader(partition);
            replicas.kill_node(leader);
            replicas.leader(partition);
            std::thread::sleep(Duration::from_millis(500));
            replicas.start_node(leader);
        }
        std::thread::sleep(Duration::from_secs(1));
        go_on_until(|| {
            let is_enough = committed.load(Ordering::SeqCst) > 20;
            is_enough || clients.iter().any(|client| client.is_finished())
        });
        stop.store(true, Ordering::SeqCst);
        let join = |client: ScopedJoinHandle<'_, _>| client.join().expect("what it sees is right");
        clients.into_iter().map(join).collect()
    });
    let committed = committed.into_inner();
    assert!(committed > 20, "{committed} transactions");
    transfers::check(workload, clients, &mut subject);
}

#[test]
fn plain_raft_serves_the_same() {
    let replicas = Replicas::start_with(1, 3, &["--naive"]);
    let mut client = replicas.client();
    for number in 1..=20 {
        assert_eq!(client.insist(&["INCR", "foo"]).int(), Some(number));
    }
    let outcome = client.block(&[&["INCR", "foo"], &["GET", "foo"]]);
    let outcome = outcome.expect("it was at the leader");
    let replies: Vec<String> = outcome
        .frames()
        .expect("replies")
        .iter()
        .map(text)
        .collect();
    assert_eq!(replies, ["21", "21"]);
    assert!(client.insist(&["INCRBY", "foo", "x"]).is_error());
}

#[test]
fn leases_serve_reads_and_end_with_the_leadership() {
    let mut replicas = Replicas::start_with(1, 3, &["--lease-reads"]);
    let first = replicas.leader(1);
    let longest = write_while(&mut replicas, |replicas| replicas.kill_node(first));
    assert!(
        longest < Duration::from_secs(15),
        "{longest:?} without a leader"
    );
}
