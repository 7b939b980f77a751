//! Windows of this side's memory, in which the node puts pages.

use std::sync::Arc;

use disk::reads::BufferPool;
use fabric::tcp::Transport;
use fabric::window::Window;

use super::Session;
use super::page_memory::PageMemory;
use crate::error::Error;
use crate::protocol::NodeRequest;
use crate::remote::window::Slots;

/// Returns how many pages of a size fit into so many bytes; at least one.
fn slots(bytes: usize, unit: usize) -> u32 {
    u32::try_from(bytes / unit).unwrap_or(u32::MAX).max(1)
}

impl Session {
    /// Makes a window for pages of this size, if there is none and the transport supports windows.
    pub(super) fn prepare(&mut self, unit: usize) -> Result<(), Error> {
        if self.windows.contains_key(&unit) {
            return Ok(());
        }
        let pages = match self.window(unit)? {
            Some((number, slots)) => PageMemory::Window(number, slots),
            None => {
                let pool = BufferPool::new(slots(self.options.window_bytes, unit), unit);
                PageMemory::Messages(pool.map_err(|error| Error::Lost(error.to_string()))?)
            }
        };
        self.windows.insert(unit, pages);
        Ok(())
    }

    fn window(&mut self, unit: usize) -> Result<Option<(u16, Arc<Slots>)>, Error> {
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
        self.send_request(&NodeRequest::Window {
            window: number,
            grant: &grant,
        })?;
        let answer = self.wait_for("the answer to a window", None, |session| {
            session.window_answers.remove(&number)
        })?;
        let met = answer.and_then(|answer| window.meet(&answer).map_err(Error::refused));
        match met {
            Ok(()) => Ok(Some((number, Slots::new(window, unit)))),
            Err(error) => {
                tracing::warn!(%error, "the node reaches no window; pages come in messages");
                Ok(None)
            }
        }
    }
}
