//! Libraries of functions over a change of leaders, in a node that lost its data, and on disk.

use crate::support::process::run;
use crate::support::replicas::{Follower, Replicas, STEADY};
use testkit::{Client, eventually};

use super::{ask, text, wait_until_equal};

const LIBRARY: &str = "#!lua name=lib\nredis.register_function('f', function(keys) \
    return redis.call('incr', keys[1]) end)";

/// Calls the function. Returns its number, which may be greater than expected: a call whose outcome is unknown
/// is repeated.
fn count(client: &mut Follower) -> u64 {
    let number = text(&client.insist(&["FCALL", "f", "1", "foo"]));
    number.parse().expect("a number")
}

#[test]
fn libraries_survive_their_leaders() {
    let mut replicas = Replicas::start_with(1, 3, &STEADY);
    let first = replicas.leader(1);
    let mut client = replicas.client();
    // Another node passes it on.
    let follower = first % 3 + 1;
    let load = ["FUNCTION", "LOAD", "REPLACE", LIBRARY];
    eventually("it is loaded", || ask(&replicas, follower, &load) == "lib");
    let before = count(&mut client);
    replicas.kill_node(first);
    let counted = count(&mut client);
    assert!(counted > before, "{counted}");
    // It gets a copy.
    replicas.wipe_node(first);
    replicas.start_node(first);
    let (code, out, said) = replicas.command(&["add", "--node", &first.to_string()]);
    assert_eq!(code, Some(0), "{out}{said}");
    wait_until_equal(&replicas);
    let leader = replicas.leader(1);
    let listed = |node| {
        let mut client = Client::connect(replicas.address(node));
        client.told("FUNCTION LIST LIBRARYNAME lib")
    };
    for node in 1..=3 {
        eventually("each node shows it", || listed(node).contains("[name f "));
    }
    assert_eq!(ask(&replicas, leader, &["SAVE"]), "OK");
    assert_eq!(ask(&replicas, leader, &["DBSIZE"]), "1");
    replicas.transfer(&["--to", &first.to_string()]);
    eventually("it leads", || replicas.leader(1) == first);
    let again = count(&mut client);
    assert!(again > counted, "{again}");
    let data = replicas.data(follower);
    assert!(replicas.stop_node(follower).success());
    let (code, report, said) = run(&["check", &data]);
    assert!(
        code == Some(0) && report.contains("sound"),
        "{report}{said}"
    );
}
