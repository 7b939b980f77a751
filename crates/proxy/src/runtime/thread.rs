//! The loop of one thread, which has clients, nodes, or both.
//!
//! A turn: wait for an event → read replies, take queries, write them to nodes → take replies, read
//! requests, write replies to clients. A thread that has both clients and nodes passes its clients'
//! queries to its own connections without waking another thread: a request runs to completion on one
//! thread. With separate threads for nodes, packets to a node are made of the requests of all threads
//! with clients.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::arena::ReadArena;
use super::backend::Backend;
use super::frontend::Frontend;
use super::protocol::ClientProtocol;
use super::thread_waker::ThreadWaker;
use super::token::LISTENER;
use super::wire::Wire;
use crate::stopper::Stopping;
use reactor::{Network, SocketEvent};

/// See the module documentation.
pub(crate) struct Thread<N: Network, F: ClientProtocol, W: Wire> {
    pub(crate) network: N,
    pub(crate) front: Option<Frontend<N, F>>,
    pub(crate) back: Option<Backend<N, W>>,
    pub(crate) waker: Arc<ThreadWaker>,
    pub(crate) started: Instant,
    pub(crate) stopping: Arc<Stopping>,
}

impl<N: Network, F: ClientProtocol, W: Wire> Thread<N, F, W> {
    /// Runs until the proxy has stopped.
    pub(crate) fn run(mut self) {
        let mut happened: Vec<SocketEvent> = Vec::new();
        let mut arena = ReadArena::default();
        let mut more = false;
        let mut stop_by = None;
        loop {
            let timeout = self.before_waiting(more, stop_by.is_some());
            if let Err(error) = self.network.wait(&mut happened, timeout) {
                tracing::error!(%error, "cannot wait for events");
                break;
            }
            self.waker.is_awake();
            let now = self.started.elapsed();
            for event in happened.drain(..) {
                self.note(event, &mut arena, now);
            }
            more = false;
            if let Some(back) = &mut self.back {
                more |= back.turn(&mut self.network, &mut arena, now);
            }
            if let Some(front) = &mut self.front {
                more |= front.turn(&mut self.network, &mut arena, now);
            }
            if self.stopping.begun.load(Ordering::Relaxed) {
                let by = *stop_by.get_or_insert(now + self.stopping.drain);
                if self.is_over(now >= by, now) {
                    break;
                }
            }
        }
        let now = self.started.elapsed();
        if let Some(front) = &mut self.front {
            front.stop(&mut self.network, now);
        }
        if let Some(back) = &mut self.back {
            back.stop(&mut self.network, &mut arena, now);
        }
    }

    fn note(&mut self, event: SocketEvent, arena: &mut ReadArena, now: Duration) {
        match (&mut self.front, &mut self.back) {
            (Some(front), _) if event.token == LISTENER => front.note_listener(),
            (Some(front), _) if event.token.is_multiple_of(2) => {
                front.note(event.token / 2, event, now);
            }
            (_, Some(back)) => {
                back.note(event.token / 2, event, &mut self.network, arena, now);
            }
            _ => {}
        }
    }

    /// Returns how long to wait for events. Marks the thread as asleep if it will sleep.
    fn before_waiting(&mut self, more: bool, stopping: bool) -> Option<Duration> {
        if more {
            return Some(Duration::ZERO);
        }
        self.waker.falls_asleep();
        let mail = self.front.as_ref().is_some_and(Frontend::has_work)
            || self.back.as_ref().is_some_and(Backend::has_work);
        // The thread that stops the proxy wakes this one after it has set `begun`; if this thread was
        // not asleep yet, it sees `begun` here.
        let begins_to_stop = !stopping && self.stopping.begun.load(Ordering::SeqCst);
        if mail || begins_to_stop {
            self.waker.is_awake();
            return Some(Duration::ZERO);
        }
        let now = self.started.elapsed();
        let front = self.front.as_ref().and_then(|front| front.timeout(now));
        let back = self.back.as_ref().map(Backend::timeout);
        let stop = stopping.then_some(Duration::from_millis(20));
        [front, back, stop].into_iter().flatten().min()
    }

    /// Returns `true` if a stopping thread has nothing left to do, or no time for it.
    fn is_over(&mut self, late: bool, now: Duration) -> bool {
        match &mut self.front {
            Some(front) => {
                front.begin_stop(now);
                late || (front.is_empty() && self.network.is_settled())
            }
            // Connections to nodes are needed as long as any thread has clients.
            None => self.stopping.fronts.load(Ordering::SeqCst) == 0,
        }
    }
}
