//! A small cluster that speaks the protocol and misbehaves on command. Its nodes share one map of keys;
//! the tests check which node is asked, and what it answers.

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::ids::{Tid, Version};
use base::participant::Sequenced;
use base::partition::OwnedReply;
use base::transaction::OpError;
use base::versions::{Ask, OwnedFound, OwnedVersion};
use base::{Abort, Epoch, NodeId, Op, TransactionId};
use cluster::message::{Answer, AttemptOutcome, Message, Notice, Request};
use cluster::ramp::Algorithm;
use cluster::{CoordinatorKey, Topology, codec};
use fabric::tcp::{Tcp, TcpOptions, listen};
use fabric::{Event, Inbox, Link, Messages, Peer, Secret};
use kumiki_client::{Client, Options};
use parking_lot::Mutex;
use reactor::{Network, Sockets};

pub(crate) const SECRET: &str = "a secret of the test's own";

/// What a node does with the next transaction instead of serving it.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Serves it: the next fault is for the one after it.
    None,
    /// Closes the link; nothing has happened.
    CloseBefore,
    /// Executes it, then closes the link.
    CloseAfter,
    /// Answers this; nothing has happened.
    Say(Answer),
    /// Executes it, then answers this.
    SayAfter(Answer),
    /// Sends no answer.
    Silence,
    /// Executes it, forgets all sessions, then closes the link.
    ForgetAfter,
    /// Executes it, makes this node the leader, then closes the link.
    LeadAfter(u16),
}

/// How the client asked a node to coordinate a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coordinated {
    Serializably { holds: bool },
    By(Algorithm),
}

/// Keys and values, with versions.
#[derive(Default)]
pub(crate) struct Data {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    versions: BTreeMap<Vec<u8>, u64>,
    count: u64,
    /// Sessions, with the number and the replies of the last transaction.
    sessions: BTreeMap<u64, (u64, Vec<OwnedReply>)>,
    /// Sessions that were opened.
    pub(crate) opened: u64,
    /// Versions of read-atomic keys: the newest that is committed, and those that are prepared.
    pub(crate) versions_of: BTreeMap<Vec<u8>, Vec<OwnedVersion>>,
    /// How the client asked nodes to coordinate writes.
    pub(crate) coordinated: Vec<Coordinated>,
    /// Attempts that clients coordinate, at each node: what they write if they have not committed.
    attempts: BTreeMap<(NodeId, TransactionId), Option<Vec<u8>>>,
    /// Notices of clients about attempts, with the node that got them.
    pub(crate) notices: Vec<(NodeId, Notice)>,
    /// The greatest token of each lock.
    pub(crate) tokens: BTreeMap<Vec<u8>, u64>,
    /// The leader, if the nodes hold a partition together.
    pub(crate) leader: Option<u16>,
}

