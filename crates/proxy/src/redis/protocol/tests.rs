//! For any input of clients and any replies of nodes, a protocol goes on: it does not panic, and a
//! client whose queries have all been answered has all its replies.

mod caching;

use bytes::Bytes;

use super::super::commands::tests::some;
use super::super::shared_state::{ClusterMetadata, RedisOptions};
use super::super::subscription_service::{HubRequest, SubscriptionEvent, SubscriptionService};
use super::*;
use crate::config::UnknownOutcome;
use crate::node_kind::NodeKind;
use crate::nodes::Nodes;
use crate::runtime::inflight_budget::InflightBudget;
use crate::runtime::out_batch::OutBatch;
use crate::runtime::query::{BackendAnswer, BackendCommand, BackendQuery, NodeError, QueryFailure};

const ID: ClientId = ClientId {
    place: 0,
    thread: 0,
    number: 1,
};

/// Returns the state of a proxy before two nodes.
fn state(kind: NodeKind) -> Arc<RedisState> {
    let nodes = Arc::new(Nodes::default());
    let addresses = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let places = addresses.map(|address| nodes.place(address));
    let setting = RedisOptions {
        nodes,
        started: std::time::Instant::now(),
        limits: crate::config::Limits::default(),
        password: None,
        connection_keys: 1,
        patience: Duration::from_secs(1),
        unknown_outcome: UnknownOutcome::Close,
        locks: None,
        subscriptions: Arc::new(SubscriptionService::new(1, kind)),
        about: Box::new(|_| String::new()),
        clients: Arc::default(),
    };
    let known = ClusterMetadata {
        databases: 16,
        commands: Arc::new(some()),
        map: Arc::new(SlotMap::even(&places)),
        addresses: Arc::new(addresses.into_iter().collect()),
    };
    Arc::new(RedisState::new(setting, kind, known))
}

/// A client of a protocol, and the queries and replies that were made of its commands.
struct Stage {
    protocol: RedisProtocol,
    client: RedisClient,
    input: BytesMut,
    out: OutBatch,
    orders: Vec<BackendCommand>,
    later: Vec<(Duration, BackendQuery)>,
    inflight: InflightBudget,
    under_way: u32,
    now: Duration,
}

impl Stage {
    fn new(kind: NodeKind) -> Stage {
        let mut protocol = RedisProtocol::new(state(kind));
        let client = protocol.admit(ID, SocketAddr::from(([127, 0, 0, 1], 9)));
        Stage {
            protocol,
            client,
            input: BytesMut::new(),
            out: OutBatch::default(),
            orders: Vec::new(),
            later: Vec::new(),
            inflight: InflightBudget::new(64),
            under_way: 0,
            now: Duration::ZERO,
        }
    }

    fn with<T>(
        &mut self,
        act: impl FnOnce(
            &mut RedisProtocol,
            &mut RedisClient,
            &mut BytesMut,
            &mut RequestContext<'_>,
        ) -> T,
    ) -> T {
        let mut context = RequestContext {
            id: ID,
            now: self.now,
            out: &mut self.out,
            orders: &mut self.orders,
            later: &mut self.later,
            inflight: &mut self.inflight,
            under_way: &mut self.under_way,
        };
        act(
            &mut self.protocol,
            &mut self.client,
            &mut self.input,
            &mut context,
        )
    }

    fn send(&mut self, words: &[&[u8]]) -> InputProgress {
        let mut request = Vec::new();
        resp::command::write_command(&mut request, words);
        self.input.extend_from_slice(&request);
        self.read()
    }

    fn read(&mut self) -> InputProgress {
        if self.protocol.is_over(&self.client) {
            // Nothing more is read.
            self.input.clear();
            return InputProgress::Close;
        }
        self.with(|protocol, client, input, context| protocol.read(client, input, context))
    }

