//! Code that tests, benchmarks and harnesses of several crates need, written once.
//!
//! | module | contents |
//! |---|---|
//! | [`amount`](amount()) | how much a test does: usually, and in a nightly run |
//! | [`addresses`] | free addresses on loopback for servers |
//! | [`client`] | a blocking RESP client that keeps every byte |
//! | [`cached_reader`] | a client with client-side caching |
//! | [`error`] | the errors of these helpers |
//! | [`frame`] | replies of RESP2 and RESP3, as they came and as values |
//! | [`http`] | a blocking HTTP client that sends any bytes |
//! | [`exposition`] | a strict reader of Prometheus's text format |
//! | [`files`] | documents and corpora of the repository |
//! | [`process`] | servers as child processes |
//! | [`namespaces`] | two network namespaces with a link between them |
//! | [`own_process`] | tests that must be alone in their process |
//! | [`cluster_file`] | the text of a cluster's file |
//! | [`peers`] | programs of other projects: their places, and the selection of groups |
//! | [`relay`] | relays between two peers: one that changes the bytes that pass, and links with a delay and a rate |
//! | [`wait`] | waiting until a condition holds |
//! | [`workload`] | workloads that verify themselves: transfers, counters, transactions over few hot keys |
//!
//! Of the workspace it uses only the checkers (`history`) and the vocabulary of transactions
//! (`base`): tests and harnesses share no code with the code that they test.

#![forbid(unsafe_code)]

pub mod addresses;
pub mod amount;
pub mod cached_reader;
pub mod client;
pub mod cluster_file;
pub mod error;
pub mod exposition;
pub mod files;
pub mod frame;
pub mod http;
pub mod namespaces;
pub mod own_process;
pub mod peers;
pub mod process;
pub mod relay;
#[cfg(feature = "tls")]
pub mod tls;
pub mod wait;
pub mod workload;

pub use addresses::{free_address, free_addresses};
pub use amount::amount;
pub use cached_reader::CachedReader;
pub use client::Client;
pub use error::TestkitError;
pub use frame::{Frame, Reply};
pub use wait::{SetOnDrop, eventually, eventually_some};
