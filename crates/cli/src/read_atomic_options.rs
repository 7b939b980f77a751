//! Options of read-atomic keys of `kumiki serve`.

use std::str::FromStr;

use base::size::Size;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use cluster::ramp::{Algorithm, Renewal};

/// Options of read-atomic keys.
#[derive(Args, Debug)]
#[command(next_help_heading = "Read-atomic keys")]
pub(crate) struct ReadAtomicOptions {
    /// Keys with this prefix are read atomic: MGET sees all or nothing of what an MSET, or another
    /// command that only writes, has written to several of them, without locks. May be given
    /// several times. A node of a cluster has it in the cluster's file instead.
    /// docs/read-atomic.md says what such keys can and cannot do.
    #[arg(long, value_name = "PREFIX", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) read_atomic: Vec<String>,
    /// What versions of read-atomic keys tell of those written with them, when this node writes
    /// them for Redis clients: fast (which keys these are), small (nothing, so that every read takes
    /// two rounds) or hybrid (a filter of a fixed size).
    #[arg(long = "ramp", value_name = "ALGORITHM", default_value = "fast")]
    pub(crate) algorithm: Algorithm,
    /// Memory for newest versions of read-atomic keys that Rust clients read by themselves, on this
    /// machine or through an RDMA device, unless --transport is tcp; 0: none. It is taken from
    /// /dev/shm; with --transport verbs and verbs-send it is locked memory instead.
    #[arg(long, value_name = "SIZE", default_value = "32mb", value_parser = Size::from_str)]
    pub(crate) published: Size,
    /// When such a version is replaced after a write of its key: on-commit (as soon as the write is
    /// durable, while readers ask for the key from time to time) or on-request (when a reader asks for
    /// the key).
    #[arg(
        long = "renew-published",
        value_name = "WHEN",
        default_value = "on-commit"
    )]
    pub(crate) renewal: Renewal,
}
