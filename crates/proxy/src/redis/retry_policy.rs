//! Decides which queries are retried, and makes the errors for the others.

use std::net::SocketAddr;
use std::time::Duration;

use base::model::abort::UNKNOWN_OUTCOME;
use bytes::Bytes;

use crate::runtime::query::{BackendAnswer, BackendQuery, QueryFailure};

/// The first pause before a query is tried again; it doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// The action that a node's error asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RetryHint {
    /// The slot belongs to another node for good; `to` is its address, if the error gives it.
    Moved { slot: u16, to: Option<SocketAddr> },
    /// The key is at another node, for this query only.
    Ask { slot: u16, to: Option<SocketAddr> },
    /// The node cannot execute it for now; nothing has happened.
    Later,
    /// The node does not know its outcome: it may be sent again if it changes nothing.
    Unknown,
}

/// Returns the action that the answer asks for, if it is such an error.
pub(crate) fn hint(answer: &BackendAnswer) -> Option<RetryHint> {
    let error = match &answer.earlier_error {
        // When commands of a block were refused, their error precedes the one that says that it is not
        // executed.
        Some(error) if answer.bytes.first() == Some(&b'-') => error,
        _ => &answer.bytes,
    };
    if error.first() != Some(&b'-') {
        return None;
    }
    let text = std::str::from_utf8(error).ok()?;
    let mut words = text[1..].split_ascii_whitespace();
    let code = words.next()?;
    match code {
        "MOVED" | "ASK" => {
            let slot = words.next()?.parse().ok()?;
            let to = address(words.next()?);
            Some(match code {
                "MOVED" => RetryHint::Moved { slot, to },
                _ => RetryHint::Ask { slot, to },
            })
        }
        "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" => Some(RetryHint::Later),
        "UNKNOWN" if is_unknown(error) => Some(RetryHint::Unknown),
        _ => None,
    }
}

/// Returns `true` for an error, of a node or of the proxy, which says that the outcome of a command is not known.
pub(crate) fn is_unknown(reply: &[u8]) -> bool {
    let line = reply.strip_suffix(b"\r\n").unwrap_or_default();
    line.first() == Some(&b'-') && line.ends_with(UNKNOWN_OUTCOME.as_bytes())
}

/// Returns `true` for an error of a node of Kumiki that says so.
pub(crate) fn says_nothing_happened(error: &[u8]) -> bool {
    error.trim_ascii_end().ends_with(NOTHING.as_bytes())
}

/// Reads an address as nodes write it: an IPv6 address has no brackets.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(SocketAddr::new(host.parse().ok()?, port.parse().ok()?))
}

/// Returns `true` if a query that failed in this way may be sent again.
pub(crate) fn may_repeat(query: &BackendQuery, failure: &QueryFailure) -> bool {
    match failure {
        QueryFailure::Unsent(_) => true,
        QueryFailure::Lost(_) => query.safe,
    }
}

/// Returns how long to wait before a query is sent again; `None`: it has been retried for long enough.
pub(crate) fn pause(query: &BackendQuery, now: Duration, patience: Duration) -> Option<Duration> {
    if now >= query.since + patience {
        return None;
    }
    let doubled = PAUSE * 2_u32.pow(query.retries.min(16));
    Some(doubled.min(LONGEST_PAUSE))
}

/// The end of an error after which a command may simply be sent again.
pub(crate) const NOTHING: &str = "; nothing has happened, retry it";
/// The start of an error whose command may have taken effect or not.
pub(crate) const UNKNOWN: &str = "-UNKNOWN ";

/// The code of errors after which a command may be sent again. Clients of a single server know it and
/// retry by themselves; cluster clients use it with another meaning.
const UNAVAILABLE: &str = "LOADING";

/// Returns the error for a query that failed at a node. A query that changes nothing has no unknown
/// outcome.
pub(crate) fn told(failure: &QueryFailure, safe: bool, node: SocketAddr) -> Bytes {
    let text = match failure {
        QueryFailure::Lost(why) if safe => {
            format!("-{UNAVAILABLE} node {node} {why}{NOTHING}\r\n")
        }
        QueryFailure::Unsent(why) => {
            format!("-{UNAVAILABLE} node {node} {why}{NOTHING}\r\n")
        }
        QueryFailure::Lost(why) => format!(
            "{UNKNOWN}node {node} {why}: whether the command took effect is not known; read what \
             it writes to find out, {UNKNOWN_OUTCOME}\r\n"
        ),
    };
    text.into()
}

