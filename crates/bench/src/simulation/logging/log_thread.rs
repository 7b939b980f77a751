//! A simulated logger: its epochs, cycles and sleep.

use super::{LoggingSimulation, Step};
use crate::simulation::costs::Line;

/// A block that only says which epoch is closed.
const MARK: f64 = 64.0;

impl LoggingSimulation {
    /// Lets a logger sleep until the next epoch begins, or until it is woken.
    pub(super) fn sleep(&mut self, logger: usize) {
        let delay = self.next_tick.saturating_sub(self.threads.now()) + self.wake_time();
        self.look_later(logger, delay);
    }

    /// Wakes a logger if it sleeps.
    pub(super) fn wake(&mut self, logger: usize) {
        if self.loggers[logger].sleep.is_some() {
            let delay = self.wake_time();
            self.look_later(logger, delay);
        }
    }

    fn look_later(&mut self, logger: usize, delay: u64) {
        let state = &mut self.loggers[logger];
        state.sleeps += 1;
        let sleep = state.sleeps;
        state.sleep = Some(sleep);
        let thread = self.log_thread(logger);
        let step = Step::Look { logger, sleep };
        self.threads.give(thread, delay, 0.0, step);
    }

    /// Looks for work after a sleep; an older sleep than the logger's has been ended by a wake.
    pub(super) fn look(&mut self, logger: usize, sleep: u64) {
        if self.loggers[logger].sleep == Some(sleep) {
            self.loggers[logger].sleep = None;
            self.work(logger);
        }
    }

    /// Begins the next epoch if it is time, and a cycle if there is something to do.
    fn work(&mut self, logger: usize) {
        let now = self.threads.now();
        let has_ticked = now >= self.next_tick;
        if has_ticked {
            let interval = self.config.epoch.as_nanos() as u64;
            let on_time = self.next_tick + interval;
            self.next_tick = if on_time > now {
                on_time
            } else {
                now + interval
            };
            self.current += 1;
        }
        let state = &self.loggers[logger];
        let is_behind = self.current - 1 > state.closed;
        if state.queue.is_empty() && !is_behind || !self.begin_cycle(logger, has_ticked) {
            self.sleep(logger);
        }
    }

    /// Takes everything that the logger's workers have appended. Returns `false` if there is nothing to
    /// write.
    fn begin_cycle(&mut self, logger: usize, has_ticked: bool) -> bool {
        let finished = (self.current - 1).max(self.loggers[logger].closed);
        let mut taken = std::mem::take(&mut self.loggers[logger].queue);
        for worker in (logger..self.config.workers).step_by(self.config.loggers) {
            let open = self.workers[worker].open.take();
            taken.extend(open.map(|bytes| (worker, bytes)));
        }
        let state = &mut self.loggers[logger];
        if taken.is_empty() && finished == state.closed {
            return false;
        }
        let bytes: f64 = taken.iter().map(|(_, bytes)| bytes).sum();
        state.taken = taken;
        state.closing = finished;
        // The logger that ends an epoch waits for the transactions that are running.
        let waits = if has_ticked {
            self.config.costs.worker
        } else {
            0.0
        };
        let service = time(self.config.costs.cycle, bytes) + waits;
        let thread = self.log_thread(logger);
        self.threads.go_on(thread, service, Step::Write { logger });
        true
    }

    /// Waits for the device, as long as that takes longer than the logger's own work.
    pub(super) fn written(&mut self, logger: usize) {
        let now = self.threads.now();
        let bytes: f64 = self.loggers[logger].taken.iter().map(|taken| taken.1).sum();
        let (own, device) = (self.config.costs.cycle.0, self.config.costs.device.0);
        let beyond = |term: usize| (device[term] - own[term]).max(0.0);
        let transfer = (beyond(1) * bytes) as u64;
        let end = match self.config.shares_device {
            true => {
                self.device_free = self.device_free.max(now) + transfer;
                self.device_free
            }
            false => now + transfer,
        };
        let delay = end - now + beyond(0) as u64;
        let thread = self.log_thread(logger);
        self.threads.give(thread, delay, 0.0, Step::Sync { logger });
        if self.is_in_window(now) {
            self.result.bytes += bytes;
        }
    }

    /// Closes the cycle's epoch, and gives its buffers back.
    pub(super) fn synced(&mut self, logger: usize) {
        let state = &mut self.loggers[logger];
        state.closed = state.closing;
        for (worker, _) in std::mem::take(&mut state.taken) {
            self.workers[worker].in_use -= 1;
        }
        let least = self.loggers.iter().map(|logger| logger.closed).min();
        self.advance(least.expect("there is a logger"));
        self.wake_workers(logger);
        self.work(logger);
    }

    /// Accounts for the transactions that are durable now.
    fn advance(&mut self, durable: u64) {
        if durable <= self.durable {
            return;
        }
        self.durable = durable;
        let now = self.threads.now() as f64;
        let later = self.accounts.split_off(&(durable + 1));
        for account in std::mem::replace(&mut self.accounts, later).into_values() {
            self.result.durable += account.transactions;
            self.result.waited += now * account.transactions as f64 - account.begun;
        }
    }
}

/// Returns the time of a cycle with so many bytes, in nanoseconds.
fn time(line: Line, bytes: f64) -> f64 {
    line.of([1, bytes.max(MARK) as usize, 0, 0])
}
