//! The command line.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use base::affinity::Affinity;
use base::size::Size;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use store::EpochTime;

use crate::config_file;
use crate::logging::{DEFAULT_LOG_LEVEL, Levels};
use crate::membership::Cluster;
use crate::ramp::Ramp;
use crate::replicated::Replication;
use crate::tls_options::TlsOptions;

/// A distributed transactional key-value store.
#[derive(Parser, Debug)]
#[command(name = "kumiki", version = buildinfo::VERSION, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// How much to say on standard error: off, error, warn, info, debug or trace, and after commas
    /// levels of single modules, for example info,kumiki_proxy=debug.
    #[arg(long, global = true, value_name = "LEVEL", default_value = DEFAULT_LOG_LEVEL, value_parser = Levels::from_str)]
    pub(crate) log_level: Levels,
}

impl Cli {
    /// Parses the arguments of this process. Ends the process if they are invalid.
    pub(crate) fn of_process() -> Cli {
        Cli::checked(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    fn checked<A>(args: impl IntoIterator<Item = A>) -> Result<Cli, clap::Error>
    where
        A: Into<std::ffi::OsString> + Clone,
    {
        let args = args.into_iter().map(Into::into).collect();
        let mut command = Cli::command();
        let args = config_file::expand(&command, args)
            .map_err(|text| command.error(ErrorKind::ValueValidation, text))?;
        let cli = Cli::try_parse_from(args)?;
        if let Command::Serve(serve) = &cli.command {
            let usable = base::cpus::usable().unwrap_or_default();
            serve.check(&usable).map_err(|text| {
                let mut command = Cli::command();
                command.build();
                let serve = command.find_subcommand_mut("serve");
                serve
                    .expect("a command of that name")
                    .error(ErrorKind::ValueValidation, text)
            })?;
        }
        Ok(cli)
    }
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serve Redis clients.
    Serve(Box<Serve>),
    /// Stand before a Kumiki cluster or Redis: many clients, few and full packets to the nodes.
    Proxy(Box<crate::proxy::Options>),
    /// Look after the replicas of a cluster that runs.
    Cluster(crate::cluster_command::Cluster),
    /// Keep tables as pages.
    Pages(crate::pages_command::Pages),
    /// Run experiments and report them, with the program kumiki-bench in this program's directory.
    #[command(disable_help_flag = true)]
    Bench(crate::bench::Bench),
    /// Verify a data directory without starting, and say what a recovery would give.
    Check(Check),
    /// Query tables of pages in SQL, or serve clients of PostgreSQL.
    Sql(Box<crate::sql_command::Sql>),
}

/// Options of `kumiki check`.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The data directory; nothing in it is changed. The server that uses it must be stopped.
    #[arg(value_name = "DIR", default_value = "./kumiki-data")]
    pub(crate) dir: PathBuf,
}

/// When replies are sent.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Once everything a reply shows is durable.
    Group,
    /// At once: a crash may undo what clients were answered.
    Async,
}

/// The file layer.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum DiskLayer {
    /// The file system.
    Real,
    /// A layer that loses unsynced data when the process is killed.
    Forgetful,
}

/// How files that grow are written.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum LogDevice {
    /// Through the operating system's page cache, then synced.
    Write,
    /// Past the page cache: direct I/O in sectors of 4 KiB, with io_uring.
    Direct,
}

/// The value of `--io`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IoChoice {
    Auto,
    Epoll,
    Uring,
}

