//! Messages of readers.

use std::sync::Arc;

use base::codec::Malformed;
use fabric::memory::Grant;
use fabric::window::RemoteWindow;

use super::ReaderLoop;
use crate::node::blocking_worker::BlockingJob;
use crate::node::loading::LoadHandle;
use crate::node::read_target::Whole;
use crate::node::reader_connection::Task;
use crate::node::tasks::{Asker, Control, Job};
use crate::remote::Condition;
use crate::remote::wire::{INLINE, Kind, Pages, Question, Reply, Say};
use crate::table::Version;

impl ReaderLoop {
    /// Executes a message. An error ends the link.
    pub(super) fn listen(&mut self, reader: usize, message: &[u8]) -> Result<(), String> {
        let said = Say::decode(message).map_err(|error: Malformed| error.to_string())?;
        match said {
            Say::Window { window, grant } => self.take_window(reader, window, grant),
            Say::Ask { request, question } => self.answer(reader, request, question),
            Say::Close { handle } => {
                if let Some(handle) = self.readers[reader].handles.remove(&handle) {
                    self.close(handle);
                }
                Ok(())
            }
            Say::Read { handle, pages } => self.take_wishes(reader, handle, pages),
            Say::Run {
                request,
                handle,
                credit,
                task,
            } => self.take_task(reader, (request, handle, credit), task),
            Say::More { request, credit } => {
                if let Some(task) = self.readers[reader].tasks.get(&request) {
                    task.control.add_credit(credit);
                }
                Ok(())
            }
            Say::Load {
                request,
                definition,
            } => self.begin_load(reader, request, definition),
            Say::Part {
                request,
                load,
                block,
            } => {
                let asker = self.ask(reader, request)?;
                self.load(reader, load)?.push(asker, block)
            }
            Say::Prepare { request, load } => {
                let asker = self.ask(reader, request)?;
                self.load(reader, load)?.prepare(asker)
            }
            Say::Commit { request, load } => {
                let asker = self.ask(reader, request)?;
                let load = self.readers[reader].loads.remove(&load);
                let load = load.ok_or("there is no such load")?;
                let asked = load.commit(asker);
                self.see_off(load);
                asked
            }
            Say::Cancel { request } => {
                if let Some(task) = self.readers[reader].tasks.get(&request) {
                    task.control.cancel();
                }
                Ok(())
            }
        }
    }

    /// Registers a request that is answered later.
    fn ask(&mut self, reader: usize, request: u32) -> Result<Asker, String> {
        let limit = self.options.limits.requests;
        let visitor = &mut self.readers[reader];
        if visitor.requests.len() >= limit {
            return Err(format!("more than {limit} requests are made at a time"));
        }
        if visitor.tasks.contains_key(&request) || !visitor.requests.insert(request) {
            return Err(format!("request {request} is under way already"));
        }
        Ok(Asker {
            reader,
            visit: visitor.visit,
            request,
        })
    }

    /// Gives the blocking worker an job that may take time.
    fn send_clerk(&mut self, reader: usize, request: u32, job: BlockingJob) -> Result<(), String> {
        let asker = self.ask(reader, request)?;
        self.blocking_worker.give(job, asker, &self.mailbox);
        Ok(())
    }

    fn load(&self, reader: usize, load: u32) -> Result<&LoadHandle, String> {
        let load = self.readers[reader].loads.get(&load);
        load.ok_or_else(|| "there is no such load".to_owned())
    }

    fn begin_load(&mut self, reader: usize, request: u32, definition: &[u8]) -> Result<(), String> {
        let limit = self.options.limits.loads;
        let visitor = &mut self.readers[reader];
        if visitor.loads.contains_key(&request) {
            return Err(format!("load {request} is going on already"));
        }
        if visitor.loads.len() + visitor.beginning.len() >= limit {
            let text = format!("{limit} loads are going on already; wait for some to end");
            self.fail(reader, request, Kind::Busy, &text);
            return Ok(());
        }
        self.send_clerk(reader, request, BlockingJob::Load(definition.to_vec()))?;
        self.readers[reader].beginning.insert(request);
        Ok(())
    }

