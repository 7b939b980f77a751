//! `XREAD` and `XREADGROUP`: reads of entries behind an id, of several streams in one transaction.

use base::Op;
use base::partition::OwnedReply;
use base::transaction::ValueCall;
use resp::{Args, Writer};

use super::arguments::{int, is};
use crate::command::CommandKind::{Compound, Store};
use crate::command::{CommandDefinition, CompoundStop, Ops, Planned, commands};
use crate::refusal::Refusal;
use crate::render::Render;
use crate::render::streams::{write_group_read_error, write_reads};
use crate::working_set::WorkingSet;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "stream";
    "xread" -4 "readonly blocking movablekeys" STREAMS("RO access") "stream blocking" ""
        "5.0.0" "O(N) with N being the number of elements being returned.",
        Store(xread), "The entries behind ids, of several streams.";
    "xreadgroup" -7 "write blocking movablekeys" GROUP_STREAMS("RO access") "stream blocking" ""
        "5.0.0" "O(M) for each stream, with M being the number of elements returned.",
        Compound(xreadgroup), "New entries for a consumer of a group, or those that are pending for it.";
};

/// The arguments of a read.
struct StreamReads<'a> {
    /// A group, and the consumer that reads.
    group: Option<[&'a [u8]; 2]>,
    /// The most entries of each stream, as text.
    count: &'a [u8],
    no_ack: bool,
    keys: Args<'a>,
    ids: Args<'a>,
}

impl<'a> StreamReads<'a> {
    fn parse(args: Args<'a>, in_group: bool) -> Result<StreamReads<'a>, Refusal> {
        const NO_GROUP: Refusal = Refusal::Text("ERR Missing GROUP option for XREADGROUP");
        let mut reads = StreamReads {
            group: None,
            count: b"0",
            no_ack: false,
            keys: args.from(args.len()),
            ids: args.from(args.len()),
        };
        let mut at = 1;
        while let Some(option) = args.get(at) {
            match (args.get(at + 1), args.get(at + 2)) {
                (Some(timeout), _) if is(option, "block") => {
                    check_timeout(timeout)?;
                    at += 1;
                }
                (Some(count), _) if is(option, "count") => {
                    int(count)?;
                    reads.count = count;
                    at += 1;
                }
                (Some(_), _) if is(option, "streams") => {
                    reads.take_streams(args.from(at + 1))?;
                    break;
                }
                (Some(group), Some(consumer)) if is(option, "group") => {
                    if !in_group {
                        return Err(only_of_groups("GROUP"));
                    }
                    reads.group = Some([group, consumer]);
                    at += 2;
                }
                _ if is(option, "noack") => {
                    if !in_group {
                        return Err(only_of_groups("NOACK"));
                    }
                    reads.no_ack = true;
                }
                _ => return Err(Refusal::Syntax),
            }
            at += 1;
        }
        if reads.keys.is_empty() {
            return Err(Refusal::Syntax);
        }
        match in_group && reads.group.is_none() {
            true => Err(NO_GROUP),
            false => Ok(reads),
        }
    }

    fn take_streams(&mut self, streams: Args<'a>) -> Result<(), Refusal> {
        let count = streams.len() / 2;
        if !streams.len().is_multiple_of(2) {
            return Err(Refusal::Text(
                "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
            ));
        }
        self.keys = streams;
        self.ids = streams.from(count);
        Ok(())
    }

    /// Returns the keys, and what is read of each.
    fn calls(&self, command: u16) -> impl Iterator<Item = (&'a [u8], ValueCall<'a>)> {
        self.keys.iter().zip(self.ids.iter()).map(move |(key, id)| {
            let group = self.group.into_iter().flatten();
            let no_ack = self.no_ack.then_some(&b"NOACK"[..]);
            let call = ValueCall {
                command,
                seed: 0,
                args: [id, self.count]
                    .into_iter()
                    .chain(group)
                    .chain(no_ack)
                    .collect(),
            };
            (key, call)
        })
    }
}

fn only_of_groups(option: &str) -> Refusal {
    let text = format!(
        "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
    );
    Refusal::Owned(text.into_bytes())
}

fn check_timeout(timeout: &[u8]) -> Result<(), Refusal> {
    const NOT_INTEGER: Refusal = Refusal::Text("ERR timeout is not an integer or out of range");
    match int(timeout).map_err(|_| NOT_INTEGER)? {
        ..0 => Err(Refusal::Text("ERR timeout is negative")),
        _ => Ok(()),
    }
}

fn xread<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let reads = StreamReads::parse(args, false)?;
    let calls = reads.calls(values::streams::XREAD);
    ops.extend(calls.map(|(key, call)| Op::Call { key, call }));
    Ok(Render::StreamReads(args))
}

/// Executes `XREADGROUP`. All its keys are checked first: what it delivers of one key reaches the client.
fn xreadgroup(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let reads = StreamReads::parse(args, true)?;
    let mut execute = |command: u16| {
        let calls = reads.calls(command);
        let replies = calls.map(|(key, call)| set.call(key, &call).map_err(|error| (key, error)));
        replies.collect::<Result<Vec<OwnedReply>, _>>()
    };
    let checked = execute(values::streams::CHECK_XREADGROUP);
    let replies = checked.and_then(|_| execute(values::streams::XREADGROUP));
    match replies {
        Ok(replies) => {
            let replies: Vec<_> = replies.iter().map(OwnedReply::as_reply).collect();
            write_reads(args, &replies, writer);
        }
        Err((key, error)) => {
            let [group, _] = reads.group.unwrap_or_default();
            write_group_read_error(error, [key, group], writer);
        }
    }
    Ok(())
}
