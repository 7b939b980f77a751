//! The loop of one thread, which has clients, nodes, or both.
//!
//! A turn: wait for an event → read replies, take queries, write them to nodes → take replies, read
//! requests, write replies to clients. A thread that has both clients and nodes passes its clients'
//! queries to its own connections without waking another thread: a request runs to completion on one
//! thread. With separate threads for nodes, packets to a node are made of the requests of all threads
//! with clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::arena::Arena;
use super::backend::Backend;
use super::frontend::Frontend;
use super::protocol::ClientProtocol;
use super::thread_waker::ThreadWaker;
use super::wire::Wire;
use crate::Stopper;
use crate::net::{Network, SocketEvent};

pub(crate) const LISTENER: usize = usize::MAX - 1;

/// Returns the token of a client's connection. Tokens of clients are even, those of nodes are odd.
pub(crate) fn client_token(place: usize) -> usize {
    2 * place
}

pub(crate) fn link_token(link: usize) -> usize {
    2 * link + 1
}

/// See the module documentation.
pub(crate) struct Thread<N: Network, F: ClientProtocol, W: Wire> {
    pub(crate) network: N,
    pub(crate) front: Option<Frontend<N, F>>,
    pub(crate) back: Option<Backend<N, W>>,
    pub(crate) waker: Arc<ThreadWaker>,
    pub(crate) started: Instant,
    pub(crate) stopping: Arc<Stopping>,
}

/// The state of a proxy that stops.
#[derive(Debug, Default)]
pub(crate) struct Stopping {
    /// Clients are to be answered and closed.
    pub(crate) begun: AtomicBool,
    /// Threads with clients that have not ended.
    pub(crate) fronts: std::sync::atomic::AtomicUsize,
    /// A thread has ended too early: it has panicked, or could not go on.
    pub(crate) lost: AtomicBool,
    /// How long the proxy waits for clients.
    pub(crate) drain: Duration,
}

/// Runs when a thread of the proxy ends, for any reason. A lost thread takes its clients and its part
/// of the nodes with it: the whole proxy stops then, instead of listening without accepting.
pub(crate) struct Watch {
    pub(crate) name: String,
    pub(crate) stopper: Stopper,
    /// The thread has clients.
    pub(crate) front: bool,
    /// The thread may end only when the proxy stops.
    pub(crate) stays: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let stopping = &self.stopper.stopping;
        if self.front {
            stopping.fronts.fetch_sub(1, Ordering::SeqCst);
        }
        let too_early = self.stays && !stopping.begun.load(Ordering::SeqCst);
        if too_early || std::thread::panicking() {
            stopping.lost.store(true, Ordering::SeqCst);
            let thread = &self.name;
            tracing::error!(thread, "a thread of the proxy is lost: the proxy stops");
            self.stopper.stop();
        }
    }
}

impl<N: Network, F: ClientProtocol, W: Wire> Thread<N, F, W> {
    /// Runs until the proxy has stopped.
    pub(crate) fn run(mut self) {
        let mut happened: Vec<SocketEvent> = Vec::new();
        let mut arena = Arena::default();
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

    fn note(&mut self, event: SocketEvent, arena: &mut Arena, now: Duration) {
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
        let mail = self.front.as_ref().is_some_and(Frontend::has_mail)
            || self.back.as_ref().is_some_and(Backend::has_mail);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(stays: bool, front: bool, work: impl FnOnce(&Stopping) + Send + 'static) -> Stopper {
        let stopping = Arc::new(Stopping {
            fronts: 2.into(),
            ..Stopping::default()
        });
        let wakers = Vec::new();
        let stopper = Stopper { stopping, wakers };
        let watch = Watch {
            name: "watched".to_owned(),
            stopper: stopper.clone(),
            front,
            stays,
        };
        let thread = std::thread::spawn(move || {
            let watch = watch;
            work(&watch.stopper.stopping);
        });
        let _ = thread.join();
        stopper
    }

    fn states(stopper: &Stopper) -> (bool, bool, usize) {
        let Stopping {
            begun,
            lost,
            fronts,
            ..
        } = &*stopper.stopping;
        let is = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
        (is(begun), is(lost), fronts.load(Ordering::SeqCst))
    }

    #[test]
    fn a_thread_that_is_lost_stops_the_proxy() {
        let panics = |_: &Stopping| panic!("by the test");
        assert_eq!(states(&watched(true, true, panics)), (true, true, 1));
        assert_eq!(states(&watched(false, false, panics)), (true, true, 2));
        // A thread that cannot go on returns.
        assert_eq!(states(&watched(true, true, |_| {})), (true, true, 1));
        // A thread that was asked to end, or may end, is not lost.
        let asked = |stopping: &Stopping| stopping.begun.store(true, Ordering::SeqCst);
        assert_eq!(states(&watched(true, true, asked)), (true, false, 1));
        assert_eq!(states(&watched(false, false, |_| {})), (false, false, 2));
    }
}
