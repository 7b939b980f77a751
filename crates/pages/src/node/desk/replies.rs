//! What is said to readers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fabric::{Messages, SendError};

use super::Desk;
use crate::node::Figures;
use crate::node::tasks::News;
use crate::remote::wire::{Kind, Reply};

impl Desk {
    /// Says something to a guest.
    pub(super) fn say(&mut self, guest: usize, reply: &Reply<'_>) {
        let mut message = std::mem::take(&mut self.message);
        message.clear();
        reply.encode(&mut message);
        self.send(guest, &[&message]);
        self.message = message;
    }

    pub(super) fn fail(&mut self, guest: usize, request: u32, kind: Kind, text: &str) {
        let failed = Reply::Failed {
            request,
            kind,
            text,
        };
        self.say(guest, &failed);
    }

    pub(super) fn unread(&mut self, guest: usize, tag: u32, text: &str) {
        self.count_unread();
        self.say(guest, &Reply::Unread { tag, text });
    }

    /// Sends a page in a message.
    pub(super) fn send_page(&mut self, guest: usize, tag: u32, page: &[u8]) {
        let mut head = Vec::with_capacity(8);
        Reply::Page { tag, bytes: &[] }.encode(&mut head);
        self.send(guest, &[&head, page]);
    }

    /// Sends a message in parts; keeps it if the link takes no more.
    fn send(&mut self, guest: usize, parts: &[&[u8]]) {
        let visitor = &mut self.guests[guest];
        if visitor.overflow.is_empty() {
            match self.fabric.send_parts(visitor.link, parts) {
                Ok(()) | Err(SendError::Down) => return,
                Err(SendError::Full) => {}
                Err(SendError::TooLong) => {
                    tracing::error!("a reply is longer than messages may be");
                    return;
                }
            }
        }
        visitor.overflow.push_back(parts.concat());
    }

    /// Says what is to be said: what a link did not take before, and which pages are there.
    pub(super) fn reply(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for guest in touched.drain(..) {
            let visitor = &mut self.guests[guest];
            visitor.is_touched = false;
            while let Some(message) = visitor.overflow.pop_front() {
                if self.fabric.send(visitor.link, &message) == Err(SendError::Full) {
                    visitor.overflow.push_front(message);
                    break;
                }
            }
            let mut there = std::mem::take(&mut visitor.there);
            if !there.is_empty() {
                self.send(guest, &[&there]);
                there.clear();
                self.guests[guest].there = there;
            }
        }
        self.touched = touched;
    }

    /// Passes on what tasks have said.
    pub(super) fn hear_tasks(&mut self) {
        let mut all = std::mem::take(&mut self.news);
        self.mailbox.take(&mut all);
        for (asker, news) in all.drain(..) {
            let there = self.guests.get_mut(asker.guest);
            let Some(visitor) = there.filter(|found| found.visit == asker.visit) else {
                continue;
            };
            let request = asker.request;
            match news {
                News::Batch(bytes) => {
                    let bytes = &bytes[..];
                    self.say(asker.guest, &Reply::Batch { request, bytes });
                }
                News::Finished => {
                    visitor.tasks.remove(&request);
                    self.say(asker.guest, &Reply::Finished { request });
                }
                News::Told(answer) => {
                    let answer = &answer[..];
                    self.say(asker.guest, &Reply::Told { request, answer });
                }
                News::Failed(outcome) => {
                    visitor.tasks.remove(&request);
                    let text = outcome.to_string();
                    self.fail(asker.guest, request, outcome.kind(), &text);
                }
            }
        }
        self.news = all;
    }
}

impl Figures {
    /// Takes note of how long a read has taken: an average in which the last ones count most.
    pub(super) fn add_read_time(self: &Figures, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let before = self.read_ns.load(Ordering::Relaxed);
        let now = match before {
            0 => took,
            _ => before - before / 8 + took / 8,
        };
        self.read_ns.store(now, Ordering::Relaxed);
    }
}
