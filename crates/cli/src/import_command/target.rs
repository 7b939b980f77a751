//! The server that the keys are sent to: its nodes, and which of them has a slot.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::slot::{self, SLOTS};
use parking_lot::Mutex;
use resp::Value;
use resp::command::write_command;

use crate::node_connection::{Credentials, NodeConnection};
use crate::table_location::resolve_as;

/// How long a node may take to answer a question about itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module's description.
#[derive(Clone)]
pub(super) struct Target {
    credentials: Arc<Credentials>,
    routes: Arc<Mutex<Routes>>,
}

struct Routes {
    /// The node that was named.
    first: SocketAddr,
    /// The nodes of slots, as far as they are others.
    slots: HashMap<u16, SocketAddr>,
}

/// What a target refuses to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetLimits {
    /// The number of databases.
    pub(super) databases: u64,
    /// The length of the longest argument of a command in bytes.
    pub(super) longest_argument: u64,
    /// It deletes keys when memory is short.
    pub(super) evicts: bool,
}

/// The keys of a database that a node has.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeDatabase {
    pub(super) node: SocketAddr,
    pub(super) number: u64,
    /// The number of the keys.
    pub(super) keys: u64,
}

impl Target {
    /// Connects to the node that was named, and asks it for the others.
    ///
    /// # Errors
    /// The text says why it could not connect.
    pub(super) fn connect(to: &str, credentials: Credentials) -> Result<Target, String> {
        let addresses = resolve_as("--to", "127.0.0.1:6380", to)?;
        let connected = NodeConnection::connect_first(&addresses, &credentials);
        let (first, mut connection) = connected.map_err(|error| {
            format!("{error}; start a server with 'kumiki serve', or name one with --to")
        })?;
        let slots = slots(&mut connection)?;
        Ok(Target {
            credentials: Arc::new(credentials),
            routes: Arc::new(Mutex::new(Routes { first, slots })),
        })
    }

    /// Returns the node of a slot, as far as is known.
    pub(super) fn node(&self, slot: u16) -> SocketAddr {
        let routes = self.routes.lock();
        routes.slots.get(&slot).copied().unwrap_or(routes.first)
    }

    /// Returns the node of a key, as far as is known.
    pub(super) fn node_of(&self, key: &[u8]) -> SocketAddr {
        self.node(slot::of(key))
    }

    /// Returns the node that was named.
    pub(super) fn first_node(&self) -> SocketAddr {
        self.routes.lock().first
    }

    /// Returns all nodes.
    fn nodes(&self) -> BTreeSet<SocketAddr> {
        let routes = self.routes.lock();
        let others = routes.slots.values().copied();
        others.chain([routes.first]).collect()
    }

    /// Notes where a slot is, of the text of an error that says so. Returns `true` if it is one.
    pub(super) fn note_move(&self, error: &str) -> bool {
        let mut words = error.split(' ');
        if words.next() != Some("MOVED") {
            return false;
        }
        let slot = words.next().and_then(|slot| slot.parse().ok());
        let node = words.next().and_then(|node| node.parse().ok());
        if let (Some(slot), Some(node)) = (slot, node) {
            self.routes.lock().slots.insert(slot, node);
        }
        true
    }

    /// Opens a connection to a node.
    ///
    /// # Errors
    /// The text says why it could not connect.
    pub(super) fn open(&self, node: SocketAddr) -> Result<NodeConnection, String> {
        NodeConnection::connect(node, &self.credentials)
    }

    /// Returns the target's limits.
    ///
    /// # Errors
    /// The text says why they are not known.
    pub(super) fn limits(&self) -> Result<TargetLimits, String> {
        let node = self.first_node();
        let mut connection = self.open(node)?;
        let mut parameter = |name: &str| {
            let mut command = Vec::new();
            write_command(&mut command, &[b"CONFIG", b"GET", name.as_bytes()]);
            let replies = connection.pipeline(&command, 1, PATIENCE);
            let replies = replies.map_err(|error| format!("{node}: {error}"))?;
            let value = match &replies[..] {
                [Value::Array(pair)] => match &pair[..] {
                    [_, Value::Bulk(value)] => String::from_utf8(value.clone()).ok(),
                    _ => None,
                },
                _ => None,
            };
            value.ok_or_else(|| format!("{node}: its answer to CONFIG GET {name}: {replies:?}"))
        };
        let number = |text: String| {
            let number = text.parse();
            number.map_err(|_| format!("{node}: its answer to CONFIG GET is no number: {text}"))
        };
        Ok(TargetLimits {
            databases: number(parameter("databases")?)?,
            longest_argument: number(parameter("proto-max-bulk-len")?)?,
            evicts: parameter("maxmemory-policy")? != "noeviction",
        })
    }

