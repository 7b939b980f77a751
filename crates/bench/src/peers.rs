//! Programs of others that experiments stand beside.

use std::path::{Path, PathBuf};

use crate::sample::RunError;

/// Where `cargo xtask peers` puts etcd, below the repository.
const ETCD: &str = "target/peers/etcd/etcd";

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// The server of etcd.
    pub etcd: Option<PathBuf>,
    /// Whether the lack of one is a failure. Otherwise its points are skipped.
    pub required: bool,
}

impl Peers {
    /// Those in the repository `root`, or else in the directories of `path`, which is written as
    /// the variable `PATH` is.
    #[must_use]
    pub fn find(root: &Path, path: &std::ffi::OsStr) -> Peers {
        let installed = std::env::split_paths(path).map(|dir| dir.join("etcd"));
        let mut places = std::iter::once(root.join(ETCD)).chain(installed);
        Peers {
            etcd: places.find(|place| place.is_file()),
            required: false,
        }
    }

    pub(crate) fn etcd(&self) -> Result<&Path, RunError> {
        let what = "etcd is not installed; in Kumiki's repository `cargo xtask peers` installs it";
        match (&self.etcd, self.required) {
            (Some(program), _) => Ok(program),
            (None, true) => Err(RunError::Failed(what.to_owned())),
            (None, false) => Err(RunError::Skipped(what.to_owned())),
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
