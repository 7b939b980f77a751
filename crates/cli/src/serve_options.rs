//! Options of `kumiki serve`.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use base::affinity::Affinity;
use base::eviction::EvictionPolicy;
use base::size::Size;
use clap::{Args, ValueEnum};
use server::EventClasses;
use store::EpochTime;

use crate::argument_values::{parse_address, parse_password, parse_time};
use crate::disk_layer::{DiskLayer, LogDevice};
use crate::membership::MembershipOptions;
use crate::memory;
use crate::read_atomic_options::ReadAtomicOptions;
use crate::replication_options::ReplicationOptions;
use crate::tls_options::TlsOptions;

/// When replies are sent.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum DurabilityOption {
    /// Once everything a reply shows is durable.
    Group,
    /// At once: a crash may undo what clients were answered.
    Async,
}

/// The value of `--io`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IoOption {
    Auto,
    Epoll,
    Uring,
}

/// The value of `--enable-debug-command`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DebugOption {
    /// None.
    No,
    /// Those of this machine.
    Local,
    /// All.
    Yes,
}

/// Where the memory of a machine with several NUMA nodes comes from.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum NumaOption {
    /// From the node of the thread that touches it first.
    Local,
    /// From all nodes by turns, page by page; log buffers stay near their thread.
    Interleave,
}

