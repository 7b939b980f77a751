//! Programs of other projects that tests need: servers, clients, drivers.
//!
//! A machine may lack them; `cargo xtask peers` installs them. They form groups, so that a run can
//! select some:
//!
//! | variable | meaning |
//! |---|---|
//! | `KUMIKI_PEERS` | names of groups with commas between them; tests of other groups are left out. Unset: all groups |
//! | `KUMIKI_REQUIRE_PEERS=1` | a test of a selected group fails if its peer is missing, instead of being skipped |
//!
//! A test that is left out or skipped passes and prints one line to standard error.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::TestkitError;

/// Peers that are installed together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// `redis-server`, `redis-cli`, `redis-benchmark`, and what traces and places processes:
    /// `strace`, `taskset`.
    Redis,
    /// The Redis client of Python, and packages that use it.
    Python,
    /// Redis clients of Node.js, and packages that use them.
    Node,
    /// The Redis client of Go and a package that uses it, in programs.
    Go,
    /// Job queues of Python and Ruby, and packages of Java that use Redis.
    Queues,
    /// Cassandra, its drivers for Java, Python and Rust, `cqlsh`, YCSB.
    Cassandra,
    /// `psql`, and the clients of PostgreSQL psycopg 3, asyncpg and node-postgres.
    Postgres,
    /// More clients of PostgreSQL: psycopg 2, SQLAlchemy, pandas, connectorx, DuckDB, dbt, ODBC,
    /// pgjdbc, pgx.
    SqlClients,
    /// `etcd`.
    Etcd,
    /// The proxy twemproxy, whose program is `nutcracker`.
    Twemproxy,
    /// A small machine with an RDMA device.
    Rdma,
}

/// The selection of peers for a run of tests.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Selection {
    /// The selected groups; `None`: all of them.
    groups: Option<Vec<Group>>,
    /// A missing peer of a selected group is a failure.
    pub required: bool,
}

impl Group {
    /// All groups.
    pub const ALL: [Group; 11] = [
        Group::Redis,
        Group::Python,
        Group::Node,
        Group::Go,
        Group::Queues,
        Group::Cassandra,
        Group::Postgres,
        Group::SqlClients,
        Group::Etcd,
        Group::Twemproxy,
        Group::Rdma,
    ];

    /// Returns the name of the group in `KUMIKI_PEERS` and on the command line of `cargo xtask
    /// peers`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Group::Redis => "redis",
            Group::Python => "python",
            Group::Node => "node",
            Group::Go => "go",
            Group::Queues => "queues",
            Group::Cassandra => "cassandra",
            Group::Postgres => "postgres",
            Group::SqlClients => "sql-clients",
            Group::Etcd => "etcd",
            Group::Twemproxy => "twemproxy",
            Group::Rdma => "rdma",
        }
    }
}

/// The decision about a test that needs a peer.
enum Decision<T> {
    /// The test runs; the peer is here.
    Run(T),
    /// The test does not run, for this reason.
    Skip(String),
}

impl Selection {
    /// Returns the selection that the environment of this process defines.
    ///
    /// # Errors
    /// Returns an error if `KUMIKI_PEERS` has a name that no group has; the error names it.
    pub fn of_environment() -> Result<Selection, TestkitError> {
        let list = std::env::var("KUMIKI_PEERS").ok();
        let required = std::env::var("KUMIKI_REQUIRE_PEERS").ok();
        Selection::parse(list.as_deref(), required.as_deref())
    }

    /// Returns the selection for these values of `KUMIKI_PEERS` and `KUMIKI_REQUIRE_PEERS`.
    ///
    /// # Errors
    /// Returns an error if the list has a name that no group has; the error names it.
    pub fn parse(list: Option<&str>, required: Option<&str>) -> Result<Selection, TestkitError> {
        let group = |name: &str| {
            let found = Group::ALL.into_iter().find(|group| group.name() == name);
            found.ok_or_else(|| {
                TestkitError::environment(format!("KUMIKI_PEERS: there is no group '{name}'"))
            })
        };
        let groups = |list: &str| {
            let names = list.split(',').map(str::trim);
            names.filter(|name| !name.is_empty()).map(group).collect()
        };
        Ok(Selection {
            groups: list.map(groups).transpose()?,
            required: required == Some("1"),
        })
    }

    /// Returns `true` if tests of the group are to run.
    #[must_use]
    pub fn has(&self, group: Group) -> bool {
        let groups = self.groups.as_ref();
        groups.is_none_or(|groups| groups.contains(&group))
    }

    /// Returns the line for a group that is left out; `None` if it is selected.
    #[must_use]
    pub fn left_out(&self, group: Group) -> Option<String> {
        let name = group.name();
        let line = || format!("left out: group {name} is not in KUMIKI_PEERS");
        (!self.has(group)).then(line)
    }

