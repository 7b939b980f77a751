//! Links that many threads share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};

use fabric::tcp::Transport;
use kumiki_pages::Error;
use kumiki_pages::remote::session::TableHandle;
use kumiki_pages::remote::{LinkPool, LinkPoolOptions, PageLink, SharedReader};
use testkit::relay::Relay;

use crate::remote::support::{BYTES, PATIENCE, Road, Stand, content};

/// Bytes of the stack of a thread that reads.
const STACK: usize = 128 << 10;
/// How long readers wait for a node that is silent.
const SHORT: Duration = Duration::from_secs(2);

fn pool_options(stand: &Stand, connections: usize, threads: usize) -> LinkPoolOptions {
    LinkPoolOptions {
        session: stand.options(),
        connections,
        threads_per_connection: threads,
        stack_bytes: STACK,
    }
}

fn pool(stand: &Stand, connections: usize, threads: usize) -> LinkPool {
    LinkPool::new(pool_options(stand, connections, threads)).unwrap()
}

/// Runs `work` in many threads with small stacks.
fn in_threads<T: Send>(count: usize, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let start = |seed| {
            let thread = Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, move || work(seed)).unwrap()
        };
        let threads: Vec<ScopedJoinHandle<'_, T>> = (0..count as u64).map(start).collect();
        let join = |thread: ScopedJoinHandle<'_, T>| thread.join().unwrap();
        threads.into_iter().map(join).collect()
    })
}

/// Reads random pages, as many at a time as there is room for, and verifies each.
fn read_pages(
    reader: &mut SharedReader,
    open: &TableHandle,
    unit: usize,
    count: u64,
    seed: u64,
) -> Result<(), Error> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut asked, mut come) = (0, 0);
    let mut expected = HashMap::new();
    while come < count {
        while asked < count && reader.room(open) > 0 {
            let page = random.u32(0..open.pages as u32);
            reader.read(open, 0, page, asked);
            expected.insert(asked, page);
            asked += 1;
        }
        let begun = Instant::now();
        reader.turn(PATIENCE)?;
        assert!(begun.elapsed() < PATIENCE, "nothing has come");
        while let Some(arrived) = reader.next_page() {
            let page = expected.remove(&arrived.token).expect("it was asked for");
            assert_eq!(arrived.page.unwrap().as_ref(), content(page, unit));
            come += 1;
        }
        assert_eq!(reader.under_way(), expected.len());
    }
    Ok(())
}

pub(crate) fn threads_that_share_links_get_the_pages_that_they_asked_for(road: &Road) {
    let stand = Stand::new(road);
    let pool = pool(&stand, 3, 16);
    let ready = std::sync::Barrier::new(48);
    let readers = in_threads(48, |seed| {
        let unit = [512, 4096, 16 << 10][seed as usize % 3];
        let mut reader = pool.reader().unwrap();
        assert_eq!(reader.transport(), Some(stand.options().transport));
        let open = reader.open_file("file", unit).unwrap();
        assert_eq!(open.pages, (BYTES / unit) as u64);
        read_pages(&mut reader, &open, unit, 100, seed).unwrap();
        // All of them have a link at this moment.
        ready.wait();
        let figures = stand.node.as_ref().unwrap().figures();
        let readers = figures.readers.load(Ordering::Relaxed);
        ready.wait();
        readers
    });
    assert_eq!(readers, [3; 48]);
    let figures = stand.node.as_ref().unwrap().figures();
    assert_eq!(figures.pages.load(Ordering::Relaxed), 4800);
    drop(pool);
    testkit::eventually("the links are gone", || {
        figures.readers.load(Ordering::Relaxed) == 0
    });
}

