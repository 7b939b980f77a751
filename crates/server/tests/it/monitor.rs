//! `MONITOR`: clients that are shown the commands of all others.

use std::time::Duration;

use crate::support::{config, ephemeral, error, ok, status};
use kumiki_server::{Config, Limits};
use testkit::{Client, Reply, eventually};

/// Returns the commands of the next lines, without times and addresses.
fn lines(monitor: &mut Client, count: usize) -> Vec<String> {
    let line = |_| match monitor.reply() {
        Reply::Status(line) => {
            let (at, rest) = line.split_once(" [0 127.0.0.1:").expect("a client");
            let (secs, micros) = at.split_once('.').expect("a time");
            assert!(secs.parse::<u64>().is_ok() && micros.len() == 6, "{line}");
            rest.split_once("] ").expect("a command").1.to_owned()
        }
        other => panic!("{other:?} is no line"),
    };
    (0..count).map(line).collect()
}

#[test]
fn all_monitors_see_what_all_clients_do() {
    let served = ephemeral(config());
    // On all threads of the server.
    let mut monitors = [(); 8].map(|()| served.client());
    for monitor in &mut monitors {
        assert_eq!(monitor.call(&["MONITOR"]), ok());
    }
    for number in 0..8 {
        let mut client = served.client();
        client.call(&["Set", &format!("key{number}"), "a \"b\"\r\n"]);
        let expected = [format!("\"Set\" \"key{number}\" \"a \\\"b\\\"\\r\\n\"")];
        for monitor in &mut monitors {
            assert_eq!(lines(monitor, 1), expected);
        }
    }
    let mut client = served.client();
    let list = client.told("CLIENT LIST");
    let shown = list.lines().filter(|line| line.contains(" flags=O "));
    assert_eq!(shown.count(), 8, "{list}");
    drop(monitors);
    eventually("no client monitors", || {
        !client.told("CLIENT LIST").contains(" flags=O ")
    });
}

#[test]
fn commands_are_shown_as_they_are_executed_and_without_secrets() {
    let served = ephemeral(config());
    let mut monitor = served.client();
    assert_eq!(monitor.call(&["MONITOR"]), ok());
    let mut client = served.client();
    for call in [
        &["AUTH", "default", "secret"][..],
        &["HELLO", "2", "AUTH", "default", "secret"],
        &["CONFIG", "GET", "port"],
        &["NOSUCH"],
        &["GET"],
        &["MULTI"],
        &["SET", "a", "1"],
        &["CONFIG", "GET", "port"],
        &["EXEC"],
        &["MULTI"],
        &["SET", "a", "2"],
        &["DISCARD"],
        &["MULTI"],
        &["MONITOR"],
    ] {
        client.call(call);
    }
    let Reply::Array(replies) = client.call(&["EXEC"]) else {
        panic!("no array");
    };
    assert!(error(&replies[0]).contains("MONITOR isn't allowed"));
    let expected = [
        "\"AUTH\" \"(redacted)\" \"(redacted)\"",
        "\"HELLO\" \"2\" \"AUTH\" \"(redacted)\" \"(redacted)\"",
        "\"MULTI\"",
        "\"SET\" \"a\" \"1\"",
        "\"EXEC\"",
        "\"MULTI\"",
        "\"DISCARD\"",
        "\"MULTI\"",
        "\"EXEC\"",
    ];
    assert_eq!(lines(&mut monitor, expected.len()), expected);
    monitor.send(&["RESET"]);
    assert_eq!(monitor.reply(), status("RESET"));
    client.call(&["GET", "a"]);
    assert!(monitor.is_silent(Duration::from_millis(200)));
}

#[test]
fn a_monitor_that_is_slow_is_closed() {
    let limits = Limits {
        subscriber_output: 1 << 20,
        ..Limits::default()
    };
    let served = ephemeral(Config { limits, ..config() });
    let mut monitor = served.client();
    assert_eq!(monitor.call(&["MONITOR"]), ok());
    let mut client = served.client();
    let value = "x".repeat(64 << 10);
    let mut sent = 0;
    while client.told("CLIENT LIST").contains(" flags=O ") {
        assert_eq!(client.call(&["SET", "a", &value]), ok());
        sent += 1;
        assert!(sent < 10_000, "the monitor is never closed");
    }
    assert!(sent >= 16, "{sent} commands are fewer than the limit");
    // One command beyond the limit closes a monitor by itself.
    let mut monitor = served.client();
    assert_eq!(monitor.call(&["MONITOR"]), ok());
    assert_eq!(client.call(&["SET", "a", &"x".repeat(2 << 20)]), ok());
    assert!(monitor.is_closed());
    eventually("no client monitors", || {
        !client.told("CLIENT LIST").contains(" flags=O ")
    });
}
