//! What is said to readers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fabric::{Messages, SendError};

use super::Desk;
use crate::node::Figures;
use crate::node::guest::Overflow;
use crate::remote::wire::{Kind, Reply};

/// Bytes of a text that says why something failed.
const TEXT: usize = 16 << 10;

/// A message is longer than messages may be: so many bytes.
struct TooLong(usize);

impl Desk {
    /// Says something to a guest. What is too long to be said is told to have failed.
    pub(super) fn say(&mut self, guest: usize, reply: &Reply<'_>) {
        let mut message = std::mem::take(&mut self.message);
        message.clear();
        reply.encode(&mut message);
        let sent = self.send(guest, &[&message]);
        self.message = message;
        if let Err(TooLong(bytes)) = sent {
            self.cannot_say(guest, reply, bytes);
        }
    }

    pub(super) fn fail(&mut self, guest: usize, request: u32, kind: Kind, text: &str) {
        // It may name what the reader has named.
        let text = &text[..text.floor_char_boundary(TEXT)];
        let failed = Reply::Failed {
            request,
            kind,
            text,
        };
        self.say(guest, &failed);
    }

    /// What is left out would be missing where nobody notices.
    fn cannot_say(&mut self, guest: usize, reply: &Reply<'_>, bytes: usize) {
        let most = self.options.limits.message;
        let too_long = format!("of {bytes} bytes is longer than messages may be ({most})");
        match *reply {
            Reply::Batch { request, .. } => {
                if let Some(task) = self.guests[guest].tasks.get_mut(&request) {
                    task.failed = true;
                    task.control.cancel();
                }
                let text = format!("a batch of results {too_long}: ask for fewer columns");
                self.fail(guest, request, Kind::Refused, &text);
            }
            Reply::Told { request, .. } => {
                let text = format!("an answer {too_long}");
                self.fail(guest, request, Kind::Refused, &text);
            }
            _ => self.condemn(guest, format!("a reply {too_long}")),
        }
    }

    pub(super) fn unread(&mut self, guest: usize, tag: u32, text: &str) {
        self.count_unread();
        self.say(guest, &Reply::Unread { tag, text });
    }

    /// Sends a page in a message.
    pub(super) fn send_page(&mut self, guest: usize, tag: u32, page: &[u8]) {
        let mut head = Vec::with_capacity(8);
        Reply::Page { tag, bytes: &[] }.encode(&mut head);
        if self.send(guest, &[&head, page]).is_err() {
            self.unread(guest, tag, "it is longer than messages may be");
        }
    }

    /// Sends a batch of a task's results.
    pub(super) fn send_batch(&mut self, guest: usize, request: u32, batch: &[u8]) {
        let mut head = Vec::with_capacity(8);
        let bytes = &[][..];
        Reply::Batch { request, bytes }.encode(&mut head);
        if let Err(TooLong(bytes)) = self.send(guest, &[&head, batch]) {
            let reply = Reply::Batch {
                request,
                bytes: batch,
            };
            self.cannot_say(guest, &reply, bytes);
        }
    }

    /// Sends a message in parts; keeps it if the link takes no more.
    fn send(&mut self, guest: usize, parts: &[&[u8]]) -> Result<(), TooLong> {
        let limits = &self.options.limits;
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes > limits.message {
            return Err(TooLong(bytes));
        }
        let visitor = &mut self.guests[guest];
        if visitor.overflow.is_empty() {
            match self.fabric.send_parts(visitor.link, parts) {
                Ok(()) | Err(SendError::Down) => return Ok(()),
                Err(SendError::TooLong) => return Err(TooLong(bytes)),
                Err(SendError::Full) => {}
            }
        }
        if visitor.overflow.bytes() > limits.overflow {
            let most = limits.overflow;
            self.condemn(guest, format!("more than {most} bytes wait to be read"));
        } else {
            visitor.overflow.push(parts.concat());
        }
        Ok(())
    }

    /// Notes that a guest's link is to end, when nobody is in the middle of something with it.
    fn condemn(&mut self, guest: usize, why: String) {
        self.guests[guest].verdict.get_or_insert(why);
        self.is_condemning = true;
    }

    /// Ends the links of those with whom there is no going on.
    pub(super) fn carry_out(&mut self) {
        if !std::mem::take(&mut self.is_condemning) {
            return;
        }
        let condemned = self.guests.iter().filter(|(_, g)| g.verdict.is_some());
        let condemned: Vec<usize> = condemned.map(|(guest, _)| guest).collect();
        for guest in condemned {
            let why = self.guests[guest].verdict.take().unwrap_or_default();
            self.guests[guest].overflow = Overflow::default();
            self.show_out(guest, &why);
        }
    }

    /// Says what is to be said: what a link did not take before, and which pages are there.
    pub(super) fn reply(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for guest in touched.drain(..) {
            let visitor = &mut self.guests[guest];
            visitor.is_touched = false;
            while let Some(message) = visitor.overflow.first() {
                if self.fabric.send(visitor.link, message) == Err(SendError::Full) {
                    break;
                }
                visitor.overflow.pop();
            }
            let mut there = std::mem::take(&mut visitor.there);
            if !there.is_empty() {
                if let Err(TooLong(bytes)) = self.send(guest, &[&there]) {
                    let tags = Reply::There { tags: &[] };
                    self.cannot_say(guest, &tags, bytes);
                }
                there.clear();
                self.guests[guest].there = there;
            }
        }
        self.touched = touched;
    }

    /// Tells who waits what is under way, now and then: a long sync is not to be taken for a node that
    /// is gone.
    pub(super) fn tell_progress(&mut self) {
        let now = Instant::now();
        if now < self.next_progress {
            return;
        }
        self.next_progress = now + self.options.limits.progress;
        let waiting = self.guests.iter().filter(|(_, guest)| guest.waits());
        let waiting: Vec<usize> = waiting.map(|(guest, _)| guest).collect();
        for guest in waiting {
            let visitor = &self.guests[guest];
            // Who does not read what there is learns nothing from more of it.
            if visitor.overflow.is_empty() {
                let all = visitor.tasks.keys().chain(&visitor.requests);
                let requests: Vec<[u8; 4]> = all.map(|request| request.to_le_bytes()).collect();
                let requests = &requests[..];
                self.say(guest, &Reply::Working { requests });
            }
        }
    }

    /// Returns how long the poll may sleep before who waits is to hear something.
    pub(super) fn until_progress(&self) -> Option<Duration> {
        let waits = self.guests.iter().any(|(_, guest)| guest.waits());
        waits.then(|| self.next_progress.saturating_duration_since(Instant::now()))
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
