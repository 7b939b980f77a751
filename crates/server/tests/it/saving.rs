//! Checkpoints on request: which answers clients get, and which clients wait.

use std::time::Duration;

use crate::support::{Served, config, durable, ephemeral, error, int, ok, status};
use kumiki_server::{Config, Durability};
use testkit::{Reply, eventually};

const A_WHILE: Duration = Duration::from_millis(150);

/// Returns a server with some keys.
fn filled() -> Served {
    let served = durable(Durability::Group);
    let mut client = served.client();
    for number in 0..50 {
        let key = format!("key{number}");
        assert_eq!(client.call(&["SET", &key, "value"]), ok());
    }
    served
}

#[track_caller]
fn number(value: &Reply) -> i64 {
    match value {
        Reply::Int(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}

/// Returns a field of `INFO persistence`.
fn info(client: &mut testkit::Client, name: &str) -> String {
    let Reply::Bulk(text) = client.call(&["INFO", "persistence"]) else {
        panic!("no bulk")
    };
    let text = String::from_utf8(text).unwrap();
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(own, _)| *own == name);
    found
        .unwrap_or_else(|| panic!("no {name}: {text}"))
        .1
        .to_owned()
}

/// Waits until as many checkpoints as this were made.
fn wait_for(served: &Served, completed: u64) {
    eventually("a checkpoint", || {
        served.db.checkpoint_status().completed >= completed
    });
}

#[test]
fn save_answers_when_there_is_a_checkpoint() {
    let served = filled();
    let mut client = served.client();
    let before = number(&client.call(&["LASTSAVE"]));
    assert_eq!(client.call(&["SAVE"]), ok());
    let status = served.db.checkpoint_status();
    assert_eq!((status.completed, status.failed), (1, 0));
    let after = number(&client.call(&["LASTSAVE"]));
    assert!(after >= before);
    let last = status.last.expect("it is there").finished_ms;
    assert_eq!(after, (last / 1000) as i64);
    // The connection continues, also with the commands that were sent behind SAVE.
    client.send(&["SAVE"]);
    client.send(&["GET", "key1"]);
    client.send(&["SAVE"]);
    client.send(&["ECHO", "x"]);
    assert_eq!(client.reply(), ok());
    assert_eq!(client.reply(), crate::support::bulk("value"));
    assert_eq!(client.reply(), ok());
    assert_eq!(client.reply(), crate::support::bulk("x"));
    assert_eq!(served.db.checkpoint_status().completed, 3);
}

#[test]
fn bgsave_answers_at_once() {
    let served = filled();
    let mut client = served.client();
    for (at, args) in [&["BGSAVE"][..], &["bgsave", "schedule"]]
        .iter()
        .enumerate()
    {
        assert_eq!(client.call(args), status("Background saving started"));
        // As Redis's tools do.
        while info(&mut client, "rdb_bgsave_in_progress") == "1" {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(info(&mut client, "rdb_saves"), (at + 1).to_string());
        assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
        let saved = info(&mut client, "rdb_last_save_time");
        assert_eq!(number(&client.call(&["LASTSAVE"])).to_string(), saved);
    }
    for args in [&["BGSAVE", "x"][..], &["BGSAVE", "SCHEDULE", "x"]] {
        assert_eq!(error(&client.call(args)), "ERR syntax error");
    }
    assert_eq!(client.call(&["MULTI"]), ok());
    assert_eq!(client.call(&["BGSAVE"]), status("QUEUED"));
    let refused = client.call(&["SAVE"]);
    assert_eq!(
        error(&refused),
        "ERR Command not allowed inside a transaction"
    );
    client.call(&["DISCARD"]);
    client.call(&["MULTI"]);
    client.call(&["BGSAVE"]);
    let scheduled = Reply::Array(vec![status("Background saving scheduled")]);
    assert_eq!(client.call(&["EXEC"]), scheduled);
    wait_for(&served, 3);
}

/// While syncs are held no checkpoint can end; everyone else is served.
#[test]
fn save_holds_up_no_other_client() {
    let served = filled();
    let mut clients: Vec<_> = (0..4).map(|_| served.client()).collect();
    served.gate.close();
    let mut writer = served.client();
    writer.send(&["SET", "new", "1"]);
    assert!(writer.is_silent(A_WHILE));
    let mut saver = served.client();
    saver.send(&["SAVE"]);
    saver.send(&["PING"]);
    assert!(saver.is_silent(A_WHILE), "SAVE is not over");
    for client in &mut clients {
        assert_eq!(client.call(&["GET", "key1"]), crate::support::bulk("value"));
        let refused = client.call(&["BGSAVE"]);
        let running = "ERR Background save already in progress";
        assert_eq!(error(&refused), running);
        assert_eq!(error(&client.call(&["SAVE"])), running);
    }
    served.gate.open();
    assert_eq!(saver.reply(), ok());
    assert_eq!(saver.reply(), status("PONG"));
    assert_eq!(writer.reply(), ok());
}

#[test]
fn a_client_that_leaves_does_not_matter() {
    let served = filled();
    served.gate.close();
    let mut writer = served.client();
    writer.send(&["SET", "new", "1"]);
    let mut saver = served.client();
    saver.send(&["SAVE"]);
    assert!(saver.is_silent(A_WHILE));
    drop(saver);
    served.gate.open();
    assert_eq!(writer.reply(), ok());
    wait_for(&served, 1);
    assert_eq!(served.client().call(&["SAVE"]), ok());
}

#[test]
fn there_is_nothing_to_save_to_in_memory() {
    let served = ephemeral(config());
    let mut client = served.client();
    for command in [&["SAVE"][..], &["BGSAVE"], &["SHUTDOWN", "SAVE"]] {
        let refused = client.call(command);
        let text = error(&refused);
        assert!(text.contains("--ephemeral"), "{command:?}: {text}");
    }
    assert!(number(&client.call(&["LASTSAVE"])) > 1_600_000_000);
    assert_eq!(client.call(&["APPEND", "a", "b"]), int(1));
}

#[test]
fn a_failed_log_can_not_be_saved_from() {
    let served = filled();
    let mut client = served.client();
    served.gate.break_down();
    assert!(error(&client.call(&["SET", "a", "1"])).starts_with("MISCONF "));
    let mut client = served.client();
    for command in ["BGSAVE", "SAVE"] {
        let refused = client.call(&[command]);
        assert!(
            error(&refused).starts_with("ERR no checkpoint was made: "),
            "{refused:?}"
        );
    }
    let refused = client.call(&["SHUTDOWN", "SAVE"]);
    let text = "ERR Errors trying to SHUTDOWN. Check logs.";
    assert_eq!(error(&refused), text);
    client.send(&["SHUTDOWN", "SAVE", "FORCE"]);
    assert!(client.is_closed());
}

#[test]
fn shutdown_saves_if_asked_to() {
    for (args, checkpoints) in [
        (&["SHUTDOWN"][..], 0),
        (&["SHUTDOWN", "NOSAVE"], 0),
        (&["shutdown", "save"], 1),
        (&["SHUTDOWN", "NOW", "SAVE", "FORCE"], 1),
    ] {
        let mut served = filled();
        let mut client = served.client();
        for (bad, text) in [
            (&["SHUTDOWN", "SAVE", "NOSAVE"][..], "ERR syntax error"),
            (&["SHUTDOWN", "ABORT", "NOW"], "ERR syntax error"),
            (&["SHUTDOWN", "X"], "ERR syntax error"),
            (&["SHUTDOWN", "ABORT"], "ERR No shutdown in progress."),
        ] {
            assert_eq!(error(&client.call(bad)), text, "{bad:?}");
        }
        client.send(args);
        assert!(client.is_closed(), "{args:?}");
        served.server.take().unwrap().wait().unwrap();
        let made = served.db.checkpoint_status().completed;
        assert_eq!(made, checkpoints, "{args:?}");
    }
}

#[test]
fn saving_needs_the_password() {
    let config = Config {
        password: Some("pw".to_owned()),
        ..config()
    };
    let served = crate::support::durable_with(config);
    let mut client = served.client();
    for command in ["SAVE", "BGSAVE", "LASTSAVE", "SHUTDOWN"] {
        assert!(error(&client.call(&[command])).starts_with("NOAUTH"));
    }
    assert_eq!(served.db.checkpoint_status().completed, 0);
}
