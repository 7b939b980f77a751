//! `kumiki backup verify`.

use base::size::Size;
use clap::Args;

use super::location::{self, EncryptionOptions};
use crate::output::say_line;
use crate::progress::StatusLine;
use crate::signals::StopRequest;

/// Options of `kumiki backup verify`.
#[derive(Args, Debug)]
pub(super) struct VerifyOptions {
    /// The directory of the backups, or s3://BUCKET/PREFIX.
    #[arg(value_name = "DIR|URL")]
    backups: String,
    /// Verify only this backup, and the others of its chain.
    #[arg(long, value_name = "BACKUP")]
    backup: Option<String>,
    #[command(flatten)]
    key: EncryptionOptions,
}

/// Verifies the backups.
///
/// # Errors
/// The text says what is damaged.
pub(super) fn run(options: &VerifyOptions) -> Result<(), String> {
    let stop = StopRequest::on_signal()?;
    let repository = location::open(&options.backups, &options.key)?;
    let mut line = StatusLine::new();
    let mut report = |done, of| {
        line.show(&format!("{} of {}", Size(done), Size(of)));
        stop.is_wanted()
    };
    let found = backup::verify(&repository, options.backup.as_deref(), &mut report);
    let found = found.map_err(|error| error.to_string())?;
    drop(line);
    if stop.is_wanted() {
        return Err("stopped".to_owned());
    }
    for damage in &found.damages {
        say_line!("{damage}");
    }
    let unused = match found.unused {
        0 => String::new(),
        unused => format!("; {unused} files are of interrupted backups, and not needed"),
    };
    say_line!(
        "{}: {} backups, {} files, {}{unused}",
        repository.place(),
        found.backups,
        found.files,
        Size(found.bytes)
    );
    match found.damages.len() {
        0 => Ok(()),
        1 => Err("1 file is damaged or missing".to_owned()),
        damages => Err(format!("{damages} files are damaged or missing")),
    }
}
