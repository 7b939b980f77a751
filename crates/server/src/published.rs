//! Newest versions of read-atomic keys in memory that clients on this machine read by themselves
//! (paper 1, section 3.2; GET\*).
//!
//! What is read there is believed for as long as the server lives: a thread moves the lease on, and
//! the lease of one that was stopped ends by itself.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use base::memory::WORD;
use cluster::ramp::Published;
use cluster::ramp::slots::{Options, Slots, waits_until};
use fabric::memory::{Access, Memory, Region};
use fabric::shm::Shm;
use fabric::tcp::Transport;

use crate::config::Config;
use crate::partition::Partition;

/// For so long a region is believed after its owner was last seen to live.
const LEASE: Duration = Duration::from_secs(1);
/// How often it is moved on.
const RENEWAL: Duration = Duration::from_millis(200);

/// Keeps the lease from ending, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// This machine's clock, which counts the time for which it is suspended: nanoseconds.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000) + time.tv_nsec as u64
}

/// Publishes what is read of a partition, if the server is set up for it. If there is no memory for
/// that it serves without, and says so.
pub(crate) fn publish(
    config: &Config,
    partition: &Partition,
) -> std::io::Result<Option<(Arc<Published>, Lease)>> {
    let wanted = config
        .cluster
        .as_ref()
        .is_some_and(|membership| membership.transport != Transport::Tcp);
    let Partition::Local(db) = partition else {
        return Ok(None);
    };
    if !wanted || config.read_atomic().is_empty() || config.published == 0 {
        return Ok(None);
    }
    let shm = Shm::default();
    sweep(&shm);
    let published = match region(&shm, config.published) {
        Ok(published) => published,
        Err(error) => {
            tracing::warn!(
                error,
                "there is no shared memory to publish versions in; clients ask for all of them: \
                 make room in /dev/shm, or give a smaller --published"
            );
            return Ok(None);
        }
    };
    db.watch_read_atomic(Arc::clone(&published) as _);
    let lease = Lease::keep(&published)?;
    Ok(Some((published, lease)))
}

fn region(shm: &Shm, bytes: usize) -> Result<Arc<Published>, String> {
    let region = shm
        .register(bytes / WORD, Access::Read)
        .map_err(|error| error.to_string())?;
    let mut grant = Vec::new();
    region.grant().encode(&mut grant);
    let options = Options {
        lease: now() + LEASE.as_nanos() as u64,
        ..Options::new(RandomState::new().hash_one(0) | 1)
    };
    let slots = Slots::new(Box::new(region), &options, Box::new(now));
    let slots = slots.map_err(|error| error.to_string())?;
    Ok(Published::new(slots, grant))
}

/// Removes what processes have left in shared memory that were killed. If there was any, one of them
/// may have been this server: then it waits until nobody believes what that one has published.
fn sweep(shm: &Shm) {
    match shm.sweep() {
        Ok(0) => {}
        Ok(files) => {
            tracing::info!(files, "removed shared memory of processes that are gone");
            let begun = now();
            let wait = waits_until(begun, LEASE.as_nanos() as u64) - begun;
            std::thread::sleep(Duration::from_nanos(wait));
        }
        Err(error) => tracing::warn!(%error, "cannot look through the shared memory's directory"),
    }
}

impl Lease {
    fn keep(published: &Arc<Published>) -> std::io::Result<Lease> {
        let (stop, stopped) = mpsc::channel();
        let published = Arc::clone(published);
        let body = move || {
            let slots = published.slots();
            while stopped.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
                slots.extend_lease(slots.now() + LEASE.as_nanos() as u64);
            }
            slots.revoke();
        };
        let thread = std::thread::Builder::new()
            .name("lease".to_owned())
            .spawn(body)?;
        Ok(Lease {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the thread itself.
            drop(thread.join());
        }
    }
}
