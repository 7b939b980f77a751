//! Passes on the messages of tasks, loads and the blocking worker to the readers that wait for them.

use std::sync::Arc;

use super::ReaderLoop;
use crate::error::Error;
use crate::node::mailbox::Notification;
use crate::node::reader_connection::Handle;
use crate::node::storage::OpenTable;
use crate::protocol::{NodeFailureKind, NodeReply};

impl ReaderLoop {
    /// Passes on all messages.
    pub(super) fn deliver_notifications(&mut self) {
        let mut all = std::mem::take(&mut self.notifications);
        self.mailbox.take(&mut all);
        for (to, notifications) in all.drain(..) {
            let there = self.readers.get(to.reader);
            match there.is_some_and(|found| found.generation == to.generation) {
                true => self.deliver(to.reader, to.request, notifications),
                false => self.discard(notifications),
            }
        }
        self.notifications = all;
    }

    /// Cleans up after a message for which no reader waits any more.
    fn discard(&mut self, notifications: Notification) {
        match notifications {
            Notification::Begun(load) => self.end_load(load),
            Notification::OpenTable(opened) => self.blocking_worker.release(opened),
            Notification::Batch(_)
            | Notification::Finished
            | Notification::Failed(_)
            | Notification::Answer(_) => {}
        }
    }

    fn deliver(&mut self, reader: usize, request: u32, notifications: Notification) {
        let connection = &mut self.readers[reader];
        match notifications {
            Notification::Batch(bytes) => {
                let is_wanted = connection
                    .tasks
                    .get(&request)
                    .is_some_and(|task| !task.failed);
                if is_wanted {
                    self.send_batch(reader, request, &bytes);
                }
            }
            Notification::Finished => {
                if connection.end_task(request) {
                    self.send_reply(reader, &NodeReply::Finished { request });
                }
            }
            Notification::Failed(error) => self.deliver_failure(reader, request, &error),
            Notification::Answer(answer) => {
                connection.requests.remove(&request);
                let answer = &answer[..];
                self.send_reply(reader, &NodeReply::Answer { request, answer });
            }
            Notification::OpenTable(opened) => {
                connection.requests.remove(&request);
                self.open(reader, request, opened);
            }
            Notification::Begun(load) => {
                connection.requests.remove(&request);
                connection.beginning.remove(&request);
                connection.loads.insert(request, load);
                let answer = &[][..];
                self.send_reply(reader, &NodeReply::Answer { request, answer });
            }
        }
    }

    fn deliver_failure(&mut self, reader: usize, request: u32, error: &Error) {
        let connection = &mut self.readers[reader];
        connection.beginning.remove(&request);
        let is_waited_for = connection.requests.remove(&request) || connection.end_task(request);
        if is_waited_for {
            let (kind, text) = NodeFailureKind::of(error);
            self.fail(reader, request, kind, &text);
        }
    }

    /// Gives a reader the version that was opened for it.
    fn open(&mut self, reader: usize, request: u32, opened: Arc<OpenTable>) {
        let limit = self.options.limits.handles;
        if self.readers[reader].handles.len() >= limit {
            self.blocking_worker.release(opened);
            let text = format!("{limit} tables are open already; close some");
            return self.fail(reader, request, NodeFailureKind::Refused, &text);
        }
        let files = self.files.open(&opened, &mut *self.reads);
        let connection = &mut self.readers[reader];
        let number = connection.next_handle;
        connection.next_handle = number.wrapping_add(1);
        let mut answer = number.to_le_bytes().to_vec();
        answer.extend_from_slice(&opened.description);
        connection.handles.insert(number, Handle { opened, files });
        let answer = &answer[..];
        self.send_reply(reader, &NodeReply::Answer { request, answer });
    }
}
