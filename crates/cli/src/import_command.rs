//! `kumiki import`: the keys of Redis or Valkey, sent to a running server.
//!
//! | from | how |
//! |---|---|
//! | a file (`dump.rdb`), `file_import` | it is read once, to its checksum: a damaged one changes nothing (`survey`); then its keys are sent (`copying`, `sending`) |
//! | a running server, `replication` | as a replica of it: a copy of all keys, and its commands from then on, until a cut-over |
//! | a running server, `scanning` | key by key, by `SCAN` and `DUMP` |
//!
//! A batch of keys that was not answered is sent again: writing a key twice makes no difference. When the import of a
//! file ends early, it prints the position up to which everything is there, where another one can go on. One that follows
//! a server keeps its position in the target (`position`).
//!
//! From the lowest layer up; a module uses those of the rows above its own:
//!
//! | modules | what |
//! |---|---|
//! | `source_url`, `deadlines`, `position` | values |
//! | `target`, `source`, `options` | both ends, and the command line |
//! | `sending`, `survey` | batches on their way, and the first reading of a file |
//! | `copying` | the items of a file |
//! | `file_import`, `replication`, `scanning` | the three kinds of imports |
//!
//! Decision that binds this module: `docs/decisions/0099-an-import-keeps-its-position-in-the-target.md`.

mod copying;
mod deadlines;
mod file_import;
mod options;
mod position;
mod replication;
mod scanning;
mod sending;
mod source;
mod source_url;
mod survey;
mod target;

pub(crate) use options::ImportOptions;

/// Imports.
///
/// # Errors
/// The text says why the import has ended early, and how it can go on.
pub(crate) fn run(options: &ImportOptions) -> Result<(), String> {
    match options.url()? {
        None => file_import::run(options),
        Some(url) if options.live.by_scan => scanning::run(options, &url),
        Some(url) => replication::run(options, &url),
    }
}
