//! The storage of the locks of `kumiki proxy`: memory, a store of its own, or a replicated
//! partition.
//!
//! | under `--data` | what |
//! |---|---|
//! | `memory/` | the ledger of a table in memory |
//! | `durable/` | the store of a durable table |
//!
//! A directory is for one of the two: a table that begins anew beside the other would not know
//! which locks that one has granted.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use base::partition::{OwnedReply, Partition};
use base::transaction::{Abort, Op, Transaction};
use clap::{Args, ValueEnum};
use client::Client;
use cluster::Topology;
use disk::{LockError, RealDisk};
use proxy::locks::{Execute, LockStorage, Options};
use store::{Db, OpenError};

use crate::argument_values::parse_time;

/// The prefix of the keys of a table in a store of its own.
const PREFIX: &[u8] = b"lock/";
/// The same in a cluster. The braces put all of them into one slot, and so into one partition.
const SHARED_PREFIX: &[u8] = b"{kumiki-locks}";
/// How long a transaction in a cluster may take, and how long one node may take to answer.
const TRANSACTION: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_millis(400);
/// How long the cluster may take to be found at the start.
const FIRST: Duration = Duration::from_secs(10);

/// Where locks are kept.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockStorageOption {
    /// In memory: fastest. After a restart nothing is granted until the longest lease has ended.
    Memory,
    /// In a store under --data: locks outlive a restart.
    Durable,
}

/// Options of locks.
#[derive(Args, Debug)]
pub(crate) struct LockOptions {
    /// Where locks are kept; default: durable.
    #[arg(long, value_enum, conflicts_with = "lock_cluster")]
    locks: Option<LockStorageOption>,
    /// Keep locks in the replicated Kumiki cluster of this file, which several proxies share.
    #[arg(long, value_name = "FILE")]
    lock_cluster: Option<PathBuf>,
    /// Where the proxy keeps what it needs of locks; default: kumiki-proxy. Each proxy has a directory
    /// of its own.
    #[arg(long, value_name = "DIR", conflicts_with = "lock_cluster")]
    data: Option<PathBuf>,
    /// The longest lease that may be asked for; default: 86400s.
    #[arg(long, value_name = "TIME", value_parser = lease)]
    max_lease: Option<Duration>,
}

/// The default of `--data`.
const DATA: &str = "kumiki-proxy";
/// The default of `--max-lease`.
const MAX_LEASE: Duration = Duration::from_secs(86_400);

impl LockOptions {
    /// Returns `true` if other proxies have the same locks.
    pub(crate) fn are_shared(&self) -> bool {
        self.lock_cluster.is_some()
    }

    /// Returns one of these options that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let all = [
            ("--lock-cluster", self.lock_cluster.is_some()),
            ("--locks", self.locks.is_some()),
            ("--data", self.data.is_some()),
            ("--max-lease", self.max_lease.is_some()),
        ];
        all.iter().find(|(_, given)| *given).map(|(name, _)| *name)
    }
}

fn lease(text: &str) -> Result<Duration, String> {
    let sensible = Duration::from_millis(1)..=Duration::from_secs(365 * 86_400);
    parse_time(text)
        .filter(|time| sensible.contains(time))
        .ok_or_else(|| "it is not a time from 1ms to a year, such as 30s or 3600s".to_owned())
}

/// The locks, and the storage that must be closed after them.
pub(crate) struct Locks {
    pub(crate) options: Options,
    store: Option<Db>,
}

impl Locks {
    /// Opens the storage of the locks. Returns `None` if no option concerns locks and another proxy
    /// uses the default directory: then this proxy keeps no locks.
    ///
    /// # Errors
    /// The text says what is wrong, and what to do.
    pub(crate) fn open(options: &LockOptions) -> Result<Option<Locks>, String> {
        let data = options.data.as_deref().unwrap_or(Path::new(DATA));
        let (keeping, store) = match (&options.lock_cluster, options.locks) {
            (Some(file), _) => (in_cluster(file)?, None),
            (None, Some(LockStorageOption::Memory)) => (in_memory(data)?, None),
            (None, Some(LockStorageOption::Durable) | None) => {
                let directory = only(data, "durable", "memory")?;
                match (in_store(directory), options.given()) {
                    (Ok((keeping, db)), _) => (keeping, Some(db)),
                    (Err(OpenError::Lock(LockError::InUse { dir, .. })), None) => {
                        let dir = dir.display();
                        tracing::warn!(
                            "this proxy keeps no locks: another process keeps its own in {dir}; for locks of this \
                             one name another directory by --data, or share them by --lock-cluster"
                        );
                        return Ok(None);
                    }
                    (Err(error), _) => {
                        return Err(format!("the locks: {error}; --data names the directory"));
                    }
                }
            }
        };
        Ok(Some(Locks {
            options: Options {
                keeping,
                longest_lease: options.max_lease.unwrap_or(MAX_LEASE),
            },
            store,
        }))
    }

    /// Closes the store, if there is one. The proxy must have ended.
    ///
    /// # Errors
    /// Returns an error if its log could not be written to the end.
    pub(crate) fn close(self) -> Result<(), String> {
        let closed = self.store.map_or(Ok(()), |db| db.close());
        closed.map_err(|error| error.to_string())
    }
}

/// Refuses a directory that has the other kind of table.
fn only(data: &Path, own: &str, other: &str) -> Result<PathBuf, String> {
    if data.join(other).exists() {
        return Err(format!(
            "in {} locks are kept by --locks {other}, of which --locks {own} would know nothing: \
             go on with that, or choose another directory by --data once all locks have ended",
            data.display()
        ));
    }
    Ok(data.join(own))
}

