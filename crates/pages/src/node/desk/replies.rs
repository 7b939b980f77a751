//! Replies to readers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fabric::{Messages, SendError};

use super::Desk;
use crate::node::Figures;
use crate::node::guest::Overflow;
use crate::remote::wire::{Kind, Reply};

/// The most bytes of a text that says why a request failed.
const TEXT: usize = 16 << 10;

/// A message is longer than the limit: its number of bytes.
struct TooLong(usize);

impl Desk {
    /// Sends a reply to a guest. If it is too long, the guest is told that its request failed.
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
        // The text may contain names that the reader has sent.
        let text = &text[..text.floor_char_boundary(TEXT)];
        let failed = Reply::Failed {
            request,
            kind,
            text,
        };
        self.say(guest, &failed);
    }

    /// Reports a reply that is too long, as its absence would go unnoticed.
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

    /// Notes that a guest's link is to be closed, after the desk is done with the guest.
    fn condemn(&mut self, guest: usize, why: String) {
        self.guests[guest].verdict.get_or_insert(why);
        self.is_condemning = true;
    }

    /// Closes the links of guests that are condemned.
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

    /// Sends the replies: messages that a link did not take before, and the pages that are there.
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

    /// Tells guests regularly that their requests are under way: a long sync must not be taken for a
    /// lost node.
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
            // A guest that does not read its messages learns nothing from more of them.
            if visitor.overflow.is_empty() {
                let all = visitor.tasks.keys().chain(&visitor.requests);
                let requests: Vec<[u8; 4]> = all.map(|request| request.to_le_bytes()).collect();
                let requests = &requests[..];
                self.say(guest, &Reply::Working { requests });
            }
        }
    }

    /// Returns how long the poll may sleep before waiting guests are to be told of their requests.
    pub(super) fn until_progress(&self) -> Option<Duration> {
        let waits = self.guests.iter().any(|(_, guest)| guest.waits());
        waits.then(|| self.next_progress.saturating_duration_since(Instant::now()))
    }
}

impl Figures {
    /// Adds the time of a read to an average in which the last ones count most.
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