    /// Takes the queries that are with the nodes.
    fn take(&mut self) -> Vec<BackendQuery> {
        let waited = self.later.drain(..).map(|(due, query)| {
            self.now = self.now.max(due);
            self.inflight.take(&query);
            query
        });
        let waited: Vec<BackendQuery> = waited.collect();
        let sent = self.orders.drain(..).filter_map(|order| match order {
            BackendCommand::Send(query) => Some(query),
            BackendCommand::HangUp(..) | BackendCommand::Release(..) => None,
        });
        sent.chain(waited).collect()
    }

    fn answer(&mut self, query: BackendQuery, result: Result<BackendAnswer, QueryFailure>) {
        self.inflight.give_back(&query);
        self.under_way -= 1;
        let connection = query.connection.unwrap_or(1);
        let reply = BackendReply {
            query,
            connection,
            result,
        };
        self.with(|protocol, client, _, context| protocol.reply(client, reply, context));
    }

    /// Plays the nodes, which confirm subscriptions and requests for news, or refuse them.
    fn answer_subscriptions(&mut self, confirm: impl Fn() -> bool) {
        let tracking = Arc::clone(&self.protocol.state.tracking);
        tracking.note_begun(match confirm() {
            true => Ok(()),
            false => Err(Bytes::from_static(b"-ERR no\r\n")),
        });
        let service = Arc::clone(&self.protocol.state.subscriptions);
        for request in service.take_requests() {
            let HubRequest::Subscribe(request) = request else {
                continue;
            };
            let (client, sequence) = (request.client, request.sequence);
            service.send(
                0,
                match confirm() {
                    true => SubscriptionEvent::Subscribed { client, sequence },
                    false => SubscriptionEvent::Refused {
                        client,
                        sequence,
                        error: Bytes::from_static(b"-ERR no\r\n"),
                    },
                },
            );
        }
    }

    /// Delivers the deferred replies that are there at `now`, and returns their number.
    fn deliver(&mut self, now: Duration) -> usize {
        self.now = now;
        let mut replies = Vec::new();
        self.protocol.collect(now, &mut replies);
        let count = replies.len();
        for reply in replies {
            self.under_way -= u32::from(reply.is_awaited);
            self.with(|protocol, client, _, context| protocol.deliver(client, reply, context));
        }
        count
    }
}

fn plain(bytes: &'static [u8]) -> Result<BackendAnswer, QueryFailure> {
    Ok(BackendAnswer {
        bytes: Bytes::from_static(bytes),
        earlier_error: None,
    })
}

/// Returns any reply, which may fit the query or not.
fn any_reply(random: &mut fastrand::Rng) -> Result<BackendAnswer, QueryFailure> {
    const REPLIES: &[&[u8]] = &[
        b"+OK\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"$1\r\na\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n$1\r\n7\r\n*1\r\n$1\r\na\r\n",
        b"-ERR no\r\n",
        b"-MOVED 12182 127.0.0.1:1\r\n",
        b"-MOVED 5061 127.0.0.1:2\r\n",
        b"-MOVED 65535 127.0.0.1:2\r\n",
        b"-MOVED 12182 127.0.0.1:3\r\n",
        b"-MOVED 12182 name:1\r\n",
        b"-ASK 12182 127.0.0.1:1\r\n",
        b"-ASK 5061 127.0.0.1:2\r\n",
        b"-TRYAGAIN\r\n",
        b"-UNKNOWN it must be read before it is given again\r\n",
        b"-\r\n",
        b"_\r\n",
    ];
    let why = NodeError::Closed("a test".to_owned());
    match random.u8(..12) {
        0 => Err(QueryFailure::Lost(why)),
        1 => Err(QueryFailure::Unsent(why)),
        2 => Ok(BackendAnswer {
            bytes: Bytes::from_static(b"-EXECABORT\r\n"),
            earlier_error: Some(Bytes::from_static(b"-MOVED 12182 127.0.0.1:1\r\n")),
        }),
        _ => plain(REPLIES[random.usize(..REPLIES.len())]),
    }
}

