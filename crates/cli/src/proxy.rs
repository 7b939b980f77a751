//! `kumiki proxy`: serves clients on behalf of nodes, and stops when asked.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base::size::Size;
use clap::{ArgGroup, Args};
use cluster::Topology;
use proxy::{
    Admin, Config, CqlTable, NodeAddress, NodeKind, Nodes, Running, Stack, UnknownOutcome,
};

use crate::argument_values::{parse_address, parse_password, parse_time};
use crate::build::BUILD;
use crate::logging::LogControl;
use crate::proxy_locks::{LockOptions, Locks};
use crate::signals::{self, ConfigReload, stop_on};
use crate::tls_options::{NodeTlsOptions, TlsOptions};
use crate::{descriptors, memory, passwords};

/// Options of `kumiki proxy`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("before").required(true).args(["cluster", "redis", "cassandra"]))]
#[command(group = ArgGroup::new("password_of_nodes").args(["node_password", "node_password_file"]))]
pub(crate) struct Options {
    /// Take options from this file, too; those of the command line win. SIGHUP has its log-level
    /// read again.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6390", value_parser = parse_address)]
    listen: SocketAddr,
    /// Stand before the Kumiki cluster of this file.
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// Stand before Redis: some nodes of a Redis Cluster, or servers that do not know of each other.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    redis: Vec<String>,
    /// Stand before Cassandra: some nodes of a cluster, from which the proxy learns of the others.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    cassandra: Vec<String>,
    /// The address of this proxy that drivers learn; default: the one it listens on.
    #[arg(long, value_name = "ADDRESS", requires = "cassandra")]
    advertise: Option<SocketAddr>,
    /// The addresses of the other proxies before the same Cassandra, which drivers learn, too.
    #[arg(
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        requires = "cassandra"
    )]
    proxies: Vec<SocketAddr>,
    /// A table of Cassandra that is locks, such as app.locks: the proxy answers its lightweight
    /// transactions itself. May be given several times.
    #[arg(
        long,
        value_name = "KEYSPACE.TABLE",
        value_delimiter = ',',
        requires = "cassandra"
    )]
    lock_table: Vec<CqlTable>,
    /// A table of Cassandra whose batches and reads of several rows are read atomic, such as app.posts.
    /// docs/read-atomic-cassandra.md says what the table needs. May be given several times.
    #[arg(
        long,
        value_name = "KEYSPACE.TABLE",
        value_delimiter = ',',
        requires = "cassandra"
    )]
    read_atomic: Vec<CqlTable>,
    /// Send writes of several clients to Cassandra as one batch. docs/proxy.md says what that changes.
    #[arg(long, requires = "cassandra")]
    merge_writes: bool,
    /// Threads that have clients; default: as many as there are processors, less those of
    /// --aggregation-threads.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    network_threads: Option<u16>,
    /// Threads that have the connections to nodes. With 0 each thread with clients has its own
    /// connections, and a request's whole way is on one thread: best with few processors.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=512))]
    aggregation_threads: u16,
    /// Threads that share a node, of those with connections to nodes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads_for_each_node: u16,
    /// Connections of one thread to a node.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    connections: u8,
    /// The processor of each thread, those with clients first, for example 0,1,2.
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    affinity: Vec<usize>,
    /// How threads read and write: sockets (a system call for each read and each write), io-uring (one for all that a
    /// thread reads and writes in a turn; sockets where the kernel is older than Linux 6.1 or refuses io_uring), or
    /// xdp:INTERFACE (TCP in the process, with the packets of that interface by AF_XDP: needs root and Linux 6.6, and
    /// --listen with an address of the interface).
    #[arg(long, visible_alias = "net", value_name = "HOW", default_value = "io-uring", value_parser = network)]
    network: Stack,
    /// Requests that may wait for one node or be under way to it; beyond it their clients wait.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queue: u32,
    /// Packets on one connection to a node that may be without any reply, while what comes gathers for the
    /// next; default: 2 before Redis, any number before other nodes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    packs: Option<u32>,
    /// Requests in one packet to a node, at most.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pack_count: u32,
    /// Bytes in one packet to a node, after which nothing is added.
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = Size::from_str)]
    pack_bytes: Size,
    /// How long a node may take to answer before it is taken to be dead.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    timeout: Duration,
    /// How long a request is tried again for while its node fails, if that is safe.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = time)]
    patience: Duration,
    /// What a client gets for a command that was sent, and whose outcome is not known because the node died or lost
    /// its partition: the end of its connection, as by a server that dies (close, the default), or the error
    /// -UNKNOWN (error).
    #[arg(long, value_name = "HOW", value_parser = unknown_outcome)]
    unknown_outcome: Option<UnknownOutcome>,
    /// Serve figures and health over HTTP here.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    admin: Option<SocketAddr>,
    /// Serve figures and health over HTTPS, with the certificate of --tls-cert, and ask for certificates as
    /// --tls-auth-clients says.
    #[arg(help_heading = "TLS", long, requires = "admin", requires = "tls_cert")]
    admin_tls: bool,
    #[command(flatten)]
    locks: LockOptions,
    /// The password that clients must give.
    #[arg(long, value_name = "PASSWORD", value_parser = parse_password)]
    requirepass: Option<String>,
    /// A file with the password that clients must give; other users must not be able to read it.
    #[arg(long, value_name = "FILE", conflicts_with = "requirepass")]
    requirepass_file: Option<PathBuf>,
    /// The user name for the nodes, if they have users.
    #[arg(long, value_name = "NAME", requires = "password_of_nodes")]
    node_user: Option<String>,
    /// The password that nodes want.
    #[arg(long, value_name = "PASSWORD", value_parser = parse_password)]
    node_password: Option<String>,
    /// A file with the password that nodes want; other users must not be able to read it.
    #[arg(long, value_name = "FILE")]
    node_password_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsOptions,
    #[command(flatten)]
    node_tls: NodeTlsOptions,
    /// Serve anyone who can reach the address, without a password.
    #[arg(long)]
    insecure: bool,
    /// Memory for what all clients together have sent and not taken: requests that are not whole, and replies. A
    /// client that needs more is closed. Default: a quarter of the memory that the machine or the container has.
    #[arg(long, value_name = "SIZE", value_parser = Size::from_str)]
    max_client_memory: Option<Size>,
    /// Messages of channels, and replies, that a client which subscribes to channels has not taken. One that is
    /// slower is closed.
    #[arg(long, value_name = "SIZE", default_value = "32mb", value_parser = Size::from_str)]
    max_subscriber_output: Size,
    /// Connections at once.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    maxclients: u32,
}

