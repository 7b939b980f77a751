//! Newest versions of read-atomic keys in memory that clients read by themselves (paper 1, section
//! 3.2; GET\*): on this machine, or through an RDMA device, or both.
//!
//! | part | concept |
//! |---|---|
//! | `door` | how peers reach that memory |
//! | this | where it is, and until when it is believed |
//!
//! | of a partition | what is read there is believed |
//! |---|---|
//! | on this node alone | for as long as the server lives: a thread moves the lease on, and the lease of one that was stopped ends by itself |
//! | on several nodes | as long as this one leads and has a lease, the very one by which it answers reads without asking the others (`--lease-reads`) |

mod door;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use base::memory::{WORD, Words};
use cluster::ramp::PublishedSlots;
use cluster::ramp::slots::{Options, Slots, Unsuited, waits_until};
use fabric::memory::{Access, Memory};
use fabric::shm::Shm;
use fabric::tcp::Transport;
use fabric::verbs::Domain;
use parking_lot::Mutex;

use crate::config::{Config, Membership};
use crate::partition::Partition;
use door::Doors;

/// The time for which a region is believed after its owner was last seen alive.
const LEASE: Duration = Duration::from_secs(1);
/// The interval at which the lease is extended.
const RENEWAL: Duration = Duration::from_millis(200);
/// The time, with a little reserve, for which shared memory may be believed after its owner was
/// killed: a reader checks every 10 ms that the owner lives, and gives up reads that take longer
/// than the grace period, 200 ms.
const REST: Duration = Duration::from_millis(250);
/// Reads that take longer are not believed.
const GRACE: Duration = Duration::from_millis(200);

/// Maintains the lease until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    published: Arc<PublishedSlots>,
    /// Stops the thread that extends it, if there is one.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the time of this machine's clock, which includes the time for which it is suspended, in
/// nanoseconds.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000) + time.tv_nsec as u64
}

/// Publishes the newest versions of a partition, if the server is set up for it. If there is no
/// memory for them, the server runs without, and logs that.
pub(crate) fn publish(
    config: &Config,
    partition: &Partition,
) -> std::io::Result<Option<(Arc<PublishedSlots>, Lease)>> {
    let membership = config.cluster.as_ref();
    let Some(membership) = membership.filter(|known| known.transport != Transport::Tcp) else {
        return Ok(None);
    };
    if config.read_atomic().is_empty() || config.published == 0 {
        return Ok(None);
    }
    let lease = match partition {
        Partition::Local(_) => now() + LEASE.as_nanos() as u64,
        Partition::Replicated(own) if own.member().has_leases() => 0,
        // Unless the leader asks the others, it is not certain that a version is the newest.
        Partition::Replicated(_) => return Ok(None),
    };
    let published = match region(membership, config, lease) {
        Ok(published) => published,
        Err(error) => {
            tracing::warn!(
                %error,
                "there is no memory to publish versions in; clients ask for all of them: make room \
                 in /dev/shm (for --transport verbs and verbs-send raise the limit on locked memory), or give a \
                 smaller --published"
            );
            return Ok(None);
        }
    };
    let watcher = Arc::clone(&published) as _;
    let lease = match partition {
        Partition::Local(db) => {
            db.watch_read_atomic(watcher);
            Lease::keep(&published)?
        }
        Partition::Replicated(own) => {
            own.member().engine().watch_read_atomic(watcher);
            Lease::follow(&published, own.member())
        }
    };
    Ok(Some((published, lease)))
}

