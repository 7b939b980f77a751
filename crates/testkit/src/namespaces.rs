//! Two network namespaces of this machine with a link between them: packets that leave one arrive in the other.
//!
//! A namespace lives as long as it is open here, or as processes are in it: nothing is left behind, also when a test is
//! killed. Making one takes the rights of root.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(File);

/// Two namespaces, each with one end of a link between virtual Ethernet interfaces.
#[derive(Debug)]
pub struct LinkedNamespaces {
    /// The namespace with the interface [`LinkedNamespaces::INTERFACE`] and the address [`LinkedNamespaces::ADDRESS`].
    pub own: Namespace,
    /// The namespace with the address [`LinkedNamespaces::PEER_ADDRESS`].
    pub peer: Namespace,
}

impl Namespace {
    /// Creates a namespace, which has a loopback interface alone.
    ///
    /// # Errors
    /// Returns the system's error, for example if the process has not the rights of root.
    pub fn create() -> io::Result<Namespace> {
        let opened = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        });
        let namespace = Namespace(opened.join().expect("no panic")?);
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Moves the calling thread into the namespace: its sockets, and the threads and processes that it starts.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(&self.0, CloneFlags::CLONE_NEWNET)?)
    }

    /// Runs `work` on a thread in the namespace. Returns its result.
    ///
    /// # Panics
    /// Panics if `work` does, or if the namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter().expect("the namespace can be entered");
                work()
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs the program `ip` in the namespace.
    ///
    /// # Errors
    /// Returns an error with its message if it fails, or if there is no such program.
    pub fn ip(&self, arguments: &[&str]) -> io::Result<String> {
        let output = self.run(|| Command::new("ip").args(arguments).output())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(io::Error::other(format!(
                "ip {}: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr)
            ))),
        }
    }

    /// Returns a path that names the namespace as long as this process has it open.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

impl LinkedNamespaces {
    /// The interface of `own`.
    pub const INTERFACE: &str = "kumiki0";
    /// The interface of `peer`.
    pub const PEER_INTERFACE: &str = "kumiki1";
    /// The address of the interface of `own`.
    pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
    /// The address of the interface of `peer`.
    pub const PEER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

    /// Creates both namespaces and the link between them, with `queues` receive queues on the side of `own`.
    ///
    /// # Errors
    /// Returns an error if the process has not the rights of root, or if the program `ip` is missing.
    pub fn create(queues: usize) -> io::Result<LinkedNamespaces> {
        let (own, peer) = (Namespace::create()?, Namespace::create()?);
        let queues = queues.to_string();
        own.ip(&[
            "link",
            "add",
            Self::INTERFACE,
            "numrxqueues",
            &queues,
            "numtxqueues",
            &queues,
            "type",
            "veth",
            "peer",
            "name",
            Self::PEER_INTERFACE,
            "numrxqueues",
            &queues,
            "numtxqueues",
            &queues,
        ])?;
        own.ip(&["link", "set", Self::PEER_INTERFACE, "netns", &peer.path()])?;
        for (namespace, name, address) in [
            (&own, Self::INTERFACE, Self::ADDRESS),
            (&peer, Self::PEER_INTERFACE, Self::PEER_ADDRESS),
        ] {
            let address = format!("{address}/24");
            namespace.ip(&["address", "add", &address, "dev", name])?;
            namespace.ip(&["link", "set", name, "up"])?;
        }
        Ok(LinkedNamespaces { own, peer })
    }

    /// Creates them like [`LinkedNamespaces::create`], for a test. Returns `None`, and says so, if the process may not.
    ///
    /// # Panics
    /// Panics instead if the environment has `KUMIKI_REQUIRE_PEERS=1`.
    #[must_use]
    pub fn for_test(queues: usize) -> Option<LinkedNamespaces> {
        match LinkedNamespaces::create(queues) {
            Ok(linked) => Some(linked),
            Err(error) => {
                let required =
                    std::env::var("KUMIKI_REQUIRE_PEERS").is_ok_and(|value| value == "1");
                assert!(
                    !required,
                    "no network namespaces, and KUMIKI_REQUIRE_PEERS=1: {error}"
                );
                eprintln!("skipped: network namespaces need root and the program ip ({error})");
                None
            }
        }
    }
}
