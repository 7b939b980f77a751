//! The figures that the proxy returns for `INFO`.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use admin::about::{self, Build};

use crate::config::Config;
use crate::figures::{Clients, FrontendFigures, ReadAtomicFigures};
use crate::locks::lock_service::LockService;
use crate::node_kind::NodeKind;
use crate::nodes::Nodes;
use crate::threads::ListeningProxy;

/// All figures of a proxy.
pub(crate) struct ProxyInfo {
    pub(crate) kind: NodeKind,
    pub(crate) build: Build,
    address: SocketAddr,
    pub(crate) started: Instant,
    network_threads: usize,
    aggregation_threads: usize,
    pub(crate) queue: usize,
    pub(crate) clients_limit: usize,
    pub(crate) locks: Option<Arc<LockService>>,
    pub(crate) read_atomic: Arc<ReadAtomicFigures>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) fronts: Vec<Arc<FrontendFigures>>,
}

impl ProxyInfo {
    pub(crate) fn new(
        config: &Config,
        kind: NodeKind,
        ground: &ListeningProxy,
        locks: Option<Arc<LockService>>,
    ) -> Arc<ProxyInfo> {
        let clients = Arc::new(Clients::default());
        let fronts = (0..config.network_threads)
            .map(|_| Arc::new(FrontendFigures::new(Arc::clone(&clients))));
        Arc::new(ProxyInfo {
            kind,
            build: config.build,
            address: ground.address,
            started: ground.started,
            network_threads: config.network_threads,
            aggregation_threads: config.aggregation_threads,
            queue: config.queue,
            clients_limit: config.limits.clients,
            locks,
            read_atomic: Arc::default(),
            nodes: Arc::clone(&ground.nodes),
            fronts: fronts.collect(),
            clients,
        })
    }

    /// Returns the text of `INFO`: of one section, or of all if `section` is empty.
    pub(crate) fn text(&self, section: &[u8]) -> String {
        let wanted = |name: &str| {
            section.is_empty()
                || [name.as_bytes(), b"all", b"everything", b"default"]
                    .iter()
                    .any(|one| section.eq_ignore_ascii_case(one))
        };
        let mut sections = Vec::new();
        for (name, lines) in [
            ("server", self.server()),
            ("clients", self.of_clients()),
            ("stats", self.stats()),
            ("nodes", self.of_nodes()),
            ("locks", self.of_locks()),
        ] {
            if wanted(name) && !lines.is_empty() {
                let title = name[..1].to_uppercase() + &name[1..];
                sections.push(format!("# {title}\r\n{}", lines.replace('\n', "\r\n")));
            }
        }
        sections.join("\r\n")
    }

    /// Returns the kind of the nodes, in one word.
    pub(crate) fn before(&self) -> &'static str {
        match self.kind {
            NodeKind::Kumiki => "kumiki",
            NodeKind::RedisCluster => "redis-cluster",
            NodeKind::RedisServers => "redis-servers",
            NodeKind::Cassandra => "cassandra",
        }
    }

    fn server(&self) -> String {
        let before = self.before();
        format!(
            "kumiki_version:{}\nredis_version:{}\nredis_mode:proxy\nproxy_before:{before}\n\
             tcp_port:{}\nprocess_id:{}\nuptime_in_seconds:{}\nnetwork_threads:{}\n\
             aggregation_threads:{}\nqueue:{}\n",
            about::VERSION,
            about::REDIS_VERSION,
            self.address.port(),
            std::process::id(),
            self.started.elapsed().as_secs(),
            self.network_threads,
            self.aggregation_threads,
            self.queue,
        )
    }

    fn of_clients(&self) -> String {
        format!(
            "connected_clients:{}\ntotal_connections_received:{}\nrejected_connections:{}\n\
             turned_out_connections:{}\nacl_access_denied_auth:{}\n",
            self.clients.now.load(Relaxed),
            self.clients.ever.load(Relaxed),
            self.clients.refused.load(Relaxed),
            self.clients.turned_out.load(Relaxed),
            self.clients.auth_failures.load(Relaxed),
        )
    }

    fn stats(&self) -> String {
        let sum =
            |of: fn(&FrontendFigures) -> u64| self.fronts.iter().map(|one| of(one)).sum::<u64>();
        format!(
            "queries:{}\nreplies:{}\nfailed_queries:{}\ntotal_net_input_bytes:{}\n\
             total_net_output_bytes:{}\n",
            sum(|one| one.queries.load(Relaxed)),
            sum(|one| one.replies.load(Relaxed)),
            sum(|one| one.failures.load(Relaxed)),
            sum(|one| one.bytes_in.load(Relaxed)),
            sum(|one| one.bytes_out.load(Relaxed)),
        )
    }

    fn of_locks(&self) -> String {
        self.locks
            .as_ref()
            .map(|locks| locks.lines())
            .unwrap_or_default()
    }

    fn of_nodes(&self) -> String {
        let mut text = String::new();
        for (index, (address, node)) in self.nodes.all().into_iter().enumerate() {
            let now = node.now();
            let (queries, packets) = (node.queries.load(Relaxed), node.packets.load(Relaxed));
            let each = queries as f64 / packets.max(1) as f64;
            let _ = writeln!(
                text,
                "node{index}:addr={address},connections={},waiting={},under_way={},\
                 queries={queries},packets={packets},queries_per_packet={each:.2},\
                 connects={},failures={}",
                now.connections,
                now.waiting,
                now.under_way,
                node.connects.load(Relaxed),
                node.failures.load(Relaxed),
            );
        }
        text
    }
}
