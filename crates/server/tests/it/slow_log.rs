//! `SLOWLOG`: its entries, and its parameters.

use crate::support::{bulk, config, ephemeral, error, int, ok, status};
use testkit::{Client, Reply};

/// Returns the elements of an array.
#[track_caller]
fn list(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(list) => list,
        other => panic!("{other:?} is no array"),
    }
}

/// Returns the arguments of the newest entries, each joined by blanks, the newest first.
fn newest(client: &mut Client) -> Vec<String> {
    let entries = list(client.call(&["SLOWLOG", "GET", "-1"])).into_iter();
    let arguments = entries.map(|entry| {
        let words = list(list(entry).swap_remove(3)).into_iter();
        let words = words.map(|word| match word {
            Reply::Bulk(word) => String::from_utf8(word).expect("text"),
            other => panic!("{other:?}"),
        });
        words.collect::<Vec<_>>().join(" ")
    });
    arguments.collect()
}

/// Records every command from now on.
fn record_all(client: &mut Client) {
    let all = ["CONFIG", "SET", "slowlog-log-slower-than", "0"];
    assert_eq!(client.call(&all), ok());
    assert_eq!(client.call(&["SLOWLOG", "RESET"]), ok());
}

#[test]
fn entries_say_which_command_of_which_client_took_how_long() {
    let served = ephemeral(config());
    let mut client = served.client();
    client.call(&["CLIENT", "SETNAME", "me"]);
    record_all(&mut client);
    client.call(&["set", "a", &"x".repeat(200)]);
    let entries = list(client.call(&["SLOWLOG", "GET", "1"]));
    let [entry] = &entries[..] else {
        panic!("{entries:?}");
    };
    let entry = list(entry.clone());
    assert!(matches!(entry[0], Reply::Int(1..)), "{entry:?}");
    assert!(matches!(entry[1], Reply::Int(1_700_000_000..)), "{entry:?}");
    assert!(matches!(entry[2], Reply::Int(0..)), "{entry:?}");
    let long = "x".repeat(128) + "... (72 more bytes)";
    let args = vec![bulk("set"), bulk("a"), bulk(&long)];
    assert_eq!(entry[3], Reply::Array(args));
    let address = client.call(&["CLIENT", "INFO"]);
    let Reply::Bulk(address) = address else {
        panic!("{address:?}");
    };
    let address = String::from_utf8(address).unwrap();
    let (_, address) = address.split_once(" addr=").unwrap();
    let (address, _) = address.split_once(' ').unwrap();
    assert_eq!(entry[4..], [bulk(address), bulk("me")]);
}

#[test]
fn executed_commands_are_recorded_without_passwords() {
    let served = ephemeral(config());
    let mut client = served.client();
    for number in 0..3000 {
        client.send(&["SET", &format!("key{number}"), "1"]);
    }
    for _ in 0..3000 {
        client.reply();
    }
    record_all(&mut client);
    client.call(&["AUTH", "default", "secret"]);
    client.call(&["HELLO", "2", "AUTH", "default", "secret", "SETNAME", "me"]);
    client.call(&["NOSUCH", "a"]);
    client.call(&["GET"]);
    client.call(&["MULTI"]);
    client.call(&["SET", "a", "1"]);
    client.call(&["EXEC"]);
    // It takes several slices.
    client.call(&["KEYS", "*"]);
    let expected = [
        "KEYS *",
        "EXEC",
        "MULTI",
        "HELLO 2 AUTH (redacted) (redacted) SETNAME me",
        "AUTH (redacted) (redacted)",
        "SLOWLOG RESET",
    ];
    assert_eq!(newest(&mut client), expected);
}

#[test]
fn each_command_of_a_pipeline_is_recorded_if_all_are() {
    let served = ephemeral(config());
    let mut client = served.client();
    record_all(&mut client);
    for number in 0..100 {
        client.send(&["GET", &format!("key{number}")]);
    }
    for _ in 0..100 {
        client.reply();
    }
    let recorded = newest(&mut client);
    assert_eq!(recorded.len(), 101);
    assert_eq!((&*recorded[0], &*recorded[99]), ("GET key99", "GET key0"));
}

#[test]
fn the_list_is_bounded_and_can_be_turned_off() {
    let served = ephemeral(config());
    let mut client = served.client();
    record_all(&mut client);
    let set = |client: &mut Client, name: &str, value: &str| {
        assert_eq!(client.call(&["CONFIG", "SET", name, value]), ok());
    };
    set(&mut client, "slowlog-max-len", "2");
    for key in ["a", "b", "c"] {
        client.call(&["GET", key]);
    }
    assert_eq!(newest(&mut client), ["GET c", "GET b"]);
    set(&mut client, "slowlog-log-slower-than", "-1");
    assert_eq!(client.call(&["SLOWLOG", "RESET"]), ok());
    client.call(&["KEYS", "*"]);
    assert_eq!(client.call(&["SLOWLOG", "LEN"]), int(0));
    set(&mut client, "slowlog-log-slower-than", "3600000000");
    client.call(&["KEYS", "*"]);
    assert_eq!(client.call(&["PING"]), status("PONG"));
    assert_eq!(client.call(&["SLOWLOG", "LEN"]), int(0));
    let shown = client.call(&["CONFIG", "GET", "slowlog-*"]);
    let values = [
        "slowlog-log-slower-than",
        "3600000000",
        "slowlog-max-len",
        "2",
    ];
    assert_eq!(shown, Reply::Array(values.map(bulk).to_vec()));
}

#[test]
fn wrong_values_change_nothing() {
    let served = ephemeral(config());
    let mut client = served.client();
    let refused = client.call(&[
        "CONFIG",
        "SET",
        "slowlog-max-len",
        "5",
        "slowlog-log-slower-than",
        "x",
    ]);
    assert!(error(&refused).contains("slowlog-log-slower-than"));
    let shown = client.call(&["CONFIG", "GET", "slowlog-max-len"]);
    assert_eq!(
        shown,
        Reply::Array(vec![bulk("slowlog-max-len"), bulk("128")])
    );
}
