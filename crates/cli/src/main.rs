//! The `kumiki` command.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | stopped as asked; everything acknowledged is durable |
//! | 1 | could not start, or could not go on, or found what is wrong; the message says what to do |
//! | 2 | the command line is wrong |
//! | 130 | a second signal came before it had stopped; a load, an export, a backup or a query was stopped |
//!
//! From the lowest layer up; a module uses those of the rows above its own:
//!
//! | modules | what |
//! |---|---|
//! | `argument_values`, `output`, `progress`, `passwords`, `hidden_passwords`, `logging`, `config_file`, `signals`, `memory`, `descriptors`, `build` | values of options, the terminal, and the process |
//! | `disk_layer`, `data_directory`, `owner`, `rdma`, `membership`, `table_location`, `node_connection`, `snapshot` | what several commands open: files, devices, a cluster, tables, a connection to a node, a snapshot of its keys |
//! | `read_atomic_options`, `replication_options`, `serve_options`, `proxy_locks` | options of a command with many of them |
//! | `read_atomic`, `node_replica`, `serve`, `proxy`, `cluster_command`, `import_command`, `export_command`, `backup_command`, `pages_command`, `sql_command`, `check`, `bench` | the commands |
//! | `cli` | the command line that has them all |

#![forbid(unsafe_code)]

mod argument_values;
mod backup_command;
mod bench;
mod build;
mod check;
mod cli;
mod cluster_command;
mod config_file;
mod config_rewrite;
mod data_directory;
mod descriptors;
mod disk_layer;
mod export_command;
mod hidden_passwords;
mod import_command;
mod logging;
mod membership;
mod memory;
mod node_connection;
mod node_replica;
mod output;
mod owner;
mod pages_command;
mod passwords;
mod progress;
mod proxy;
mod proxy_locks;
mod rdma;
mod read_atomic;
mod read_atomic_options;
mod replication_options;
mod serve;
mod serve_options;
mod signals;
mod snapshot;
#[cfg_attr(not(feature = "sql"), path = "without_sql.rs")]
mod sql_command;
mod table_location;
mod tls_options;

use std::process::ExitCode;

use admin::LogLevel;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli::Cli { command, log_level } = cli::Cli::of_process();
    let log = logging::init(log_level);
    if matches!(
        command,
        cli::CliCommand::Serve(_)
            | cli::CliCommand::Proxy(_)
            | cli::CliCommand::Cluster(_)
            | cli::CliCommand::Pages(_)
            | cli::CliCommand::Import(_)
            | cli::CliCommand::Export(_)
            | cli::CliCommand::Backup(_)
    ) {
        hidden_passwords::hide();
    }
    let done = match command {
        cli::CliCommand::Serve(options) => serve::serve(*options, &log),
        cli::CliCommand::Proxy(options) => proxy::run(&options, &log),
        cli::CliCommand::Bench(options) => Err(bench::exec(&options, &log.get())),
        cli::CliCommand::Cluster(options) => cluster_command::run(&options),
        cli::CliCommand::Pages(options) => pages_command::run(&options, &log),
        cli::CliCommand::Check(options) => check::check(&options),
        cli::CliCommand::Import(options) => import_command::run(&options),
        cli::CliCommand::Export(options) => export_command::run(&options),
        cli::CliCommand::Backup(options) => backup_command::run(&options),
        cli::CliCommand::Sql(options) => sql_command::run(&options, &log),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kumiki: {error}");
            ExitCode::FAILURE
        }
    }
}
