//! Decides which queries are retried, and makes the errors for the others.

use std::net::SocketAddr;
use std::time::Duration;

use cql::request::{BatchKind, Execute, Query as CqlQuery, Request, RequestMessage};
use cql::response::{
    AUTHENTICATION_ERROR, ErrorBody, ErrorKind, INVALID, OVERLOADED, SERVER_ERROR,
};
use cql::{Consistency, Envelope, Opcode};

use crate::runtime::query::{BackendQuery, NodeError, QueryFailure};

/// The first pause before a query is tried again; it doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Returns `true` if a query that failed in this way may be sent again.
pub(crate) fn may_repeat(query: &BackendQuery, failure: &QueryFailure) -> bool {
    match failure {
        QueryFailure::Unsent(NodeError::Stopping | NodeError::HungUp | NodeError::Refused(_)) => {
            false
        }
        QueryFailure::Unsent(_) => true,
        QueryFailure::Lost(_) => query.safe,
    }
}

/// Returns how long to wait before a query is sent again; `None`: it has been retried for long enough.
/// Each of `nodes` is tried once without a pause.
pub(crate) fn pause(
    query: &BackendQuery,
    failure: &QueryFailure,
    nodes: usize,
    now: Duration,
    patience: Duration,
) -> Option<Duration> {
    let round = (query.retries as usize + 1) / nodes.max(1);
    if round == 0 {
        return Some(Duration::ZERO);
    }
    // If all nodes have given the same answer, asking again does not change it.
    let known = matches!(failure, QueryFailure::Unsent(NodeError::Lacks(_)));
    if known || now >= query.since + patience {
        return None;
    }
    let doubled = PAUSE * 2_u32.pow(round.min(16) as u32);
    Some(doubled.min(LONGEST_PAUSE))
}

/// Returns a request's consistency, and the kind of write that a timeout names.
fn manner(envelope: &Envelope<'_>, conditional: bool) -> Option<(Consistency, &'static str)> {
    let simple = if conditional { "CAS" } else { "SIMPLE" };
    Some(match envelope.header.opcode {
        Opcode::Query => {
            let query = CqlQuery::decode(envelope).ok()?;
            (query.parameters.consistency, simple)
        }
        Opcode::Execute => {
            let execute = Execute::decode(envelope).ok()?;
            (execute.parameters.consistency, simple)
        }
        Opcode::Batch => {
            let Request::Batch(batch) = RequestMessage::decode(*envelope).ok()?.request else {
                return None;
            };
            let kind = match batch.kind {
                _ if conditional => simple,
                BatchKind::Logged => "BATCH",
                BatchKind::Unlogged => "UNLOGGED_BATCH",
                BatchKind::Counter => "COUNTER",
            };
            (batch.parameters.consistency, kind)
        }
        _ => return None,
    })
}

/// Returns the error for a request that failed at a node. `message` is its [`words`].
pub(crate) fn told<'a>(
    query: &BackendQuery,
    failure: &QueryFailure,
    envelope: &Envelope<'_>,
    conditional: bool,
    message: &'a str,
) -> ErrorBody<'a> {
    let manner = manner(envelope, conditional);
    match (failure, manner) {
        (QueryFailure::Unsent(NodeError::Refused(_)), _) => {
            ErrorBody::plain(AUTHENTICATION_ERROR, message)
        }
        (QueryFailure::Unsent(NodeError::Lacks(_)), _) => ErrorBody::plain(INVALID, message),
        (QueryFailure::Unsent(NodeError::Silent(_) | NodeError::Unanswered(_)), _) => {
            ErrorBody::plain(OVERLOADED, message)
        }
        (QueryFailure::Unsent(_), Some((consistency, _))) => ErrorBody {
            message,
            kind: ErrorKind::Unavailable {
                consistency,
                required: 1,
                alive: 0,
            },
        },
        (QueryFailure::Unsent(_), None) => ErrorBody::plain(OVERLOADED, message),
        (QueryFailure::Lost(_), Some((consistency, _))) if query.safe => ErrorBody {
            message,
            kind: ErrorKind::ReadTimeout {
                consistency,
                received: 0,
                required: 1,
                data_present: false,
            },
        },
        (QueryFailure::Lost(_), Some((consistency, write))) => ErrorBody {
            message,
            kind: ErrorKind::WriteTimeout {
                consistency,
                received: 0,
                required: 1,
                write,
                contentions: None,
            },
        },
        (QueryFailure::Lost(_), None) => ErrorBody::plain(SERVER_ERROR, message),
    }
}

