//! The cluster's file: its content, and the explanations of mistakes.

use std::path::Path;

use base::{NodeId, PartitionId};
use fastrand::Rng;
use kumiki_cluster::fuzz::fuzz_topology;
use kumiki_cluster::slot::{self, SLOTS};
use kumiki_cluster::topology::{LoadError, NodeInfo, Topology, even};

const TWO: &str = r#"[[node]]
id = 1
client = "127.0.0.1:7001"
fabric = "127.0.0.1:17001"

[[node]] # two
id = 2
# two
client = "127.0.0.1:7002" # 2
fabric = "127.0.0.1:17002"

# first
[[partition]]
id = 10
slots = ["0-99", "200-8191", "8192"]
nodes = [1]

[[partition]] # second
id = 20
slots = "8193-16383, 100-199"
nodes = [2]
"#;

/// Returns the mistakes as lines of text.
fn mistakes(text: &str) -> Vec<String> {
    let error = Topology::parse(text, "cluster.toml").expect_err("there are mistakes");
    error.to_string().lines().map(str::to_owned).collect()
}

/// Checks that `TWO` with `old` replaced has exactly one mistake, on the line of `at`, that says
/// `words`.
#[track_caller]
fn one_mistake(old: &str, new: &str, at: &str, words: &[&str]) {
    assert!(TWO.contains(old), "{old:?} is not in the file");
    let text = TWO.replacen(old, new, 1);
    let found = mistakes(&text);
    assert_eq!(found.len(), 1, "{found:#?}");
    let before = &text[..text.find(at).expect("the place is there")];
    let line = before.matches('\n').count() + 1;
    let place = format!("cluster.toml:{line}: ");
    assert!(found[0].starts_with(&place), "not {place}: {found:?}");
    for word in words {
        assert!(found[0].contains(word), "{word:?} is missing: {found:?}");
    }
}

#[test]
fn a_file_is_understood() {
    let topology = Topology::parse(TWO, "cluster.toml").unwrap();
    let ids: Vec<_> = topology.nodes().iter().map(|node| node.id).collect();
    assert_eq!(ids, [NodeId(1), NodeId(2)]);
    let node = topology.node(NodeId(2)).unwrap();
    assert_eq!(node.client, "127.0.0.1:7002".parse().unwrap());
    assert_eq!(node.fabric, "127.0.0.1:17002".parse().unwrap());
    assert_eq!(topology.node(NodeId(3)), None);
    let (one, two) = (PartitionId(10), PartitionId(20));
    for (slot, partition) in [(0, one), (99, one), (100, two), (199, two), (200, one)] {
        assert_eq!(topology.partition_of_slot(slot), partition, "slot {slot}");
    }
    for (slot, partition) in [(8192, one), (8193, two), (SLOTS - 1, two)] {
        assert_eq!(topology.partition_of_slot(slot), partition, "slot {slot}");
    }
    // `foo` has slot 12182, `bar` 5061.
    assert_eq!(topology.partition_of(b"foo"), two);
    assert_eq!(topology.partition_of(b"bar"), one);
    assert_eq!(topology.node_of(two), NodeId(2));
    assert_eq!(topology.partition_at(NodeId(1)), Some(one));
    assert_eq!(topology.partition_at(NodeId(9)), None);
    assert_eq!(topology.partition(one).unwrap().slots, [0..=99, 200..=8192]);
    assert_eq!(topology.partition(PartitionId(9)), None);
    assert_eq!((topology.secret(), topology.text()), (None, TWO));
}

#[test]
fn slots_must_belong_to_one_partition_each() {
    one_mistake(
        "\"0-99\"",
        "\"0-42\"",
        "\"0-42\"",
        &["slots 43-99 belong to no"],
    );
    one_mistake(", \"8192\"", "", "\"0-99\"", &["slot 8192 belongs to no"]);
    one_mistake(
        "8193-16383",
        "8193-16380",
        "8193",
        &["slots 16381-16383 belong"],
    );
    one_mistake("0-99", "3-99", "[[partition]]", &["slots 0-2 belong to no"]);
}

#[test]
fn an_overlap_names_both_lines() {
    let text = "slots = \"8193-16383, 100-199\"";
    one_mistake(
        text,
        "slots = \"8000-16383, 100-199\"",
        "8000-",
        &["slots 8000-8192", "line 15"],
    );
    one_mistake(
        text,
        "slots = \"8193-16383, 99-199\"",
        "99-199",
        &["slot 99 is on line 15"],
    );
}

