//! A replicated partition behind the Redis protocol, as far as one node shows it.

use crate::support::replica::alone;
use crate::support::{bulk, error, int, ok, status};
use testkit::Reply;

fn text(value: &Reply) -> String {
    match value {
        Reply::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        Reply::Status(text) | Reply::Error(text) => text.clone(),
        other => panic!("{other:?} is no text"),
    }
}

#[test]
fn pipelines_keep_their_order_through_consensus() {
    let replica = alone();
    let mut client = replica.client();
    // Each needs what the one before it holds until that is agreed upon.
    for number in 0..100 {
        client.send(&["SET", "key", &number.to_string()]);
        client.send(&["GET", "key"]);
        client.send(&["PING"]);
    }
    for number in 0..100 {
        assert_eq!(client.reply(), ok());
        assert_eq!(client.reply(), bulk(&number.to_string()));
        assert_eq!(client.reply(), status("PONG"));
    }
}

#[test]
fn it_says_what_it_is() {
    let replica = alone();
    let mut client = replica.client();
    client.call(&["SET", "key", "1"]);
    let hello = client.call(&["HELLO", "2"]).shown();
    assert!(hello.contains("role master"), "{hello}");
    let Reply::Array(role) = client.call(&["ROLE"]) else {
        panic!("no list")
    };
    assert_eq!(role[0], bulk("master"));
    assert!(matches!(role[1], Reply::Int(1..)), "{role:?}");
    assert_eq!(role[2..], [Reply::Array(Vec::new())]);
    assert_eq!(client.call(&["WAIT", "1", "0"]), int(0));
    replica.end_member();
    testkit::eventually("it does not lead any more", || {
        client
            .call(&["HELLO", "2"])
            .shown()
            .contains("role replica")
    });
    let Reply::Array(role) = client.call(&["ROLE"]) else {
        panic!("no list")
    };
    assert_eq!((&role[0], role.len()), (&bulk("slave"), 5));
    let refused = client.call(&["WAIT", "1", "0"]);
    assert!(error(&refused).contains("replica instances"), "{refused:?}");
}

#[test]
fn walks_and_counts_see_what_was_acknowledged() {
    let replica = alone();
    let mut client = replica.client();
    for number in 0..3000 {
        client.send(&["SET", &format!("key{number}"), "value"]);
    }
    (0..3000).for_each(|_| assert_eq!(client.reply(), ok()));
    assert_eq!(client.call(&["DBSIZE"]), int(3000));
    let Reply::Array(keys) = client.call(&["KEYS", "key*"]) else {
        panic!("no list")
    };
    assert_eq!(keys.len(), 3000);
    assert_eq!(client.call(&["FLUSHALL"]), ok());
    assert_eq!(client.call(&["KEYS", "*"]), Reply::Array(Vec::new()));
    assert_eq!(client.call(&["CLUSTER", "COUNTKEYSINSLOT", "1"]), int(0));
}

#[test]
fn databases_are_replicated() {
    let replica = alone();
    let [mut zero, mut one] = [replica.client(), replica.client()];
    assert_eq!(one.call(&["SELECT", "1"]), ok());
    for client in [&mut zero, &mut one] {
        assert_eq!(client.call(&["MSET", "a", "1", "b", "2"]), ok());
    }
    assert_eq!(one.call(&["MOVE", "a", "0"]), int(0));
    assert_eq!(one.call(&["COPY", "a", "c", "DB", "0"]), int(1));
    assert_eq!(zero.call(&["DBSIZE"]), int(3));
    assert_eq!(one.call(&["FLUSHDB"]), ok());
    assert_eq!(one.call(&["KEYS", "*"]), Reply::Array(Vec::new()));
    assert_eq!(one.call(&["SET", "a", "new"]), ok());
    assert_eq!(
        [zero.call(&["DBSIZE"]), one.call(&["DBSIZE"])],
        [3, 1].map(int)
    );
    assert_eq!(zero.call(&["FLUSHDB"]), ok());
    assert_eq!(one.call(&["GET", "a"]), bulk("new"));
    let keys = Reply::Array(vec![bulk("a")]);
    assert_eq!(one.call(&["KEYS", "*"]), keys);
}

#[test]
fn a_block_is_one_transaction_and_watches_are_its_precondition() {
    let replica = alone();
    let (mut client, mut other) = (replica.client(), replica.client());
    client.call(&["SET", "key", "1"]);
    for (between, done) in [(None, true), (Some("2"), false)] {
        client.call(&["WATCH", "key"]);
        if let Some(value) = between {
            other.call(&["SET", "key", value]);
        }
        client.call(&["MULTI"]);
        client.call(&["INCR", "key"]);
        client.call(&["GET", "key"]);
        let outcome = client.call(&["EXEC"]);
        match done {
            true => assert_eq!(outcome, Reply::Array(vec![int(2), bulk("2")])),
            false => assert_eq!(outcome, Reply::NullArray),
        }
    }
    client.call(&["MULTI"]);
    client.call(&["PING"]);
    assert_eq!(client.call(&["EXEC"]), Reply::Array(vec![status("PONG")]));
}

#[test]
fn without_its_member_a_node_refuses_and_says_why() {
    let replica = alone();
    let mut client = replica.client();
    assert_eq!(client.call(&["SET", "key", "1"]), ok());
    replica.end_member();
    for args in [
        &["SET", "key", "2"][..],
        &["GET", "key"],
        &["KEYS", "*"],
        &["DBSIZE"],
    ] {
        let said = client.call(args);
        assert!(
            error(&said).starts_with("CLUSTERDOWN "),
            "{args:?}: {said:?}"
        );
    }
    assert_eq!(client.call(&["PING"]), status("PONG"));
    let health = testkit::http::get(replica.admin(), "/health");
    assert_eq!(health.status, 503, "{}", health.body);
    let said = &health.body;
    assert!(
        said.contains("replica has stopped") && said.contains("restarted"),
        "{said}"
    );
    let metrics = testkit::http::get(replica.admin(), "/metrics").body;
    for figure in ["kumiki_replica_stopped 1", "kumiki_replica_leads 0"] {
        assert!(
            metrics.lines().any(|line| line == figure),
            "{figure}: {metrics}"
        );
    }
    let said = text(&client.call(&["CLUSTER", "REPLICATION", "STATUS"]));
    assert!(said.contains("role:stopped\r\n"), "{said}");
}

#[test]
fn changes_of_members_that_make_no_sense_are_refused() {
    let replica = alone();
    let mut client = replica.client();
    let said = text(&client.call(&["CLUSTER", "REPLICATION", "STATUS"]));
    assert!(
        said.contains("role:leader\r\n") && said.contains("member:node=1,"),
        "{said}"
    );
    for (args, words) in [
        (&["ADD"][..], "give CLUSTER REPLICATION STATUS"),
        (&["ADD", "x"], "give CLUSTER REPLICATION STATUS"),
        (&["GROW", "1"], "give CLUSTER REPLICATION STATUS"),
        (&["ADD", "9"], "is not one of this partition's nodes"),
        (&["REMOVE", "9"], "is not a member"),
        (&["REMOVE", "1"], "transfer the leadership"),
        (&["TRANSFER", "1"], "leads already"),
        (&["TRANSFER"], "no other member"),
    ] {
        let args = [&["CLUSTER", "REPLICATION"], args].concat();
        let said = client.call(&args);
        assert!(error(&said).contains(words), "{args:?}: {said:?}");
    }
}
