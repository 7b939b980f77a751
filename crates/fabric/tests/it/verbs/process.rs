//! A second process, which is this program again: it owns regions and answers messages.
//!
//! The two exchange lines of hexadecimal numbers: first their addresses, then the grant of a
//! mailbox each, which the other may write, then that of Receives. The end of its input ends the second process.

use std::io::{BufRead, BufReader, Lines, Write, stdin, stdout};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::memory::Words;
use kumiki_fabric as fabric;

use fabric::memory::{Access, Grant, Memory, Region as _};
use fabric::ring::{CONTROL, Rings, Until};
use fabric::send_receive::{ReceiveDepth, SendReceive};
use fabric::verbs::{
    Domain, MessagePair, Opening, QueuePairAddress, VerbsConnection, VerbsOptions, VerbsRegion,
    VerbsRemote,
};
use rustix::process::{Pid, Signal, kill_process};
use testkit::own_process::test_as_process;

use crate::verbs::net::{device, options};
use crate::verbs::send_receive::wait_for_event;

/// The variable that makes the test below the second process.
const PLAY: &str = "KUMIKI_TEST_VERBS_PEER";
/// The prefix of a line for the other process.
const MARK: &str = "peer:";
/// The number of words of a mailbox's ring.
const RING: usize = 256;
/// The last word of a mailbox without a ring, in the second process.
pub(crate) const ANSWER: u64 = 42;

/// The task of the second process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Does nothing: others read its memory.
    Owner,
    /// Sends each message back.
    Echo,
    /// Sends back the bytes that come through its ring.
    RingEcho,
}

/// The second process, and the connection to it.
pub(crate) struct Peer {
    pub(crate) connection: VerbsConnection,
    pub(crate) stream: SendReceive<MessagePair>,
    pub(crate) remote: VerbsRemote,
    mailbox: VerbsRegion,
    process: Process,
}

/// A process that ends with this value at the latest.
pub(crate) struct Process {
    child: Child,
    #[expect(dead_code, reason = "its end would end the process")]
    input: ChildStdin,
}

impl Peer {
    /// Starts the process; returns `None` if there is no device. Both sides use these options.
    pub(crate) fn start(role: Role, options: &VerbsOptions) -> Option<Peer> {
        Peer::start_with(role, options, ReceiveDepth::of(64 << 10))
    }

