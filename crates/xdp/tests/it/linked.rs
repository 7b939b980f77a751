//! The suite of networks, over a link between two namespaces.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;

use kumiki_xdp::{Xdp, XdpInterface};
use testkit::namespaces::LinkedNamespaces;

use crate::conformance::{SuiteNetwork, bound_at, conforms};

/// The namespaces of the suite, which opens networks without an argument.
static LINKED: OnceLock<LinkedNamespaces> = OnceLock::new();

fn linked() -> &'static LinkedNamespaces {
    LINKED.get().expect("the test has made them")
}

impl SuiteNetwork for Xdp {
    const IS_LISTED: bool = false;

    fn opened() -> io::Result<Xdp> {
        let address = IpAddr::V4(LinkedNamespaces::ADDRESS);
        let interface = XdpInterface::attach(LinkedNamespaces::INTERFACE, address, 1);
        let opened = interface.and_then(|interface| Xdp::open(&interface, 0));
        opened.map_err(io::Error::other)
    }

    fn bound() -> (TcpListener, SocketAddr) {
        bound_at(LinkedNamespaces::ADDRESS)
    }

    fn bound_peer() -> (TcpListener, SocketAddr) {
        linked()
            .peer
            .run(|| bound_at(LinkedNamespaces::PEER_ADDRESS))
    }

    fn connect_peer(address: SocketAddr) -> io::Result<TcpStream> {
        linked().peer.run(|| TcpStream::connect(address))
    }
}

#[test]
fn networks_past_the_kernel_conform() {
    let Some(linked) = LinkedNamespaces::for_test(1) else {
        return;
    };
    let linked = LINKED.get_or_init(|| linked);
    linked.own.run(conforms::<Xdp>);
}
