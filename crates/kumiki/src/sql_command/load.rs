//! `kumiki sql load`: CSV and Parquet files become tables of pages.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::size::Size;
use clap::{Args, Subcommand};
use pages::{Groups, LoadOptions, Mode, PageSize, Tables};
use sql::load::{Columns, Csv, Format, Progress, Request, load};

/// What kind of files.
#[derive(Subcommand, Debug)]
pub(crate) enum Load {
    /// Load lines of values.
    Csv(CsvFiles),
    /// Load Parquet files.
    Parquet(Files),
}

/// Files, and the table that they become.
#[derive(Args, Debug)]
pub(crate) struct Files {
    /// The files, in the order of their rows.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The table's name.
    #[arg(long, value_name = "NAME")]
    table: String,
    /// Directories over which the table is spread, the main one first; made if they are not there. No
    /// other process may have them.
    #[arg(long, value_name = "DIR", default_value = "./kumiki-pages")]
    dir: Vec<PathBuf>,
    /// Bytes of a page: 4, 8, 16, 32, 64 or 128 KiB.
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = page_size)]
    page_size: PageSize,
    /// Put all columns into the same pages. Otherwise each has pages of its own, and a query reads
    /// those that it needs.
    #[arg(long)]
    together: bool,
    /// Take the place of the table's rows, if it has any.
    #[arg(long, conflicts_with = "append")]
    replace: bool,
    /// Add to the table's rows.
    #[arg(long, conflicts_with_all = ["page_size", "together", "columns"])]
    append: bool,
    /// Columns and their types, as in SQL: 'id bigint not null, price decimal(15, 2)'. Otherwise
    /// files say or show them.
    #[arg(long, value_name = "COLUMNS", value_parser = Columns::from_str)]
    columns: Option<Columns>,
}

/// Lines of values.
#[derive(Args, Debug)]
pub(crate) struct CsvFiles {
    #[command(flatten)]
    files: Files,
    /// The first line has values, and not the columns' names.
    #[arg(long)]
    no_header: bool,
    /// What is between values.
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
}

fn page_size(text: &str) -> Result<PageSize, String> {
    let size = Size::from_str(text).map_err(|error| error.to_string())?;
    let size = usize::try_from(size.0).ok().and_then(PageSize::new);
    size.ok_or_else(|| "pages have 4, 8, 16, 32, 64 or 128 KiB".to_owned())
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err("it is a single character, or \\t".to_owned()),
    }
}

/// Loads. A load that is stopped, or fails, leaves the table as it was.
pub(crate) fn run(options: &Load) -> Result<(), String> {
    let (files, format) = match options {
        Load::Parquet(files) => (files, Format::Parquet),
        Load::Csv(csv) => {
            let format = Csv {
                header: !csv.no_header,
                delimiter: csv.delimiter,
            };
            (&csv.files, Format::Csv(format))
        }
    };
    let tables = Tables::open(Arc::new(disk::RealDisk), &files.dir);
    let tables = tables.map_err(|error| error.to_string())?;
    let request = Request {
        table: files.table.clone(),
        files: files.files.clone(),
        format,
        columns: files.columns.clone(),
        options: LoadOptions {
            page_size: files.page_size,
            groups: if files.together {
                Groups::Together
            } else {
                Groups::OneEach
            },
            ..LoadOptions::default()
        },
        mode: match (files.replace, files.append) {
            (true, _) => Mode::Replace,
            (_, true) => Mode::Append,
            _ => Mode::Create,
        },
    };
    let mut teller = Teller::new(files.files.len());
    let loaded = load(&tables, &request, &mut |progress| teller.tell(progress));
    teller.end();
    let table = loaded?;
    println!(
        "table {}: {} rows in {} pages of {} KiB, version {}",
        table.name,
        table.rows(),
        table.pages(),
        table.page_size.bytes() >> 10,
        table.version.0
    );
    Ok(())
}

/// Tells on standard error how far a load is.
struct Teller {
    files: usize,
    terminal: bool,
    begun: Instant,
    last: Instant,
}

impl Teller {
    fn new(files: usize) -> Teller {
        let now = Instant::now();
        Teller {
            files,
            terminal: std::io::stderr().is_terminal(),
            begun: now,
            last: now,
        }
    }

    fn tell(&mut self, progress: Progress) {
        let often = Duration::from_millis(if self.terminal { 100 } else { 2_000 });
        if self.last.elapsed() < often {
            return;
        }
        self.last = Instant::now();
        let rate = progress.rows as f64 / self.begun.elapsed().as_secs_f64();
        let line = format!(
            "file {} of {}: {} rows, {} MiB, {rate:.0} rows a second",
            (progress.files + 1).min(self.files),
            self.files,
            progress.rows,
            progress.bytes >> 20
        );
        let mut err = std::io::stderr().lock();
        // Whether anybody sees it matters to nobody here.
        let _ = if self.terminal {
            write!(err, "\r\x1b[K{line}")
        } else {
            writeln!(err, "{line}")
        };
    }

    fn end(&mut self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
