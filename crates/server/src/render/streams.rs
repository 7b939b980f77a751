//! Replies of commands on streams.

use base::transaction::CallError;
use base::{OpError, Reply, database};
use resp::{Args, Protocol, Writer};

use super::nested;
use crate::command::KeyPositions;
use crate::refusal::{shown, write_op_error, write_subcommand_syntax};

/// Writes the error of a command with these arguments, which it may name.
pub(super) fn write_error(error: OpError, command: &str, args: Args<'_>, writer: &mut Writer<'_>) {
    let OpError::Call(error) = error else {
        return write_op_error(error, command, writer);
    };
    match error {
        CallError::NoGroup => writer.error_bytes(
            &[
                b"NOGROUP No such consumer group '",
                shown(args.at(3)),
                b"' for key name '",
                shown(args.at(2)),
                b"'",
            ]
            .concat(),
        ),
        CallError::NoKeyOrGroup => write_no_group([args.at(1), args.at(2)], b"", writer),
        CallError::SubcommandSyntax => {
            let container = command.split('|').next().unwrap_or_default();
            write_subcommand_syntax(&container.to_ascii_uppercase(), args, writer);
        }
        CallError::UnknownClaimOption => {
            let options: Vec<&[u8]> = args.from(5).iter().collect();
            let option = values::streams::unknown_claim_option(&options).unwrap_or_default();
            let text = [b"ERR Unrecognized XCLAIM option '", shown(option), b"'"];
            writer.error_bytes(&text.concat());
        }
        error => write_op_error(OpError::Call(error), command, writer),
    }
}

/// Writes the error for a key without a group, with more text behind it.
fn write_no_group([key, group]: [&[u8]; 2], behind: &[u8], writer: &mut Writer<'_>) {
    let key = shown(database::client_key(key));
    writer.error_bytes(
        &[
            b"NOGROUP No such key '",
            key,
            b"' or consumer group '",
            shown(group),
            b"'",
            behind,
        ]
        .concat(),
    );
}

/// Writes the error of the part of `XREADGROUP` on a key.
pub(crate) fn write_group_read_error(
    error: OpError,
    key_and_group: [&[u8]; 2],
    writer: &mut Writer<'_>,
) {
    match error {
        OpError::Call(CallError::NoKeyOrGroup) => {
            write_no_group(key_and_group, b" in XREADGROUP with GROUP option", writer);
        }
        error => write_op_error(error, "xreadgroup", writer),
    }
}

/// Writes the error of `XREADGROUP` on a key for which it has waited; `is_stream`: the key still has a stream.
pub(crate) fn write_group_wait_error(error: OpError, is_stream: bool, writer: &mut Writer<'_>) {
    match error {
        _ if !is_stream => writer.error("UNBLOCKED the stream key no longer exists"),
        OpError::Call(CallError::NoKeyOrGroup) => {
            writer.error("NOGROUP the consumer group this client was blocked on no longer exists")
        }
        error => write_op_error(error, "xreadgroup", writer),
    }
}

/// Writes what was read of each of the keys that follow `STREAMS`; those without entries are left out.
pub(crate) fn write_reads(args: Args<'_>, replies: &[Reply<'_>], writer: &mut Writer<'_>) {
    let keys = KeyPositions::STREAMS.indexes(args).map(|at| args.at(at));
    let nested = keys.zip(replies).filter_map(|(key, reply)| match reply {
        Reply::Nested(reply) => Some((database::client_key(key), reply)),
        _ => None,
    });
    let nested: Vec<_> = nested.collect();
    let is_map = writer.protocol() == Protocol::Resp3;
    match nested.len() {
        0 => return writer.null_array(),
        keys if is_map => writer.map(keys),
        keys => writer.array(keys),
    }
    for (key, reply) in nested {
        if !is_map {
            writer.array(2);
        }
        writer.bulk(key);
        nested::write(reply, writer);
    }
}