/// Options of `kumiki serve`.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Take options from this file, too; those of the command line win. SIGHUP has its log-level
    /// read again.
    #[arg(help_heading = "Start", long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where to listen; default: 127.0.0.1:6380, and for a node of a cluster what its file says.
    #[arg(help_heading = "Start", long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Listen on this port of 127.0.0.1: for --listen 127.0.0.1:PORT.
    #[arg(
        help_heading = "Start",
        id = "client_port",
        long = "port",
        value_name = "PORT",
        conflicts_with = "listen"
    )]
    pub(crate) port: Option<u16>,
    /// Listen on this port, too, for clients that speak TLS; on the address of --listen.
    #[arg(help_heading = "TLS", long, value_name = "PORT", requires = "tls_cert")]
    pub(crate) tls_port: Option<u16>,
    #[command(flatten)]
    pub(crate) tls: TlsOptions,
    /// How threads wait for their connections: by io_uring or by epoll. auto takes io_uring if the kernel offers
    /// it to this process.
    #[arg(help_heading = "Start", long, value_name = "KIND", value_enum, default_value_t = IoChoice::Auto)]
    pub(crate) io: IoChoice,
    /// The directory in which data lies; made if it is not there.
    #[arg(
        help_heading = "Start",
        long,
        value_name = "DIR",
        default_value = "./kumiki-data",
        conflicts_with = "ephemeral"
    )]
    pub(crate) data: PathBuf,
    /// Keep data in memory only: nothing is logged, nothing survives the process.
    #[arg(help_heading = "Start", long)]
    pub(crate) ephemeral: bool,
    /// When replies leave.
    #[arg(
        help_heading = "Durability",
        long,
        value_name = "WHEN",
        default_value = "group"
    )]
    pub(crate) durability: Durability,
    /// When epochs advance: adaptive (as soon as the log is idle and someone waits), or at an
    /// interval such as 0.5ms, 1ms or 40ms.
    #[arg(help_heading = "Durability", long, value_name = "TIME", default_value = "adaptive", value_parser = parse_epoch_time)]
    pub(crate) epoch_time: EpochTime,
    /// With adaptive epochs and more to log than fits into less: the mean time from a commit to
    /// its durability that is aimed at; default: 3ms.
    #[arg(help_heading = "Durability", long, value_name = "TIME", value_parser = parse_target, conflicts_with = "ephemeral")]
    pub(crate) durability_target: Option<Duration>,
    /// How many epochs a thread may run ahead of its log before it waits, which bounds how long
    /// replies wait; off: any number.
    #[arg(
        help_heading = "Durability",
        long,
        value_name = "N",
        default_value = "off",
        value_parser = parse_max_epoch_diff,
        conflicts_with = "ephemeral"
    )]
    pub(crate) max_epoch_diff: MaxEpochDiff,
    /// Log threads, each with a log of its own; default: 1.
    #[arg(help_heading = "Expert", long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) loggers: Option<u16>,
    /// Which processor each log thread and each thread that serves clients stays on. 0:1,2+4:5
    /// puts a log thread on processor 0 for those that serve on 1 and 2, and one on 4 for that
    /// on 5. It says how many threads of each kind there are.
    #[arg(help_heading = "Expert", long, value_name = "LIST")]
    pub(crate) affinity: Option<Affinity>,
    /// Log buffers for each thread that executes transactions.
    #[arg(help_heading = "Expert", long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=1024))]
    pub(crate) log_buffers: u16,
    /// Bytes in a log buffer.
    #[arg(help_heading = "Expert", long, value_name = "SIZE", default_value = "512KiB", value_parser = Size::from_str)]
    pub(crate) log_buffer_size: Size,
    /// Bytes after which a log goes on in a new file; a checkpoint takes whole files away. Default:
    /// 256MiB, and 64MiB for a replica.
    #[arg(help_heading = "Durability", long, value_name = "SIZE", value_parser = parse_segment_size)]
    pub(crate) log_segment_size: Option<Size>,
    /// How logs and checkpoints are written. Data written one way is read by the other. Needs a
    /// file system with direct I/O for 'direct'; docs/devices.md says when that is faster.
    #[arg(
        help_heading = "Durability",
        long,
        value_name = "HOW",
        default_value = "write"
    )]
    pub(crate) log_device: LogDevice,
    /// Write log files once, with zeros, before they are used: later syncs are faster then. The
    /// start takes as long as writing a file (--log-segment-size) for each log thread; the files
    /// after it are written in the background.
    #[arg(help_heading = "Durability", long, conflicts_with = "ephemeral")]
    pub(crate) log_warm_up: bool,
    /// A checkpoint is made when the logs have grown by this much since the last one; 0: only when
    /// a client asks for it (BGSAVE). Default: 1GiB, and 256MiB for a replica, whose checkpoints
    /// are Raft's snapshots.
    #[arg(
        help_heading = "Durability",
        long,
        value_name = "SIZE",
        value_parser = Size::from_str,
        conflicts_with = "ephemeral"
    )]
    pub(crate) checkpoint_log_size: Option<Size>,
    /// How much of a processor a checkpoint may use while transactions run, in percent.
    #[arg(
        help_heading = "Durability",
        long,
        value_name = "PERCENT",
        default_value_t = 10,
        value_parser = clap::value_parser!(u8).range(1..=100),
        conflicts_with = "ephemeral"
    )]
    pub(crate) checkpoint_share: u8,
    /// Memory beyond which commands that need more are refused; 0: no bound. Without this option
    /// it is three quarters of the memory that the machine or the container has.
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = Size::from_str)]
    pub(crate) maxmemory: Option<Size>,
    /// The password that clients must give. It is hidden from the list of this machine's processes, but not from
    /// the shell's history: --requirepass-file takes it from a file.
    #[arg(help_heading = "Security", long, value_name = "PASSWORD", value_parser = parse_password)]
    pub(crate) requirepass: Option<String>,
    /// Where to serve metrics, health and build information over HTTP, such as 127.0.0.1:9180.
    #[arg(help_heading = "Start", long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) admin: Option<SocketAddr>,
    /// A file with the password that clients must give; other users must not be able to read it.
    #[arg(
        help_heading = "Security",
        long,
        value_name = "FILE",
        conflicts_with = "requirepass"
    )]
    pub(crate) requirepass_file: Option<PathBuf>,
    /// Serve anyone who can reach the addresses, without a password.
    #[arg(help_heading = "Security", long)]
    pub(crate) insecure: bool,
    /// Threads that serve clients; default: as many as there are processors for this process.
    #[arg(help_heading = "Start", long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) threads: Option<u16>,
    /// Connections at once.
    #[arg(help_heading = "Limits", long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_clients: u32,
    /// Seconds after which a client that sends nothing is closed; 0: never.
    #[arg(
        help_heading = "Limits",
        long = "timeout",
        value_name = "SECONDS",
        default_value_t = 0
    )]
    pub(crate) idle_timeout: u32,
    /// Memory for what all clients together have sent and not taken: requests that are not whole, replies, blocks.
    /// A client that needs more is closed. Default: an eighth of the memory that the machine or the container has.
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = Size::from_str)]
    pub(crate) max_client_memory: Option<Size>,
    /// Longest value, at most 512mb. Default: 512mb, and 32mb in a replicated partition, whose nodes send it to
    /// each other as a whole.
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = parse_max_value)]
    pub(crate) max_value: Option<Size>,
    #[command(flatten)]
    pub(crate) ramp: Ramp,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    #[command(flatten)]
    pub(crate) replication: Replication,
    /// The file layer; for tests of what survives a crash.
    #[arg(
        help_heading = "Expert",
        long,
        value_name = "LAYER",
        default_value = "real",
        hide = true
    )]
    pub(crate) disk: DiskLayer,
}

