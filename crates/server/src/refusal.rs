//! The reasons why commands are refused, in Redis's words.

use base::model::abort::UNKNOWN_OUTCOME;
use base::transaction::CallError;
use base::{Abort, OpError};
use resp::{Args, Writer};

/// Why a command's arguments are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    Syntax,
    NotInteger,
    NotFloat,
    BadExpiry,
    Arity,
    TooLong,
    Failed(OpError),
    Text(&'static str),
    Owned(Vec<u8>),
}

impl Refusal {
    /// Creates a refusal whose text ends with the refused argument, in quotes.
    pub(crate) fn with_argument(text: &str, arg: &[u8]) -> Refusal {
        Refusal::Owned([text.as_bytes(), b" '", shown(arg), b"'"].concat())
    }

    /// Writes the error to the client of `command`, the command's name.
    pub(crate) fn write(&self, command: &str, writer: &mut Writer<'_>) {
        match self {
            Refusal::Syntax => writer.error("ERR syntax error"),
            Refusal::NotInteger => writer.error("ERR value is not an integer or out of range"),
            Refusal::NotFloat => writer.error("ERR value is not a valid float"),
            Refusal::BadExpiry => write_bad_expiry(command, writer),
            Refusal::Arity => write_arity(command, writer),
            Refusal::TooLong => write_op_error(OpError::TooLong, command, writer),
            Refusal::Failed(error) => write_op_error(*error, command, writer),
            Refusal::Text(text) => writer.error(text),
            Refusal::Owned(text) => writer.error_bytes(text),
        }
    }
}

/// For a command of a client that must authenticate first.
pub(crate) const NO_AUTH: &str = "NOAUTH Authentication required.";
/// For an attempt to authenticate that failed.
pub(crate) const WRONG_PASSWORD: &str =
    "WRONGPASS invalid username-password pair or user is disabled.";
/// For a command that needs memory when there is none left.
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
/// For a client that is one too many.
pub(crate) const MAX_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";
/// For replies whose epoch is not durable, and perhaps never will be: the client must not rely on
/// them.
pub(crate) const OUTCOME_UNKNOWN: &str = "MISCONF Errors writing to the log: the outcome of this \
    command is unknown; see INFO persistence and the server's log";
/// For replies whose outcome will never be known, because leadership was lost.
pub(crate) const LEADERSHIP_LOST: &[u8] = b"-UNKNOWN the partition's leader changed before this \
    was known to be kept; a read may be given again, and what a write was to write must be read \
    before it is given again\r\n";
/// For a read of data that is not durable, and perhaps never will be.
pub(crate) const NEVER_DURABLE: &str = "MISCONF Errors writing to the log: what this command reads \
    is not written to it; see INFO persistence and the server's log";

/// Writes the error for a wrong number of arguments.
pub(crate) fn write_arity(command: &str, writer: &mut Writer<'_>) {
    writer.error(&format!(
        "ERR wrong number of arguments for '{command}' command"
    ));
}

fn write_bad_expiry(command: &str, writer: &mut Writer<'_>) {
    writer.error(&format!("ERR invalid expire time in '{command}' command"));
}

/// Writes the error of an operation that failed by itself.
pub(crate) fn write_op_error(error: OpError, command: &str, writer: &mut Writer<'_>) {
    writer.error(match error {
        OpError::Call(CallError::Arity) => return write_arity(command, writer),
        OpError::Call(error) => return writer.error(&format!("{} {error}", error.code())),
        OpError::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
        OpError::NotInteger => "ERR value is not an integer or out of range",
        OpError::Overflow => "ERR increment or decrement would overflow",
        OpError::NotNumber => "ERR value is not a valid float",
        OpError::NotFinite => "ERR increment would produce NaN or Infinity",
        OpError::TooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        OpError::BadExpiry => return write_bad_expiry(command, writer),
        OpError::Reserved => "ERR no key may begin with sixteen bytes of 0xff",
    });
}

/// Writes the error of a transaction that did not take effect.
pub(crate) fn write_abort(abort: &Abort, writer: &mut Writer<'_>) {
    match abort {
        Abort::ReadOnly { reason } => {
            writer.error(&format!("MISCONF Errors writing to the log: {reason}"))
        }
        Abort::Conflict { .. } | Abort::Held { .. } | Abort::Overtaken { .. } | Abort::Refused => {
            writer.error(&format!("TRYAGAIN {abort}"))
        }
        Abort::Stale { .. } => writer.error(&format!("FENCED {abort}")),
        Abort::Unavailable { .. } | Abort::Elsewhere { .. } => {
            writer.error(&format!("CLUSTERDOWN {abort}"))
        }
        Abort::OutOfMemory => writer.error(OUT_OF_MEMORY),
        Abort::Unacknowledged { .. } => writer.error(&format!("COMMITTED {abort}")),
        Abort::Unknown { .. } => writer.error(&format!(
            "UNKNOWN {abort}; read what it writes to find out, {UNKNOWN_OUTCOME}"
        )),
        other => writer.error(&format!("ERR {other}")),
    }
}

