//! How a server is set up.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::limits::Limits;

/// When a reply leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// Once everything that it shows is durable.
    #[default]
    Group,
    /// At once; a crash may take back what clients were told.
    Async,
}

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Runtimes; each is a thread with a listener and a worker of its own.
    pub threads: usize,
    /// When replies leave.
    pub durability: Durability,
    /// The default user's password.
    pub password: Option<String>,
    /// Whether to listen where strangers may reach, without a password.
    pub insecure: bool,
    /// Bytes of memory beyond which commands that need more are refused; 0: no bound.
    pub maxmemory: u64,
    /// Where the data lies, to tell who asks.
    pub data: Option<PathBuf>,
    /// Sizes that clients control.
    pub limits: Limits,
    /// How long a sync may hold a serving thread. Where the device syncs faster, a thread that has
    /// no more requests to serve syncs by itself, which saves two thread switches; where it does
    /// not (and always, with zero) log threads sync, and the thread serves meanwhile.
    pub inline_sync: Duration,
    /// How long a stopping server waits for clients to take their replies.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 6380)),
            threads: 1,
            durability: Durability::Group,
            password: None,
            insecure: false,
            maxmemory: 0,
            data: None,
            limits: Limits::default(),
            inline_sync: Duration::from_millis(1),
            drain: Duration::from_secs(10),
        }
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Anyone who can reach the address could read and change everything.
    #[error(
        "{listen} can be reached from other machines and no password is set: give \
         --requirepass PASSWORD, or listen on 127.0.0.1, or give --insecure to serve anyone"
    )]
    Open {
        /// The address.
        listen: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {listen}: {error}; choose another address by --listen")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// The store has fewer workers than the server has threads.
    #[error("the store has no worker left for thread {thread}; open it with more workers")]
    NoWorker {
        /// The thread's number.
        thread: usize,
    },
    /// The system refuses threads or descriptors.
    #[error("cannot start a thread of the server: {0}")]
    Thread(#[from] std::io::Error),
}

impl Config {
    /// Checks that the address does not lie open to strangers.
    ///
    /// # Errors
    /// [`StartError::Open`] if it does.
    pub fn check(&self) -> Result<(), StartError> {
        let closed = is_loopback(self.listen.ip()) || self.password.is_some() || self.insecure;
        if closed {
            Ok(())
        } else {
            Err(StartError::Open {
                listen: self.listen,
            })
        }
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => {
            ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_address_needs_a_password() {
        let config = |listen: &str| Config {
            listen: listen.parse().unwrap(),
            ..Config::default()
        };
        for address in [
            "127.0.0.1:1",
            "127.8.0.1:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(config(address).check().is_ok(), "{address}");
        }
        for address in [
            "0.0.0.0:1",
            "[::]:1",
            "192.168.0.1:1",
            "[::ffff:10.0.0.1]:1",
        ] {
            assert!(config(address).check().is_err(), "{address}");
            let password = Some("pw".to_owned());
            assert!(
                Config {
                    password,
                    ..config(address)
                }
                .check()
                .is_ok()
            );
            assert!(
                Config {
                    insecure: true,
                    ..config(address)
                }
                .check()
                .is_ok()
            );
        }
    }
}
