//! Replies that are computed of the values of keys.

use base::eviction::KeyAccess;
use base::{Reply, database};
use resp::Writer;
use store::bytes_of_key;
use values::set_algebra::{self, SetOperation};

use super::bits::{self, BitRange};
use super::common_subsequence::{self, SubsequenceOptions};
use super::context::{RenderContext, pairs, stored_value, stored_values};
use super::nested;
use super::sorted_sets::SortedSetComputation;
use crate::bit_field::BitField;
use crate::refusal::{Refusal, write_op_error};

/// The computation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Computation {
    /// The encoding of a value, in Redis's words.
    Encoding,
    /// What is known of the use of a key, or the reason why it is not.
    Use,
    /// 1 if there is a key.
    One,
    /// The bytes that a key of this length takes with its value, given the value and its deadline.
    MemoryUsage { key_len: usize },
    /// The last of so many keys, which begin at a position and continue at the first key of all.
    RandomKey { step: usize },
    /// A bit, by its number in the byte that is read.
    Bit { number: u8 },
    /// The number of ones; the arguments are checked only if there is a value.
    BitCount(Result<Option<BitRange>, Refusal>),
    /// The place of the first bit that is this one; the arguments are checked only if there is a value.
    BitPosition {
        bit: bool,
        range: Result<BitRange, Refusal>,
    },
    /// Numbers, each of the bytes that are read for it.
    BitFields(Vec<BitField>),
    /// The longest common subsequence of two values.
    Subsequence(SubsequenceOptions),
    /// The combination of sorted sets.
    SortedSets(SortedSetComputation),
    /// The combination of sets.
    Sets(SetOperation),
    /// The number of members that all sets have, and at most `limit`.
    IntersectionSize { limit: usize },
    /// The estimated number of different elements in values that are HyperLogLogs.
    Cardinality,
    /// The encoding of a HyperLogLog: 1 stands for dense registers.
    RegisterEncoding,
}