impl Serve {
    /// Makes checks that concern several options. This process may use the processors `usable`.
    fn check(&self, usable: &[usize]) -> Result<(), String> {
        if let (EpochTime::Fixed(time), Some(_)) = (self.epoch_time, self.durability_target) {
            return Err(format!(
                "--durability-target steers adaptive epochs, and --epoch-time {time:?} makes them \
                 all alike: leave out one of the two"
            ));
        }
        let Some(affinity) = &self.affinity else {
            return Ok(());
        };
        affinity.check(usable).map_err(|error| {
            format!("invalid value '{affinity}' for '--affinity <LIST>': {error}")
        })?;
        let named = [
            (
                "--loggers",
                "log threads",
                self.loggers,
                affinity.loggers.len(),
            ),
            (
                "--threads",
                "threads for clients",
                self.threads,
                affinity.workers().count(),
            ),
        ];
        for (option, what, given, placed) in named {
            if let Some(given) = given
                && usize::from(given) != placed
            {
                return Err(format!(
                    "--affinity {affinity} names {placed} {what}, and {option} asks for {given}: \
                     leave out {option}, or name as many"
                ));
            }
        }
        Ok(())
    }

    /// Returns the number of log threads.
    pub(crate) fn loggers(&self) -> usize {
        match &self.affinity {
            Some(affinity) => affinity.loggers.len(),
            None => self.loggers.unwrap_or(1).into(),
        }
    }

