//! `XREAD` and `XREADGROUP`: reads of entries behind an id, of several streams in one transaction.

use std::ops::Range;
use std::time::Duration;

use base::partition::OwnedReply;
use base::transaction::{Kind, ValueCall};
use base::{Op, Reply};
use resp::{Args, Writer};

use super::arguments::{int, is, wait_ms};
use crate::blocked_clients::AwaitedKind;
use crate::command::CommandKind::Blocking;
use crate::command::{
    BlockingCommand, CommandDefinition, CompoundStop, KeyTurns, Ops, Planned, WaitFinding,
    WaitTerms, commands,
};
use crate::refusal::Refusal;
use crate::render::Render;
use crate::render::streams::{write_group_read_error, write_group_wait_error, write_reads};
use crate::transaction_keys::TransactionKeys;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "stream";
    "xread" -4 "readonly blocking movablekeys" STREAMS("RO access") "stream blocking" ""
        "5.0.0" "O(N) with N being the number of elements being returned.",
        Blocking(XREAD), "The entries behind ids, of several streams; with BLOCK waits for some.";
    "xreadgroup" -7 "write blocking movablekeys" GROUP_STREAMS("RO access") "stream blocking" ""
        "5.0.0" "O(M) for each stream, with M being the number of elements returned.",
        Blocking(XREADGROUP), "New entries for a consumer of a group, or those that are pending for it; with BLOCK waits for new ones.";
};

const XREAD: BlockingCommand = BlockingCommand {
    plan: Some(xread),
    terms: |args| Ok(StreamReads::parse(args, false)?.terms()),
    execute: read_streams,
};
const XREADGROUP: BlockingCommand = BlockingCommand {
    plan: None,
    terms: |args| Ok(StreamReads::parse(args, true)?.terms()),
    execute: read_groups,
};

/// The arguments of a read.
struct StreamReads<'a> {
    /// A group, and the consumer that reads.
    group: Option<[&'a [u8]; 2]>,
    /// The most entries of each stream, as text.
    count: &'a [u8],
    no_ack: bool,
    /// For how long it waits; the inner `None`: for ever.
    wait: Option<Option<Duration>>,
    args: Args<'a>,
    /// Where the keys are, which the ids follow.
    keys: Range<usize>,
}