/// Parses a value of `--network`.
fn network(text: &str) -> Result<Stack, String> {
    match (text, text.strip_prefix("xdp:")) {
        ("sockets", _) => Ok(Stack::Sockets),
        ("io-uring", _) => Ok(Stack::Uring),
        (_, Some(interface)) if !interface.is_empty() => Ok(Stack::Xdp(interface.to_owned())),
        _ => Err("it is none of sockets, io-uring, and xdp:INTERFACE such as xdp:eth0".to_owned()),
    }
}

/// Parses a value of `--unknown-outcome`.
fn unknown_outcome(text: &str) -> Result<UnknownOutcome, String> {
    match text {
        "close" => Ok(UnknownOutcome::Close),
        "error" => Ok(UnknownOutcome::Error),
        _ => Err("it is neither close nor error".to_owned()),
    }
}

/// Parses a time with its unit.
fn time(text: &str) -> Result<Duration, String> {
    parse_time(text)
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "it is not a time such as 5s or 500ms".to_owned())
}

/// Serves until a signal requests the stop.
pub(crate) fn run(options: &Options, log: &Arc<LogControl>) -> Result<(), String> {
    let file = options.config.as_deref();
    let signals = signals::take(file.is_some() || options.tls.are_given())?;
    let mut config = config(options)?;
    proxy::check(&config).map_err(|error| error.to_string())?;
    let admin = options
        .admin
        .map(|address| Admin::start(address, config.admin_certificate.clone(), BUILD))
        .transpose();
    let admin = admin.map_err(|error| error.to_string())?;
    if let Some(admin) = &admin {
        let log = Arc::clone(log);
        admin.control_log(log);
    }
    // With Cassandra only tables of locks need a place for locks.
    let keeps_locks = options.cassandra.is_empty() || !options.lock_table.is_empty();
    let locks = match keeps_locks {
        true => Locks::open(&options.locks)?,
        false => None,
    };
    config.locks = locks.as_ref().map(|locks| locks.options.clone());
    let running = proxy::start_with(&config, admin).map_err(|error| error.to_string())?;
    let stopper = running.stopper();
    let reload = ConfigReload::new(file, log).with_certificate(config.certificate.clone());
    stop_on(signals, reload, move || stopper.stop());
    announce(&running, &config).map_err(|error| format!("cannot announce the address: {error}"))?;
    let ended = running.wait();
    locks.map_or(Ok(()), Locks::close)?;
    ended.map_err(|error| error.to_string())?;
    tracing::info!("stopped");
    Ok(())
}

