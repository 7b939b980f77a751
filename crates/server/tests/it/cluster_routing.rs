//! The routing of commands in a cluster, and the cluster's description of itself. Forms are those
//! of Redis 7.

use crate::support::nodes::{Nodes, NodesOptions, nodes, slot_of};
use crate::support::{bulk, config, ephemeral, error, int, ok, status};
use testkit::Reply;

/// Returns nodes that keep nothing.
fn quick(count: u16) -> Nodes {
    Nodes::start(NodesOptions {
        count,
        durable: false,
        ..NodesOptions::default()
    })
}

fn array(value: Reply) -> Vec<Reply> {
    match value {
        Reply::Array(items) => items,
        other => panic!("{other:?} is no array"),
    }
}

fn text(value: &Reply) -> String {
    let bytes = match value {
        Reply::Bulk(bytes) | Reply::Verbatim { text: bytes, .. } => bytes,
        other => panic!("{other:?} is no text"),
    };
    String::from_utf8(bytes.clone()).unwrap()
}

#[test]
fn a_command_of_one_slot_of_another_node_is_sent_there() {
    let nodes = quick(3);
    let key = nodes.key_of(2, "key");
    let tagged = format!("{{{key}}}.other");
    let moved = format!("MOVED {} {}", slot_of(&key), nodes.address(2));
    let mut client = nodes.client(1);
    let commands: [&[&str]; 8] = [
        &["GET", &key],
        &["SET", &key, "1"],
        &["MGET", &key, &tagged],
        &["MSET", &key, "1", &tagged, "2"],
        &["DEL", &tagged],
        &["EXISTS", &key, &key],
        &["EXPIRE", &key, "10"],
        &["INCRBYFLOAT", &key, "1.5"],
    ];
    for command in commands {
        assert_eq!(error(&client.call(command)), moved, "{command:?}");
    }
    let mut owner = nodes.client(2);
    assert_eq!(owner.call(&["MSET", &key, "1", &tagged, "2"]), ok());
    let both = Reply::Array(vec![bulk("1"), bulk("2")]);
    assert_eq!(owner.call(&["MGET", &key, &tagged]), both);
}

#[test]
fn commands_without_keys_are_of_the_node_that_is_asked() {
    let nodes = quick(2);
    for node in [1, 2] {
        let mut client = nodes.client(node);
        for number in 0..node {
            let key = nodes.key_of(node, &format!("k{number}"));
            assert_eq!(client.call(&["SET", &key, "v"]), ok());
        }
    }
    for node in [1, 2] {
        let mut client = nodes.client(node);
        let count = i64::from(node);
        assert_eq!(client.call(&["DBSIZE"]), int(count));
        assert_eq!(array(client.call(&["KEYS", "*"])).len(), usize::from(node));
        let page = array(client.call(&["SCAN", "0"]));
        assert_eq!(array(page[1].clone()).len(), usize::from(node));
    }
    assert_eq!(nodes.client(1).call(&["FLUSHALL"]), ok());
    assert_eq!(nodes.client(1).call(&["DBSIZE"]), int(0));
    assert_eq!(nodes.client(2).call(&["DBSIZE"]), int(2));
}

