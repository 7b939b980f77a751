//! The proxy's networks against one suite.

mod conformance;

use kumiki_proxy::net::{Sockets, Uring};

use conformance::conforms;

#[test]
fn sockets_conform() {
    conforms::<Sockets>();
}

#[test]
fn rings_conform() {
    conforms::<Uring>();
}
