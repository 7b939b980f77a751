//! `LATENCY`: events that took long, and histograms.

use crate::support::{bulk, config, ephemeral, error, int, ok};
use kumiki_server::{Config, DebugAccess};
use testkit::Reply;

#[track_caller]
fn list(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(list) => list,
        other => panic!("{other:?} is no array"),
    }
}

#[test]
fn slow_commands_are_events() {
    let served = ephemeral(Config {
        debug_access: DebugAccess::Yes,
        ..config()
    });
    let mut client = served.client();
    // Off, as in Redis.
    client.call(&["DEBUG", "SLEEP", "0.01"]);
    assert!(list(client.call(&["LATENCY", "LATEST"])).is_empty());
    // The slow log alone would record nothing.
    for (name, value) in [
        ("slowlog-log-slower-than", "-1"),
        ("latency-monitor-threshold", "10"),
    ] {
        assert_eq!(client.call(&["CONFIG", "SET", name, value]), ok());
    }
    client.call(&["DEBUG", "SLEEP", "0.02"]);
    let events = list(client.call(&["LATENCY", "LATEST"]));
    let named = |event: &&Reply| list((*event).clone())[0] == bulk("command");
    let event = list(events.iter().find(named).expect("the event").clone());
    assert!(matches!(event[1], Reply::Int(1_700_000_000..)), "{event:?}");
    assert!(
        matches!(event[2..], [Reply::Int(20..), Reply::Int(20..)]),
        "{event:?}"
    );
    let samples = list(client.call(&["LATENCY", "HISTORY", "command"]));
    assert_eq!(list(samples[0].clone()).len(), 2);
    let Reply::Bulk(graph) = client.call(&["LATENCY", "GRAPH", "command"]) else {
        panic!("no bulk");
    };
    let graph = String::from_utf8(graph).unwrap();
    assert!(graph.starts_with("command - high "), "{graph}");
    let Reply::Bulk(report) = client.call(&["LATENCY", "DOCTOR"]) else {
        panic!("no bulk");
    };
    let report = String::from_utf8(report).unwrap();
    assert!(report.contains("The slow log is off"), "{report}");
    client.call(&["CONFIG", "SET", "latency-monitor-threshold", "0"]);
    assert_eq!(client.call(&["LATENCY", "RESET", "nosuch"]), int(0));
    assert_eq!(client.call(&["LATENCY", "RESET", "command"]), int(1));
    let refused = client.call(&["LATENCY", "GRAPH", "command"]);
    assert!(error(&refused).contains("No samples"), "{refused:?}");
}

#[test]
fn histograms_count_all_calls() {
    let served = ephemeral(config());
    let mut client = served.client();
    for _ in 0..80 {
        client.call(&["GET", "a"]);
    }
    client.call(&["CONFIG", "GET", "port"]);
    let shown = list(client.call(&["LATENCY", "HISTOGRAM", "Get", "config", "nosuch"]));
    let names = (&shown[0], &shown[2], shown.len());
    assert_eq!(names, (&bulk("get"), &bulk("config|get"), 4));
    let get = list(shown[1].clone());
    assert_eq!(get[..3], [bulk("calls"), int(80), bulk("histogram_usec")]);
    let up_to = list(get[3].clone());
    assert_eq!(up_to.last(), Some(&int(80)));
    let all = list(client.call(&["LATENCY", "HISTOGRAM"]));
    assert!(all.contains(&bulk("get")) && !all.contains(&bulk("set")));
}