/// Threads that together want more pages than a link may have under way wait for each other.
pub(crate) fn many_threads_share_a_link_of_few_pages(road: &Road) {
    let stand = Stand::new(road);
    let mut options = pool_options(&stand, 2, 100);
    options.session.depth = 8;
    options.session.window_bytes = 64 << 10;
    assert_eq!((options.reader_depth(), options.threads()), (1, 200));
    let pool = LinkPool::new(options).unwrap();
    in_threads(200, |seed| {
        let mut reader = pool.reader().unwrap();
        let open = reader.open_file("file", 4096).unwrap();
        read_pages(&mut reader, &open, 4096, 20, seed).unwrap();
    });
}

pub(crate) fn threads_that_end_early_hinder_no_others(road: &Road) {
    let stand = Stand::new(road);
    let mut options = pool_options(&stand, 1, 8);
    options.session.depth = 16;
    options.session.window_bytes = 16 * 4096;
    let pool = LinkPool::new(options).unwrap();
    in_threads(8, |seed| {
        for round in 0..20 {
            let mut reader = pool.reader().unwrap();
            let open = reader.open_file("file", 4096).unwrap();
            if seed % 2 == 0 {
                read_pages(&mut reader, &open, 4096, 20, seed).unwrap();
                continue;
            }
            // Some of its pages are under way, or wait, when it ends.
            for page in 0..reader.room(&open) {
                reader.read(&open, 0, page as u32, 0);
            }
            if round % 2 == 0 {
                reader.turn(Duration::ZERO).unwrap();
            }
        }
    });
    // The one link has all of its places again.
    let readers: Vec<SharedReader> = (0..8).map(|_| pool.reader().unwrap()).collect();
    let figures = stand.node.as_ref().unwrap().figures();
    assert_eq!(figures.readers.load(Ordering::Relaxed), 1);
    let error = pool.reader().expect_err("all places are taken");
    assert!(matches!(error, Error::Busy(_)), "{error}");
    assert!(error.to_string().contains("8 threads each"), "{error}");
    drop(readers);
    let mut reader = pool.reader().unwrap();
    let open = reader.open_file("file", 4096).unwrap();
    read_pages(&mut reader, &open, 4096, 100, 9).unwrap();
}

pub(crate) fn failed_opens_and_reads_are_reported_to_the_threads_that_asked(road: &Road) {
    let stand = Stand::new(road);
    let pool = pool(&stand, 1, 16);
    in_threads(16, |seed| {
        let mut reader = pool.reader().unwrap();
        if seed % 2 == 0 {
            let error = reader.open_file("other", 4096).expect_err("there is none");
            assert!(matches!(error, Error::Refused(_)), "{error}");
        }
        let open = reader.open_file("file", 4096).unwrap();
        if seed % 4 == 0 {
            reader.read(&open, 0, open.pages as u32, 7);
            reader.turn(PATIENCE).unwrap();
            let arrived = reader.next_page().expect("an answer");
            let error = arrived.page.expect_err("there is no such page");
            assert!(error.to_string().contains("there is no page"), "{error}");
        }
        read_pages(&mut reader, &open, 4096, 50, seed).unwrap();
    });
}

pub(crate) fn a_lost_link_fails_all_of_its_threads(road: &Road) {
    let mut stand = Stand::new(road);
    let pool = pool(&stand, 2, 8);
    let reading = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..16)
        .map(|seed| {
            let mut reader = pool.reader().unwrap();
            let reading = Arc::clone(&reading);
            std::thread::spawn(move || {
                let open = reader.open_file("file", 4096).unwrap();
                read_pages(&mut reader, &open, 4096, 50, seed).unwrap();
                reading.fetch_add(1, Ordering::Relaxed);
                let error = read_pages(&mut reader, &open, 4096, u64::MAX, seed);
                let later = reader.turn(Duration::ZERO);
                let other = reader.open_file("file", 512).map(drop);
                [error, later, other]
            })
        })
        .collect();
    testkit::eventually("all read", || reading.load(Ordering::Relaxed) == 16);
    let session = stand.session();
    stand.node.take().unwrap().stop().unwrap();
    for thread in threads {
        for result in thread.join().unwrap() {
            let error = result.expect_err("the node is gone");
            assert!(matches!(error, Error::Lost(_)), "{error}");
            // The text of a session's error.
            let named = format!("storage node {}: ", session.address());
            assert!(error.to_string().starts_with(&named), "{error}");
        }
    }
    let error = pool.reader().expect_err("no link can be made");
    assert!(matches!(error, Error::Lost(_)), "{error}");
}

