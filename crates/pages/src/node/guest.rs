//! A reader on a link, and what it has under way.

use std::collections::VecDeque;
use std::sync::Arc;

use disk::reads::Registered;
use fabric::Link;
use fabric::window::Far;
use foldhash::HashMap;

use super::loading::LoadHandle;
use super::shelf::Opened;
use super::tasks::Control;
use crate::remote::wire::Wanted;

/// A reader.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) link: Link,
    /// Tells it from others who had its place.
    pub(super) visit: u64,
    pub(super) handles: HashMap<u32, Handle>,
    pub(super) next_handle: u32,
    pub(super) windows: HashMap<u16, Far>,
    /// Windows that the thread's way of reading was told of.
    pub(super) registered: Vec<Registered>,
    /// What was asked for and has not been begun.
    pub(super) queue: VecDeque<(u32, Wanted)>,
    /// How much of what was begun is not answered.
    pub(super) under_way: usize,
    pub(super) tasks: HashMap<u32, Arc<Control>>,
    pub(super) loads: HashMap<u32, LoadHandle>,
    /// A message that tells what is there: begun, and empty if nothing is.
    pub(super) there: Vec<u8>,
    /// Pages that were written through a device and are not known to have arrived.
    pub(super) written: Vec<u32>,
    /// What the link did not take yet.
    pub(super) overflow: VecDeque<Vec<u8>>,
    /// In the list of those to whom something is to be said.
    pub(super) is_touched: bool,
}

/// A table that a reader has opened.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub(super) opened: Arc<Opened>,
    /// Its files, for each extent.
    pub(super) files: super::desk::ByExtent,
}

impl Guest {
    pub(super) fn new(link: Link, visit: u64) -> Guest {
        Guest {
            link,
            visit,
            handles: HashMap::default(),
            next_handle: 0,
            windows: HashMap::default(),
            registered: Vec::new(),
            queue: VecDeque::new(),
            under_way: 0,
            tasks: HashMap::default(),
            loads: HashMap::default(),
            there: Vec::new(),
            written: Vec::new(),
            overflow: VecDeque::new(),
            is_touched: false,
        }
    }

    /// Pages that are asked for and not answered.
    pub(super) fn owed(&self) -> usize {
        self.queue.len() + self.under_way
    }

    /// Bytes of all windows.
    pub(super) fn window_bytes(&self) -> usize {
        self.windows.values().map(Far::len).sum()
    }
}
