//! Blocks are one transaction; watches are their precondition.

use crate::support::{Served, bulk, config, ephemeral, error, int, ok, status, transfer_by};
use testkit::Reply;
use testkit::workload::Extent;

fn block(served: &Served, commands: &[&[&str]]) -> Reply {
    let mut client = served.client();
    assert_eq!(client.call(&["MULTI"]), ok());
    for command in commands {
        assert_eq!(client.call(command), status("QUEUED"), "{command:?}");
    }
    client.call(&["EXEC"])
}

#[test]
fn all_or_nothing_within_a_block() {
    let served = ephemeral(config());
    let done = block(
        &served,
        &[
            &["MSETNX", "a", "1", "b", "1"],
            &["MSETNX", "b", "2", "c", "2"],
            &["DEL", "b"],
            &["MSETNX", "b", "3", "c", "3"],
            &["MGET", "a", "b", "c"],
        ],
    );
    let values = Reply::Array(vec![bulk("1"), bulk("3"), bulk("3")]);
    assert_eq!(
        done,
        Reply::Array(vec![int(1), int(0), int(1), int(1), values])
    );
}

#[test]
fn what_fails_alone_fails_alone() {
    let served = ephemeral(config());
    let done = block(
        &served,
        &[
            &["SET", "a", "x"],
            &["INCR", "a"],
            &["SET", "b", "1", "WHAT"],
            &["PING"],
            &["KEYS", "*"],
            &["SCAN", "0"],
            &["UNWATCH"],
            &["APPEND", "a", "y"],
        ],
    );
    let Reply::Array(replies) = done else {
        panic!("{done:?}")
    };
    assert_eq!(replies.len(), 8);
    assert_eq!(
        error(&replies[1]),
        "ERR value is not an integer or out of range"
    );
    assert_eq!(error(&replies[2]), "ERR syntax error");
    assert_eq!(replies[3], status("PONG"));
    assert_eq!(replies[4], Reply::Array(vec![bulk("a")]));
    assert_eq!(
        replies[5],
        Reply::Array(vec![bulk("0"), Reply::Array(vec![bulk("a")])])
    );
    assert_eq!((&replies[6], &replies[7]), (&ok(), &int(2)));
}

#[test]
fn a_watched_key_that_changes_ends_the_block() {
    let served = ephemeral(config());
    let mut other = served.client();
    let changes: [&[&str]; 4] = [
        &["SET", "k", "2"],
        &["DEL", "k"],
        &["EXPIRE", "k", "100"],
        &["FLUSHALL"],
    ];
    for change in changes {
        let mut client = served.client();
        assert_eq!(client.call(&["SET", "k", "1"]), ok());
        assert_eq!(client.call(&["WATCH", "k", "unrelated"]), ok());
        other.call(change);
        assert_eq!(client.call(&["MULTI"]), ok());
        client.call(&["SET", "k", "3"]);
        assert_eq!(client.call(&["EXEC"]), Reply::NullArray, "{change:?}");
        // The watch has ended with it.
        assert_eq!(client.call(&["MULTI"]), ok());
        client.call(&["SET", "k", "4"]);
        assert_eq!(client.call(&["EXEC"]), Reply::Array(vec![ok()]));
    }
    let mut client = served.client();
    assert_eq!(client.call(&["WATCH", "k"]), ok());
    other.call(&["SET", "k", "5"]);
    assert_eq!(client.call(&["UNWATCH"]), ok());
    assert_eq!(client.call(&["MULTI"]), ok());
    client.call(&["GET", "k"]);
    assert_eq!(client.call(&["EXEC"]), Reply::Array(vec![bulk("5")]));
}

