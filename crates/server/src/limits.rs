//! Limits on every size that a client controls, except those of keys and values, which are the
//! store's.
//!
//! | limit | what happens beyond it |
//! |---|---|
//! | clients | the connection gets an error and is closed |
//! | clients that have not given the password | a new one takes the place of the oldest, which is closed |
//! | the time that a client has to give it | the connection is closed |
//! | the time for which a client sends nothing | the connection is closed |
//! | argument, arguments, line | a protocol error, and the connection is closed |
//! | unparsed input | the connection is closed |
//! | replies not yet taken, with messages of channels | the connection is closed |
//! | what all connections hold of requests and replies | the connection that needs more is closed |
//! | commands and bytes of a `MULTI` block | the command is refused and the block cannot execute |
//! | memory of a script | the script ends with an error |
//! | snapshots open at once | the command is refused |
//! | commands executed, and replies made, in one turn | other connections get their turn first |

use std::time::Duration;

/// Sizes in bytes unless said otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once (a count).
    pub clients: usize,
    /// The most that `clients` may be changed to while the server runs (a count): as many connections as the
    /// process can have.
    pub most_clients: usize,
    /// Connections at once whose clients have not given the password (a count); at most a quarter of `clients`.
    pub unauthenticated: usize,
    /// How long a client has to give the password.
    pub authentication: Duration,
    /// How long a client may send nothing while nothing is done for it; `None`: for ever.
    pub idle: Option<Duration>,
    /// Limits of one request.
    pub request: resp::Limits,
    /// Input of one connection that is not yet a whole command.
    pub query_buffer: usize,
    /// Replies held for a connection, beyond which it is closed.
    pub output: usize,
    /// Replies and messages held for a connection that subscribes to channels, beyond which it is closed.
    pub subscriber_output: usize,
    /// Input, replies and blocks of all connections together. The connection that needs more is closed.
    pub in_flight: u64,
    /// Arguments held by a `MULTI` block.
    pub block_bytes: usize,
    /// Commands in a `MULTI` block (a count).
    pub block_commands: usize,
    /// The memory of a script's variables.
    pub script_memory: usize,
    /// Positions of `SCAN` remembered (a count), the oldest forgotten first.
    pub cursors: usize,
    /// Bytes of remembered positions.
    pub cursor_bytes: usize,
    /// Snapshots that clients have open at once (a count).
    pub snapshots: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clients: 10_000,
            most_clients: 10_000,
            unauthenticated: 2048,
            authentication: Duration::from_secs(60),
            idle: None,
            request: resp::Limits::default(),
            query_buffer: 1 << 30,
            output: 4 << 30,
            subscriber_output: 32 << 20,
            in_flight: 1 << 30,
            block_bytes: 1 << 30,
            block_commands: 1 << 20,
            script_memory: 128 << 20,
            cursors: 64 * 1024,
            cursor_bytes: 64 << 20,
            snapshots: 8,
        }
    }
}

/// How long a client's connection is idle before the system asks if the client is still there, as Redis does.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(300);
/// Connections that may wait to be accepted.
pub(crate) const BACKLOG: i32 = 1024;
/// Bytes read from a connection at a time. This also limits the commands that one connection can
/// execute before others get their turn.
pub(crate) const READ_BUFFER: usize = 64 * 1024;
/// The most bytes read at a time into the input of a connection that sends a large argument.
pub(crate) const LARGE_READ: usize = 1 << 20;
/// Bytes of replies that one connection gets in a turn, after which others get theirs.
pub(crate) const TURN_REPLIES: usize = 256 << 10;
/// Commands that are parsed, and their keys prefetched, before the first is executed.
pub(crate) const BATCH: usize = 32;
/// Keys visited in one slice of a long command.
pub(crate) const SLICE_KEYS: usize = 1024;
/// Operations executed in one slice of a long command.
pub(crate) const SLICE_OPERATIONS: usize = 2 * SLICE_KEYS;
/// Steps of comparing keys with a pattern in one slice of a long command, or one page of `SCAN`.
pub(crate) const SLICE_STEPS: usize = 1 << 20;
/// Bytes of a slice of a snapshot after which no more is added to it.
pub(crate) const SLICE_BYTES: usize = 1 << 20;
/// Output buffers kept for reuse, and the greatest capacity worth keeping.
pub(crate) const POOLED_BUFFERS: usize = 256;
/// See [`POOLED_BUFFERS`].
pub(crate) const POOLED_CAPACITY: usize = 64 * 1024;
