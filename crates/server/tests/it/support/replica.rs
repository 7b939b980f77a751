//! A server in this process whose partition is replicated, on one node: everything of a replica but
//! other ones.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use kumiki_server::{Config, Replicated, Running, serve};
use replica::{MemberOptions, Options, ReplicatedPartition};
use testkit::{Client, eventually};

use super::{THREADS, config, connect, nodes};

/// A server and its replica. Dropped, it stops.
pub(crate) struct Replica {
    server: Running,
    member: Arc<ReplicatedPartition>,
}

/// Returns a replica that leads, and has no log on a disk.
pub(crate) fn alone() -> Replica {
    start(None, config())
}

/// Returns a replica that leads, with its log in a directory.
pub(crate) fn alone_in(dir: &Path) -> Replica {
    start(Some(dir.to_owned()), config())
}

/// As [`alone`], configured otherwise.
pub(crate) fn alone_with(config: Config) -> Replica {
    start(None, config)
}

fn start(dir: Option<PathBuf>, config: Config) -> Replica {
    let me = NodeId(1);
    let member = MemberOptions {
        election: Duration::from_millis(100),
        ..MemberOptions::new(me, vec![me])
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = Options {
        workers: THREADS + 1,
        dir,
        ..Options::new(member, listener)
    };
    let member = ReplicatedPartition::open(options, &mut |_, _| {}).unwrap();
    let replicated = Replicated::new(Arc::clone(&member), store::RecoveryReport::default());
    let config = Config {
        admin: Some("127.0.0.1:0".parse().unwrap()),
        cluster: Some(nodes::membership_alone()),
        ..config
    };
    let server = serve(Arc::new(replicated), config).unwrap();
    eventually("it leads", || member.is_leader());
    Replica { server, member }
}

impl Replica {
    pub(crate) fn admin(&self) -> SocketAddr {
        self.server.admin_address().expect("an admin endpoint")
    }

    pub(crate) fn client(&self) -> Client {
        connect(self.server.address())
    }

    /// Ends the member, as if it could not continue.
    pub(crate) fn end_member(&self) {
        self.member.close(Duration::ZERO);
    }
}