fn config(options: &Options) -> Result<Config, String> {
    let nodes = nodes(options)?;
    let defaults = Config::new(nodes);
    let processors = base::cpus::usable().map_or(1, |all| all.len().max(1));
    let aggregation_threads = usize::from(options.aggregation_threads);
    let network_threads = options.network_threads.map_or_else(
        || {
            let most = match &options.network {
                // Each thread needs a queue of the interface.
                Stack::Xdp(interface) => proxy::receive_queues(interface).unwrap_or(1),
                Stack::Sockets | Stack::Uring => processors,
            };
            most.min(processors)
                .saturating_sub(aggregation_threads)
                .max(1)
        },
        usize::from,
    );
    let threads = network_threads + aggregation_threads;
    if !options.affinity.is_empty() && options.affinity.len() != threads {
        return Err(format!(
            "--affinity names {} processors, and there are {threads} threads: name one for each, \
             those with clients first",
            options.affinity.len()
        ));
    }
    refuse_what_has_no_effect(options)?;
    let certificate = options.tls.certificate()?;
    if !options.lock_table.is_empty() && !options.proxies.is_empty() && !options.locks.are_shared()
    {
        return Err(
            "--lock-table with --proxies: each of several proxies would grant the same locks; have \
             them share one table by --lock-cluster"
                .to_owned(),
        );
    }
    Ok(Config {
        listen: options.listen,
        advertise: options.advertise,
        proxies: options.proxies.clone(),
        lock_tables: options.lock_table.clone(),
        read_atomic: options.read_atomic.clone(),
        merge_writes: options.merge_writes,
        network_threads,
        aggregation_threads,
        threads_for_each_node: options.threads_for_each_node.into(),
        connections: options.connections,
        cpus: options.affinity.clone(),
        network: options.network.clone(),
        queue: options.queue as usize,
        packs: options.packs.map(|packs| packs as usize),
        pack_count: options.pack_count as usize,
        pack_bytes: options.pack_bytes.0 as usize,
        timeout: options.timeout,
        patience: options.patience,
        unknown_outcome: options.unknown_outcome.unwrap_or_default(),
        admin: options.admin,
        admin_certificate: certificate.clone().filter(|_| options.admin_tls),
        build: BUILD,
        certificate,
        node_tls: options.node_tls.files(),
        password: passwords::given(
            options.requirepass.as_ref(),
            options.requirepass_file.as_deref(),
        )?,
        node_user: options.node_user.clone(),
        node_password: passwords::given(
            options.node_password.as_ref(),
            options.node_password_file.as_deref(),
        )?,
        insecure: options.insecure,
        limits: proxy::Limits {
            clients: descriptors::clients(
                options.maxclients as usize,
                threads,
                descriptors::raise(),
            ),
            in_flight: options.max_client_memory.map_or_else(
                || memory::default_client_bound().saturating_mul(2),
                |size| size.0,
            ),
            subscriber_output: options.max_subscriber_output.0 as usize,
            ..defaults.limits
        },
        ..defaults
    })
}

