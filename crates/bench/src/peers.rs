//! Programs of others that experiments stand beside.

use std::path::{Path, PathBuf};

use crate::cassandra::Installed;
use crate::sample::RunError;
use crate::ycsb::Ycsb;

/// Where `cargo xtask peers` puts etcd, below the repository.
const ETCD: &str = "target/peers/etcd/etcd";

/// What is there.
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
    /// Whether the lack of one is a failure. Otherwise its points are skipped.
    pub required: bool,
}

impl Peers {
    /// Those in the repository `root`, or else in the directories of `path`, which is written as
    /// the variable `PATH` is.
    #[must_use]
    pub fn find(root: &Path, path: &std::ffi::OsStr) -> Peers {
        let installed = |name: &'static str| {
            // What only servers use may lie where users do not look.
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
            required: false,
        }
    }

    pub(crate) fn cassandra(&self) -> Result<Installed, RunError> {
        Installed::find(&self.root).map_err(|error| self.lacking(error.to_string()))
    }

    pub(crate) fn ycsb(&self) -> Result<Ycsb, RunError> {
        Ycsb::find(&self.root).map_err(|error| self.lacking(error.to_string()))
    }

    fn lacking(&self, what: String) -> RunError {
        match self.required {
            true => RunError::Failed(what),
            false => RunError::Skipped(what),
        }
    }

    /// `redis-server`, or `None` if Kumiki has to do.
    pub(crate) fn redis(&self) -> Result<Option<&Path>, RunError> {
        match (&self.redis, self.required) {
            (None, true) => {
                let what = "redis-server is not installed; Debian's package has this name";
                Err(RunError::Failed(what.to_owned()))
            }
            (found, _) => Ok(found.as_deref()),
        }
    }

    pub(crate) fn twemproxy(&self) -> Result<&Path, RunError> {
        let what = "twemproxy is not installed; Debian's package is called nutcracker";
        found(self.twemproxy.as_deref(), self.required, what)
    }

    pub(crate) fn etcd(&self) -> Result<&Path, RunError> {
        let what = "etcd is not installed; in Kumiki's repository `cargo xtask peers` installs it";
        found(self.etcd.as_deref(), self.required, what)
    }
}

fn found<'p>(program: Option<&'p Path>, required: bool, what: &str) -> Result<&'p Path, RunError> {
    match (program, required) {
        (Some(program), _) => Ok(program),
        (None, true) => Err(RunError::Failed(what.to_owned())),
        (None, false) => Err(RunError::Skipped(what.to_owned())),
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
        let required = Peers {
            required: true,
            ..find()
        };
        assert!(matches!(required.etcd(), Err(RunError::Failed(_))));
        let in_path = place("bin/etcd");
        assert_eq!(find().etcd(), Ok(in_path.as_path()));
        let in_repository = place(ETCD);
        assert_eq!(find().etcd(), Ok(in_repository.as_path()));
    }
}