#[test]
fn slots_that_do_not_exist_are_named() {
    one_mistake(
        "16383",
        "16384",
        "16384",
        &["slot 16384 does not exist", "0 to 16383"],
    );
    one_mistake("0-99", "99-0", "99-0", &["backwards", "write 0-99"]);
    one_mistake(
        "0-99",
        "0-x",
        "0-x",
        &["\"0-x\" is neither a slot nor a range"],
    );
    one_mistake("0-99", "", "\"\",", &["neither a slot nor a range"]);
    one_mistake("\"0-99\"", "7", "[7,", &["integer", "as a text"]);
    one_mistake("0-99", "0-99999999999", "99999999999", &["does not exist"]);
}

#[test]
fn nodes_and_partitions_must_fit_each_other() {
    one_mistake("[2]", "[3]", "nodes = [3]", &["no node 3", "[1, 2]"]);
    one_mistake("[2]", "[]", "nodes = []", &["empty"]);
    one_mistake("[2]", "2", "nodes = 2", &["integer", "a list such as [1]"]);
    one_mistake("nodes = [2]", "", "# second", &["nodes is missing"]);
    let two = TWO.replace("nodes = [2]", "nodes = [1, 2]");
    let found = mistakes(&two).join("\n");
    for words in [
        "two nodes cannot hold",
        "node 1 holds the partition on line 16 already",
    ] {
        assert!(found.contains(words), "{words:?} is missing: {found}");
    }
}

/// Three nodes with one partition, and a fourth with another.
const REPLICATED: &str = r#"[[node]]
id = 1
client = "127.0.0.1:7001"
fabric = "127.0.0.1:17001"
replica = "127.0.0.1:27001"
[[node]]
id = 2
client = "127.0.0.1:7002"
fabric = "127.0.0.1:17002"
replica = "127.0.0.1:27002"
[[node]]
id = 3
client = "127.0.0.1:7003"
fabric = "127.0.0.1:17003"
replica = "127.0.0.1:27003"
[[node]]
id = 4
client = "127.0.0.1:7004"
fabric = "127.0.0.1:17004"
[[partition]]
id = 1
slots = "0-8191"
nodes = [3, 1, 2]
[[partition]]
id = 2
slots = "8192-16383"
nodes = [4]
"#;

#[test]
fn read_atomic_keys_are_declared_for_all_nodes_alike() {
    let none = Topology::parse(TWO, "f").unwrap();
    assert!(none.read_atomic().is_empty());
    let with = |list: &str| Topology::parse(&format!("read_atomic = {list}\n{TWO}"), "f").unwrap();
    let two = with("[\"feed:\", \"ra:\"]");
    let prefixes: Vec<_> = two.read_atomic().prefixes().collect();
    assert_eq!(prefixes, [&b"feed:"[..], b"ra:"]);
    assert!(two.read_atomic().covers(b"ra:1") && !two.read_atomic().covers(b"r"));
    assert_eq!(
        two.fingerprint(),
        with("[\"ra:\", \"feed:\"]").fingerprint()
    );
    assert_eq!(none.fingerprint(), with("[]").fingerprint());
    let others = ["[]", "[\"ra:\"]", "[\"feed:ra:\"]", "[\"feed:\", \"rb:\"]"];
    for other in others {
        assert_ne!(two.fingerprint(), with(other).fingerprint(), "{other}");
    }
}

#[test]
fn what_is_wrong_with_read_atomic_keys_is_said_on_its_line() {
    for (list, line, words) in [
        ("\"ra:\"", 1, "a list such as [\"feed:\"]"),
        ("[1]", 1, "is of the type integer"),
        ("[\n\"a\",\n\"\"]", 3, "with which every key begins"),
        ("[\n\"a\",\n\"a\"]", 3, "on line 2 already"),
    ] {
        let found = mistakes(&format!("read_atomic = {list}\n{TWO}"));
        assert_eq!(found.len(), 1, "{found:#?}");
        let place = format!("cluster.toml:{line}: ");
        assert!(found[0].starts_with(&place), "not {place}: {found:?}");
        assert!(found[0].contains(words), "{words:?}: {found:?}");
    }
}

