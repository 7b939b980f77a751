//! The slow log: the last commands whose execution took long (`SLOWLOG`).
//!
//! Invariant: there are never more entries than `slowlog-max-len` says.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

/// The arguments that an entry keeps, and the bytes of each of them.
const ARGUMENTS: usize = 32;
const ARGUMENT_BYTES: usize = 128;

/// A command that took long.
#[derive(Clone)]
pub(crate) struct SlowCommand {
    /// Its number, never given again.
    pub(crate) id: u64,
    pub(crate) at: SystemTime,
    pub(crate) took: Duration,
    /// Its arguments, shortened.
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) address: SocketAddr,
    /// The name that its client had.
    pub(crate) name: Vec<u8>,
}

/// See the module's description.
pub(crate) struct SlowLog {
    /// The least time of an entry, in microseconds; negative: there are none.
    slower_than_us: AtomicI64,
    /// The most entries that there are.
    most: AtomicUsize,
    entries: Mutex<SlowLogEntries>,
}

#[derive(Default)]
struct SlowLogEntries {
    next_id: u64,
    /// The newest is first.
    list: VecDeque<SlowCommand>,
}

impl SlowLog {
    /// Creates an empty log of at most `most` commands that take as long as `slower_than`; `None`: of none.
    pub(crate) fn new(slower_than: Option<Duration>, most: usize) -> SlowLog {
        let us = slower_than.map_or(-1, |limit| limit.as_micros() as i64);
        SlowLog {
            slower_than_us: AtomicI64::new(us),
            most: AtomicUsize::new(most),
            entries: Mutex::default(),
        }
    }

    /// Returns the least time of an entry; `None`: nothing is recorded.
    pub(crate) fn slower_than(&self) -> Option<Duration> {
        let us = u64::try_from(self.slower_than_us()).ok()?;
        Some(Duration::from_micros(us))
    }

    /// Returns the least time of an entry in microseconds; negative: nothing is recorded.
    pub(crate) fn slower_than_us(&self) -> i64 {
        self.slower_than_us.load(Ordering::Relaxed)
    }

    /// Sets the least time of an entry in microseconds; negative: nothing is recorded.
    pub(crate) fn set_slower_than_us(&self, us: i64) {
        self.slower_than_us.store(us, Ordering::Relaxed);
    }

    /// Returns the most entries that are kept.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Sets the most entries that are kept. The oldest ones beyond that are dropped.
    pub(crate) fn set_most(&self, most: usize) {
        let mut entries = self.entries.lock();
        self.most.store(most, Ordering::Relaxed);
        entries.list.truncate(most);
    }

    /// Adds a command with its shortened arguments.
    #[cold]
    pub(crate) fn add(
        &self,
        args: Vec<Vec<u8>>,
        took: Duration,
        (address, name): (SocketAddr, Vec<u8>),
    ) {
        let at = SystemTime::now();
        let mut entries = self.entries.lock();
        let id = entries.next_id;
        entries.next_id += 1;
        entries.list.push_front(SlowCommand {
            id,
            at,
            took,
            args,
            address,
            name,
        });
        entries.list.truncate(self.most());
    }

    /// Returns the newest entries, the newest one first.
    pub(crate) fn newest(&self, most: usize) -> Vec<SlowCommand> {
        self.entries
            .lock()
            .list
            .iter()
            .take(most)
            .cloned()
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.lock().list.len()
    }

    /// Drops all entries.
    pub(crate) fn clear(&self) {
        self.entries.lock().list.clear();
    }
}

/// Copies the beginnings of the first arguments, and says how much is left out.
pub(crate) fn shortened<'a>(args: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let count = args.len();
    let kept = if count > ARGUMENTS {
        ARGUMENTS - 1
    } else {
        count
    };
    let mut shown: Vec<Vec<u8>> = args.take(kept).map(shortened_argument).collect();
    if kept < count {
        shown.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    shown
}

fn shortened_argument(arg: &[u8]) -> Vec<u8> {
    match arg.split_at_checked(ARGUMENT_BYTES) {
        Some((start, rest)) if !rest.is_empty() => {
            let mut shown = start.to_vec();
            shown.extend_from_slice(format!("... ({} more bytes)", rest.len()).as_bytes());
            shown
        }
        _ => arg.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(log: &SlowLog, words: &[&str]) {
        let args = words.iter().map(|word| word.as_bytes());
        let client = (SocketAddr::from(([127, 0, 0, 1], 9)), b"me".to_vec());
        log.add(shortened(args), Duration::from_micros(7), client);
    }

    #[test]
    fn the_oldest_entries_are_dropped() {
        let log = SlowLog::new(None, 2);
        for word in ["a", "b", "c"] {
            add(&log, &[word]);
        }
        let ids = |log: &SlowLog| log.newest(10).iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!((log.len(), ids(&log)), (2, vec![2, 1]));
        assert_eq!(log.newest(1)[0].args, [b"c"]);
        log.set_most(1);
        assert_eq!(ids(&log), [2]);
        log.clear();
        assert_eq!(log.len(), 0);
        add(&log, &["d"]);
        assert_eq!(ids(&log), [3]);
        log.set_most(0);
        add(&log, &["e"]);
        assert_eq!(log.len(), 0);
    }

    #[test]
    fn long_arguments_and_long_lists_are_shortened() {
        let long = "x".repeat(130);
        let mut words = vec![long.as_str(); 33];
        let shown = |words: &[&str]| shortened(words.iter().map(|word| word.as_bytes()));
        let short = shown(&words);
        let first = "x".repeat(128) + "... (2 more bytes)";
        assert_eq!((short.len(), &short[0]), (32, &first.into_bytes()));
        assert_eq!(short[31], b"... (2 more arguments)");
        words.truncate(32);
        assert_eq!(shown(&words).len(), 32);
        let exact = "y".repeat(128);
        assert_eq!(shown(&[&exact]), [exact.as_bytes()]);
    }
}
