//! The proxy in front of real Redis servers and a real Redis Cluster.
//!
//! Without `redis-server` the tests say so in one line and pass; with `KUMIKI_REQUIRE_PEERS=1` they
//! fail.

mod admin;
mod blocks;
mod clusters;
mod commands;
mod crossed;
#[path = "../../../server/tests/support/exposition.rs"]
mod exposition;
mod failures;
mod hostile;
#[path = "../../../server/tests/support/http.rs"]
mod http;
mod locks;
mod overload;
mod packs;
mod scripted;
mod support;
mod tls;