/// Returns the error for a query that a node has refused for so long that it is not retried. The node's
/// own error may be one of clusters (`MOVED`), which a client of a single server does not understand.
pub(crate) fn refused(error: &[u8], node: SocketAddr) -> Bytes {
    let error = String::from_utf8_lossy(error);
    let error = error.strip_prefix('-').unwrap_or(&error).trim_end();
    format!("-{UNAVAILABLE} node {node} answers '{error}'{NOTHING}\r\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::query::NodeError;

    fn answer(bytes: &'static str, earlier: Option<&'static str>) -> BackendAnswer {
        BackendAnswer {
            bytes: bytes.into(),
            earlier_error: earlier.map(Bytes::from),
        }
    }

    #[test]
    fn errors_say_where_to_go() {
        let to: Option<SocketAddr> = "127.0.0.1:7001".parse().ok();
        let moved = Some(RetryHint::Moved { slot: 3999, to });
        assert_eq!(hint(&answer("-MOVED 3999 127.0.0.1:7001\r\n", None)), moved);
        assert_eq!(
            hint(&answer("-ASK 1 127.0.0.1:7001\r\n", None)),
            Some(RetryHint::Ask { slot: 1, to })
        );
        assert_eq!(
            hint(&answer("-TRYAGAIN a\r\n", None)),
            Some(RetryHint::Later)
        );
        let block = answer(
            "-EXECABORT Transaction discarded\r\n",
            Some("-MOVED 3999 127.0.0.1:7001\r\n"),
        );
        assert_eq!(hint(&block), moved);
        // Some nodes give host names, or nothing, and IPv6 addresses without brackets.
        for (told, to) in [
            ("-MOVED 1 node.example:7001\r\n", None),
            ("-MOVED 1 :7001\r\n", None),
            ("-MOVED 1 ::1:7001\r\n", "[::1]:7001".parse().ok()),
        ] {
            let moved = Some(RetryHint::Moved { slot: 1, to });
            assert_eq!(hint(&answer(told, None)), moved, "{told}");
        }
        for other in [
            "-ERR x\r\n",
            "-MOVED\r\n",
            "-MOVED x y\r\n",
            "+MOVED 1 1\r\n",
            "$-1\r\n",
        ] {
            assert_eq!(hint(&answer(other, None)), None, "{other}");
        }
        // A block that was executed is not sent again because of the answer to one of its commands.
        assert_eq!(
            hint(&answer("*1\r\n+OK\r\n", Some("-MOVED 1 127.0.0.1:1\r\n"))),
            None
        );
    }

    #[test]
    fn who_is_told_what() {
        let node = SocketAddr::from(([127, 0, 0, 1], 7000));
        let why = NodeError::Closed("end of the connection".to_owned());
        for (failure, safe) in [
            (QueryFailure::Unsent(why.clone()), false),
            (QueryFailure::Lost(why.clone()), true),
        ] {
            let nothing = told(&failure, safe, node);
            assert!(nothing.starts_with(b"-LOADING node 127.0.0.1:7000 has closed"));
            assert!(nothing.ends_with(b"; nothing has happened, retry it\r\n"));
        }
        let lost = told(&QueryFailure::Lost(why), false, node);
        assert!(lost.starts_with(b"-UNKNOWN node 127.0.0.1:7000 has closed"));
        assert!(is_unknown(&lost));
        // A script may answer with any code, and a value may be any text.
        for other in [
            "-UNKNOWN job\r\n",
            "-LOADING before it is given\r\n",
            "+before it is given again\r\n",
            "$24\r\nbefore it is given again\r\n",
        ] {
            assert!(!is_unknown(other.as_bytes()), "{other}");
            assert_eq!(
                hint(&answer(other, None)).is_some(),
                other.starts_with("-LOADING")
            );
        }
        assert_eq!(
            refused(b"-MOVED 1 127.0.0.1:7001\r\n", node),
            "-LOADING node 127.0.0.1:7000 answers 'MOVED 1 127.0.0.1:7001'; nothing has happened, retry it\r\n"
        );
    }
}