#[test]
fn a_partition_of_three_nodes_is_replicated() {
    let topology = Topology::parse(REPLICATED, "f").unwrap();
    let (one, two) = (PartitionId(1), PartitionId(2));
    assert_eq!(topology.nodes_of(one), [1, 2, 3].map(NodeId));
    assert_eq!(topology.nodes_of(two), [NodeId(4)]);
    assert!(topology.is_replicated(one) && !topology.is_replicated(two));
    assert_eq!(topology.node_of(one), NodeId(1), "the first, as a hint");
    for node in [1, 2, 3] {
        assert_eq!(topology.partition_at(NodeId(node)), Some(one));
    }
    let replica = topology.node(NodeId(3)).unwrap().replica;
    assert_eq!(replica, Some("127.0.0.1:27003".parse().unwrap()));
    assert_eq!(topology.node(NodeId(4)).unwrap().replica, None);
    // The order of holders in the file means nothing; the set of holders does.
    let of = |text: &str| Topology::parse(text, "f").unwrap().fingerprint();
    assert_eq!(
        of(REPLICATED),
        of(&REPLICATED.replace("[3, 1, 2]", "[1, 2, 3]"))
    );
    assert_ne!(of(REPLICATED), of(&REPLICATED.replace("[3, 1, 2]", "[2]")));
}

#[test]
fn what_is_wrong_with_replicas_is_said_on_its_line() {
    let cases: [(&str, &str, &[&str]); 7] = [
        (
            "replica = \"127.0.0.1:27002\"\n",
            "",
            &[
                "cluster.toml:6: node 2 has no replica address",
                "line 22",
                "add replica =",
            ],
        ),
        (
            "127.0.0.1:27002",
            "127.0.0.1:17001",
            &[
                "cluster.toml:10: replica is 127.0.0.1:17001",
                "the fabric address on line 4",
            ],
        ),
        (
            "127.0.0.1:27002",
            "127.0.0.1:27001",
            &["cluster.toml:10: ", "the replica address on line 5"],
        ),
        (
            "127.0.0.1:27002",
            "10.0.0.1:27002",
            &["cluster.toml:10: ", "10.0.0.1:27002", "there is no secret"],
        ),
        (
            "\"127.0.0.1:27002\"",
            "2",
            &["cluster.toml:10: replica is of the type integer"],
        ),
        (
            "127.0.0.1:27002",
            "host",
            &["cluster.toml:10: ", "no IP address"],
        ),
        (
            "[3, 1, 2]",
            "[3, 1, 3]",
            &["cluster.toml:23: node 3 is named twice"],
        ),
    ];
    for (old, new, words) in cases {
        let found = mistakes(&REPLICATED.replacen(old, new, 1));
        assert_eq!(found.len(), 1, "{found:#?}");
        for word in words {
            assert!(found[0].contains(word), "{word:?} is missing: {found:?}");
        }
    }
    let two = mistakes(&REPLICATED.replace("[3, 1, 2]", "[1, 2]"));
    assert!(
        two[0].contains("cluster.toml:23: two nodes cannot hold"),
        "{two:?}"
    );
}

#[test]
fn numbers_are_used_once() {
    let twice = mistakes(&TWO.replacen("id = 2\n", "id = 1\n", 1)).join("\n");
    let words = "cluster.toml:7: node 1 is on line 2 already";
    assert!(twice.contains(words), "{twice}");
    one_mistake(
        "id = 20",
        "id = 10",
        "id = 10\nslots = \"",
        &["partition 10 is on line 14 already"],
    );
    one_mistake("id = 20", "id = 0", "id = 0", &["from 1 to 65535"]);
    one_mistake("id = 20", "id = 70000", "id = 70000", &["from 1 to 65535"]);
    one_mistake(
        "id = 20",
        "id = \"20\"",
        "id = \"20\"",
        &["string", "number"],
    );
    one_mistake("id = 20", "", "# second", &["id is missing"]);
}

#[test]
fn addresses_are_used_once_and_can_be_connected_to() {
    let client = "client is 127.0.0.1:7001, which is the client address on line 3 already";
    one_mistake("7002", "7001", "client = \"127.0.0.1:7001\" #", &[client]);
    let across = "fabric is 127.0.0.1:7001, which is the client address on line 3 already";
    one_mistake("17002", "7001", "fabric = \"127.0.0.1:7001\"", &[across]);
    one_mistake(
        "127.0.0.1:7002",
        "localhost:7002",
        "localhost",
        &["no IP address"],
    );
    one_mistake("127.0.0.1:7002", "127.0.0.1:0", ".1:0", &["without a port"]);
    one_mistake(
        "127.0.0.1:7002",
        "0.0.0.0:7002",
        "0.0.0.0",
        &["no process can connect"],
    );
    one_mistake(
        "\"127.0.0.1:7002\"",
        "7002",
        "= 7002",
        &["integer", "a text in quotes"],
    );
}

