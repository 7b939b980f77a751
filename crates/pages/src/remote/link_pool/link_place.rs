//! A thread's place on a link.

use std::sync::Arc;

use parking_lot::Mutex;

use super::shared_link::SharedLink;

/// A link, if it was made, and the number of its threads.
#[derive(Debug, Default)]
pub(super) struct LinkPlaces {
    pub(super) link: Option<Arc<SharedLink>>,
    pub(super) threads: usize,
}

/// A thread's place on a link; given back when it is dropped.
#[derive(Debug)]
pub(super) struct LinkPlace {
    pub(super) links: Arc<Mutex<Vec<LinkPlaces>>>,
    pub(super) link: usize,
}

impl Drop for LinkPlace {
    fn drop(&mut self) {
        self.links.lock()[self.link].threads -= 1;
    }
}
