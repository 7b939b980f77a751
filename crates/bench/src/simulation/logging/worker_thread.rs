//! A simulated worker: executes, appends, and waits for its logger.

use super::state::Awaited;
use super::{LoggingSimulation, PIECES, Step};

impl LoggingSimulation {
    /// Appends the transactions that a worker has executed until now.
    pub(super) fn executed(&mut self, worker: usize, transactions: u64) {
        let now = self.threads.now();
        let (service, bytes) = (self.config.costs.worker, self.config.costs.bytes);
        let took = service * transactions as f64;
        let begin = now.saturating_sub(took as u64);
        let epoch = self.current;
        self.executed += transactions;
        let state = &mut self.workers[worker];
        let waited = std::mem::take(&mut state.waited);
        state.last_epoch = epoch;
        if state.open.is_none() {
            state.in_use += 1;
        }
        let filled = state.open.unwrap_or(0.0) + bytes * transactions as f64;
        state.open = Some(filled);
        if self.is_in_window(begin + took as u64 / 2) {
            self.result.transactions += transactions;
            let account = self.accounts.entry(epoch).or_default();
            account.transactions += transactions;
            // They began one after the other; the first one had waited before.
            let middle = begin as f64 + (took - service).max(0.0) / 2.0;
            account.begun += middle * transactions as f64 - waited as f64;
        }
        if filled + bytes > self.config.buffer_size as f64 {
            self.enqueue(worker);
        }
        self.go_on(worker);
    }

    /// Goes on after a wait, if it may by now.
    pub(super) fn resume(&mut self, worker: usize) {
        let now = self.threads.now();
        let state = &mut self.workers[worker];
        state.is_woken = false;
        if state.waits_for.take().is_some() {
            state.waited += now - state.waits_since;
        }
        self.go_on(worker);
    }

    /// Begins the next piece of work, unless the worker has to wait.
    fn go_on(&mut self, worker: usize) {
        if let Some(awaited) = self.awaited(worker) {
            if awaited == Awaited::Buffer && self.workers[worker].open.is_some() {
                self.enqueue(worker);
            }
            let state = &mut self.workers[worker];
            state.waits_for = Some(awaited);
            state.waits_since = self.threads.now();
            return;
        }
        let transactions = self.piece(worker);
        let service = self.config.costs.worker * transactions as f64;
        let step = Step::Execute {
            worker,
            transactions,
        };
        self.threads.go_on(worker, service, step);
    }

    /// Returns what a worker has to wait for before its next transaction.
    fn awaited(&self, worker: usize) -> Option<Awaited> {
        let state = &self.workers[worker];
        if let Some(most) = self.config.max_epoch_diff {
            let needed = state.last_epoch.saturating_sub(most.get());
            if self.loggers[self.logger_of(worker)].closed < needed {
                return Some(Awaited::Closed(needed));
            }
        }
        let nearly_full = (self.config.buffer_size - self.config.buffer_size / 8) as f64;
        let has_room = state.open.is_some_and(|open| open < nearly_full);
        (!has_room && state.in_use >= self.config.buffers).then_some(Awaited::Buffer)
    }

    /// Returns the transactions of the next piece: a part of an epoch, and no more than fit into the
    /// open buffer.
    fn piece(&self, worker: usize) -> u64 {
        let part = self.config.epoch.as_nanos() as f64 / f64::from(PIECES);
        let open = self.workers[worker].open.unwrap_or(0.0);
        let room = (self.config.buffer_size as f64 - open) / self.config.costs.bytes.max(1.0);
        let part = part / self.config.costs.worker.max(1.0);
        part.min(room).max(1.0) as u64
    }

    /// Puts a worker's open buffer into its logger's queue, and wakes the logger.
    fn enqueue(&mut self, worker: usize) {
        let bytes = self.workers[worker].open.take().unwrap_or(0.0);
        let logger = self.logger_of(worker);
        self.loggers[logger].queue.push((worker, bytes));
        self.wake(logger);
    }

    /// Wakes the workers of a logger whose wait may be over.
    pub(super) fn wake_workers(&mut self, logger: usize) {
        for worker in (logger..self.config.workers).step_by(self.config.loggers) {
            let is_over = match self.workers[worker].waits_for {
                Some(Awaited::Buffer) => self.workers[worker].in_use < self.config.buffers,
                Some(Awaited::Closed(needed)) => self.loggers[logger].closed >= needed,
                None => false,
            };
            if is_over && !self.workers[worker].is_woken {
                self.workers[worker].is_woken = true;
                let delay = self.wake_time();
                let step = Step::Resume { worker };
                self.threads.give(worker, delay, 0.0, step);
            }
        }
    }
}
