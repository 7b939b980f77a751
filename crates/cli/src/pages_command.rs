//! `kumiki pages`: tables as pages, in directories of this machine or at a storage node.

mod check;
mod export;
#[cfg_attr(not(feature = "sql"), path = "pages_command/without_files.rs")]
mod files;
mod interrupt;
mod list;
mod load;
pub(crate) mod place;
mod progress;
mod serve;

use std::sync::Arc;

use base::size::Size;
use clap::{Args, Subcommand, ValueEnum};
use pages::{Layout, LoadOptions, Mode, PageSize};

use crate::logging::Log;
use crate::output::say_line;
use interrupt::Stop;
use place::Place;

/// Options of `kumiki pages`.
#[derive(Args, Debug)]
pub(crate) struct Pages {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve readers: a storage node.
    Serve(Box<serve::Serve>),
    /// Load tables.
    Load(Load),
    /// Write the keys of a running server as a table
    ///
    /// The server goes on meanwhile: the table has all keys as they were at one moment, durably, or
    /// it is not there. Each key is a row, in the order of keys:
    ///
    ///   key         text       the key
    ///   value       text       its value
    ///   type        text       the value's type, as TYPE tells it
    ///   expires_at  timestamp  when it expires (UTC), or null
    ///   version     bigint     its version: greater after each write of the key
    ///
    /// A node of a cluster gives the keys of its own partition.
    ///
    /// Example:
    ///   kumiki pages export --from 127.0.0.1:6380 --match 'user:*' --table users
    ///   kumiki sql -c "select count(*) from users"
    #[command(verbatim_doc_comment)]
    Export(export::Export),
    /// List tables, or show all details of one.
    Ls(List),
    /// Read and verify all pages. Exits with 1 when something is wrong.
    Check(Check),
    /// Remove a table.
    Remove(Remove),
}

#[derive(Args, Debug)]
struct Load {
    #[command(subcommand)]
    from: From,
}

/// The source of a load.
#[derive(Subcommand, Debug)]
enum From {
    /// The tables of TPC-H, generated.
    Tpch(Tpch),
    /// Lines of values become a table.
    Csv(files::Csv),
    /// Parquet files become a table.
    Parquet(files::Parquet),
}

#[derive(Args, Debug)]
struct Tpch {
    /// The scale factor: 1 makes a gigabyte of text.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_scale)]
    sf: f64,
    /// These tables alone, such as lineitem,orders.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tables: Vec<String>,
    /// Threads that generate rows.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    #[command(flatten)]
    into: Into,
}

/// Into which tables, and how.
#[derive(Args, Debug)]
struct Into {
    #[command(flatten)]
    place: Place,
    /// Bytes of a page: 4KiB, 8KiB, 16KiB, 32KiB, 64KiB or 128KiB.
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = parse_page_size)]
    page_size: PageSize,
    /// How rows lie in a page.
    #[arg(long, value_name = "LAYOUT", default_value = "columns")]
    layout: LayoutArg,
    /// Which columns lie together: each (each by itself), all, or names such as a,b/c,d, where
    /// each column that is not named lies by itself.
    #[arg(long, value_name = "GROUPS", default_value = "each", value_parser = load::parse_groups)]
    groups: pages::Groups,
    /// Replace tables that are there.
    #[arg(long, conflicts_with = "append")]
    replace: bool,
    /// Append to tables that are there, whose pages tell size, layout and groups.
    #[arg(long)]
    append: bool,
    /// Sort by this column, of the table that has it. The table must fit into memory.
    #[arg(long, value_name = "COLUMN")]
    sort_by: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
enum LayoutArg {
    /// The values of a column one behind the other.
    Columns,
    /// The values of a row one behind the other, each at a fixed place.
    Rows,
}

#[derive(Args, Debug)]
struct List {
    /// Tell everything of this table.
    #[arg(value_name = "TABLE")]
    table: Option<String>,
    #[command(flatten)]
    place: Place,
    /// Say it as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Check {
    /// This table alone.
    #[arg(value_name = "TABLE")]
    table: Option<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(Args, Debug)]