/// Refuses options that would be accepted and have no effect: the operator relies on them.
fn refuse_what_has_no_effect(options: &Options) -> Result<(), String> {
    let before_cassandra = !options.cassandra.is_empty();
    if before_cassandra && (options.requirepass.is_some() || options.requirepass_file.is_some()) {
        return Err(
            "--requirepass with --cassandra: there the nodes judge the names and passwords of \
             clients, and the proxy has none of its own. Leave it out, and have the nodes ask \
             (PasswordAuthenticator)"
                .to_owned(),
        );
    }
    if before_cassandra && options.unknown_outcome.is_some() {
        return Err(
            "--unknown-outcome with --cassandra: drivers get WriteTimeout, as from the nodes; leave \
             it out"
                .to_owned(),
        );
    }
    let node_password = options.node_password.is_some() || options.node_password_file.is_some();
    if before_cassandra && node_password && options.node_user.is_none() {
        return Err(
            "--node-password with --cassandra: nodes take no password without a name; give \
             --node-user, too"
                .to_owned(),
        );
    }
    if before_cassandra
        && options.lock_table.is_empty()
        && let Some(given) = options.locks.given()
    {
        return Err(format!(
            "{given} with --cassandra: there are no locks but those of tables; name the tables by \
             --lock-table, or leave out {given}"
        ));
    }
    if let Some(table) = options
        .read_atomic
        .iter()
        .find(|it| options.lock_table.contains(it))
    {
        return Err(format!(
            "--read-atomic and --lock-table with {}.{}: a table is either; leave out one of them",
            table.keyspace, table.table
        ));
    }
    // `requires` does not find these: --cassandra cannot be given beside --redis and --cluster.
    let of_cassandra = [
        ("--advertise", options.advertise.is_some()),
        ("--proxies", !options.proxies.is_empty()),
        ("--lock-table", !options.lock_table.is_empty()),
        ("--read-atomic", !options.read_atomic.is_empty()),
        ("--merge-writes", options.merge_writes),
    ];
    if let Some((given, _)) = of_cassandra.iter().find(|(_, is_given)| *is_given)
        && !before_cassandra
    {
        return Err(format!(
            "{given} without --cassandra: it is about tables and drivers of Cassandra; leave it out"
        ));
    }
    let sharing = options.threads_for_each_node;
    if sharing > 1 && sharing > options.aggregation_threads {
        return Err(format!(
            "--threads-for-each-node {sharing}: there are {} threads that could share a node; give \
             --aggregation-threads {sharing} or more, or leave it out",
            options.aggregation_threads
        ));
    }
    if options.pack_bytes.0 == 0 {
        return Err(
            "--pack-bytes 0: nothing could be sent to a node; give a size such as 64KiB".to_owned(),
        );
    }
    let usable = base::cpus::usable().unwrap_or_default();
    let away = |cpu: &&usize| !usable.is_empty() && !usable.contains(cpu);
    if let Some(cpu) = options.affinity.iter().find(away) {
        let usable: Vec<String> = usable.iter().map(usize::to_string).collect();
        return Err(format!(
            "--affinity: this process has no processor {cpu}; it may use {}",
            usable.join(",")
        ));
    }
    Ok(())
}

fn nodes(options: &Options) -> Result<Nodes, String> {
    if let Some(file) = &options.cluster {
        let topology = Topology::load(file).map_err(|error| error.to_string())?;
        let nodes = topology.nodes().iter().map(|node| node.client.into());
        return Ok(Nodes::Kumiki(nodes.collect()));
    }
    if !options.cassandra.is_empty() {
        let nodes = resolve("--cassandra", "127.0.0.1:9042", &options.cassandra)?;
        return Ok(Nodes::Cassandra(nodes));
    }
    resolve("--redis", "127.0.0.1:6379", &options.redis).map(Nodes::Redis)
}

/// Returns the nodes that an option names.
fn resolve(option: &str, example: &str, texts: &[String]) -> Result<Vec<NodeAddress>, String> {
    let nodes = texts.iter().map(|text| {
        let node = NodeAddress::new(text);
        match node.resolve(None) {
            Ok(_) => Ok(node),
            Err(error) => Err(format!(
                "{option} {text}: {error}; give host:port, for example {example}"
            )),
        }
    });
    nodes.collect()
}

fn announce(running: &Running, config: &Config) -> std::io::Result<()> {
    let before = match running.kind() {
        NodeKind::Kumiki => "a Kumiki cluster",
        NodeKind::RedisCluster => "a Redis Cluster",
        NodeKind::RedisServers => "Redis servers",
        NodeKind::Cassandra => "a Cassandra cluster",
    };
    let threads = match config.aggregation_threads {
        0 => format!("threads: {}", config.network_threads),
        more => format!("threads: {} and {more} for nodes", config.network_threads),
    };
    let admin = running.admin_address().map_or_else(String::new, |address| {
        let scheme = match config.admin_certificate {
            Some(_) => "https",
            None => "http",
        };
        format!(", metrics on {scheme}://{address}/metrics")
    });
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "kumiki: proxy listening on {}, before {before}, {threads}{admin}",
        running.address()
    )?;
    out.flush()
}