impl<'a> StreamReads<'a> {
    fn parse(args: Args<'a>, in_group: bool) -> Result<StreamReads<'a>, Refusal> {
        const NO_GROUP: Refusal = Refusal::Text("ERR Missing GROUP option for XREADGROUP");
        let mut reads = StreamReads {
            group: None,
            count: b"0",
            no_ack: false,
            wait: None,
            args,
            keys: 0..0,
        };
        let mut at = 1;
        while let Some(option) = args.get(at) {
            match (args.get(at + 1), args.get(at + 2)) {
                (Some(timeout), _) if is(option, "block") => {
                    reads.wait = Some(wait_ms(timeout)?);
                    at += 1;
                }
                (Some(count), _) if is(option, "count") => {
                    int(count)?;
                    reads.count = count;
                    at += 1;
                }
                (Some(_), _) if is(option, "streams") => {
                    reads.take_streams(at + 1)?;
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

    /// Takes the keys from this place on, and the ids behind them.
    fn take_streams(&mut self, first: usize) -> Result<(), Refusal> {
        let count = self.args.len() - first;
        if !count.is_multiple_of(2) {
            return Err(Refusal::Text(
                "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
            ));
        }
        self.keys = first..first + count / 2;
        Ok(())
    }

    /// Returns how it waits; `None`: it does not.
    fn terms(&self) -> Option<WaitTerms> {
        let timeout = self.wait?;
        let mut ids = self.args.from(self.keys.end).iter();
        let awaits = match self.group {
            None => AwaitedKind::Entries,
            // What is pending for the consumer is answered, also if that is nothing.
            Some(_) if ids.any(|id| id != b">") => return None,
            Some([group, _]) => AwaitedKind::GroupEntries(group.into()),
        };
        Some(WaitTerms {
            awaits,
            timeout,
            keys: self.keys.clone(),
        })
    }

    /// Returns the keys, and what is read of each.
    fn calls(&self, command: u16) -> impl Iterator<Item = (&'a [u8], ValueCall<'a>)> {
        let (keys, ids) = (
            self.args.range(self.keys.clone()),
            self.args.from(self.keys.end),
        );
        keys.iter().zip(ids.iter()).map(move |(key, id)| {
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

    /// Returns `true` for each key at which it looks: when it has waited, at each once.
    fn looks(&self, turns: &KeyTurns) -> Vec<bool> {
        let keys: Vec<&[u8]> = self.args.range(self.keys.clone()).iter().collect();
        let is_new = |at: usize| turns.is_first || !keys[..at].contains(&keys[at]);
        let looks = keys.iter().enumerate();
        looks
            .map(|(at, key)| turns.has(key) && is_new(at))
            .collect()
    }
}

fn only_of_groups(option: &str) -> Refusal {
    let text = format!(
        "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
    );
    Refusal::Owned(text.into_bytes())
}

fn xread<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let reads = StreamReads::parse(args, false)?;
    let calls = reads.calls(values::streams::XREAD);
    ops.extend(calls.map(|(key, call)| Op::Call { key, call }));
    Ok(Render::StreamReads(args))
}

/// Executes an `XREAD` that waits. The id `$` stands for the last one when it begins.
fn read_streams(
    args: Args<'_>,
    turns: &KeyTurns,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<WaitFinding, CompoundStop> {
    let reads = StreamReads::parse(args, false)?;
    let (looks, mut last_ids, mut replies) = (reads.looks(turns), Vec::new(), Vec::new());
    for (at, (key, call)) in reads.calls(values::streams::XREAD).enumerate() {
        let looks = looks[at] && (turns.is_first || keys.kind(key)? == Some(Kind::Stream));
        replies.push(match looks {
            true => keys.call(key, call)?,
            false => OwnedReply::Nil,
        });
        let id_at = reads.keys.end + at;
        if args.at(id_at) == b"$" {
            last_ids.push((id_at, last_id(key, keys)?));
        }
    }
    Ok(match answer(args, &replies, writer) {
        WaitFinding::Nothing => WaitFinding::NothingYet(last_ids),
        found => found,
    })
}

/// Returns the last id of a key's stream, as text.
fn last_id(key: &[u8], keys: &mut TransactionKeys<'_, '_>) -> Result<Vec<u8>, CompoundStop> {
    let call = ValueCall {
        command: values::streams::LAST_ID,
        seed: 0,
        args: [].into(),
    };
    match keys.call(key, call)? {
        OwnedReply::Bytes(id) => Ok(id),
        _ => unreachable!("an id is a string"),
    }
}

/// Executes `XREADGROUP`. All its keys are checked first: what it delivers of one key reaches the client.
fn read_groups(
    args: Args<'_>,
    turns: &KeyTurns,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<WaitFinding, CompoundStop> {
    let reads = StreamReads::parse(args, true)?;
    let looks = reads.looks(turns);
    for (at, (key, call)) in reads.calls(values::streams::CHECK_XREADGROUP).enumerate() {
        if !looks[at] && !turns.is_first {
            continue;
        }
        let checked = keys.call(key, call);
        if let Err(CompoundStop::Refused(Refusal::Failed(error))) = checked {
            let is_stream = keys.kind(key)? == Some(Kind::Stream);
            let [group, _] = reads.group.unwrap_or_default();
            match turns.is_first {
                true => write_group_read_error(error, [key, group], writer),
                false => write_group_wait_error(error, is_stream, writer),
            }
            return Ok(WaitFinding::Found);
        }
        checked?;
    }
    let calls = reads.calls(values::streams::XREADGROUP).zip(&looks);
    let replies = calls.map(|((key, call), looks)| match looks {
        true => keys.call(key, call),
        false => Ok(OwnedReply::Nil),
    });
    let replies: Vec<OwnedReply> = replies.collect::<Result<_, _>>()?;
    Ok(answer(args, &replies, writer))
}

/// Writes what was read of each key.
fn answer(args: Args<'_>, replies: &[OwnedReply], writer: &mut Writer<'_>) -> WaitFinding {
    let replies: Vec<_> = replies.iter().map(OwnedReply::as_reply).collect();
    write_reads(args, &replies, writer);
    match replies.iter().all(|reply| *reply == Reply::Nil) {
        true => WaitFinding::Nothing,
        false => WaitFinding::Found,
    }
}
