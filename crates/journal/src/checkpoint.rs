//! Checkpoints: the whole store at one epoch, in files, so that the logs before it can be removed.
//!
//! They lie in the directory `checkpoint` beside the logs. A checkpoint of epoch *S* is made of
//! these files, where `<S>` has twenty digits:
//!
//! | name | what | format |
//! |---|---|---|
//! | `<S>-000.part`, `<S>-001.part`, … | the keys, in disjoint shares | [`part`] |
//! | `<S>.manifest` | what belongs to it | [`manifest`] |
//! | `<S>.manifest.new` | a manifest that is not published yet | |
//!
//! The steps of making one:
//!
//! 1. every log continues in a new segment ([`Draft`] knows its number);
//! 2. *S* is drawn: it is at least every epoch of the segments before those;
//! 3. the parts are written and synced, while transactions go on;
//! 4. *S* becomes durable, and every log gets a block that closes it;
//! 5. the names of the parts are synced; the manifest is written, synced, renamed to its name, and
//!    that is synced: from here on the checkpoint counts;
//! 6. segments before those of step 1 are removed, and so are older checkpoints.
//!
//! Invariants:
//! 1. A manifest that has its name describes parts that are complete and durable, and an epoch
//!    that is durable in the logs.
//! 2. A segment or an older checkpoint is removed only after the manifest's name is durable.
//!    Removed files are not needed any more: a removal that was not finished makes no difference.
//! 3. A checkpoint that fails leaves no file, as far as the disk lets it, and the journal as it
//!    was. If files stay behind, they have no published manifest, and a recovery removes them.
//! 4. Entries of epochs ≤ *S* count only as the checkpoint has them: a key whose deletion was in a
//!    removed segment does not come back by an older entry in one that is still there.

mod draft;
mod logs;
pub(crate) mod manifest;
pub(crate) mod part;
pub(crate) mod read;
mod remove;

use std::path::{Path, PathBuf};

use base::{Epoch, Tid};

pub use draft::{Draft, Published};
pub(crate) use logs::Origin;
pub use part::{Head, Part, PartWriter};
pub(crate) use remove::remove_files;

/// The directory, within the journal's.
const DIRECTORY: &str = "checkpoint";

/// The moment that a checkpoint holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Everything up to this epoch, and nothing later.
    pub epoch: Epoch,
    /// The epoch's time, milliseconds since the Unix epoch.
    pub stamp_ms: u64,
    /// The generation that is visible, and to which all entries belong that are no system records.
    pub generation: u16,
    /// The transaction that began it; zero when nothing was ever flushed.
    pub generation_tid: Tid,
}

/// A file of a checkpoint, as its name describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    Part(Epoch, u32),
    Manifest(Epoch),
    Draft(Epoch),
}

impl Name {
    pub(crate) fn parse(name: &str) -> Option<Name> {
        let (digits, rest) = name.split_at_checked(20)?;
        let epoch = Epoch(digits.parse().ok()?);
        let number = || rest.strip_prefix('-')?.strip_suffix(".part")?.parse().ok();
        let parsed = match rest {
            ".manifest" => Name::Manifest(epoch),
            ".manifest.new" => Name::Draft(epoch),
            _ => Name::Part(epoch, number()?),
        };
        (parsed.to_string() == name).then_some(parsed)
    }

    pub(crate) fn epoch(self) -> Epoch {
        match self {
            Name::Part(epoch, _) | Name::Manifest(epoch) | Name::Draft(epoch) => epoch,
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Part(epoch, number) => write!(f, "{:020}-{number:03}.part", epoch.0),
            Name::Manifest(epoch) => write!(f, "{:020}.manifest", epoch.0),
            Name::Draft(epoch) => write!(f, "{:020}.manifest.new", epoch.0),
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
            Name::Part(Epoch(7), 0),
            Name::Part(Epoch(u64::MAX), 1234),
            Name::Manifest(Epoch(0)),
            Name::Draft(Epoch(99)),
        ] {
            assert_eq!(Name::parse(&name.to_string()), Some(name));
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
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
