//! Passes on the messages of tasks, loads and the clerk to the guests that wait for them.

use std::sync::Arc;

use super::Desk;
use crate::node::guest::Handle;
use crate::node::shelf::Opened;
use crate::node::tasks::{News, Outcome};
use crate::remote::wire::{Kind, Reply};

impl Desk {
    /// Passes on all messages.
    pub(super) fn hear_news(&mut self) {
        let mut all = std::mem::take(&mut self.news);
        self.mailbox.take(&mut all);
        for (asker, news) in all.drain(..) {
            let there = self.guests.get(asker.guest);
            match there.is_some_and(|found| found.visit == asker.visit) {
                true => self.pass_on(asker.guest, asker.request, news),
                false => self.put_away(news),
            }
        }
        self.news = all;
    }

    /// Cleans up after a message for which no guest waits any more.
    fn put_away(&mut self, news: News) {
        match news {
            News::Begun(load) => self.see_off(load),
            News::Opened(opened) => self.clerk.let_go(opened),
            News::Batch(_) | News::Finished | News::Failed(_) | News::Told(_) => {}
        }
    }

    fn pass_on(&mut self, guest: usize, request: u32, news: News) {
        let visitor = &mut self.guests[guest];
        match news {
            News::Batch(bytes) => {
                let is_wanted = visitor.tasks.get(&request).is_some_and(|task| !task.failed);
                if is_wanted {
                    self.send_batch(guest, request, &bytes);
                }
            }
            News::Finished => {
                if visitor.end_task(request) {
                    self.say(guest, &Reply::Finished { request });
                }
            }
            News::Failed(outcome) => self.pass_on_failure(guest, request, &outcome),
            News::Told(answer) => {
                visitor.requests.remove(&request);
                let answer = &answer[..];
                self.say(guest, &Reply::Told { request, answer });
            }
            News::Opened(opened) => {
                visitor.requests.remove(&request);
                self.open(guest, request, opened);
            }
            News::Begun(load) => {
                visitor.requests.remove(&request);
                visitor.beginning.remove(&request);
                visitor.loads.insert(request, load);
                let answer = &[][..];
                self.say(guest, &Reply::Told { request, answer });
            }
        }
    }

    fn pass_on_failure(&mut self, guest: usize, request: u32, outcome: &Outcome) {
        let visitor = &mut self.guests[guest];
        visitor.beginning.remove(&request);
        let is_waited_for = visitor.requests.remove(&request) || visitor.end_task(request);
        if is_waited_for {
            self.fail(guest, request, outcome.kind(), &outcome.to_string());
        }
    }

    /// Gives a guest the version that was opened for it.
    fn open(&mut self, guest: usize, request: u32, opened: Arc<Opened>) {
        let limit = self.options.limits.handles;
        if self.guests[guest].handles.len() >= limit {
            self.clerk.let_go(opened);
            let text = format!("{limit} tables are open already; close some");
            return self.fail(guest, request, Kind::Refused, &text);
        }
        let files = self.files.open(&opened, &mut *self.reads);
        let visitor = &mut self.guests[guest];
        let number = visitor.next_handle;
        visitor.next_handle = number.wrapping_add(1);
        let mut answer = number.to_le_bytes().to_vec();
        answer.extend_from_slice(&opened.description);
        visitor.handles.insert(number, Handle { opened, files });
        let answer = &answer[..];
        self.say(guest, &Reply::Told { request, answer });
    }
}
