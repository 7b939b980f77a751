//! Simulated nodes. They answer a statement with a row that has the statement and the user that sent
//! it.
//!
//! | word in the statement's text, or its first value | what the node does |
//! |---|---|
//! | `never` | it does not answer |
//! | `late` | it answers after [`LATE`] |
//!
//! A request with an invalid paging state is answered with an error of the protocol; the second one on
//! a connection ends the connection. Real nodes do so if the two come in one frame.
//!
//! The proxy's own requests are answered as by real nodes with one keyspace, `app`.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cql::request::{Parameters, Request, RequestMessage};
use cql::response::{
    AUTHENTICATION_ERROR, Columns, ErrorBody, PROTOCOL_ERROR, Prepared, PreparedMetadata,
    RowsBuilder, RowsMetadata,
};
use cql::{
    Bound, BoundValues, CqlValue, DataType, Direction, Envelope, Framing, HEADER_LEN, Limits,
    Packer, Response, ResultBody, StreamId, Unpacker, Version,
};

/// The delay of a late answer.
pub(crate) const LATE: Duration = Duration::from_millis(2500);

/// The common state of the nodes of a cluster.
struct Cluster {
    addresses: Vec<SocketAddr>,
    /// Names and passwords; without any, nodes do not ask clients to authenticate.
    users: HashMap<&'static str, &'static str>,
    /// Statements that nodes have got: the node's number, and the statement's text or first value.
    asked: Mutex<Vec<(usize, String)>>,
    /// Connections made to all nodes.
    connections: Mutex<usize>,
    /// How often listening connections have been cut off; it is also the schema's version.
    cuts: AtomicUsize,
}

/// A cluster of simulated nodes. They live as long as the test's process.
#[derive(Clone)]
pub(crate) struct Nodes(Arc<Cluster>);

impl Nodes {
    pub(crate) fn start(count: usize, users: &[(&'static str, &'static str)]) -> Nodes {
        Nodes::start_beside(count, users, &[])
    }

    /// Starts nodes that also report others.
    pub(crate) fn start_beside(
        count: usize,
        users: &[(&'static str, &'static str)],
        others: &[SocketAddr],
    ) -> Nodes {
        let listeners: Vec<TcpListener> = (0..count)
            .map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"))
            .collect();
        let addresses = listeners.iter().map(|listener| listener.local_addr());
        let cluster = Arc::new(Cluster {
            addresses: addresses
                .map(|address| address.expect("one"))
                .chain(others.iter().copied())
                .collect(),
            users: users.iter().copied().collect(),
            asked: Mutex::new(Vec::new()),
            connections: Mutex::new(0),
            cuts: AtomicUsize::new(0),
        });
        for (number, listener) in listeners.into_iter().enumerate() {
            let cluster = Arc::clone(&cluster);
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let connection = Connection::new(number, &cluster, stream.expect("a client"));
                    std::thread::spawn(move || connection.serve());
                }
            });
        }
        Nodes(cluster)
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.addresses.clone()
    }

    /// Returns the nodes that have got a statement, in order.
    pub(crate) fn asked(&self, what: &str) -> Vec<usize> {
        let asked = self.0.asked.lock().expect("no test has failed");
        let same = asked.iter().filter(|(_, text)| text == what);
        same.map(|(number, _)| *number).collect()
    }

    /// Lets connections with events fall silent, and stay open. Meanwhile the schema changes.
    pub(crate) fn cut_off_listeners(&self) {
        self.0.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how many connections have been made to the nodes.
    pub(crate) fn connections(&self) -> usize {
        *self.0.connections.lock().expect("no test has failed")
    }
}

/// A connection of the proxy.
struct Connection {
    number: usize,
    cluster: Arc<Cluster>,
    stream: TcpStream,
    version: Version,
    framing: Framing,
    unpacker: Unpacker,
    user: String,
    /// If it listens: how often other connections had been cut off before.
    listens: Option<usize>,
    /// Requests that could not be read.
    unread: usize,
}

impl Connection {
    fn new(number: usize, cluster: &Arc<Cluster>, stream: TcpStream) -> Connection {
        stream.set_nodelay(true).expect("no delay");
        *cluster.connections.lock().expect("no test has failed") += 1;
        Connection {
            number,
            cluster: Arc::clone(cluster),
            stream,
            version: Version::V4,
            framing: Framing::Plain,
            unpacker: Unpacker::new(Direction::Request, Limits::default()),
            user: String::new(),
            listens: None,
            unread: 0,
        }
    }