/// Threads sleep while a node says nothing, and all of them hear that it is given up.
#[test]
fn a_silent_node_is_given_up_by_all_threads() {
    let stand = Stand::new(&Road::new(Transport::Tcp));
    let is_silent = Arc::new(AtomicBool::new(false));
    let silent = Arc::clone(&is_silent);
    let relay = Relay::start(stand.options().address, move |_| {
        while silent.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let relay = relay.unwrap();
    let mut options = pool_options(&stand, 1, 32);
    options.session.address = relay.address();
    options.session.patience = SHORT;
    let pool = LinkPool::new(options).unwrap();
    let mut readers: Vec<_> = (0..32)
        .map(|_| {
            let mut reader = pool.reader().unwrap();
            let open = reader.open_file("file", 4096).unwrap();
            (reader, open)
        })
        .collect();
    is_silent.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for (page, (reader, open)) in readers.iter_mut().enumerate() {
            scope.spawn(move || {
                reader.read(open, 0, page as u32, 0);
                let error = reader.turn(PATIENCE).expect_err("nothing comes");
                assert!(matches!(error, Error::Lost(_)), "{error}");
                let text = error.to_string();
                assert!(text.contains("no page has come in 2s"), "{text}");
            });
        }
    });
    is_silent.store(false, Ordering::Relaxed);
    drop(readers);
    // The next thread gets another link.
    let mut reader = pool.reader().unwrap();
    let open = reader.open_file("file", 4096).unwrap();
    read_pages(&mut reader, &open, 4096, 50, 1).unwrap();
    drop((reader, pool));
}

#[test]
fn a_node_that_is_not_there_is_reported_to_all_threads() {
    let mut stand = Stand::new(&Road::new(Transport::Tcp));
    let pool = pool(&stand, 4, 8);
    stand.node.take().unwrap().stop().unwrap();
    for error in in_threads(32, |_| pool.reader().map(drop)) {
        let error = error.expect_err("no process is there");
        assert!(matches!(error, Error::Lost(_)), "{error}");
    }
}

#[test]
fn numbers_beyond_the_limits_are_refused() {
    let stand = Stand::new(&Road::new(Transport::Tcp));
    for (connections, threads, said) in [
        (0, 1, "1 to 1024 connections"),
        (1025, 1, "1 to 1024 connections"),
        (1, 0, "at least one thread"),
        // More than any machine has.
        (1000, usize::MAX >> 12, "of memory, and"),
    ] {
        let options = pool_options(&stand, connections, threads);
        let error = LinkPool::new(options).expect_err("too much, or nothing");
        assert!(matches!(error, Error::Options(_)), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

/// As many connections as figures 4.12 to 4.17 have, with some threads each.
#[test]
fn a_hundred_connections_serve_a_thousand_threads() {
    let stand = Stand::new(&Road::new(Transport::Tcp));
    let mut options = pool_options(&stand, 100, 10);
    options.session.depth = 10;
    options.session.window_bytes = 64 << 10;
    let pool = LinkPool::new(options).unwrap();
    in_threads(1000, |seed| {
        let mut reader = pool.reader().unwrap();
        let open = reader.open_file("memory", 4096).unwrap();
        read_pages(&mut reader, &open, 4096, 5, seed).unwrap();
    });
    let mut session = stand.session();
    let readers = session.status().unwrap().readers;
    assert_eq!(readers, 101);
}
