//! The proxy in paper 3's older design.

use std::net::SocketAddr;

use bench::older_proxy::{OlderProxyConfig, RelayedNetwork, start};
use testkit::peers::{self, Group};
use testkit::process::Redis;
use testkit::{Client, Reply};

#[path = "../../../reactor/tests/it/conformance.rs"]
mod conformance;

#[test]
fn relayed_networks_conform() {
    conformance::conforms::<RelayedNetwork>();
}

#[test]
fn clients_get_what_they_wrote() {
    let Some(program) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    let redis = Redis::start(&program, &[]);
    let serving = OlderProxyConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        nodes: vec![redis.address],
        kumiki: false,
        network_threads: 2,
        aggregation_threads: 1,
    };
    let running = start(&serving).expect("the proxy starts");
    let address = running.address();
    std::thread::scope(|scope| {
        for client in 0..8 {
            scope.spawn(move || {
                let mut connection = Client::connect(address);
                for turn in 0..200 {
                    let key = format!("{client}:{}", turn % 20);
                    let value = turn.to_string();
                    assert_eq!(connection.call(&["SET", &key, &value]), Reply::status("OK"));
                    assert_eq!(connection.call(&["GET", &key]), Reply::bulk(&value));
                }
            });
        }
    });
    running.stopper().stop();
    running.wait().expect("no thread is lost");
}