struct Remove {
    /// The table.
    #[arg(value_name = "TABLE")]
    table: String,
    #[command(flatten)]
    place: Place,
}

/// Executes the command of the command line.
///
/// # Errors
/// The text says what is wrong and what to do.
pub(crate) fn run(options: &Pages, log: &Arc<Log>) -> Result<(), String> {
    match &options.command {
        Command::Serve(serve) => serve::serve(serve, log),
        Command::Load(Load { from }) => stoppable(|stop| match from {
            From::Tpch(tpch) => load::tpch(tpch, stop),
            From::Csv(csv) => files::csv(csv, stop),
            From::Parquet(parquet) => files::parquet(parquet, stop),
        }),
        Command::Export(export) => stoppable(|stop| export::export(export, stop)),
        Command::Ls(list) => list::list(list),
        Command::Check(check) => check::check(check),
        Command::Remove(remove) => {
            let removed = remove.place.open()?.remove(&remove.table);
            removed.map_err(|error| error.to_string())?;
            say_line!("removed {}", remove.table);
            Ok(())
        }
    }
}

/// Does work that signals stop; the process ends with 130 then.
fn stoppable(work: impl FnOnce(&Stop) -> Result<(), String>) -> Result<(), String> {
    let stop = Stop::on_signal()?;
    let done = work(&stop);
    if stop.is_wanted()
        && let Err(error) = &done
    {
        eprintln!("kumiki: {error}");
        std::process::exit(130);
    }
    done
}

impl Into {
    /// Returns the mode for rows that are already there.
    fn mode(&self) -> Mode {
        match self {
            Into { replace: true, .. } => Mode::Replace,
            Into { append: true, .. } => Mode::Append,
            _ => Mode::Create,
        }
    }

    /// Returns the layout of new tables.
    fn options(&self) -> LoadOptions {
        LoadOptions {
            page_size: self.page_size,
            layout: match self.layout {
                LayoutArg::Columns => Layout::Columns,
                LayoutArg::Rows => Layout::Rows,
            },
            groups: self.groups.clone(),
            ..LoadOptions::default()
        }
    }
}

fn parse_scale(text: &str) -> Result<f64, String> {
    let factor = text
        .parse()
        .ok()
        .filter(|factor| (0.0001..=10_000.0).contains(factor));
    factor
        .ok_or_else(|| format!("'{text}' is no scale factor: write a number from 0.0001 to 10000"))
}

fn parse_page_size(text: &str) -> Result<PageSize, String> {
    let Size(bytes) = text
        .parse()
        .map_err(|error: base::size::BadSize| error.to_string())?;
    let size = usize::try_from(bytes).ok().and_then(PageSize::new);
    size.ok_or_else(|| {
        format!("pages do not have {text}: choose 4KiB, 8KiB, 16KiB, 32KiB, 64KiB or 128KiB")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use pages::Groups;

    use super::*;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        pages: Pages,
    }

    fn load(args: &[&str]) -> Result<Tpch, String> {
        let line = ["pages", "load", "tpch"].iter().chain(args);
        let line = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        match line.pages.command {
            Command::Load(Load {
                from: From::Tpch(tpch),
            }) => Ok(tpch),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_are_understood() {
        let line = load(&[
            "--sf",
            "0.01",
            "--tables",
            "orders,part",
            "--page-size",
            "4kb",
        ])
        .unwrap();
        assert_eq!((line.sf, line.tables.len()), (0.01, 2));
        assert_eq!(line.into.page_size.bytes(), 4096);
        let groups = |text: &str| load(&["--groups", text]).unwrap().into.groups;
        assert_eq!(
            (groups("each"), groups("all")),
            (Groups::OneEach, Groups::Together)
        );
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            groups("a,b/c"),
            Groups::Given(vec![names(&["a", "b"]), names(&["c"])])
        );
        for (args, words) in [
            (["--page-size", "5kb"], "128KiB"),
            (["--sf", "0"], "scale factor"),
            (["--groups", "a,,b"], "empty"),
            (["--replace", "--append"], "--append"),
        ] {
            let said = load(&args).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }
}
