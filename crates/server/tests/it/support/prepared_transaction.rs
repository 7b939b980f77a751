//! Transactions that are prepared for as long as a test wants.

use std::sync::atomic::{AtomicU64, Ordering};

use base::participant::{Prepare, TransactionExecutor, TwoPhaseCommit};
use base::transaction::Holder;
use base::{Op, Timestamp, TransactionId};
use store::{Db, Worker};

/// Prepared transactions so far.
static COUNT: AtomicU64 = AtomicU64::new(1);

/// A transaction that is prepared until the test decides it.
pub(crate) struct PreparedTransaction {
    worker: Worker,
    id: TransactionId,
}

impl PreparedTransaction {
    /// Appends `x` to the key.
    pub(crate) fn new(db: &Db, key: &str) -> PreparedTransaction {
        let mut worker = db.worker().expect("a spare worker");
        // Each is later than the one before it, also within a millisecond.
        let unique = COUNT.fetch_add(1, Ordering::Relaxed);
        let now = Timestamp::at_ms(worker.time_ms() + unique);
        let id = TransactionId {
            timestamp: now,
            unique,
        };
        let (key, value) = (key.as_bytes(), b"x");
        let mut siblings = Vec::new();
        base::change::siblings::push(&mut siblings, key);
        let prepare = Prepare {
            holder: Holder { id, age: now },
            ops: &[Op::Append { key, value }],
            siblings: &siblings,
            note: &[],
            isolation: base::participant::Isolation::Serializable,
        };
        worker.prepare(&prepare).expect("no other thread is here");
        PreparedTransaction { worker, id }
    }

    pub(crate) fn commit(mut self) {
        self.worker.commit(self.id).expect("it was prepared");
    }

    pub(crate) fn abort(mut self) {
        self.worker.abort(self.id).expect("it was prepared");
    }
}