/// Options of `kumiki serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeOptions {
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
    /// Listen on this port, too, for clients that speak TLS; on the address of --listen. A node of a cluster
    /// does not need it if the cluster's file gives it a tls address.
    #[arg(help_heading = "TLS", long, value_name = "PORT", requires = "tls_cert")]
    pub(crate) tls_port: Option<u16>,
    #[command(flatten)]
    pub(crate) tls: TlsOptions,
    /// How threads wait for their connections: by io_uring or by epoll. auto takes io_uring if the kernel offers
    /// it to this process.
    #[arg(help_heading = "Start", long, value_name = "KIND", value_enum, default_value_t = IoOption::Epoll)]
    pub(crate) io: IoOption,
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
    pub(crate) durability: DurabilityOption,
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
    /// Where the memory of a machine with several NUMA nodes comes from.
    #[arg(
        help_heading = "Expert",
        long,
        value_name = "HOW",
        default_value = "local"
    )]
    pub(crate) numa: NumaOption,
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
    /// How logs and checkpoints are written. Data written one way is read by the others. 'direct'
    /// needs a file system with direct I/O, and 'map' needs persistent memory to gain anything;
    /// docs/devices.md says when each is faster.
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
    /// What happens when this memory is used: writes are refused (noeviction), or keys are deleted. Those that were not
    /// used for longest (allkeys-lru), that are used least (allkeys-lfu), or any (allkeys-random); volatile-lru,
    /// volatile-lfu, volatile-random: of keys that expire; volatile-ttl: those that expire first.
    #[arg(
        help_heading = "Limits",
        long,
        value_name = "POLICY",
        default_value_t = EvictionPolicy::NoEviction,
        value_parser = EvictionPolicy::from_str
    )]
    pub(crate) maxmemory_policy: EvictionPolicy,
    /// The number of keys of which the best one is deleted.
    #[arg(
        help_heading = "Limits",
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub(crate) maxmemory_samples: u32,
    /// How slowly the frequency of a key grows with its uses, under a policy by frequency.
    #[arg(help_heading = "Limits", long, value_name = "N", default_value_t = 10)]
    pub(crate) lfu_log_factor: u32,
    /// The minutes without use after which the frequency of a key falls by one; 0: never.
    #[arg(
        help_heading = "Limits",
        long,
        value_name = "MINUTES",
        default_value_t = 1
    )]
    pub(crate) lfu_decay_time: u32,
    /// The number of databases that clients can select. Keys of databases beyond it stay where they are.
    #[arg(
        help_heading = "Limits",
        long,
        value_name = "N",
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub(crate) databases: u16,
    /// The password that clients must give. It is hidden from the list of this machine's processes, but not from
    /// the shell's history: --requirepass-file takes it from a file.
    #[arg(help_heading = "Security", long, value_name = "PASSWORD", value_parser = parse_password)]
    pub(crate) requirepass: Option<String>,
    /// Where to serve metrics, health and build information over HTTP, such as 127.0.0.1:9180.
    #[arg(help_heading = "Start", long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) admin: Option<SocketAddr>,
    /// Serve metrics and health over HTTPS, with the certificate of --tls-cert, and ask for certificates as
    /// --tls-auth-clients says.
    #[arg(help_heading = "TLS", long, requires = "admin", requires = "tls_cert")]
    pub(crate) admin_tls: bool,
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
    /// The clients that may give the command DEBUG, which is for tests: none, those of this machine, or all.
    #[arg(help_heading = "Security", long, value_name = "CLIENTS", value_enum, default_value_t = DebugOption::No)]
    pub(crate) enable_debug_command: DebugOption,
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
    /// Microseconds from which on a command is in the slow log (SLOWLOG); -1: none is.
    #[arg(
        help_heading = "Start",
        long,
        value_name = "MICROSECONDS",
        default_value_t = 10_000,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1..)
    )]
    pub(crate) slowlog_log_slower_than: i64,
    /// Commands that the slow log has, the newest ones.
    #[arg(help_heading = "Start", long, value_name = "N", default_value_t = 128)]
    pub(crate) slowlog_max_len: usize,
    /// Milliseconds from which on a command is an event of the latency monitor (LATENCY); 0: none is.
    #[arg(
        help_heading = "Start",
        long,
        value_name = "MILLISECONDS",
        default_value_t = 0
    )]
    pub(crate) latency_monitor_threshold: u64,
    /// Events of keys that clients can subscribe to, by Redis's letters; KEA: all of them.
    #[arg(
        help_heading = "Start",
        long,
        value_name = "LETTERS",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) notify_keyspace_events: EventClasses,
    /// Memory for what all clients together have sent and not taken: requests that are not whole, replies, blocks.
    /// A client that needs more is closed. Default: an eighth of the memory that the machine or the container has.
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = Size::from_str)]
    pub(crate) max_client_memory: Option<Size>,
    /// Replies that one client has not taken. A client that needs more is closed.
    #[arg(help_heading = "Limits", long, value_name = "SIZE", default_value = "4gb", value_parser = Size::from_str)]
    pub(crate) max_client_output: Size,
    /// Input of one client that is not yet a whole request. A client that needs more is closed.
    #[arg(help_heading = "Limits", long, value_name = "SIZE", default_value = "1gb", value_parser = Size::from_str)]
    pub(crate) max_client_query: Size,
    /// Commands of one MULTI block, with their arguments. One that is longer is refused.
    #[arg(help_heading = "Limits", long, value_name = "SIZE", default_value = "1gb", value_parser = Size::from_str)]
    pub(crate) max_block: Size,
    /// Memory of the variables of one script, at most 1gb. One that needs more ends with an error.
    #[arg(help_heading = "Limits", long, value_name = "SIZE", default_value = "128mb", value_parser = Size::from_str)]
    pub(crate) max_script_memory: Size,
    /// Messages of channels, and replies, that a client which subscribes to channels has not taken. One that is
    /// slower is closed.
    #[arg(help_heading = "Limits", long, value_name = "SIZE", default_value = "32mb", value_parser = Size::from_str)]
    pub(crate) max_subscriber_output: Size,
    /// Longest value, at most 512mb. Default: 512mb, and 32mb in a replicated partition, whose nodes send it to
    /// each other as a whole.
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = parse_max_value)]
    pub(crate) max_value: Option<Size>,
    #[command(flatten)]
    pub(crate) ramp: ReadAtomicOptions,
    #[command(flatten)]
    pub(crate) cluster: MembershipOptions,
    #[command(flatten)]
    pub(crate) replication: ReplicationOptions,
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

impl ServeOptions {
    /// Returns the limit on what all clients together may leave untaken, in bytes.
    pub(crate) fn client_memory(&self) -> u64 {
        self.max_client_memory
            .map_or_else(memory::default_client_bound, |size| size.0)
    }

    /// Makes checks that concern several options. This process may use the processors `usable`.
    ///
    /// # Errors
    /// The text says which options contradict each other, and what to do.
    pub(crate) fn check(&self, usable: &[usize]) -> Result<(), String> {
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
