//! The programs that tests and benchmarks stand beside: present or not, and how to get them.

mod apt;
mod cassandra;
mod etcd;
mod go;
mod maven;
mod rdma;
mod redis_suite;
mod rust_driver;
mod sql_clients;

use std::env;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{build, process};

/// The environment variable with which a test fails that lacks a peer, instead of being left out.
pub const REQUIRED: &str = "KUMIKI_REQUIRE_PEERS";

/// The environment variable that names the groups of peers which tests meet; all of them without it.
pub const SELECTED: &str = "KUMIKI_PEERS";

/// Peers that are installed together, and tests of which are run or left out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PeerGroup {
    /// Redis, its commands, its benchmark and its test suite, and what traces, pins and counts processes.
    Redis,
    /// Redis's client for Python, and packages that use it.
    Python,
    /// Redis clients for Node, and packages that use them.
    Node,
    /// A Redis client for Go, and a package that uses it.
    Go,
    /// Job queues for Python and Ruby, and packages for Java that use Redis.
    Queues,
    /// Cassandra, its drivers for Java, Python and Rust, cqlsh, and YCSB.
    Cassandra,
    /// PostgreSQL's command psql, and its clients psycopg 3, asyncpg and node-postgres.
    Postgres,
    /// More clients of PostgreSQL, for Python, Java, Go and ODBC.
    SqlClients,
    /// etcd.
    Etcd,
    /// twemproxy.
    Twemproxy,
    /// A small machine that has an RDMA device in software.
    Rdma,
}

impl PeerGroup {
    /// All of them, in the order in which they are installed.
    pub const ALL: &[PeerGroup] = &[
        PeerGroup::Redis,
        PeerGroup::Python,
        PeerGroup::Node,
        PeerGroup::Go,
        PeerGroup::Queues,
        PeerGroup::Postgres,
        PeerGroup::SqlClients,
        PeerGroup::Twemproxy,
        PeerGroup::Cassandra,
        PeerGroup::Etcd,
        PeerGroup::Rdma,
    ];

    /// Returns the name in `KUMIKI_PEERS` and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PeerGroup::Redis => "redis",
            PeerGroup::Python => "python",
            PeerGroup::Node => "node",
            PeerGroup::Go => "go",
            PeerGroup::Queues => "queues",
            PeerGroup::Cassandra => "cassandra",
            PeerGroup::Postgres => "postgres",
            PeerGroup::SqlClients => "sql-clients",
            PeerGroup::Etcd => "etcd",
            PeerGroup::Twemproxy => "twemproxy",
            PeerGroup::Rdma => "rdma",
        }
    }
}

/// A program, the Debian package that has it, and how it tells its version.
struct Peer {
    group: PeerGroup,
    program: &'static str,
    package: &'static str,
    version: &'static str,
}

impl Peer {
    /// Returns the program without its folder.
    fn name(&self) -> &'static str {
        self.program.rsplit('/').next().unwrap_or(self.program)
    }
}

const PEERS: &[Peer] = &[
    Peer {
        group: PeerGroup::Redis,
        program: "redis-server",
        package: "redis-server",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Redis,
        program: "redis-cli",
        package: "redis-tools",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Redis,
        program: "redis-benchmark",
        package: "redis-tools",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Redis,
        program: "dpkg-source",
        package: "dpkg-dev",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Redis,
        program: "strace",
        package: "strace",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Redis,
        program: "valgrind",
        package: "valgrind",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Python,
        program: "python3",
        package: "python3",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Python,
        program: "pip3",
        package: "python3-pip",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Node,
        program: "node",
        package: "nodejs",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Node,
        program: "npm",
        package: "npm",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Queues,
        program: "sidekiq",
        package: "ruby-sidekiq",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Redis,
        program: "taskset",
        package: "util-linux",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Redis,
        program: "setpriv",
        package: "util-linux",
        version: "--version",
    },
    Peer {
        group: PeerGroup::Postgres,
        program: "psql",
        package: "postgresql-client",
        version: "--version",
    },
    // twemproxy. The folder is on the paths of few but root.
    Peer {
        group: PeerGroup::Twemproxy,
        program: "/usr/sbin/nutcracker",
        package: "nutcracker",
        version: "--version",
    },
];

/// A library of another language, for tests with clients that are not ours.
struct Library {
    group: PeerGroup,
    name: &'static str,
    version: &'static str,
    /// What is named beside it, so that its version is not left to the installer.
    beside: &'static [&'static str],
    /// Where it lies under `target/peers` once it is installed; tests look there.
    place: &'static str,
    /// The program that installs it, and its arguments before the folder and the library.
    installer: &'static [&'static str],
    /// The folder under `target/peers` that is given to the program.
    folder: &'static str,
    /// What stands between name and version.
    join: &'static str,
}

/// Installs libraries for Python.
const PIP: &[&str] = &["pip3", "install", "--quiet", "--upgrade", "--target"];
/// Installs libraries for Node.
const NPM: &[&str] = &[
    "npm",
    "install",
    "--silent",
    "--no-audit",
    "--no-fund",
    "--prefix",
];

