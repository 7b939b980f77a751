//! `kumiki sql`: runs queries over tables of pages, and serves clients of PostgreSQL that do.

mod query_options;
mod serve;

use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::{Args, Subcommand};
use sql::shell::progress::Tell;
use sql::shell::{Failed, OutputFormat, Shell, run, terminal};
use sql::{Rights, Shared};

use crate::logging::LogControl;
use query_options::QueryOptions;

/// Options of `kumiki sql`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SqlOptions {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    ask: AskOptions,
}

/// Further commands.
#[derive(Subcommand, Debug)]
enum Command {
    /// Serve clients of PostgreSQL, such as psql: they may read all tables, and change nothing.
    Serve(serve::SqlServeOptions),
}

/// Options of asking.
#[derive(Args, Debug)]
struct AskOptions {
    #[command(flatten)]
    queries: QueryOptions,
    /// Run these statements, and leave. May be given several times.
    #[arg(short, long, value_name = "SQL")]
    command: Vec<String>,
    /// Run the statements in this file, and leave; - is standard input. After those of --command.
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// How results are written: table, csv or json (an object for each row, one a line).
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::from_str)]
    format: OutputFormat,
    /// Tell how long statements take, and what became of their pages, on standard error.
    #[arg(long)]
    timing: bool,
    /// Tell the progress of long queries on standard error, even where that is no terminal.
    #[arg(long)]
    progress: bool,
}

/// Runs the command. Ctrl-C ends the process with 130.
pub(crate) fn run(options: &SqlOptions, log: &Arc<LogControl>) -> Result<(), String> {
    match &options.command {
        Some(Command::Serve(serve)) => serve::run(serve, log),
        None => ask(&options.ask),
    }
}

fn ask(options: &AskOptions) -> Result<(), String> {
    let shared = options.queries.shared(Rights::All, None)?;
    let settings = run::ShellSettings {
        format: options.format,
        timing: options.timing,
        progress: if options.progress {
            Tell::Always
        } else {
            Tell::OnTerminal
        },
    };
    match asked(options, &shared, settings) {
        Err(failed @ (Failed::Cancelled | Failed::Closed)) => {
            if matches!(failed, Failed::Cancelled) {
                eprintln!("kumiki: {failed}");
            }
            std::process::exit(failed.exit_code().into());
        }
        asked => asked.map_err(|failed| failed.to_string()),
    }
}

fn asked(
    options: &AskOptions,
    shared: &Shared,
    settings: run::ShellSettings,
) -> Result<(), Failed> {
    let mut shell = Shell::new(shared, settings, io::stdout().lock())?;
    let from_terminal = options.command.is_empty() && options.file.is_empty();
    if from_terminal && io::stdin().is_terminal() {
        eprintln!("\\? lists commands, \\d the tables; statements end with a semicolon.");
        return terminal::interact(&mut shell, history().as_deref());
    }
    for text in &options.command {
        shell.script(text)?;
    }
    let standard_input = [PathBuf::from("-")];
    let files = if from_terminal {
        &standard_input[..]
    } else {
        &options.file
    };
    for file in files {
        shell.script(&read(file)?)?;
    }
    Ok(())
}

fn read(file: &PathBuf) -> Result<String, Failed> {
    let mut text = String::new();
    let read = match file.to_str() {
        Some("-") => io::stdin().read_to_string(&mut text).map(|_| text),
        _ => std::fs::read_to_string(file),
    };
    read.map_err(|error| Failed::Query(format!("cannot read {}: {error}", file.display())))
}

/// Returns the file in which statements are remembered, if the user has a place for it.
fn history() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let dir = state.or_else(home)?.join("kumiki");
    std::fs::create_dir_all(&dir).ok()?;
    Some(dir.join("sql-history"))
}
