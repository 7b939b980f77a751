//! Time, threads, processors, and messages under way.
//!
//! A thread does its work in the order in which it came. A thread with work waits until its machine
//! has a processor for it, in the order in which threads got work, and keeps the processor for one
//! piece.

use std::collections::VecDeque;

use ::simulation::EventQueue;

use super::config::Machines;

/// A thread.
pub(super) type ThreadId = usize;

/// A piece of work.
#[derive(Debug)]
pub(super) struct PendingWork<W> {
    /// Its service time, in nanoseconds.
    pub(super) service: f64,
    pub(super) what: W,
}

/// An event at a time.
enum Event<W> {
    Arrives(ThreadId, PendingWork<W>),
    Ends(ThreadId),
}

struct SimulatedThread<W> {
    host: usize,
    work: VecDeque<PendingWork<W>>,
    /// It has work, and waits for a processor or has one.
    is_ready: bool,
}

struct SimulatedHost {
    free: usize,
    ready: VecDeque<ThreadId>,
}

/// All threads, and the work on its way to them.
pub(super) struct ThreadScheduler<W> {
    now: u64,
    events: EventQueue<u64, Event<W>>,
    threads: Vec<SimulatedThread<W>>,
    hosts: Vec<SimulatedHost>,
    /// The total time of all pieces of work that have begun.
    used: f64,
    /// The thread whose piece of work was returned last; it still has its processor.
    ended: Option<ThreadId>,
}

impl<W> ThreadScheduler<W> {
    /// Creates a machine with so many threads.
    pub(super) fn new(threads: usize, machines: Machines) -> ThreadScheduler<W> {
        let host = |free| SimulatedHost {
            free,
            ready: VecDeque::new(),
        };
        let (hosts, of): (Vec<SimulatedHost>, Box<dyn Fn(usize) -> usize>) = match machines {
            Machines::Shared(processors) => (vec![host(processors)], Box::new(|_| 0)),
            Machines::Apart => ((0..threads).map(|_| host(1)).collect(), Box::new(|at| at)),
        };
        let thread = |at| SimulatedThread {
            host: of(at),
            work: VecDeque::new(),
            is_ready: false,
        };
        ThreadScheduler {
            now: 0,
            events: EventQueue::new(),
            threads: (0..threads).map(thread).collect(),
            hosts,
            used: 0.0,
            ended: None,
        }
    }

    /// Returns the nanoseconds since the beginning.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Returns the processor time that was used, in nanoseconds.
    pub(super) fn used(&self) -> f64 {
        self.used
    }

    /// Gives a thread work after a delay.
    pub(super) fn give(&mut self, thread: ThreadId, delay: u64, service: f64, what: W) {
        let work = PendingWork { service, what };
        self.events
            .push(self.now + delay, Event::Arrives(thread, work));
    }

    /// Gives the thread whose work was returned last more work, before all of its other work.
    pub(super) fn go_on(&mut self, thread: ThreadId, service: f64, what: W) {
        self.threads[thread]
            .work
            .push_front(PendingWork { service, what });
    }

    /// Runs until a piece of work is done, and returns it with its thread; `None` if no work is
    /// left.
    pub(super) fn next(&mut self) -> Option<(ThreadId, W)> {
        if let Some(thread) = self.ended.take() {
            let host = self.threads[thread].host;
            self.threads[thread].is_ready = false;
            self.hosts[host].free += 1;
            self.make_ready(thread);
            self.dispatch(host);
        }
        loop {
            let (time, event) = self.events.pop()?;
            self.now = time;
            match event {
                Event::Arrives(thread, work) => {
                    self.threads[thread].work.push_back(work);
                    self.make_ready(thread);
                }
                Event::Ends(thread) => {
                    self.ended = Some(thread);
                    let work = self.threads[thread].work.pop_front();
                    return work.map(|work| (thread, work.what));
                }
            }
        }
    }

    fn make_ready(&mut self, thread: ThreadId) {
        let state = &mut self.threads[thread];
        if state.is_ready || state.work.is_empty() {
            return;
        }
        state.is_ready = true;
        let host = state.host;
        self.hosts[host].ready.push_back(thread);
        self.dispatch(host);
    }

    fn dispatch(&mut self, host: usize) {
        while self.hosts[host].free > 0 {
            let Some(thread) = self.hosts[host].ready.pop_front() else {
                return;
            };
            self.hosts[host].free -= 1;
            let work = self.threads[thread].work.front();
            let service = work.expect("a ready thread has work").service;
            self.used += service;
            self.events
                .push(self.now + service.max(0.0) as u64, Event::Ends(thread));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(mut machine: ThreadScheduler<u32>) -> Vec<(u64, u32)> {
        let mut ends = Vec::new();
        while let Some((_, what)) = machine.next() {
            ends.push((machine.now(), what));
        }
        ends
    }

    #[test]
    fn a_thread_does_one_thing_after_the_other_and_processors_are_shared() {
        let mut machine = ThreadScheduler::new(3, Machines::Shared(2));
        machine.give(0, 0, 10.0, 1);
        machine.give(0, 0, 10.0, 2);
        machine.give(1, 0, 10.0, 3);
        machine.give(2, 5, 10.0, 4);
        // The third thread has waited for a processor, and the first one is behind it.
        assert_eq!(ends(machine), [(10, 1), (10, 3), (20, 4), (20, 2)]);
        let mut machine = ThreadScheduler::new(2, Machines::Shared(1));
        machine.give(0, 0, 10.0, 1);
        machine.give(1, 1, 10.0, 2);
        machine.give(0, 2, 10.0, 3);
        assert_eq!(ends(machine), [(10, 1), (20, 2), (30, 3)]);
    }

    #[test]
    fn what_goes_on_comes_before_what_waits() {
        let mut machine = ThreadScheduler::new(1, Machines::Shared(1));
        machine.give(0, 0, 10.0, 1);
        machine.give(0, 0, 10.0, 2);
        assert_eq!(machine.next(), Some((0, 1)));
        machine.go_on(0, 5.0, 3);
        assert_eq!(ends(machine), [(15, 3), (25, 2)]);
    }

    #[test]
    fn threads_with_machines_of_their_own_do_not_wait_for_each_other() {
        let mut machine = ThreadScheduler::new(3, Machines::Apart);
        for thread in 0..3 {
            machine.give(thread, 1, 10.0, thread as u32);
        }
        assert_eq!(ends(machine), [(11, 0), (11, 1), (11, 2)]);
    }
}
