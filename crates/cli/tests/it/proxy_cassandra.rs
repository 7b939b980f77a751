//! The proxy before real Cassandra nodes: drivers see what they see without it, and while nodes die
//! and come back, and the schema changes, no reply goes to a request that it does not answer.
//!
//! `cargo xtask peers` installs Cassandra and the drivers. Without them the test says so and passes;
//! with `KUMIKI_REQUIRE_PEERS=1` it fails.

mod connection;
mod drivers;
mod load;
mod past_the_kernel;
mod several;
mod users;

use std::net::SocketAddr;
use std::path::Path;

use ::cassandra::{CassandraNodes, Options};

use crate::support::cassandra::alone;
use crate::support::drivers::Drivers;
use crate::support::process::kumiki;
use testkit::free_address;
use testkit::process::Server;

/// The first user of nodes that authenticate clients, and his password.
const FIRST_USER: [&str; 2] = ["cassandra", "cassandra"];

/// Returns a proxy before the cluster of `node`, which names the others.
fn proxy(listen: SocketAddr, node: SocketAddr, options: &[&str]) -> Server {
    let start = |address: SocketAddr, dir: &Path| {
        let mut command = kumiki();
        command.current_dir(dir);
        command.args(["proxy", "--cassandra", &node.to_string()]);
        command
            .args(["--listen", &address.to_string()])
            .args(options);
        command
    };
    Server::insist_at(listen, start).expect("it starts")
}

/// Kills and restarts nodes behind a proxy; then returns the output of the driver programs.
fn before_three(nodes: &mut CassandraNodes, drivers: &Drivers) -> Vec<Vec<String>> {
    let proxy = proxy(
        free_address().expect("a free port"),
        nodes.addresses()[0],
        &[],
    );
    load::no_reply_crosses(proxy.address, nodes);
    let printed = drivers::run(drivers, proxy.address, None);
    assert!(proxy.terminate().success());
    printed
}

/// Tests users of one node that authenticates clients; then returns the output of driver programs
/// that connect to it directly. With three nodes they would see some of them before these know a
/// keyspace that others have made. One node knows what it has made, and so do three behind the
/// proxy.
fn at_one(node: &CassandraNodes, drivers: &Drivers) -> Vec<Vec<String>> {
    let address = node.addresses()[0];
    users::what_one_may_others_may_not(address);
    drivers::run(drivers, address, Some(FIRST_USER))
}

#[test]
fn clients_see_cassandra_through_the_proxy() {
    let Some(drivers) = Drivers::find() else {
        return;
    };
    let _alone = alone();
    let three = Options::new(drivers.installed.clone(), 3).anywhere();
    let one = Options {
        nodes: 1,
        passwords: true,
        ..three.clone().anywhere()
    };
    let start = |options: &Options| CassandraNodes::start(options).expect("they start");
    let (mut nodes, directly) = std::thread::scope(|scope| {
        let directly = scope.spawn(|| at_one(&start(&one), &drivers));
        let nodes = start(&three);
        several::a_driver_survives_a_proxy(nodes.addresses()[0], &drivers);
        (nodes, directly.join().expect("it ends well"))
    });
    let through = before_three(&mut nodes, &drivers);
    for (through, directly) in through.iter().zip(&directly) {
        assert_eq!(through, directly);
    }
    assert_eq!(through.len(), directly.len());
}
