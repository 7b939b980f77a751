//! `kumiki pages`: tables as pages, in directories of this machine or at a storage node.

mod check;
mod export;
#[cfg_attr(not(feature = "sql"), path = "pages_command/without_files.rs")]
mod files;
mod interrupt;
mod list;
mod load;
mod options;
mod serve;

use std::sync::Arc;

use clap::{Args, Subcommand};

use crate::logging::LogControl;
use crate::output::say_line;
use crate::signals::StopRequest;
use options::{ListOptions, RemoveOptions, TableCheckOptions, TpchOptions};

/// Options of `kumiki pages`.
#[derive(Args, Debug)]
pub(crate) struct PagesOptions {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve readers: a storage node.
    Serve(Box<serve::StorageNodeOptions>),
    /// Load tables.
    Load(PagesLoadOptions),
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
    Ls(ListOptions),
    /// Read and verify all pages. Exits with 1 when something is wrong.
    Check(TableCheckOptions),
    /// Remove a table.
    Remove(RemoveOptions),
}

#[derive(Args, Debug)]
struct PagesLoadOptions {
    #[command(subcommand)]
    from: LoadSource,
}

/// The source of a load.
#[derive(Subcommand, Debug)]
enum LoadSource {
    /// The tables of TPC-H, generated.
    Tpch(TpchOptions),
    /// Lines of values become a table.
    Csv(files::Csv),
    /// Parquet files become a table.
    Parquet(files::Parquet),
}

/// Executes the command of the command line.
///
/// # Errors
/// The text says what is wrong and what to do.
pub(crate) fn run(options: &PagesOptions, log: &Arc<LogControl>) -> Result<(), String> {
    match &options.command {
        Command::Serve(serve) => serve::serve(serve, log),
        Command::Load(PagesLoadOptions { from }) => stoppable(|stop| match from {
            LoadSource::Tpch(tpch) => load::tpch(tpch, stop),
            LoadSource::Csv(csv) => files::csv(csv, stop),
            LoadSource::Parquet(parquet) => files::parquet(parquet, stop),
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
fn stoppable(work: impl FnOnce(&StopRequest) -> Result<(), String>) -> Result<(), String> {
    let stop = StopRequest::on_signal()?;
    let done = work(&stop);
    if stop.is_wanted()
        && let Err(error) = &done
    {
        eprintln!("kumiki: {error}");
        std::process::exit(130);
    }
    done
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use pages::Groups;

    use super::*;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        pages: PagesOptions,
    }

    fn load(args: &[&str]) -> Result<TpchOptions, String> {
        let line = ["pages", "load", "tpch"].iter().chain(args);
        let line = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        match line.pages.command {
            Command::Load(PagesLoadOptions {
                from: LoadSource::Tpch(tpch),
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
