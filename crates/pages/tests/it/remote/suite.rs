//! Cases that hold over every transport.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use disk::reads::ReadMethod;
use kumiki_pages::Error;
use kumiki_pages::node::Limits;
use kumiki_pages::remote::Session;
use kumiki_pages::remote::session::{TableHandle, TaskEvent};

use crate::remote::support::{BYTES, PATIENCE, Road, Stand, content, until};

/// Reads random pages, as many at a time as there is room for, and verifies each.
fn read_pages(session: &mut Session, open: &TableHandle, unit: usize, count: u64, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut asked, mut come) = (0, 0);
    let mut expected = HashMap::new();
    while come < count {
        while asked < count && session.room(open) > 0 {
            let page = random.u32(0..open.pages as u32);
            session.read(open, 0, page, asked);
            expected.insert(asked, page);
            asked += 1;
        }
        let arrived = until(session, Session::next_page).unwrap();
        let page = expected.remove(&arrived.token).expect("it was asked for");
        let landed = arrived.page.unwrap();
        assert_eq!(landed.as_ref(), content(page, unit), "page {page}");
        come += 1;
    }
    assert_eq!((session.under_way(), expected.len()), (0, 0));
}

pub(crate) fn pages_come_as_they_are(road: &Road) {
    let stand = Stand::new(road);
    let mut session = stand.session();
    let open = session.open_file("file", 4096).unwrap();
    assert_eq!(open.pages, (BYTES / 4096) as u64);
    read_pages(&mut session, &open, 4096, 5000, 1);
    let figures = stand.node.as_ref().unwrap().figures();
    assert_eq!(figures.pages.load(Ordering::Relaxed), 5000);
    assert_eq!(figures.bytes.load(Ordering::Relaxed), 5000 * 4096);
    let condition = session.status().unwrap();
    assert_eq!((condition.waiting, condition.readers), (0, 1));
    assert!(!condition.read.is_zero());
}

pub(crate) fn pages_of_all_sizes_come_on_one_session(road: &Road) {
    let stand = Stand::new(road);
    let mut session = stand.session();
    for unit in [512, 4 << 10, 16 << 10, 64 << 10, 128 << 10] {
        let open = session.open_file("file", unit).unwrap();
        read_pages(&mut session, &open, unit, 300, unit as u64);
        session.close(&open).unwrap();
    }
}

pub(crate) fn pages_are_read_in_every_way(road: &Road) {
    for way in [
        ReadMethod::Inline,
        ReadMethod::IoUring,
        ReadMethod::ThreadPerRead,
    ] {
        let stand = Stand::reading(road, Limits::default(), way);
        let mut sessions = [stand.session(), stand.session()];
        for (session, unit) in sessions.iter_mut().zip([512, 16 << 10]) {
            let open = session.open_file("file", unit).unwrap();
            read_pages(session, &open, unit, 500, 3);
        }
        drop(sessions);
        // A later reader finds that the other readers' windows were released.
        let mut session = stand.session();
        let open = session.open_file("file", 4096).unwrap();
        read_pages(&mut session, &open, 4096, 500, 4);
    }
}

pub(crate) fn memory_is_shown_as_files_are(road: &Road) {
    let stand = Stand::new(road);
    let mut session = stand.session();
    for unit in [512, 128 << 10] {
        let open = session.open_file("memory", unit).unwrap();
        assert_eq!(open.pages, (BYTES / unit) as u64);
        read_pages(&mut session, &open, unit, 2000, unit as u64);
    }
    let open = session.open_file("memory", 4096).unwrap();
    session.read(&open, 0, open.pages as u32, 7);
    let arrived = until(&mut session, Session::next_page).unwrap();
    assert!(
        arrived
            .page
            .unwrap_err()
            .to_string()
            .contains("there is no page")
    );
    let figures = stand.node.as_ref().unwrap().figures();
    assert_eq!(figures.pages.load(Ordering::Relaxed), 4000);
}