#[test]
fn a_node_may_have_an_address_for_tls() {
    let text = TWO.replace("7002\" # 2", "7002\"\ntls = \"127.0.0.1:8002\"");
    let topology = Topology::parse(&text, "f").unwrap();
    let tls = "127.0.0.1:8002".parse().unwrap();
    let (one, two) = (topology.nodes()[0], topology.nodes()[1]);
    assert_eq!((one.tls, two.tls), (None, Some(tls)));
    assert_eq!(two.client_address(true), tls);
    assert_eq!(two.client_address(false), two.client);
    assert_eq!(one.client_address(true), one.client);
    let plain = Topology::parse(TWO, "f").unwrap();
    assert_eq!(topology.fingerprint(), plain.fingerprint());
    // Clients get it, and files that are written have it.
    let again = Topology::parse(&topology.text_for_clients(), "f").unwrap();
    assert_eq!(again.nodes(), topology.nodes());
    for (address, words) in [
        (
            "\"127.0.0.1:7001\"",
            "tls is 127.0.0.1:7001, which is the client address on line 3",
        ),
        (
            "\"127.0.0.1:17002\"",
            "fabric is 127.0.0.1:17002, which is the tls address on line",
        ),
        ("\"host:8002\"", "no IP address"),
        ("\"0.0.0.0:8002\"", "no process can connect"),
        ("\"10.0.0.1:8002\"", "there is no secret"),
        ("8002", "tls is of the type integer"),
    ] {
        let found = mistakes(&text.replace("\"127.0.0.1:8002\"", address));
        assert!(found.len() == 1 && found[0].contains(words), "{found:?}");
    }
}

#[test]
fn a_secret_is_needed_where_strangers_can_connect() {
    one_mistake(
        "127.0.0.1:7002",
        "10.0.0.1:7002",
        "10.0.0.1",
        &["no secret", "secret-file"],
    );
    let open = TWO.replace("127.0.0.1:7002", "10.0.0.1:7002");
    assert_eq!(Topology::parse(TWO, "f").unwrap().name(), None);
    let named = Topology::parse(&format!("name = \"shop\"\n{TWO}"), "f").unwrap();
    assert_eq!(named.name(), Some("shop"));
    let secret = "secret = \"0123456789abcdef\"\n";
    let topology = Topology::parse(&format!("{secret}{open}"), "f").unwrap();
    assert_eq!(topology.secret(), Some("0123456789abcdef"));
    let shown = format!("{topology:?}");
    assert!(!shown.contains("0123456789abcdef"), "{shown}");
    let short = mistakes(&format!("secret = \"0123456789abcde\"\n{TWO}"));
    assert!(
        short[0].starts_with("cluster.toml:1: the secret has 15 bytes"),
        "{short:?}"
    );
    let both = mistakes(&format!("{secret}secret-file = \"f\"\n{TWO}"));
    assert!(
        both[0].starts_with("cluster.toml:2: there are both"),
        "{both:?}"
    );
}

#[test]
fn a_secret_may_lie_in_a_file_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster.toml");
    let load = || Topology::load(&file);
    assert!(matches!(load(), Err(LoadError::Unreadable { .. })));
    std::fs::write(&file, format!("secret-file = \"key\"\n{TWO}")).unwrap();
    let error = load().unwrap_err().to_string();
    assert!(
        error.contains("key") && error.contains("put the secret there"),
        "{error}"
    );
    testkit::files::write_public(&dir.path().join("key"), "a secret that all can read");
    let error = load().unwrap_err().to_string();
    assert!(error.contains("chmod o-rwx"), "{error}");
    testkit::files::write_private(&dir.path().join("key"), "short\n");
    let error = load().unwrap_err().to_string();
    assert!(error.contains("key:1: the secret has 5 bytes"), "{error}");
    testkit::files::write_private(&dir.path().join("key"), "a secret of enough bytes\n");
    assert_eq!(load().unwrap().secret(), Some("a secret of enough bytes"));
    let parsed = Topology::parse(&std::fs::read_to_string(&file).unwrap(), "f").unwrap();
    assert_eq!(
        (parsed.secret(), parsed.secret_file()),
        (None, Some(Path::new("key")))
    );
}