impl Data {
    /// Executes operations, or finds a precondition that does not hold.
    fn execute(&mut self, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, Abort> {
        for op in ops {
            if let Op::Guard { lock, token } = op {
                let highest = self.tokens.entry(lock.to_vec()).or_default();
                if *highest > *token {
                    return Err(Abort::Stale {
                        lock: lock.to_vec(),
                        token: *token,
                        highest: *highest,
                    });
                }
                *highest = *token;
            }
        }
        for (op, check) in ops.iter().enumerate() {
            if let Op::Check { key, version } = check
                && self.version(key) != *version
            {
                return Err(Abort::Precondition { op });
            }
        }
        Ok(ops.iter().map(|op| self.one(op)).collect())
    }

    fn open_session(&mut self) -> u64 {
        self.opened += 1;
        self.sessions.insert(self.opened, (0, Vec::new()));
        self.opened
    }

    pub(crate) fn forget_sessions(&mut self) {
        self.sessions.clear();
    }

    /// Returns the replies if the transaction was executed before, or `None` if it must be executed.
    fn known(&self, of: Sequenced) -> Result<Option<Vec<OwnedReply>>, Abort> {
        let (sequence, replies) = self.sessions.get(&of.session).ok_or(Abort::Forgotten)?;
        assert!(*sequence <= of.sequence, "numbers grow");
        Ok((*sequence == of.sequence).then(|| replies.clone()))
    }

    fn version(&self, key: &[u8]) -> Version {
        let count = self.versions.get(key).copied().unwrap_or(0);
        let tid = Tid::new(Epoch(count), 0);
        if self.values.contains_key(key) {
            Version::present(tid)
        } else {
            Version::absent(tid)
        }
    }

    /// Finds a version of a read-atomic key.
    fn find(&self, ask: &Ask<'_>) -> OwnedFound {
        let versions = self.versions_of.get(ask.key());
        let versions = versions.map_or(&[][..], |versions| versions);
        let found = match ask {
            Ask::Newest { .. } => versions.first().cloned(),
            Ask::Id { .. } => versions.first().map(|newest| OwnedVersion {
                id: newest.id,
                siblings: [].into(),
                content: None,
            }),
            Ask::OneOf { ids, .. } => {
                let named = versions.iter().filter(|one| ids.contains(&one.id));
                let found = named.max_by_key(|one| one.id).cloned();
                return found.map_or(OwnedFound::NotThere, OwnedFound::Version);
            }
        };
        found.map_or(OwnedFound::Nothing, OwnedFound::Version)
    }

    fn set(&mut self, key: &[u8], value: Option<&[u8]>) -> Option<Vec<u8>> {
        self.count += 1;
        self.versions.insert(key.to_vec(), self.count);
        match value {
            Some(value) => self.values.insert(key.to_vec(), value.to_vec()),
            None => self.values.remove(key),
        }
    }

    fn one(&mut self, op: &Op<'_>) -> OwnedReply {
        match *op {
            Op::Check { .. } | Op::Guard { .. } => OwnedReply::Ok,
            Op::Watch { key } => OwnedReply::Version(self.version(key)),
            Op::Get { key } | Op::GetIfString { key } => self
                .values
                .get(key)
                .map_or(OwnedReply::Nil, |value| OwnedReply::Bytes(value.clone())),
            Op::Put { key, value, .. } => {
                self.set(key, Some(value));
                OwnedReply::Ok
            }
            Op::Delete { key } => OwnedReply::Int(i64::from(self.set(key, None).is_some())),
            Op::Add { key, delta } => {
                let text = self.values.get(key).map_or(&b"0"[..], |value| value);
                let old: Option<i64> = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
                let Some(old) = old else {
                    return OwnedReply::Error(OpError::NotInteger);
                };
                self.set(key, Some((old + delta).to_string().as_bytes()));
                OwnedReply::Int(old + delta)
            }
            Op::Count { .. } => OwnedReply::Int(self.values.len() as i64),
            ref other => panic!("the test's nodes do not know {other:?}"),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(|value| &value[..])
    }

    /// Sets a key without the clients.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.set(key, Some(value));
    }
}

/// State that a node and its test share.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) faults: Mutex<VecDeque<Fault>>,
    /// Transactions that were executed.
    pub(crate) executed: AtomicUsize,
    /// Number of requests for the file.
    pub(crate) asked: AtomicUsize,
    /// Links of clients that are up, and the largest number at one time.
    pub(crate) links: AtomicUsize,
    pub(crate) most_links: AtomicUsize,
    stop: AtomicBool,
}

pub(crate) struct Cluster {
    pub(crate) data: Arc<Mutex<Data>>,
    pub(crate) topology: Topology,
    pub(crate) nodes: BTreeMap<u16, Running>,
}

pub(crate) struct Running {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the text of a file in which node 1 has the slots up to `last`, and node 2 the others.
pub(crate) fn text(addresses: [SocketAddr; 2], last: u16) -> String {
    let mut text = format!("secret = \"{SECRET}\"\nread_atomic = [\"ra:\"]\n");
    let slots = [format!("0-{last}"), format!("{}-16383", last + 1)];
    for (at, (address, slots)) in addresses.iter().zip(slots).enumerate() {
        let id = at + 1;
        let client = 20_001 + at;
        text += &format!(
            "[[node]]\nid = {id}\nclient = \"127.0.0.1:{client}\"\nfabric = \"{address}\"\n\
             [[partition]]\nid = {id}\nslots = [\"{slots}\"]\nnodes = [{id}]\n"
        );
    }
    text
}

/// Returns the text of a file in which three nodes hold one partition.
fn replicated(addresses: &[SocketAddr]) -> String {
    let mut text = format!("secret = \"{SECRET}\"\n");
    for (at, address) in addresses.iter().enumerate() {
        let (id, client, replica) = (at + 1, 20_001 + at, 20_101 + at);
        text += &format!(
            "[[node]]\nid = {id}\nclient = \"127.0.0.1:{client}\"\nfabric = \"{address}\"\n\
             replica = \"127.0.0.1:{replica}\"\n"
        );
    }
    text + "[[partition]]\nid = 1\nslots = [\"0-16383\"]\nnodes = [1, 2, 3]\n"
}

/// Two keys of node 1, and two of node 2, while node 1 has the lower half of the slots.
pub(crate) const ON_1: [&[u8]; 2] = [b"b", b"c"];
pub(crate) const ON_2: [&[u8]; 2] = [b"a", b"d"];
/// The same for read-atomic keys.
pub(crate) const RA_ON_1: [&[u8]; 2] = [b"ra:y", b"ra:x"];
pub(crate) const RA_ON_2: [&[u8]; 2] = [b"ra:b", b"ra:z"];

impl Cluster {
    pub(crate) fn new() -> Cluster {
        Cluster::of(2, |addresses| text([addresses[0], addresses[1]], 8191))
    }

