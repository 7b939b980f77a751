//! Messages of readers.

use std::sync::Arc;

use fabric::memory::Grant;
use fabric::window::RemoteWindow;

use super::ReaderLoop;
use crate::error::Error;
use crate::node::blocking_worker::BlockingJob;
use crate::node::load_thread::LoadHandle;
use crate::node::read_target::WholeWindow;
use crate::node::reader_connection::RunningTask;
use crate::node::reply_address::ReplyAddress;
use crate::node::task_control::TaskControl;
use crate::node::task_pool::TaskJob;
use crate::protocol::{
    INLINE, NodeFailureKind, NodeQuery, NodeReply, NodeRequest, NodeStatus, PageRequests,
};
use crate::table::Version;

impl ReaderLoop {
    /// Executes a message. An error ends the link.
    pub(super) fn on_message(&mut self, reader: usize, message: &[u8]) -> Result<(), Error> {
        let request = NodeRequest::decode(message)?;
        match request {
            NodeRequest::Window { window, grant } => self.add_window(reader, window, grant),
            NodeRequest::Query { request, query } => self.answer(reader, request, query),
            NodeRequest::Close { handle } => {
                if let Some(handle) = self.readers[reader].handles.remove(&handle) {
                    self.close(handle);
                }
                Ok(())
            }
            NodeRequest::Read { handle, pages } => self.request_pages(reader, handle, pages),
            NodeRequest::Run {
                request,
                handle,
                credit,
                task,
            } => self.start_task(reader, (request, handle, credit), task),
            NodeRequest::Credit { request, credit } => {
                if let Some(task) = self.readers[reader].tasks.get(&request) {
                    task.control.add_credit(credit);
                }
                Ok(())
            }
            NodeRequest::Load {
                request,
                definition,
            } => self.begin_load(reader, request, definition),
            NodeRequest::LoadBlock {
                request,
                load,
                block,
            } => {
                let to = self.register(reader, request)?;
                self.load(reader, load)?.push(to, block)
            }
            NodeRequest::Prepare { request, load } => {
                let to = self.register(reader, request)?;
                self.load(reader, load)?.prepare(to)
            }
            NodeRequest::Commit { request, load } => {
                let to = self.register(reader, request)?;
                let load = self.readers[reader].loads.remove(&load);
                let load = load.ok_or_else(|| Error::refused("there is no such load"))?;
                let asked = load.commit(to);
                self.end_load(load);
                asked
            }
            NodeRequest::Cancel { request } => {
                if let Some(task) = self.readers[reader].tasks.get(&request) {
                    task.control.cancel();
                }
                Ok(())
            }
        }
    }

    /// Registers a request that is answered later.
    fn register(&mut self, reader: usize, request: u32) -> Result<ReplyAddress, Error> {
        let limit = self.options.limits.requests;
        let connection = &mut self.readers[reader];
        if connection.requests.len() >= limit {
            return Err(Error::Refused(format!(
                "more than {limit} requests are made at a time"
            )));
        }
        if connection.tasks.contains_key(&request) || !connection.requests.insert(request) {
            return Err(Error::Refused(format!(
                "request {request} is under way already"
            )));
        }
        Ok(ReplyAddress {
            reader,
            generation: connection.generation,
            request,
        })
    }

    /// Gives the blocking worker a job.
    fn run_blocking(&mut self, reader: usize, request: u32, job: BlockingJob) -> Result<(), Error> {
        let to = self.register(reader, request)?;
        self.blocking_worker.give(job, to, &self.mailbox);
        Ok(())
    }

    fn load(&self, reader: usize, load: u32) -> Result<&LoadHandle, Error> {
        let load = self.readers[reader].loads.get(&load);
        load.ok_or_else(|| Error::refused("there is no such load"))
    }

    fn begin_load(&mut self, reader: usize, request: u32, definition: &[u8]) -> Result<(), Error> {
        let limit = self.options.limits.loads;
        let connection = &mut self.readers[reader];
        if connection.loads.contains_key(&request) {
            return Err(Error::Refused(format!(
                "load {request} is going on already"
            )));
        }
        if connection.loads.len() + connection.beginning.len() >= limit {
            let text = format!("{limit} loads are going on already; wait for some to end");
            self.fail(reader, request, NodeFailureKind::Busy, &text);
            return Ok(());
        }
        self.run_blocking(reader, request, BlockingJob::Load(definition.to_vec()))?;
        self.readers[reader].beginning.insert(request);
        Ok(())
    }