/// Describes the failure in words for people.
pub(crate) fn words(query: &BackendQuery, failure: &QueryFailure, node: SocketAddr) -> String {
    match failure {
        QueryFailure::Unsent(NodeError::Refused(text) | NodeError::Lacks(text)) => text.clone(),
        QueryFailure::Unsent(why) => {
            format!(
                "node {node} {why}, and no other could be tried; nothing has happened, retry it"
            )
        }
        QueryFailure::Lost(why) if query.safe => {
            format!("node {node} {why}; nothing has changed, retry it")
        }
        QueryFailure::Lost(why) => format!(
            "node {node} {why}: whether the request took effect is not known; read what it writes \
             to find out, before it is given again"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::query::{ClientId, ConnectionKey, NodeIndex};
    use cql::{Flags, Header, StreamId, Version};

    /// A QUERY with consistency QUORUM.
    const BODY: &[u8] = b"\0\0\0\x01x\0\x04\0";

    fn told_of(failure: &QueryFailure, conditional: bool) -> ErrorBody<'static> {
        told_of_query(&query(false), failure, conditional)
    }

    fn query(safe: bool) -> BackendQuery {
        BackendQuery {
            client: ClientId {
                place: 0,
                thread: 0,
                number: 1,
            },
            sequence: 0,
            part: 0,
            node: NodeIndex(0),
            connection_key: ConnectionKey(0),
            bytes: bytes::Bytes::new(),
            connection: None,
            replies: 1,
            waits: false,
            safe,
            route: 0,
            since: Duration::ZERO,
            retries: 0,
        }
    }

    fn told_of_query(
        query: &BackendQuery,
        failure: &QueryFailure,
        conditional: bool,
    ) -> ErrorBody<'static> {
        let header = Header {
            version: Version::V4,
            flags: Flags::default(),
            stream: StreamId(1),
            opcode: Opcode::Query,
            body_len: BODY.len() as u32,
        };
        let envelope = Envelope { header, body: BODY };
        told(query, failure, &envelope, conditional, "")
    }

    #[test]
    fn an_uncertain_outcome_is_a_write_timeout() {
        let why = NodeError::Closed("end".to_owned());
        for (conditional, kind) in [(false, "SIMPLE"), (true, "CAS")] {
            let expected = ErrorKind::WriteTimeout {
                consistency: Consistency::Quorum,
                received: 0,
                required: 1,
                write: kind,
                contentions: None,
            };
            let told = told_of(&QueryFailure::Lost(why.clone()), conditional);
            assert_eq!(told.kind, expected);
        }
    }

    #[test]
    fn a_read_that_is_not_answered_is_a_read_timeout() {
        let failure = QueryFailure::Lost(NodeError::Unanswered(Duration::from_secs(15)));
        let expected = ErrorKind::ReadTimeout {
            consistency: Consistency::Quorum,
            received: 0,
            required: 1,
            data_present: false,
        };
        let told = told_of_query(&query(true), &failure, false);
        assert_eq!(told.kind, expected);
        assert!(matches!(
            told_of_query(&query(false), &failure, false).kind,
            ErrorKind::WriteTimeout { received: 0, .. }
        ));
    }

    #[test]
    fn what_was_not_sent_did_not_happen() {
        let unreachable = QueryFailure::Unsent(NodeError::Unreachable("no".to_owned()));
        assert!(matches!(
            told_of(&unreachable, false).kind,
            ErrorKind::Unavailable { alive: 0, .. }
        ));
        let code = |why| told_of(&QueryFailure::Unsent(why), false).kind.code();
        let lacks = NodeError::Lacks("Keyspace 'x' does not exist".to_owned());
        assert_eq!(code(lacks), INVALID);
        let refused = NodeError::Refused("Bad credentials".to_owned());
        assert_eq!(code(refused), AUTHENTICATION_ERROR);
    }
}