/// Why there is no memory to publish versions in.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    /// The system, or the device, does not give it.
    #[error(transparent)]
    Memory(#[from] std::io::Error),
    /// It cannot hold slots.
    #[error(transparent)]
    Slots(#[from] Unsuited),
}

fn region(
    membership: &Membership,
    config: &Config,
    lease: u64,
) -> Result<Arc<PublishedSlots>, PublishError> {
    let (memory, doors) = memory(membership, config.published / WORD)?;
    let options = Options {
        lease,
        grace: GRACE,
        ..Options::new(RandomState::new().hash_one(0) | 1)
    };
    let slots = Slots::new(memory, &options, Box::new(now))?;
    Ok(PublishedSlots::new(slots, Box::new(doors), config.renewal))
}

/// Registers memory of so many words, which peers reach by the transport.
fn memory(membership: &Membership, words: usize) -> Result<(Box<dyn Words>, Doors), PublishError> {
    // A peer that may read what is published cannot reach another process's mailbox.
    let device = membership.verbs.as_ref().map(Domain::apart).transpose()?;
    let device = device.as_ref();
    if let (true, Some(domain)) = (membership.transport.needs_device(), device) {
        // The system may free the registrations of the server's former process a little later than
        // its ports.
        std::thread::sleep(REST);
        let region = Arc::new(domain.register(words, Access::Read)?);
        let doors = Doors::new(None, Some((domain, Arc::clone(&region))));
        return Ok((Box::new(region), doors));
    }
    let shm = Shm::default();
    sweep(&shm);
    let region = Arc::new(shm.register(words, Access::Read)?);
    let registered = device.and_then(|domain| match domain.register_shared(&region) {
        Ok(registered) => Some((domain, Arc::new(registered))),
        Err(error) => {
            tracing::warn!(%error, "clients of other machines ask for all versions");
            None
        }
    });
    let doors = Doors::new(Some(&region), registered);
    Ok((Box::new(region), doors))
}

/// Removes what killed processes have left in shared memory, and waits until no reader believes
/// what this server published in its former process. There may be no trace left of that one: its
/// readers remove it, too, and so does every other server that starts.
fn sweep(shm: &Shm) {
    match shm.sweep() {
        Ok(0) => {}
        Ok(files) => tracing::info!(files, "removed shared memory of processes that are gone"),
        Err(error) => tracing::warn!(%error, "cannot look through the shared memory's directory"),
    }
    std::thread::sleep(REST);
}

impl Lease {
    /// Starts a thread that extends the lease.
    fn keep(published: &Arc<PublishedSlots>) -> std::io::Result<Lease> {
        let (stop, stopped) = mpsc::channel();
        let lease = Arc::clone(published);
        let published = Arc::clone(published);
        let body = move || {
            let slots = published.slots();
            while stopped.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
                slots.extend_lease(slots.now() + LEASE.as_nanos() as u64);
            }
        };
        let thread = std::thread::Builder::new()
            .name("lease".to_owned())
            .spawn(body)?;
        Ok(Lease {
            published: lease,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Makes the lease follow the member's.
    fn follow(published: &Arc<PublishedSlots>, member: &replica::ReplicatedPartition) -> Lease {
        let (slots, begun) = (Arc::clone(published), Mutex::new(None));
        member.on_lease(Box::new(move |until| {
            let (slots, mut begun) = (slots.slots(), begun.lock());
            slots.set_lease(believed(until, slots.now(), &mut begun));
        }));
        Lease {
            published: Arc::clone(published),
            stop: None,
            thread: None,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the thread itself.
            drop(thread.join());
        }
        self.published.slots().revoke();
    }
}

/// Returns the time until which a region is believed whose owner has a lease until `until` (0:
/// none). `begun` is when the leadership began.
///
/// A reader that began before may have read a slot that was not kept up to date, and its header
/// later. So the region is not believed before such a reader considers its read too slow.
fn believed(until: u64, now: u64, begun: &mut Option<u64>) -> u64 {
    if until == 0 {
        *begun = None;
        return 0;
    }
    let begun = *begun.get_or_insert(now);
    let from = waits_until(begun, GRACE.as_nanos() as u64);
    if now >= from { until } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_believed_only_when_no_read_is_from_before() {
        const MS: u64 = 1_000_000;
        let mut begun = None;
        assert_eq!(believed(0, 5 * MS, &mut begun), 0);
        assert_eq!(believed(500 * MS, 10 * MS, &mut begun), 0);
        assert_eq!(believed(700 * MS, 210 * MS, &mut begun), 0);
        assert_eq!(believed(701 * MS, 211 * MS, &mut begun), 701 * MS);
        assert_eq!(believed(900 * MS, 400 * MS, &mut begun), 900 * MS);
        assert_eq!(believed(0, 401 * MS, &mut begun), 0);
        assert_eq!(
            believed(950 * MS, 402 * MS, &mut begun),
            0,
            "another one may have led"
        );
    }
}
