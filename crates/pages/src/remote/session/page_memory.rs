//! The memory in which pages arrive: windows of this side's memory, or memory of their own.

use std::sync::Arc;

use bytes::Bytes;
use disk::reads::BufferPool;

use crate::error::Error;
use crate::remote::window::{Slot, Slots};

/// How pages of a size come.
pub(super) enum PageMemory {
    /// Into the window of this number.
    Window(u16, Arc<Slots>),
    /// In messages; they are copied to this memory.
    Messages(BufferPool),
}

/// A page that has arrived.
#[derive(Debug)]
pub enum ReceivedPage {
    /// In a window.
    Slot(Slot),
    /// In memory of its own.
    Own(Bytes),
}

impl AsRef<[u8]> for ReceivedPage {
    fn as_ref(&self) -> &[u8] {
        match self {
            ReceivedPage::Slot(slot) => slot.as_ref(),
            ReceivedPage::Own(bytes) => bytes,
        }
    }
}

impl From<ReceivedPage> for Bytes {
    fn from(page: ReceivedPage) -> Bytes {
        match page {
            ReceivedPage::Slot(slot) => Bytes::from_owner(slot),
            ReceivedPage::Own(bytes) => bytes,
        }
    }
}

/// A page that has come, or failed to come.
#[derive(Debug)]
pub struct PageReply {
    /// The token of its request.
    pub token: u64,
    /// The page, or the reason for its absence.
    pub page: Result<ReceivedPage, Error>,
}
