//! Programs of others that experiments are compared with.

use std::path::{Path, PathBuf};

use testkit::peers::{Group, Selection};

use crate::error::RunError;
use cassandra::Installed;
use cassandra::ycsb::Ycsb;

/// Where `cargo xtask peers` puts etcd, below the repository.
const ETCD: &str = "target/peers/etcd/etcd";

/// The programs that are installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// The server of etcd.
    pub etcd: Option<PathBuf>,
    /// `redis-server`.
    pub redis: Option<PathBuf>,
    /// The proxy twemproxy, which Debian calls `nutcracker`.
    pub twemproxy: Option<PathBuf>,
    /// The repository, in which Cassandra and YCSB are looked for when they are needed.
    pub root: PathBuf,
    /// The groups of peers that are measured. Points with other groups are left out; those with a
    /// selected peer that is missing are skipped, or fail if peers are required.
    pub selection: Selection,
}

impl Peers {
    /// Returns those in the repository `root`, or else in the directories of `path`, which has the
    /// form of the variable `PATH`.
    #[must_use]
    pub fn find(root: &Path, path: &std::ffi::OsStr) -> Peers {
        let installed = |name: &'static str| {
            // Programs that only servers use may lie where users do not look.
            let more = std::iter::once(PathBuf::from("/usr/sbin"));
            let all = std::env::split_paths(path).chain(more);
            all.map(move |dir| dir.join(name))
        };
        let first = |mut places: Box<dyn Iterator<Item = PathBuf> + '_>| {
            places.find(|place| place.is_file())
        };
        let built = std::iter::once(root.join(ETCD));
        Peers {
            etcd: first(Box::new(built.chain(installed("etcd")))),
            redis: first(Box::new(installed("redis-server"))),
            twemproxy: first(Box::new(installed("nutcracker"))),
            root: root.to_owned(),
            selection: Selection::default(),
        }
    }

    pub(crate) fn cassandra(&self) -> Result<Installed, RunError> {
        self.selected(Group::Cassandra)?;
        Installed::find(&self.root).map_err(|error| self.lacking(&error.to_string()))
    }

    pub(crate) fn ycsb(&self) -> Result<Ycsb, RunError> {
        self.selected(Group::Cassandra)?;
        Ycsb::find(&self.root).map_err(|error| self.lacking(&error.to_string()))
    }

    /// Returns `redis-server`, or `None` if Kumiki must replace it.
    pub(crate) fn redis(&self) -> Result<Option<&Path>, RunError> {
        let is_selected = self.selection.has(Group::Redis);
        match self.redis.as_deref().filter(|_| is_selected) {
            None if is_selected && self.selection.required => {
                let what = "redis-server is not installed; Debian's package has this name";
                Err(self.lacking(what))
            }
            found => Ok(found),
        }
    }

    pub(crate) fn twemproxy(&self) -> Result<&Path, RunError> {
        self.selected(Group::Twemproxy)?;
        let what = "twemproxy is not installed; Debian's package is called nutcracker";
        self.twemproxy.as_deref().ok_or_else(|| self.lacking(what))
    }

    pub(crate) fn etcd(&self) -> Result<&Path, RunError> {
        self.selected(Group::Etcd)?;
        let what = "etcd is not installed; in Kumiki's repository `cargo xtask peers` installs it";
        self.etcd.as_deref().ok_or_else(|| self.lacking(what))
    }

    fn selected(&self, group: Group) -> Result<(), RunError> {
        match self.selection.left_out(group) {
            Some(line) => Err(RunError::Skipped(line)),
            None => Ok(()),
        }
    }

    fn lacking(&self, what: &str) -> RunError {
        match self.selection.required {
            true => RunError::Failed(what.to_owned()),
            false => RunError::Skipped(what.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_comes_before_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let place = dir.path().join(name);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(&place, "").unwrap();
            place
        };
        let path = dir.path().join("bin");
        let find = || Peers::find(dir.path(), path.as_os_str());
        assert_eq!(find().etcd, None);
        assert!(matches!(find().etcd(), Err(RunError::Skipped(_))));
        let selecting = |list| Peers {
            selection: Selection::parse(list, Some("1")).unwrap(),
            ..find()
        };
        assert!(matches!(selecting(None).etcd(), Err(RunError::Failed(_))));
        let others = selecting(Some("redis"));
        assert!(matches!(others.etcd(), Err(RunError::Skipped(_))));
        let in_path = place("bin/etcd");
        assert_eq!(find().etcd(), Ok(in_path.as_path()));
        let in_repository = place(ETCD);
        assert_eq!(find().etcd(), Ok(in_repository.as_path()));
    }
}
