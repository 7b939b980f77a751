//! Transactions, as the layers above build them and the layers below execute them.
//!
//! | module | contents |
//! |---|---|
//! | [`ids`] | epochs, transactions, versions, nodes, partitions |
//! | [`call_error`], [`op_error`] | why a command on a collection, or an operation, failed |
//! | [`value_call`] | commands on collections |
//! | [`operation`] | operations, and the types of values |
//! | [`nested`], [`reply`] | answers to operations |
//! | [`abort`] | why a transaction did not take effect |
//! | [`transaction`] | a list of operations, and what its reply depends on |
//! | [`database`] | numbered databases: the prefixes of their keys |
//! | [`limits`] | the sizes that clients control |
//! | [`change`] | the changes of a transaction, as redo logs keep them |
//! | [`eviction`] | which keys are deleted when memory is full |
//! | [`key_event`] | changes of keys as events, and their listener |
//! | [`versions`] | versions of read-atomic keys, as readers ask for them |
//! | [`epochs`] | the global epoch of a store, as the journal sees it |
//! | [`partition`] | executes transactions |
//! | [`participant`] | a partition's side of transactions over several partitions |

pub mod abort;
pub mod call_error;
pub mod change;
pub mod database;
pub mod epochs;
pub mod eviction;
pub mod ids;
pub mod key_event;
pub mod limits;
pub mod nested;
pub mod op_error;
pub mod operation;
pub mod participant;
pub mod partition;
pub mod reply;
pub mod transaction;
pub mod value_call;
pub mod versions;
