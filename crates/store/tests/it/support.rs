//! Databases on disks that fail, transactions of tests, and an executor.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use base::clock::ManualClock;
use base::{Timestamp, TransactionId};
use disk::{Crash, FaultDisk};
use kumiki_store::{CheckpointOptions, Options, Worker};

pub(crate) const NOW_MS: u64 = 1_700_000_000_000;

/// Returns options of a database whose clock stands still, and which does nothing by itself.
pub(crate) fn still(disk: &FaultDisk, now_ms: u64) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        clock: Arc::new(ManualClock::new(now_ms)),
        // Nothing becomes durable by itself.
        idle_flush: Duration::from_secs(3600),
        checkpoint: CheckpointOptions {
            log_size: 0,
            ..CheckpointOptions::default()
        },
        segment_size: 16 << 10,
        ..Options::in_dir("/db")
    }
}

/// Returns the disk as a power failure leaves it.
pub(crate) fn crash(disk: &FaultDisk) -> FaultDisk {
    disk.crash(Crash::DropAll, 1)
}

pub(crate) fn id(n: u64) -> TransactionId {
    TransactionId {
        timestamp: Timestamp::at_ms(NOW_MS + n),
        unique: n,
    }
}

/// Makes the worker's last writes durable.
pub(crate) fn settle(worker: &Worker) {
    let epoch = worker.observed().epoch;
    worker.wait_durable(epoch).expect("the disk is sound");
}

/// Runs a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}
