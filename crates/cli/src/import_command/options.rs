//! The command line of `kumiki import`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::source_url::SourceUrl;
use crate::argument_values::parse_time;
use crate::node_connection::CredentialOptions;

/// Options of `kumiki import`.
#[derive(Args, Debug)]
pub(crate) struct ImportOptions {
    /// What is imported: a file (the dump.rdb of Redis or Valkey, or what 'redis-cli --rdb FILE' has got), or a running
    /// server, redis://USER:PASSWORD@HOST:PORT (or only HOST), whose changes are followed until the import is completed.
    #[arg(value_name = "FILE|URL")]
    pub(super) source: PathBuf,
    /// The server: where its clients connect. Of a cluster any node, or the proxy.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6380")]
    pub(super) to: String,
    #[command(flatten)]
    pub(super) credentials: CredentialOptions,
    /// Import although the server has keys. Those that the source has as well are replaced.
    #[arg(long)]
    pub(super) replace: bool,
    /// Go on where an import ended early: the position that it has printed. Imports that follow a running server know
    /// their position.
    #[arg(long, value_name = "POSITION")]
    pub(super) continue_at: Option<String>,
    /// Connections to each node.
    #[arg(long, value_name = "N", default_value = "4")]
    pub(super) connections: NonZeroUsize,
    /// How long the server, or the source, may be gone or refuse to serve before the import ends.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(super) patience: Duration,
    #[command(flatten)]
    pub(super) live: LiveOptions,
}

/// Options of an import from a running server.
#[derive(Args, Debug)]
#[command(next_help_heading = "Import from a running server")]
pub(super) struct LiveOptions {
    /// A file with the source's password, which other users must not be able to read.
    #[arg(long, value_name = "FILE")]
    pub(super) source_password_file: Option<PathBuf>,
    /// Complete the import: have the source's writers wait (CLIENT PAUSE), and apply the last commands.
    #[arg(long, conflicts_with_all = ["until_caught_up", "finish"])]
    pub(super) cut_over: bool,
    /// How long the source's writers wait, unless the import fails.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub(super) pause: Duration,
    /// Complete the import as soon as the server has caught up. The source's writers must have been stopped.
    #[arg(long, conflicts_with = "finish")]
    pub(super) until_caught_up: bool,
    /// Complete an earlier import with what it has brought: the source is gone.
    #[arg(long, conflicts_with = "restart")]
    pub(super) finish: bool,
    /// Delete all keys of the server, which an earlier import has brought, and begin again.
    #[arg(long)]
    pub(super) restart: bool,
    /// The directory for what was received and is not applied yet: a copy of the source's data, and its changes meanwhile
    /// [default: that for temporary files].
    #[arg(long, value_name = "DIR")]
    pub(super) spool: Option<PathBuf>,
    /// Read the keys one by one (SCAN and DUMP), where the source does not let clients replicate: not the keys of one
    /// moment.
    #[arg(long, conflicts_with_all = ["cut_over", "until_caught_up", "finish", "restart"])]
    pub(super) by_scan: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).ok_or_else(|| "a time with its unit, for example 30s".to_owned())
}

impl ImportOptions {
    /// Returns the source's URL; `None`: it is a file.
    ///
    /// # Errors
    /// The text says what is wrong with the URL, or which options are not of a file.
    pub(super) fn url(&self) -> Result<Option<SourceUrl>, String> {
        let url = self.source.to_str().map(SourceUrl::parse);
        let url = url.transpose()?.flatten();
        let live = &self.live;
        let is_live = live.cut_over
            || live.until_caught_up
            || live.finish
            || live.restart
            || live.by_scan
            || live.source_password_file.is_some();
        match url {
            None if is_live => Err(
                "--cut-over, --until-caught-up, --finish, --restart, --by-scan and --source-password-file are for a \
                 running server (redis://host:port)"
                    .to_owned(),
            ),
            url => Ok(url),
        }
    }
}
