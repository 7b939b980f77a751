//! The networks against one suite.

use kumiki_reactor::tls::Tls;
use kumiki_reactor::{Sockets, Uring};

use crate::conformance::conforms;

#[test]
fn sockets_conform() {
    conforms::<Sockets>();
}

/// Without certificates it passes everything on.
#[test]
fn tls_without_certificates_conforms() {
    conforms::<Tls<Sockets>>();
    conforms::<Tls<Uring>>();
}

#[test]
fn rings_conform() {
    conforms::<Uring>();
}
