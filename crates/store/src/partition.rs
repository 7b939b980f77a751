//! The database as a partition.

use base::partition::{OwnedReply, Partition};
use base::transaction::Observed;
use base::{Abort, Transaction};

use crate::db::Db;

impl Partition for Db {
    async fn execute(&self, transaction: &Transaction<'_>) -> Result<Vec<OwnedReply>, Abort> {
        let db = self.state();
        let mut until = None;
        loop {
            let seen = db.releases();
            let (outcome, observed) = self.attempt(transaction);
            if matches!(outcome, Err(Abort::Held { .. })) {
                let until = *until.get_or_insert_with(|| db.hold_limit());
                if db.wait_released_async(seen, until).await {
                    continue;
                }
            }
            db.wait_durable_async(observed.epoch).await?;
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
