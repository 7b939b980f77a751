//! A node whose threads fail.

use std::sync::mpsc::channel;
use std::time::Duration;

use disk::reads::ReadMethod;
use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::Transport;

use super::*;
use crate::error::Error;
use crate::remote::{Session, SessionOptions};

/// Far longer than any step takes here.
const PATIENCE: Duration = Duration::from_secs(60);

fn node() -> Node {
    let options = NodeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        secret: Secret::new("s"),
        threads: 2,
        task_threads: 1,
        way: ReadMethod::Inline,
        depth: 16,
        transport: Transport::Tcp,
        encryption: fabric::tcp::Encryption::Auto,
        shm: Shm::default(),
        verbs: None,
        limits: Limits::default(),
    };
    Node::start(options, Arc::new(ShownFiles::default()), Arc::new(NoWorker)).unwrap()
}

fn session(node: &Node) -> Result<Session, Error> {
    let mut options = SessionOptions::new(node.address(), Secret::new("s"));
    options.transport = Transport::Tcp;
    options.patience = PATIENCE;
    Session::connect(options)
}

#[test]
fn a_thread_that_fails_ends_the_node_with_its_error() {
    let mut node = node();
    let mut reader = session(&node).unwrap();
    let (failed, told) = channel();
    node.on_failure(move || failed.send(()).unwrap());
    let failing = || Err(io::Error::other("no memory for pages"));
    node.spawn("failing".to_owned(), failing).unwrap();
    told.recv_timeout(PATIENCE).expect("it is told");
    // The reader does not wait for a node that has failed.
    let lost = std::iter::repeat_with(|| reader.turn(Duration::from_millis(10)));
    let lost = lost.take(6000).find_map(Result::err);
    assert!(matches!(lost, Some(Error::Lost(_))), "{lost:?}");
    // Each thread ends by itself; after that no reader is accepted.
    let refused = std::iter::repeat_with(|| session(&node).is_err());
    let refused = refused.inspect(|_| std::thread::sleep(Duration::from_millis(10)));
    assert!(refused.take(600).any(|refused| refused));
    // A function that is registered later is called, too.
    let (failed, told) = channel();
    node.on_failure(move || failed.send(()).unwrap());
    told.recv_timeout(PATIENCE).expect("it is told at once");
    let error = node.stop().expect_err("it has failed").to_string();
    assert!(error.contains("no memory for pages"), "{error}");
}

#[test]
fn a_thread_that_panics_ends_the_node() {
    let mut node = node();
    let (failed, told) = channel();
    node.on_failure(move || failed.send(()).unwrap());
    node.spawn("failing".to_owned(), || panic!("a bug"))
        .unwrap();
    told.recv_timeout(PATIENCE).expect("it is told");
    let error = node.stop().expect_err("it has failed").to_string();
    assert!(error.contains("panicked"), "{error}");
}
