//! A server in this process, and clients of it.

#![allow(dead_code, unused_imports)] // Each test file uses a part.

pub(crate) mod client;
pub(crate) mod exposition;
pub(crate) mod gate;
pub(crate) mod held;
pub(crate) mod http;
pub(crate) mod nodes;
pub(crate) mod replica;

use std::sync::Arc;

use kumiki_server::{Config, Durability, Running, serve};
use store::{Db, Options};

pub(crate) use client::{Client, bulk, error, int, ok, status};
pub(crate) use gate::Gate;

/// A server and what it serves. Dropped, it stops and its files go away.
pub(crate) struct Served {
    pub(crate) db: Db,
    pub(crate) server: Option<Running>,
    pub(crate) gate: Gate,
    _dir: Option<tempfile::TempDir>,
}

/// How many threads the servers of the tests have.
pub(crate) const THREADS: usize = 2;

/// The configuration that most tests use.
pub(crate) fn config() -> Config {
    let listen = "127.0.0.1:0".parse().unwrap();
    Config {
        listen,
        threads: THREADS,
        ..Config::default()
    }
}

/// A server that keeps nothing.
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

/// A server whose syncs pass a gate.
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
        // A thread that waits at the gate serves nobody.
        inline_sync: std::time::Duration::ZERO,
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
    /// The admin endpoint's address.
    pub(crate) fn admin(&self) -> std::net::SocketAddr {
        let server = self.server.as_ref().expect("not stopped");
        server.admin_address().expect("an admin endpoint")
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.server.as_ref().expect("not stopped").address())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Nobody can stop while a sync is held.
        self.gate.open();
    }
}
