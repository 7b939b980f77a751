//! A link that threads share, and the queue of their requests.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use fabric::tcp::Transport;
use parking_lot::Mutex;
use reactor::{SocketWaker, Wake};

use super::link_driver::LinkDriver;
use super::reader_inbox::ReaderInbox;
use crate::error::Error;
use crate::remote::session::Session;
use crate::table::{TableId, Version};

/// Bytes of the stack of a link's thread.
const STACK: usize = 512 << 10;

/// A link; it ends when the pool and all of its threads have dropped it.
#[derive(Debug)]
pub(super) struct SharedLink {
    pub(super) address: SocketAddr,
    pub(super) transport: Option<Transport>,
    pub(super) queue: Arc<LinkQueue>,
    driver: Option<JoinHandle<()>>,
}

/// Requests of a link's threads for the link's own thread.
#[derive(Debug)]
pub(super) struct LinkQueue {
    state: Mutex<QueueState>,
    waker: SocketWaker,
}

#[derive(Debug, Default)]
struct QueueState {
    commands: Vec<LinkCommand>,
    lost: Option<String>,
    ends: bool,
}

/// A request of one of the threads.
#[derive(Debug)]
pub(super) enum LinkCommand {
    Read(WantedPage),
    Open(Arc<ReaderInbox>, OpenKey),
    /// A thread has ended, and no longer uses these.
    Release(Vec<OpenKey>),
}

/// A page that a thread wants.
#[derive(Debug)]
pub(super) struct WantedPage {
    pub(super) reader: Arc<ReaderInbox>,
    pub(super) handle: u32,
    pub(super) unit: usize,
    pub(super) segment: u16,
    pub(super) page: u32,
    pub(super) token: u64,
}

/// What threads open, and share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum OpenKey {
    /// A version of a table, and the table's name.
    Table(TableId, Version, String),
    /// A file, as pages of so many bytes.
    File(String, usize),
}

impl SharedLink {
    /// Starts the thread of a link.
    pub(super) fn start(mut session: Session) -> Result<SharedLink, Error> {
        let queue = Arc::new(LinkQueue {
            state: Mutex::default(),
            waker: session.waker()?,
        });
        let (address, transport) = (session.address(), session.transport());
        let driver = LinkDriver::new(session, Arc::clone(&queue));
        let thread = Builder::new()
            .name("pages-link".to_owned())
            .stack_size(STACK);
        let thread = thread.spawn(move || driver.run());
        let thread = thread.map_err(|error| {
            Error::Lost(format!(
                "storage node {address}: no thread for a link can be started: {error}"
            ))
        })?;
        Ok(SharedLink {
            address,
            transport,
            queue,
            driver: Some(thread),
        })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.queue.state.lock().lost.is_some()
    }
}

impl Drop for SharedLink {
    fn drop(&mut self) {
        self.queue.state.lock().ends = true;
        Wake::wake(&self.queue.waker);
        if let Some(driver) = self.driver.take()
            && driver.join().is_err()
        {
            tracing::error!("a link's thread has panicked");
        }
    }
}

impl LinkQueue {
    /// Adds requests. The link's thread is woken for the first ones that it has not taken: it takes all
    /// of them together.
    pub(super) fn push(&self, commands: &mut Vec<LinkCommand>) -> Result<(), Error> {
        let mut state = self.state.lock();
        if let Some(why) = &state.lost {
            commands.clear();
            return Err(Error::Lost(why.clone()));
        }
        let was_empty = state.commands.is_empty();
        state.commands.append(commands);
        drop(state);
        if was_empty {
            Wake::wake(&self.waker);
        }
        Ok(())
    }

    /// Takes all requests. Returns `false` if the link is to end.
    pub(super) fn take(&self, into: &mut VecDeque<LinkCommand>) -> bool {
        let mut state = self.state.lock();
        into.extend(state.commands.drain(..));
        !state.ends
    }

    /// Accepts no request any more; returns those that were not taken.
    pub(super) fn lose(&self, why: &str) -> Vec<LinkCommand> {
        let mut state = self.state.lock();
        state.lost = Some(why.to_owned());
        std::mem::take(&mut state.commands)
    }
}
