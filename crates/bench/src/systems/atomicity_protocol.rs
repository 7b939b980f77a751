//! The ways to make a transaction of many keys atomic, each through the Rust client.
//!
//! | way | a read | a write | its keys |
//! |---|---|---|---|
//! | `s2pl` | strict two-phase locking: everything that is read is held until the transaction is decided | two-phase commit, everything held | ordinary ones |
//! | `ramp-f` | RAMP-Fast: one round, or two | RAMP: two-phase commit that holds nothing | read atomic |
//! | `ramp-f-direct` | the same, run by the client instead of a server | the same | read atomic |
//! | `ramp-f-client` | the same, run by the client instead of a server | the same, coordinated by the client instead of a server | read atomic |
//! | `ramp-s` | RAMP-Small: two rounds | the same | read atomic |
//! | `ramp-h` | RAMP-Hybrid: one round, or two | the same | read atomic |
//!
//! Writes are coordinated by a server, and so are reads, unless the table says otherwise. Names of
//! keys are equally long in all of them.

use base::Op;
use base::partition::OwnedReply;
use client::{Algorithm, Client, Reads, WriteCoordinator};
use serde::{Deserialize, Serialize};

use crate::error::RunError;
use crate::keys;
use crate::stamp::Stamp;

/// Threads that load keys.
const LOADERS: usize = 4;
/// The prefix of keys that are read atomic in the clusters of benchmarks.
pub(crate) const READ_ATOMIC: &str = "ra:";
/// The prefix of those that are not.
const ORDINARY: &str = "or:";
/// Keys that are loaded with one message.
const BULK: usize = 200;

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtomicityProtocol {
    /// Strict two-phase locking.
    S2pl,
    /// RAMP-Fast.
    RampF,
    /// RAMP-Fast, whose reads the client runs.
    RampFDirect,
    /// RAMP-Fast, whose reads and writes the client runs.
    RampFClient,
    /// RAMP-Small.
    RampS,
    /// RAMP-Hybrid.
    RampH,
}

