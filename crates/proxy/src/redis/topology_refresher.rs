//! Learns the kind of the nodes and the node of each slot, and keeps this knowledge up to date.
//!
//! A thread asks the nodes: at the start, when something shows that the knowledge is old, and at
//! regular intervals. Threads with clients check a version in each turn, and take over changes.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::log_limit::LogLimit;
use bytes::{Bytes, BytesMut};
use parking_lot::{Condvar, Mutex, RwLock};
use resp::command::write_command;
use resp::{ReplyParser, Value};

use super::commands::Commands;
use super::slot_map::Map;
use super::wire::Options;
use crate::config::Limits;
use crate::error::ProxyError;
use crate::figures::Clients;
use crate::locks::lock_service::LockService;
use crate::node_kind::NodeKind;
use crate::nodes::{NeededNodes, NodeRoles, Nodes};
use crate::runtime::query::NodeIndex;
use crate::seeds::Seeds;
use reactor::tls::BlockingStream;

/// Interval at which the nodes are asked without a reason.
const ROUTINE: Duration = Duration::from_secs(10);
/// The shortest interval between two rounds of questions.
const REST: Duration = Duration::from_millis(50);
/// How long one node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long the start waits for a node that loads its data.
const LOADING: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The knowledge of the nodes.
#[derive(Clone, Debug)]
pub(crate) struct ClusterMetadata {
    pub(crate) commands: Arc<Commands>,
    pub(crate) map: Arc<Map>,
    /// All nodes that a node has reported, including those without slots, and those that were given to
    /// the proxy. No other address is trusted.
    pub(crate) addresses: Arc<HashSet<SocketAddr>>,
}

/// Writes the text of `INFO`: of one section, or of all if the argument is empty.
pub(crate) type InfoWriter = Box<dyn Fn(&[u8]) -> String + Send + Sync>;

/// The state that all threads with clients share.
pub(crate) struct State {
    pub(crate) kind: NodeKind,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) started: Instant,
    pub(crate) limits: Limits,
    pub(crate) password: Option<String>,
    /// How many connections to a node clients share.
    pub(crate) connection_keys: u8,
    /// How long a query is retried.
    pub(crate) patience: Duration,
    /// The locks, if the proxy keeps any.
    pub(crate) locks: Option<Arc<LockService>>,
    /// Grows with each change of the knowledge.
    pub(crate) version: AtomicU64,
    /// How often the nodes have reported the slots.
    pub(crate) looks: AtomicU64,
    known: RwLock<ClusterMetadata>,
    /// Writes the text of `INFO`.
    pub(crate) about: InfoWriter,
    clients: Arc<Clients>,
    /// Limits log lines that clients cause, by their text.
    log_limit: Mutex<LogLimit<&'static str>>,
    news: RefreshSignal,
}

/// Wakes the refresher.
#[derive(Debug, Default)]
struct RefreshSignal {
    wanted: Mutex<bool>,
    woken: Condvar,
    stopping: AtomicBool,
}

/// The parts of a [`State`] besides the knowledge of the nodes.
pub(crate) struct RefresherOptions {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) started: Instant,
    pub(crate) limits: Limits,
    pub(crate) password: Option<String>,
    pub(crate) connection_keys: u8,
    pub(crate) patience: Duration,
    pub(crate) locks: Option<Arc<LockService>>,
    pub(crate) about: InfoWriter,
    pub(crate) clients: Arc<Clients>,
}

/// Each log line that clients cause is written at most once in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

impl State {
    pub(crate) fn new(setting: RefresherOptions, kind: NodeKind, known: ClusterMetadata) -> State {
        State {
            kind,
            nodes: setting.nodes,
            started: setting.started,
            limits: setting.limits,
            password: setting.password,
            connection_keys: setting.connection_keys,
            patience: setting.patience,
            locks: setting.locks,
            about: setting.about,
            clients: setting.clients,
            log_limit: Mutex::new(LogLimit::new(LOG_INTERVAL)),
            version: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            known: RwLock::new(known),
            news: RefreshSignal::default(),
        }
    }

    /// Counts a client's wrong name or password, and logs it at a limited rate.
    pub(crate) fn note_wrong_password(&self) {
        self.clients.refuse_password();
        let text = "a client gave a wrong name or password";
        let now = self.started.elapsed();
        if let Some(left_out) = self.log_limit.lock().count(text, now) {
            tracing::warn!("{text}{left_out}");
        }
    }

    pub(crate) fn known(&self) -> ClusterMetadata {
        self.known.read().clone()
    }

    /// Returns `true` if there is a node at this address.
    pub(crate) fn knows(&self, address: SocketAddr) -> bool {
        self.known.read().addresses.contains(&address)
    }