#[test]
fn no_request_or_reply_breaks_a_protocol() {
    const NAMES: &[&str] = &[
        "get",
        "set",
        "mget",
        "mset",
        "msetnx",
        "del",
        "dbsize",
        "keys",
        "scan",
        "time",
        "ping",
        "eval",
        "xread",
        "xreadgroup",
        "zunionstore",
        "blpop",
        "publish",
        "subscribe",
        "unsubscribe",
        "psubscribe",
        "punsubscribe",
        "pubsub",
        "save",
        "bf.add",
        "script",
        "sort",
        "georadius",
        "object",
        "hello",
        "client",
        "auth",
        "select",
        "reset",
        "info",
        "echo",
        "multi",
        "exec",
        "discard",
        "watch",
        "unwatch",
        "lock.acquire",
        "lock.info",
        "nosuch",
    ];
    const WORDS: &[&[u8]] = &[
        b"foo",
        b"bar",
        b"",
        b"0",
        b"1",
        b"2",
        b"99999999999",
        b"-1",
        b"streams",
        b"store",
        b"get",
        b"load",
        b"help",
        b"3",
        b"\r\n",
        b"encoding",
        b"tracking",
        b"on",
        b"optin",
        b"caching",
        b"yes",
    ];
    for seed in 0..600 {
        let mut random = fastrand::Rng::with_seed(seed);
        let kind = [
            NodeKind::Kumiki,
            NodeKind::RedisCluster,
            NodeKind::RedisServers,
        ][seed as usize % 3];
        let mut stage = Stage::new(kind);
        if random.bool() {
            let state = Arc::get_mut(&mut stage.protocol.state);
            state.expect("one owner").unknown_outcome = UnknownOutcome::Error;
        }
        for _ in 0..random.usize(1..60) {
            let name = NAMES[random.usize(..NAMES.len())];
            let count = random.usize(..7);
            let mut words = vec![name.as_bytes()];
            words.extend((0..count).map(|_| WORDS[random.usize(..WORDS.len())]));
            stage.send(&words);
            if random.bool() {
                for query in stage.take() {
                    let reply = any_reply(&mut random);
                    stage.answer(query, reply);
                }
            }
        }
        let confirms = random.bool();
        // A query that waits goes on once its turn has come.
        for _ in 0..10_000 {
            stage.read();
            let queries = stage.take();
            // After a refused SELECT this test reads on, although the connection would be closed.
            if queries.is_empty() && stage.client.is_idle() && stage.input.is_empty() {
                break;
            }
            for query in queries {
                stage.answer(query, plain(b"+OK\r\n"));
            }
            stage.answer_subscriptions(|| confirms);
            let due = stage.protocol.next_deferred_reply();
            stage.deliver(due.unwrap_or(stage.now));
        }
        assert!(stage.client.is_idle(), "seed {seed}");
        assert!(stage.input.is_empty(), "seed {seed}");
        assert_eq!(stage.under_way, 0, "seed {seed}");
    }
}

#[test]
fn a_wrong_password_is_answered_later_and_holds_up_its_client() {
    let ms = Duration::from_millis;
    let mut stage = Stage::new(NodeKind::Kumiki);
    let wrong: [&[&[u8]]; 2] = [
        &[b"AUTH", b"default", b"x"],
        &[b"HELLO", b"3", b"AUTH", b"default", b"x"],
    ];
    Arc::get_mut(&mut stage.protocol.state)
        .expect("one owner")
        .password = Some("secret".to_owned());
    let mut due = Duration::ZERO;
    for (words, delay) in wrong
        .into_iter()
        .cycle()
        .zip([50, 100, 200, 400, 800, 1000, 1000])
    {
        stage.send(words);
        assert_eq!(stage.send(&[b"PING"]), InputProgress::AwaitsReply);
        due += ms(delay);
        assert_eq!(stage.protocol.next_deferred_reply(), Some(due));
        assert_eq!(stage.deliver(due - ms(1)), 0);
        assert_eq!(stage.out.text(), "");
        assert_eq!(stage.deliver(due), 1);
        assert!(stage.out.text().starts_with("-WRONGPASS"));
        assert_eq!(stage.read(), InputProgress::Done);
        stage.out = OutBatch::default();
    }
    stage.send(&[b"AUTH", b"secret"]);
    assert_eq!(stage.out.text(), "+OK\r\n");
}

