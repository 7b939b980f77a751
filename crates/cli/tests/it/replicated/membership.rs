//! Members that are added, removed, or are others than they should be: their directories, secrets and files.

use std::path::Path;

use super::{text, wait_until_equal};
use crate::support::files::copy;
use crate::support::replicas::Replicas;
use testkit::{Client, eventually};

#[test]
fn a_node_that_has_lost_its_disk_waits_to_be_added_and_gets_a_copy() {
    let mut replicas = Replicas::start(1, 3);
    let mut client = replicas.client();
    for number in 0..500 {
        client.insist(&["SET", &format!("key{number}"), "value"]);
    }
    let lost = replicas.leader(1) % 3 + 1;
    replicas.kill_node(lost);
    replicas.wipe_node(lost);
    replicas.start_node(lost);
    eventually("it says what it waits for", || {
        let log = replicas.log(lost);
        log.contains(&format!("kumiki cluster add --node {lost}"))
    });
    assert_eq!(replicas.said(lost, "role").as_deref(), Some("blank"));
    let (code, _, said) = replicas.command(&["status"]);
    assert_eq!(code, Some(1));
    assert!(said.contains(&format!("node {lost} is blank")), "{said}");
    let (code, out, said) = replicas.command(&["add", "--node", &lost.to_string()]);
    assert_eq!(code, Some(0), "{out}{said}");
    assert!(out.contains("with a vote"), "{out}");
    wait_until_equal(&replicas);
    // Its copy is whole: it serves what was there before it came.
    let mut reader = Client::connect(replicas.address(lost));
    assert_eq!(text(&reader.frame(&["READONLY"])), "OK");
    eventually("it may read", || {
        text(&reader.frame(&["GET", "key499"])) == "value"
    });
    assert_eq!(reader.frame(&["DBSIZE"]).int(), Some(500));
    // And it counts: with another node away there is a majority only with it.
    let other = (1..=3).find(|node| *node != lost && *node != replicas.leader(1));
    replicas.kill_node(other.expect("a third node"));
    client.insist(&["SET", "after", "1"]);
    // Leadership may change hands once more, with a node gone.
    eventually("the answer says that the node has a vote already", || {
        let (code, out, _) = replicas.command(&["add", "--node", &lost.to_string()]);
        code == Some(0) && out.contains("already")
    });
}

#[test]
fn a_node_that_has_just_started_with_an_empty_disk_can_be_added_at_once() {
    let mut replicas = Replicas::start(1, 3);
    replicas.client().insist(&["SET", "key", "value"]);
    let lost = replicas.leader(1) % 3 + 1;
    replicas.kill_node(lost);
    replicas.wipe_node(lost);
    replicas.start_node(lost);
    let (code, out, said) = replicas.command(&["add", "--node", &lost.to_string()]);
    assert_eq!(code, Some(0), "{out}{said}");
}

/// Checks that `cluster status` names the second node with the cause why it takes no part, and that both nodes
/// say it in few lines.
fn assert_named(replicas: &Replicas, nodes: [usize; 2], cause: &str) {
    eventually("status names the cause", || {
        let (code, _, said) = replicas.command(&["status"]);
        let is_named = said.contains(cause) && !said.contains("look at the network");
        code == Some(1) && is_named && said.contains(&format!("node {}", nodes[1]))
    });
    for node in nodes {
        // Each thread with links has a line in the first minute, and they try many times a second.
        let lines = replicas.log(node).matches(cause).count();
        assert!((1..=9).contains(&lines), "{}", replicas.log(node));
    }
}

#[test]
fn a_node_with_another_secret_is_named_with_the_cause_and_few_lines() {
    let secret = "secret = \"0123456789abcdef\"";
    let mut replicas = Replicas::start_declared(1, 3, secret);
    let leader = replicas.leader(1);
    let other = leader % 3 + 1;
    replicas.kill_node(other);
    let text = std::fs::read_to_string(replicas.file()).expect("the cluster's file");
    // The secret of clients allows clients to use the nodes, and no other node.
    let (code, of_clients, said) = replicas.command(&["client-secret"]);
    assert_eq!(code, Some(0), "{said}");
    let of_clients = of_clients.trim();
    let options = client::Options::new(of_clients);
    let client = client::Client::connect(replicas.fabrics(), options);
    let client = client.expect("the nodes run");
    assert_eq!(client.add(b"counter", 1).expect("it is added"), 1);
    let another = text.replace("0123456789abcdef", of_clients);
    std::fs::write(replicas.file(), another).expect("the file");
    replicas.start_node(other);
    std::fs::write(replicas.file(), text).expect("the file");
    assert_named(&replicas, [leader, other], "the secrets differ");
}

#[test]
fn a_node_with_another_cluster_file_is_named_with_the_cause_and_few_lines() {
    let mut replicas = Replicas::start(1, 3);
    let leader = replicas.leader(1);
    let other = leader % 3 + 1;
    replicas.kill_node(other);
    let text = std::fs::read_to_string(replicas.file()).expect("the cluster's file");
    let another = format!("read_atomic = [\"feed:\"]\n{text}");
    std::fs::write(replicas.file(), another).expect("the file");
    replicas.start_node(other);
    std::fs::write(replicas.file(), text).expect("the file");
    assert_named(&replicas, [leader, other], "the clusters differ");
    // The advice helps.
    replicas.kill_node(other);
    replicas.start_node(other);
    eventually("all is well", || replicas.command(&["status"]).0 == Some(0));
}

