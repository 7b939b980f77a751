//! Clients that block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::NodeId;
use kumiki_fabric as fabric;

use fabric::frame::RefusalCode;
use fabric::tcp::{CallError, Caller, CallerOptions, Transport};
use fabric::{Messages, Secret};

use crate::conformance::net::{End, Happened, Net, Party};
use crate::conformance::tcp::Loopback;

/// A node on a thread of its own, which sends back each message. It does not answer `silence`, and
/// ends the connection on `close`.
struct Echo {
    net: Loopback,
    transport: Transport,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn over(transport: Transport) -> Echo {
        Echo::on(Loopback::over(transport), transport)
    }

    fn on(mut net: Loopback, transport: Transport) -> Echo {
        let mut node = Party::new(net.node(2));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let serve = move || {
            while !stopped.load(Ordering::Relaxed) {
                node.turn();
                for (link, happened) in std::mem::take(&mut node.log) {
                    match happened {
                        Happened::Message(bytes) if bytes == b"silence" => {}
                        Happened::Message(bytes) if bytes == b"close" => node.end.close(link),
                        Happened::Message(bytes) => node.send(link, &bytes),
                        _ => {}
                    }
                }
                node.end.flush();
                std::thread::sleep(Duration::from_micros(100));
            }
        };
        Echo {
            net,
            transport,
            stop,
            thread: Some(std::thread::spawn(serve)),
        }
    }

    fn options(&self) -> CallerOptions {
        let mut options = CallerOptions::new(Secret::new("the suite's"));
        options.transport = self.transport;
        options.encryption = self.net.encryption();
        options.shm = self.net.shm();
        options.verbs = self.net.domain();
        options
    }

    fn connect(&self, options: &CallerOptions) -> Result<Caller, CallError> {
        Caller::connect(self.net.address(2), options)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking());
    }
}

/// Makes a test of each case, for each way of messages.
macro_rules! both_ways {
    ($($case:ident)*) => {
        mod over_tcp {
            $(#[test]
            fn $case() {
                super::$case(super::Echo::over(super::Transport::Tcp));
            })*
        }
        mod over_shm {
            $(#[test]
            fn $case() {
                super::$case(super::Echo::over(super::Transport::Shm));
            })*
        }
        mod over_encrypted_tcp {
            $(#[test]
            fn $case() {
                let net = super::Loopback::encrypted(super::Transport::Tcp);
                super::$case(super::Echo::on(net, super::Transport::Tcp));
            })*
        }
        mod over_encrypted_shm {
            $(#[test]
            fn $case() {
                let net = super::Loopback::encrypted(super::Transport::Shm);
                super::$case(super::Echo::on(net, super::Transport::Shm));
            })*
        }
        mod over_verbs {
            $(#[test]
            fn $case() {
                if let Some(net) = super::Loopback::over_verbs(super::Transport::Verbs) {
                    super::$case(super::Echo::on(net, super::Transport::Verbs));
                }
            })*
        }
        mod over_emulated_send_receive {
            $(#[test]
            fn $case() {
                super::$case(super::Echo::over(super::Transport::ShmSend));
            })*
        }
        mod over_verbs_send_receive {
            $(#[test]
            fn $case() {
                if let Some(net) = super::Loopback::over_verbs(super::Transport::VerbsSend) {
                    super::$case(super::Echo::on(net, super::Transport::VerbsSend));
                }
            })*
        }
    };
}

