//! Backups of nodes and clusters: what they are made of, how they are made, verified and restored.
//!
//! A backup is what a crash of all nodes at one moment would have left: for each node the files of a checkpoint and of
//! the logs behind it, and an epoch. The state as of the end of that epoch belongs to the backup, and nothing later.
//!
//! | module | concept |
//! |---|---|
//! | [`object_store`], `directory_store`, `s3_store` | the place of the files: objects that are written once and as a whole; a directory, or a store that speaks the protocol of S3 |
//! | `encryption_key`, `object_format` | the bytes of an object: checksums, or encryption |
//! | `source` | a running node, as far as backups need it |
//! | `error` | why a backup is refused |
//! | `manifest` | a backup: its moment, and the pieces of files that it adds to its chain |
//! | `repository` | all backups of one node or cluster |
//! | `creation` | making them |
//! | `verification`, `restoration` | reading them |
//!
//! The crate does not know how nodes are reached: a [`NodeSource`] does.
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0101-a-backup-is-a-crash-of-all-nodes-at-once.md`

#![forbid(unsafe_code)]

mod creation;
mod directory_store;
mod encryption_key;
mod error;
mod manifest;
mod object_format;
pub mod object_store;
mod repository;
mod restoration;
mod s3_store;
mod source;
mod verification;

pub use creation::{Creation, CreationError, CreationObserver, CreationOptions};
pub use directory_store::DirectoryStore;
pub use encryption_key::{BadKey, EncryptionKey};
pub use error::RepositoryError;
pub use manifest::{BackupManifest, FilePiece, NodeBackup};
pub use object_store::ObjectStore;
pub use repository::{BackupChain, Repository};
pub use restoration::{RestorationError, RestoreObserver, RestorePoint, Restored, restore};
pub use s3_store::{S3Settings, S3Store};
pub use source::{NodeDescription, NodeSource};
pub use verification::{Verification, verify};
