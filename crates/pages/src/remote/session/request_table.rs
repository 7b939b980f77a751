//! Answers to a session's requests, and events of its tasks.
//!
//! Replies to a request that is no longer waited for are dropped: a task that was cancelled still
//! reports that, and a session lives for many tasks.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use foldhash::HashMap;

use crate::error::Error;

/// An answer, or an error.
type Answer = Result<Vec<u8>, Error>;

/// An event of a task.
#[derive(Debug)]
pub enum TaskEvent {
    /// A batch of results.
    Batch(Bytes),
    /// The task has completed.
    Finished,
    /// The task has failed.
    Failed(Error),
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct RequestTable {
    open: HashMap<u32, OpenRequest>,
    tasks: HashMap<u32, Task>,
}

/// A request.
#[derive(Debug)]
struct OpenRequest {
    answer: Option<Answer>,
    /// When the node last reported that the request is under way.
    last_heard: Instant,
}

/// A task.
#[derive(Debug)]
struct Task {
    events: VecDeque<TaskEvent>,
    /// When the node last reported that the task is under way.
    last_heard: Instant,
}

impl RequestTable {
    /// Registers a request that will be answered.
    pub(super) fn register(&mut self, request: u32) {
        let (answer, last_heard) = (None, Instant::now());
        self.open
            .insert(request, OpenRequest { answer, last_heard });
    }

    /// Registers a task.
    pub(super) fn register_task(&mut self, task: u32) {
        let (events, last_heard) = (VecDeque::new(), Instant::now());
        self.tasks.insert(task, Task { events, last_heard });
    }

    /// Ignores later events of a task.
    pub(super) fn forget(&mut self, task: u32) {
        self.tasks.remove(&task);
    }

    /// Stores an answer.
    pub(super) fn answer(&mut self, request: u32, answer: Answer) {
        if let Some(open) = self.open.get_mut(&request) {
            open.answer = Some(answer);
        }
    }

    /// Stores an event of a task.
    pub(super) fn push_event(&mut self, task: u32, event: TaskEvent) {
        if let Some(task) = self.tasks.get_mut(&task) {
            task.events.push_back(event);
        }
    }

    /// Stores the failure of a request, or of a task.
    pub(super) fn fail(&mut self, request: u32, error: Error) {
        match self.tasks.contains_key(&request) {
            true => self.push_event(request, TaskEvent::Failed(error)),
            false => self.answer(request, Err(error)),
        }
    }

    /// Notes that a request or task is still under way.
    pub(super) fn note_progress(&mut self, request: u32) {
        let open = self.open.get_mut(&request).map(|open| &mut open.last_heard);
        let task = self
            .tasks
            .get_mut(&request)
            .map(|task| &mut task.last_heard);
        for last_heard in open.into_iter().chain(task) {
            *last_heard = Instant::now();
        }
    }

    /// Returns when a request, or a task, was last known to be under way.
    pub(super) fn last_heard(&self, request: u32) -> Option<Instant> {
        let open = self.open.get(&request).map(|open| open.last_heard);
        open.or_else(|| self.tasks.get(&request).map(|task| task.last_heard))
    }

    /// Takes the answer to a request, which is over then.
    pub(super) fn take(&mut self, request: u32) -> Option<Answer> {
        let answer = self.open.get_mut(&request)?.answer.take()?;
        self.open.remove(&request);
        Some(answer)
    }

    /// Takes the next event of a task, which is over after its last one.
    pub(super) fn take_event(&mut self, task: u32) -> Option<TaskEvent> {
        let event = self.tasks.get_mut(&task)?.events.pop_front()?;
        if !matches!(event, TaskEvent::Batch(_)) {
            self.tasks.remove(&task);
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> Error {
        Error::Busy("ended".to_owned())
    }

    #[test]
    fn replies_that_are_not_waited_for_are_dropped() {
        let mut requests = RequestTable::default();
        for task in 0..100 {
            requests.register_task(task);
            requests.forget(task);
            // A task that was cancelled reports that.
            requests.push_event(task, TaskEvent::Finished);
            requests.fail(task, busy());
            requests.answer(task, Ok(Vec::new()));
            requests.note_progress(task);
        }
        assert!(requests.open.is_empty() && requests.tasks.is_empty());
    }

    #[test]
    fn what_is_waited_for_is_there_once() {
        let mut requests = RequestTable::default();
        requests.register(1);
        requests.register(2);
        requests.register_task(3);
        assert!(requests.take(1).is_none());
        requests.answer(1, Ok(vec![7]));
        requests.fail(2, busy());
        requests.fail(3, busy());
        assert!(matches!(requests.take(1), Some(Ok(answer)) if answer == [7]));
        assert!(matches!(requests.take(2), Some(Err(Error::Busy(why))) if why == "ended"));
        assert!(matches!(requests.take_event(3), Some(TaskEvent::Failed(_))));
        assert!(requests.take(1).is_none());
        assert!(requests.open.is_empty() && requests.tasks.is_empty());
    }

    #[test]
    fn a_node_that_is_at_it_is_heard_of() {
        let mut requests = RequestTable::default();
        requests.register(1);
        requests.register_task(2);
        for request in [1, 2] {
            let before = requests.last_heard(request).expect("it was asked");
            std::thread::sleep(std::time::Duration::from_millis(1));
            requests.note_progress(request);
            assert!(requests.last_heard(request).expect("it goes on") > before);
        }
        assert_eq!(requests.last_heard(3), None);
    }
}
