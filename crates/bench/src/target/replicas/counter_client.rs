//! Clients that add to counters, wherever they are.

use base::Op;
use base::partition::OwnedReply;
use fastrand::Rng;

use super::state_check::AdditionLedger;
use crate::driver::AsyncClient;
use crate::error::RunError;
use crate::keys;

/// A client's way to the leader.
pub(super) trait CounterExecutor: 'static {
    /// Executes operations as one transaction, and waits until it is committed.
    ///
    /// # Errors
    /// The text says why the outcome is not known.
    fn execute(
        &mut self,
        ops: &[Op<'_>],
    ) -> impl Future<Output = Result<Vec<OwnedReply>, RunError>>;
}

/// A client.
pub(super) struct CounterClient<E> {
    executor: E,
    ledger: AdditionLedger,
    /// Transactions of a request.
    bulk: usize,
    share: CounterShare,
    rng: Rng,
}

impl<E> CounterClient<E> {
    /// Creates a client that sends so many transactions in a request.
    pub(super) fn new(
        executor: E,
        ledger: &AdditionLedger,
        bulk: usize,
        share: CounterShare,
        seed: u64,
    ) -> CounterClient<E> {
        CounterClient {
            executor,
            ledger: ledger.clone(),
            bulk,
            share,
            rng: Rng::with_seed(seed.wrapping_add(share.client << 32)),
        }
    }
}

/// The counters of a client: each client has its own, so that no client waits for another's locks.
#[derive(Clone, Copy)]
pub(super) struct CounterShare {
    /// The client's number, from 1 on.
    pub(super) client: u64,
    pub(super) clients: u64,
    /// Counters in all.
    pub(super) counters: u64,
}

impl CounterShare {
    /// Returns two different ones.
    fn draw(self, rng: &mut Rng) -> [u64; 2] {
        let own = self.counters / self.clients;
        let first = rng.u64(0..own);
        let second = (first + rng.u64(1..own)) % own;
        [first, second].map(|place| place * self.clients + self.client - 1)
    }
}

impl<E: CounterExecutor> AsyncClient for CounterClient<E> {
    async fn call(&mut self) -> Result<(), RunError> {
        let draw = |_| self.share.draw(&mut self.rng);
        let drawn: Vec<u64> = (0..self.bulk).flat_map(draw).collect();
        let keys: Vec<[u8; 8]> = drawn.iter().map(|&index| keys::encode(index)).collect();
        let ops = keys.iter().map(|key| Op::Add { key, delta: 1 });
        let ops: Vec<Op<'_>> = ops.collect();
        let replies = self.executor.execute(&ops).await?;
        self.ledger.acknowledged(&drawn, &replies)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn clients_share_the_counters_and_none_with_another() {
        let mut rng = Rng::with_seed(1);
        let mut owners = vec![0; 100];
        for client in 1..=7 {
            let share = CounterShare {
                client,
                clients: 7,
                counters: 100,
            };
            let drawn = (0..1000).map(|_| share.draw(&mut rng));
            let drawn: Vec<[u64; 2]> = drawn.collect();
            assert!(drawn.iter().all(|[first, second]| first != second));
            let own: BTreeSet<u64> = drawn.into_iter().flatten().collect();
            assert_eq!(own.len(), 14);
            own.iter().for_each(|&index| owners[index as usize] += 1);
        }
        assert!(owners.iter().all(|&owners| owners <= 1));
    }
}
