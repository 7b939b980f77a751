//! Clients in processes of their own, which run this same program: they can be stopped and killed
//! like any other client.
//!
//! A client learns from its environment what to do and where the nodes are, and runs until its
//! input ends. Then it prints one line with its results. It panics on an error, so that its process
//! fails.

use std::io::{BufRead, BufReader, stdin};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::own_process::test_as_process;

use crate::read_atomic::{killed, pressure};

/// Makes the test below a client: its role, a number, and the addresses of the nodes.
const PLAY: &str = "KUMIKI_TEST_READ_ATOMIC_CLIENT";
/// The prefix of its results.
const MARK: &str = "client:";
/// How long it may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The work of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// See [`pressure::read`].
    Reads,
    /// See [`killed::write_and_read`].
    WritesAndReads,
}

/// A client. It is killed when this is dropped.
pub(crate) struct Peer(Child);

impl Peer {
    pub(crate) fn start(
        role: Role,
        number: usize,
        fabrics: impl Iterator<Item = SocketAddr>,
    ) -> Peer {
        let mut play = format!("{role:?} {number}");
        for fabric in fabrics {
            play += &format!(" {fabric}");
        }
        let process = test_as_process(module_path!(), "plays_a_client_if_told_to")
            .env(PLAY, play)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Peer(process.expect("it starts"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it is there");
    }

    /// Stops it, and returns the numbers that it prints.
    ///
    /// # Panics
    /// Panics if it does not end, or something was wrong.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        drop(self.0.stdin.take());
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().expect("it is there") {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it hangs");
            std::thread::sleep(Duration::from_millis(10));
        };
        let output = BufReader::new(self.0.stdout.take().expect("it is piped"));
        let lines: Vec<String> = output.lines().map_while(Result::ok).collect();
        assert!(status.success(), "{status}: {}", lines.join("\n"));
        let told = lines.iter().find_map(|line| line.split_once(MARK));
        let (_, told) = told.unwrap_or_else(|| panic!("it tells nothing: {lines:?}"));
        let numbers = told.split_whitespace().map(str::parse);
        numbers.collect::<Result<_, _>>().expect("numbers")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Runs as the process of a [`Peer`]; without the variable it does nothing.
#[test]
fn plays_a_client_if_told_to() {
    let Ok(play) = std::env::var(PLAY) else {
        return;
    };
    let mut words = play.split(' ');
    let role = words.next().expect("a role");
    let number = words.next().and_then(|word| word.parse().ok());
    let number: usize = number.expect("a number");
    let fabrics = words.map(|word| word.parse().expect("an address"));
    let fabrics: Vec<SocketAddr> = fabrics.collect();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    std::thread::spawn(move || {
        while stdin().lines().next().is_some() {}
        stopped.store(true, Ordering::SeqCst);
        // The parent may have died.
        std::thread::sleep(PATIENCE);
        std::process::exit(1);
    });
    let told = match role {
        "Reads" => pressure::read(number, &fabrics, &stop),
        "WritesAndReads" => killed::write_and_read(number, &fabrics, &stop),
        _ => panic!("{role}"),
    };
    let told: Vec<String> = told.iter().map(u64::to_string).collect();
    let told = told.join(" ");
    println!("\n{MARK}{told}");
}
