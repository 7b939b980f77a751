//! `CONFIG SET` and `CONFIG REWRITE`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{bulk, config, ephemeral, error, ok, status};
use kumiki_server::{Config, ConfigFile, Limits};
use testkit::{Client, Reply, eventually};

#[track_caller]
fn set(client: &mut Client, name: &str, value: &str) {
    assert_eq!(client.call(&["CONFIG", "SET", name, value]), ok());
}

#[test]
fn a_new_limit_on_idle_time_closes_idle_clients() {
    let served = ephemeral(config());
    let mut idle = [(); 4].map(|()| served.client());
    for client in &mut idle {
        assert_eq!(client.call(&["PING"]), status("PONG"));
    }
    set(&mut served.client(), "timeout", "1");
    assert!(idle.iter_mut().all(Client::is_closed));
    let never = ["CONFIG", "SET", "timeout", "0"];
    eventually("clients may be idle again", || {
        let answer = served.client().try_call(&never);
        answer.is_ok_and(|answer| answer == ok())
    });
    let mut client = served.client();
    assert!(client.is_silent(Duration::from_millis(2500)));
    assert_eq!(client.call(&["PING"]), status("PONG"));
}

#[test]
fn a_new_limit_on_clients_counts_for_new_ones() {
    let limits = Limits {
        most_clients: 20,
        ..Limits::default()
    };
    let served = ephemeral(Config { limits, ..config() });
    let mut client = served.client();
    set(&mut client, "maxclients", "1");
    assert!(error(&served.client().reply()).contains("max number of clients"));
    assert_eq!(client.call(&["PING"]), status("PONG"));
    let refused = client.call(&["CONFIG", "SET", "maxclients", "21"]);
    assert!(error(&refused).contains("try with 20"), "{refused:?}");
    set(&mut client, "maxclients", "20");
    assert_eq!(served.client().call(&["PING"]), status("PONG"));
}

#[test]
fn options_that_were_changed_are_written_to_the_file() {
    let written = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&written);
    let file = ConfigFile::new(move |changed| {
        *sink.lock().unwrap() = changed.to_vec();
        match changed.is_empty() {
            true => Err("nothing to write".to_owned()),
            false => Ok(()),
        }
    });
    let served = ephemeral(Config {
        file: Some(file),
        ..config()
    });
    let mut client = served.client();
    let failed = client.call(&["CONFIG", "REWRITE"]);
    let text = "ERR Rewriting config file: nothing to write";
    assert_eq!(error(&failed), text);
    set(&mut client, "MAXMEMORY", "1gb");
    set(&mut client, "slowlog-log-slower-than", "-1");
    set(&mut client, "timeout", "60");
    client.call(&["CONFIG", "SET", "maxclients", "7", "nosuch", "1"]);
    assert_eq!(client.call(&["CONFIG", "REWRITE"]), ok());
    let expected = [
        ("maxmemory", (1_u64 << 30).to_string()),
        ("slowlog-log-slower-than", "-1".to_owned()),
        ("timeout", "60".to_owned()),
    ];
    assert_eq!(*written.lock().unwrap(), expected);
}

#[test]
fn values_at_the_start_are_those_of_the_configuration() {
    let served = ephemeral(Config {
        slow_log_limit: None,
        slow_log_length: 5,
        latency_threshold: Some(Duration::from_millis(7)),
        ..config()
    });
    let mut client = served.client();
    for (name, value) in [
        ("slowlog-log-slower-than", "-1"),
        ("slowlog-max-len", "5"),
        ("latency-monitor-threshold", "7"),
    ] {
        let shown = client.call(&["CONFIG", "GET", name]);
        assert_eq!(shown, Reply::Array(vec![bulk(name), bulk(value)]));
    }
}
