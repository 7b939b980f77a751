//! Batches of keys on their way to the server, over several connections.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cluster::slot;
use parking_lot::Mutex;
use resp::Value;
use resp::command::write_command;

use super::target::{Target, refused_database};
use crate::node_connection::NodeConnection;

/// The most entries of a batch, and about the most bytes.
const MOST_ENTRIES: usize = 500;
const MOST_BYTES: usize = 256 << 10;
/// The pause before a batch is sent again.
const PAUSE: Duration = Duration::from_millis(50);

/// The first words of errors after which the same command may succeed. Whether it took effect does not matter.
const PASSING: &[&str] = &[
    "TRYAGAIN",
    "CLUSTERDOWN",
    "LOADING",
    "UNKNOWN",
    "COMMITTED",
    "BUSY",
];

/// Returns `true` if the command that was answered with this error may succeed later.
pub(super) fn is_passing(error: &str) -> bool {
    PASSING.contains(&error.split(' ').next().unwrap_or_default())
}

/// Returns the text for an argument that is longer than the target takes.
pub(super) fn too_long(bytes: u64, most: u64) -> String {
    format!(
        "an argument of {bytes} bytes, where the target takes {most} at most: start it with a greater --max-value"
    )
}

/// A key, or a library of functions, as the command that writes it.
pub(super) struct Entry {
    /// Its place among the entries: the byte of the file at which it begins, or another number that grows.
    position: u64,
    name: Vec<u8>,
    slot: u16,
    /// The bytes of the longest argument.
    longest_argument: u64,
    command: Vec<u8>,
}

impl Entry {
    fn new(position: u64, name: &[u8], args: &[&[u8]]) -> Entry {
        let mut command = Vec::new();
        write_command(&mut command, args);
        Entry {
            position,
            name: name.to_vec(),
            slot: slot::of(name),
            longest_argument: args.iter().map(|arg| arg.len() as u64).max().unwrap_or(0),
            command,
        }
    }

    /// A library of functions, with its source.
    pub(super) fn library(position: u64, source: &[u8]) -> Entry {
        let args: [&[u8]; 4] = [b"FUNCTION", b"LOAD", b"REPLACE", source];
        Entry::new(position, b"functions", &args)
    }

    /// Libraries of functions, as `FUNCTION DUMP` has answered them.
    pub(super) fn libraries(position: u64, payload: &[u8]) -> Entry {
        let args: [&[u8]; 4] = [b"FUNCTION", b"RESTORE", payload, b"REPLACE"];
        Entry::new(position, b"functions", &args)
    }

    /// A string, which expires at a time in milliseconds since the Unix epoch.
    pub(super) fn string(position: u64, key: &[u8], value: &[u8], deadline: Option<u64>) -> Entry {
        match deadline {
            None => Entry::new(position, key, &[b"SET", key, value]),
            Some(at) => {
                let at = at.to_string();
                Entry::new(position, key, &[b"SET", key, value, b"PXAT", at.as_bytes()])
            }
        }
    }

    /// Another value, as a payload of `DUMP`.
    pub(super) fn restore(
        position: u64,
        key: &[u8],
        payload: &[u8],
        deadline: Option<u64>,
    ) -> Entry {
        let at = deadline.unwrap_or(0).to_string();
        let args = [
            b"RESTORE",
            key,
            at.as_bytes(),
            payload,
            b"ABSTTL",
            b"REPLACE",
        ];
        Entry::new(position, key, &args)
    }
}

/// Entries of one database, in the order of the file.
pub(super) struct Batch {
    database: u64,
    entries: Vec<Entry>,
    bytes: usize,
}

impl Batch {
    pub(super) fn new(database: u64) -> Batch {
        Batch {
            database,
            entries: Vec::new(),
            bytes: 0,
        }
    }

    pub(super) fn database(&self) -> u64 {
        self.database
    }

    /// Returns where the first entry begins in the file.
    pub(super) fn first_position(&self) -> Option<u64> {
        self.entries.first().map(|entry| entry.position)
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.bytes += entry.command.len();
        self.entries.push(entry);
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= MOST_ENTRIES || self.bytes >= MOST_BYTES
    }
}

/// What the threads share.
#[derive(Default)]
struct Progress {
    /// The first positions of the batches that were given and are not acknowledged.
    pending: BTreeSet<u64>,
    /// The first error.
    failure: Option<String>,
}

/// Sends batches by threads that have connections of their own.
pub(super) struct Sender {
    batches: SyncSender<Batch>,
    progress: Arc<Mutex<Progress>>,
    threads: Vec<JoinHandle<()>>,
    /// The length of the longest argument that the target takes, in bytes, if the target says it.
    longest_argument: Option<u64>,
}

impl Sender {
    pub(super) fn start(target: Target, threads: NonZeroUsize, patience: Duration) -> Sender {
        let (batches, received) = sync_channel(threads.get());
        let received = Arc::new(Mutex::new(received));
        let progress = Arc::<Mutex<Progress>>::default();
        let limits = target.limits().ok();
        let thread = |_| {
            let (received, progress) = (Arc::clone(&received), Arc::clone(&progress));
            let sending = Connections {
                target: target.clone(),
                open: HashMap::new(),
                patience,
            };
            thread::spawn(move || work(sending, &received, &progress))
        };
        Sender {
            threads: (0..threads.get()).map(thread).collect(),
            batches,
            progress,
            longest_argument: limits.map(|limits| limits.longest_argument),
        }
    }