pub(crate) fn what_is_not_there_is_told(road: &Road) {
    let stand = Stand::new(road);
    let mut session = stand.session();
    for (name, unit, said) in [
        ("other", 4096, "no file is shown as other"),
        ("file", 1000, "take 512 to 131072"),
        ("file", 1 << 20, "take 512 to 131072"),
    ] {
        let error = session.open_file(name, unit).expect_err("there is none");
        assert!(matches!(error, Error::Refused(_)), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    let error = session.open("lineitem", kumiki_pages::Version(0));
    let error = error.expect_err("there are files alone");
    assert!(error.to_string().contains("no table lineitem"), "{error}");
    let open = session.open_file("file", 4096).unwrap();
    session.read(&open, 0, open.pages as u32, 7);
    session.read(&open, 0, 0, 8);
    for _ in 0..2 {
        let arrived = until(&mut session, Session::next_page).unwrap();
        match arrived.token {
            7 => assert!(
                arrived
                    .page
                    .unwrap_err()
                    .to_string()
                    .contains("there is no page")
            ),
            _ => assert_eq!(arrived.page.unwrap().as_ref(), content(0, 4096)),
        }
    }
    // None of that has done harm.
    read_pages(&mut session, &open, 4096, 100, 2);
}

pub(crate) fn many_readers_have_their_own(road: &Road) {
    let stand = Stand::new(road);
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let options = stand.options();
            scope.spawn(move || {
                let mut session = Session::connect(options).unwrap();
                let open = session.open_file("file", 8192).unwrap();
                read_pages(&mut session, &open, 8192, 1000, seed);
            });
        }
    });
}

pub(crate) fn a_reader_that_keeps_pages_gets_all_others(road: &Road) {
    let stand = Stand::new(road);
    let mut options = stand.options();
    options.window_bytes = 64 * 4096;
    let mut session = Session::connect(options).unwrap();
    let open = session.open_file("file", 4096).unwrap();
    let mut kept: HashMap<u64, Bytes> = HashMap::new();
    let mut asked = 0;
    while kept.len() < 640 {
        while asked < 640 && session.room(&open) > 0 {
            session.read(&open, 0, asked as u32, asked);
            asked += 1;
        }
        let arrived = until(&mut session, Session::next_page).unwrap();
        kept.insert(arrived.token, arrived.page.unwrap().into());
    }
    for (page, bytes) in &kept {
        assert_eq!(bytes[..], content(*page as u32, 4096), "page {page}");
    }
    // The pages outlive the session and the node.
    drop((session, stand));
    assert_eq!(kept[&0][..], content(0, 4096));
}

pub(crate) fn a_node_that_stops_is_noticed(road: &Road) {
    let mut stand = Stand::new(road);
    let mut session = stand.session();
    let open = session.open_file("file", 4096).unwrap();
    for page in 0..50 {
        session.read(&open, 0, page, 0);
    }
    stand.node.take().unwrap().stop().unwrap();
    let began = Instant::now();
    let error = loop {
        assert!(began.elapsed() < PATIENCE, "nothing is noticed");
        if let Err(error) = session.turn(Duration::from_millis(50)) {
            break error;
        }
    };
    assert!(matches!(error, Error::Lost(_)), "{error}");
    let error = session.tables().expect_err("it is gone");
    assert!(matches!(error, Error::Lost(_)), "{error}");
}

/// Returns a task's next event.
fn event(session: &mut Session, task: u32) -> TaskEvent {
    until(session, |session| session.next_event(task)).unwrap()
}

pub(crate) fn tasks_send_what_they_have_as_it_is_wanted(road: &Road) {
    let stand = Stand::new(road);
    let mut session = stand.session();
    let open = session.open_file("file", 4096).unwrap();
    let task = session.run(&open, 3, b"count 10").unwrap();
    for number in 0..10 {
        if number >= 3 {
            // All the credit is used up: no batch comes without more.
            session.turn(Duration::from_millis(20)).unwrap();
            assert!(
                session.next_event(task).is_none(),
                "batch {number} was not wanted"
            );
            session.give_credit(task, 1).unwrap();
        }
        let TaskEvent::Batch(batch) = event(&mut session, task) else {
            panic!("no batch {number}");
        };
        assert_eq!(batch, format!("{number} of 4096"));
    }
    assert!(matches!(event(&mut session, task), TaskEvent::Finished));
    assert!(session.next_event(task).is_none());
}

