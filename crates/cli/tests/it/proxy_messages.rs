//! Publish/subscribe through the proxy: before a node, before a cluster whose nodes die, and with redis-py.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use crate::support::clients::{run, script};
use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::{proxy, start_server};
use crate::support::replicas::Replicas;
use testkit::peers::{self, Group};
use testkit::process::{Redis, Server};
use testkit::{Client, eventually};

/// For how long a client must get nothing to count as waiting.
const WHILE: Duration = Duration::from_millis(100);

fn before_cluster(file: &str) -> Server {
    proxy(&["--cluster", file, "--network-threads", "2"])
}

/// Messages that are published at any node, or through any proxy, come to the subscribers of all proxies.
#[test]
fn messages_of_all_nodes_come_through_all_proxies() {
    let cluster = Cluster::start(2, Keeping::Nothing);
    let proxies = [(); 2].map(|()| before_cluster(&cluster.file()));
    let mut subscribers: Vec<Client> = proxies
        .iter()
        .flat_map(|proxy| {
            [
                Client::connect(proxy.address),
                Client::connect(proxy.address),
            ]
        })
        .collect();
    for client in &mut subscribers {
        assert_eq!(client.told("SUBSCRIBE news"), "[subscribe news 1]");
    }
    let publishers = [
        proxies[0].address,
        proxies[1].address,
        cluster.address(0),
        cluster.address(1),
    ];
    for (number, address) in publishers.into_iter().enumerate() {
        let mut publisher = Client::connect(address);
        publisher.told(&format!("PUBLISH news {number}"));
        for client in &mut subscribers {
            assert_eq!(client.reply().shown(), format!("[message news {number}]"));
        }
    }
    // One that a block publishes comes when the block has taken effect.
    let mut publisher = Client::connect(proxies[0].address);
    for command in ["MULTI", "SET foo 1", "SET bar 1", "PUBLISH news block"] {
        publisher.told(command);
    }
    let done = publisher.told("EXEC");
    assert!(done.starts_with("[+OK +OK "), "{done}");
    for client in &mut subscribers {
        assert_eq!(client.reply().shown(), "[message news block]");
    }
    // Shard channels have a node each.
    for channel in ["foo", "bar"] {
        let mut subscriber = Client::connect(proxies[0].address);
        let told = subscriber.told(&format!("SSUBSCRIBE {channel}"));
        assert_eq!(told, format!("[ssubscribe {channel} 1]"));
        assert_eq!(publisher.told(&format!("SPUBLISH {channel} x")), "1");
        let expected = format!("[smessage {channel} x]");
        assert_eq!(subscriber.reply().shown(), expected);
    }
}

/// The node with the subscriptions dies and comes back: clients stay connected, and get messages again.
#[test]
fn subscriptions_outlive_their_node() {
    let mut cluster = Cluster::start(2, Keeping::Nothing);
    let proxy = before_cluster(&cluster.file());
    let mut subscriber = Client::connect(proxy.address);
    for channel in ["foo", "bar"] {
        subscriber.told(&format!("SUBSCRIBE {channel}"));
    }
    for node in 0..2 {
        cluster.kill_node(node);
        assert!(subscriber.is_silent(WHILE));
        cluster.start_node(node).expect("it starts again");
        let mut publisher = Client::connect(proxy.address);
        for channel in ["foo", "bar"] {
            let expected = format!("[message {channel} again]");
            eventually("messages come again", || {
                publisher.told(&format!("PUBLISH {channel} again"));
                // Messages of the other channel may still come.
                let mut came = false;
                while subscriber.has_reply(WHILE).expect("it stays connected") {
                    came |= subscriber.reply().shown() == expected;
                }
                came
            });
        }
    }
}

/// The leader of a replicated partition dies: its shard channels are at the next leader.
#[test]
fn shard_channels_follow_the_leader() {
    let mut replicas = Replicas::start(1, 3);
    let proxy = before_cluster(&replicas.file());
    let mut subscriber = Client::connect(proxy.address);
    assert_eq!(subscriber.told("SSUBSCRIBE shard"), "[ssubscribe shard 1]");
    let leader = replicas.leader(1);
    replicas.kill_node(leader);
    eventually("messages come from the next leader", || {
        let mut publisher = Client::connect(proxy.address);
        publisher.told("SPUBLISH shard x");
        subscriber.has_reply(WHILE).expect("it stays connected")
    });
    assert_eq!(subscriber.reply().shown(), "[smessage shard x]");
}

#[test]
fn redis_py_gets_messages() {
    let (Some(python), Some(library)) = (
        peers::program(Group::Python, "python3"),
        peers::installed(Group::Python, "python/redis"),
    ) else {
        return;
    };
    let messages = |address: SocketAddr| {
        let mut command = Command::new(&python);
        command
            .arg(script("messages.py"))
            .arg(address.port().to_string());
        let libraries = library.parent().expect("a folder of libraries");
        command.env("PYTHONPATH", libraries);
        assert_eq!(run(&command, ""), "done\n");
    };
    let node = start_server(&["--ephemeral"]);
    messages(node.address);
    let cluster = Cluster::start(2, Keeping::Nothing);
    messages(before_cluster(&cluster.file()).address);
    messages(proxy(&["--redis", &node.address.to_string()]).address);
    let Some(program) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    let servers = [(); 2].map(|()| Redis::start(&program, &[]));
    let addresses = servers.each_ref().map(|server| server.address.to_string());
    messages(proxy(&["--redis", &addresses.join(",")]).address);
}
