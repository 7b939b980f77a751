//! What happens to tasks when the node ends, and to credit.

use bytes::Bytes;
use reactor::{Network, Sockets};

use super::*;

/// Makes tasks without threads: these tests run them.
fn tasks() -> TaskPool {
    TaskPool {
        queue: Mutex::default(),
        arrived: Condvar::new(),
        ending: AtomicBool::new(false),
        running: Mutex::default(),
        worker: Arc::new(Silent),
        state: Arc::new(NodeState::new()),
        threads: Mutex::default(),
    }
}

/// A worker without results.
struct Silent;

impl TaskRunner for Silent {
    fn run(&self, _: &Arc<OpenTable>, _: &[u8], _: &mut dyn Output) -> Result<(), Error> {
        Ok(())
    }
}

fn job(network: &mut Sockets) -> TaskJob {
    let waker = network.waker().unwrap();
    TaskJob {
        opened: Arc::new(OpenTable {
            table: None,
            description: Bytes::new(),
            unit: 512,
            extents: Vec::new(),
            kept: None,
        }),
        task: Vec::new(),
        control: TaskControl::with_credit(1, 1),
        to: ReplyAddress {
            reader: 0,
            generation: 0,
            request: 0,
        },
        mailbox: Arc::new(Mailbox::new(Arc::new(waker))),
    }
}

#[test]
fn what_was_not_done_is_not_finished() {
    let (tasks, mut network) = (tasks(), Sockets::open().unwrap());
    let job = job(&mut network);
    assert!(matches!(tasks.run(&job), Notification::Finished));
    job.control.cancel();
    let notifications = tasks.run(&job);
    assert!(
        matches!(notifications, Notification::Failed(Error::Busy(_))),
        "a reader would take {notifications:?} for a result"
    );
}

#[test]
fn a_task_that_begins_while_the_node_ends_is_cancelled() {
    let (tasks, mut network) = (tasks(), Sockets::open().unwrap());
    let job = job(&mut network);
    // It was in the queue, and not among the tasks that run.
    tasks.end();
    tasks.register(&job);
    assert!(job.control.is_cancelled());
}

#[test]
fn credit_is_at_most_that_of_the_node() {
    let control = TaskControl::with_credit(u32::MAX, 3);
    control.add_credit(u32::MAX);
    for left in (0..3).rev() {
        assert!(control.take(PATIENCE));
        assert_eq!(control.credit(), left);
    }
    control.add_credit(1);
    assert_eq!(control.credit(), 1);
}

/// Another node would wait as long again.
#[test]
fn a_task_whose_results_are_not_taken_reports_it() {
    let (tasks, mut network) = (tasks(), Sockets::open().unwrap());
    let job = job(&mut network);
    assert!(job.control.take(Duration::ZERO), "it has credit for one");
    assert!(!job.control.take(Duration::from_millis(1)));
    let notifications = tasks.run(&job);
    let Notification::Failed(Error::ResultsNotTaken(text)) = &notifications else {
        panic!("a reader would take {notifications:?} for a node that is lost");
    };
    assert!(text.contains("120 s"), "{text}");
    // Credit that comes too late does not bring the task back.
    job.control.add_credit(1);
    assert!(!job.control.take(Duration::ZERO));
}