    /// Starts three nodes that hold a partition together; the first leads.
    pub(crate) fn replicated() -> Cluster {
        let cluster = Cluster::of(3, replicated);
        cluster.data.lock().leader = Some(1);
        cluster
    }

    fn of(nodes: usize, text: impl Fn(&[SocketAddr]) -> String) -> Cluster {
        let listeners: Vec<TcpListener> = (0..nodes).map(|_| free()).collect();
        let addresses = listeners.iter().map(|one| one.local_addr().unwrap());
        let addresses: Vec<SocketAddr> = addresses.collect();
        let topology = Topology::parse(&text(&addresses), "test").unwrap();
        let mut cluster = Cluster {
            data: Arc::default(),
            topology,
            nodes: BTreeMap::new(),
        };
        for (id, listener) in (1..).zip(listeners) {
            cluster.start_on(id, listener);
        }
        cluster
    }

    pub(crate) fn addresses(&self) -> [SocketAddr; 2] {
        [0, 1].map(|at| self.topology.nodes()[at].fabric)
    }

    /// Starts a node that was stopped.
    pub(crate) fn start(&mut self, id: u16) {
        let address = self.topology.node(NodeId(id)).unwrap().fabric;
        let listener = listen(address, 1).unwrap().pop();
        self.start_on(id, listener.unwrap());
    }

    fn start_on(&mut self, id: u16, listener: TcpListener) {
        let shared = Arc::new(Shared::default());
        let (topology, data) = (self.topology.clone(), Arc::clone(&self.data));
        let node = Node::new(NodeId(id), listener, topology, data, Arc::clone(&shared));
        let thread = std::thread::spawn(move || node.run());
        let thread = Some(thread);
        self.nodes.insert(id, Running { shared, thread });
    }

    /// Stops a node, as the end of its process does.
    pub(crate) fn stop(&mut self, id: u16) {
        drop(self.nodes.remove(&id));
    }

    pub(crate) fn node(&self, id: u16) -> &Shared {
        &self.nodes[&id].shared
    }

    /// Makes a node do something else with its next transaction.
    pub(crate) fn fault(&self, id: u16, fault: Fault) {
        self.node(id).faults.lock().push_back(fault);
    }

    pub(crate) fn executed(&self, id: u16) -> usize {
        self.node(id).executed.load(Ordering::SeqCst)
    }

    pub(crate) fn options() -> Options {
        let mut options = Options::new(SECRET);
        options.timeout = Duration::from_secs(5);
        options.answer_within = Duration::from_millis(300);
        options
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(Cluster::options())
    }

    pub(crate) fn client_with(&self, options: Options) -> Client {
        let nodes = self.topology.nodes().iter();
        Client::connect(nodes.map(|node| node.fabric), options).unwrap()
    }
}

fn free() -> TcpListener {
    let address = "127.0.0.1:0".parse().unwrap();
    listen(address, 1).unwrap().pop().unwrap()
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking());
    }
}

struct Node {
    me: NodeId,
    network: Sockets,
    tcp: Tcp<Sockets>,
    topology: Topology,
    data: Arc<Mutex<Data>>,
    shared: Arc<Shared>,
    /// Keys that clients have shown.
    introduced: BTreeMap<Link, CoordinatorKey>,
}

impl Node {
    fn new(
        me: NodeId,
        listener: TcpListener,
        topology: Topology,
        data: Arc<Mutex<Data>>,
        shared: Arc<Shared>,
    ) -> Node {
        let fingerprint = topology.fingerprint();
        let mut options = TcpOptions::new(Peer::Node(me), Secret::new(SECRET), fingerprint);
        options.listener = Some(listener);
        let mut network = Sockets::open().unwrap();
        let tcp = Tcp::new(options, &mut network, 0).unwrap();
        Node {
            me,
            network,
            tcp,
            topology,
            data,
            shared,
            introduced: BTreeMap::new(),
        }
    }