#[test]
fn slots_and_shards_have_the_form_of_redis() {
    let nodes = quick(2);
    let name = |node| text(&nodes.client(node).call(&["CLUSTER", "MYID"]));
    let mut client = nodes.client(1);
    let slots = client.call(&["CLUSTER", "SLOTS"]);
    let node = |node: u16, map: Reply| {
        let port = i64::from(nodes.address(node).port());
        Reply::Array(vec![bulk("127.0.0.1"), int(port), bulk(&name(node)), map])
    };
    let range = |from, to, node| Reply::Array(vec![int(from), int(to), node]);
    let expected = |map: &Reply| {
        Reply::Array(vec![
            range(0, 8191, node(1, map.clone())),
            range(8192, 16383, node(2, map.clone())),
        ])
    };
    assert_eq!(slots, expected(&Reply::Array(vec![])));
    let shards = array(client.call(&["CLUSTER", "SHARDS"]));
    let second = array(shards[1].clone());
    assert_eq!(second[0], bulk("slots"));
    assert_eq!(second[1], Reply::Array(vec![int(8192), int(16383)]));
    assert_eq!(second[2], bulk("nodes"));
    let fields = array(array(second[3].clone())[0].clone());
    let port = int(i64::from(nodes.address(2).port()));
    for pair in [
        [bulk("id"), bulk(&name(2))],
        [bulk("port"), port],
        [bulk("ip"), bulk("127.0.0.1")],
        [bulk("role"), bulk("master")],
        [bulk("health"), bulk("online")],
    ] {
        assert!(fields.chunks(2).any(|chunk| chunk == pair), "{pair:?}");
    }
    client.call(&["HELLO", "3"]);
    let slots = client.call(&["CLUSTER", "SLOTS"]);
    assert_eq!(slots, expected(&Reply::Map(vec![])));
    let shards = array(client.call(&["CLUSTER", "SHARDS"]));
    assert!(matches!(&shards[0], Reply::Map(fields) if fields.len() == 2));
}

