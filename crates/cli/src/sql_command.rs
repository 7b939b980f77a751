//! `kumiki sql`: runs queries over tables of pages, and serves clients of PostgreSQL that do.

mod serve;

use std::io::{self, IsTerminal, Read};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use base::size::Size;
use clap::{Args, Subcommand};
use disk::RealDisk;
use pages::remote::RemoteNodeOptions;
use pages::{Cache, Tables};
use sql::shell::progress::Tell;
use sql::shell::{Failed, Format, Shell, run, terminal};
use sql::{Catalogue, Directory, Placement, Rights, Settings, Shared, StorageNode, Store};

use crate::logging::Log;
use crate::pages_command::place::{Access, address_of, resolve};

/// Options of `kumiki sql`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Sql {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    ask: Ask,
}

/// Further commands.
#[derive(Subcommand, Debug)]
enum Command {
    /// Serve clients of PostgreSQL, such as psql: they may read all tables, and change nothing.
    Serve(serve::Serve),
}

/// Where tables are, and how queries run.
#[derive(Args, Debug)]
pub(crate) struct Queries {
    /// A directory with tables; a storage node that serves it is asked, too. May be given several
    /// times, also for all directories over which tables are spread. Default, if no node is given
    /// either: ./kumiki-pages.
    #[arg(long, value_name = "DIR")]
    dir: Vec<PathBuf>,
    /// A storage node (`kumiki pages serve`). May be given several times; tables that several nodes
    /// have alike are replicas.
    #[arg(long, value_name = "HOST:PORT")]
    node: Vec<String>,
    #[command(flatten)]
    access: Access,
    /// Bytes of nodes' pages that are kept in memory; 0 keeps none.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = Size::from_str)]
    cache: Size,
    /// Where parts of queries run: auto, local, remote-local (pages come over) or remote-remote
    /// (operators go over).
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = Placement::from_str)]
    placement: Placement,
    /// Partitions of scans, joins and aggregates; default: as many as there are processors.
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Bytes that sorts, joins and aggregates may take, all together; beyond, they use temporary
    /// files or fail. Default: three quarters of the machine's memory.
    #[arg(long, value_name = "SIZE", value_parser = Size::from_str)]
    memory: Option<Size>,
    /// Have scans yield whole columns, and nothing run beside the data.
    #[arg(long)]
    no_push_down: bool,
}

/// Options of asking.
#[derive(Args, Debug)]
struct Ask {
    #[command(flatten)]
    queries: Queries,
    /// Run these statements, and leave. May be given several times.
    #[arg(short, long, value_name = "SQL")]
    command: Vec<String>,
    /// Run the statements in this file, and leave; - is standard input. After those of --command.
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// How results are written: table, csv or json (an object for each row, one a line).
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::from_str)]
    format: Format,
    /// Tell how long statements take, and what became of their pages, on standard error.
    #[arg(long)]
    timing: bool,
    /// Tell the progress of long queries on standard error, even where that is no terminal.
    #[arg(long)]
    progress: bool,
}

/// Runs the command. Ctrl-C ends the process with 130.
pub(crate) fn run(options: &Sql, log: &Arc<Log>) -> Result<(), String> {
    match &options.command {
        Some(Command::Serve(serve)) => serve::run(serve, log),
        None => ask(&options.ask),
    }
}

impl Queries {
    /// Returns the state that all sessions share.
    fn shared(&self, rights: Rights, at_once: Option<NonZeroUsize>) -> Result<Shared, String> {
        let catalogue = Catalogue::new(self.stores()?);
        let bound = match self.memory {
            Some(size) => size.0,
            None => crate::memory::default_bound(),
        };
        let defaults = Settings::default();
        let settings = Settings {
            partitions: self.threads.unwrap_or(defaults.partitions),
            at_once: at_once.unwrap_or(defaults.at_once),
            placement: self.placement,
            push_down: !self.no_push_down,
            memory: (bound > 0).then_some(bound),
            rights,
        };
        Shared::new(catalogue, settings).map_err(|error| error.to_string())
    }
}

impl Queries {
    /// Opens the stores: the named nodes and directories, and the nodes that serve the directories.
    fn stores(&self) -> Result<Vec<Arc<dyn Store>>, String> {
        let (mut dirs, mut nodes) = (self.dir.clone(), Vec::new());
        for node in &self.node {
            nodes.push(resolve(node)?);
        }
        if dirs.is_empty() && nodes.is_empty() {
            dirs.push(PathBuf::from("./kumiki-pages"));
        }
        for found in dirs.iter().filter_map(|dir| address_of(dir)) {
            if !nodes.contains(&found) {
                nodes.push(found);
            }
        }
        let cache = (self.cache.0 > 0).then(|| Arc::new(Cache::new(self.cache.0)));
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        let sets = Tables::sets(&RealDisk, &dirs).map_err(|error| error.to_string())?;
        for dirs in sets {
            let directory = Directory::open_all(&dirs).map_err(|error| error.to_string())?;
            stores.push(Arc::new(directory));
        }
        for node in nodes {
            let mut options = RemoteNodeOptions::new(self.access.session(node)?);
            options.cache.clone_from(&cache);
            stores.push(Arc::new(StorageNode::new(options)));
        }
        Ok(stores)
    }
}

fn ask(options: &Ask) -> Result<(), String> {
    let shared = options.queries.shared(Rights::All, None)?;
    let settings = run::Settings {
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

fn asked(options: &Ask, shared: &Shared, settings: run::Settings) -> Result<(), Failed> {
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
