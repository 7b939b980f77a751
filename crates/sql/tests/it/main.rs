//! Tests of SQL over pages: results, plans, the shell, PostgreSQL's protocol, loading, lost nodes.

mod load;
mod node;
mod plans;
mod random;
mod replicas;
mod serve;
mod shell;
mod support;
mod tpch;
