//! The networks against one suite.

use kumiki_reactor::{Sockets, Uring};

use crate::conformance::conforms;

#[test]
fn sockets_conform() {
    conforms::<Sockets>();
}

#[test]
fn rings_conform() {
    conforms::<Uring>();
}