pub(crate) fn a_task_that_is_cancelled_ends(road: &Road) {
    let stand = Stand::new(road);
    let mut session = stand.session();
    let open = session.open_file("file", 4096).unwrap();
    let task = session.run(&open, 1, b"count 1000000").unwrap();
    assert!(matches!(event(&mut session, task), TaskEvent::Batch(_)));
    session.cancel(task).unwrap();
    until(&mut session, |_| {
        stand.ended.load(Ordering::Acquire).then_some(())
    })
    .unwrap();
    // And so does a task without results so far; if a busy machine had not begun it, the next one.
    stand.ended.store(false, Ordering::Release);
    let mut ends = || {
        let task = session.run(&open, 1, b"work long").unwrap();
        session.turn(Duration::from_millis(50)).unwrap();
        session.cancel(task).unwrap();
        let began = Instant::now();
        while !stand.ended.load(Ordering::Acquire) && began.elapsed() < PATIENCE / 30 {
            session.turn(Duration::from_millis(10)).unwrap();
        }
        stand.ended.load(Ordering::Acquire)
    };
    assert!((0..30).any(|_| ends()), "it goes on");
    // And so does a task whose reader leaves.
    stand.ended.store(false, Ordering::Release);
    let task = session.run(&open, 1, b"count 1000000").unwrap();
    assert!(matches!(event(&mut session, task), TaskEvent::Batch(_)));
    drop(session);
    let began = Instant::now();
    while !stand.ended.load(Ordering::Acquire) {
        assert!(began.elapsed() < PATIENCE, "it goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn a_task_without_an_end_says_why(road: &Road) {
    let stand = Stand::new(road);
    let mut session = stand.session();
    let open = session.open_file("file", 4096).unwrap();
    for text in [
        "refuse this",
        "value lost",
        "page torn",
        "busy now",
        "untaken results",
        "panic",
    ] {
        let task = session.run(&open, 1, text.as_bytes()).unwrap();
        let TaskEvent::Failed(error) = event(&mut session, task) else {
            panic!("{text} has an end");
        };
        let (kind, said) = text.split_once(' ').unwrap_or(("refuse", "panic"));
        let right = match kind {
            "value" => matches!(error, Error::Value(_)),
            "page" => matches!(error, Error::Page(_)),
            "busy" => matches!(error, Error::Busy(_)),
            "untaken" => matches!(error, Error::ResultsNotTaken(_)),
            _ => matches!(error, Error::Refused(_)),
        };
        assert!(right && error.to_string().contains(said), "{text}: {error}");
    }
    // The node works as before.
    let task = session.run(&open, 2, b"count 1").unwrap();
    assert!(matches!(event(&mut session, task), TaskEvent::Batch(_)));
    assert!(matches!(event(&mut session, task), TaskEvent::Finished));
}

pub(crate) fn a_node_that_stops_ends_its_tasks(road: &Road) {
    let mut stand = Stand::new(road);
    let mut session = stand.session();
    let open = session.open_file("file", 4096).unwrap();
    let task = session.run(&open, 1, b"count 1000000").unwrap();
    assert!(matches!(event(&mut session, task), TaskEvent::Batch(_)));
    // The node does not wait for a task without results either.
    session.run(&open, 1, b"work long").unwrap();
    session.turn(Duration::from_millis(50)).unwrap();
    stand.node.take().unwrap().stop().unwrap();
    assert!(stand.ended.load(Ordering::Acquire));
    // The cancelled task is not taken for complete.
    let error = loop {
        match session.next_event(task) {
            Some(TaskEvent::Failed(error)) => break error,
            Some(TaskEvent::Finished) => panic!("it has not finished"),
            Some(TaskEvent::Batch(_)) => {}
            None => {
                if let Err(error) = session.turn(Duration::from_millis(50)) {
                    break error;
                }
            }
        }
    };
    let told = matches!(error, Error::Lost(_) | Error::Busy(_));
    assert!(told, "{error}");
}
