//! The database as a partition.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use base::partition::{OwnedReply, Partition};
use base::transaction::Observed;
use base::{Abort, Epoch, Transaction};
use parking_lot::Mutex;

use crate::db::{Db, Shared};

/// Tasks that wait for an epoch to become durable.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<Vec<(Epoch, Waker)>>);

impl Waiters {
    /// Wakes the tasks whose epoch is durable; all tasks when no other epoch will ever be durable.
    pub(crate) fn wake(&self, durable: Epoch, over: bool) {
        let ready: Vec<_> = {
            let mut waiting = self.0.lock();
            waiting
                .extract_if(.., |(epoch, _)| over || *epoch <= durable)
                .collect()
        };
        ready.into_iter().for_each(|(_, waker)| waker.wake());
    }

    fn add(&self, epoch: Epoch, waker: Waker) {
        self.0.lock().push((epoch, waker));
    }
}

impl Partition for Db {
    async fn execute(&self, transaction: &Transaction<'_>) -> Result<Vec<OwnedReply>, Abort> {
        let shared = self.shared();
        let mut until = None;
        loop {
            let seen = shared.releases();
            let (outcome, observed) = self.attempt(transaction);
            if matches!(outcome, Err(Abort::Held { .. })) {
                let until = *until.get_or_insert_with(|| shared.hold_limit());
                if shared.until_released(seen, until).await {
                    continue;
                }
            }
            until_durable(shared, observed.epoch).await?;
            return outcome;
        }
    }
}

impl Db {
    fn attempt(&self, transaction: &Transaction<'_>) -> (Result<Vec<OwnedReply>, Abort>, Observed) {
        let mut worker = self.lend();
        worker.refresh();
        let outcome = worker
            .execute(&transaction.ops)
            .map(|committed| committed.replies().iter().map(OwnedReply::from).collect());
        let observed = worker.observed();
        self.give_back(worker);
        (outcome, observed)
    }
}

async fn until_durable(shared: &Shared, epoch: Epoch) -> Result<(), Abort> {
    let Some(journal) = &shared.journal else {
        return Ok(());
    };
    let check = || {
        if journal.durable() >= epoch {
            return Some(Ok(()));
        }
        journal.over().map(|failed| {
            Err(Abort::ReadOnly {
                reason: failed.to_string(),
            })
        })
    };
    poll_fn(|context| {
        if let Some(ready) = check() {
            return Poll::Ready(ready);
        }
        shared.waiters.add(epoch, context.waker().clone());
        journal.request(epoch);
        // The epoch may have become durable before the waker was there to be woken.
        check().map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
