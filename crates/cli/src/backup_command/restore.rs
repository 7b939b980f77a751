//! `kumiki backup restore`.

use std::path::PathBuf;
use std::sync::Mutex;

use backup::{RestoreObserver, RestorePoint};
use base::size::Size;
use base::utc::UtcTime;
use clap::Args;

use super::location::{self, EncryptionOptions};
use crate::output::say_line;
use crate::progress::StatusLine;
use crate::signals::StopRequest;

/// Options of `kumiki backup restore`.
#[derive(Args, Debug)]
pub(super) struct BackupRestoreOptions {
    /// The directory of the backups, or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "DIR|URL")]
    backup: String,
    /// The data directory, or that of the nodes' data directories. It must not exist.
    #[arg(long, value_name = "NEWDIR")]
    to: PathBuf,
    /// What is restored: latest; a backup as 'kumiki backup list' names it; or a time in UTC, such as
    /// 2026-11-30T17:15:37.250Z: the state of a single node at that time, or of a cluster the newest backup before it.
    #[arg(long, value_name = "TIME", default_value = "latest")]
    at: String,
    /// Restore this node alone, to the data directory that is named.
    #[arg(long, value_name = "N")]
    node: Option<u16>,
    #[command(flatten)]
    key: EncryptionOptions,
}

impl BackupRestoreOptions {
    fn point(&self) -> Result<RestorePoint, String> {
        if self.at == "latest" {
            return Ok(RestorePoint::Newest);
        }
        let is_backup = self.at.split_once("Z.").is_some_and(|(_, number)| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        if is_backup {
            return Ok(RestorePoint::Backup(self.at.clone()));
        }
        let time: UtcTime = self.at.parse().map_err(|error| format!("--at {error}"))?;
        Ok(RestorePoint::Time(time.0))
    }
}

/// Restores.
///
/// # Errors
/// The text says why nothing was restored.
pub(super) fn run(options: &BackupRestoreOptions) -> Result<(), String> {
    let point = options.point()?;
    let stop = StopRequest::on_signal()?;
    let repository = location::open(&options.backup, &options.key)?;
    let observer = Observer {
        line: Mutex::new(StatusLine::new()),
        stop,
    };
    let restored = backup::restore(&repository, &point, &options.to, options.node, &observer);
    let restored = restored.map_err(|error| error.to_string())?;
    drop(observer);
    for (node, dir, _) in &restored.nodes {
        let who = match node {
            0 => String::new(),
            node => format!("node {node}, "),
        };
        say_line!(
            "{}: {who}backup {}, as of {}",
            dir.display(),
            restored.backup,
            UtcTime(restored.moment_ms)
        );
    }
    say_line!("restored {}", Size(restored.bytes));
    Ok(())
}

struct Observer {
    line: Mutex<StatusLine>,
    stop: StopRequest,
}

impl RestoreObserver for Observer {
    fn written(&self, done: u64, of: u64) {
        let mut line = self.line.lock().expect("it is only shown");
        line.show(&format!("{} of {}", Size(done), Size(of)));
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_wanted()
    }
}
