//! A process that is killed leaves nothing on the interface.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use kumiki_xdp::{Xdp, XdpInterface};
use reactor::Network;
use testkit::namespaces::LinkedNamespaces;
use testkit::own_process::test_as_process;

use crate::conformance::bound_at;

const LISTENER: usize = 7;
/// The variable that makes a test play the part of the process.
const PART: &str = "KUMIKI_TEST_XDP_PART";

fn attach() -> XdpInterface {
    let address = IpAddr::V4(LinkedNamespaces::ADDRESS);
    XdpInterface::attach(LinkedNamespaces::INTERFACE, address, 1).expect("it is attached")
}

/// The process that is killed: accepts connections past the kernel, and says where. It does nothing if it was not
/// started for that.
#[test]
fn part_of_a_process_that_accepts() {
    if std::env::var_os(PART).is_none() {
        return;
    }
    let mut network = Xdp::open(&attach(), 0).expect("a network");
    let (socket, address) = bound_at(LinkedNamespaces::ADDRESS);
    let _listener = network.listen(socket, LISTENER).expect("it listens");
    println!("\nlistening on {address}");
    loop {
        let waited = network.wait(&mut Vec::new(), Some(Duration::from_secs(1)));
        waited.expect("it waits");
    }
}

#[test]
fn the_interface_is_the_kernels_again_after_a_kill() {
    let Some(linked) = LinkedNamespaces::for_test(1) else {
        return;
    };
    let mut command = test_as_process(module_path!(), "part_of_a_process_that_accepts");
    command
        .env(PART, "1")
        .stdout(Stdio::piped())
        .stdin(Stdio::null());
    let mut child = linked.own.run(|| command.spawn().expect("it starts"));
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let address = lines.find_map(|line| {
        let address = line
            .expect("a line")
            .strip_prefix("listening on ")?
            .to_owned();
        address.parse::<SocketAddr>().ok()
    });
    let address = address.expect("it listens");
    let shown = || {
        linked
            .own
            .ip(&["link", "show", LinkedNamespaces::INTERFACE])
            .expect("a line")
    };
    assert!(shown().contains("xdp"), "{}", shown());
    let mut client = linked
        .peer
        .run(|| TcpStream::connect(address).expect("it is accepted"));
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a limit");
    client.write_all(b"anything").expect("it is sent");
    // Other ports go on to work by the kernel meanwhile.
    exchange_by_kernel(&linked);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(!shown().contains("xdp"), "{}", shown());
    exchange_by_kernel(&linked);
    // The kernel knows nothing of the connection, and answers the client's next packet with a reset.
    let broken = client
        .write_all(b"more")
        .and_then(|()| client.read(&mut [0; 10]));
    assert!(broken.is_err(), "{broken:?}");
    // The next process may attach at once.
    linked
        .own
        .run(|| drop(Xdp::open(&attach(), 0).expect("a network")));
}

/// Carries bytes over the interface by sockets of the kernel.
fn exchange_by_kernel(linked: &LinkedNamespaces) {
    let listener: TcpListener = linked.own.run(|| bound_at(LinkedNamespaces::ADDRESS).0);
    let address = listener.local_addr().expect("an address");
    let mut peer = linked
        .peer
        .run(|| TcpStream::connect(address).expect("the kernel answers"));
    let (mut own, _) = listener.accept().expect("a connection");
    peer.write_all(b"by the kernel").expect("it is sent");
    let mut read = [0; 13];
    own.read_exact(&mut read).expect("it arrives");
    assert_eq!(&read, b"by the kernel");
}
