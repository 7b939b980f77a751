//! The thread of a link that others share: it alone uses the link's session.
//!
//! The steps of a turn: all requests that threads have made → one message to the node → sleep until
//! replies or more requests come → tables and pages go to the threads that asked.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use slab::Slab;

use super::link_queue::{LinkCommand, LinkQueue, OpenKey, WantedPage};
use super::reader_inbox::ReaderInbox;
use crate::error::Error;
use crate::protocol::NodeQuery;
use crate::remote::session::{PageReply, Session, TableHandle};

/// How long a turn sleeps without an event.
const TURN: Duration = Duration::from_secs(1);
/// The most tables and files that are kept open after their last user has ended.
const KEPT: usize = 64;

/// See the [module](self).
pub(super) struct LinkDriver {
    session: Session,
    queue: Arc<LinkQueue>,
    commands: VecDeque<LinkCommand>,
    /// Pages that were not requested yet, as the session had no room.
    waiting: VecDeque<WantedPage>,
    under_way: Slab<RequestedPage>,
    open: HashMap<OpenKey, SharedHandle>,
    /// The number of these that the node was asked for and has not answered.
    opening: usize,
    /// When a page last came, or was requested while none was under way.
    last_progress: Instant,
    lost: Option<String>,
}

/// A page that the node was asked for.
struct RequestedPage {
    reader: Arc<ReaderInbox>,
    token: u64,
}

/// A table or file that the link's threads share.
enum SharedHandle {
    /// The node was asked for it.
    Requested {
        request: u32,
        readers: Vec<Arc<ReaderInbox>>,
    },
    Open {
        handle: TableHandle,
        users: usize,
    },
}

impl LinkDriver {
    pub(super) fn new(session: Session, queue: Arc<LinkQueue>) -> LinkDriver {
        LinkDriver {
            session,
            queue,
            commands: VecDeque::new(),
            waiting: VecDeque::new(),
            under_way: Slab::new(),
            open: HashMap::default(),
            opening: 0,
            last_progress: Instant::now(),
            lost: None,
        }
    }

    /// Takes turns until the link is lost, or no thread and no pool has it any more.
    pub(super) fn run(mut self) {
        self.lost = self.take_turns().err().map(|error| error.to_string());
    }

    fn take_turns(&mut self) -> Result<(), Error> {
        while self.queue.take(&mut self.commands) {
            while let Some(command) = self.commands.pop_front() {
                self.execute(command)?;
            }
            self.request_pages();
            self.session.turn(TURN)?;
            if self.opening > 0 {
                self.finish_opening();
            }
            self.deliver();
            self.check_patience()?;
        }
        Ok(())
    }

    fn execute(&mut self, command: LinkCommand) -> Result<(), Error> {
        match command {
            LinkCommand::Read(wanted) => self.waiting.push_back(wanted),
            LinkCommand::Open(reader, key) => match self.open.get_mut(&key) {
                Some(SharedHandle::Requested { readers, .. }) => readers.push(reader),
                Some(SharedHandle::Open { handle, users }) => {
                    *users += 1;
                    reader.opened(Ok(handle.clone()));
                }
                None => {
                    let request = self.session.begin_query(match &key {
                        OpenKey::Table(_, version, name) => NodeQuery::Open(version.0, name),
                        OpenKey::File(name, unit) => NodeQuery::File(*unit as u32, name),
                    });
                    let readers = vec![reader];
                    let request = request.inspect_err(|error| {
                        readers[0].lose(&error.to_string());
                    })?;
                    let requested = SharedHandle::Requested { request, readers };
                    self.open.insert(key, requested);
                    self.opening += 1;
                }
            },
            LinkCommand::Release(keys) => {
                for key in keys {
                    if let Some(SharedHandle::Open { users, .. }) = self.open.get_mut(&key) {
                        *users -= 1;
                    }
                }
                self.close_unused()?;
            }
        }
        Ok(())
    }

    /// Closes what no thread uses, if much is open.
    fn close_unused(&mut self) -> Result<(), Error> {
        if self.open.len() <= KEPT {
            return Ok(());
        }
        let is_unused = |_: &OpenKey, shared: &mut SharedHandle| {
            matches!(shared, SharedHandle::Open { users: 0, .. })
        };
        let unused: Vec<_> = self.open.extract_if(is_unused).collect();
        for (_, shared) in unused {
            if let SharedHandle::Open { handle, .. } = shared {
                self.session.close(&handle)?;
            }
        }
        Ok(())
    }

