//! `kumiki serve`: opens the store, serves it, stops when asked.

use std::io::{IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base::eviction::EvictionSettings;
use base::limits::Limits;
use base::size::Size;
use parking_lot::Mutex;
use reactor::Io;
use reactor::tls::ServerTls;
use server::{Admin, Config, Membership, Partition, Running, Starting, TlsListener};
use store::{CheckpointOptions, Db, Options, RecoveryProgress, RecoveryReport};

use crate::build::BUILD;
use crate::logging::LogControl;
use crate::serve_options::{DebugOption, DurabilityOption, IoOption, NumaOption, ServeOptions};
use crate::signals::{self, ConfigReload, stop_on};
use crate::{
    config_rewrite, descriptors, disk_layer, membership, memory, node_replica, owner, passwords,
    read_atomic,
};

/// Workers beyond those of the server's threads, for housekeeping.
const SPARE_WORKERS: usize = 2;
/// The interval at which progress is shown without a terminal.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Serves until a signal or a client requests the stop.
pub(crate) fn serve(options: ServeOptions, log: &Arc<LogControl>) -> Result<(), String> {
    let file = options.config.as_deref();
    let threads = options.threads();
    let nodes = match options.numa {
        NumaOption::Local => None,
        NumaOption::Interleave => interleave(),
    };
    // Taken before anything is opened, so that no signal finds the process without a handler.
    let signals =
        signals::take(file.is_some() || options.tls.are_given() || options.cluster.file.is_some())?;
    let membership = options.cluster.join()?;
    node_replica::check(&options, membership.as_ref())?;
    let read_atomic = read_atomic::declared(&options, membership.as_ref())?;
    let port = options.port.map(|port| (Ipv4Addr::LOCALHOST, port).into());
    let listen = membership::listen(options.listen.or(port), membership.as_ref())?;
    warn_of_little_memory(&options);
    let password = passwords::given(
        options.requirepass.as_ref(),
        options.requirepass_file.as_deref(),
    )?;
    membership::check_secret(password.as_deref(), membership.as_ref(), options.insecure)?;
    let secrets = membership::secret_reload(options.cluster.file.as_deref(), membership.as_ref());
    let certificate = options.tls.certificate()?;
    let config = Config {
        read_atomic,
        password,
        tls: tls(&options, listen, membership.as_ref(), certificate.as_ref())?,
        admin_certificate: certificate.clone().filter(|_| options.admin_tls),
        io: io(&options)?,
        ..config(&options, threads, listen, membership)
    };
    config.check().map_err(|error| error.to_string())?;
    let admin = options
        .admin
        .map(|address| Admin::start(address, config.admin_certificate.clone(), BUILD))
        .transpose();
    let admin = admin.map_err(|error| error.to_string())?;
    if let Some(admin) = &admin {
        let log = Arc::clone(log);
        admin.control_log(log);
    }
    let progress = progress_teller(admin.as_ref().map(Admin::starting));
    let opened = OpenedPartition::open(&options, &config, progress)?;
    let running = server::serve_with(opened.partition(), config, admin);
    let running = running.map_err(|error| error.to_string())?;
    let stopper = running.stopper();
    let reload = ConfigReload::new(file, log)
        .with_certificate(certificate)
        .with_secrets(secrets);
    stop_on(signals, reload, move || stopper.stop());
    announce(&running, &options, threads, nodes)
        .map_err(|error| format!("cannot announce {listen}: {error}"))?;
    let served = running.wait().map_err(|error| error.to_string());
    let closed = opened.close();
    tracing::info!("stopped");
    served.and(closed)
}

/// The opened partition.
enum OpenedPartition {
    Local(Db),
    Replicated(node_replica::OpenedReplica),
}

impl OpenedPartition {
    fn open(
        options: &ServeOptions,
        config: &Config,
        progress: Progress,
    ) -> Result<OpenedPartition, String> {
        let workers = config.threads + SPARE_WORKERS;
        let claim = match options.ephemeral {
            true => None,
            false => Some(owner::check(&options.data, config.cluster.as_ref())?),
        };
        let opened = OpenedPartition::open_own(options, config, workers, progress)?;
        claim.map_or(Ok(()), owner::Claim::record)?;
        Ok(opened)
    }

    /// Opens the data in this node's directory.
    fn open_own(
        options: &ServeOptions,
        config: &Config,
        workers: usize,
        progress: Progress,
    ) -> Result<OpenedPartition, String> {
        if let Some(membership) = &config.cluster
            && node_replica::partition(membership).is_some()
        {
            let opened = node_replica::open(options, membership, (workers, config.io), &*progress)?;
            tell_recovery(opened.replicated.recovery());
            return Ok(OpenedPartition::Replicated(opened));
        }
        if !options.ephemeral {
            node_replica::refuse_beside_replica(&options.data)?;
        }
        let opening = Options {
            workers,
            read_atomic: config.read_atomic.clone(),
            ..store_options(options, progress)?
        };
        let db = Db::open(opening).map_err(|error| error.to_string())?;
        if !options.ephemeral {
            tell_recovery(db.recovery());
        }
        Ok(OpenedPartition::Local(db))
    }

    fn partition(&self) -> Partition {
        match self {
            OpenedPartition::Local(db) => db.clone().into(),
            OpenedPartition::Replicated(opened) => Arc::clone(&opened.replicated).into(),
        }
    }

    fn close(&self) -> Result<(), String> {
        match self {
            OpenedPartition::Local(db) => db.close().map_err(|error| error.to_string()),
            OpenedPartition::Replicated(opened) => {
                // The leadership was handed over before the server stopped, if that was possible.
                opened.replicated.member().close(Duration::ZERO);
                Ok(())
            }
        }
    }
}

/// Receives the progress of recovery.
type Progress = Arc<dyn Fn(&RecoveryProgress) + Send + Sync>;

fn store_options(options: &ServeOptions, progress: Progress) -> Result<Options, String> {
    let defaults = Options::default();
    Ok(Options {
        dir: (!options.ephemeral).then(|| options.data.clone()),
        loggers: options.loggers(),
        log_buffers: options.log_buffers.into(),
        log_buffer_size: options.log_buffer_size.0 as usize,
        segment_size: options
            .log_segment_size
            .map_or(defaults.segment_size, |size| size.0),
        log_warm_up: options.log_warm_up,
        epoch_time: options.epoch_time,
        durability_target: options
            .durability_target
            .unwrap_or(defaults.durability_target),
        max_epoch_diff: options.max_epoch_diff.0,
        affinity: options.affinity.clone(),
        checkpoint: CheckpointOptions {
            log_size: options
                .checkpoint_log_size
                .map_or(defaults.checkpoint.log_size, |size| size.0),
            share: f64::from(options.checkpoint_share) / 100.0,
            ..defaults.checkpoint
        },
        limits: Limits {
            value: options.max_value(Limits::MAX_VALUE),
            ..Limits::default()
        },
        disk: disk_layer::open(options.disk, options.log_device)?,
        progress,
        ..defaults
    })
}

/// Chooses how threads wait for their connections.
fn io(options: &ServeOptions) -> Result<Io, String> {
    let io = match options.io {
        IoOption::Auto => Io::Auto,
        IoOption::Epoll => Io::Epoll,
        IoOption::Uring => Io::Uring,
    };
    io.choose()
        .map_err(|error| format!("{error}: leave out --io uring"))
}

/// Returns the listener for clients that speak TLS, if the options name one.
fn tls(
    options: &ServeOptions,
    listen: SocketAddr,
    membership: Option<&Membership>,
    certificate: Option<&Arc<ServerTls>>,
) -> Result<Option<TlsListener>, String> {
    let has_certificate = certificate.is_some();
    let port = options.tls_port;
    let listen = membership::listen_for_tls(port, has_certificate, listen, membership)?;
    if listen.is_none() && has_certificate && !options.admin_tls {
        return Err(
            "--tls-cert needs --tls-port PORT, the port for clients that speak TLS; or --admin-tls; or, for a \
             node of a cluster, tls = \"ADDRESS:PORT\" in the cluster's file"
                .to_owned(),
        );
    }
    Ok(listen
        .zip(certificate)
        .map(|(listen, certificate)| TlsListener {
            listen,
            certificate: Arc::clone(certificate),
        }))
}

fn config(
    options: &ServeOptions,
    threads: usize,
    listen: SocketAddr,
    cluster: Option<Membership>,
) -> Config {
    let open_files = descriptors::raise();
    let mut limits = server::Limits {
        clients: descriptors::clients(options.max_clients as usize, threads, open_files),
        most_clients: descriptors::most_clients(threads, open_files),
        idle: (options.idle_timeout > 0).then(|| Duration::from_secs(options.idle_timeout.into())),
        ..server::Limits::default()
    };
    limits.request.bulk = options.max_value(Limits::MAX_VALUE);
    limits.subscriber_output = options.max_subscriber_output.0 as usize;
    limits.in_flight = options.client_memory();
    limits.output = options.max_client_output.0 as usize;
    limits.query_buffer = options.max_client_query.0 as usize;
    limits.block_bytes = options.max_block.0 as usize;
    limits.script_memory = options.max_script_memory.0 as usize;
    Config {
        listen,
        cluster,
        threads,
        cpus: options.cpus(),
        staleness: options.replication.election(),
        ramp: options.ramp.algorithm,
        published: options.ramp.published.0 as usize,
        renewal: options.ramp.renewal,
        admin: options.admin,
        build: BUILD,
        durability: match options.durability {
            DurabilityOption::Group => server::Durability::Group,
            DurabilityOption::Async => server::Durability::Async,
        },
        insecure: options.insecure,
        debug_access: match options.enable_debug_command {
            DebugOption::No => server::DebugAccess::No,
            DebugOption::Local => server::DebugAccess::Local,
            DebugOption::Yes => server::DebugAccess::Yes,
        },
        databases: options.databases,
        maxmemory: options
            .maxmemory
            .map_or_else(memory::default_bound, |size| size.0),
        eviction: EvictionSettings {
            policy: options.maxmemory_policy,
            samples: options.maxmemory_samples as usize,
            log_factor: options.lfu_log_factor,
            decay_minutes: options.lfu_decay_time,
        },
        slow_log_limit: u64::try_from(options.slowlog_log_slower_than)
            .ok()
            .map(Duration::from_micros),
        slow_log_length: options.slowlog_max_len,
        key_events: options.notify_keyspace_events,
        latency_threshold: (options.latency_monitor_threshold > 0)
            .then(|| Duration::from_millis(options.latency_monitor_threshold)),
        file: options.config.clone().map(|path| {
            server::ConfigFile::new(move |changed| config_rewrite::rewrite(&path, changed))
        }),
        data: (!options.ephemeral).then(|| options.data.clone()),
        limits,
        ..Config::default()
    }
}

/// Spreads this process's memory over the machine's NUMA nodes, before there are threads, which
/// inherit that. Returns their number if there are several. A server that cannot do it goes on
/// without.
fn interleave() -> Option<usize> {
    match base::numa::interleave() {
        Ok(1) => {
            tracing::info!("--numa interleave changes nothing: the memory is on one NUMA node");
            None
        }
        Ok(nodes) => Some(nodes),
        Err(error) => {
            tracing::warn!("--numa interleave changes nothing: the kernel refuses it ({error})");
            None
        }
    }
}

/// Warns of a number without a unit, which is a number of bytes and rarely meant.
fn warn_of_little_memory(options: &ServeOptions) {
    const LITTLE: u64 = 1 << 20;
    if let Some(Size(bytes)) = options.maxmemory
        && (1..LITTLE).contains(&bytes)
    {
        tracing::warn!(
            "--maxmemory is {bytes} bytes, too little to write anything; for megabytes write {bytes}mb"
        );
    }
}

/// Prints the one line that says which server this is, where it and its data are, and what to type
/// next.
fn announce(
    running: &Running,
    options: &ServeOptions,
    threads: usize,
    numa_nodes: Option<usize>,
) -> std::io::Result<()> {
    let data = if options.ephemeral {
        "data in memory only".to_owned()
    } else {
        let folder = options
            .data
            .canonicalize()
            .unwrap_or_else(|_| options.data.clone());
        format!("data in {}", folder.display())
    };
    let admin = running.admin_address().map_or_else(String::new, |address| {
        let scheme = if options.admin_tls { "https" } else { "http" };
        format!(", metrics on {scheme}://{address}/metrics")
    });
    let node = options
        .cluster
        .node
        .map_or_else(String::new, |node| format!(", node {node} of a cluster"));
    let durability = match (options.ephemeral, options.durability) {
        (true, _) => "",
        (false, DurabilityOption::Group) => ", durability: group",
        (false, DurabilityOption::Async) => {
            ", durability: async (a crash may lose the last writes)"
        }
    };
    let tls = running
        .tls_address()
        .map_or_else(String::new, |address| format!(", TLS on {address}"));
    let numa = numa_nodes.map_or_else(String::new, |nodes| {
        format!(", memory interleaved over {nodes} NUMA nodes")
    });
    let io = running.io();
    let address = running.address();
    let host = match address.ip() {
        ip if ip.is_loopback() || ip.is_unspecified() => String::new(),
        ip => format!(" -h {ip}"),
    };
    let port = address.port();
    let version = buildinfo::VERSION;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "kumiki: listening on {address}, {data}{durability}, threads: {threads}, {io}{numa}{node}{tls}{admin}, \
         version {version}; try: redis-cli{host} -p {port} set greeting hello"
    )?;
    out.flush()
}