    /// Returns the databases that have keys.
    ///
    /// # Errors
    /// The text says why they are not known.
    pub(super) fn databases_with_keys(
        &self,
        patience: Duration,
    ) -> Result<Vec<NodeDatabase>, String> {
        let mut found = Vec::new();
        for node in self.nodes() {
            let text = self.open(node)?.ask(&["INFO", "keyspace"], patience);
            let text = text.map_err(|error| format!("{node}: {error}"))?;
            found.extend(text.lines().filter_map(|line| {
                let (number, rest) = line.strip_prefix("db")?.split_once(":keys=")?;
                let keys = rest.split(',').next()?;
                Some(NodeDatabase {
                    node,
                    number: number.parse().ok()?,
                    keys: keys.trim().parse().ok()?,
                })
            }));
        }
        Ok(found)
    }

    /// Deletes all keys.
    ///
    /// # Errors
    /// The text says which node refuses.
    pub(super) fn delete_all(&self, patience: Duration) -> Result<(), String> {
        for node in self.nodes() {
            let answer = self.open(node)?.ask(&["FLUSHALL"], patience);
            answer.map_err(|error| format!("{node}: {error}"))?;
        }
        Ok(())
    }

    /// Checks that no node has keys in these databases.
    ///
    /// # Errors
    /// The text says which node has some, or why it is not known.
    pub(super) fn check_empty(&self, databases: &BTreeSet<u64>) -> Result<(), String> {
        for node in self.nodes() {
            let told = |error: String| format!("{node}: {error}");
            let mut connection = self.open(node)?;
            for number in databases {
                let mut commands = Vec::new();
                write_command(&mut commands, &[b"SELECT", number.to_string().as_bytes()]);
                write_command(&mut commands, &[b"DBSIZE"]);
                let replies = connection.pipeline(&commands, 2, PATIENCE).map_err(told)?;
                match &replies[..] {
                    [Value::Error(error), _] => {
                        return Err(told(refused_database(*number, error)));
                    }
                    [_, Value::Int(0)] => {}
                    [_, Value::Int(count)] => {
                        return Err(format!(
                            "{node} has {count} keys in database {number}: import into an empty server, or add --replace \
                             to add the file's keys to them and to replace those that both have"
                        ));
                    }
                    [_, other] => return Err(told(format!("its answer to DBSIZE: {other:?}"))),
                    _ => unreachable!("two commands have two replies"),
                }
            }
        }
        Ok(())
    }
}

/// Returns the text for a database that a node does not have.
pub(super) fn refused_database(number: u64, error: &[u8]) -> String {
    format!(
        "it refuses database {number} of the file: {}; start it with a greater --databases",
        String::from_utf8_lossy(error)
    )
}

/// Asks a node for the nodes of all slots; none if it is not one of a cluster.
fn slots(connection: &mut NodeConnection) -> Result<HashMap<u16, SocketAddr>, String> {
    let mut command = Vec::new();
    write_command(&mut command, &[b"CLUSTER", b"SLOTS"]);
    let replies = connection.pipeline(&command, 1, PATIENCE)?;
    let mut slots = HashMap::new();
    if let Some(Value::Array(ranges)) = replies.first() {
        for range in ranges {
            let (first, last, node) = range_of(range).ok_or("its answer to CLUSTER SLOTS")?;
            slots.extend((first..=last.min(SLOTS - 1)).map(|slot| (slot, node)));
        }
    }
    Ok(slots)
}

/// Returns the first and the last slot of a range, and its node.
fn range_of(range: &Value) -> Option<(u16, u16, SocketAddr)> {
    let Value::Array(range) = range else {
        return None;
    };
    let [Value::Int(first), Value::Int(last), Value::Array(node), ..] = &range[..] else {
        return None;
    };
    let [Value::Bulk(host), Value::Int(port), ..] = &node[..] else {
        return None;
    };
    let host = std::str::from_utf8(host).ok()?.parse().ok()?;
    let node = SocketAddr::new(host, u16::try_from(*port).ok()?);
    Some((
        u16::try_from(*first).ok()?,
        u16::try_from(*last).ok()?,
        node,
    ))
}
