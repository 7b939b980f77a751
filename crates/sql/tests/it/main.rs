//! Tests of SQL over pages: results, plans, the shell, PostgreSQL's protocol, TLS, loading, lost nodes,
//! numbers, malformed messages, memory, times and texts.

mod clients;
mod connections;
mod load;
mod malformed;
mod memory;
mod node;
mod numbers;
mod plans;
mod random;
mod real_clients;
mod replicas;
mod serve;
mod shell;
mod support;
mod tls;
mod tpch;
mod values;
