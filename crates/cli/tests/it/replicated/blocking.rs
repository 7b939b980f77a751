//! Clients that wait for keys of a replicated partition whose leader changes.

use crate::support::replicas::{Outcome, Replicas};
use testkit::{Client, Reply, eventually};

/// Waits until so many clients of a node wait.
#[track_caller]
fn await_blocked(replicas: &Replicas, node: usize, count: usize) {
    let field = format!("blocked_clients:{count}\r\n");
    let mut client = Client::connect(replicas.address(node));
    eventually("the clients wait", || {
        client.told("INFO clients").contains(&field)
    });
}

/// Begins to wait at the leader. Returns the client.
fn block(replicas: &Replicas, leader: usize) -> Client {
    let mut client = Client::connect(replicas.address(leader));
    client.send(&["BLPOP", "list", "0"]);
    client
}

/// A client that waits at a leader is sent to the next one, which serves it.
#[test]
fn a_client_that_waits_is_sent_to_the_next_leader() {
    let mut replicas = Replicas::start_with(1, 3, &["--election-timeout", "3s"]);
    for round in 0..3 {
        let leader = replicas.leader(1);
        let mut waiting = block(&replicas, leader);
        await_blocked(&replicas, leader, 1);
        match round {
            0 => replicas.transfer(&[]),
            _ => assert!(replicas.stop_node(leader).success()),
        }
        // One that stops closes its connections.
        if let Some(reply) = waiting.next() {
            let Reply::Error(text) = &reply else {
                panic!("{reply:?}")
            };
            assert!(
                ["MOVED ", "CLUSTERDOWN "]
                    .iter()
                    .any(|word| text.starts_with(word)),
                "{text}"
            );
        }
        let next = replicas.leader(1);
        let mut waiting = block(&replicas, next);
        await_blocked(&replicas, next, 1);
        let pushed = replicas.client().call(&["RPUSH", "list", "x"]);
        assert!(matches!(pushed, Outcome::Reply(_)), "{pushed:?}");
        let element = [Reply::bulk("list"), Reply::bulk("x")];
        assert_eq!(waiting.reply(), Reply::Array(element.to_vec()));
        if round > 0 {
            replicas.start_node(leader);
            eventually("it follows", || {
                replicas
                    .said(leader, "role")
                    .is_some_and(|role| role == "follower")
            });
        }
    }
}

/// Leaders are killed while workers take what is pushed: what was acknowledged to the pusher is taken once.
#[test]
fn each_element_is_taken_once_although_leaders_are_killed() {
    const ELEMENTS: usize = 300;
    let mut replicas = Replicas::start(1, 3);
    let stop = "stop".to_owned();
    let (taken, unknown) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let mut client = replicas.client();
                let stop = &stop;
                scope.spawn(move || {
                    let (mut taken, mut unknown) = (Vec::new(), 0);
                    loop {
                        match client.call(&["BLPOP", "list", "0.2"]) {
                            Outcome::Reply(frame) => match frame.frames() {
                                Some([_, element]) => {
                                    let element = element.bytes().expect("an element").to_vec();
                                    let element = String::from_utf8(element).expect("text");
                                    if element == *stop {
                                        return (taken, unknown);
                                    }
                                    taken.push(element);
                                }
                                _ => continue,
                            },
                            Outcome::Unknown(_) => unknown += 1,
                        }
                    }
                })
            })
            .collect();
        let mut client = replicas.client();
        let mut doubtful = 0;
        for number in 0..ELEMENTS {
            if let Outcome::Unknown(_) = client.call(&["RPUSH", "list", &number.to_string()]) {
                doubtful += 1;
            }
            if number % 100 == 50 {
                let leader = replicas.leader(1);
                replicas.kill_node(leader);
                replicas.start_node(leader);
            }
        }
        eventually("all is taken", || {
            client.insist(&["LLEN", "list"]).raw == b":0\r\n"
        });
        let mut ended = 0;
        while ended < workers.len() {
            client.insist(&["RPUSH", "list", "stop"]);
            ended = workers.iter().filter(|worker| worker.is_finished()).count();
        }
        let mut all = (Vec::new(), doubtful);
        for worker in workers {
            let (taken, unknown) = worker.join().expect("it ends");
            all.0.extend(taken);
            all.1 += unknown;
        }
        all
    });
    let mut distinct = taken.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), taken.len(), "one was taken twice");
    // One whose outcome is unknown may have been taken, or never pushed.
    assert!(
        taken.len() + unknown >= ELEMENTS,
        "{} and {unknown}",
        taken.len()
    );
}
