//! A reader on a link, and what it has under way.

use std::collections::VecDeque;
use std::sync::Arc;

use disk::reads::RegistrationId;
use fabric::Link;
use fabric::window::RemoteWindow;
use foldhash::{HashMap, HashSet};

use super::load_thread::LoadHandle;
use super::open_files::ExtentFiles;
use super::storage::OpenTable;
use super::task_control::TaskControl;
use crate::protocol::PageRequest;

/// A reader.
#[derive(Debug)]
pub(super) struct ReaderConnection {
    pub(super) link: Link,
    /// A number that distinguishes it from other readers in the same place.
    pub(super) generation: u64,
    pub(super) handles: HashMap<u32, Handle>,
    pub(super) next_handle: u32,
    pub(super) windows: HashMap<u16, RemoteWindow>,
    /// Windows that are registered with the thread's way of reading.
    pub(super) registered: Vec<RegistrationId>,
    /// Requested pages that have not been begun.
    pub(super) queue: VecDeque<(u32, PageRequest)>,
    /// The number of pages that were begun and not answered.
    pub(super) under_way: usize,
    pub(super) tasks: HashMap<u32, RunningTask>,
    pub(super) loads: HashMap<u32, LoadHandle>,
    /// Loads that the blocking worker has yet to begin.
    pub(super) beginning: HashSet<u32>,
    /// Queries, and steps of loads, that are not answered.
    pub(super) requests: HashSet<u32>,
    /// A message that lists the pages that are there: begun, and empty if there are none.
    pub(super) there: Vec<u8>,
    /// Pages that were written through a device and are not known to have arrived.
    pub(super) written: Vec<u32>,
    /// Messages that the link has not taken yet.
    pub(super) overflow: Overflow,
    /// Why its link is to be closed at the end of the turn.
    pub(super) close_reason: Option<String>,
    /// `true` if it is in the list of readers that have replies to be sent.
    pub(super) is_marked: bool,
}

/// A task that a reader has begun.
#[derive(Debug)]
pub(super) struct RunningTask {
    pub(super) control: Arc<TaskControl>,
    /// `true` if the reader was told that the task has failed although it still runs.
    pub(super) failed: bool,
}

/// Messages that a link has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Overflow {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, message: Vec<u8>) {
        self.bytes += message.len() + size_of::<Vec<u8>>();
        self.messages.push_back(message);
    }

    /// Returns the message that is to be sent next.
    pub(super) fn first(&self) -> Option<&[u8]> {
        self.messages.front().map(Vec::as_slice)
    }

    /// Removes the first message after it was sent.
    pub(super) fn pop(&mut self) {
        if let Some(message) = self.messages.pop_front() {
            self.bytes -= message.len() + size_of::<Vec<u8>>();
        }
    }
}

/// A table that a reader has opened.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub(super) opened: Arc<OpenTable>,
    /// Its files, for each extent.
    pub(super) files: ExtentFiles,
}

impl ReaderConnection {
    pub(super) fn new(link: Link, generation: u64) -> ReaderConnection {
        ReaderConnection {
            link,
            generation,
            handles: HashMap::default(),
            next_handle: 0,
            windows: HashMap::default(),
            registered: Vec::new(),
            queue: VecDeque::new(),
            under_way: 0,
            tasks: HashMap::default(),
            loads: HashMap::default(),
            beginning: HashSet::default(),
            requests: HashSet::default(),
            there: Vec::new(),
            written: Vec::new(),
            overflow: Overflow::default(),
            close_reason: None,
            is_marked: false,
        }
    }

    /// Returns the number of pages that were requested and not answered.
    pub(super) fn requested(&self) -> usize {
        self.queue.len() + self.under_way
    }

    /// Returns `true` if it waits for a task or an answer.
    pub(super) fn waits(&self) -> bool {
        !self.tasks.is_empty() || !self.requests.is_empty()
    }

    /// Removes a task that is over. Returns `true` if the reader is to be told of that.
    pub(super) fn end_task(&mut self, request: u32) -> bool {
        self.tasks.remove(&request).is_some_and(|task| !task.failed)
    }

    /// Returns the number of bytes of all windows.
    pub(super) fn window_bytes(&self) -> usize {
        self.windows.values().map(RemoteWindow::len).sum()
    }
}
