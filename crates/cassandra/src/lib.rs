//! Real Cassandra nodes on this machine, for tests and measurements of the proxy.
//!
//! | in the nodes' directory | what |
//! |---|---|
//! | `nodes.txt` | how many they are and where, so that data is not given to others |
//! | `node<n>/` | node *n*: `cassandra.yaml`, `logback.xml`, data and commit log |
//! | `node<n>.log` | what node *n* has said since its last start |
//!
//! Node *n* of a network 127.*a*.*b* is at 127.*a*.*b*.*n*, port 9042 for clients and 7000 for other
//! nodes: all of 127.0.0.0/8 is this machine, so that Cassandra's own ports can be kept, and so that
//! several clusters run side by side.
//!
//! The nodes are the jars of the Maven repository, started by Java 17; `cargo xtask peers` installs
//! them. They end with the process that has started them, also if that is killed; in that case
//! their directory remains.
//!
//! | module | contents |
//! |---|---|
//! | `error` | errors of nodes |
//! | `installation` | the jars, and Java |
//! | `process` | processes that end with the one that has started them |
//! | `network` | the addresses of nodes |
//! | `options`, `node_settings` | how nodes are set up; the files and the command of one |
//! | `node` | one node: its process, and its output |
//! | `readiness_probe` | the part of the protocol that shows whether a node serves |
//! | `nodes` | the nodes of a cluster: started, stopped, paused, killed |
//! | [`CqlConnection`], [`PreparedStatement`] | a connection to a node that prepares and executes statements |
//! | [`agree`] | waiting for nodes to agree on the schema |
//! | [`ycsb`] | YCSB's core with bindings of our own |

#![forbid(unsafe_code)]

mod cql_connection;
mod error;
mod installation;
mod network;
mod node;
mod node_settings;
mod nodes;
mod options;
mod process;
mod readiness_probe;
mod schema_agreement;
pub mod ycsb;

pub use cql_connection::{ConnectionError, CqlConnection, PreparedStatement};
pub use error::{Error, Result};
pub use installation::{Installed, java};
pub use network::PORT;
pub use nodes::{CassandraNodes, StartObserver, StartStep};
pub use options::{Compiler, Options, Paxos};
pub use schema_agreement::agree;
