//! Scripts that are sent again to a node of Kumiki.
//!
//! A script may answer with any error, also with one that looks like a redirection, and must not be executed again
//! then. So a script that is sent again is sent as a block: the errors of the node come in place of the block's
//! replies, and those of the script among them.

use bytes::Bytes;
use resp::command::write_command;

use super::multi_block::MULTI;
use super::route;
use crate::runtime::query::{BackendAnswer, BackendQuery};

/// The head of the replies to a block of one command.
const ONE_REPLY: &[u8] = b"*1\r\n";

/// Returns `true` if a query is a script in a block.
pub(crate) fn is_in_block(query: &BackendQuery) -> bool {
    route::is_script(query.route) && query.bytes.starts_with(MULTI)
}

/// Returns the query as a block, if it is a script that is none.
pub(crate) fn in_block(query: BackendQuery) -> BackendQuery {
    if !route::is_script(query.route) || is_in_block(&query) {
        return query;
    }
    let mut bytes = MULTI.to_vec();
    bytes.extend_from_slice(&query.bytes);
    write_command(&mut bytes, &[b"EXEC"]);
    BackendQuery {
        bytes: bytes.into(),
        replies: 3,
        ..query
    }
}

/// Returns the reply to a query: to a script in a block that of the script, or why the block was not executed.
pub(crate) fn own_reply(query: &BackendQuery, answer: BackendAnswer) -> Bytes {
    if !is_in_block(query) {
        return answer.bytes;
    }
    match answer.bytes.strip_prefix(ONE_REPLY) {
        Some(reply) => answer.bytes.slice_ref(reply),
        None => answer.earlier_error.unwrap_or(answer.bytes),
    }
}