fn versions(client: &mut testkit::Client, keys: &[&str]) -> Vec<String> {
    let command: Vec<&str> = std::iter::once("WATCH.VERSION")
        .chain(keys.iter().copied())
        .collect();
    let Reply::Array(versions) = client.call(&command) else {
        panic!("a list of versions")
    };
    let text = |version| match version {
        Reply::Bulk(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    };
    versions.into_iter().map(text).collect()
}

/// `WATCH` needs one connection; a client that has its connection only from time to time uses
/// versions for the same purpose.
#[test]
fn versions_that_were_told_can_be_watched_by_another_connection() {
    let served = ephemeral(config());
    let (mut one, mut two) = (served.client(), served.client());
    assert_eq!(one.call(&["SET", "k", "1"]), ok());
    let changes: [&[&str]; 7] = [
        &["SET", "k", "2"],
        &["SET", "absent", "1"],
        &["DEL", "absent"],
        &["EXPIRE", "k", "100"],
        &["FLUSHALL"],
        &["SET", "k", "3"],
        &["DEL", "k"],
    ];
    for change in changes {
        let seen = versions(&mut one, &["k", "absent"]);
        let at = ["WATCH.AT", "k", &seen[0], "absent", &seen[1]];
        for changed in [false, true] {
            if changed {
                two.call(change);
            }
            // In one piece, as on a connection that is shared.
            two.send(&at);
            two.send(&["MULTI"]);
            two.send(&["GET", "other"]);
            two.send(&["EXEC"]);
            assert_eq!(two.reply(), ok());
            assert_eq!((two.reply(), two.reply()), (ok(), status("QUEUED")));
            let expected = match changed {
                false => Reply::Array(vec![Reply::Null]),
                true => Reply::NullArray,
            };
            assert_eq!(two.reply(), expected, "{change:?}");
            // The watches have ended with it.
            assert_eq!(two.call(&["MULTI"]), ok());
            assert_eq!(two.call(&["EXEC"]), Reply::Array(Vec::new()));
        }
    }
}

#[test]
fn versions_are_watched_as_by_watch() {
    let served = ephemeral(config());
    let mut client = served.client();
    let old = versions(&mut client, &["k"]).remove(0);
    client.call(&["SET", "k", "1"]);
    let new = versions(&mut client, &["k"]).remove(0);
    assert_ne!(old, new);
    // The version that was seen first counts, whichever command saw it.
    for (first, then, done) in [(&old, &new, false), (&new, &old, true)] {
        assert_eq!(client.call(&["WATCH.AT", "k", first, "k", then]), ok());
        assert_eq!(client.call(&["WATCH", "k"]), ok());
        client.call(&["MULTI"]);
        assert_eq!(client.call(&["EXEC"]) != Reply::NullArray, done);
    }
    client.call(&["WATCH.AT", "k", &old]);
    assert_eq!(client.call(&["UNWATCH"]), ok());
    client.call(&["MULTI"]);
    for command in [&["WATCH.AT", "k", &old][..], &["WATCH.VERSION", "k"]] {
        let refused = client.call(command);
        let text = format!("ERR {} inside MULTI is not allowed", command[0]);
        assert_eq!(error(&refused), text);
    }
    assert_eq!(
        client.call(&["EXEC"]),
        Reply::Array(Vec::new()),
        "as after WATCH"
    );
    for wrong in [
        &["WATCH.AT", "k"][..],
        &["WATCH.AT", "k", &old, "l"],
        &["WATCH.VERSION"],
    ] {
        let text = error(&client.call(wrong)).to_owned();
        assert!(text.starts_with("ERR wrong number of arguments"), "{text}");
    }
    let refused = client.call(&["WATCH.AT", "k", &new, "l", "none"]);
    assert!(error(&refused).contains("WATCH.VERSION"));
}

#[test]
fn a_stale_token_refuses_the_block() {
    let served = ephemeral(config());
    let guarded = |token: &str, value: &str| {
        block(
            &served,
            &[&["LOCK.GUARD", "the lock", token], &["SET", "k", value]],
        )
    };
    let done = Reply::Array(vec![ok(), ok()]);
    assert_eq!(guarded("5", "a"), done);
    assert_eq!(guarded("8", "b"), done);
    let fenced = "FENCED the lock 'the lock' has been granted with a newer token (8 > 5); \
        acquire it again";
    assert_eq!(error(&guarded("5", "c")), fenced);
    let mut client = served.client();
    assert_eq!(client.call(&["GET", "k"]), bulk("b"));
    assert_eq!(guarded("8", "d"), done);
    assert_eq!(client.call(&["FLUSHALL"]), ok());
    assert_eq!(error(&guarded("5", "e")), fenced, "no flush forgets it");
    assert_eq!(client.call(&["DBSIZE"]), int(0));
    assert_eq!(client.call(&["KEYS", "*"]), Reply::Array(Vec::new()));
    // Several locks, and a block that only reads.
    let both: [&[&str]; 3] = [
        &["LOCK.GUARD", "the lock", "9"],
        &["LOCK.GUARD", "other", "1"],
        &["GET", "k"],
    ];
    assert_eq!(
        block(&served, &both),
        Reply::Array(vec![ok(), ok(), Reply::Null])
    );
    assert!(error(&guarded("8", "f")).starts_with("FENCED "));
    // A watched key that has changed, or a token: the first that is found counts.
    assert_eq!(client.call(&["WATCH", "k"]), ok());
    assert_eq!(guarded("9", "g"), done);
    client.call(&["MULTI"]);
    client.call(&["LOCK.GUARD", "the lock", "9"]);
    client.call(&["SET", "k", "h"]);
    assert_eq!(client.call(&["EXEC"]), Reply::NullArray);
}

#[test]
fn a_guard_stands_first_in_a_block_and_guards_something() {
    let served = ephemeral(config());
    let mut client = served.client();
    let alone = client.call(&["LOCK.GUARD", "lock", "1"]);
    assert!(error(&alone).starts_with("ERR LOCK.GUARD without MULTI"));
    let mistakes: [(&[&str], &str); 4] = [
        (&["LOCK.GUARD", "lock", "-1"], "not a number"),
        (&["LOCK.GUARD", "lock", "1x"], "not a number"),
        (&["LOCK.GUARD", "lock"], "wrong number of arguments"),
        (
            &["LOCK.GUARD", "lock", "1", "2"],
            "wrong number of arguments",
        ),
    ];
    for (mistake, words) in mistakes {
        assert_eq!(client.call(&["MULTI"]), ok());
        let refused = client.call(mistake);
        assert!(error(&refused).contains(words), "{refused:?}");
        assert_eq!(client.call(&["SET", "k", "1"]), status("QUEUED"));
        assert!(error(&client.call(&["EXEC"])).starts_with("EXECABORT "));
    }
    assert_eq!(client.call(&["MULTI"]), ok());
    assert_eq!(client.call(&["SET", "k", "1"]), status("QUEUED"));
    let late = client.call(&["LOCK.GUARD", "lock", "1"]);
    assert!(error(&late).contains("must come first"));
    assert!(error(&client.call(&["EXEC"])).starts_with("EXECABORT "));
    assert_eq!(client.call(&["EXISTS", "k"]), int(0));
    for others in [&[][..], &[&["PING"][..]], &[&["SET", "k", "1", "WHAT"]]] {
        let commands = [&[&["LOCK.GUARD", "lock", "7"][..]], others].concat();
        let refused = block(&served, &commands);
        assert!(error(&refused).contains("guards nothing"), "{refused:?}");
    }
    // Nothing of it was seen.
    let done = block(&served, &[&["LOCK.GUARD", "lock", "1"], &["DBSIZE"]]);
    assert_eq!(done, Reply::Array(vec![ok(), int(0)]));
}

#[test]
fn a_block_beyond_its_limits_cannot_execute() {
    let mut config = config();
    config.limits.block_bytes = 10_000;
    let served = ephemeral(config);
    let mut client = served.client();
    assert_eq!(client.call(&["MULTI"]), ok());
    assert_eq!(client.call(&["SET", "a", "1"]), status("QUEUED"));
    let refused = client.call(&["SET", "b", &"x".repeat(20_000)]);
    assert!(error(&refused).contains("exceeds its limits"));
    assert!(error(&client.call(&["EXEC"])).starts_with("EXECABORT"));
    assert_eq!(client.call(&["EXISTS", "a", "b"]), int(0));
}

/// Clients move amounts between accounts, by `WATCH` and by one block, and look at all accounts at
/// once. The sum never changes.
#[test]
fn blocks_of_many_clients_are_serializable() {
    let served = ephemeral(config());
    let extent = Extent {
        processes: 5,
        transactions: 300,
        ..Extent::default()
    };
    transfer_by(&extent, |_| served.client());
}

#[test]
fn watching_very_many_keys_takes_linear_time() {
    let served = ephemeral(config());
    let mut client = served.client();
    let keys: Vec<String> = (0..200_000).map(|key| format!("key:{key}")).collect();
    let mut watch = vec!["WATCH"];
    watch.extend(keys.iter().map(String::as_str));
    assert_eq!(client.call(&watch), ok());
    let mut other = served.client();
    assert_eq!(other.call(&["SET", "key:150000", "1"]), ok());
    // The version that was seen first counts.
    assert_eq!(client.call(&["WATCH", "key:150000"]), ok());
    assert_eq!(client.call(&["MULTI"]), ok());
    assert_eq!(client.call(&["SET", "a", "1"]), status("QUEUED"));
    assert_eq!(client.call(&["EXEC"]), Reply::NullArray);
    assert_eq!(client.call(&["EXISTS", "a"]), int(0));
}