/// As docs/replication.md describes it.
#[test]
fn a_partition_grows_from_three_members_to_four() {
    let mut replicas = Replicas::start(1, 3);
    replicas.client().insist(&["SET", "key", "value"]);
    let fourth = replicas.declare_another();
    for node in 1..fourth {
        assert!(replicas.stop_node(node).success());
        replicas.start_node(node);
    }
    eventually("each of the three is a member again", || {
        let (_, table, _) = replicas.command(&["status"]);
        table.matches("follower").count() == 2 && table.matches("leader").count() == 1
    });
    replicas.start_node(fourth);
    eventually("it is added", || {
        let (code, _, said) = replicas.command(&["add", "--node", &fourth.to_string()]);
        if code != Some(0) {
            eprintln!("add: {said}");
        }
        code == Some(0)
    });
    eventually("all is well", || {
        let (code, table, _) = replicas.command(&["status"]);
        code == Some(0) && table.matches("follower").count() == 3
    });
    // It counts: without it, two of four would be no majority.
    let others: Vec<usize> = (1..fourth).collect();
    let lost = others.iter().find(|node| **node != replicas.leader(1));
    replicas.kill_node(*lost.expect("a follower"));
    let mut client = replicas.client();
    client.insist(&["SET", "after", "1"]);
    let mut reader = Client::connect(replicas.address(fourth));
    reader.told("READONLY");
    eventually("it has everything", || {
        reader.told("GET after") == "1" && reader.told("GET key") == "value"
    });
}

/// Each would count as the other one.
#[test]
fn the_data_of_another_member_is_refused() {
    let mut replicas = Replicas::start(1, 3);
    replicas.client().insist(&["SET", "key", "value"]);
    replicas.leader(1);
    let (one, other) = (1, 2);
    for node in [one, other] {
        assert!(replicas.stop_node(node).success());
    }
    replicas.exchange_data(one, other);
    for (node, owner) in [(one, other), (other, one)] {
        let said = replicas.try_start_node(node).expect_err("not its data");
        let owner = format!("holds the data of node {owner} of a cluster");
        assert!(said.contains(&owner) && said.contains("--data"), "{said}");
    }
    replicas.exchange_data(one, other);
    for node in [one, other] {
        replicas.start_node(node);
    }
    let value = replicas.client().insist(&["GET", "key"]);
    assert_eq!(text(&value), "value");
}

/// It has forgotten entries that it acknowledged.
#[test]
fn a_member_with_an_old_copy_of_its_directory_stops_and_says_what_to_do() {
    let mut replicas = Replicas::start(1, 3);
    let mut client = replicas.client();
    client.insist(&["SET", "key", "1"]);
    let leader = replicas.leader(1);
    let member = leader % 3 + 1;
    assert!(replicas.stop_node(member).success());
    let data = replicas.data(member);
    let aside = format!("{data}.aside");
    copy(Path::new(&data), Path::new(&aside));
    replicas.start_node(member);
    for number in 0..100 {
        client.insist(&["SET", "key", &number.to_string()]);
    }
    wait_until_equal(&replicas);
    assert!(replicas.stop_node(member).success());
    replicas.wipe_node(member);
    std::fs::rename(&aside, &data).expect("the old copy");
    replicas.start_node(member);
    let remedy = format!("kumiki cluster add --node {member}");
    eventually("status says what to do", || {
        let (code, table, said) = replicas.command(&["status"]);
        let told = said.contains("is older than what this member has acknowledged");
        code == Some(1) && table.contains("stopped") && told && said.contains(&remedy)
    });
    assert!(!replicas.log(member).contains("panicked"));
    // The advice helps.
    replicas.kill_node(member);
    replicas.wipe_node(member);
    replicas.start_node(member);
    eventually("it is added", || {
        let (code, ..) = replicas.command(&["add", "--node", &member.to_string()]);
        code == Some(0)
    });
    eventually("all is well", || replicas.command(&["status"]).0 == Some(0));
}

#[test]
fn a_removed_node_that_comes_back_is_shown_as_removed() {
    let mut replicas = Replicas::start(1, 3);
    replicas.client().insist(&["SET", "key", "value"]);
    let gone = replicas.leader(1) % 3 + 1;
    let number = gone.to_string();
    replicas.kill_node(gone);
    eventually("it is removed", || {
        let (code, ..) = replicas.command(&["remove", "--node", &number]);
        code == Some(0)
    });
    replicas.start_node(gone);
    eventually("status says what to do", || {
        let (code, out, said) = replicas.command(&["status"]);
        let shown = out.lines().any(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            cells.get(1..3) == Some(&[&number[..], "removed"])
        });
        let advice = said.contains(&format!("node {gone} was removed"));
        code == Some(1) && shown && advice && said.contains("delete its data directory")
    });
    let (code, _, said) = replicas.command(&["add", "--node", &number]);
    assert_eq!(code, Some(1));
    assert!(said.contains("delete its data directory"), "{said}");
    // The advice helps.
    replicas.kill_node(gone);
    replicas.wipe_node(gone);
    replicas.start_node(gone);
    let (code, out, said) = replicas.command(&["add", "--node", &number]);
    assert_eq!(code, Some(0), "{out}{said}");
}
