//! The client, and its calls for single keys and several.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use base::partition::OwnedReply;
use base::{NodeId, Op};
use cluster::Topology;

use crate::error::Error;
use crate::map::Map;
use crate::one_sided::OneSided;
use crate::options::{Options, Transport};
use crate::pool::Pool;
use crate::ramp::Counters;
use crate::sessions::Sessions;

/// A client of a cluster; see the crate's description.
pub struct Client {
    pub(crate) options: Options,
    pub(crate) map: Map,
    pub(crate) pool: Pool,
    pub(crate) sessions: Sessions,
    pub(crate) reads: Counters,
    /// Published memory of nodes. `None` if [`Options::one_sided`] is off or messages travel over TCP.
    pub(crate) one_sided: Option<OneSided>,
}

impl Client {
    /// Connects to a cluster: asks these nodes for the cluster's file until one answers. One address is
    /// enough; with more of them, fewer nodes must be alive. They are addresses for nodes and Rust
    /// clients, not for Redis clients.
    ///
    /// # Errors
    /// Returns an error if no node answers, if the nodes do not accept this client, or if the transport
    /// needs an RDMA device and there is none; see [`Error`].
    pub fn connect(
        addresses: impl IntoIterator<Item = SocketAddr>,
        options: Options,
    ) -> Result<Client, Error> {
        let verbs = options.device()?;
        let pool = Pool::new(&options, verbs.as_ref());
        let deadline = Instant::now() + options.timeout;
        let map = Map::fetch(&pool, addresses.into_iter().collect(), deadline)?;
        let one_sided = options.one_sided && options.transport != Transport::Tcp;
        Ok(Client {
            one_sided: one_sided.then(|| OneSided::new(options.transport, verbs)),
            options,
            map,
            pool,
            sessions: Sessions::default(),
            reads: Counters::default(),
        })
    }

    /// Returns the cluster's file that this client received last.
    #[must_use]
    pub fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.map.current().topology)
    }

    /// Returns how many connections to a node are idle, and how many are in use.
    #[must_use]
    pub fn connections(&self, node: NodeId) -> (usize, usize) {
        self.pool.count(node)
    }

    /// Returns the value of a key, or `None` if the key is absent.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        value(0, self.one(Op::Get { key })?)
    }

    /// Sets a key that does not expire. An earlier value is replaced.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.one(Op::put(key, value)).map(drop)
    }

    /// Deletes a key. Returns `true` if it was there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(number(self.one(Op::Delete { key })?)? != 0)
    }

    /// Adds to the value, a decimal number; an absent key counts as 0. Returns the sum.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn add(&self, key: &[u8], delta: i64) -> Result<i64, Error> {
        number(self.one(Op::Add { key, delta })?)
    }

    /// Returns the values of keys, as of one moment; `None` for a key that is absent or no string.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn mget(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::GetIfString { key }).collect();
        let replies = self.execute(&ops)?.into_iter().enumerate();
        replies.map(|(at, reply)| value(at, reply)).collect()
    }

    /// Sets several keys atomically.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn mset(&self, pairs: &[(&[u8], &[u8])]) -> Result<(), Error> {
        let ops: Vec<Op<'_>> = pairs
            .iter()
            .map(|(key, value)| Op::put(key, value))
            .collect();
        self.execute(&ops).and_then(|replies| check(&replies))
    }

    fn one(&self, op: Op<'_>) -> Result<OwnedReply, Error> {
        let mut replies = self.execute(&[op])?;
        check(&replies)?;
        Ok(replies.remove(0))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client of {:?}", self.topology())
    }
}

/// Returns an error if an operation has failed by itself.
pub(crate) fn check(replies: &[OwnedReply]) -> Result<(), Error> {
    let failed = replies.iter().enumerate().find_map(|(op, reply)| {
        let OwnedReply::Error(error) = *reply else {
            return None;
        };
        Some(Error::Operation { op, error })
    });
    failed.map_or(Ok(()), Err)
}

/// Returns the value that a reply holds.
pub(crate) fn value(op: usize, reply: OwnedReply) -> Result<Option<Vec<u8>>, Error> {
    match reply {
        OwnedReply::Bytes(bytes) => Ok(Some(bytes)),
        OwnedReply::Nil => Ok(None),
        OwnedReply::Error(error) => Err(Error::Operation { op, error }),
        other => Err(unexpected(&other)),
    }
}

fn number(reply: OwnedReply) -> Result<i64, Error> {
    match reply {
        OwnedReply::Int(number) => Ok(number),
        other => Err(unexpected(&other)),
    }
}

/// Returns the error for an operation that was executed, but whose reply is of another kind than its
/// own.
pub(crate) fn unexpected(reply: &OwnedReply) -> Error {
    let why = format!("it was executed, and its reply is {reply:?}");
    Error::Unknown { why }
}