/// Shows the progress of recovery: rewrites one line on a terminal, otherwise writes a line a
/// second; the admin endpoint shows it, too.
fn progress_teller(starting: Option<Starting>) -> Progress {
    let terminal = std::io::stderr().is_terminal();
    let last = Mutex::new(Duration::ZERO);
    Arc::new(move |progress| {
        let line = describe(progress);
        if let Some(starting) = &starting {
            starting.tell(line.as_str());
        }
        let mut last = last.lock();
        if terminal {
            eprint!("\rkumiki: {line}");
            if progress.bytes_read == progress.bytes_total {
                eprintln!();
            }
        } else if progress.elapsed >= *last + PROGRESS_EVERY {
            *last = progress.elapsed;
            eprintln!("kumiki: {line}");
        }
    })
}

fn describe(progress: &RecoveryProgress) -> String {
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    let percent = 100.0 * progress.bytes_read as f64 / progress.bytes_total.max(1) as f64;
    format!(
        "recovering: {:.0} of {:.0} MiB ({percent:.0} %), {} entries, {:.1} s",
        mib(progress.bytes_read),
        mib(progress.bytes_total),
        progress.entries,
        progress.elapsed.as_secs_f64(),
    )
}

fn tell_recovery(report: &RecoveryReport) {
    if report.entries > 0 {
        tracing::info!(
            keys = report.keys,
            prepared = report.prepared,
            entries = report.entries,
            bytes = report.bytes,
            durable_epoch = report.durable_epoch.0,
            checkpoint_epoch = report.checkpoint.as_ref().map(|used| used.epoch.0),
            seconds = report.elapsed.as_secs_f64(),
            "recovered"
        );
    }
    for warning in report.cuts.iter().chain(&report.warnings) {
        tracing::warn!("{warning}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_in_one_line() {
        let progress = RecoveryProgress {
            bytes_read: 50 << 20,
            bytes_total: 100 << 20,
            entries: 7,
            elapsed: Duration::from_millis(1500),
        };
        let line = describe(&progress);
        assert_eq!(line, "recovering: 50 of 100 MiB (50 %), 7 entries, 1.5 s");
    }
}