    fn take_window(&mut self, reader: usize, window: u16, grant: &[u8]) -> Result<(), String> {
        let limits = &self.options.limits;
        let visitor = &mut self.readers[reader];
        if visitor.windows.len() >= limits.windows || visitor.windows.contains_key(&window) {
            return Err(format!("window {window} is one too many, or there already"));
        }
        let grant = Grant::decode(grant).ok_or("the grant of a window is none")?;
        let (shm, verbs) = (&self.options.shm, self.options.verbs.as_ref());
        let room = limits.window_bytes - visitor.window_bytes().min(limits.window_bytes);
        let reached = match grant.words().saturating_mul(8) <= room {
            true => RemoteWindow::reach(&grant, shm, verbs).map_err(|error| error.to_string()),
            false => Err("the windows are larger than a reader may have".to_owned()),
        };
        let reached = reached.map(|(far, answer)| {
            let memory = Whole::of(&far);
            let known = memory.and_then(|memory| self.reads.register(Arc::new(memory)));
            visitor.registered.extend(known);
            visitor.windows.insert(window, far);
            answer
        });
        let answer = reached.as_deref().map_err(String::as_str);
        self.say(reader, &Reply::Window { window, answer });
        Ok(())
    }

    fn answer(
        &mut self,
        reader: usize,
        request: u32,
        question: Question<'_>,
    ) -> Result<(), String> {
        let job = match question {
            Question::Tables => BlockingJob::Tables,
            Question::Open(version, name) => BlockingJob::Open(name.to_owned(), Version(version)),
            Question::File(unit, name) => BlockingJob::File(name.to_owned(), unit as usize),
            Question::Remove(name) => BlockingJob::Remove(name.to_owned()),
            Question::Condition => {
                let answer = &self.condition().encode()[..];
                self.say(reader, &Reply::Told { request, answer });
                return Ok(());
            }
        };
        self.send_clerk(reader, request, job)
    }

    fn condition(&self) -> Condition {
        let (threads, work) = (self.options.task_threads, self.tasks.times());
        Condition::of(&self.shared.figures, threads, work)
    }

    fn take_wishes(&mut self, reader: usize, handle: u32, pages: Pages<'_>) -> Result<(), String> {
        let limit = self.options.limits.pages;
        let visitor = &mut self.readers[reader];
        if visitor.owed() + pages.iter().len() > limit {
            return Err(format!("more than {limit} pages are asked for at a time"));
        }
        let Some(open) = visitor.handles.get(&handle) else {
            return Err(format!("there is no open table {handle}"));
        };
        let (unit, extents) = (open.opened.unit, open.opened.extents.len());
        for wanted in pages.iter() {
            if usize::from(wanted.segment) >= extents {
                return Err(format!("the table has no segment {}", wanted.segment));
            }
            if wanted.window != INLINE {
                let far = visitor.windows.get(&wanted.window);
                let far = far.ok_or_else(|| format!("there is no window {}", wanted.window))?;
                if super::reading::slot_start(&wanted) + unit > far.len() {
                    return Err(format!("there is no slot {} in the window", wanted.slot));
                }
            }
            visitor.queue.push_back((handle, wanted));
        }
        self.queue_up(reader);
        Ok(())
    }

    fn take_task(
        &mut self,
        reader: usize,
        (request, handle, credit): (u32, u32, u32),
        task: &[u8],
    ) -> Result<(), String> {
        let (limit, longest) = (self.options.limits.tasks, self.options.limits.task_bytes);
        if task.len() > longest {
            return Err(format!("a task of more than {longest} bytes"));
        }
        let visitor = &mut self.readers[reader];
        if visitor.tasks.contains_key(&request) || visitor.requests.contains(&request) {
            return Err(format!("request {request} is under way already"));
        }
        let Some(open) = visitor.handles.get(&handle) else {
            return Err(format!("there is no open table {handle}"));
        };
        if visitor.tasks.len() >= limit {
            let text = format!("{limit} tasks are under way already; wait for some to end");
            self.fail(reader, request, Kind::Busy, &text);
            return Ok(());
        }
        let control = Control::with_credit(credit, self.options.limits.credit);
        let asker = Asker {
            reader,
            visit: visitor.visit,
            request,
        };
        let job = Job {
            opened: Arc::clone(&open.opened),
            task: task.to_vec(),
            control: Arc::clone(&control),
            asker,
            mailbox: Arc::clone(&self.mailbox),
        };
        let failed = false;
        visitor.tasks.insert(request, Task { control, failed });
        if self.tasks.put(job).is_err() {
            self.readers[reader].tasks.remove(&request);
            let text = "too many tasks wait at this storage node; try again later";
            self.fail(reader, request, Kind::Busy, text);
        }
        Ok(())
    }
}
