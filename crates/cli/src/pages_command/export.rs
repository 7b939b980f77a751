//! `kumiki pages export`: the keys of a running server, as they were at one moment, as a table.
//!
//! | step | what |
//! |---|---|
//! | 1 | the server is asked for a snapshot (`crate::snapshot`), which it holds for this connection |
//! | 2 | its entries come in the order of keys, some pieces ahead, and become rows (`rows`) |
//! | 3 | rows become pages of a table that no reader sees before the last one is durable |
//!
//! If the export ends before that, the tables stay as they were.

mod rows;

use std::sync::Arc;
use std::time::Instant;

use arrow_array::temporal_conversions::timestamp_ms_to_datetime;
use base::size::Size;
use clap::Args;
use pages::{Error, LoadOptions, Mode, PageSize, Progress, Sink, Table};

use super::options::parse_page_size;
use crate::output::say_line;
use crate::progress::ProgressLine;
use crate::signals::StopRequest;
use crate::snapshot::{DatabaseSnapshot, ExportedServer, SnapshotKeys};
use crate::table_location::TableLocation;
use rows::{LongValues, Rows};

/// Options of `kumiki pages export`.
#[derive(Args, Debug)]
pub(super) struct Export {
    #[command(flatten)]
    server: ExportedServer,
    /// The database whose keys are taken.
    #[arg(long, value_name = "N", default_value_t = 0)]
    database: u16,
    /// The table.
    #[arg(long, value_name = "NAME", default_value = "store")]
    table: String,
    /// Only keys that match this pattern, as KEYS understands it.
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<String>,
    #[command(flatten)]
    place: TableLocation,
    /// Bytes of a page: 4KiB, 8KiB, 16KiB, 32KiB, 64KiB or 128KiB.
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = parse_page_size)]
    page_size: PageSize,
    /// Replace the table if it is there.
    #[arg(long)]
    replace: bool,
    /// Keys and values are bytes (bytea), and need not be text.
    #[arg(long)]
    binary: bool,
    /// What becomes of a value that is too long for a page.
    #[arg(long, value_name = "WHAT", default_value = "refuse")]
    long_values: LongValues,
}

/// Runs an export.
pub(super) fn export(options: &Export, stop: &StopRequest) -> Result<(), String> {
    let begun = Instant::now();
    let table = &options.table;
    let (address, connection, _) = options.server.connect()?;
    let tables = stop.of(options.place.open()?);
    let mode = match options.replace {
        true => Mode::Replace,
        false => Mode::Create,
    };
    let says = |error: Error| error.to_string();
    if mode == Mode::Create && tables.table(table).map_err(says)?.is_some() {
        return Err(format!(
            "there is a table {table} already: replace it (--replace), or name another (--table)"
        ));
    }
    let mut rows = Rows::new(options.binary, options.page_size, options.long_values);
    let shape = LoadOptions {
        page_size: options.page_size,
        ..LoadOptions::default()
    };
    let load = tables.load(table, rows.schema(), &shape, mode);
    let load = load.map_err(says)?;
    let told = |error: String| format!("{address}: {error}");
    let selection = SnapshotKeys {
        database: options.database,
        pattern: options.pattern.as_deref(),
        stale: options.server.stale,
    };
    let snapshot = DatabaseSnapshot::begin(connection, &selection);
    let mut snapshot = snapshot.map_err(told)?;
    let loaded = fill(&mut snapshot, &mut rows, load, table, &told)?;
    tell(&loaded, &snapshot, &rows, begun);
    if snapshot.partitions > 1 {
        eprintln!(
            "kumiki: {address} has partition {} of {}: the keys of the others are exported from \
             their nodes",
            snapshot.partition, snapshot.partitions
        );
    }
    Ok(())
}

/// Reads all entries and writes them to a table.
fn fill(
    snapshot: &mut DatabaseSnapshot,
    rows: &mut Rows,
    mut load: Box<dyn Sink>,
    table: &str,
    told: &impl Fn(String) -> String,
) -> Result<Arc<Table>, String> {
    let mut progress = ProgressLine::new(format!("{table}: rows"));
    let nothing = |error: String| format!("{error}; nothing of this export to {table} is kept");
    while let Some(entries) = snapshot.next().map_err(told).map_err(nothing)? {
        if entries.is_empty() {
            continue;
        }
        let batch = rows.batch(&entries).map_err(nothing)?;
        let pushed = load.push(&batch);
        pushed.map_err(|error| nothing(error.to_string()))?;
        progress.done(load.rows(), snapshot.expected());
    }
    load.commit().map_err(|error| error.to_string())
}

fn tell(loaded: &Table, snapshot: &DatabaseSnapshot, rows: &Rows, begun: Instant) {
    let time = timestamp_ms_to_datetime(snapshot.time_ms);
    let time = time.map_or_else(
        || format!("{} ms", snapshot.time_ms),
        |time| format!("{} UTC", time.format("%Y-%m-%d %H:%M:%S%.3f")),
    );
    say_line!(
        "{}: {} rows in {} pages, {}, as of {time} (epoch {}), version {}, {:.1} s",
        loaded.name,
        loaded.rows(),
        loaded.pages(),
        Size(loaded.pages() * loaded.page_size.bytes() as u64),
        snapshot.epoch,
        loaded.version.0,
        begun.elapsed().as_secs_f64()
    );
    if rows.left_out() > 0 {
        say_line!(
            "{}: {} values are null, because they are longer than {} bytes, which a page holds",
            loaded.name,
            rows.left_out(),
            loaded.page_size.longest_value()
        );
    }
}