#[test]
fn a_watch_does_not_outlive_its_slot_at_a_node() {
    let mut stage = Stage::new(NodeKind::RedisCluster);
    stage.send(&[b"WATCH", b"foo"]);
    let query = stage.take().remove(0);
    let here = query.node;
    stage.answer(query, plain(b"+OK\r\n"));
    // The slot moves, as another client's command shows.
    let there = NodeIndex(1 - here.0);
    stage.protocol.learn(12182, there);
    stage.send(&[b"WATCH", b"{foo}1"]);
    assert!(stage.take().is_empty(), "no connection watches both");
    stage.send(&[b"MULTI"]);
    stage.send(&[b"SET", b"foo", b"1"]);
    stage.send(&[b"EXEC"]);
    assert_eq!(stage.out.text(), "+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n*-1\r\n");
}

#[test]
fn a_block_on_a_connection_of_its_own_is_not_overtaken() {
    let mut stage = Stage::new(NodeKind::RedisCluster);
    stage.send(&[b"WATCH", b"foo"]);
    let query = stage.take().remove(0);
    stage.answer(query, plain(b"+OK\r\n"));
    for words in [&[&b"MULTI"[..]][..], &[b"SET", b"foo", b"1"], &[b"EXEC"]] {
        stage.send(words);
    }
    assert_eq!(stage.send(&[b"GET", b"foo"]), InputProgress::AwaitsReply);
    let block = stage.take().remove(0);
    stage.answer(block, plain(b"*1\r\n+OK\r\n"));
    assert_eq!(stage.read(), InputProgress::Done);
    assert_eq!(stage.take().len(), 1);
}

/// A node that does not lead refuses a script, and has not executed it. From then on nodes get it as a block, and an
/// error of the script is not taken for one of the node.
#[test]
fn a_script_is_sent_again_until_a_node_executes_it() {
    const SCRIPT: &[&[u8]] = &[b"EVAL", b"return 1", b"1", b"foo"];
    const NONE_LEADS: &[u8] = b"-CLUSTERDOWN none leads; nothing has happened, retry it\r\n";
    const OF_SCRIPT: &[u8] = b"-CLUSTERDOWN says the script\r\n";
    const MOVED: &[u8] = b"-MOVED 12182 127.0.0.1:1\r\n";
    let aborted = |error: &'static [u8]| {
        Ok(BackendAnswer {
            bytes: Bytes::from_static(b"-EXECABORT it is not executed\r\n"),
            earlier_error: Some(Bytes::from_static(error)),
        })
    };
    for (reply, expected) in [
        (plain(b"*1\r\n:1\r\n"), &b":1\r\n"[..]),
        (
            plain(b"*1\r\n-MOVED 12182 127.0.0.1:2\r\n"),
            b"-MOVED 12182 127.0.0.1:2\r\n",
        ),
        (aborted(b"-OOM no memory\r\n"), b"-OOM no memory\r\n"),
    ] {
        let mut stage = Stage::new(NodeKind::Kumiki);
        stage.send(SCRIPT);
        let first = stage.take().remove(0);
        let plain_bytes = first.bytes.clone();
        stage.answer(first, plain(NONE_LEADS));
        for refusal in [aborted(MOVED), plain(NONE_LEADS), aborted(MOVED)] {
            let query = stage.take().remove(0);
            let (begin, end) = ("*1\r\n$5\r\nMULTI\r\n", "*1\r\n$4\r\nEXEC\r\n");
            let block = [begin.as_bytes(), &plain_bytes, end.as_bytes()].concat();
            assert_eq!((&query.bytes[..], query.replies), (&block[..], 3));
            stage.answer(query, refusal);
        }
        let query = stage.take().remove(0);
        stage.answer(query, reply);
        assert_eq!(stage.out.text().as_bytes(), expected);
        assert!(stage.take().is_empty());
    }
    for kind in [NodeKind::Kumiki, NodeKind::RedisCluster] {
        let mut stage = Stage::new(kind);
        stage.send(SCRIPT);
        let query = stage.take().remove(0);
        stage.answer(query, plain(OF_SCRIPT));
        assert_eq!(stage.out.text().as_bytes(), OF_SCRIPT);
    }
}

