//! Read-atomic keys with real processes: in spite of failures, no reader sees a part of what was
//! written together.

mod crashes;
mod deaths;
mod histories;
mod killed;
mod leaders;
mod memory;
mod peer;
mod pressure;
mod rules;
mod verbs;
mod whole;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ::client::{Options, Transport};
use testkit::wait::PATIENCE;
use testkit::{Client, Frame};

pub(crate) const TOP: &str = "read_atomic = [\"ra:\"]";
/// Keys of one slot of each of four nodes with equal shares, in their order.
pub(crate) const KEYS: [&str; 4] = ["ra:y", "ra:x", "ra:b", "ra:z"];

/// Returns an `MSET` of the same value to all keys.
pub(crate) fn mset<'a>(keys: &[&'a str], value: &'a str) -> Vec<&'a str> {
    let pairs = keys.iter().flat_map(|key| [*key, value]);
    [&["MSET"][..], &pairs.collect::<Vec<_>>()].concat()
}

pub(crate) fn mget<'a>(keys: &[&'a str]) -> Vec<&'a str> {
    [&["MGET"][..], keys].concat()
}

/// Returns the values of a reply to `MGET`; `None`: it is an error.
pub(crate) fn values(reply: &Frame) -> Option<Vec<Option<String>>> {
    let text = |frame: &Frame| Some(String::from_utf8_lossy(frame.bytes()?).into_owned());
    Some(reply.frames()?.iter().map(text).collect())
}

/// Returns the one value that all keys have.
#[track_caller]
pub(crate) fn whole<V: PartialEq + Clone + std::fmt::Debug>(values: &[V]) -> V {
    let first = values.first().expect("a value");
    let fractured = values.iter().any(|value| value != first);
    assert!(!fractured, "a fractured read: {values:?}");
    first.clone()
}

/// Returns a number of `INFO` of a node.
pub(crate) fn figure(of: SocketAddr, name: &str) -> u64 {
    let reply = Client::connect(of).frame(&["INFO"]);
    let text = String::from_utf8_lossy(reply.bytes().expect("text")).into_owned();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(known, _)| *known == name);
    let (_, value) = found.unwrap_or_else(|| panic!("{name} is missing: {text}"));
    value.parse().expect("a number")
}

pub(crate) fn connect(fabrics: impl Iterator<Item = SocketAddr>) -> ::client::Client {
    connect_by(fabrics, Transport::Tcp)
}

pub(crate) fn connect_by(
    fabrics: impl Iterator<Item = SocketAddr>,
    transport: Transport,
) -> ::client::Client {
    connect_with(fabrics, |options| options.transport = transport)
}

/// Returns a client with the usual options of these tests, modified by `change`.
pub(crate) fn connect_with(
    fabrics: impl Iterator<Item = SocketAddr>,
    change: impl FnOnce(&mut Options),
) -> ::client::Client {
    let mut options = Options::new("");
    options.timeout = Duration::from_secs(20);
    change(&mut options);
    let fabrics: Vec<SocketAddr> = fabrics.collect();
    let begun = Instant::now();
    loop {
        match ::client::Client::connect(fabrics.iter().copied(), options.clone()) {
            // A client that gives up soon may need several attempts on a busy machine.
            Err(error) if error.is_retryable() && begun.elapsed() < PATIENCE => {}
            connected => return connected.expect("the nodes run"),
        }
    }
}
