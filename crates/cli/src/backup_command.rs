//! `kumiki backup`: backups of a running node or cluster, to a directory or to a store of objects.
//!
//! Decision that binds this module: `docs/decisions/0101-a-backup-is-a-crash-of-all-nodes-at-once.md`.

mod create;
mod list;
mod location;
mod node_source;
mod restore;
mod verify;

use clap::{Args, Subcommand};

/// Options of `kumiki backup`.
#[derive(Args, Debug)]
pub(crate) struct BackupOptions {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Back up a running node or cluster: everything the first time, afterwards what its logs have since
    ///
    /// The nodes go on meanwhile. The backup is their state at one moment, which all nodes of a cluster have in common.
    /// An interrupted backup goes on with the same command.
    ///
    /// Example:
    ///   kumiki backup create --from 127.0.0.1:6380 --to /backups/shop
    #[command(verbatim_doc_comment)]
    Create(create::CreateOptions),
    /// List backups: their moments and sizes
    List(list::BackupListOptions),
    /// Read all files of backups, and compare their checksums
    Verify(verify::VerifyOptions),
    /// Make data directories of a backup, as of one of its moments
    ///
    /// A node that is no node of a cluster gets the directory that is named; of a cluster each node gets the directory
    /// nodeN in it. 'kumiki serve --data DIR' starts from such a directory. The nodes of a cluster may have other
    /// addresses then; their numbers, partitions and slots must be those of the backup.
    ///
    /// Example:
    ///   kumiki backup restore --backup /backups/shop --to /data/shop --at 2026-11-30T17:15:00Z
    #[command(verbatim_doc_comment)]
    Restore(restore::BackupRestoreOptions),
}

/// Runs the command.
///
/// # Errors
/// The text says what is wrong, and what to do.
pub(crate) fn run(options: &BackupOptions) -> Result<(), String> {
    match &options.command {
        Command::Create(options) => create::run(options),
        Command::List(options) => list::run(options),
        Command::Verify(options) => verify::run(options),
        Command::Restore(options) => restore::run(options),
    }
}