    /// Decides about a peer of a group; `found` returns its place.
    ///
    /// # Errors
    /// Returns an error if the peer is missing and required: the test fails.
    fn decide<T>(
        &self,
        group: Group,
        peer: &str,
        found: impl FnOnce() -> Option<T>,
    ) -> Result<Decision<T>, TestkitError> {
        let name = group.name();
        if let Some(line) = self.left_out(group) {
            return Ok(Decision::Skip(line));
        }
        match found() {
            Some(found) => Ok(Decision::Run(found)),
            None if self.required => Err(TestkitError::environment(format!(
                "{peer} is missing, and KUMIKI_REQUIRE_PEERS=1 requires it; \
                 'cargo xtask peers {name}' installs it"
            ))),
            None => Ok(Decision::Skip(format!(
                "skipped: {peer} is missing; 'cargo xtask peers {name}' installs it"
            ))),
        }
    }
}

/// Looks for a peer of a group; `found` returns its place. Returns `None` after printing why the
/// test does not run.
///
/// # Panics
/// Panics if the group is selected, the peer is missing, and peers are required; or if the
/// environment selects a group that does not exist.
#[track_caller]
pub fn find<T>(group: Group, peer: &str, found: impl FnOnce() -> Option<T>) -> Option<T> {
    let selection = Selection::of_environment().unwrap_or_else(|error| panic!("{error}"));
    match selection.decide(group, peer, found) {
        Ok(Decision::Run(found)) => Some(found),
        Ok(Decision::Skip(line)) => {
            // The line is written directly, because the output of a test is hidden when it passes.
            let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns `true` if tests of the group can run with this peer, which exists if `is_there` is
/// `true`. Otherwise prints why they do not run.
///
/// # Panics
/// Panics in the same cases as [`find`].
#[track_caller]
pub fn require(group: Group, peer: &str, is_there: bool) -> bool {
    find(group, peer, || is_there.then_some(())).is_some()
}

/// Returns the path of a program of the group; `None` after printing why the test does not run.
///
/// # Panics
/// Panics in the same cases as [`find`].
#[track_caller]
pub fn program(group: Group, name: &str) -> Option<PathBuf> {
    find(group, name, || in_path(name))
}

/// Returns the path of a library of another language, or of anything else that `cargo xtask peers`
/// puts into `path` below `target/peers`. Returns `None` after printing why the test does not run.
///
/// # Panics
/// Panics in the same cases as [`find`].
#[track_caller]
pub fn installed(group: Group, path: &str) -> Option<PathBuf> {
    find(group, path, || {
        let place = root().join("target/peers").join(path);
        place.exists().then_some(place)
    })
}

/// Returns the path of a program in the directories of `PATH`, or in `/usr/sbin`, which has servers
/// and is in the `PATH` of few users.
#[must_use]
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let mut places = directories.map(|directory| directory.join(name));
    places.find(|place| place.is_file())
}

/// Returns the root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(list: Option<&str>, required: Option<&str>, is_there: bool) -> String {
        let selection = Selection::parse(list, required).unwrap();
        let found = || is_there.then_some(());
        match selection.decide(Group::Cassandra, "Cassandra", found) {
            Ok(Decision::Run(())) => "runs".to_owned(),
            Ok(Decision::Skip(line)) => line,
            Err(line) => format!("fails: {line}"),
        }
    }

    #[test]
    fn a_peer_that_is_there_is_used_if_its_group_is_selected() {
        for list in [None, Some("cassandra"), Some("redis, cassandra")] {
            for required in [None, Some("0"), Some("1")] {
                assert_eq!(decided(list, required, true), "runs");
            }
        }
    }

    #[test]
    fn a_missing_peer_is_a_failure_only_where_peers_are_required() {
        let skipped = "skipped: Cassandra is missing; 'cargo xtask peers cassandra' installs it";
        assert_eq!(decided(None, None, false), skipped);
        assert_eq!(decided(Some("cassandra"), Some("0"), false), skipped);
        assert!(decided(None, Some("1"), false).starts_with("fails: Cassandra is missing"));
        assert!(decided(Some("cassandra"), Some("1"), false).starts_with("fails: "));
    }

    #[test]
    fn groups_that_are_not_selected_are_left_out_even_if_peers_are_required() {
        let left_out = "left out: group cassandra is not in KUMIKI_PEERS";
        for list in ["redis,python", ""] {
            for is_there in [false, true] {
                assert_eq!(decided(Some(list), Some("1"), is_there), left_out);
            }
        }
    }

    #[test]
    fn a_name_that_no_group_has_is_a_mistake() {
        let error = Selection::parse(Some("redis,casandra"), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "KUMIKI_PEERS: there is no group 'casandra'"
        );
    }

    #[test]
    fn a_program_is_found_in_the_path() {
        assert!(in_path("sh").is_some_and(|place| place.ends_with("sh")));
        assert_eq!(in_path("no-such-program"), None);
    }
}