const LIBRARIES: &[Library] = &[
    Library {
        group: PeerGroup::Python,
        name: "redis",
        version: "7.1.1",
        beside: &[],
        place: "python/redis",
        installer: PIP,
        folder: "python",
        join: "==",
    },
    Library {
        group: PeerGroup::Cassandra,
        name: "cassandra-driver",
        version: "3.30.1",
        beside: &[],
        place: "python/cassandra",
        installer: PIP,
        folder: "python",
        join: "==",
    },
    // After its driver: each brings a folder `bin`, and the last one's stays.
    Library {
        group: PeerGroup::Cassandra,
        name: "cqlsh",
        version: "6.2.2",
        beside: &["cassandra-driver==3.30.1"],
        place: "python/cqlshlib",
        installer: PIP,
        folder: "python",
        join: "==",
    },
    Library {
        group: PeerGroup::Node,
        name: "ioredis",
        version: "5.8.2",
        beside: &[],
        place: "node/node_modules/ioredis",
        installer: NPM,
        folder: "node",
        join: "@",
    },
    Library {
        group: PeerGroup::Python,
        name: "django-redis",
        version: "7.0.0",
        beside: &[
            "Django==5.2.19",
            "limits==5.8.0",
            "redis==7.1.1",
            "rq==2.12.0",
            "channels_redis==4.3.0",
            "channels==4.3.2",
        ],
        place: "python-frameworks/django_redis",
        installer: PIP,
        folder: "python-frameworks",
        join: "==",
    },
    Library {
        group: PeerGroup::Node,
        name: "redlock",
        version: "5.0.0-beta.2",
        beside: &[
            "ioredis@5.8.2",
            "redis@6.3.1",
            "express@5.3.0",
            "express-rate-limit@8.7.5",
            "rate-limit-redis@6.0.1",
        ],
        place: "node-frameworks/node_modules/redlock",
        installer: NPM,
        folder: "node-frameworks",
        join: "@",
    },
    Library {
        group: PeerGroup::Node,
        name: "bullmq",
        version: "6.7.0",
        beside: &[
            "ioredis@5.8.2",
            "redis@6.3.1",
            "express@5.3.0",
            "express-session@1.19.0",
            "connect-redis@10.0.0",
            "socket.io@4.8.4",
            "socket.io-client@4.8.4",
            "@socket.io/redis-adapter@8.3.0",
            "@socket.io/redis-streams-adapter@0.3.1",
        ],
        place: "node-queues/node_modules/bullmq",
        installer: NPM,
        folder: "node-queues",
        join: "@",
    },
    // A store that speaks the protocol of S3.
    Library {
        group: PeerGroup::Node,
        name: "s3rver",
        version: "3.7.1",
        beside: &[],
        place: "node-s3/node_modules/s3rver",
        installer: NPM,
        folder: "node-s3",
        join: "@",
    },
    Library {
        group: PeerGroup::Queues,
        name: "celery",
        version: "5.7.0",
        beside: &["dramatiq==2.2.1", "huey==3.5.4", "redis==7.1.1"],
        place: "python-queues/celery",
        installer: PIP,
        folder: "python-queues",
        join: "==",
    },
    // It needs an older client.
    Library {
        group: PeerGroup::Queues,
        name: "arq",
        version: "0.28.0",
        beside: &["redis==5.3.1"],
        place: "python-arq/arq",
        installer: PIP,
        folder: "python-arq",
        join: "==",
    },
    Library {
        group: PeerGroup::Postgres,
        name: "psycopg[binary]",
        version: "3.3.9",
        beside: &["asyncpg==0.32.0"],
        place: "python-postgres/psycopg",
        installer: PIP,
        folder: "python-postgres",
        join: "==",
    },
    Library {
        group: PeerGroup::Postgres,
        name: "pg",
        version: "8.23.1",
        beside: &["pg-cursor@2.22.1"],
        place: "node-postgres/node_modules/pg",
        installer: NPM,
        folder: "node-postgres",
        join: "@",
    },
    Library {
        group: PeerGroup::SqlClients,
        name: "psycopg2-binary",
        version: "2.9.13",
        beside: &[
            "psycopg[binary]==3.3.9",
            "SQLAlchemy==2.1.9",
            "pandas==3.1.1",
            "numpy==2.4.6",
            "connectorx==0.4.6",
            "polars==2.1.0",
            "pyarrow==26.0.1",
            "pyodbc==5.5.0",
        ],
        place: "python-sql/psycopg2",
        installer: PIP,
        folder: "python-sql",
        join: "==",
    },
    Library {
        group: PeerGroup::SqlClients,
        name: "dbt-core",
        version: "1.10.23",
        beside: &["dbt-postgres==1.10.2"],
        place: "python-dbt/dbt",
        installer: PIP,
        folder: "python-dbt",
        join: "==",
    },
    // Its scanner of PostgreSQL is an extension, which is on PyPI as well.
    Library {
        group: PeerGroup::SqlClients,
        name: "duckdb",
        version: "1.5.5",
        beside: &["duckdb-extension-postgres-scanner==1.5.5"],
        place: "python-duckdb/duckdb",
        installer: PIP,
        folder: "python-duckdb",
        join: "==",
    },
];

