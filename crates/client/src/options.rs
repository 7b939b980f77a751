//! How a client is set up.

use std::time::Duration;

use fabric::Secret;
pub use fabric::tcp::{Encryption, Transport};
pub use fabric::verbs::VerbsOptions;
use fabric::verbs::{Device, Domain};

use crate::error::Error;

/// Who runs [`Client::get_all`](crate::Client::get_all).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// The client: it asks each partition itself. One round trip to each, and the least work for the
    /// nodes; the client has a message for each partition.
    #[default]
    Direct,
    /// A node that leads one of the partitions: one message to it and one back. The nodes combine the
    /// messages of many clients, so that all clients together cost less; but an answer takes two round
    /// trips.
    ByNode,
}

/// Who coordinates [`Client::put_all`](crate::Client::put_all), if several partitions take part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteCoordinator {
    /// The client (paper 1, algorithm 1): it has each participant prepare, then commit, itself. Two round
    /// trips, and no messages between nodes; the client has two messages for each partition. If the client
    /// dies in between, the partitions decide in its stead, within seconds.
    Client,
    /// A node that leads one of the partitions: one message to it and one back. The nodes send each other
    /// the rest.
    #[default]
    Node,
}

/// How a client is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The secret of the cluster's clients, which `kumiki cluster client-secret` prints, or that of its
    /// nodes.
    pub secret: Secret,
    /// The longest time that a call may take, with all its attempts.
    pub timeout: Duration,
    /// Time after which a request without an answer is sent again, possibly to another node. A
    /// transaction that writes and must not be sent again, because it is not one of a single replicated
    /// partition, waits as long as the call may take: giving up earlier would only leave its outcome
    /// unknown.
    pub answer_within: Duration,
    /// The longest time that connecting to a node may take.
    pub connect_within: Duration,
    /// Largest number of connections to one node; a call that finds none free waits.
    pub connections_per_node: usize,
    /// Time after which an unused connection is closed.
    pub idle_after: Duration,
    /// Who runs reads of several read-atomic keys.
    pub reads: Reads,
    /// Who coordinates writes of several read-atomic keys.
    pub writes: WriteCoordinator,
    /// Longest message in either direction, in bytes.
    pub message: usize,
    /// [`Client::get_all`](crate::Client::get_all) reads the versions that nodes have published in
    /// memory without asking the nodes, where messages travel through memory.
    pub one_sided: bool,
    /// How messages travel. A node takes messages through memory only if it was started with that
    /// option.
    pub transport: Transport,
    /// Which connections are encrypted. The nodes' option counts as well: a connection is encrypted if one side
    /// asks for it.
    pub encryption: Encryption,
    /// How an RDMA device is chosen and used. [`Transport::Verbs`] and [`Transport::VerbsSend`]
    /// open one; [`Transport::Auto`] does if there is one.
    pub rdma: VerbsOptions,
}

impl Options {
    /// Returns the defaults: 10 s for a call, 3 s for an answer, 2 s for connecting, 32 connections to a
    /// node, closed after 30 s, direct reads, writes by a node, messages to 1 GiB, over TCP, encrypted if they
    /// leave the machine, any RDMA device.
    #[must_use]
    pub fn new(secret: impl AsRef<[u8]>) -> Options {
        Options {
            secret: Secret::new(secret),
            timeout: Duration::from_secs(10),
            answer_within: Duration::from_secs(3),
            connect_within: Duration::from_secs(2),
            connections_per_node: 32,
            idle_after: Duration::from_secs(30),
            reads: Reads::default(),
            writes: WriteCoordinator::default(),
            message: 1 << 30,
            one_sided: true,
            transport: Transport::Tcp,
            encryption: Encryption::default(),
            rdma: VerbsOptions::default(),
        }
    }

    /// Opens the RDMA device that the transport needs, or can use.
    pub(crate) fn device(&self) -> Result<Option<Domain>, Error> {
        match self.transport {
            Transport::Tcp | Transport::Shm | Transport::ShmSend => Ok(None),
            Transport::Verbs | Transport::VerbsSend => self.open_device().map(Some),
            Transport::Auto => {
                let opened = self.open_device();
                let opened = opened.inspect_err(|error| tracing::debug!("{error}"));
                Ok(opened.ok())
            }
        }
    }

    fn open_device(&self) -> Result<Domain, Error> {
        let wrong = |why: String| Error::Device { why };
        let device = Device::open(&self.rdma).map_err(|error| wrong(error.to_string()))?;
        tracing::debug!("RDMA device: {device}");
        device.domain().map_err(|error| wrong(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_matters_to_whom_there_is_no_other_way() {
        let mut options = Options::new("");
        options.rdma.library = "libkumiki-none.so.1".to_owned();
        for transport in [
            Transport::Tcp,
            Transport::Shm,
            Transport::ShmSend,
            Transport::Auto,
        ] {
            options.transport = transport;
            assert!(matches!(options.device(), Ok(None)), "{transport:?}");
        }
        options.transport = Transport::Verbs;
        let error = options.device().expect_err("there is none").to_string();
        assert!(error.contains("install"), "{error}");
    }
}
