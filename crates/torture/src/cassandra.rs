//! `cargo xtask cassandra N`: real Cassandra nodes on this machine, until Ctrl-C.
//!
//! [`::cassandra`] starts and stops them; experiments and tests of the binary use it as well. It is
//! here again for the harnesses.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::Result;

pub use ::cassandra::{CassandraNodes, Error, Installed, Options, Paxos};
use ::cassandra::{StartObserver, StartStep};

use xtask::{build, interrupt};

/// The interval at which the nodes are checked.
const LOOK: Duration = Duration::from_millis(200);
/// The address of the proxy in the example.
const PROXY: &str = "127.0.0.1:9100";
/// The place of data that is kept.
const PLACE: &str = "target/cassandra";

/// The options of the command.
#[derive(Clone, Debug)]
pub struct Wish {
    /// How many nodes.
    pub nodes: u8,
    /// Java's heap of each, in MiB.
    pub heap_mib: u64,
    /// How lightweight transactions agree.
    pub paxos: Paxos,
    /// The directory of the data, which is kept.
    pub dir: Option<PathBuf>,
    /// `true` if data is kept although no directory is named.
    pub keep: bool,
}

impl Wish {
    fn options(&self, installed: Installed) -> Options {
        let kept = || self.keep.then(|| build::root().join(PLACE));
        Options {
            heap_mib: self.heap_mib,
            paxos: self.paxos,
            dir: self.dir.clone().or_else(kept),
            ..Options::new(installed, self.nodes)
        }
    }
}

/// Starts the nodes, prints where they are and how to use them, and stops them on Ctrl-C.
///
/// # Errors
/// Returns an error if they cannot be started, or one has to be killed in the end.
pub fn run(wish: &Wish) -> Result<()> {
    let options = wish.options(Installed::find(build::root())?);
    let (paxos, heap) = (options.paxos.name(), options.heap_mib);
    println!(
        "cassandra: starting {} with {heap} MiB of heap each, Paxos {paxos}",
        counted(options.nodes)
    );
    let mut nodes = match CassandraNodes::start_watched(&options, &mut Progress) {
        // Ctrl-C is a good reason to stop here. Nothing was written yet.
        Err(Error::Stopped) => return Ok(()),
        other => other?,
    };
    announce(&nodes, options.dir.is_some());
    while interrupt::check().is_ok() {
        thread::sleep(LOOK);
        for (index, error) in nodes.ended()? {
            println!("cassandra: node {} is dead: {error}", index + 1);
        }
    }
    println!("cassandra: stopping");
    Ok(nodes.stop()?)
}

/// Prints a line for each step.
struct Progress;

impl StartObserver for Progress {
    fn reached(&mut self, index: usize, step: StartStep, after: Duration) {
        let what = match step {
            StartStep::Started => "is started",
            StartStep::Answers => "answers",
            StartStep::KnowsAll => "knows all others",
        };
        println!(
            "  node {}: {what} after {:.1} s",
            index + 1,
            after.as_secs_f64()
        );
    }

    fn is_stopped(&self) -> bool {
        interrupt::check().is_err()
    }
}

fn counted(nodes: u8) -> String {
    match nodes {
        1 => "1 node".to_owned(),
        more => format!("{more} nodes"),
    }
}

/// Prints the addresses of the nodes and how to use them.
fn announce(nodes: &CassandraNodes, stays: bool) {
    let fate = if stays { "stays" } else { "goes in the end" };
    println!("cassandra: {} ({fate})", nodes.dir().display());
    let addresses = nodes.addresses();
    for (index, address) in addresses.iter().enumerate() {
        let pid = nodes.pid(index).map(|pid| pid.as_raw_nonzero().to_string());
        let pid = pid.unwrap_or_else(|| "none".to_owned());
        let log = nodes.log(index).display();
        println!("  node {}: {address}, process {pid}, log {log}", index + 1);
    }
    let first = addresses[0].ip();
    let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let peers = build::root().join("target/peers/python");
    let peers = peers.canonicalize().unwrap_or(peers);
    println!("try:");
    println!("  PYTHONPATH={0} {0}/bin/cqlsh {first}", peers.display());
    println!(
        "  kumiki proxy --cassandra {} --listen {PROXY}",
        all.join(",")
    );
    println!("Ctrl-C stops all nodes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_stays_where_it_is_wanted() {
        let installed = Installed {
            java: "java".into(),
            jars: "jars".into(),
        };
        let mut wish = Wish {
            nodes: 3,
            heap_mib: 512,
            paxos: Paxos::V2,
            dir: None,
            keep: false,
        };
        let dir = |wish: &Wish| wish.options(installed.clone()).dir;
        assert_eq!(dir(&wish), None);
        wish.keep = true;
        assert_eq!(dir(&wish), Some(build::root().join(PLACE)));
        wish.dir = Some("elsewhere".into());
        assert_eq!(dir(&wish), Some("elsewhere".into()));
        assert_eq!(wish.options(installed.clone()).paxos, Paxos::V2);
    }
}