    /// Returns the longest value in bytes, `default` unless the option is given.
    pub(crate) fn max_value(&self, default: usize) -> usize {
        self.max_value.map_or(default, |size| size.0 as usize)
    }

    /// Returns the number of threads that serve clients.
    pub(crate) fn threads(&self) -> usize {
        let machine = || std::thread::available_parallelism().map_or(1, usize::from);
        match &self.affinity {
            Some(affinity) => affinity.workers().count(),
            None => self.threads.map_or_else(machine, usize::from),
        }
    }

    /// Returns the processor of each of these threads; empty if they are not pinned.
    pub(crate) fn cpus(&self) -> Vec<usize> {
        let workers = self.affinity.iter().flat_map(Affinity::workers);
        workers.map(|(_, cpu)| cpu).collect()
    }
}

/// A bound on how many epochs threads run ahead of their log; `None`: there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaxEpochDiff(pub(crate) Option<NonZeroU64>);

fn parse_max_epoch_diff(text: &str) -> Result<MaxEpochDiff, String> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(MaxEpochDiff(None));
    }
    let number = text.parse().map_err(
        |_| "give 'off', or a number of epochs from 1 on; 3 is a good one with --epoch-time 1ms",
    )?;
    Ok(MaxEpochDiff(Some(number)))
}

/// Parses `adaptive`, or a time with its unit.
fn parse_epoch_time(text: &str) -> Result<EpochTime, String> {
    if text.eq_ignore_ascii_case("adaptive") {
        return Ok(EpochTime::Adaptive);
    }
    let Some(time) = parse_time(text) else {
        return Err("it is neither 'adaptive' nor a time such as 0.5ms, 1ms or 40ms".to_owned());
    };
    let sensible = Duration::from_micros(10)..=Duration::from_secs(10);
    if sensible.contains(&time) {
        Ok(EpochTime::Fixed(time))
    } else {
        Err("an epoch lasts between 10us and 10s".to_owned())
    }
}

fn parse_target(text: &str) -> Result<Duration, String> {
    let time = parse_time(text).ok_or("it is not a time such as 3ms or 0.5ms")?;
    let sensible = Duration::from_micros(100)..=Duration::from_secs(10);
    if sensible.contains(&time) {
        Ok(time)
    } else {
        Err("replies wait between 100us and 10s".to_owned())
    }
}

/// Parses an address to listen on: `HOST:PORT`, where the host is an address or a name, or a port
/// of 127.0.0.1.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let wanted = "write HOST:PORT, for example 127.0.0.1:6380, or 6380 for that port of 127.0.0.1";
    let (host, port) = text.rsplit_once(':').ok_or(wanted)?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    // Without brackets, the colon belongs to the address.
    if host.is_empty() || port.parse::<u16>().is_err() || (host.contains(':') && !bracketed) {
        return Err(wanted.to_owned());
    }
    let found = text.to_socket_addrs();
    let found: Vec<SocketAddr> = found
        .map_err(|error| format!("there is no host {host}: {error}"))?
        .collect();
    // A name such as localhost has an address of each kind; most clients try IPv4.
    let first = found.iter().find(|address| address.is_ipv4());
    let first = first.or(found.first()).copied();
    first.ok_or_else(|| format!("there is no host {host}"))
}

/// Parses a password. An empty one is refused: every client would know it.
pub(crate) fn parse_password(text: &str) -> Result<String, String> {
    match text {
        "" => {
            Err("an empty password protects nothing: give one, or leave the option out".to_owned())
        }
        text => Ok(text.to_owned()),
    }
}

/// Parses a number, which may have decimals, and its unit.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let nanos = match &text[unit..] {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    // Digits and dots alone: neither a sign nor an exponent nor a word.
    let number: f64 = text[..unit].parse().ok()?;
    Some(Duration::from_nanos((number * nanos).round() as u64))
}

/// Parses a size, and checks that a log's files can have it.
fn parse_segment_size(text: &str) -> Result<Size, String> {
    let size: Size = text
        .parse()
        .map_err(|error: base::size::BadSize| error.to_string())?;
    if (4096..=1 << 40).contains(&size.0) {
        Ok(size)
    } else {
        Err("a log's files have between 4KiB and 1TiB".to_owned())
    }
}