impl AtomicityProtocol {
    /// The protocols; the baseline of the others first.
    pub const ALL: [AtomicityProtocol; 4] = [
        AtomicityProtocol::S2pl,
        AtomicityProtocol::RampF,
        AtomicityProtocol::RampS,
        AtomicityProtocol::RampH,
    ];

    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AtomicityProtocol::S2pl => "s2pl",
            AtomicityProtocol::RampF => "ramp-f",
            AtomicityProtocol::RampFDirect => "ramp-f-direct",
            AtomicityProtocol::RampFClient => "ramp-f-client",
            AtomicityProtocol::RampS => "ramp-s",
            AtomicityProtocol::RampH => "ramp-h",
        }
    }

    /// Returns the algorithm, if it is RAMP.
    #[must_use]
    pub fn algorithm(self) -> Option<Algorithm> {
        match self {
            AtomicityProtocol::S2pl => None,
            AtomicityProtocol::RampF
            | AtomicityProtocol::RampFDirect
            | AtomicityProtocol::RampFClient => Some(Algorithm::Fast),
            AtomicityProtocol::RampS => Some(Algorithm::Small),
            AtomicityProtocol::RampH => Some(Algorithm::Hybrid),
        }
    }

    /// Returns where its reads run.
    pub(crate) fn reads(self) -> Reads {
        match self {
            AtomicityProtocol::RampFDirect | AtomicityProtocol::RampFClient => Reads::Direct,
            _ => Reads::ByNode,
        }
    }

    /// Returns where its writes are coordinated.
    pub(crate) fn writes(self) -> WriteCoordinator {
        match self {
            AtomicityProtocol::RampFClient => WriteCoordinator::Client,
            _ => WriteCoordinator::Node,
        }
    }

    /// Returns the name of a key.
    pub(crate) fn key(self, key: u64) -> [u8; 11] {
        let prefix = match self {
            AtomicityProtocol::S2pl => ORDINARY,
            _ => READ_ATOMIC,
        };
        let mut name = [0; 11];
        name[..3].copy_from_slice(prefix.as_bytes());
        name[3..].copy_from_slice(&keys::encode(key));
        name
    }

    /// Gives keys their initial values, by several threads.
    pub(crate) fn load_all(
        self,
        client: &Client,
        keys: &[u64],
        length: usize,
    ) -> Result<(), RunError> {
        let stamp = Stamp::INITIAL;
        std::thread::scope(|scope| {
            let parts = keys.chunks(keys.len().div_ceil(LOADERS).max(1));
            let load = |some| scope.spawn(move || self.load(client, some, stamp, length));
            let threads: Vec<_> = parts.map(load).collect();
            threads.into_iter().try_for_each(|thread| {
                let panicked = |_| {
                    Err(RunError::Failed(
                        "a thread that loads has panicked".to_owned(),
                    ))
                };
                thread.join().unwrap_or_else(panicked)
            })
        })
    }

    /// Sets keys, each by itself.
    fn load(
        self,
        client: &Client,
        keys: &[u64],
        stamp: Stamp,
        length: usize,
    ) -> Result<(), RunError> {
        for some in keys.chunks(BULK) {
            let pairs = self.pairs(some, stamp, length);
            let puts = pairs.iter().map(|(key, value)| vec![Op::put(key, value)]);
            for outcome in client.execute_each(&puts.collect::<Vec<_>>()) {
                outcome.map_err(RunError::of)?;
            }
        }
        Ok(())
    }

    /// Sets keys, all at once.
    pub(crate) fn write(
        self,
        client: &Client,
        keys: &[u64],
        stamp: Stamp,
        length: usize,
    ) -> Result<(), RunError> {
        let pairs = self.pairs(keys, stamp, length);
        let pairs = pairs.iter().map(|(key, value)| (&key[..], &value[..]));
        match self.algorithm() {
            Some(algorithm) => {
                let pairs: Vec<_> = pairs.map(|(key, value)| (key, Some(value))).collect();
                let done = client.put_all(&pairs, algorithm);
                done.map_err(RunError::of)
            }
            None => {
                let ops: Vec<Op<'_>> = pairs.map(|(key, value)| Op::put(key, value)).collect();
                let done = client.execute_holding(&ops);
                done.map(drop).map_err(RunError::of)
            }
        }
    }

    /// Returns the stamps of keys, all of one moment.
    pub(crate) fn read(
        self,
        client: &Client,
        keys: &[u64],
        length: usize,
    ) -> Result<Vec<Stamp>, RunError> {
        let names: Vec<[u8; 11]> = keys.iter().map(|&key| self.key(key)).collect();
        let values = match self.algorithm() {
            Some(algorithm) => {
                let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
                client.get_all(&names, algorithm)
            }
            None => {
                let ops = names.iter().map(|key| Op::Get { key });
                let replies = client.execute_holding(&ops.collect::<Vec<_>>());
                replies.map(|replies| replies.into_iter().map(bytes).collect())
            }
        };
        let values = values.map_err(RunError::of)?;
        let stamp = |(&key, value): (&u64, &Option<Vec<u8>>)| {
            let value = value.as_ref().filter(|value| value.len() == length);
            let stamp = value.and_then(|value| Stamp::read(key, value));
            stamp.ok_or_else(|| RunError::Failed(format!("key {key} holds what no client wrote")))
        };
        keys.iter().zip(&values).map(stamp).collect()
    }

    fn pairs(self, keys: &[u64], stamp: Stamp, length: usize) -> Vec<([u8; 11], Vec<u8>)> {
        let pair = |&key: &u64| {
            let mut value = vec![0; length];
            stamp.write(key, &mut value);
            (self.key(key), value)
        };
        keys.iter().map(pair).collect()
    }
}

fn bytes(reply: OwnedReply) -> Option<Vec<u8>> {
    match reply {
        OwnedReply::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}