    fn serve(mut self) {
        let mut input = Vec::new();
        let mut piece = vec![0; 64 * 1024];
        loop {
            while let Some(unpacked) = self.unpacker.next(&mut input).expect("the proxy's CQL") {
                let consumed = unpacked.consumed;
                let envelopes = unpacked.envelopes.to_vec();
                input.drain(..consumed);
                let mut rest = &envelopes[..];
                while !rest.is_empty() {
                    let envelope = Envelope::split(rest, Direction::Request, &Limits::default());
                    let envelope = envelope.expect("the proxy's CQL").expect("whole");
                    self.hear(envelope);
                    rest = &rest[HEADER_LEN + envelope.body.len()..];
                }
            }
            match self.stream.read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(count) => input.extend_from_slice(&piece[..count]),
            }
        }
    }

    fn hear(&mut self, envelope: Envelope<'_>) {
        let stream = envelope.header.stream;
        let cuts = self.cluster.cuts.load(Ordering::SeqCst);
        if self.listens.is_some_and(|before| before < cuts) {
            return;
        }
        self.version = envelope.header.version;
        let message = RequestMessage::decode(envelope).expect("the proxy's CQL");
        match message.request {
            Request::Startup(_) => {
                self.say(
                    stream,
                    match self.cluster.users.is_empty() {
                        true => Response::Ready,
                        false => Response::Authenticate("PasswordAuthenticator"),
                    },
                );
                if self.version >= Version::V5 {
                    self.framing = Framing::Frames;
                    self.unpacker.expect_frames();
                }
            }
            Request::AuthResponse(token) => self.identify(stream, token.unwrap_or_default()),
            Request::Options => self.say(
                stream,
                Response::Supported(vec![("PROTOCOL_VERSIONS", vec!["4/v4", "5/v5"])]),
            ),
            Request::Register(_) => {
                self.listens = Some(cuts);
                self.say(stream, Response::Ready);
            }
            Request::Query(query) if !is_readable(&query.parameters) => self.cannot_read(stream),
            Request::Query(query) => self.asked(stream, query.text, &query.parameters.values),
            Request::Prepare(prepare) => self.say(stream, prepared(prepare.text, self.version)),
            Request::Execute(execute) => {
                let text = std::str::from_utf8(execute.id)
                    .expect("its text")
                    .to_owned();
                let values = execute.parameters.values;
                self.asked(stream, &text, &values);
            }
            Request::Batch(_) => self.say(stream, Response::Result(ResultBody::Void)),
        }
    }

    fn cannot_read(&mut self, stream: StreamId) {
        self.unread += 1;
        if self.unread > 1 {
            // The proxy may have closed it.
            let _ = self.stream.shutdown(Shutdown::Both);
            return;
        }
        let error = ErrorBody::plain(PROTOCOL_ERROR, "Invalid value for the paging state");
        self.say(stream, Response::Error(error));
    }

    fn identify(&mut self, stream: StreamId, token: &[u8]) {
        let text = String::from_utf8_lossy(token);
        let mut words = text.split('\0').skip(1);
        let (user, password) = (words.next().unwrap_or(""), words.next());
        match self.cluster.users.get(user) {
            Some(right) if Some(*right) == password => {
                user.clone_into(&mut self.user);
                self.say(stream, Response::AuthSuccess(None));
            }
            _ => {
                let text = format!("Provided username {user} and/or password are incorrect");
                let error = ErrorBody::plain(AUTHENTICATION_ERROR, &text);
                self.say(stream, Response::Error(error));
            }
        }
    }

    fn asked(&mut self, stream: StreamId, text: &str, values: &BoundValues<'_>) {
        let value = match values.iter().next() {
            Some((_, Bound::Bytes(bytes))) => String::from_utf8_lossy(bytes).into_owned(),
            _ => text.to_owned(),
        };
        let users = &self.cluster.users;
        assert!(
            users.is_empty() || users.contains_key(&self.user[..]),
            "{text} of an unknown client"
        );
        if let Some(rows) = self.about_nodes(text) {
            return self.say(stream, Response::Result(ResultBody::Rows(rows.rows(false))));
        }
        let mut asked = self.cluster.asked.lock().expect("no test has failed");
        asked.push((self.number, value.clone()));
        drop(asked);
        let columns = ["asked", "user"].map(|name| (name, DataType::Text));
        let mut rows = RowsBuilder::new(Columns::of_table("app", "echo", &columns));
        rows.push(&[CqlValue::text(&value[..]), CqlValue::text(&self.user[..])]);
        let response = Response::Result(ResultBody::Rows(rows.rows(false)));
        let both = format!("{text} {value}");
        if both.contains("never") {
            return;
        }
        if both.contains("late") {
            let bytes = self.packed(stream, response);
            let mut other = self.stream.try_clone().expect("a socket");
            std::thread::spawn(move || {
                std::thread::sleep(LATE);
                let _ = other.write_all(&bytes);
            });
            return;
        }
        self.say(stream, response);
    }

    /// Answers the proxy's queries about nodes as real nodes do.
    fn about_nodes(&self, text: &str) -> Option<RowsBuilder> {
        if text.contains("system_schema.keyspaces WHERE") {
            let columns = [("keyspace_name", DataType::Text)];
            let mut rows =
                RowsBuilder::new(Columns::of_table("system_schema", "keyspaces", &columns));
            if text.contains("'app'") {
                rows.push(&[CqlValue::text("app")]);
            }
            return Some(rows);
        }
        if text.contains("system_schema.keyspaces") {
            return Some(keyspaces());
        }
        let all = &self.cluster.addresses;
        let cuts = self.cluster.cuts.load(Ordering::SeqCst);
        if text.contains("system.local") {
            return Some(nodes("local", &[(self.number, all[self.number])], cuts));
        }
        if text.contains("system.peers") {
            let others = all.iter().copied().enumerate();
            let others: Vec<_> = others
                .filter(|(number, _)| *number != self.number)
                .collect();
            return Some(nodes("peers_v2", &others, cuts));
        }
        None
    }

    fn packed(&self, stream: StreamId, response: Response<'_>) -> Vec<u8> {
        let (mut envelope, mut out) = (Vec::new(), Vec::new());
        response.write(&mut envelope, self.version, stream);
        Packer::new(&mut out, self.framing).push(&envelope);
        out
    }

    fn say(&mut self, stream: StreamId, response: Response<'_>) {
        let bytes = self.packed(stream, response);
        // The proxy may have closed the connection.
        let _ = self.stream.write_all(&bytes);
    }
}