#[test]
fn what_one_query_has_taught_is_forgotten_when_the_nodes_have_told() {
    let mut stage = Stage::new(NodeKind::RedisCluster);
    let kept = stage.protocol.map.of_slot(12182);
    stage.protocol.learn(12182, NodeIndex(1 - kept.0));
    stage.protocol.refresh(Duration::ZERO);
    assert_ne!(stage.protocol.map.of_slot(12182), kept);
    stage.protocol.state.looks.fetch_add(1, Ordering::SeqCst);
    stage.protocol.refresh(Duration::ZERO);
    assert_eq!(stage.protocol.map.of_slot(12182), kept);
}

#[test]
fn a_failed_watch_leaves_nothing_and_watched_keys_are_bounded() {
    let mut stage = Stage::new(NodeKind::Kumiki);
    stage.send(&[b"WATCH", b"foo"]);
    let query = stage.take().remove(0);
    stage.answer(query, plain(b"-ERR no\r\n"));
    assert!(stage.client.watches.is_empty() && stage.client.watches.slots.is_empty());
    for _ in 0..2 {
        stage.send(&[b"WATCH", b"foo", b"foo"]);
        for query in stage.take() {
            assert_eq!(query.bytes, "*2\r\n$13\r\nWATCH.VERSION\r\n$3\r\nfoo\r\n");
            stage.answer(query, plain(b"*1\r\n$1\r\n7\r\n"));
        }
    }
    assert_eq!(stage.client.watches.versions.len(), 1);
    let most = stage.protocol.state.limits.block_commands;
    let keys: Vec<String> = (0..most).map(|number| number.to_string()).collect();
    let mut words: Vec<&[u8]> = vec![b"WATCH"];
    words.extend(keys.iter().map(String::as_bytes));
    stage.send(&words);
    assert!(stage.take().is_empty());
    assert!(stage.out.text().contains("too much is watched"));
}

#[test]
fn lines_of_words_are_commands_and_leave_what_is_behind_them() {
    let mut stage = Stage::new(NodeKind::RedisServers);
    stage
        .input
        .extend_from_slice(b"PING\r\nSET foo \"a b\"\r\nGET foo\r\nGE");
    assert_eq!(stage.read(), InputProgress::Done);
    assert_eq!(&stage.input[..], b"GE");
    let sent: Vec<Bytes> = stage.take().into_iter().map(|query| query.bytes).collect();
    assert_eq!(
        sent,
        [
            "*3\r\n$3\r\nSET\r\n$3\r\nfoo\r\n$3\r\na b\r\n",
            "*2\r\n$3\r\nGET\r\n$3\r\nfoo\r\n"
        ]
    );
    // A command that has to wait is still the same when its turn comes.
    stage.input.clear();
    stage.send(&[b"GET", b"foo"]);
    stage.input.extend_from_slice(b"WATCH \"f o\"\r\nPING\r\n");
    assert_eq!(stage.read(), InputProgress::AwaitsReply);
    assert_eq!(
        &stage.input[..],
        b"*2\r\n$5\r\nWATCH\r\n$3\r\nf o\r\nPING\r\n"
    );
}