fn in_memory(data: &Path) -> Result<LockStorage, String> {
    Ok(LockStorage::Memory {
        disk: Arc::new(RealDisk),
        directory: only(data, "memory", "durable")?,
    })
}

fn in_store(directory: PathBuf) -> Result<(LockStorage, Db), OpenError> {
    let db = Db::open(store::Options::in_dir(directory))?;
    let keeping = LockStorage::Partition {
        name: "durable",
        executor: Arc::new(StoreExecutor(db.clone())),
        prefix: PREFIX.to_vec(),
    };
    Ok((keeping, db))
}

fn in_cluster(file: &Path) -> Result<LockStorage, String> {
    let topology = Topology::load(file).map_err(|error| error.to_string())?;
    let partition = topology.partition_of(SHARED_PREFIX);
    if !topology.is_replicated(partition) {
        return Err(format!(
            "--lock-cluster {}: partition {partition}, in which locks would lie, is not replicated: \
             if its node died, so would the locks. Give it three nodes or more, or keep the locks \
             in this proxy, by --locks durable",
            file.display()
        ));
    }
    if topology.read_atomic().covers(SHARED_PREFIX) {
        return Err(format!(
            "--lock-cluster {}: read_atomic covers {}, and locks cannot be kept under read-atomic \
             keys: declare another prefix",
            file.display(),
            SHARED_PREFIX.escape_ascii()
        ));
    }
    let secret = topology.client_secret().unwrap_or_default();
    let addresses: Vec<_> = topology.nodes().iter().map(|node| node.fabric).collect();
    let found = |timeout| {
        let options = client::Options {
            timeout,
            answer_within: ANSWER,
            connect_within: ANSWER,
            ..client::Options::new(&secret)
        };
        Client::connect(addresses.iter().copied(), options)
    };
    // At the first attempt the cluster may still be starting, too.
    let until = std::time::Instant::now() + FIRST;
    let client = loop {
        match found(TRANSACTION) {
            Ok(client) => break client,
            Err(error) if error.is_retryable() && std::time::Instant::now() < until => {}
            Err(error) => return Err(format!("--lock-cluster {}: {error}", file.display())),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    Ok(LockStorage::Partition {
        name: "cluster",
        executor: Arc::new(ClusterExecutor(client)),
        prefix: SHARED_PREFIX.to_vec(),
    })
}

/// A store of this process.
struct StoreExecutor(Db);

impl Execute for StoreExecutor {
    fn execute(&self, transaction: &Transaction<'_>) -> Result<Vec<OwnedReply>, Abort> {
        wait_for(self.0.execute(transaction))
    }
}

/// A partition of a cluster.
struct ClusterExecutor(Client);

impl Execute for ClusterExecutor {
    fn execute(&self, transaction: &Transaction<'_>) -> Result<Vec<OwnedReply>, Abort> {
        let count = transaction.ops.len();
        let mut ops = transaction.ops.clone();
        if ops.iter().all(|op| op.key().is_none()) {
            // A listing has no key that shows its partition.
            ops.push(Op::Exists { key: SHARED_PREFIX });
        }
        let mut replies = self.0.execute(&ops).map_err(abort)?;
        replies.truncate(count);
        Ok(replies)
    }
}

/// Converts the error to the one of a partition.
fn abort(error: client::Error) -> Abort {
    let what = error.to_string();
    match error {
        client::Error::Aborted(abort) => abort,
        client::Error::Unknown { .. } | client::Error::Committed { .. } => Abort::Unknown { what },
        client::Error::TooLong { .. } => Abort::Unsupported { what },
        // Nothing has happened.
        _ => Abort::Unavailable { what },
    }
}

/// Waits on this thread.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    struct Parked(Thread);
    impl Wake for Parked {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Parked(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_that_another_thread_wakes_is_waited_for() {
        let mut waker: Option<std::thread::JoinHandle<()>> = None;
        let mut polled = 0;
        let future = std::future::poll_fn(|context| {
            polled += 1;
            if polled == 3 {
                return Poll::Ready(polled);
            }
            let to_wake = context.waker().clone();
            waker = Some(std::thread::spawn(move || to_wake.wake()));
            Poll::Pending
        });
        assert_eq!(wait_for(future), 3);
        waker.expect("it was woken").join().expect("it ends");
    }

    #[test]
    fn a_directory_is_for_one_kind_of_table() {
        let data = tempfile::tempdir().expect("a directory");
        in_memory(data.path()).map(drop).expect("nothing is there");
        std::fs::create_dir(data.path().join("durable")).expect("a directory");
        let error = in_memory(data.path()).map(drop).expect_err("the other");
        assert!(error.contains("--locks durable"), "{error}");
    }

    #[test]
    fn a_cluster_without_replicas_is_refused() {
        let data = tempfile::tempdir().expect("a directory");
        let file = data.path().join("cluster.toml");
        let text = "
            [[node]]
            id = 1
            client = \"127.0.0.1:1\"
            fabric = \"127.0.0.1:2\"
            [[partition]]
            id = 1
            slots = [\"0-16383\"]
            nodes = [1]
        ";
        std::fs::write(&file, text).expect("a file");
        let error = in_cluster(&file).map(drop).expect_err("not replicated");
        assert!(error.contains("is not replicated"), "{error}");
        let error = in_cluster(&data.path().join("none")).map(drop);
        assert!(error.expect_err("no file").contains("none"));
    }
}
