//! The suite of networks, over a link between two namespaces.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::Instant;

use kumiki_xdp::{Xdp, XdpInterface};
use reactor::Network;
use testkit::namespaces::LinkedNamespaces;

use crate::conformance::{PATIENCE, SuiteNetwork, bound_at, conforms};

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
fn connections_over_other_interfaces_are_the_kernels() {
    let Some(linked) = LinkedNamespaces::for_test(1) else {
        return;
    };
    linked.own.run(|| {
        let mut network = Xdp::opened().expect("a network");
        let (socket, address) = Xdp::bound();
        let listener = network.listen(socket, usize::MAX - 1).expect("it listens");
        // A client of the same machine comes over the loopback interface.
        let mut client = TcpStream::connect(address).expect("the kernel answers");
        client.write_all(b"anything").expect("it is sent");
        let mut stream = await_ok(&mut network, |network| network.accept(&listener)).0;
        network.watch(&mut stream, 1).expect("it is watched");
        let mut read = [0; 8];
        let count = await_ok(&mut network, |network| network.read(&mut stream, &mut read));
        assert_eq!(&read[..count], b"anything");
        assert!(network.descriptor(&stream) >= 0, "it is a socket");
        // And so does one that is connected to from here.
        let near = bound_at(Ipv4Addr::LOCALHOST);
        let stream = network.connect(near.1, 2).expect("an attempt");
        await_ok(&mut network, |network| network.connected(&stream));
        near.0.accept().expect("a connection");
        assert!(network.descriptor(&stream) >= 0, "it is a socket");
    });
}

/// Waits until an operation succeeds.
fn await_ok<T>(network: &mut Xdp, mut operation: impl FnMut(&mut Xdp) -> io::Result<T>) -> T {
    let begin = Instant::now();
    loop {
        match operation(network) {
            Ok(value) => return value,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        let waited = network.wait(&mut Vec::new(), Some(PATIENCE));
        waited.expect("it waits");
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
