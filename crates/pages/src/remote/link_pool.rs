//! Links to a storage node that many threads share (paper 4, sections 4.1 and 4.4.3: connections of a
//! node, and threads of a connection).
//!
//! | part | concept |
//! |---|---|
//! | `options` | how many threads share how many links |
//! | `memory_estimate` | whether the threads and links fit into memory |
//! | `reader_inbox` | what has come for one thread, which sleeps until then |
//! | `link_place` | a thread's place on a link |
//! | `link_queue` | the requests of a link's threads |
//! | `shared_link` | a link |
//! | `link_driver` | the thread of a link: sends the requests, hands out the replies |
//! | `shared_reader` | one thread's part of a link |
//!
//! The default of this crate is a [session](super::session) for each thread. With a pool, each link has
//! a thread of its own, which alone uses the link's session. The requests that threads make while it
//! works go out together. Pages lie in the link's window, or in memory of their own, as with a session,
//! and reach the thread that asked without a copy.
//!
//! Invariants:
//! 1. A thread has at most its [share](LinkPoolOptions::reader_depth) of the pages that may be under way
//!    on its link, so that no thread keeps the others waiting.
//! 2. Every request is answered, with the page or with an error, unless its thread has ended: when a
//!    link is lost, all of its threads get the error that a session has.
//! 3. A lost link is replaced when the next thread takes a place on it.

mod link_driver;
mod link_place;
mod link_queue;
mod memory_estimate;
mod options;
mod reader_inbox;
mod shared_link;
mod shared_reader;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

pub use options::LinkPoolOptions;
pub use shared_reader::SharedReader;

use super::session::Session;
use crate::error::Error;
use link_place::{LinkPlace, LinkPlaces};
use shared_link::SharedLink;

/// The most links of a pool: as many readers as a thread of a node serves.
const CONNECTIONS: usize = 1024;

/// Links to a node, which are made when threads need them. Clones share the links. See the
/// [module](self).
#[derive(Clone, Debug)]
pub struct LinkPool {
    state: Arc<LinkPoolState>,
}

#[derive(Debug)]
struct LinkPoolState {
    options: LinkPoolOptions,
    links: Arc<Mutex<Vec<LinkPlaces>>>,
    /// Held while a link is made: nodes let few connections wait unauthenticated.
    connecting: Mutex<Option<FailedAttempt>>,
    /// Attempts to make a link that are over.
    attempts: AtomicU64,
}

/// An attempt to make a link that has failed.
#[derive(Debug)]
struct FailedAttempt {
    attempt: u64,
    error: Error,
}

impl LinkPool {
    /// Returns a pool that has no links yet.
    ///
    /// # Errors
    /// Returns [`Error::Options`] if the numbers are beyond the limits, or if the threads and links need
    /// more memory than this machine has free.
    pub fn new(options: LinkPoolOptions) -> Result<LinkPool, Error> {
        let (connections, threads) = (options.connections, options.threads_per_connection);
        if !(1..=CONNECTIONS).contains(&connections) || threads == 0 {
            return Err(Error::Options(format!(
                "{connections} connections with {threads} threads each: there may be 1 to \
                 {CONNECTIONS} connections to a storage node, and at least one thread for each"
            )));
        }
        memory_estimate::check(&options)?;
        let links = (0..connections).map(|_| LinkPlaces::default()).collect();
        Ok(LinkPool {
            state: Arc::new(LinkPoolState {
                options,
                links: Arc::new(Mutex::new(links)),
                connecting: Mutex::new(None),
                attempts: AtomicU64::new(0),
            }),
        })
    }

    /// Returns how links are shared.
    #[must_use]
    pub fn options(&self) -> &LinkPoolOptions {
        &self.state.options
    }

    /// Gives the calling thread a place on the link that has the fewest threads; makes the link if there
    /// is none, or if it is lost.
    ///
    /// # Errors
    /// Returns [`Error::Busy`] if all places are taken, and the errors of [`Session::connect`].
    pub fn reader(&self) -> Result<SharedReader, Error> {
        let place = self.take_place()?;
        let link = self.link(place.link)?;
        let depth = self.options().reader_depth();
        Ok(SharedReader::new(link, place, depth))
    }

    fn take_place(&self) -> Result<LinkPlace, Error> {
        let mut links = self.state.links.lock();
        let fewest = links.iter_mut().enumerate();
        let (link, places) = fewest
            .min_by_key(|(_, places)| places.threads)
            .expect("a pool has links");
        let options = self.options();
        if places.threads >= options.threads_per_connection {
            return Err(Error::Busy(format!(
                "storage node {}: {} connections have {} threads each already, as many as they may",
                options.session.address, options.connections, options.threads_per_connection
            )));
        }
        places.threads += 1;
        Ok(LinkPlace {
            links: Arc::clone(&self.state.links),
            link,
        })
    }

    fn working_link(&self, number: usize) -> Option<Arc<SharedLink>> {
        let links = self.state.links.lock();
        let link = links[number].link.as_ref();
        link.filter(|link| !link.is_lost()).cloned()
    }

    /// Returns the link of a place.
    fn link(&self, number: usize) -> Result<Arc<SharedLink>, Error> {
        if let Some(link) = self.working_link(number) {
            return Ok(link);
        }
        let before = self.state.attempts.load(Ordering::Acquire);
        let mut failed = self.state.connecting.lock();
        // Other threads may have made it, or tried in vain, while this one waited.
        if let Some(link) = self.working_link(number) {
            return Ok(link);
        }
        if let Some(failed) = failed.as_ref().filter(|failed| failed.attempt > before) {
            return Err(failed.error.copied());
        }
        let made = Session::connect(self.options().session.clone()).and_then(SharedLink::start);
        let attempt = self.state.attempts.fetch_add(1, Ordering::AcqRel) + 1;
        match made {
            Ok(link) => {
                let link = Arc::new(link);
                // A lost link ends outside of the lock.
                let lost = self.state.links.lock()[number]
                    .link
                    .replace(Arc::clone(&link));
                drop(lost);
                Ok(link)
            }
            Err(error) => {
                let copied = error.copied();
                *failed = Some(FailedAttempt { attempt, error });
                Err(copied)
            }
        }
    }
}