    /// Does the same with this memory for messages on both sides.
    pub(crate) fn start_with(
        role: Role,
        options: &VerbsOptions,
        depth: ReceiveDepth,
    ) -> Option<Peer> {
        let domain = device(options)?.domain().unwrap();
        let mut process = test_as_process(module_path!(), "plays_a_peer_if_told_to")
            .env(PLAY, format!("{role:?} {} {}", depth.places, depth.bytes))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut lines = ProcessOutput(output);
        let mut next = || lines.next();
        let (connection, mailbox, remote, stream) = meet(&domain, depth, &mut input, &mut next);
        Some(Peer {
            connection,
            stream,
            remote,
            mailbox,
            process: Process {
                child: process,
                input,
            },
        })
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.child), signal).unwrap();
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.process.child.kill().unwrap();
        self.process.child.wait().unwrap();
    }

    /// Returns this side's mailbox, and the other's.
    pub(crate) fn into_mailbox(self) -> (VerbsRegion, VerbsRemote, Process) {
        (self.mailbox, self.remote, self.process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Lines of the other process, among those of its test harness.
struct ProcessOutput(Lines<BufReader<ChildStdout>>);

impl ProcessOutput {
    fn next(&mut self) -> String {
        let mut lines = self.0.by_ref().map_while(Result::ok);
        let line = lines.find_map(|line| line.split_once(MARK).map(|(_, told)| told.to_owned()));
        line.expect("the other process tells something")
    }
}

/// Connects to the other process, and exchanges mailboxes with it.
fn meet(
    domain: &Domain,
    depth: ReceiveDepth,
    output: &mut impl Write,
    input: &mut impl FnMut() -> String,
) -> (
    VerbsConnection,
    VerbsRegion,
    VerbsRemote,
    SendReceive<MessagePair>,
) {
    let mut tell = |bytes: &[u8]| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(output, "{MARK}{hex}").unwrap();
        output.flush().unwrap();
    };
    let opening: Opening = domain.open().unwrap();
    let mut bytes = Vec::new();
    opening.address().encode(&mut bytes);
    tell(&bytes);
    let address = QueuePairAddress::decode(&unhex(&input())).unwrap();
    let connection = opening.connect(&address).unwrap();
    let mailbox = connection.register(CONTROL + RING, Access::Write).unwrap();
    bytes.clear();
    mailbox.grant().encode(&mut bytes);
    // The arrival of this line shows that the other side is connected, too.
    tell(&bytes);
    let grant = Grant::decode(&unhex(&input())).unwrap();
    let remote = connection.reach(&grant).unwrap();
    let offer = domain.message_offer(depth).unwrap();
    bytes.clear();
    offer.grant().encode(&mut bytes);
    tell(&bytes);
    let grant = Grant::decode(&unhex(&input())).unwrap();
    let stream = SendReceive::new(offer.accept(&grant).unwrap());
    // Nothing begins before both have reached the other's mailbox, and have connected.
    tell(&[]);
    assert_eq!(input(), "");
    (connection, mailbox, remote, stream)
}

fn unhex(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// The second process; does nothing when run as a test.
#[test]
fn plays_a_peer_if_told_to() {
    let Ok(play) = std::env::var(PLAY) else {
        return;
    };
    let mut words = play.split(' ');
    let role = words.next().unwrap();
    let mut numbers = words.map(|word| word.parse().unwrap());
    let depth = ReceiveDepth {
        places: numbers.next().unwrap(),
        bytes: numbers.next().unwrap(),
    };
    let domain = device(&options()).unwrap().domain().unwrap();
    // The line that the test harness has begun ends here.
    println!();
    let mut lines = stdin().lines();
    let mut next = || {
        let line = lines.next().unwrap().unwrap();
        line.strip_prefix(MARK).unwrap().to_owned()
    };
    let (_connection, mailbox, remote, stream) = meet(&domain, depth, &mut stdout(), &mut next);
    // The process that has started this one ends it in this way, or has ended itself.
    std::thread::spawn(move || {
        while stdin().lines().next().is_some() {}
        std::process::exit(0);
    });
    match role {
        "Owner" => {
            mailbox.words()[CONTROL].store(ANSWER, Ordering::Release);
            std::thread::sleep(Duration::from_secs(300));
        }
        "Echo" => echo(stream),
        "RingEcho" => ring_echo(mailbox, remote),
        _ => panic!("{role}"),
    }
}

/// Sends back what comes. It sleeps for an event when there is nothing.
fn echo(mut stream: SendReceive<MessagePair>) {
    let mut buffer = vec![0; 10_000];
    while let Ok(count) = stream.receive(&mut buffer) {
        let mut from = 0;
        while from < count {
            match stream.send(&buffer[from..count]) {
                Ok(0) => std::thread::yield_now(),
                Ok(sent) => from += sent,
                Err(_) => return,
            }
        }
        match stream.must_ring().and_then(|_| stream.sleep(Until::Input)) {
            Ok(true) => wait_for_event(&stream, Duration::from_secs(1)),
            Ok(false) => std::thread::yield_now(),
            Err(_) => return,
        }
    }
}

fn ring_echo(mailbox: VerbsRegion, remote: VerbsRemote) {
    let mut rings = Rings::new(mailbox, remote).unwrap();
    let mut buffer = vec![0; 4096];
    while let Ok(count) = rings.receive(&mut buffer) {
        let mut from = 0;
        while from < count {
            match rings.send(&buffer[from..count]) {
                Ok(0) => std::thread::yield_now(),
                Ok(sent) => from += sent,
                Err(_) => return,
            }
        }
        if count == 0 {
            std::thread::yield_now();
        }
    }
}
