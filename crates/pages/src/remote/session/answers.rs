//! Answers to a session's requests, and events of its tasks.
//!
//! Replies to a request that is no longer waited for are dropped: a task that was cancelled still
//! reports that, and a session lives for many tasks.

use std::collections::VecDeque;
use std::time::Instant;

use foldhash::HashMap;

use super::{SessionError, TaskEvent};

/// An answer, or an error.
type Answer = Result<Vec<u8>, SessionError>;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Answers {
    asked: HashMap<u32, Asked>,
    tasks: HashMap<u32, Task>,
}

/// A request.
#[derive(Debug)]
struct Asked {
    answer: Option<Answer>,
    /// When the node last reported that the request is under way.
    heard: Instant,
}

/// A task.
#[derive(Debug)]
struct Task {
    events: VecDeque<TaskEvent>,
    /// When the node last reported that the task is under way.
    heard: Instant,
}

impl Answers {
    /// Registers a request that will be answered.
    pub(super) fn ask(&mut self, request: u32) {
        let (answer, heard) = (None, Instant::now());
        self.asked.insert(request, Asked { answer, heard });
    }

    /// Registers a task.
    pub(super) fn begin(&mut self, task: u32) {
        let (events, heard) = (VecDeque::new(), Instant::now());
        self.tasks.insert(task, Task { events, heard });
    }

    /// Ignores later events of a task.
    pub(super) fn forget(&mut self, task: u32) {
        self.tasks.remove(&task);
    }

    /// Stores an answer.
    pub(super) fn answer(&mut self, request: u32, answer: Answer) {
        if let Some(asked) = self.asked.get_mut(&request) {
            asked.answer = Some(answer);
        }
    }

    /// Stores an event of a task.
    pub(super) fn tell(&mut self, task: u32, event: TaskEvent) {
        if let Some(task) = self.tasks.get_mut(&task) {
            task.events.push_back(event);
        }
    }

    /// Stores the failure of a request, or of a task.
    pub(super) fn fail(&mut self, request: u32, error: SessionError) {
        match self.tasks.contains_key(&request) {
            true => self.tell(request, TaskEvent::Failed(error)),
            false => self.answer(request, Err(error)),
        }
    }

    /// Notes that a request or task is still under way.
    pub(super) fn is_at(&mut self, request: u32) {
        let asked = self.asked.get_mut(&request).map(|asked| &mut asked.heard);
        let task = self.tasks.get_mut(&request).map(|task| &mut task.heard);
        for heard in asked.into_iter().chain(task) {
            *heard = Instant::now();
        }
    }

    /// Returns when a request, or a task, was last known to be under way.
    pub(super) fn heard(&self, request: u32) -> Option<Instant> {
        let asked = self.asked.get(&request).map(|asked| asked.heard);
        asked.or_else(|| self.tasks.get(&request).map(|task| task.heard))
    }

    /// Takes the answer to a request, which is over then.
    pub(super) fn take(&mut self, request: u32) -> Option<Answer> {
        let answer = self.asked.get_mut(&request)?.answer.take()?;
        self.asked.remove(&request);
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

    fn busy() -> SessionError {
        SessionError::Busy("ended".to_owned())
    }

    #[test]
    fn replies_that_are_not_waited_for_are_dropped() {
        let mut answers = Answers::default();
        for task in 0..100 {
            answers.begin(task);
            answers.forget(task);
            // A task that was cancelled reports that.
            answers.tell(task, TaskEvent::Finished);
            answers.fail(task, busy());
            answers.answer(task, Ok(Vec::new()));
            answers.is_at(task);
        }
        assert!(answers.asked.is_empty() && answers.tasks.is_empty());
    }

    #[test]
    fn what_is_waited_for_is_there_once() {
        let mut answers = Answers::default();
        answers.ask(1);
        answers.ask(2);
        answers.begin(3);
        assert_eq!(answers.take(1), None);
        answers.answer(1, Ok(vec![7]));
        answers.fail(2, busy());
        answers.fail(3, busy());
        assert_eq!(answers.take(1), Some(Ok(vec![7])));
        assert_eq!(answers.take(2), Some(Err(busy())));
        assert!(matches!(answers.take_event(3), Some(TaskEvent::Failed(_))));
        assert_eq!(answers.take(1), None);
        assert!(answers.asked.is_empty() && answers.tasks.is_empty());
    }

    #[test]
    fn a_node_that_is_at_it_is_heard_of() {
        let mut answers = Answers::default();
        answers.ask(1);
        answers.begin(2);
        for request in [1, 2] {
            let before = answers.heard(request).expect("it was asked");
            std::thread::sleep(std::time::Duration::from_millis(1));
            answers.is_at(request);
            assert!(answers.heard(request).expect("it goes on") > before);
        }
        assert_eq!(answers.heard(3), None);
    }
}
