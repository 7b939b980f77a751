//! Passes on the messages of tasks, loads and the blocking worker to the readers that wait for them.

use std::sync::Arc;

use super::ReaderLoop;
use crate::node::reader_connection::Handle;
use crate::node::shelf::Opened;
use crate::node::tasks::{News, Outcome};
use crate::remote::wire::{Kind, Reply};

impl ReaderLoop {
    /// Passes on all messages.
    pub(super) fn hear_news(&mut self) {
        let mut all = std::mem::take(&mut self.notifications);
        self.mailbox.take(&mut all);
        for (asker, notifications) in all.drain(..) {
            let there = self.readers.get(asker.reader);
            match there.is_some_and(|found| found.visit == asker.visit) {
                true => self.pass_on(asker.reader, asker.request, notifications),
                false => self.put_away(notifications),
            }
        }
        self.notifications = all;
    }

    /// Cleans up after a message for which no reader waits any more.
    fn put_away(&mut self, notifications: News) {
        match notifications {
            News::Begun(load) => self.see_off(load),
            News::Opened(opened) => self.blocking_worker.let_go(opened),
            News::Batch(_) | News::Finished | News::Failed(_) | News::Told(_) => {}
        }
    }

    fn pass_on(&mut self, reader: usize, request: u32, notifications: News) {
        let visitor = &mut self.readers[reader];
        match notifications {
            News::Batch(bytes) => {
                let is_wanted = visitor.tasks.get(&request).is_some_and(|task| !task.failed);
                if is_wanted {
                    self.send_batch(reader, request, &bytes);
                }
            }
            News::Finished => {
                if visitor.end_task(request) {
                    self.say(reader, &Reply::Finished { request });
                }
            }
            News::Failed(outcome) => self.pass_on_failure(reader, request, &outcome),
            News::Told(answer) => {
                visitor.requests.remove(&request);
                let answer = &answer[..];
                self.say(reader, &Reply::Told { request, answer });
            }
            News::Opened(opened) => {
                visitor.requests.remove(&request);
                self.open(reader, request, opened);
            }
            News::Begun(load) => {
                visitor.requests.remove(&request);
                visitor.beginning.remove(&request);
                visitor.loads.insert(request, load);
                let answer = &[][..];
                self.say(reader, &Reply::Told { request, answer });
            }
        }
    }

    fn pass_on_failure(&mut self, reader: usize, request: u32, outcome: &Outcome) {
        let visitor = &mut self.readers[reader];
        visitor.beginning.remove(&request);
        let is_waited_for = visitor.requests.remove(&request) || visitor.end_task(request);
        if is_waited_for {
            self.fail(reader, request, outcome.kind(), &outcome.to_string());
        }
    }

    /// Gives a reader the version that was opened for it.
    fn open(&mut self, reader: usize, request: u32, opened: Arc<Opened>) {
        let limit = self.options.limits.handles;
        if self.readers[reader].handles.len() >= limit {
            self.blocking_worker.let_go(opened);
            let text = format!("{limit} tables are open already; close some");
            return self.fail(reader, request, Kind::Refused, &text);
        }
        let files = self.files.open(&opened, &mut *self.reads);
        let visitor = &mut self.readers[reader];
        let number = visitor.next_handle;
        visitor.next_handle = number.wrapping_add(1);
        let mut answer = number.to_le_bytes().to_vec();
        answer.extend_from_slice(&opened.description);
        visitor.handles.insert(number, Handle { opened, files });
        let answer = &answer[..];
        self.say(reader, &Reply::Told { request, answer });
    }
}
