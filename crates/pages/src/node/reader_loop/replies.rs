//! Replies to readers.

use std::time::{Duration, Instant};

use fabric::{Messages, SendError};

use super::ReaderLoop;
use crate::node::reader_connection::Overflow;
use crate::protocol::{NodeFailureKind, NodeReply};

/// The most bytes of a text that says why a request failed.
const TEXT: usize = 16 << 10;

/// A message is longer than the limit: its number of bytes.
struct TooLong(usize);

impl ReaderLoop {
    /// Sends a reply to a reader. If it is too long, the reader gets an error instead.
    pub(super) fn send_reply(&mut self, reader: usize, reply: &NodeReply<'_>) {
        let mut message = std::mem::take(&mut self.message);
        message.clear();
        reply.encode(&mut message);
        let sent = self.send(reader, &[&message]);
        self.message = message;
        if let Err(TooLong(bytes)) = sent {
            self.reply_too_long(reader, reply, bytes);
        }
    }

    pub(super) fn fail(&mut self, reader: usize, request: u32, kind: NodeFailureKind, text: &str) {
        // The text may contain names that the reader has sent.
        let text = &text[..text.floor_char_boundary(TEXT)];
        let failed = NodeReply::Failed {
            request,
            kind,
            text,
        };
        self.send_reply(reader, &failed);
    }

    /// Reports a reply that is too long, as its absence would go unnoticed.
    fn reply_too_long(&mut self, reader: usize, reply: &NodeReply<'_>, bytes: usize) {
        let most = self.options.limits.message;
        let too_long = format!("of {bytes} bytes is longer than messages may be ({most})");
        match *reply {
            NodeReply::Batch { request, .. } => {
                if let Some(task) = self.readers[reader].tasks.get_mut(&request) {
                    task.failed = true;
                    task.control.cancel();
                }
                let text = format!("a batch of results {too_long}: ask for fewer columns");
                self.fail(reader, request, NodeFailureKind::Refused, &text);
            }
            NodeReply::Answer { request, .. } => {
                let text = format!("an answer {too_long}");
                self.fail(reader, request, NodeFailureKind::Refused, &text);
            }
            _ => self.condemn(reader, format!("a reply {too_long}")),
        }
    }

    pub(super) fn fail_page(&mut self, reader: usize, tag: u32, text: &str) {
        self.count_failed_page();
        self.send_reply(reader, &NodeReply::PageFailed { tag, text });
    }

    /// Sends a page in a message.
    pub(super) fn send_page(&mut self, reader: usize, tag: u32, page: &[u8]) {
        let mut head = Vec::with_capacity(8);
        NodeReply::Page { tag, bytes: &[] }.encode(&mut head);
        if self.send(reader, &[&head, page]).is_err() {
            self.fail_page(reader, tag, "it is longer than messages may be");
        }
    }

    /// Sends a batch of a task's results.
    pub(super) fn send_batch(&mut self, reader: usize, request: u32, batch: &[u8]) {
        let mut head = Vec::with_capacity(8);
        let bytes = &[][..];
        NodeReply::Batch { request, bytes }.encode(&mut head);
        if let Err(TooLong(bytes)) = self.send(reader, &[&head, batch]) {
            let reply = NodeReply::Batch {
                request,
                bytes: batch,
            };
            self.reply_too_long(reader, &reply, bytes);
        }
    }

    /// Sends a message in parts; keeps it if the link takes no more.
    fn send(&mut self, reader: usize, parts: &[&[u8]]) -> Result<(), TooLong> {
        let limits = &self.options.limits;
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes > limits.message {
            return Err(TooLong(bytes));
        }
        let connection = &mut self.readers[reader];
        if connection.overflow.is_empty() {
            let (fabric, network) = (&mut self.fabric, &mut self.network);
            match fabric.send_now(network, connection.link, parts) {
                Ok(()) | Err(SendError::Down) => return Ok(()),
                Err(SendError::TooLong) => return Err(TooLong(bytes)),
                Err(SendError::Full) => {}
            }
        }
        if connection.overflow.bytes() > limits.overflow {
            let most = limits.overflow;
            self.condemn(reader, format!("more than {most} bytes wait to be read"));
        } else {
            connection.overflow.push(parts.concat());
        }
        Ok(())
    }

    /// Notes that a reader's link is to be closed, after the reader loop is done with the reader.
    fn condemn(&mut self, reader: usize, why: String) {
        self.readers[reader].close_reason.get_or_insert(why);
        self.is_condemning = true;
    }

    /// Closes the links of readers that are condemned.
    pub(super) fn disconnect_condemned(&mut self) {
        if !std::mem::take(&mut self.is_condemning) {
            return;
        }
        let condemned = self
            .readers
            .iter()
            .filter(|(_, g)| g.close_reason.is_some());
        let condemned: Vec<usize> = condemned.map(|(reader, _)| reader).collect();
        for reader in condemned {
            let why = self.readers[reader].close_reason.take().unwrap_or_default();
            self.readers[reader].overflow = Overflow::default();
            self.disconnect(reader, &why);
        }
    }

    /// Sends the replies: messages that a link did not take before, and the pages that are there.
    pub(super) fn reply(&mut self) {
        let mut to_reply = std::mem::take(&mut self.to_reply);
        for reader in to_reply.drain(..) {
            let connection = &mut self.readers[reader];
            connection.is_marked = false;
            while let Some(message) = connection.overflow.first() {
                if self.fabric.send(connection.link, message) == Err(SendError::Full) {
                    break;
                }
                connection.overflow.pop();
            }
            let mut there = std::mem::take(&mut connection.there);
            if !there.is_empty() {
                if let Err(TooLong(bytes)) = self.send(reader, &[&there]) {
                    let tags = NodeReply::Written { tags: &[] };
                    self.reply_too_long(reader, &tags, bytes);
                }
                there.clear();
                self.readers[reader].there = there;
            }
        }
        self.to_reply = to_reply;
    }

    /// Tells readers regularly that their requests are under way: a long sync must not be taken for a
    /// lost node.
    pub(super) fn send_progress(&mut self) {
        let now = Instant::now();
        if now < self.next_progress {
            return;
        }
        self.next_progress = now + self.options.limits.progress;
        let waiting = self.readers.iter().filter(|(_, reader)| reader.waits());
        let waiting: Vec<usize> = waiting.map(|(reader, _)| reader).collect();
        for reader in waiting {
            let connection = &self.readers[reader];
            // A reader that does not read its messages learns nothing from more of them.
            if connection.overflow.is_empty() {
                let all = connection.tasks.keys().chain(&connection.requests);
                let requests: Vec<[u8; 4]> = all.map(|request| request.to_le_bytes()).collect();
                let requests = &requests[..];
                self.send_reply(reader, &NodeReply::Working { requests });
            }
        }
    }

    /// Returns how long the poll may sleep before waiting readers are to be told of their requests.
    pub(super) fn until_progress(&self) -> Option<Duration> {
        let waits = self.readers.iter().any(|(_, reader)| reader.waits());
        waits.then(|| self.next_progress.saturating_duration_since(Instant::now()))
    }
}
