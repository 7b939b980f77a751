//! The memory in which pages arrive: windows of this side's memory, or memory of their own.

use std::sync::Arc;

use bytes::Bytes;
use disk::reads::BufferPool;
use fabric::tcp::Transport;
use fabric::window::Window;

use super::{Session, SessionError};
use crate::remote::window::{Slot, Slots};
use crate::remote::wire::Say;

/// How pages of a size come.
pub(super) enum Pages {
    /// Into the window of this number.
    Window(u16, Arc<Slots>),
    /// In messages; they are copied to this memory.
    Messages(BufferPool),
}

/// Returns how many pages of a size fit into so many bytes; at least one.
fn slots(bytes: usize, unit: usize) -> u32 {
    u32::try_from(bytes / unit).unwrap_or(u32::MAX).max(1)
}

/// A page that has arrived.
#[derive(Debug)]
pub enum Landed {
    /// In a window.
    Slot(Slot),
    /// In memory of its own.
    Own(Bytes),
}

impl AsRef<[u8]> for Landed {
    fn as_ref(&self) -> &[u8] {
        match self {
            Landed::Slot(slot) => slot.as_ref(),
            Landed::Own(bytes) => bytes,
        }
    }
}

impl From<Landed> for Bytes {
    fn from(landed: Landed) -> Bytes {
        match landed {
            Landed::Slot(slot) => Bytes::from_owner(slot),
            Landed::Own(bytes) => bytes,
        }
    }
}

impl Session {
    /// Makes a window for pages of this size, if there is none and the transport supports windows.
    pub(super) fn prepare(&mut self, unit: usize) -> Result<(), SessionError> {
        if self.windows.contains_key(&unit) {
            return Ok(());
        }
        let pages = match self.window(unit)? {
            Some((number, slots)) => Pages::Window(number, slots),
            None => {
                let pool = BufferPool::new(slots(self.options.window_bytes, unit), unit);
                Pages::Messages(pool.map_err(|error| SessionError::Lost(error.to_string()))?)
            }
        };
        self.windows.insert(unit, pages);
        Ok(())
    }

    fn window(&mut self, unit: usize) -> Result<Option<(u16, Arc<Slots>)>, SessionError> {
        let bytes = slots(self.options.window_bytes, unit) as usize * unit;
        let made = match self.fabric.transport_of(self.link) {
            Some(Transport::Shm) => Window::shm(&self.options.shm, bytes),
            Some(Transport::Verbs) => match &self.options.verbs {
                Some(domain) => Window::verbs(domain, bytes),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let mut window = match made {
            Ok(window) => window,
            Err(error) => {
                tracing::warn!(%error, "no window for pages can be made; they come in messages");
                return Ok(None);
            }
        };
        let number = self.next_window;
        self.next_window += 1;
        let mut grant = Vec::new();
        window.grant().encode(&mut grant);
        self.say(&Say::Window {
            window: number,
            grant: &grant,
        })?;
        let answer = self.until("the answer to a window", None, |session| {
            session.window_answers.remove(&number)
        })?;
        let met = answer.and_then(|answer| {
            let met = window.meet(&answer);
            met.map_err(|error| error.to_string())
        });
        match met {
            Ok(()) => Ok(Some((number, Slots::new(window, unit)))),
            Err(why) => {
                tracing::warn!(why, "the node reaches no window; pages come in messages");
                Ok(None)
            }
        }
    }
}