#[test]
fn nodes_and_info_have_the_form_of_redis() {
    let nodes = quick(3);
    let mut client = nodes.client(2);
    let id = text(&client.call(&["CLUSTER", "MYID"]));
    assert!(id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let lines = text(&client.call(&["CLUSTER", "NODES"]));
    assert_eq!(lines.lines().count(), 3);
    let own: Vec<&str> = lines.lines().nth(1).unwrap().split(' ').collect();
    let fabric = nodes.topology.node(base::NodeId(2)).unwrap().fabric.port();
    let address = format!("{}@{fabric}", nodes.address(2));
    assert_eq!(own[..4], [&id, &address, "myself,master", "-"]);
    assert_eq!(own[4..], ["0", "0", "2", "connected", "5461-10921"]);
    let info = text(&client.call(&["CLUSTER", "INFO"]));
    for line in [
        "cluster_state:ok",
        "cluster_slots_assigned:16384",
        "cluster_known_nodes:3",
        "cluster_size:3",
        "cluster_my_epoch:2",
    ] {
        assert!(info.lines().any(|one| one == line), "{line} in {info}");
    }
    let info = text(&client.call(&["INFO", "cluster"]));
    assert!(info.contains("cluster_enabled:1\r\n"), "{info}");
    let info = text(&client.call(&["INFO", "server"]));
    assert!(info.contains("redis_mode:cluster\r\n"), "{info}");
}

#[test]
fn slots_of_keys_and_keys_of_slots() {
    let nodes = quick(2);
    let mut client = nodes.client(1);
    assert_eq!(client.call(&["CLUSTER", "KEYSLOT", "foo"]), int(12182));
    assert_eq!(client.call(&["CLUSTER", "KEYSLOT", "a{foo}b"]), int(12182));
    let tag = nodes.key_of(1, "tag");
    let slot = slot_of(&tag).to_string();
    let keys: Vec<String> = (0..3000)
        .map(|number| format!("{{{tag}}}{number:04}"))
        .collect();
    for key in &keys {
        client.send(&["SET", key, "v"]);
    }
    for _ in &keys {
        assert_eq!(client.reply(), ok());
    }
    assert_eq!(client.call(&["SET", &nodes.key_of(1, "other"), "v"]), ok());
    assert_eq!(
        client.call(&["CLUSTER", "COUNTKEYSINSLOT", &slot]),
        int(3000)
    );
    let some = array(client.call(&["CLUSTER", "GETKEYSINSLOT", &slot, "3"]));
    assert_eq!(some, [bulk(&keys[0]), bulk(&keys[1]), bulk(&keys[2])]);
    let all = array(client.call(&["CLUSTER", "GETKEYSINSLOT", &slot, "100000"]));
    assert_eq!(all.len(), 3000);
    let none = client.call(&["CLUSTER", "GETKEYSINSLOT", &slot, "0"]);
    assert_eq!(none, Reply::Array(vec![]));
    assert_eq!(
        nodes.client(2).call(&["CLUSTER", "COUNTKEYSINSLOT", &slot]),
        int(0)
    );
    for (args, wanted) in [
        (
            &["CLUSTER", "COUNTKEYSINSLOT", "16384"][..],
            "ERR Invalid slot",
        ),
        (&["CLUSTER", "COUNTKEYSINSLOT", "-1"], "ERR Invalid slot"),
        (
            &["CLUSTER", "COUNTKEYSINSLOT", "x"],
            "ERR value is not an integer or out of range",
        ),
        (
            &["CLUSTER", "GETKEYSINSLOT", "1", "-1"],
            "ERR Invalid number of keys",
        ),
        (
            &["CLUSTER", "KEYSLOT"],
            "ERR wrong number of arguments for 'cluster|keyslot' command",
        ),
    ] {
        assert_eq!(error(&client.call(args)), wanted);
    }
}

#[test]
fn switches_of_clients_are_accepted() {
    let nodes = quick(1);
    let mut client = nodes.client(1);
    for command in ["READONLY", "READWRITE", "ASKING"] {
        assert_eq!(client.call(&[command]), ok());
    }
    assert!(array(client.call(&["CLUSTER", "HELP"])).len() > 10);
}

#[test]
fn without_a_cluster_there_is_none() {
    let served = ephemeral(config());
    let mut client = served.client();
    let commands: [&[&str]; 12] = [
        &["CLUSTER", "SLOTS"],
        &["CLUSTER", "SHARDS"],
        &["CLUSTER", "NODES"],
        &["CLUSTER", "INFO"],
        &["CLUSTER", "MYID"],
        &["CLUSTER", "KEYSLOT", "a"],
        &["CLUSTER", "COUNTKEYSINSLOT", "1"],
        &["CLUSTER", "GETKEYSINSLOT", "1", "1"],
        &["CLUSTER", "HELP"],
        &["READONLY"],
        &["READWRITE"],
        &["ASKING"],
    ];
    for command in commands {
        let said = client.call(command);
        let disabled = "ERR This instance has cluster support disabled";
        assert_eq!(error(&said), disabled, "{command:?}");
    }
    let info = text(&client.call(&["INFO", "cluster"]));
    assert_eq!(info, "# Cluster\r\ncluster_enabled:0\r\n");
    assert_eq!(client.call(&["MSET", "foo", "1", "bar", "2"]), ok());
}

#[test]
fn clients_of_a_node_need_its_password() {
    let mut options = NodesOptions {
        count: 2,
        durable: false,
        ..NodesOptions::default()
    };
    options.config.password = Some("pw".to_owned());
    let nodes = Nodes::start(options);
    let mut client = nodes.client(1);
    let key = nodes.key_of(2, "key");
    assert!(error(&client.call(&["GET", &key])).starts_with("NOAUTH"));
    assert!(error(&client.call(&["CLUSTER", "SLOTS"])).starts_with("NOAUTH"));
    assert_eq!(client.call(&["AUTH", "pw"]), ok());
    assert!(error(&client.call(&["GET", &key])).starts_with("MOVED"));
}

#[test]
fn a_block_is_queued_regardless_of_its_slots() {
    let nodes = nodes(2);
    let key = nodes.key_of(2, "key");
    let mut client = nodes.client(1);
    assert_eq!(client.call(&["MULTI"]), ok());
    assert_eq!(client.call(&["SET", &key, "1"]), status("QUEUED"));
    assert_eq!(client.call(&["DISCARD"]), ok());
    assert!(error(&client.call(&["GET", &key])).starts_with("MOVED"));
}
