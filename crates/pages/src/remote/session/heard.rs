//! Messages of a node.

use fabric::Event;

use super::{Arrived, KEPT_FREE, Landed, Pages, Session, SessionError, TaskEvent};
use crate::own::copied;
use crate::remote::window::Slot;
use crate::remote::wire::{Kind, Reply};

impl Session {
    pub(super) fn hear(&mut self, event: Event<'_>) {
        match event {
            Event::Up(_) => self.up = true,
            Event::Message(message) => match Reply::decode(message) {
                Ok(reply) => self.take(&reply),
                Err(error) => self.lose(&format!("it says what makes no sense: {error}")),
            },
            Event::Drained => {}
            Event::Down(why) => self.lose(why),
        }
    }

    fn take(&mut self, reply: &Reply<'_>) {
        match *reply {
            Reply::Window { window, answer } => {
                let answer = answer.map(<[u8]>::to_vec).map_err(str::to_owned);
                self.window_answers.insert(window, answer);
            }
            Reply::Told { request, answer } => {
                self.answers.answer(request, Ok(answer.to_vec()));
            }
            Reply::Failed {
                request,
                kind,
                text,
            } => self.fail(request, kind, text),
            Reply::There { tags } => {
                for tag in tags {
                    self.page_is_there(u32::from_le_bytes(*tag));
                }
            }
            Reply::Page { tag, bytes } => self.page_has_come(tag, bytes),
            Reply::Unread { tag, text } => {
                let Some(pending) = self.pending.try_remove(tag as usize) else {
                    return self.lose("it tells of a page that was not asked for");
                };
                if let Some(slot) = pending.slot {
                    drop(slot.settled());
                }
                let page = Err(text.to_owned());
                let token = pending.token;
                self.arrived.push_back(Arrived { token, page });
            }
            Reply::Batch { request, bytes } => {
                // Batches of a task that was cancelled are not copied.
                if self.answers.heard(request).is_some() {
                    let batch = TaskEvent::Batch(copied(bytes));
                    self.answers.tell(request, batch);
                }
            }
            Reply::Finished { request } => self.answers.tell(request, TaskEvent::Finished),
            Reply::Working { requests } => {
                for request in requests {
                    self.answers.is_at(u32::from_le_bytes(*request));
                }
            }
        }
    }

    fn fail(&mut self, request: u32, kind: Kind, text: &str) {
        let text = format!("storage node {}: {text}", self.options.address);
        let error = match kind {
            Kind::Refused => SessionError::Refused(text),
            Kind::Page => SessionError::Page(text),
            Kind::Value => SessionError::Value(text),
            Kind::Busy => SessionError::Busy(text),
            Kind::Untaken => SessionError::Untaken(text),
            Kind::Doubtful => SessionError::Doubtful(text),
        };
        if request == u32::MAX {
            // The failure concerns the link itself, which ends.
            return self.lose(&error.to_string());
        }
        self.answers.fail(request, error);
    }

    /// Accepts a page that lies in its slot.
    #[inline]
    fn page_is_there(&mut self, tag: u32) {
        let Some(pending) = self.pending.try_remove(tag as usize) else {
            return self.lose("it tells of a page that was not asked for");
        };
        let Some(slot) = pending.slot else {
            return self.lose("a page was put where no place was given");
        };
        let slot = slot.settled();
        let page = match self.is_scarce(pending.unit) {
            true => Landed::Own(copied(Slot::as_ref(&slot))),
            false => Landed::Slot(slot),
        };
        let (token, page) = (pending.token, Ok(page));
        self.arrived.push_back(Arrived { token, page });
    }

    /// Returns `true` if so few slots are free that pages must be copied out.
    fn is_scarce(&self, unit: usize) -> bool {
        match self.windows.get(&unit) {
            Some(Pages::Window(_, slots)) => {
                let taken = (slots.count() - slots.free()).saturating_sub(self.pending.len());
                taken * 100 > slots.count() * (100 - KEPT_FREE)
            }
            _ => false,
        }
    }

    /// Accepts a page that has come in a message.
    fn page_has_come(&mut self, tag: u32, bytes: &[u8]) {
        let Some(pending) = self.pending.try_remove(tag as usize) else {
            return self.lose("it sends a page that was not asked for");
        };
        if let Some(slot) = pending.slot {
            drop(slot.settled());
        }
        if bytes.len() != pending.unit {
            return self.lose("it sends a page of another size");
        }
        let buffer = match self.windows.get(&pending.unit) {
            Some(Pages::Messages(pool)) => pool.take(),
            _ => None,
        };
        let page = match buffer {
            Some(mut buffer) => {
                buffer.as_mut()[..bytes.len()].copy_from_slice(bytes);
                buffer.into_bytes(bytes.len())
            }
            // The caller keeps many of them.
            None => copied(bytes),
        };
        let (token, page) = (pending.token, Ok(Landed::Own(page)));
        self.arrived.push_back(Arrived { token, page });
    }
}