/// Writes the error for an unknown command, or an unknown second word.
pub(crate) fn write_unknown(container: Option<&str>, args: Args<'_>, writer: &mut Writer<'_>) {
    let mut text = Vec::with_capacity(192);
    if let Some(container) = container {
        text.extend_from_slice(b"ERR unknown subcommand '");
        text.extend_from_slice(cut(args.at(1), 128));
        text.extend_from_slice(b"'. Try ");
        text.extend_from_slice(container.to_ascii_uppercase().as_bytes());
        text.extend_from_slice(b" HELP.");
        return writer.error_bytes(&text);
    }
    text.extend_from_slice(b"ERR unknown command '");
    text.extend_from_slice(cut(args.at(0), 128));
    text.extend_from_slice(b"', with args beginning with: ");
    let mut shown = 0;
    for arg in args.from(1).iter() {
        if shown >= 128 {
            break;
        }
        let arg = cut(arg, 128 - shown);
        text.push(b'\'');
        text.extend_from_slice(arg);
        text.extend_from_slice(b"' ");
        shown += arg.len() + 3;
    }
    writer.error_bytes(&text);
}

/// Writes the error for a second word with arguments that do not fit.
pub(crate) fn write_subcommand_syntax(container: &str, args: Args<'_>, writer: &mut Writer<'_>) {
    let text = [
        b"ERR unknown subcommand or wrong number of arguments for '",
        cut(args.at(1), 128),
        b"'. Try ",
        container.as_bytes(),
        b" HELP.",
    ];
    writer.error_bytes(&text.concat());
}

/// Returns the code of an error, its first word. These are the bytes of the error, which begin with a dash.
pub(crate) fn error_code(error: &[u8]) -> &str {
    let word = error.get(1..).unwrap_or_default();
    let is_of_it = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let end = word.iter().position(|byte| !is_of_it(byte));
    std::str::from_utf8(&word[..end.unwrap_or(word.len())]).unwrap_or_default()
}

/// Writes the answer of a command, alone in its transaction, that did not take effect. Returns `true`
/// if the answer shows no data of the store.
pub(crate) fn write_command_abort(abort: &Abort, writer: &mut Writer<'_>) -> bool {
    if let Abort::Precondition { .. } = abort {
        // Only commands that are all or nothing have preconditions.
        writer.int(0);
        return false;
    }
    write_abort(abort, writer);
    true
}

/// Returns `true` if a line of HTTP was taken for a command. A web page can make its reader's
/// browser send such lines to a server behind a firewall, with commands in the body.
pub(crate) fn is_web_request(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Returns the part of an argument that an error shows: up to the first zero byte.
pub(crate) fn shown(arg: &[u8]) -> &[u8] {
    cut(arg, arg.len())
}

/// Returns at most `most` bytes, up to the first zero byte.
fn cut(bytes: &[u8], most: usize) -> &[u8] {
    let bytes = &bytes[..bytes.len().min(most)];
    bytes
        .iter()
        .position(|&byte| byte == 0)
        .map_or(bytes, |zero| &bytes[..zero])
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::transaction::Holder;
    use base::{Timestamp, TransactionId};
    use resp::Protocol;

    fn written(reason: Abort) -> String {
        let mut out = Vec::new();
        write_abort(&reason, &mut Writer::new(&mut out, Protocol::Resp2));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_stale_token_has_a_code_of_its_own() {
        let text = written(Abort::Stale {
            lock: b"key\r\n".to_vec(),
            token: 5,
            highest: 8,
        });
        let expected = "-FENCED the lock 'key\\r\\n' has been granted with a newer token (8 > 5); \
            acquire it again\r\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_may_be_tried_again_begins_with_words_that_clients_know() {
        let timestamp = Timestamp::at_ms(1);
        let id = TransactionId {
            timestamp,
            unique: 1,
        };
        let by = Holder { id, age: timestamp };
        let what = "node 2 cannot be reached".to_owned();
        for (reason, word) in [
            (Abort::Held { by }, "-TRYAGAIN "),
            (Abort::Overtaken { newest: timestamp }, "-TRYAGAIN "),
            (Abort::Refused, "-TRYAGAIN "),
            (Abort::Conflict { attempts: 3 }, "-TRYAGAIN "),
            (Abort::Unavailable { what: what.clone() }, "-CLUSTERDOWN "),
        ] {
            assert!(written(reason.clone()).starts_with(word), "{reason:?}");
        }
        // No client may repeat this automatically.
        let unknown = written(Abort::Unknown { what });
        assert!(unknown.starts_with("-UNKNOWN node 2"), "{unknown}");
        let lost = std::str::from_utf8(LEADERSHIP_LOST).expect("text");
        for text in [&*unknown, lost] {
            assert!(text.trim_end().ends_with(UNKNOWN_OUTCOME), "{text}");
        }
        assert!(unknown.contains("not known") && unknown.ends_with("\r\n"));
        assert_eq!(unknown.matches("\r\n").count(), 1);
        let partitions = vec![1, 3];
        let committed = written(Abort::Unacknowledged { partitions });
        assert!(committed.starts_with("-COMMITTED ") && !committed.contains("not known"));
    }

    #[test]
    fn the_code_of_an_error_is_its_first_word() {
        assert_eq!(error_code(b"-ERR unknown\r\n"), "ERR");
        assert_eq!(error_code(b"-OOM\r\n"), "OOM");
        assert_eq!(error_code(b"-MY_CODE2 text\r\n"), "MY_CODE2");
        assert_eq!(error_code(b"-"), "");
    }
}