#[test]
fn unknown_settings_are_named() {
    one_mistake(
        "id = 20",
        "id = 20\nslot = 5",
        "slot = 5",
        &["slot is no setting", "slots"],
    );
    one_mistake(
        "id = 2\n",
        "id = 2\nport = 5\n",
        "port",
        &["port is no setting", "fabric"],
    );
    one_mistake(
        "[[node]]",
        "title = \"x\"\n[[node]]",
        "title",
        &["title is no setting", "name, secret", "[[node]]"],
    );
    one_mistake("id = 20", "id 20", "id 20", &["this is not TOML"]);
    assert_eq!(mistakes("a = \n\nb = [\n").len(), 2);
    let single = mistakes("[node]\nid = 1");
    assert!(
        single[0].contains("cluster.toml:1: node is of the type table"),
        "{single:?}"
    );
}

#[test]
fn everything_wrong_is_said_at_once_in_the_order_of_lines() {
    let text = TWO
        .replace("17001", "7001")
        .replace("id = 20", "id = 10")
        .replace("8193-16383", "9000-16384")
        .replace("[2]", "[7]");
    let found = mistakes(&text);
    let lines: Vec<_> = found
        .iter()
        .map(|one| one.split(':').nth(1).unwrap())
        .collect();
    assert_eq!(lines, ["4", "19", "20", "21"], "{found:#?}");
    assert_eq!(mistakes("").len(), 2, "no nodes, no partitions");
}

fn info(id: u16) -> NodeInfo {
    NodeInfo {
        id: NodeId(id),
        client: ([127, 0, 0, 1], 7000 + id).into(),
        tls: None,
        fabric: ([127, 0, 0, 1], 17000 + id).into(),
        replica: None,
    }
}

#[test]
fn slots_are_shared_evenly() {
    for count in [1_u16, 2, 3, 4, 5, 7, 100] {
        let nodes: Vec<_> = (1..=count).map(info).collect();
        let topology = Topology::parse(&even(&nodes, 1, None), "even").unwrap();
        assert_eq!(topology.nodes(), nodes);
        let sizes = topology.partitions().iter().map(|one| {
            let [range] = &one.slots[..] else {
                panic!("one range: {one:?}")
            };
            assert_eq!(topology.node_of(one.id).0, one.id.0);
            range.end() - range.start() + 1
        });
        let (least, most) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
        assert!(most - least <= 1, "{count} nodes: {least} to {most} slots");
    }
    let nodes: Vec<_> = (1..=10)
        .map(|id| NodeInfo {
            replica: Some(([127, 0, 0, 1], 27000 + id).into()),
            ..info(id)
        })
        .collect();
    let topology = Topology::parse(&even(&nodes, 5, None), "even").unwrap();
    assert_eq!(topology.nodes(), nodes);
    let holders = topology.partitions().iter().map(|one| one.nodes.clone());
    let of = |ids: std::ops::RangeInclusive<u16>| ids.map(NodeId).collect::<Vec<_>>();
    assert!(holders.eq([of(1..=5), of(6..=10)]));
    let secret = "quotes \" and \\ are text";
    let topology = Topology::parse(&even(&[info(1)], 1, Some(secret)), "even").unwrap();
    assert_eq!(topology.secret(), Some(secret));
}

