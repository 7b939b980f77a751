//! Devices, and connections within one process.

use std::io;
use std::time::Duration;

use base::memory::{RemoteError, RemoteMemory};
use kumiki_fabric as fabric;

use fabric::memory::{self, Access, Grant, Memory};
use fabric::verbs::{Device, Domain, VerbsConnection, VerbsOptions, VerbsRegion, VerbsRemote};

/// The variable that makes a missing device a failure.
const REQUIRE: &str = "KUMIKI_REQUIRE_RDMA";

/// Returns options with which peers are given up soon.
pub(crate) fn options() -> VerbsOptions {
    VerbsOptions {
        dead_after: Duration::from_millis(500),
        ..VerbsOptions::default()
    }
}

/// Opens a device with these options. Prints a line and returns `None` if there is none.
pub(crate) fn device(options: &VerbsOptions) -> Option<Device> {
    match Device::open(options) {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os(REQUIRE).is_some() => panic!("{error}"),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

pub(crate) fn domain() -> Option<Domain> {
    device(&options()).map(|device| device.domain().unwrap())
}

/// Returns two ends of a connection between two domains.
pub(crate) fn connect(a: &Domain, b: &Domain) -> [VerbsConnection; 2] {
    let (a, b) = (a.open().unwrap(), b.open().unwrap());
    let addresses = [b.address().clone(), a.address().clone()];
    [
        a.connect(&addresses[0]).unwrap(),
        b.connect(&addresses[1]).unwrap(),
    ]
}

/// Memory of one domain, each region of which is reached through a connection of its own: a refusal
/// ends the connection.
pub(crate) struct Loopback(pub(crate) Domain);

/// A region, and the other end of the connection to it.
pub(crate) struct Reached(
    VerbsRemote,
    #[expect(dead_code, reason = "it is kept open")] VerbsConnection,
);

impl Memory for Loopback {
    type Region = VerbsRegion;
    type Remote = Reached;

    fn register(&self, words: usize, access: Access) -> io::Result<VerbsRegion> {
        self.0.register(words, access)
    }

    fn reach(&self, grant: &Grant) -> Result<Reached, RemoteError> {
        let [near, far] = connect(&self.0, &self.0);
        Ok(Reached(near.reach(grant)?, far))
    }
}

impl RemoteMemory for Reached {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn begin(&mut self, from: usize, count: usize) -> Result<(), RemoteError> {
        self.0.begin(from, count)
    }

    fn finish(&mut self, into: &mut Vec<u64>) -> Result<(), RemoteError> {
        self.0.finish(into)
    }
}

impl memory::Remote for Reached {
    fn write(&mut self, from: usize, words: &[u64]) -> Result<(), RemoteError> {
        self.0.write(from, words)
    }

    fn settle(&mut self) -> Result<bool, RemoteError> {
        self.0.settle()
    }
}

/// Reads words; the test expects this to succeed.
pub(crate) fn read(remote: &mut impl RemoteMemory, from: usize, count: usize) -> Vec<u64> {
    try_read(remote, from, count).unwrap()
}

pub(crate) fn try_read(
    remote: &mut impl RemoteMemory,
    from: usize,
    count: usize,
) -> Result<Vec<u64>, RemoteError> {
    let mut words = Vec::new();
    remote.begin(from, count)?;
    remote.finish(&mut words)?;
    Ok(words)
}
