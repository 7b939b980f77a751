//! Strangers, and readers that request what is not allowed.

use std::net::TcpStream;
use std::time::Duration;

use fabric::Secret;
use fabric::tcp::{Caller, CallerOptions, Transport};
use kumiki_pages::Error;
use kumiki_pages::node::Limits;
use kumiki_pages::remote::Session;

use crate::remote::support::{PATIENCE, Road, Stand, content, secret, until};

#[test]
fn a_peer_without_the_secret_is_refused() {
    let stand = Stand::new(&Road::new(Transport::Tcp));
    let mut options = stand.options();
    options.secret = Secret::new("another");
    let error = Session::connect(options).expect_err("it is another one");
    assert!(error.to_string().contains("secrets differ"), "{error}");
}

#[test]
fn a_missing_listener_is_reported_at_once() {
    let mut stand = Stand::new(&Road::new(Transport::Tcp));
    let options = stand.options();
    stand.node.take().unwrap().stop().unwrap();
    let error = Session::connect(options).expect_err("no process is there");
    assert!(matches!(error, Error::Lost(_)), "{error}");
}

#[test]
fn half_open_connections_keep_no_reader_out() {
    let stand = Stand::new(&Road::new(Transport::Tcp));
    let address = stand.node.as_ref().unwrap().address();
    let connect = |_| TcpStream::connect(address).unwrap();
    let _quiet: Vec<TcpStream> = (0..300).map(connect).collect();
    let mut session = stand.session();
    let open = session.open_file("file", 4096).unwrap();
    session.read(&open, 0, 3, 0);
    let page = until(&mut session, Session::next_page)
        .unwrap()
        .page
        .unwrap();
    assert_eq!(page.as_ref(), content(3, 4096));
}

#[test]
fn a_reader_beyond_its_limits_is_shown_out_and_told_why() {
    let limits = Limits {
        pages: 16,
        ..Limits::default()
    };
    let stand = Stand::with(&Road::new(Transport::Tcp), limits);
    let mut session = stand.session();
    let open = session.open_file("file", 4096).unwrap();
    for page in 0..64 {
        session.read(&open, 0, page, 0);
    }
    let error = until(&mut session, |_| None::<()>).expect_err("that was too much");
    assert!(error.to_string().contains("more than 16 pages"), "{error}");
    // Other readers do not notice.
    let mut other = stand.session();
    let open = other.open_file("file", 4096).unwrap();
    other.read(&open, 0, 3, 0);
    let page = until(&mut other, Session::next_page).unwrap().page.unwrap();
    assert_eq!(page.as_ref(), content(3, 4096));
}

#[test]
fn a_window_that_may_not_be_is_done_without() {
    let limits = Limits {
        window_bytes: 1 << 20,
        ..Limits::default()
    };
    let stand = Stand::with(&Road::new(Transport::Shm), limits);
    let mut session = stand.session();
    let open = session.open_file("file", 4096).unwrap();
    session.read(&open, 0, 3, 0);
    let page = until(&mut session, Session::next_page)
        .unwrap()
        .page
        .unwrap();
    assert_eq!(page.as_ref(), content(3, 4096));
}

#[test]
fn bytes_without_meaning_end_the_link_and_nothing_else() {
    let stand = Stand::new(&Road::new(Transport::Tcp));
    let mut other = stand.session();
    let open = other.open_file("file", 4096).unwrap();
    let address = stand.node.as_ref().unwrap().address();
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..200 {
        let mut caller = Caller::connect(address, &CallerOptions::new(secret())).unwrap();
        let mut message: Vec<u8> = (0..random.usize(0..40)).map(|_| random.u8(..)).collect();
        if let Some(first) = message.first_mut() {
            *first = random.u8(0..9);
        }
        let deadline = std::time::Instant::now() + Duration::from_millis(2);
        drop(caller.send(&message, deadline));
        drop(caller.receive(deadline));
    }
    other.read(&open, 0, 3, 0);
    let page = until(&mut other, Session::next_page).unwrap().page.unwrap();
    assert_eq!(page.as_ref(), content(3, 4096));
    let began = std::time::Instant::now();
    while other.status().unwrap().readers > 1 {
        assert!(began.elapsed() < PATIENCE, "who is gone is counted");
    }
}
