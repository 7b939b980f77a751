//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use base::size::Size;
use clap::{Args, Parser, Subcommand, ValueEnum};
use store::EpochTime;

/// A distributed transactional key-value store.
#[derive(Parser, Debug)]
#[command(name = "kumiki", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// How much to say on standard error.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: LogLevel,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serve Redis clients.
    Serve(Serve),
}

/// How much to say.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[allow(missing_docs)] // The names say it.
pub(crate) enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    pub(crate) fn filter(self) -> tracing_subscriber::filter::LevelFilter {
        use tracing_subscriber::filter::LevelFilter as L;
        match self {
            LogLevel::Off => L::OFF,
            LogLevel::Error => L::ERROR,
            LogLevel::Warn => L::WARN,
            LogLevel::Info => L::INFO,
            LogLevel::Debug => L::DEBUG,
            LogLevel::Trace => L::TRACE,
        }
    }
}

/// When replies leave.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Once everything a reply shows is durable.
    Group,
    /// At once: a crash may take back what clients were told.
    Async,
}

/// The file layer.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum DiskLayer {
    /// The file system.
    Real,
    /// One that loses what was not synced when the process is killed.
    Forgetful,
}

/// Options of `kumiki serve`.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6380")]
    pub(crate) listen: SocketAddr,
    /// The directory in which data lies; made if it is not there.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "./kumiki-data",
        conflicts_with = "ephemeral"
    )]
    pub(crate) data: PathBuf,
    /// Keep data in memory only: nothing is logged, nothing survives the process.
    #[arg(long)]
    pub(crate) ephemeral: bool,
    /// When replies leave.
    #[arg(long, value_name = "WHEN", default_value = "group")]
    pub(crate) durability: Durability,
    /// When epochs advance: adaptive (as soon as the log is idle and someone waits), or at an
    /// interval such as 1ms.
    #[arg(long, value_name = "TIME", default_value = "adaptive", value_parser = parse_epoch_time)]
    pub(crate) epoch_time: EpochTime,
    /// Log threads, each with a log of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) loggers: u16,
    /// Log buffers for each thread that executes transactions.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=1024))]
    pub(crate) log_buffers: u16,
    /// Bytes in a log buffer.
    #[arg(long, value_name = "SIZE", default_value = "512KiB", value_parser = Size::from_str)]
    pub(crate) log_buffer_size: Size,
    /// Memory beyond which commands that need more are refused; 0: no bound. Without this option
    /// it is three quarters of the memory that the machine or the container has.
    #[arg(long, value_name = "SIZE", value_parser = Size::from_str)]
    pub(crate) maxmemory: Option<Size>,
    /// The password that clients must give.
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) requirepass: Option<String>,
    /// Serve anyone who can reach the address, without a password.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Threads that serve clients; default: as many as there are processors for this process.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) threads: Option<u16>,
    /// Connections at once.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_clients: u32,
    /// Longest value.
    #[arg(long, value_name = "SIZE", default_value = "512mb", value_parser = parse_max_value)]
    pub(crate) max_value: Size,
    /// The file layer; for tests of what survives a crash.
    #[arg(long, value_name = "LAYER", default_value = "real", hide = true)]
    pub(crate) disk: DiskLayer,
}

/// `adaptive`, or a time with its unit.
fn parse_epoch_time(text: &str) -> Result<EpochTime, String> {
    if text.eq_ignore_ascii_case("adaptive") {
        return Ok(EpochTime::Adaptive);
    }
    let bad = || format!("'{text}' is neither 'adaptive' nor a time such as 500us, 1ms or 1s");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let number: u64 = text[..digits].parse().map_err(|_| bad())?;
    let time = match &text[digits..] {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return Err(bad()),
    };
    let sensible = Duration::from_micros(10)..=Duration::from_secs(10);
    if sensible.contains(&time) {
        Ok(EpochTime::Fixed(time))
    } else {
        Err("an epoch lasts between 10us and 10s".to_owned())
    }
}

/// A size that a value can have.
fn parse_max_value(text: &str) -> Result<Size, String> {
    let size: Size = text
        .parse()
        .map_err(|error: base::size::BadSize| error.to_string())?;
    if (1..=base::limits::Limits::MAX_VALUE as u64).contains(&size.0) {
        Ok(size)
    } else {
        Err("the longest value is between 1 byte and 512mb".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn serve(args: &[&str]) -> Result<Serve, String> {
        let cli = Cli::try_parse_from(["kumiki", "serve"].iter().chain(args));
        cli.map(|cli| match cli.command {
            Command::Serve(serve) => serve,
        })
        .map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let serve = serve(&[]).unwrap();
        assert_eq!(serve.listen.to_string(), "127.0.0.1:6380");
        assert_eq!(serve.data, PathBuf::from("./kumiki-data"));
        assert_eq!(serve.durability, Durability::Group);
        assert_eq!(serve.epoch_time, EpochTime::Adaptive);
        assert_eq!(
            (serve.log_buffers, serve.log_buffer_size.0),
            (4, 512 * 1024)
        );
        assert!(!serve.ephemeral && serve.requirepass.is_none());
    }

    #[test]
    fn options_are_checked() {
        assert_eq!(
            serve(&["--epoch-time", "1ms"]).unwrap().epoch_time,
            EpochTime::Fixed(Duration::from_millis(1))
        );
        for args in [
            &["--epoch-time", "1"][..],
            &["--epoch-time", "0ms"],
            &["--max-value", "513mb"],
            &["--max-value", "0"],
            &["--threads", "0"],
            &["--ephemeral", "--data", "x"],
            &["--listen", "localhost"],
        ] {
            assert!(serve(args).is_err(), "{args:?}");
        }
    }
}