    fn run(mut self) {
        let (mut events, mut inbox) = (Vec::new(), Inbox::default());
        let started = Instant::now();
        while !self.shared.stop.load(Ordering::SeqCst) {
            let patience = Some(Duration::from_millis(2));
            let timeout = self.tcp.timeout(started.elapsed());
            let timeout = timeout.into_iter().chain(patience).min();
            self.network.wait(&mut events, timeout).unwrap();
            events.drain(..).for_each(|event| self.tcp.on_event(event));
            self.tcp.tick(&mut self.network, started.elapsed());
            self.tcp.receive(&mut self.network, &mut inbox);
            for (link, event) in inbox.iter() {
                match event {
                    Event::Up(_) => {
                        let links = self.shared.links.fetch_add(1, Ordering::SeqCst) + 1;
                        self.shared.most_links.fetch_max(links, Ordering::SeqCst);
                    }
                    Event::Down(_) => {
                        self.shared.links.fetch_sub(1, Ordering::SeqCst);
                    }
                    Event::Message(bytes) => self.serve(link, bytes),
                    Event::Drained => {}
                }
            }
            inbox.clear();
            self.tcp.flush(&mut self.network);
        }
    }

    fn serve(&mut self, link: Link, bytes: &[u8]) {
        let (number, request) = match codec::decode(bytes) {
            Ok(Message::Request { number, request }) => (number, request),
            Ok(Message::Introduction(key)) => {
                self.introduced.insert(link, key);
                return;
            }
            Ok(Message::Notice(notice)) => {
                let (Notice::Abort { id } | Notice::Forget { id }) = notice;
                self.check_introduced(link, id);
                return self.data.lock().notices.push((self.me, notice));
            }
            other => panic!("a client does not say {other:?}"),
        };
        let answer = |node: &mut Node, reply: Answer| {
            let mut bytes = Vec::new();
            codec::encode(&Message::Reply { number, reply }, &mut bytes);
            node.tcp.send(link, &bytes).unwrap();
        };
        let leader = self.data.lock().leader;
        let is_led = leader.is_none_or(|leader| leader == self.me.0);
        let anyone = matches!(
            request,
            Request::Topology | Request::Coordinate { .. } | Request::Ramp { .. }
        );
        if !is_led && !anyone {
            let leader = leader.map(NodeId);
            return answer(self, Answer::Aborted(Abort::Elsewhere { leader }));
        }
        let (mut once, mut each, mut asked, mut of_attempt) = (None, None, None, None);
        let coordinated = |how| self.data.lock().coordinated.push(how);
        let (ops, coordinate) = match request {
            Request::Topology => {
                self.shared.asked.fetch_add(1, Ordering::SeqCst);
                return answer(self, Answer::Topology(self.topology.text().to_owned()));
            }
            Request::Execute { ops } => (ops, false),
            Request::Once { of, ops } => {
                once = Some(of);
                (ops, false)
            }
            Request::OpenSession => {
                let opened = self.data.lock().open_session();
                return answer(self, Answer::Session(opened));
            }
            Request::Coordinate { holds, ops } => {
                coordinated(Coordinated::Serializably { holds });
                (ops, true)
            }
            Request::Ramp { algorithm, ops } => {
                coordinated(Coordinated::By(algorithm));
                (ops, true)
            }
            Request::Versions { asks } => {
                asked = Some(asks);
                (Vec::new(), false)
            }
            Request::Each { transactions } => {
                each = Some(transactions);
                (Vec::new(), false)
            }
            Request::Prepare { id, .. } | Request::Commit { id, .. } | Request::Abandon { id } => {
                self.check_introduced(link, id);
                of_attempt = Some(request);
                (Vec::new(), false)
            }
            other => panic!("a client does not ask {other:?}"),
        };
        let fault = self.shared.faults.lock().pop_front();
        match fault {
            Some(Fault::CloseBefore) => return self.tcp.close(link),
            Some(Fault::Say(reply)) => return answer(self, reply),
            Some(Fault::Silence) => return,
            Some(_) | None => {}
        }
        let reply = match (once, each, asked, of_attempt) {
            (Some(of), ..) => self.execute_once(&ops, of),
            (_, Some(all), ..) => Answer::Each(all.iter().map(|ops| self.one_of(ops)).collect()),
            (.., Some(asks), _) => self.find(&asks),
            (.., Some(request)) => self.serve_attempt(request),
            _ => self.execute(&ops, coordinate),
        };
        match fault {
            Some(Fault::CloseAfter) => self.tcp.close(link),
            Some(Fault::ForgetAfter) => {
                self.data.lock().forget_sessions();
                self.tcp.close(link);
            }
            Some(Fault::LeadAfter(leader)) => {
                self.data.lock().leader = Some(leader);
                self.tcp.close(link);
            }
            Some(Fault::SayAfter(reply)) => answer(self, reply),
            _ => answer(self, reply),
        }
    }