    /// Returns the text of `INFO`: of one section, or of all if `section` is empty.
    pub(crate) fn info(&self, section: &[u8]) -> String {
        (self.about)(section)
    }

    /// Wakes the refresher: something shows that the knowledge is old.
    pub(crate) fn ask_for_news(&self) {
        let mut wanted = self.news.wanted.lock();
        if !std::mem::replace(&mut *wanted, true) {
            self.news.woken.notify_one();
        }
    }

    /// Ends the refresher.
    pub(crate) fn stop(&self) {
        self.news.stopping.store(true, Ordering::SeqCst);
        self.ask_for_news();
    }

    /// Keeps the knowledge up to date until it is stopped.
    pub(crate) fn keep(&self, seeds: &Seeds, options: &Options) {
        while !self.news.stopping.load(Ordering::SeqCst) {
            {
                let mut wanted = self.news.wanted.lock();
                if !*wanted {
                    self.news.woken.wait_for(&mut wanted, ROUTINE);
                }
                *wanted = false;
            }
            if self.news.stopping.load(Ordering::SeqCst) {
                return;
            }
            let found = match self.kind {
                NodeKind::RedisServers => Ok(servers(&seeds.look_up_again(), &self.nodes)),
                _ => self.look(&seeds.look_up_again(), options),
            };
            match found {
                Ok(found) => self.learn(found),
                Err(tried) => {
                    tracing::warn!("no node tells which has which slot: {}", tried.join("; "));
                }
            }
            std::thread::sleep(REST);
        }
    }

    fn learn(&self, (mut map, addresses): SlotOwners) {
        let mut known = self.known.write();
        map.follow(&known.map);
        known.addresses = Arc::new(addresses);
        if *known.map != map {
            tracing::info!(nodes = map.all().len(), "slots have moved");
            let before = std::mem::replace(&mut known.map, Arc::new(map));
            self.version.fetch_add(1, Ordering::Release);
            // Queries at a silent node are given up once threads with clients can see the nodes that
            // replace it.
            for &node in before.all() {
                if known.map.replaces(&before, node) {
                    self.nodes
                        .figures(node)
                        .set_replaced(self.started.elapsed());
                }
            }
        }
        drop(known);
        self.looks.fetch_add(1, Ordering::Release);
    }

    /// Asks one node after another until one reports the slots: nodes that have slots first, silent
    /// nodes last.
    fn look(&self, seeds: &[SocketAddr], options: &Options) -> Result<SlotOwners, Vec<String>> {
        let map = Arc::clone(&self.known.read().map);
        let with_slots = map.all().iter().map(|&node| self.nodes.address(node));
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in with_slots.chain(seeds.iter().copied()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        // A silent node delays the questions to the others.
        addresses.sort_by_key(|&address| self.nodes.is_silent(address));
        let mut tried = Vec::new();
        for address in addresses {
            let asked = NodeConnection::connect(address, options)
                .and_then(|mut asked| slots(&mut asked, address, &self.nodes));
            match asked {
                Ok(Some((map, mut addresses))) => {
                    addresses.extend(seeds);
                    return Ok((map, addresses));
                }
                Ok(None) => tried.push(format!("{address} is of no cluster")),
                Err(what) => tried.push(format!("{address} {what}")),
            }
        }
        Err(tried)
    }
}

impl NodeRoles for State {
    fn slots(&self, node: NodeIndex) -> usize {
        self.known().map.count_of(node)
    }