both_ways! {
    a_caller_learns_whom_it_calls_and_is_answered
    a_caller_is_refused_with_a_reason
    a_caller_does_not_wait_for_ever
    a_caller_waits_as_long_as_it_is_told
    a_caller_notices_the_end
    a_caller_reads_what_was_sent_before_the_end
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn a_caller_learns_whom_it_calls_and_is_answered(echo: Echo) {
    let mut caller = echo.connect(&echo.options()).unwrap();
    assert_eq!((caller.node(), caller.cluster()), (NodeId(2), 7));
    assert_eq!(caller.transport(), echo.transport);
    for len in [0, 1, 100, 70_000, 5 << 20, 3] {
        let message = vec![len as u8 | 1; len];
        caller.send(&message, soon()).unwrap();
        assert!(caller.receive(soon()).unwrap() == message);
        assert!(caller.is_quiet());
    }
    // Answers that came together are returned one by one.
    for number in 0..100_u8 {
        caller.send(&[number], soon()).unwrap();
    }
    let until = soon();
    while caller.is_quiet() {
        assert!(Instant::now() < until, "there is something to receive");
        std::thread::sleep(Duration::from_millis(1));
    }
    for number in 0..100_u8 {
        assert_eq!(caller.receive(soon()).unwrap(), [number]);
    }
}

fn a_caller_is_refused_with_a_reason(echo: Echo) {
    let mut wrong = echo.options();
    wrong.secret = Secret::new("wrong");
    let mut elsewhere = echo.options();
    elsewhere.cluster = Some(9);
    let mut mistaken = echo.options();
    mistaken.node = Some(NodeId(1));
    let expected = [RefusalCode::Secret, RefusalCode::Cluster, RefusalCode::Node];
    for (options, code) in [wrong, elsewhere, mistaken].iter().zip(expected) {
        let error = echo.connect(options).unwrap_err();
        assert!(error.is_final(), "{error}");
        assert!(error.to_string().contains("cluster file"), "{error}");
        assert!(matches!(error, CallError::Refused { refused, .. } if refused.code == code));
    }
}

fn a_caller_does_not_wait_for_ever(echo: Echo) {
    let mut caller = echo.connect(&echo.options()).unwrap();
    caller.send(b"silence", soon()).unwrap();
    let begun = Instant::now();
    let limit = Duration::from_millis(100);
    let error = caller.receive(begun + limit).unwrap_err();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
    assert!((limit..limit * 20).contains(&begun.elapsed()));
    assert!(!caller.is_quiet(), "an answer may still come");
    assert!(!error.is_final());
}

/// Deadlines are kept from call to call, independent of the previous one.
fn a_caller_waits_as_long_as_it_is_told(echo: Echo) {
    for limits in [[30, 40, 70], [70, 40, 30]] {
        let mut caller = echo.connect(&echo.options()).unwrap();
        for limit in limits.map(Duration::from_millis) {
            caller.send(b"x", Instant::now() + limit * 200).unwrap();
            caller.receive(Instant::now() + limit * 200).unwrap();
        }
        caller.send(b"silence", soon()).unwrap();
        let limit = Duration::from_millis(limits[2]);
        let begun = Instant::now();
        assert!(caller.receive(begun + limit).is_err());
        assert!((limit..limit * 60).contains(&begun.elapsed()));
    }
}

fn a_caller_notices_the_end(echo: Echo) {
    let mut caller = echo.connect(&echo.options()).unwrap();
    caller.send(b"close", soon()).unwrap();
    let error = caller.receive(soon()).unwrap_err();
    assert!(matches!(error, CallError::Broken { .. }), "{error}");
    assert!(!caller.is_quiet());
    assert!(caller.send(b"?", soon()).is_err());
    let too_long = vec![0; 10];
    let mut short = echo.options();
    short.limits.message = 9;
    let mut caller = echo.connect(&short).unwrap();
    let error = caller.send(&too_long, soon()).unwrap_err();
    assert!(matches!(error, CallError::TooLong { len: 10, limit: 9 }));
    // This did not damage the connection.
    caller.send(b"short", soon()).unwrap();
    assert_eq!(caller.receive(soon()).unwrap(), b"short");
}

fn a_caller_reads_what_was_sent_before_the_end(echo: Echo) {
    let mut caller = echo.connect(&echo.options()).unwrap();
    let message = vec![3; 30_000];
    caller.send(&message, soon()).unwrap();
    caller.send(b"close", soon()).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(caller.receive(soon()).unwrap() == message);
    assert!(caller.receive(soon()).is_err());
}
