//! The names of a checkpoint's files, and the directory in which they lie.

use std::path::{Path, PathBuf};

use base::Epoch;

/// The directory, within the journal's.
const DIRECTORY: &str = "checkpoint";

/// A file of a checkpoint, as its name describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CheckpointFile {
    Part(Epoch, u32),
    Manifest(Epoch),
    Draft(Epoch),
}

impl CheckpointFile {
    pub(crate) fn parse(name: &str) -> Option<CheckpointFile> {
        let (digits, rest) = name.split_at_checked(20)?;
        let epoch = Epoch(digits.parse().ok()?);
        let number = || rest.strip_prefix('-')?.strip_suffix(".part")?.parse().ok();
        let parsed = match rest {
            ".manifest" => CheckpointFile::Manifest(epoch),
            ".manifest.new" => CheckpointFile::Draft(epoch),
            _ => CheckpointFile::Part(epoch, number()?),
        };
        (parsed.to_string() == name).then_some(parsed)
    }

    pub(crate) fn epoch(self) -> Epoch {
        match self {
            CheckpointFile::Part(epoch, _)
            | CheckpointFile::Manifest(epoch)
            | CheckpointFile::Draft(epoch) => epoch,
        }
    }
}

impl std::fmt::Display for CheckpointFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CheckpointFile::Part(epoch, number) => write!(f, "{:020}-{number:03}.part", epoch.0),
            CheckpointFile::Manifest(epoch) => write!(f, "{:020}.manifest", epoch.0),
            CheckpointFile::Draft(epoch) => write!(f, "{:020}.manifest.new", epoch.0),
        }
    }
}

/// Returns the directory of the checkpoints of the journal in `dir`.
pub(crate) fn directory(dir: &Path) -> PathBuf {
    dir.join(DIRECTORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_in_no_other_way() {
        for name in [
            CheckpointFile::Part(Epoch(7), 0),
            CheckpointFile::Part(Epoch(u64::MAX), 1234),
            CheckpointFile::Manifest(Epoch(0)),
            CheckpointFile::Draft(Epoch(99)),
        ] {
            assert_eq!(CheckpointFile::parse(&name.to_string()), Some(name));
        }
        for other in [
            "",
            "7.manifest",
            "00000000000000000007.manifest.old",
            "00000000000000000007-1.part",
            "00000000000000000007-0001.part",
            "99999999999999999999.manifest",
            "0000000000000000000é-001.part",
        ] {
            assert_eq!(CheckpointFile::parse(other), None, "{other}");
        }
    }
}
