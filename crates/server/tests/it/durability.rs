//! No reply leaves before what it shows is durable.
//!
//! The gate holds syncs. While it is closed, a write is visible to later transactions, so that
//! every kind of reply that shows it must wait, and every reply that does not may leave.

use std::time::Duration;

use crate::support::{Served, bulk, durable, error, int, ok};
use kumiki_server::Durability;
use testkit::Reply;

const A_WHILE: Duration = Duration::from_millis(150);

/// Returns a server with `old` durable, and the gate closed behind it.
fn gated() -> Served {
    let served = durable(Durability::Group);
    assert_eq!(served.client().call(&["SET", "old", "1"]), ok());
    served.gate.close();
    served
}

#[test]
fn replies_that_show_what_is_not_durable_wait() {
    let served = gated();
    let mut writer = served.client();
    writer.send(&["SET", "new", "1"]);
    assert!(writer.is_silent(A_WHILE));
    let shows: [(&[&str], Reply); 9] = [
        (&["GET", "new"], bulk("1")),
        (&["SETNX", "new", "2"], int(0)),
        (&["MSETNX", "new", "2", "other", "2"], int(0)),
        (&["APPEND", "old", "0"], int(2)),
        (&["INCR", "new"], int(2)),
        (&["EXISTS", "new"], int(1)),
        (&["TTL", "new"], int(-1)),
        (&["KEYS", "n*"], Reply::Array(vec![bulk("new")])),
        (&["SET", "new", "3", "NX"], Reply::Null),
    ];
    let mut clients: Vec<_> = shows
        .iter()
        .map(|(command, _)| {
            let mut client = served.client();
            client.send(command);
            // One after the other, so that each sees what the earlier ones have done.
            assert!(client.is_silent(Duration::from_millis(30)), "{command:?}");
            client
        })
        .collect();
    for (client, (command, _)) in clients.iter_mut().zip(&shows) {
        assert!(client.is_silent(Duration::from_millis(10)), "{command:?}");
    }
    served.gate.open();
    assert_eq!(writer.reply(), ok());
    for (mut client, (command, expected)) in clients.into_iter().zip(shows) {
        assert_eq!(client.reply(), expected, "{command:?}");
    }
}

#[test]
fn an_absence_and_an_aborted_block_wait_too() {
    let served = gated();
    let mut watcher = served.client();
    assert_eq!(watcher.call(&["WATCH", "old"]), ok());
    let mut deleter = served.client();
    deleter.send(&["DEL", "old"]);
    assert!(deleter.is_silent(A_WHILE));
    let mut reader = served.client();
    reader.send(&["GET", "old"]);
    assert_eq!(watcher.call(&["MULTI"]), ok());
    watcher.send(&["GET", "x"]);
    watcher.reply();
    watcher.send(&["EXEC"]);
    assert!(reader.is_silent(A_WHILE) && watcher.is_silent(A_WHILE));
    served.gate.open();
    assert_eq!(deleter.reply(), int(1));
    assert_eq!(reader.reply(), Reply::Null);
    assert_eq!(watcher.reply(), Reply::NullArray);
}

#[test]
fn a_version_and_a_stale_token_wait_too() {
    let served = gated();
    let mut holder = served.client();
    for command in [
        &["MULTI"][..],
        &["LOCK.GUARD", "lock", "5"],
        &["SET", "new", "1"],
    ] {
        holder.call(command);
    }
    holder.send(&["EXEC"]);
    assert!(holder.is_silent(A_WHILE));
    let (mut asker, mut late) = (served.client(), served.client());
    for command in [&["MULTI"][..], &["LOCK.GUARD", "lock", "4"], &["GET", "x"]] {
        late.call(command);
    }
    asker.send(&["WATCH.VERSION", "new"]);
    late.send(&["EXEC"]);
    assert!(asker.is_silent(A_WHILE) && late.is_silent(A_WHILE));
    served.gate.open();
    assert_eq!(holder.reply(), Reply::Array(vec![ok(), ok()]));
    assert!(matches!(asker.reply(), Reply::Array(told) if told.len() == 1));
    assert!(error(&late.reply()).starts_with("FENCED "));
}

#[test]
fn replies_that_show_only_what_is_durable_do_not_wait() {
    let served = gated();
    let mut writer = served.client();
    writer.send(&["SET", "new", "1"]);
    let mut reader = served.client();
    assert_eq!(reader.call(&["GET", "old"]), bulk("1"));
    assert_eq!(reader.call(&["PING"]), crate::support::status("PONG"));
    // Behind a reply that waits, on the same connection, everything waits.
    writer.send(&["PING"]);
    assert!(writer.is_silent(A_WHILE));
    served.gate.open();
    assert_eq!(
        (writer.reply(), writer.reply()),
        (ok(), crate::support::status("PONG"))
    );
}

#[test]
fn async_does_not_wait() {
    let served = durable(Durability::Async);
    served.gate.close();
    let mut client = served.client();
    assert_eq!(client.call(&["SET", "a", "1"]), ok());
    assert_eq!(client.call(&["GET", "a"]), bulk("1"));
    served.gate.open();
}

#[test]
fn a_failed_log_ends_writes_and_nothing_else() {
    let served = gated();
    let mut writer = served.client();
    writer.send(&["SET", "new", "1"]);
    writer.send(&["GET", "old"]);
    assert!(writer.is_silent(A_WHILE));
    let mut reader = served.client();
    reader.send(&["GET", "new"]);
    assert!(reader.is_silent(A_WHILE));
    served.gate.break_down();
    // Each command has its reply, and connections stay.
    for (client, replies) in [(&mut writer, 2), (&mut reader, 1)] {
        for _ in 0..replies {
            let reply = client.reply();
            assert!(error(&reply).starts_with("MISCONF "), "{reply:?}");
        }
        assert_eq!(client.call(&["GET", "old"]), bulk("1"));
    }
    let mut client = served.client();
    assert_eq!(client.call(&["GET", "old"]), bulk("1"));
    let refused = client.call(&["SET", "old", "2"]);
    assert!(error(&refused).starts_with("MISCONF "), "{refused:?}");
    let never = client.call(&["GET", "new"]);
    assert!(error(&never).starts_with("MISCONF "), "{never:?}");
    assert_eq!(client.call(&["GET", "old"]), bulk("1"));
    let Reply::Bulk(info) = client.call(&["INFO", "persistence"]) else {
        panic!("no bulk")
    };
    let info = String::from_utf8(info).unwrap();
    assert!(info.contains("aof_last_write_status:err\r\n"), "{info}");
    assert!(info.contains("the gate is broken"), "{info}");
}

#[test]
fn stopping_waits_for_durability() {
    let mut served = gated();
    let mut client = served.client();
    client.send(&["SET", "new", "1"]);
    assert!(client.is_silent(A_WHILE));
    let server = served.server.take().unwrap();
    server.stopper().stop();
    assert!(client.is_silent(A_WHILE));
    served.gate.open();
    assert_eq!(client.reply(), ok());
    assert!(client.is_closed());
    server.wait().unwrap();
}