    /// Requests the pages that threads wait for, in the order in which they asked, as far as there is
    /// room.
    fn request_pages(&mut self) {
        while let Some(wanted) = self.waiting.front() {
            let is_wanted = !wanted.reader.has_ended();
            if is_wanted && self.session.room_for(wanted.unit) == 0 {
                break;
            }
            let wanted = self.waiting.pop_front().expect("it is the first");
            if !is_wanted {
                continue;
            }
            if self.under_way.is_empty() {
                self.last_progress = Instant::now();
            }
            let requested = self.under_way.insert(RequestedPage {
                reader: wanted.reader,
                token: wanted.token,
            });
            let place = (wanted.handle, wanted.unit);
            self.session
                .request_page(place, wanted.segment, wanted.page, requested as u64);
        }
    }

    /// Hands out the pages that have come.
    fn deliver(&mut self) {
        while let Some(PageReply { token, page }) = self.session.next_page() {
            self.last_progress = Instant::now();
            let RequestedPage { reader, token } = self.under_way.remove(token as usize);
            if !reader.has_ended() {
                reader.deliver(PageReply { token, page });
            }
        }
    }

    /// Hands out the tables and files that were opened.
    fn finish_opening(&mut self) {
        let requested = self.open.iter().filter_map(|(key, shared)| match shared {
            SharedHandle::Requested { request, .. } => Some((*request, key)),
            SharedHandle::Open { .. } => None,
        });
        let mut answered = Vec::new();
        for (request, key) in requested {
            if let Some(answer) = self.session.take_answer(request) {
                answered.push((key.clone(), answer));
            }
        }
        for (key, answer) in answered {
            let opened = answer.and_then(|answer| match &key {
                OpenKey::Table(..) => self.session.opened_table(&answer),
                OpenKey::File(_, unit) => self.session.opened_file(*unit, &answer),
            });
            let Some(SharedHandle::Requested { readers, .. }) = self.open.remove(&key) else {
                continue;
            };
            self.opening -= 1;
            match opened {
                Ok(handle) => {
                    let users = readers.len();
                    for reader in readers {
                        reader.opened(Ok(handle.clone()));
                    }
                    let shared = SharedHandle::Open { handle, users };
                    self.open.insert(key, shared);
                }
                Err(error) => {
                    for reader in readers {
                        reader.opened(Err(error.copied()));
                    }
                }
            }
        }
    }

    /// Returns an error if the node was silent for too long about what it was asked for.
    fn check_patience(&self) -> Result<(), Error> {
        let patience = self.session.patience();
        let address = self.session.address();
        if !self.under_way.is_empty() && self.last_progress.elapsed() > patience {
            return Err(Error::Lost(format!(
                "storage node {address}: no page has come in {patience:?}"
            )));
        }
        if self.opening == 0 {
            return Ok(());
        }
        for shared in self.open.values() {
            let SharedHandle::Requested { request, .. } = shared else {
                continue;
            };
            let last_heard = self.session.last_heard(*request);
            if last_heard.is_some_and(|last_heard| last_heard.elapsed() > patience) {
                return Err(Error::Lost(format!(
                    "storage node {address}: an answer has not come in {patience:?}"
                )));
            }
        }
        Ok(())
    }
}

impl Drop for LinkDriver {
    /// Fails everything that threads wait for, also if this thread has panicked.
    fn drop(&mut self) {
        let ended = || {
            format!(
                "storage node {}: the link has ended",
                self.session.address()
            )
        };
        let why = self.lost.take().unwrap_or_else(ended);
        let rest = self.queue.lose(&why);
        for command in self.commands.drain(..).chain(rest) {
            match command {
                LinkCommand::Read(wanted) => wanted.reader.lose(&why),
                LinkCommand::Open(reader, _) => reader.lose(&why),
                LinkCommand::Release(_) => {}
            }
        }
        for wanted in self.waiting.drain(..) {
            wanted.reader.lose(&why);
        }
        for requested in self.under_way.drain() {
            requested.reader.lose(&why);
        }
        for (_, shared) in self.open.drain() {
            if let SharedHandle::Requested { readers, .. } = shared {
                readers.iter().for_each(|reader| reader.lose(&why));
            }
        }
    }
}