    /// Checks that a client has shown that an attempt is its own.
    fn check_introduced(&self, link: Link, id: TransactionId) {
        let key = self.introduced.get(&link);
        assert_eq!(key.map(CoordinatorKey::unique), Some(id.unique));
    }

    /// Serves a request of an attempt that a client coordinates. An attempt is decided by its state here.
    fn serve_attempt(&mut self, request: Request<'_>) -> Answer {
        self.shared.executed.fetch_add(1, Ordering::SeqCst);
        let mut data = self.data.lock();
        match request {
            Request::Prepare { id, ops, .. } => {
                let own = self.topology.partition_at(self.me);
                let mut keys = ops.iter().map(|op| op.key().unwrap());
                assert!(keys.all(|key| Some(self.topology.partition_of(key)) == own));
                let mut bytes = Vec::new();
                codec::encode_ops(&ops, &mut bytes);
                data.attempts.insert((self.me, id), Some(bytes));
                Answer::Replies(vec![OwnedReply::Ok; ops.len()])
            }
            Request::Commit { id, awaited } => {
                assert!(awaited);
                let attempt = data.attempts.get_mut(&(self.me, id));
                let bytes = attempt.expect("it has prepared").take();
                if let Some(bytes) = bytes {
                    data.execute(&codec::decode_ops(&bytes).unwrap()).unwrap();
                }
                Answer::Done
            }
            Request::Abandon { id } => {
                let attempt = data.attempts.remove(&(self.me, id)).flatten();
                assert!(attempt.is_some(), "the client has not committed it");
                Answer::AttemptOutcome(AttemptOutcome::Aborted)
            }
            other => panic!("{other:?} is of no attempt"),
        }
    }

    fn execute_once(&mut self, ops: &[Op<'_>], of: Sequenced) -> Answer {
        let known = self.data.lock().known(of);
        match known {
            Ok(None) => {}
            Ok(Some(replies)) => return Answer::Replies(replies),
            Err(abort) => return Answer::Aborted(abort),
        }
        let answer = self.execute(ops, false);
        if let Answer::Replies(replies) = &answer {
            let result = (of.sequence, replies.clone());
            self.data.lock().sessions.insert(of.session, result);
        }
        answer
    }

    /// Executes one transaction of a bulk.
    fn one_of(&mut self, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, Abort> {
        match self.execute(ops, false) {
            Answer::Replies(replies) => Ok(replies),
            Answer::Aborted(abort) => Err(abort),
            other => panic!("no server answers {other:?} to operations"),
        }
    }

    fn find(&mut self, asks: &[Ask<'_>]) -> Answer {
        let own = self.topology.partition_at(self.me);
        let is_own = |ask: &Ask<'_>| Some(self.topology.partition_of(ask.key())) == own;
        assert!(asks.iter().all(is_own), "{asks:?} is not of this node");
        self.shared.executed.fetch_add(1, Ordering::SeqCst);
        let data = self.data.lock();
        Answer::Versions(asks.iter().map(|ask| data.find(ask)).collect())
    }

    fn execute(&mut self, ops: &[Op<'_>], coordinate: bool) -> Answer {
        let own = self.topology.partition_at(self.me);
        let mut keys = ops.iter().filter_map(Op::key);
        let is_elsewhere = |key: &[u8]| Some(self.topology.partition_of(key)) != own;
        if !coordinate && keys.any(is_elsewhere) {
            let what = "not of this node".to_owned();
            return Answer::Aborted(Abort::Unavailable { what });
        }
        self.shared.executed.fetch_add(1, Ordering::SeqCst);
        match self.data.lock().execute(ops) {
            Ok(replies) => Answer::Replies(replies),
            Err(abort) => Answer::Aborted(abort),
        }
    }
}
