//! The lock table that the aggregation threads share (paper 3, section 5.3).
//!
//! A thread enters it by test-and-set (the compare-and-swap of `try_lock`) and tries again if another
//! thread is inside: no thread is ever put to sleep. A lock ends when its lease does.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use resp::{Args, Protocol, Writer};

/// Attempts to enter, after which a thread lets others run: the thread inside may have lost its
/// processor.
const SPINS: u32 = 100;

/// A request of the lock table, as slices of the client's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TableRequest {
    /// `LOCK.ACQUIRE name owner PX ms`.
    Acquire {
        name: Bytes,
        owner: Bytes,
        lease: Duration,
    },
    /// `LOCK.RELEASE name owner`.
    Release { name: Bytes, owner: Bytes },
}

impl TableRequest {
    /// Parses a command whose bytes are `request`; `None` if it is none about locks, or malformed.
    pub(super) fn parse(args: Args<'_>, request: &Bytes) -> Option<TableRequest> {
        let text = |place: usize| args.get(place).map(|text| request.slice_ref(text));
        let is = |place: usize, word: &[u8]| {
            args.get(place)
                .is_some_and(|text| text.eq_ignore_ascii_case(word))
        };
        if is(0, b"LOCK.RELEASE") && args.len() == 3 {
            return Some(TableRequest::Release {
                name: text(1)?,
                owner: text(2)?,
            });
        }
        if is(0, b"LOCK.ACQUIRE") && is(3, b"PX") && args.len() == 5 {
            let ms = std::str::from_utf8(args.get(4)?).ok()?.parse().ok()?;
            return Some(TableRequest::Acquire {
                name: text(1)?,
                owner: text(2)?,
                lease: Duration::from_millis(ms),
            });
        }
        None
    }
}

/// See the module's page.
#[derive(Default)]
pub(super) struct SharedLockTable(Mutex<HeldLocks>);

#[derive(Default)]
struct HeldLocks {
    held: HashMap<Bytes, LockHolder, foldhash::fast::RandomState>,
    /// Locks that were granted.
    grants: u64,
}

struct LockHolder {
    owner: Bytes,
    until: Instant,
}

impl SharedLockTable {
    /// Executes a request at the time `now`. Returns the reply in RESP, which is that of Kumiki's
    /// proxy.
    pub(super) fn execute(&self, request: TableRequest, now: Instant) -> Bytes {
        let mut tries = 0;
        let mut locks = loop {
            if let Some(locks) = self.0.try_lock() {
                break locks;
            }
            tries += 1;
            match tries % SPINS {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        };
        let mut reply = Vec::new();
        let mut writer = Writer::new(&mut reply, Protocol::Resp2);
        match request {
            TableRequest::Acquire { name, owner, lease } => {
                locks.acquire(&name, &owner, lease, now, &mut writer);
            }
            TableRequest::Release { name, owner } => {
                writer.int(i64::from(locks.release(&name, &owner, now)));
            }
        }
        reply.into()
    }
}

impl HeldLocks {
    fn acquire(
        &mut self,
        name: &Bytes,
        owner: &Bytes,
        lease: Duration,
        now: Instant,
        reply: &mut Writer<'_>,
    ) {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        reply.array(3);
        if let Some(holder) = self.held.get(name)
            && holder.until > now
            && holder.owner != owner
        {
            reply.int(0);
            reply.bulk(&holder.owner);
            reply.int(ms(holder.until - now));
            return;
        }
        self.grants += 1;
        // A copy, so that the table does not keep whole buffers of input.
        let holder = LockHolder {
            owner: Bytes::copy_from_slice(owner),
            until: now + lease,
        };
        self.held.insert(Bytes::copy_from_slice(name), holder);
        reply.int(1);
        reply.int(self.grants.cast_signed());
        reply.int(ms(lease));
    }

    /// Returns `true` if the owner held the lock.
    fn release(&mut self, name: &Bytes, owner: &Bytes, now: Instant) -> bool {
        let holds = |holder: &LockHolder| holder.until > now && holder.owner == *owner;
        let held = self.held.get(name).is_some_and(holds);
        if held {
            self.held.remove(name);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn acquire(table: &SharedLockTable, owner: &str, now: Instant) -> String {
        let request = TableRequest::Acquire {
            name: Bytes::from_static(b"lock"),
            owner: Bytes::copy_from_slice(owner.as_bytes()),
            lease: LEASE,
        };
        String::from_utf8(table.execute(request, now).to_vec()).unwrap()
    }

    fn release(table: &SharedLockTable, owner: &str, now: Instant) -> String {
        let request = TableRequest::Release {
            name: Bytes::from_static(b"lock"),
            owner: Bytes::copy_from_slice(owner.as_bytes()),
        };
        String::from_utf8(table.execute(request, now).to_vec()).unwrap()
    }

    #[test]
    fn one_owner_holds_a_lock_until_it_releases_it_or_its_lease_ends() {
        let (table, now) = (SharedLockTable::default(), Instant::now());
        assert_eq!(acquire(&table, "a", now), "*3\r\n:1\r\n:1\r\n:30000\r\n");
        assert_eq!(
            acquire(&table, "b", now),
            "*3\r\n:0\r\n$1\r\na\r\n:30000\r\n"
        );
        assert_eq!(release(&table, "b", now), ":0\r\n");
        assert_eq!(release(&table, "a", now), ":1\r\n");
        assert_eq!(release(&table, "a", now), ":0\r\n");
        assert_eq!(acquire(&table, "b", now), "*3\r\n:1\r\n:2\r\n:30000\r\n");
        let later = now + LEASE;
        assert_eq!(release(&table, "b", later), ":0\r\n", "the lease has ended");
        assert_eq!(acquire(&table, "a", later), "*3\r\n:1\r\n:3\r\n:30000\r\n");
    }

    #[test]
    fn threads_never_hold_a_lock_together() {
        let (table, now) = (SharedLockTable::default(), Instant::now());
        let inside = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for owner in ["a", "b", "c"] {
                let (table, inside) = (&table, &inside);
                scope.spawn(move || {
                    let mut granted = 0;
                    while granted < 500 {
                        if !acquire(table, owner, now).starts_with("*3\r\n:1") {
                            std::thread::yield_now();
                            continue;
                        }
                        granted += 1;
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        assert_eq!(release(table, owner, now), ":1\r\n");
                    }
                });
            }
        });
    }

    #[test]
    fn malformed_requests_are_none() {
        for words in [
            &["LOCK.ACQUIRE", "name", "owner", "PX"][..],
            &["LOCK.ACQUIRE", "name", "owner", "PX", "soon"],
            &["LOCK.ACQUIRE", "name", "owner", "EX", "1"],
            &["LOCK.RELEASE", "name"],
            &["GET", "name"],
        ] {
            let mut request = Vec::new();
            let parts: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            resp::command::write_command(&mut request, &parts);
            let mut parser = resp::Parser::new();
            let end = parser.parse(&mut request, &resp::Limits::default());
            assert_eq!(end, Ok(Some(request.len())));
            let request = Bytes::from(request);
            let args = Args::new(&request, parser.spans());
            assert_eq!(TableRequest::parse(args, &request), None, "{words:?}");
        }
    }
}