    fn needed(&self) -> NeededNodes {
        NeededNodes::Each(self.known().map.all().to_vec())
    }
}

/// Learns the kind of the nodes at these addresses, and their slots.
///
/// # Errors
/// Returns the fault of each of them.
pub(crate) fn discover(
    seeds: &Seeds,
    kumiki: bool,
    options: &Options,
    nodes: &Nodes,
) -> Result<(NodeKind, ClusterMetadata), Vec<String>> {
    let until = Instant::now() + LOADING;
    loop {
        let found = try_discover(&seeds.look_up_again(), kumiki, options, nodes);
        match found {
            Err(tried) if tried.iter().any(|what| what.contains("LOADING")) => {
                if Instant::now() >= until {
                    return Err(tried);
                }
                tracing::info!(
                    "waiting for a node that loads its data: {}",
                    tried.join("; ")
                );
                std::thread::sleep(LOOK_AGAIN);
            }
            found => return found,
        }
    }
}

fn try_discover(
    addresses: &[SocketAddr],
    kumiki: bool,
    options: &Options,
    nodes: &Nodes,
) -> Result<(NodeKind, ClusterMetadata), Vec<String>> {
    let mut tried = Vec::new();
    for &address in addresses {
        let found = NodeConnection::connect(address, options).and_then(|mut asked| {
            let commands = Arc::new(Commands::read(&asked.ask(&[b"COMMAND"])?)?);
            let told = slots(&mut asked, address, nodes)?;
            Ok((commands, told))
        });
        match found {
            Ok((commands, Some((map, mut told)))) => {
                let kind = if kumiki {
                    NodeKind::Kumiki
                } else {
                    NodeKind::RedisCluster
                };
                told.extend(addresses);
                let known = ClusterMetadata {
                    commands,
                    map: Arc::new(map),
                    addresses: Arc::new(told),
                };
                return Ok((kind, known));
            }
            Ok((commands, None)) => {
                let kind = if kumiki {
                    NodeKind::Kumiki
                } else {
                    NodeKind::RedisServers
                };
                let (map, told) = servers(addresses, nodes);
                let known = ClusterMetadata {
                    commands,
                    map: Arc::new(map),
                    addresses: Arc::new(told),
                };
                return Ok((kind, known));
            }
            Err(what) => tried.push(format!("  {address} {what}")),
        }
    }
    Err(tried)
}

/// The node of each slot, and the addresses of all nodes.
type SlotOwners = (Map, HashSet<SocketAddr>);

/// Divides the slots evenly among servers that do not know of each other.
fn servers(addresses: &[SocketAddr], nodes: &Nodes) -> SlotOwners {
    let places: Vec<NodeIndex> = addresses
        .iter()
        .map(|&address| nodes.place(address))
        .collect();
    (Map::even(&places), addresses.iter().copied().collect())
}

/// Asks one node for the slots and addresses of all; `None` if it belongs to no cluster.
fn slots(
    asked: &mut NodeConnection,
    address: SocketAddr,
    nodes: &Nodes,
) -> Result<Option<SlotOwners>, ProxyError> {
    let reply = asked.ask(&[b"CLUSTER", b"SLOTS"])?;
    let list =
        match Value::decode(&reply).map_err(|error| ProxyError::malformed(error.to_string()))? {
            Value::Array(list) => list,
            Value::Error(text) if has_no_cluster(&text) => return Ok(None),
            Value::Error(text) => {
                let text = String::from_utf8_lossy(&text);
                return Err(ProxyError::malformed(format!(
                    "does not tell which node has which slot: {text}"
                )));
            }
            _ => {
                return Err(ProxyError::malformed(
                    "does not tell which node has which slot",
                ));
            }
        };
    if list.is_empty() {
        return Err(ProxyError::refused(
            "knows no node that has slots; is the cluster made?",
        ));
    }
    let (mut ranges, mut told) = (Vec::new(), HashSet::from([address]));
    for one in &list {
        let (first, last, master) = range(one, address).ok_or_else(|| {
            ProxyError::malformed("tells of slots without telling whose they are")
        })?;
        told.insert(master);
        ranges.push((first, last, nodes.place(master)));
    }
    // Nodes that have no slots yet may be named in redirections by nodes that hand slots to them.
    if let Ok(reply) = asked.ask(&[b"CLUSTER", b"NODES"])
        && let Ok(Value::Bulk(text) | Value::Verbatim { text, .. }) = Value::decode(&reply)
    {
        let text = String::from_utf8_lossy(&text).into_owned();
        told.extend(text.lines().filter_map(|line| listed(line, address)));
    }
    Ok(Some((Map::new(&ranges, nodes.place(address)), told)))
}

/// Returns `true` if this error of a node means that it belongs to no cluster. Other errors (the node
/// loads its data, its user may not ask) say nothing about that.
fn has_no_cluster(error: &[u8]) -> bool {
    let text = String::from_utf8_lossy(error).to_ascii_lowercase();
    text.contains("cluster support disabled") || text.starts_with("err unknown command")
}

/// Reads one element of the reply to `CLUSTER SLOTS`: the first slot, the last, and their node.
fn range(range: &Value, asked: SocketAddr) -> Option<(u16, u16, SocketAddr)> {
    let Value::Array(fields) = range else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(master),
        ..,
    ] = &fields[..]
    else {
        return None;
    };
    let port = match master.get(1)? {
        Value::Int(port) => u16::try_from(*port).ok()?,
        _ => return None,
    };
    let host = match master.first()? {
        Value::Bulk(host) => std::str::from_utf8(host).ok()?,
        _ => "",
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    Some((first, last, place(host, port, asked)?))
}

/// Returns the address of the node in a line of the reply to `CLUSTER NODES`: after its id comes
/// `host:port@port`, and after a comma its name.
fn listed(line: &str, asked: SocketAddr) -> Option<SocketAddr> {
    let text = line.split(' ').nth(1)?.split(['@', ',']).next()?;
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port| port != 0)?;
    place(host, port, asked)
}

