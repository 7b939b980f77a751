//! `kumiki backup list`.

use base::size::Size;
use base::utc::UtcTime;
use clap::Args;

use super::location::{self, EncryptionOptions};
use crate::output::say_line;

/// Options of `kumiki backup list`.
#[derive(Args, Debug)]
pub(super) struct BackupListOptions {
    /// The directory of the backups, or s3://BUCKET/PREFIX.
    #[arg(value_name = "DIR|URL")]
    backups: String,
    #[command(flatten)]
    key: EncryptionOptions,
}

/// Lists the backups, the oldest first.
///
/// # Errors
/// The text says why they cannot be read.
pub(super) fn run(options: &BackupListOptions) -> Result<(), String> {
    let repository = location::open(&options.backups, &options.key)?;
    let chains = repository.chains().map_err(|error| error.to_string())?;
    say_line!(
        "{:<28}{:<13}{:<26}{:>7}{:>12}",
        "BACKUP",
        "KIND",
        "AS OF",
        "NODES",
        "SIZE"
    );
    for chain in &chains {
        if chain.backups.is_empty() {
            say_line!("{:<28}{}", chain.name, "unfinished");
        }
        for backup in &chain.backups {
            let kind = if backup.number == 0 {
                "full"
            } else {
                "incremental"
            };
            say_line!(
                "{:<28}{kind:<13}{:<26}{:>7}{:>12}",
                backup.name(),
                UtcTime(backup.moment_ms).to_string(),
                backup.nodes.len(),
                Size(backup.bytes()).to_string()
            );
        }
    }
    Ok(())
}