    fn add_window(&mut self, reader: usize, window: u16, grant: &[u8]) -> Result<(), Error> {
        let limits = &self.options.limits;
        let connection = &mut self.readers[reader];
        if connection.windows.len() >= limits.windows || connection.windows.contains_key(&window) {
            return Err(Error::Refused(format!(
                "window {window} is one too many, or there already"
            )));
        }
        let grant =
            Grant::decode(grant).ok_or_else(|| Error::refused("the grant of a window is none"))?;
        let (shm, verbs) = (&self.options.shm, self.options.verbs.as_ref());
        let room = limits.window_bytes - connection.window_bytes().min(limits.window_bytes);
        let reached = match grant.words().saturating_mul(8) <= room {
            true => RemoteWindow::reach(&grant, shm, verbs).map_err(|error| error.to_string()),
            false => Err("the windows are larger than a reader may have".to_owned()),
        };
        let reached = reached.map(|(far, answer)| {
            let memory = WholeWindow::of(&far);
            let known = memory.and_then(|memory| self.reads.register(Arc::new(memory)));
            connection.registered.extend(known);
            connection.windows.insert(window, far);
            answer
        });
        let answer = reached.as_deref().map_err(String::as_str);
        self.send_reply(reader, &NodeReply::Window { window, answer });
        Ok(())
    }

    fn answer(&mut self, reader: usize, request: u32, query: NodeQuery<'_>) -> Result<(), Error> {
        let job = match query {
            NodeQuery::Tables => BlockingJob::Tables,
            NodeQuery::Open(version, name) => BlockingJob::Open(name.to_owned(), Version(version)),
            NodeQuery::File(unit, name) => BlockingJob::File(name.to_owned(), unit as usize),
            NodeQuery::Remove(name) => BlockingJob::Remove(name.to_owned()),
            NodeQuery::Status => {
                let answer = &self.status().encode()[..];
                self.send_reply(reader, &NodeReply::Answer { request, answer });
                return Ok(());
            }
        };
        self.run_blocking(reader, request, job)
    }

    fn status(&self) -> NodeStatus {
        let (threads, work) = (self.options.task_threads, self.tasks.times());
        self.state.figures.status(threads, work)
    }

    fn request_pages(
        &mut self,
        reader: usize,
        handle: u32,
        pages: PageRequests<'_>,
    ) -> Result<(), Error> {
        let limit = self.options.limits.pages;
        let connection = &mut self.readers[reader];
        if connection.requested() + pages.iter().len() > limit {
            return Err(Error::Refused(format!(
                "more than {limit} pages are asked for at a time"
            )));
        }
        let Some(open) = connection.handles.get(&handle) else {
            return Err(Error::Refused(format!("there is no open table {handle}")));
        };
        let (unit, extents) = (open.opened.unit, open.opened.extents.len());
        for wanted in pages.iter() {
            if usize::from(wanted.segment) >= extents {
                return Err(Error::Refused(format!(
                    "the table has no segment {}",
                    wanted.segment
                )));
            }
            if wanted.window != INLINE {
                let far = connection.windows.get(&wanted.window);
                let far = far.ok_or_else(|| {
                    Error::Refused(format!("there is no window {}", wanted.window))
                })?;
                if super::reading::slot_start(&wanted) + unit > far.len() {
                    return Err(Error::Refused(format!(
                        "there is no slot {} in the window",
                        wanted.slot
                    )));
                }
            }
            connection.queue.push_back((handle, wanted));
        }
        self.queue_up(reader);
        Ok(())
    }

    fn start_task(
        &mut self,
        reader: usize,
        (request, handle, credit): (u32, u32, u32),
        task: &[u8],
    ) -> Result<(), Error> {
        let (limit, longest) = (self.options.limits.tasks, self.options.limits.task_bytes);
        if task.len() > longest {
            return Err(Error::Refused(format!(
                "a task of more than {longest} bytes"
            )));
        }
        let connection = &mut self.readers[reader];
        if connection.tasks.contains_key(&request) || connection.requests.contains(&request) {
            return Err(Error::Refused(format!(
                "request {request} is under way already"
            )));
        }
        let Some(open) = connection.handles.get(&handle) else {
            return Err(Error::Refused(format!("there is no open table {handle}")));
        };
        if connection.tasks.len() >= limit {
            let text = format!("{limit} tasks are under way already; wait for some to end");
            self.fail(reader, request, NodeFailureKind::Busy, &text);
            return Ok(());
        }
        let control = TaskControl::with_credit(credit, self.options.limits.credit);
        let to = ReplyAddress {
            reader,
            generation: connection.generation,
            request,
        };
        let job = TaskJob {
            opened: Arc::clone(&open.opened),
            task: task.to_vec(),
            control: Arc::clone(&control),
            to,
            mailbox: Arc::clone(&self.mailbox),
        };
        let failed = false;
        connection
            .tasks
            .insert(request, RunningTask { control, failed });
        if self.tasks.put(job).is_err() {
            self.readers[reader].tasks.remove(&request);
            let text = "too many tasks wait at this storage node; try again later";
            self.fail(reader, request, NodeFailureKind::Busy, text);
        }
        Ok(())
    }
}