/// Returns a node's address as another node gives it. Without a host, or with an unknown one, it has
/// the address of the node that was asked. A name is looked up.
fn place(host: &str, port: u16, asked: SocketAddr) -> Option<SocketAddr> {
    if matches!(host, "" | "?") {
        return Some(SocketAddr::new(asked.ip(), port));
    }
    match host.parse() {
        Ok(host) => Some(SocketAddr::new(host, port)),
        Err(_) => (host, port).to_socket_addrs().ok()?.next(),
    }
}

/// A connection for a few requests of the proxy's own.
struct NodeConnection {
    stream: BlockingStream,
    input: BytesMut,
}

impl NodeConnection {
    fn connect(address: SocketAddr, options: &Options) -> Result<NodeConnection, ProxyError> {
        let failed =
            |error: std::io::Error| ProxyError::unavailable(format!("cannot be reached ({error})"));
        let stream =
            BlockingStream::connect(address, options.tls.as_deref(), PATIENCE).map_err(failed)?;
        let input = BytesMut::new();
        let mut asked = NodeConnection { stream, input };
        if let Some(password) = &options.password {
            let mut request: Vec<&[u8]> = vec![b"AUTH"];
            request.extend(options.user.as_deref().map(str::as_bytes));
            request.push(password.as_bytes());
            let reply = asked.ask(&request)?;
            if let [b'-', text @ ..] = &reply[..] {
                let text = String::from_utf8_lossy(text);
                return Err(ProxyError::refused(format!(
                    "refuses the proxy: {}",
                    text.trim_end()
                )));
            }
        }
        Ok(asked)
    }

    /// Sends one request, and returns its reply.
    fn ask(&mut self, request: &[&[u8]]) -> Result<Bytes, ProxyError> {
        let failed =
            |error: std::io::Error| ProxyError::unavailable(format!("does not answer ({error})"));
        let mut out = Vec::new();
        write_command(&mut out, request);
        self.stream.write_all(&out).map_err(failed)?;
        let mut parser = ReplyParser::new();
        let mut piece = vec![0; 16 * 1024];
        loop {
            match parser.parse(&self.input) {
                Ok(Some(end)) => return Ok(self.input.split_to(end).freeze()),
                Ok(None) => {}
                Err(error) => {
                    return Err(ProxyError::malformed(format!(
                        "does not speak RESP: {error}"
                    )));
                }
            }
            match self.stream.read(&mut piece).map_err(failed)? {
                0 => return Err(ProxyError::unavailable("closes the connection")),
                count => self.input.extend_from_slice(&piece[..count]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_are_not_about_clusters_say_nothing_about_them() {
        for (error, has_none) in [
            ("ERR This instance has cluster support disabled", true),
            ("ERR unknown command 'CLUSTER'", true),
            (
                "ERR unknown command `CLUSTER`, with args beginning with: `SLOTS`, ",
                true,
            ),
            ("LOADING Redis is loading the dataset in memory", false),
            ("NOAUTH Authentication required.", false),
            (
                "NOPERM this user has no permissions to run the 'cluster|slots' command",
                false,
            ),
        ] {
            assert_eq!(has_no_cluster(error.as_bytes()), has_none, "{error}");
        }
    }

    #[test]
    fn nodes_are_where_others_say() {
        let asked: SocketAddr = "127.0.0.1:7000".parse().unwrap();
        let at = |text: &str| text.parse::<SocketAddr>().ok();
        for (line, address) in [
            (
                "id 10.0.0.1:7001@17001 master - 0 0 1 connected 0-99",
                at("10.0.0.1:7001"),
            ),
            (
                "id 10.0.0.1:7001@17001,node.example slave x",
                at("10.0.0.1:7001"),
            ),
            ("id ::1:7001@17001 master", at("[::1]:7001")),
            ("id :7002@17002 myself,master", at("127.0.0.1:7002")),
            ("id 10.0.0.1:0@0 noaddr", None),
            ("", None),
        ] {
            assert_eq!(listed(line, asked), address, "{line}");
        }
        let told = |text: &[u8]| range(&Value::decode(text).unwrap(), asked);
        let none = told(b"*3\r\n:0\r\n:9\r\n*2\r\n$-1\r\n:7001\r\n");
        assert_eq!(none, at("127.0.0.1:7001").map(|at| (0, 9, at)));
        let name = told(b"*3\r\n:0\r\n:9\r\n*2\r\n$9\r\nlocalhost\r\n:7001\r\n");
        assert_eq!(
            name.map(|told| (told.2.ip().is_loopback(), told.2.port())),
            Some((true, 7001))
        );
        assert_eq!(told(b"*2\r\n:0\r\n:9\r\n"), None);
    }
}
