//! Several proxies before one cluster: a driver knows all of them, and continues when one is
//! killed.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use crate::proxy_cassandra::proxy;
use crate::support::drivers::Drivers;
use testkit::free_address;

pub(crate) fn a_driver_survives_a_proxy(node: SocketAddr, drivers: &Drivers) {
    // Drivers tell hosts apart by their addresses; their ports are alike.
    let first = free_address().expect("a free port");
    let second = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), first.port()));
    let start = |this: SocketAddr, other: SocketAddr| {
        let other = other.to_string();
        proxy(this, node, &["--proxies", &other])
    };
    let (one, other) = (start(first, second), start(second, first));
    let mut command = drivers.python("several.py");
    command.args([&first.ip().to_string(), &first.port().to_string(), "5"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().expect("timeout");
    let mut orders = program.stdin.take().expect("it was asked for");
    let mut lines = BufReader::new(program.stdout.take().expect("it was asked for")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    let both = format!("{first} {second}");
    assert_eq!(line(), both, "it knows both");
    assert_eq!(line(), both, "it asks both");
    // The one that the driver was given, and from which it learned of the others.
    one.kill();
    orders.write_all(b"killed\n").expect("it listens");
    assert_eq!(line(), second.to_string());
    let one = start(first, second);
    orders.write_all(b"back\n").expect("it listens");
    assert_eq!(line(), both, "it finds the other again");
    assert!(program.wait().expect("it has been started").success());
    assert!(one.terminate().success() && other.terminate().success());
}
