//! Messages of a node.

use fabric::Event;

use super::page_memory::{PageMemory, PageReply, ReceivedPage};
use super::request_table::TaskEvent;
use super::{KEPT_FREE, Session};
use crate::error::Error;
use crate::owned_bytes::to_owned_bytes;
use crate::protocol::{NodeFailureKind, NodeReply};
use crate::remote::window::Slot;

impl Session {
    pub(super) fn on_event(&mut self, event: Event<'_>) {
        match event {
            Event::Up(_) => self.up = true,
            Event::Message(message) => match NodeReply::decode(message) {
                Ok(reply) => self.take(&reply),
                Err(error) => self.lose(&format!("it sent a malformed message: {error}")),
            },
            Event::Drained => {}
            Event::Down(why) => self.lose(why),
        }
    }

    fn take(&mut self, reply: &NodeReply<'_>) {
        match *reply {
            NodeReply::Window { window, answer } => {
                let answer = answer.map(<[u8]>::to_vec).map_err(Error::refused);
                self.window_answers.insert(window, answer);
            }
            NodeReply::Answer { request, answer } => {
                self.requests.answer(request, Ok(answer.to_vec()));
            }
            NodeReply::Failed {
                request,
                kind,
                text,
            } => self.fail(request, kind, text),
            NodeReply::Written { tags } => {
                for tag in tags {
                    self.page_written(u32::from_le_bytes(*tag));
                }
            }
            NodeReply::Page { tag, bytes } => self.page_has_come(tag, bytes),
            NodeReply::PageFailed { tag, text } => {
                let Some(pending) = self.pending.try_remove(tag as usize) else {
                    return self.lose("it reports a page that was not requested");
                };
                if let Some(slot) = pending.slot {
                    drop(slot.settled());
                }
                let page = Err(Error::Page(self.named(text)));
                let token = pending.token;
                self.arrived.push_back(PageReply { token, page });
            }
            NodeReply::Batch { request, bytes } => {
                // Batches of a task that was cancelled are not copied.
                if self.requests.last_heard(request).is_some() {
                    let batch = TaskEvent::Batch(to_owned_bytes(bytes));
                    self.requests.push_event(request, batch);
                }
            }
            NodeReply::Finished { request } => {
                self.requests.push_event(request, TaskEvent::Finished)
            }
            NodeReply::Working { requests } => {
                for request in requests {
                    self.requests.note_progress(u32::from_le_bytes(*request));
                }
            }
        }
    }

    /// Returns the text of an error that names the node.
    fn named(&self, text: &str) -> String {
        format!("storage node {}: {text}", self.options.address)
    }

    fn fail(&mut self, request: u32, kind: NodeFailureKind, text: &str) {
        let text = self.named(text);
        let error = kind.error(text);
        if request == u32::MAX {
            // The failure concerns the link itself, which ends.
            return self.lose(&error.to_string());
        }
        self.requests.fail(request, error);
    }

    /// Accepts a page that lies in its slot.
    #[inline]
    fn page_written(&mut self, tag: u32) {
        let Some(pending) = self.pending.try_remove(tag as usize) else {
            return self.lose("it reports a page that was not requested");
        };
        let Some(slot) = pending.slot else {
            return self.lose("it put a page where no place was given");
        };
        let slot = slot.settled();
        let page = match self.is_scarce(pending.unit) {
            true => ReceivedPage::Own(to_owned_bytes(Slot::as_ref(&slot))),
            false => ReceivedPage::Slot(slot),
        };
        let (token, page) = (pending.token, Ok(page));
        self.arrived.push_back(PageReply { token, page });
    }

    /// Returns `true` if so few slots are free that pages must be copied out.
    fn is_scarce(&self, unit: usize) -> bool {
        match self.windows.get(&unit) {
            Some(PageMemory::Window(_, slots)) => {
                let taken = (slots.count() - slots.free()).saturating_sub(self.pending.len());
                taken * 100 > slots.count() * (100 - KEPT_FREE)
            }
            _ => false,
        }
    }

    /// Accepts a page that has come in a message.
    fn page_has_come(&mut self, tag: u32, bytes: &[u8]) {
        let Some(pending) = self.pending.try_remove(tag as usize) else {
            return self.lose("it sent a page that was not requested");
        };
        if let Some(slot) = pending.slot {
            drop(slot.settled());
        }
        if bytes.len() != pending.unit {
            return self.lose("it sent a page of another size");
        }
        let buffer = match self.windows.get(&pending.unit) {
            Some(PageMemory::Messages(pool)) => pool.take(),
            _ => None,
        };
        let page = match buffer {
            Some(mut buffer) => {
                buffer.as_mut()[..bytes.len()].copy_from_slice(bytes);
                buffer.into_bytes(bytes.len())
            }
            // The caller keeps many of them.
            None => to_owned_bytes(bytes),
        };
        let (token, page) = (pending.token, Ok(ReceivedPage::Own(page)));
        self.arrived.push_back(PageReply { token, page });
    }
}