impl Computation {
    /// Writes the reply.
    pub(super) fn write(
        &self,
        replies: &[Reply<'_>],
        context: &RenderContext<'_>,
        writer: &mut Writer<'_>,
    ) {
        match self {
            Computation::Encoding => match replies.first().and_then(stored_value) {
                Some(stored) => writer.bulk(values::encoding(stored).as_bytes()),
                None => writer.null(),
            },
            Computation::Use => write_use(replies.first(), context.command, writer),
            Computation::One if is_absent(replies) => writer.null(),
            Computation::One => writer.int(1),
            Computation::MemoryUsage { key_len } => match value(replies.first()) {
                Some(value) => {
                    let expires = matches!(replies.get(1), Some(Reply::Deadline(Some(_))));
                    writer.int(bytes_of_key(*key_len, value.len(), expires) as i64);
                }
                None => writer.null(),
            },
            Computation::RandomKey { step } => write_random_key(*step, replies, context, writer),
            Computation::Bit { number } => {
                let byte = value(replies.first()).and_then(<[u8]>::first);
                writer.int(byte.map_or(0, |byte| i64::from(byte >> (7 - number) & 1)));
            }
            Computation::BitCount(range) => match (value(replies.first()), range) {
                (None, _) => writer.int(0),
                (Some(value), Ok(range)) => writer.int(bits::count(value, *range)),
                (Some(_), Err(refusal)) => refusal.write(context.command, writer),
            },
            Computation::BitPosition { bit, range } => match (value(replies.first()), range) {
                (None, _) => writer.int(if *bit { -1 } else { 0 }),
                (Some(value), Ok(range)) => writer.int(bits::position(value, *bit, *range)),
                (Some(_), Err(refusal)) => refusal.write(context.command, writer),
            },
            Computation::BitFields(fields) => {
                writer.array(fields.len());
                for (field, reply) in fields.iter().zip(replies) {
                    writer.int(field.read_from(value(Some(reply)).unwrap_or_default()));
                }
            }
            Computation::Subsequence(options) => {
                let values = [0, 1].map(|at| value(replies.get(at)).unwrap_or_default());
                common_subsequence::write(values, *options, writer);
            }
            Computation::SortedSets(computation) => {
                computation.write(replies, context.command, writer);
            }
            Computation::Sets(operation) => match operation.combine(&stored_values(replies)) {
                Ok(set) => nested::write(&set.reply(), writer),
                Err(error) => write_op_error(error, context.command, writer),
            },
            Computation::IntersectionSize { limit } => {
                match set_algebra::intersection_size(&stored_values(replies), *limit) {
                    Ok(size) => writer.int(size as i64),
                    Err(error) => write_op_error(error, context.command, writer),
                }
            }
            Computation::Cardinality => {
                match values::hyper_log_logs::count_all(replies.iter().map(stored_value)) {
                    Ok(count) => writer.int(count as i64),
                    Err(error) => write_op_error(error, context.command, writer),
                }
            }
            Computation::RegisterEncoding => writer.status(match replies.first() {
                Some(Reply::Int(1)) => "dense",
                _ => "sparse",
            }),
        }
    }
}

/// Writes the answer of an `Op::Access`.
fn write_use(reply: Option<&Reply<'_>>, command: &str, writer: &mut Writer<'_>) {
    const NO_LFU: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
        that when switching between policies at runtime LRU and LFU data will take some time to adjust.";
    const LFU: &str = "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
        switching between policies at runtime LRU and LFU data will take some time to adjust.";
    const UNTRACKED: &str = "ERR the idle time of keys is not tracked: select an LRU maxmemory policy, such as \
        allkeys-lru";
    let [under_lfu, untracked] = KeyAccess::NO_LRU;
    match reply {
        Some(Reply::Int(number)) if *number >= 0 => writer.int(*number),
        Some(Reply::Int(KeyAccess::NO_LFU)) if command == "object|freq" => writer.error(NO_LFU),
        Some(Reply::Int(number)) if *number == under_lfu => writer.error(LFU),
        Some(Reply::Int(number)) if *number == untracked => writer.error(UNTRACKED),
        _ => writer.null(),
    }
}

/// Returns the value in a reply, if there is one.
fn value<'a>(reply: Option<&'a Reply<'_>>) -> Option<&'a [u8]> {
    match reply {
        Some(Reply::Bytes(value)) => Some(value),
        Some(Reply::Value(_, value)) => Some(value),
        _ => None,
    }
}

fn is_absent(replies: &[Reply<'_>]) -> bool {
    matches!(replies.first(), None | Some(Reply::Nil))
}

/// Writes the last of `step` keys, of which the first reply has those from a position on, and the second one
/// the first keys of all. The next random key is taken from behind it.
fn write_random_key(
    step: usize,
    replies: &[Reply<'_>],
    context: &RenderContext<'_>,
    writer: &mut Writer<'_>,
) {
    let [on, again] = [0, 1].map(|at| replies.get(at).map_or(&[][..], pairs));
    let (keys, at) = match (step - 1).checked_sub(on.len()) {
        None => (on, step - 1),
        Some(_) if again.is_empty() => return writer.null(),
        Some(rest) => (again, rest % again.len()),
    };
    let next = keys.get(at + 1).map_or(&[][..], |(key, _)| key);
    context.cursors.set_sample(database::client_key(next));
    writer.bulk(database::client_key(keys[at].0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursors::Cursors;
    use resp::Protocol;

    #[test]
    fn random_keys_go_round() {
        let cursors = Cursors::new(1, 1);
        let taken = |on: &[&str], again: &[&str], step| {
            let replies = [on, again].map(|keys| {
                let pairs = keys.iter().map(|key| (key.as_bytes(), &b""[..]));
                Reply::Pairs(pairs.collect())
            });
            let context = RenderContext {
                command: "randomkey",
                cursors: &cursors,
                time_ms: 0,
            };
            let mut out = Vec::new();
            let mut writer = Writer::new(&mut out, Protocol::Resp2);
            Computation::RandomKey { step }.write(&replies, &context, &mut writer);
            let next = String::from_utf8(cursors.sample().to_vec()).unwrap();
            (String::from_utf8(out).unwrap(), next)
        };
        let key = |key: &str, next: &str| (format!("$1\r\n{key}\r\n"), next.to_owned());
        assert_eq!(taken(&["a", "b", "c"], &["a", "b", "c"], 2), key("b", "c"));
        assert_eq!(taken(&["c"], &["a", "b"], 2), key("a", "b"));
        assert_eq!(taken(&["c"], &["a", "b", "c"], 5), key("a", "b"));
        assert_eq!(taken(&["a"], &["a"], 1), key("a", ""));
        assert_eq!(taken(&[], &[], 1).0, "$-1\r\n");
    }
}
