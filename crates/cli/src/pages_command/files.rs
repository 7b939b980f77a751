//! Loads files: CSV and Parquet.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

use clap::Args;
use pages::Progress;
use sql::load::{self, FileFormat, LoadColumns, LoadRequest};

use super::load::{check_new, tell};
use super::options::LoadTarget;
use crate::progress::ProgressLine;
use crate::signals::StopRequest;

/// Files, and the table that they become.
#[derive(Args, Debug)]
struct Files {
    /// The files, in the order of their rows.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The table's name.
    #[arg(long, value_name = "NAME")]
    table: String,
    /// Columns and their types, as in SQL: 'id bigint not null, price decimal(15, 2)'. Otherwise
    /// files say or show them.
    #[arg(long, value_name = "COLUMNS", value_parser = LoadColumns::from_str, conflicts_with = "append")]
    columns: Option<LoadColumns>,
    #[command(flatten)]
    into: LoadTarget,
}

/// Lines of values.
#[derive(Args, Debug)]
pub(super) struct Csv {
    #[command(flatten)]
    files: Files,
    /// The first line has values, and not the columns' names.
    #[arg(long)]
    no_header: bool,
    /// The character between values, or \t.
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
    /// What stands for null. Otherwise an empty value is null, but in a column of texts, where it is an
    /// empty text; with --null '' it is null there as well.
    #[arg(long, value_name = "TEXT")]
    null: Option<String>,
}

/// Parquet files.
#[derive(Args, Debug)]
pub(super) struct Parquet {
    #[command(flatten)]
    files: Files,
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err("it is a single character, or \\t".to_owned()),
    }
}

pub(super) fn csv(options: &Csv, stop: &StopRequest) -> Result<(), String> {
    let format = load::Csv {
        header: !options.no_header,
        delimiter: options.delimiter,
        null: options.null.clone(),
    };
    run(&options.files, FileFormat::Csv(format), stop)
}

pub(super) fn parquet(options: &Parquet, stop: &StopRequest) -> Result<(), String> {
    run(&options.files, FileFormat::Parquet, stop)
}

fn run(files: &Files, format: FileFormat, stop: &StopRequest) -> Result<(), String> {
    let into = &files.into;
    let depot = stop.of(into.place.open()?);
    check_new(&*depot, &files.table, into)?;
    let request = LoadRequest {
        table: files.table.clone(),
        files: files.files.clone(),
        format,
        columns: files.columns.clone(),
        sort_by: into.sort_by.clone(),
        options: into.options(),
        mode: into.mode(),
    };
    let begun = Instant::now();
    let mut told = ProgressLine::new(format!("{}: rows", files.table));
    let loaded = load::load(&*depot, &request, &mut |rows| told.done(rows, None));
    drop(told);
    let nothing = |error| format!("{error}; nothing of this load of {} is kept", files.table);
    let loaded = loaded.map_err(nothing)?;
    tell(&loaded, begun);
    Ok(())
}
