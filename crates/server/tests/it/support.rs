//! A server in this process, and clients of it.

pub(crate) mod gate;
pub(crate) mod nodes;
pub(crate) mod prepared_transaction;
pub(crate) mod replica;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kumiki_server::{Config, Durability, Running, serve};
use reactor::Io;
use store::{Db, Options};
use testkit::workload::resp::{Connected, Writes};
use testkit::workload::{Extent, Subject, Transfers, Workload, run, transfers};
use testkit::{Client, Reply};

pub(crate) use gate::Gate;

/// How long a reply may take before the test fails: on a busy machine a sync may take seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a client of the server at this address.
#[track_caller]
pub(crate) fn connect(address: SocketAddr) -> Client {
    let client = Client::connect(address);
    client.set_patience(PATIENCE).expect("a limit of time");
    client
}

pub(crate) fn ok() -> Reply {
    status("OK")
}

pub(crate) fn status(text: &str) -> Reply {
    Reply::status(text)
}

pub(crate) fn bulk(text: &str) -> Reply {
    Reply::bulk(text)
}

pub(crate) fn int(number: i64) -> Reply {
    Reply::Int(number)
}

/// Returns the text of an error reply.
#[track_caller]
pub(crate) fn error(reply: &Reply) -> &str {
    match reply {
        Reply::Error(text) => text,
        other => panic!("{other:?} is no error"),
    }
}

/// Transfers between accounts by clients of which some use `WATCH` and some scripts; each of them reads all accounts now and
/// then. Money neither appears nor disappears.
pub(crate) fn transfer_by(extent: &Extent, connect: impl Fn(u32) -> Client + Sync) {
    let mut transfers = Transfers::new(transfers::Options {
        accounts: 9,
        audit_every: 3,
        scans: false,
        ..transfers::Options::default()
    });
    Connected::new(connect(0), Writes::Block).run(&transfers.setup());
    let counts = run(&mut transfers, extent, |process| {
        let writes = match process % 3 {
            0 => Writes::Watch,
            1 => Writes::Script,
            _ => Writes::Block,
        };
        Connected::new(connect(process), writes)
    });
    let counts = counts.expect("each sum is the same");
    assert!(counts.committed > counts.aborted, "{counts:?}");
}

/// A server and what it serves. Dropped, it stops and its files go away.
pub(crate) struct Served {
    pub(crate) db: Db,
    pub(crate) server: Option<Running>,
    pub(crate) gate: Gate,
    _dir: Option<tempfile::TempDir>,
}

/// How many threads the servers of the tests have.
pub(crate) const THREADS: usize = 2;

/// Returns the configuration that most tests use.
pub(crate) fn config() -> Config {
    let listen = "127.0.0.1:0".parse().unwrap();
    Config {
        listen,
        threads: THREADS,
        // Tests of the program run over epoll.
        io: Io::Auto,
        ..Config::default()
    }
}

/// Returns a server that keeps nothing.
pub(crate) fn ephemeral(config: Config) -> Served {
    let options = Options {
        workers: THREADS + 1,
        ..Options::default()
    };
    let db = Db::open(options).unwrap();
    let server = Some(serve(db.clone(), config).unwrap());
    Served {
        db,
        server,
        gate: Gate::new(),
        _dir: None,
    }
}

/// Returns a server whose syncs pass a gate.
pub(crate) fn durable(durability: Durability) -> Served {
    durable_with(Config {
        durability,
        ..config()
    })
}

/// As [`durable`], configured otherwise.
pub(crate) fn durable_with(config: Config) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::new();
    let options = Options {
        workers: THREADS + 1,
        disk: Arc::new(gate.disk()),
        ..Options::in_dir(dir.path())
    };
    let db = Db::open(options).unwrap();
    let data = Some(dir.path().to_path_buf());
    let config = Config {
        data,
        // A thread that waits at the gate serves no client.
        inline_sync: Duration::ZERO,
        ..config
    };
    let server = Some(serve(db.clone(), config).unwrap());
    Served {
        db,
        server,
        gate,
        _dir: Some(dir),
    }
}

impl Served {
    /// Returns the admin endpoint's address.
    pub(crate) fn admin(&self) -> SocketAddr {
        let server = self.server.as_ref().expect("not stopped");
        server.admin_address().expect("an admin endpoint")
    }

    pub(crate) fn client(&self) -> Client {
        connect(self.server.as_ref().expect("not stopped").address())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The server cannot stop while a sync is held.
        self.gate.open();
    }
}