fn is_readable(parameters: &Parameters<'_>) -> bool {
    parameters.paging_state.is_none_or(cql::paging::is_readable)
}

fn prepared(text: &str, version: Version) -> Response<'_> {
    let key = Columns::of_table("app", "echo", &[("k", DataType::Text)]);
    let columns = ["asked", "user"].map(|name| (name, DataType::Text));
    let columns = Columns::of_table("app", "echo", &columns);
    Response::Result(ResultBody::Prepared(Prepared {
        id: text.as_bytes(),
        result_metadata_id: (version >= Version::V5).then_some(b"metadata"),
        bind: PreparedMetadata {
            partition_key: vec![0],
            columns: key,
        },
        result: RowsMetadata::new(columns),
    }))
}

fn keyspaces() -> RowsBuilder {
    let text = || Box::new(DataType::Text);
    let columns = [
        ("keyspace_name", DataType::Text),
        ("replication", DataType::Map(text(), text())),
    ];
    let mut rows = RowsBuilder::new(Columns::of_table("system_schema", "keyspaces", &columns));
    let replication = [("class", "SimpleStrategy"), ("replication_factor", "3")];
    let replication = replication.map(|(key, value)| (CqlValue::text(key), CqlValue::text(value)));
    rows.push(&[CqlValue::text("app"), CqlValue::Map(replication.to_vec())]);
    rows
}

fn nodes(table: &str, nodes: &[(usize, SocketAddr)], version: usize) -> RowsBuilder {
    let columns = [
        ("key", DataType::Text),
        ("peer", DataType::Inet),
        ("rpc_address", DataType::Inet),
        ("native_address", DataType::Inet),
        ("native_port", DataType::Int),
        ("data_center", DataType::Text),
        ("rack", DataType::Text),
        ("schema_version", DataType::Text),
        ("tokens", DataType::Set(Box::new(DataType::Text))),
    ];
    let mut rows = RowsBuilder::new(Columns::of_table("system", table, &columns));
    for (number, address) in nodes {
        let ip = CqlValue::Inet(address.ip());
        rows.push(&[
            CqlValue::text("local"),
            ip.clone(),
            ip.clone(),
            ip,
            CqlValue::Int(address.port().into()),
            CqlValue::text("dc"),
            CqlValue::text("rack"),
            CqlValue::text(version.to_string()),
            CqlValue::text_set([(*number as i64 * 1000).to_string()]),
        ]);
    }
    rows
}