/// Parses a size, and checks that a value can have it.
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

    #[test]
    fn addresses_are_ports_or_hosts_with_ports() {
        for (text, address) in [
            ("6380", "127.0.0.1:6380"),
            ("localhost:6380", "127.0.0.1:6380"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:6380", "[::1]:6380"),
        ] {
            assert_eq!(
                parse_address(text),
                Ok(address.parse().expect("an address"))
            );
        }
        for text in [
            "localhost",
            ":6380",
            "::1",
            "::1:6380",
            "127.0.0.1",
            "70000",
            "a:b",
            "",
        ] {
            let error = parse_address(text).expect_err(text);
            assert!(error.contains("write HOST:PORT"), "{text}: {error}");
        }
        let error = parse_address("no-such-host.invalid:1").expect_err("no host");
        assert!(
            error.contains("there is no host no-such-host.invalid"),
            "{error}"
        );
    }

    fn serve(args: &[&str]) -> Result<Serve, String> {
        let cli = Cli::checked(["kumiki", "serve"].iter().chain(args));
        cli.map(options).map_err(|error| error.to_string())
    }

    fn options(cli: Cli) -> Serve {
        match cli.command {
            Command::Serve(serve) => *serve,
            other => panic!("{other:?} is another command"),
        }
    }

    #[track_caller]
    fn refused(args: &[&str], words: &[&str]) {
        let said = serve(args).expect_err("refused");
        for word in words {
            assert!(said.contains(word), "{args:?}: {word:?} is missing: {said}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let serve = serve(&[]).unwrap();
        let listen = crate::membership::listen(serve.listen, None).unwrap();
        assert_eq!(listen.to_string(), "127.0.0.1:6380");
        assert!(serve.cluster.file.is_none());
        assert_eq!(serve.data, PathBuf::from("./kumiki-data"));
        assert_eq!(serve.durability, Durability::Group);
        assert_eq!(serve.epoch_time, EpochTime::Adaptive);
        assert_eq!(serve.max_epoch_diff, MaxEpochDiff(None));
        assert_eq!(
            (serve.log_buffers, serve.log_buffer_size.0),
            (4, 512 * 1024)
        );
        assert_eq!(
            (serve.checkpoint_log_size, serve.checkpoint_share),
            (None, 10)
        );
        assert_eq!(serve.loggers(), 1);
        assert_eq!(serve.replication.election(), Duration::from_secs(1));
        assert!(!serve.replication.naive && !serve.replication.lease_reads);
        assert!(serve.ramp.read_atomic.is_empty());
        assert_eq!(serve.ramp.algorithm, cluster::ramp::Algorithm::Fast);
        assert!(serve.affinity.is_none() && serve.cpus().is_empty());
        assert!(!serve.ephemeral && serve.requirepass.is_none() && serve.admin.is_none());
        assert_eq!(serve.idle_timeout, 0);
    }

    #[test]
    fn times_may_have_decimals() {
        for (text, nanos) in [
            ("0.5ms", 500_000),
            ("500us", 500_000),
            ("1ms", 1_000_000),
            ("1.25ms", 1_250_000),
            ("40ms", 40_000_000),
            ("2s", 2_000_000_000),
            ("12.5us", 12_500),
        ] {
            let fixed = EpochTime::Fixed(Duration::from_nanos(nanos));
            let serve = serve(&["--epoch-time", text]).unwrap();
            assert_eq!(serve.epoch_time, fixed, "{text}");
        }
        for text in [
            "1", "ms", ".ms", "1.2.3ms", "-1ms", "1e3us", "infs", "nans", "1 ms", "0ms", "9us",
            "11s", "1h",
        ] {
            assert!(serve(&["--epoch-time", text]).is_err(), "{text}");
        }
        let target = serve(&["--durability-target", "2.5ms"]).unwrap();
        let expected = Duration::from_micros(2500);
        assert_eq!(target.durability_target, Some(expected));
    }

    #[test]
    fn options_are_checked() {
        for args in [
            &["--max-value", "513mb"][..],
            &["--max-value", "0"],
            &["--threads", "0"],
            &["--ephemeral", "--data", "x"],
            &["--listen", "localhost"],
            &["--admin", "9180x"],
            &["--listen", "127.0.0.1:1", "--port", "2"],
            &["--max-epoch-diff", "0"],
            &["--max-epoch-diff", "-1"],
            &["--checkpoint-share", "0"],
            &["--checkpoint-share", "101"],
            &["--checkpoint-log-size", "big"],
            &["--ramp", "slow"],
            &["--read-atomic", ""],
        ] {
            assert!(serve(args).is_err(), "{args:?}");
        }
        let diff = serve(&["--max-epoch-diff", "3"]).unwrap().max_epoch_diff;
        assert_eq!(diff, MaxEpochDiff(NonZeroU64::new(3)));
        assert!(serve(&["--max-epoch-diff", "OFF"]).is_ok());
        assert!(serve(&["--checkpoint-log-size", "0"]).is_ok());
    }

    #[test]
    fn options_that_contradict_each_other_are_explained() {
        refused(
            &["--epoch-time", "1ms", "--durability-target", "3ms"],
            &["--epoch-time 1ms", "--durability-target", "adaptive"],
        );
        assert!(serve(&["--epoch-time", "adaptive", "--durability-target", "3ms"]).is_ok());
        for option in [
            &["--durability-target", "3ms"],
            &["--max-epoch-diff", "3"],
            &["--checkpoint-log-size", "1g"],
            &["--checkpoint-share", "5"],
        ] {
            let args = [&["--ephemeral"][..], option].concat();
            refused(&args, &["--ephemeral", option[0]]);
        }
    }

    #[test]
    fn a_node_needs_its_cluster_and_a_cluster_its_node() {
        let both = serve(&["--cluster", "c.toml", "--node", "2"]).unwrap();
        assert_eq!(both.cluster.node, Some(2));
        refused(&["--cluster", "c.toml"], &["--node"]);
        refused(&["--node", "2"], &["--cluster"]);
        refused(&["--transport", "tcp"], &["--cluster"]);
        for option in [
            &["--group", "8"][..],
            &["--naive"],
            &["--lease-reads"],
            &["--election-timeout", "1s"],
        ] {
            refused(option, &["--cluster", option[0]]);
        }
        let node = ["--cluster", "c.toml", "--node", "2"];
        let with = |further: &[&'static str]| [&node[..], further].concat();
        let group = serve(&with(&["--group", "8"])).unwrap().replication.group;
        assert_eq!(group, Some(8));
        refused(&with(&["--group", "8", "--naive"]), &["--group", "--naive"]);
        refused(&with(&["--group", "0"]), &["--group"]);
        refused(
            &with(&["--election-timeout", "1ms"]),
            &["between 50ms and 60s"],
        );
        refused(&["--cluster", "c.toml", "--node", "0"], &["--node"]);
    }

    #[test]
    fn a_placement_says_how_many_threads_there_are() {
        let place = |args: &[&str], usable: &[usize]| {
            let cli = Cli::try_parse_from(["kumiki", "serve"].iter().chain(args)).unwrap();
            let serve = options(cli);
            serve.check(usable).map(|()| serve)
        };
        let all: Vec<usize> = (0..16).collect();
        let list = ["--affinity", "0:1,2,3+4:5,6,10"];
        let serve = place(&list, &all).unwrap();
        assert_eq!((serve.loggers(), serve.threads()), (2, 6));
        assert_eq!(serve.cpus(), [1, 2, 3, 5, 6, 10]);
        let same = [&list[..], &["--loggers", "2", "--threads", "6"]].concat();
        assert!(place(&same, &all).is_ok());
        for (more, words) in [
            (
                ["--loggers", "1"],
                ["2 log threads", "--loggers asks for 1"],
            ),
            (["--threads", "2"], ["6 threads", "--threads asks for 2"]),
        ] {
            let said = place(&[&list[..], &more].concat(), &all).unwrap_err();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
        let said = place(&list, &all[..8]).unwrap_err();
        assert!(
            said.contains("processor 10") && said.contains("0-7"),
            "{said}"
        );
    }
}
