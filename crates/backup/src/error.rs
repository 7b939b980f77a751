//! The errors of a repository of backups. Each names its place, and says what to do.

use crate::object_store::StoreError;

/// The reason why backups cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// The store cannot be reached, read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file is damaged.
    #[error("{place}: damaged at byte {offset}: {what}. The backup is refused")]
    Damaged {
        /// The file.
        place: String,
        /// The offset of the damage.
        offset: u64,
        /// A description of the damage.
        what: String,
    },
    /// A file is missing.
    #[error("{place} is missing: {needed_by} needs it. The backup is refused")]
    Missing {
        /// The file.
        place: String,
        /// What refers to it.
        needed_by: String,
    },
    /// A file was written by a newer release.
    #[error(
        "{place} has format version {version}, and this release reads up to {supported}: use the release that \
         wrote it, or a newer one"
    )]
    Newer {
        /// The file.
        place: String,
        /// Its version.
        version: u64,
        /// The newest version that this release reads.
        supported: u64,
    },
    /// There are no backups.
    #[error("{0} holds no backups: 'kumiki backup create' makes one")]
    Empty(String),
    /// There are other files.
    #[error("{0} holds files, and no backups: name an empty directory, or one that does not exist")]
    Foreign(String),
    /// There is no backup of this name.
    #[error("there is no backup {wanted} in {place}: 'kumiki backup list' shows which there are")]
    NoSuchBackup {
        /// The name.
        wanted: String,
        /// The place of the backups.
        place: String,
    },
    /// The backups are encrypted, and there is no key.
    #[error("the backups in {0} are encrypted: give their key by --encryption-key-file")]
    Encrypted(String),
    /// The backups are not encrypted, and there is a key.
    #[error(
        "the backups in {0} are not encrypted: leave out --encryption-key-file, or name another place for \
         encrypted ones"
    )]
    NotEncrypted(String),
    /// The key is another one.
    #[error(
        "the backups in {place} are encrypted with another key: its fingerprint is {expected}, and that of the \
         given key is {given}"
    )]
    WrongKey {
        /// The place of the backups.
        place: String,
        /// The fingerprint of the right key.
        expected: String,
        /// The fingerprint of the given key.
        given: String,
    },
    /// The backups are of other data.
    #[error("the backups in {place} are of other data: {why}. Name another place")]
    OtherData {
        /// The place of the backups.
        place: String,
        /// The difference.
        why: String,
    },
}