    /// Gives a batch to a thread; waits while all are busy.
    ///
    /// # Errors
    /// Returns an error if an earlier batch was refused, or an entry is longer than the target takes.
    pub(super) fn send(&self, batch: Batch) -> Result<(), String> {
        let Some(first) = batch.first_position() else {
            return Ok(());
        };
        let mut progress = self.progress.lock();
        // The position at which to go on includes this batch, whether or not it is sent.
        progress.pending.insert(first);
        if let Some(failure) = &progress.failure {
            return Err(failure.clone());
        }
        drop(progress);
        // The target would close the connection.
        if let Some(most) = self.longest_argument {
            let mut entries = batch.entries.iter();
            if let Some(entry) = entries.find(|entry| entry.longest_argument > most) {
                return Err(format!(
                    "the target refuses '{}': {}",
                    String::from_utf8_lossy(&entry.name),
                    too_long(entry.longest_argument, most)
                ));
            }
        }
        let gone = |_| "the threads that send have ended".to_owned();
        self.batches.send(batch).map_err(gone)
    }

    /// Waits for all batches. Returns the position of the first one that was not acknowledged, and the first error.
    pub(super) fn finish(self) -> (Option<u64>, Option<String>) {
        drop(self.batches);
        for thread in self.threads {
            // One that has panicked has said so, and left its batch pending.
            let _ = thread.join();
        }
        let mut progress = self.progress.lock();
        (progress.pending.first().copied(), progress.failure.take())
    }
}

fn work(mut sending: Connections, received: &Mutex<Receiver<Batch>>, progress: &Mutex<Progress>) {
    loop {
        let next = received.lock().recv();
        let Ok(batch) = next else { return };
        if progress.lock().failure.is_some() {
            continue;
        }
        let first = batch.first_position();
        let sent = sending.deliver(batch);
        let mut progress = progress.lock();
        match sent {
            Ok(()) => {
                first.map(|first| progress.pending.remove(&first));
            }
            Err(error) => {
                progress.failure.get_or_insert(error);
            }
        }
    }
}

/// The connections of a thread.
struct Connections {
    target: Target,
    open: HashMap<SocketAddr, NodeConnection>,
    patience: Duration,
}

impl Connections {
    /// Sends a batch until the server has acknowledged all of it.
    ///
    /// # Errors
    /// The text says which entry was refused, or why the server has not answered for so long.
    fn deliver(&mut self, batch: Batch) -> Result<(), String> {
        let mut left = batch.entries;
        let mut since = Instant::now();
        loop {
            let before = left.len();
            let mut by_node: BTreeMap<SocketAddr, Vec<Entry>> = BTreeMap::new();
            for entry in left.drain(..) {
                let node = self.target.node(entry.slot);
                by_node.entry(node).or_default().push(entry);
            }
            let mut last = String::new();
            for (node, entries) in by_node {
                let replies = self.exchange(node, batch.database, &entries)?;
                let (replies, why) = match replies {
                    Ok(replies) => (replies, String::new()),
                    Err(error) => (Vec::new(), format!("{node}: {error}")),
                };
                let unanswered = entries.len().saturating_sub(replies.len());
                if unanswered > 0 {
                    last = why;
                }
                let mut replies = replies.into_iter();
                for entry in entries {
                    match replies.next() {
                        Some(Value::Error(error)) => {
                            let error = String::from_utf8_lossy(&error).into_owned();
                            if !self.target.note_move(&error) && !is_passing(&error) {
                                return Err(format!(
                                    "{node} refuses '{}': {error}",
                                    String::from_utf8_lossy(&entry.name)
                                ));
                            }
                            last = format!("{node}: {error}");
                            left.push(entry);
                        }
                        Some(_) => {}
                        None => left.push(entry),
                    }
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            if left.len() < before {
                since = Instant::now();
            }
            if since.elapsed() > self.patience {
                let seconds = self.patience.as_secs_f64();
                return Err(format!("nothing was accepted for {seconds} s; {last}"));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Sends entries to a node. Returns its replies to them, or the reason why there are none.
    ///
    /// # Errors
    /// The text says that the node does not have the database.
    fn exchange(
        &mut self,
        node: SocketAddr,
        database: u64,
        entries: &[Entry],
    ) -> Result<Result<Vec<Value>, String>, String> {
        let mut connection = match self.open.remove(&node) {
            Some(connection) => connection,
            None => match self.target.open(node) {
                Ok(connection) => connection,
                Err(error) => return Ok(Err(error)),
            },
        };
        let mut commands = Vec::new();
        let number = database.to_string();
        write_command(&mut commands, &[b"SELECT", number.as_bytes()]);
        for entry in entries {
            commands.extend_from_slice(&entry.command);
        }
        let replies = connection.pipeline(&commands, entries.len() + 1, self.patience);
        let mut replies = match replies {
            Ok(replies) => replies,
            Err(error) => return Ok(Err(error)),
        };
        if let Value::Error(error) = replies.remove(0) {
            if error.starts_with(b"ERR") {
                return Err(format!("{node}: {}", refused_database(database, &error)));
            }
            return Ok(Err(String::from_utf8_lossy(&error).into_owned()));
        }
        self.open.insert(node, connection);
        Ok(Ok(replies))
    }
}
