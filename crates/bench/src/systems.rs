//! The systems that targets measure, as processes of this machine, and the connections to them.
//!
//! | module | contents |
//! |---|---|
//! | `listening_process` | a process that listens on an address |
//! | `kumiki_cluster` | servers of Kumiki that form a cluster |
//! | `cluster_transport` | how messages of such a cluster travel |
//! | `atomicity_protocol` | how transactions of many of its keys are made atomic, through the Rust client |
//! | `cassandra_nodes` | nodes of Cassandra |
//! | `paper_proxy_processes` | a proxy of paper 3 |
//! | `resp_connection` | a connection that speaks RESP |
//! | `echo_connection` | a connection to a thread that answers at once: the shortest round trip |

mod atomicity_protocol;
mod cassandra_nodes;
mod cluster_transport;
mod echo_connection;
mod kumiki_cluster;
mod listening_process;
mod paper_proxy_processes;
mod resp_connection;

pub use atomicity_protocol::AtomicityProtocol;
pub(crate) use cassandra_nodes::{on_last_processor, start_cassandra};
pub use cluster_transport::ClusterTransport;
pub(crate) use echo_connection::{EchoConnection, exchange};
pub(crate) use kumiki_cluster::{ClusterShape, KumikiCluster};
pub(crate) use listening_process::ListeningProcess;
pub(crate) use paper_proxy_processes::PaperProxyProcesses;
pub(crate) use resp_connection::RespConnection;
