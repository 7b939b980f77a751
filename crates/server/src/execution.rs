//! The execution of requests. Each module uses those above it in this table, and none below:
//!
//! | module | concept |
//! |---|---|
//! | `executor` | what a runtime executes commands with; how long a reply waits |
//! | `eviction` | whether there is memory for a command, and the eviction of keys |
//! | `other_nodes` | transactions of other nodes, of the leader, and of consensus |
//! | `single` | a command alone: one transaction |
//! | `block` | `MULTI`, `EXEC`, `DISCARD`: a block, which is one transaction |
//! | `in_place` | scripts within one transaction of the partition |
//! | `long` | commands that read before they write, and blocks with one of them |
//! | `blocking` | commands that wait until a key has something for them |
//! | `watch` | `WATCH` and its kin, the preconditions of blocks |
//! | `snapshot` | `KUMIKI.SNAPSHOT` |
//! | `key_lookup` | `MGET` and its kin with very many keys, in slices |
//! | `key_walk` | `KEYS` and its kin, in slices |
//! | `sliced_write` | `MSET`, `DEL` and their kin with very many keys, in slices |
//! | `dispatch` | how each kind of command runs |
//! | `timing` | how long commands take |
//! | `request` | a request: checked, counted, queued or run |
//! | `outcome` | answers to transactions whose outcome comes later |
//! | `resumption` | commands that have waited |

mod block;
mod blocking;
mod dispatch;
mod eviction;
mod executor;
mod in_place;
mod key_lookup;
mod key_walk;
mod long;
mod other_nodes;
mod outcome;
mod request;
mod resumption;
mod single;
mod sliced_write;
mod snapshot;
mod timing;
mod watch;

pub(crate) use executor::Executor;
