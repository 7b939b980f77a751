//! Limits: messages that are too long, replies that are not read, credit without end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fabric::tcp::{Caller, CallerOptions, Transport};
use kumiki_pages::Version;
use kumiki_pages::node::{Limits, NoWorker, NodeStorage, OpenTable};
use kumiki_pages::remote::session::TaskEvent;
use kumiki_pages::remote::{ListedTable, Session};
use kumiki_pages::{Error, FormatError};

use crate::remote::support::{
    PATIENCE, Road, Stand, content, secret, serve, session_options, until,
};

/// Bytes of the longest message, where that matters.
const MESSAGE: usize = 64 << 10;

fn short() -> Limits {
    Limits {
        message: MESSAGE,
        ..Limits::default()
    }
}

/// Returns the events of a task, to its end.
fn events(session: &mut Session, task: u32) -> Vec<TaskEvent> {
    let mut events = Vec::new();
    loop {
        events.push(until(session, |session| session.next_event(task)).unwrap());
        if !matches!(events.last(), Some(TaskEvent::Batch(_))) {
            return events;
        }
    }
}

/// Rows that cannot be sent are not left out silently.
pub(crate) fn a_batch_that_is_too_long_fails_its_task(road: &Road) {
    let stand = Stand::with(road, short());
    let mut session = stand.session();
    let open = session.open_file("file", 4096).unwrap();
    for (bytes, fits) in [
        (MESSAGE / 2, true),
        (MESSAGE, false),
        (100 * MESSAGE, false),
    ] {
        let task = format!("large {bytes}");
        let task = session.run(&open, 16, task.as_bytes()).unwrap();
        let mut events = events(&mut session, task);
        match events.pop() {
            Some(TaskEvent::Finished) => assert!(fits && events.len() == 3, "{bytes} bytes"),
            Some(TaskEvent::Failed(Error::Refused(text))) => {
                assert!(!fits && events.len() == 1, "{bytes} bytes");
                assert!(text.contains("longer than messages may be"), "{text}");
            }
            other => panic!("{bytes} bytes: {other:?}"),
        }
    }
    // The node works as before.
    let task = session.run(&open, 2, b"count 1").unwrap();
    assert_eq!(events(&mut session, task).len(), 2);
}

/// A storage whose list of tables exceeds a message.
struct Verbose;

impl NodeStorage for Verbose {
    fn tables(&self) -> Result<Vec<u8>, Error> {
        let name = "t".to_owned();
        let found = Err(FormatError("x".repeat(2 * MESSAGE)));
        Ok(ListedTable::encode(&[ListedTable { name, found }]))
    }

    fn open(&self, name: &str, _: Version) -> Result<Arc<OpenTable>, Error> {
        let text = format!("there is no table {name}");
        Err(Error::Refused(text.repeat(MESSAGE)))
    }

    fn file(&self, _: &str, _: usize) -> Result<Arc<OpenTable>, Error> {
        Err(Error::Refused("no files are shown".to_owned()))
    }
}

pub(crate) fn an_answer_that_is_too_long_is_told(road: &Road) {
    let node = serve(road, Arc::new(Verbose), Arc::new(NoWorker), short());
    let mut session = Session::connect(session_options(road, &node)).unwrap();
    let error = session.tables().unwrap_err();
    assert!(
        error.to_string().contains("longer than messages"),
        "{error}"
    );
    let error = session.open("t", Version(0)).unwrap_err();
    assert!(error.to_string().contains("no table t"), "{error}");
    assert!(session.status().is_ok());
}

#[test]
fn a_reader_that_asks_and_never_reads_is_closed() {
    let limits = Limits {
        inline_bytes: 4 << 10,
        overflow: 256 << 10,
        ..Limits::default()
    };
    let stand = Stand::with(&Road::new(Transport::Tcp), limits);
    let node = stand.node.as_ref().unwrap();
    let mut options = CallerOptions::new(secret());
    options.transport = Transport::Tcp;
    let mut caller = Caller::connect(node.address(), &options).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let readers = || node.figures().readers.load(Ordering::Relaxed);
    let mut asked = 0_u32;
    // The question how busy the node is: 6 bytes, with an answer of 70.
    let message = |request: u32| [&[2][..], &request.to_le_bytes(), &[3]].concat();
    while caller.send(&message(asked), deadline).is_ok() && (asked < 1000 || readers() > 0) {
        asked += 1;
        assert!(asked < 2_000_000, "it answers a client that does not read");
    }
    testkit::eventually("its connection is closed", || readers() == 0);
    // Other readers do not notice.
    let mut other = stand.session();
    let open = other.open_file("file", 4096).unwrap();
    other.read(&open, 0, 3, 0);
    let page = until(&mut other, Session::next_page).unwrap().page.unwrap();
    assert_eq!(page.as_ref(), content(3, 4096));
}

/// The limit holds for any credit that a reader gives.
pub(crate) fn credit_has_an_end(road: &Road) {
    let limits = Limits {
        credit: 5,
        ..Limits::default()
    };
    let stand = Stand::with(road, limits);
    let mut session = stand.session();
    let open = session.open_file("file", 4096).unwrap();
    let task = session.run(&open, u32::MAX, b"count 1000000").unwrap();
    let mut batches = 0;
    let deadline = Instant::now() + Duration::from_millis(300);
    while Instant::now() < deadline {
        session.turn(Duration::from_millis(10)).unwrap();
        while let Some(event) = session.next_event(task) {
            assert!(matches!(event, TaskEvent::Batch(_)), "{event:?}");
            batches += 1;
        }
    }
    assert_eq!(batches, 5);
    session.give_credit(task, 1).unwrap();
    until(&mut session, |session| session.next_event(task)).unwrap();
    session.cancel(task).unwrap();
}