/// While a secret is exchanged there are two: the first is proved, and each is long enough.
#[test]
fn a_secret_may_have_several_texts() {
    let (one, two) = ("0123456789abcdef", "fedcba9876543210");
    let of = |text: &str| Topology::parse(&format!("{text}\n{TWO}"), "f");
    let topology = of(&format!("secret = [\"{one}\", \"{two}\"]")).unwrap();
    assert_eq!(topology.secret(), Some(one));
    assert_eq!(
        topology.client_secret().unwrap(),
        fabric::client_secret(one)
    );
    assert_eq!(topology.fingerprint(), of("").unwrap().fingerprint());
    let error = of(&format!("secret = [\"{one}\", \"short\"]")).unwrap_err();
    assert!(
        error.to_string().contains("the secret has 5 bytes"),
        "{error}"
    );
    let error = of("secret = [1]").unwrap_err().to_string();
    assert!(error.contains("secret"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster.toml");
    std::fs::write(&file, format!("secret-file = \"key\"\n{TWO}")).unwrap();
    testkit::files::write_private(&dir.path().join("key"), format!(" {one} \n{two}\n"));
    assert_eq!(Topology::load(&file).unwrap().secret(), Some(one));
    testkit::files::write_private(&dir.path().join("key"), format!("{one}\n\n{two}\n"));
    let error = Topology::load(&file).unwrap_err().to_string();
    assert!(error.contains("key:2: the secret has 0 bytes"), "{error}");
}

#[test]
fn clients_have_a_secret_of_their_own() {
    let of = |text: &str| Topology::parse(&format!("{text}\n{TWO}"), "f").unwrap();
    assert_eq!(of("").client_secret(), None);
    let derived = of("secret = \"0123456789abcdef\"").client_secret().unwrap();
    assert_eq!(derived, fabric::client_secret("0123456789abcdef"));
    let given = of("client-secret = \"one of clients alone\"");
    assert_eq!(given.client_secret().unwrap(), "one of clients alone");
    assert_eq!(given.secret(), None, "it is no secret of nodes");
    for (text, about) in [
        ("client-secret = \"short\"", "the secret has 5 bytes"),
        (
            "client-secret = \"0123456789abcdef\"\nclient-secret-file = \"f\"",
            "both a client-secret and a client-secret-file",
        ),
    ] {
        let found = mistakes(&format!("{text}\n{TWO}"));
        assert!(found[0].contains(about), "{found:?}");
    }
}

/// Nodes send this text to clients that ask for the cluster's file.
#[test]
fn the_text_for_clients_has_no_secret() {
    let open = TWO.replace("127.0.0.1:7002", "10.0.0.1:7002");
    let text = format!(
        "# secret too\nname = \"a \\\"quoted\\\" näme\\u0007\"\nsecret = \"0123456789abcdef\"\n\
         client-secret = \"fedcba9876543210\"\nread_atomic = [\"feed:\", \"\\\\\"]\n{open}"
    );
    let topology = Topology::parse(&text, "f").unwrap();
    let text = topology.text_for_clients();
    for secret in ["0123456789abcdef", "fedcba9876543210", "secret too"] {
        assert!(!text.contains(secret), "{text}");
    }
    let again = Topology::parse(&text, "clients").unwrap();
    assert_eq!(again.fingerprint(), topology.fingerprint());
    assert_eq!(again.name(), topology.name());
    assert_eq!(again.nodes(), topology.nodes());
    assert_eq!(again.partitions(), topology.partitions());
    assert_eq!(again.client_secret(), None);
}

#[test]
fn the_fingerprint_is_of_who_holds_what() {
    let of = |text: &str| Topology::parse(text, "f").unwrap().fingerprint();
    let same = [
        format!("# a comment\n{TWO}"),
        format!("secret = \"0123456789abcdef\"\n{TWO}"),
        TWO.replace("7002", "7003"),
        TWO.replace(r#""0-99", "200-8191", "8192""#, r#""200-8192, 0-99""#),
    ];
    same.iter()
        .for_each(|text| assert_eq!(of(text), of(TWO), "{text}"));
    let other = [
        TWO.replace("8192\"", "8192, 8193\"")
            .replace("8193-", "8194-"),
        TWO.replace("id = 20", "id = 21"),
        TWO.replace("[1]", "[3]")
            .replace("[2]", "[1]")
            .replace("[3]", "[2]"),
    ];
    other
        .iter()
        .for_each(|text| assert_ne!(of(text), of(TWO), "{text}"));
}

#[test]
fn keys_are_found_by_their_slots() {
    let topology = Topology::parse(TWO, "f").unwrap();
    let mut random = Rng::with_seed(3);
    for _ in 0..1000 {
        let key = random.u64(..).to_le_bytes();
        let partition = topology.partition_of(&key);
        let slots = &topology.partition(partition).unwrap().slots;
        assert!(slots.iter().any(|range| range.contains(&slot::of(&key))));
    }
}

#[test]
fn mutated_files_are_understood_or_refused() {
    for seed in 0..3000 {
        let mut random = Rng::with_seed(seed);
        let mut bytes = TWO.as_bytes().to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => drop(bytes.remove(at)),
                1 => bytes[at] = b"0123456789-,[]\"=\n# "[random.usize(..19)],
                _ => bytes.truncate(at.max(1)),
            }
        }
        fuzz_topology(&bytes);
    }
}

/// The example in the documents is a file that works.
#[test]
fn the_example_is_right() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let topology = Topology::load(&docs.join("cluster.example.toml")).unwrap();
    assert_eq!(topology.nodes().len(), 3);
}