impl Library {
    fn install(&self) -> Result<()> {
        let peers = build::root().join("target/peers");
        let mut all = vec![format!("{}{}{}", self.name, self.join, self.version)];
        all.extend(self.beside.iter().map(|library| (*library).to_owned()));
        let wanted = all.join(" ");
        // Written once it is complete.
        let mark = peers.join(format!("{}.installed", self.name));
        let there = std::fs::read_to_string(&mark).is_ok_and(|text| text == wanted);
        if !there || !peers.join(self.place).is_dir() {
            println!("peers: installing {wanted}");
            std::fs::create_dir_all(&peers)?;
            let [program, arguments @ ..] = self.installer else {
                bail!("no program installs {wanted}");
            };
            let mut command = Command::new(program);
            command.args(arguments).arg(peers.join(self.folder));
            command.args(&all);
            process::run(program, &mut command).with_context(|| {
                format!("cannot fetch {wanted}; {program} must reach its registry, or a mirror")
            })?;
            std::fs::write(&mark, &wanted)?;
        }
        println!("peers: {:<16} {}", self.name, self.version);
        for beside in self.beside {
            println!("peers: {:<16} {beside}", "");
        }
        Ok(())
    }
}

/// Installs what is missing of these groups, programs with apt-get and libraries of other languages with
/// the installers of those, and prints what is there.
///
/// # Errors
/// If something is missing and cannot be installed.
pub fn install(groups: &[PeerGroup]) -> Result<()> {
    let has = |group: PeerGroup| groups.contains(&group);
    // Libraries are installed by pip and npm.
    let is_wanted = |group| {
        let of_python = [
            PeerGroup::Cassandra,
            PeerGroup::Postgres,
            PeerGroup::SqlClients,
            PeerGroup::Queues,
        ];
        has(group)
            || group == PeerGroup::Python && of_python.into_iter().any(has)
            || group == PeerGroup::Node && has(PeerGroup::Postgres)
    };
    let wanted = || PEERS.iter().filter(|peer| is_wanted(peer.group));
    let missing = wanted().filter(|peer| version(peer).is_none());
    let mut packages: Vec<&str> = missing.map(|peer| peer.package).collect();
    packages.dedup();
    if !packages.is_empty() {
        println!("peers: installing {}", packages.join(" "));
        apt::install(&packages)?;
        stop_services();
    }
    for peer in wanted() {
        let Some(version) = version(peer) else {
            bail!(
                "{} is still missing; install the package {}",
                peer.program,
                peer.package
            );
        };
        println!("peers: {:<16} {version}", peer.name());
    }
    let libraries = LIBRARIES.iter().filter(|library| has(library.group));
    libraries.into_iter().try_for_each(Library::install)?;
    if has(PeerGroup::Redis) {
        redis_suite::install()?;
    }
    if has(PeerGroup::Cassandra) {
        cassandra::install()?;
        rust_driver::install()?;
    }
    if has(PeerGroup::Go) {
        go::GO_REDIS.install()?;
        go::REDSYNC.install()?;
    }
    if has(PeerGroup::Queues) {
        maven::install()?;
        maven::REDISSON.install()?;
        maven::SPRING_SESSION.install()?;
    }
    if has(PeerGroup::SqlClients) {
        sql_clients::install()?;
    }
    if has(PeerGroup::Etcd) {
        etcd::install()?;
    }
    if has(PeerGroup::Rdma) {
        rdma::install()?;
    }
    Ok(())
}

/// Returns names of groups, as `KUMIKI_PEERS` has them.
#[must_use]
pub fn names(groups: &[PeerGroup]) -> String {
    let names: Vec<_> = groups.iter().map(|group| group.name()).collect();
    names.join(",")
}

/// Returns the versions of the programs that are installed, a line each.
#[must_use]
pub fn versions() -> String {
    let line = |peer: &Peer| Some(format!("{} {}\n", peer.name(), version(peer)?));
    PEERS.iter().filter_map(line).collect()
}

/// Returns `true` if a program can be started.
#[must_use]
pub fn has(program: &str) -> bool {
    PEERS
        .iter()
        .any(|p| p.name() == program && version(p).is_some())
}

/// Returns `true` if a check that lacks something on this machine must fail instead of being skipped:
/// `KUMIKI_REQUIRE_PEERS` is set.
#[must_use]
pub fn are_required() -> bool {
    env::var_os(REQUIRED).is_some_and(|value| value == "1")
}

fn version(peer: &Peer) -> Option<String> {
    let mut command = Command::new(peer.program);
    let output = command.arg(peer.version).output().ok()?;
    // Some tell it where they tell errors.
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default().trim();
    output.status.success().then(|| line.to_owned())
}

/// Stops the servers that Debian's packages start, such as Redis at port 6379. They would use the cores that are
/// measured; the harnesses start servers of their own. Where there is no init system, there is nothing to stop,
/// and the command's failure says only that.
fn stop_services() {
    for service in ["redis-server", "nutcracker"] {
        let _ = process::output("service", apt::as_root("service").args([service, "stop"]));
    }
}
