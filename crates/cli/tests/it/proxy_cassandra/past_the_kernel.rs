//! Drivers and a node that the proxy reaches past the kernel, by AF_XDP.

use std::net::SocketAddr;

use ::cassandra::{CassandraNodes, Options};
use testkit::free_address;
use testkit::namespaces::LinkedNamespaces;

use super::{drivers, proxy};
use crate::support::cassandra::alone;
use crate::support::drivers::Drivers;

/// The drivers and the node are in one namespace, the proxy in another: all packets between them go over the
/// interface whose packets the proxy takes from the driver of the interface.
#[test]
fn drivers_see_the_same_past_the_kernel() {
    let Some(drivers) = Drivers::find() else {
        return;
    };
    let Some(linked) = LinkedNamespaces::for_test(1) else {
        return;
    };
    let _alone = alone();
    let [a, b, c, _] = LinkedNamespaces::ADDRESS.octets();
    let options = Options {
        network: [a, b, c],
        ..Options::new(drivers.installed.clone(), 1).anywhere()
    };
    let (nodes, directly) = linked.own.run(|| {
        let nodes = CassandraNodes::start(&options).expect("it starts");
        let directly = drivers::run(&drivers, nodes.addresses()[0], None);
        (nodes, directly)
    });
    let port = linked
        .peer
        .run(|| free_address().expect("a free port").port());
    let listen = SocketAddr::from((LinkedNamespaces::PEER_ADDRESS, port));
    let network = format!("xdp:{}", LinkedNamespaces::PEER_INTERFACE);
    let more = ["--net", &network, "--network-threads", "1", "--insecure"];
    let proxy = linked
        .peer
        .run(|| proxy(listen, nodes.addresses()[0], &more));
    let through = linked.own.run(|| drivers::run(&drivers, listen, None));
    assert_eq!(through, directly);
    assert!(proxy.terminate().success());
    linked
        .own
        .run(|| nodes.stop().expect("it ends in good order"));
}
