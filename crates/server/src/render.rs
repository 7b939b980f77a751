//! How the replies of a command's operations become RESP.

mod bits;
mod common_subsequence;
mod computation;
mod context;
mod nested;
mod sorted_sets;
pub(crate) mod streams;

use base::transaction::Kind;
use base::{OpError, Reply, database};
use resp::{Args, Writer};

use crate::limits::SLICE_STEPS;
use crate::refusal::{Refusal, write_op_error};
use base::glob;
pub(crate) use bits::BitRange;
pub(crate) use common_subsequence::SubsequenceOptions;
pub(crate) use computation::Computation;
pub(crate) use context::RenderContext;
use context::{Pairs, pairs};
pub(crate) use nested::write as write_nested;
pub(crate) use sorted_sets::{CombinedMembers, SortedSetComputation};

/// How replies become RESP.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Render<'a> {
    /// The one reply unchanged.
    Plain,
    /// `OK` for any number of operations.
    Ok,
    /// 1 for `Ok`, 0 for `Nil`.
    OneIfDone,
    /// The sum of the numbers.
    Sum,
    /// A list of the replies.
    List,
    /// 1: all preconditions were met.
    AllDone,
    /// The name of a type.
    Kind,
    /// When a key expires.
    Deadline(Deadline),
    /// `Nil` and errors unchanged, a refusal in place of a value.
    RefusedIfThere(Refusal),
    /// The one reply of a command on a stream with these arguments, which some errors name.
    OfStream(Args<'a>),
    /// What was read of each of the keys that follow `STREAMS` among these arguments.
    StreamReads(Args<'a>),
    /// A reply that is computed of values. In a box, so that the others are moved as few bytes.
    Computed(Box<Computation>),
    /// The keys that match.
    Keys { pattern: &'a [u8] },
    /// A page of a scan: one key more than asked for, where the next page begins.
    ScanPage(ScanPage<'a>),
}

/// The form in which a deadline is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline {
    /// `true`: the remaining time; `false`: a date.
    pub(crate) left: bool,
    /// `true`: in seconds; `false`: in milliseconds.
    pub(crate) seconds: bool,
}

/// The contents of a page of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanPage<'a> {
    pub(crate) pattern: Option<&'a [u8]>,
    /// Keys to visit.
    pub(crate) count: usize,
    /// The name of the type of the keys that are shown.
    pub(crate) kind: Option<&'a [u8]>,
}

impl Render<'_> {
    /// Returns the reply that is computed in this way.
    pub(crate) fn computed(computation: Computation) -> Render<'static> {
        Render::Computed(Box::new(computation))
    }

    /// Writes the replies.
    #[inline]
    pub(crate) fn write(
        &self,
        replies: &[Reply<'_>],
        context: &RenderContext<'_>,
        writer: &mut Writer<'_>,
    ) {
        if let (Render::Plain, [reply]) = (self, replies) {
            return plain(reply, context, writer);
        }
        if let (Render::OfStream(args), [Reply::Error(error)]) = (self, replies) {
            return streams::write_error(*error, context.command, *args, writer);
        }
        if let Some(error) = replies.iter().find_map(error_of) {
            return write_op_error(error, context.command, writer);
        }
        match self {
            Render::Plain | Render::OfStream(_) => replies
                .iter()
                .for_each(|reply| plain(reply, context, writer)),
            Render::Ok => writer.ok(),
            Render::OneIfDone => writer.int(i64::from(replies.first() == Some(&Reply::Ok))),
            Render::Sum => writer.int(replies.iter().map(int_of).sum()),
            Render::List => {
                writer.array(replies.len());
                replies
                    .iter()
                    .for_each(|reply| plain(reply, context, writer));
            }
            Render::AllDone => writer.int(1),
            Render::Kind => writer.status(kind_name_of(replies.first())),
            Render::Deadline(deadline) => {
                writer.int(deadline.shown(replies.first(), context.time_ms))
            }
            Render::RefusedIfThere(_) if replies == [Reply::Nil] => writer.null(),
            Render::RefusedIfThere(refusal) => refusal.write(context.command, writer),
            Render::StreamReads(args) => streams::write_reads(*args, replies, writer),
            Render::Computed(computation) => computation.write(replies, context, writer),
            Render::Keys { pattern } => write_keys(pairs_of(replies), pattern, writer),
            Render::ScanPage(page) => page.write(pairs_of(replies), context, writer),
        }
    }
}

#[inline]
fn plain(reply: &Reply<'_>, context: &RenderContext<'_>, writer: &mut Writer<'_>) {
    match reply {
        Reply::Ok => writer.ok(),
        Reply::Nil => writer.null(),
        Reply::Int(number) => writer.int(*number),
        Reply::Bytes(bytes) => writer.bulk(bytes),
        Reply::Nested(reply) => nested::write(reply, writer),
        Reply::Error(error) => write_op_error(*error, context.command, writer),
        other => {
            debug_assert!(
                false,
                "{} is not rendered by its own kind: {other:?}",
                context.command
            );
            writer.error("ERR internal error: a reply of an unexpected kind");
        }
    }
}

fn error_of(reply: &Reply<'_>) -> Option<OpError> {
    if let Reply::Error(error) = reply {
        Some(*error)
    } else {
        None
    }
}

fn int_of(reply: &Reply<'_>) -> i64 {
    if let Reply::Int(number) = reply {
        *number
    } else {
        0
    }
}

fn pairs_of<'a, 'e>(replies: &'a [Reply<'e>]) -> Pairs<'a, 'e> {
    replies.first().map_or(&[], pairs)
}

fn kind_name_of(reply: Option<&Reply<'_>>) -> &'static str {
    match reply {
        Some(Reply::Kind(kind)) => kind_name(*kind),
        _ => "none",
    }
}

/// Returns a type's name in the form of `TYPE`.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "string",
        Kind::Hash => "hash",
        Kind::List => "list",
        Kind::Set => "set",
        Kind::SortedSet => "zset",
        Kind::Stream => "stream",
    }
}

impl Deadline {
    /// Returns the deadline; -2: no key; -1: it does not expire.
    fn shown(self, reply: Option<&Reply<'_>>, time_ms: u64) -> i64 {
        let at_ms = match reply {
            Some(Reply::Deadline(Some(at_ms))) => *at_ms,
            Some(Reply::Deadline(None)) => return -1,
            _ => return -2,
        };
        let ms = if self.left {
            at_ms.saturating_sub(time_ms)
        } else {
            at_ms
        };
        let shown = if self.seconds {
            ms.saturating_add(500) / 1000
        } else {
            ms
        };
        i64::try_from(shown).unwrap_or(i64::MAX)
    }
}

fn write_keys(pairs: Pairs<'_, '_>, pattern: &[u8], writer: &mut Writer<'_>) {
    let matching: Vec<&[u8]> = pairs
        .iter()
        .map(|(key, _)| database::client_key(key))
        .filter(|key| glob::matches(pattern, key, false))
        .collect();
    writer.array(matching.len());
    matching.into_iter().for_each(|key| writer.bulk(key));
}

impl ScanPage<'_> {
    /// Returns `true` if keys of a type, which has this number, are shown.
    fn shows(&self, kind: &[u8]) -> bool {
        let has_name = |name: &[u8]| {
            let kind = kind.first().copied().and_then(Kind::from_u8);
            kind.is_some_and(|kind| kind_name(kind).as_bytes().eq_ignore_ascii_case(name))
        };
        self.kind.is_none_or(has_name)
    }

    fn write(&self, pairs: Pairs<'_, '_>, context: &RenderContext<'_>, writer: &mut Writer<'_>) {
        // A page ends early when comparing its keys with the pattern takes long.
        let (mut shown, mut seen, mut steps) = (Vec::new(), 0, SLICE_STEPS);
        let keys = pairs
            .iter()
            .map(|(key, kind)| (database::client_key(key), *kind));
        for (key, kind) in keys.take(self.count) {
            if steps == 0 {
                break;
            }
            let matches = |pattern: &[u8]| glob::matches_counted(pattern, key, &mut steps);
            if self.shows(kind) && self.pattern.is_none_or(matches) {
                shown.push(key);
            }
            seen += 1;
        }
        let next = match pairs.get(seen) {
            Some((next, _)) => context.cursors.remember(database::client_key(next)),
            None => 0,
        };
        writer.array(2);
        writer.bulk(next.to_string().as_bytes());
        writer.array(shown.len());
        shown.into_iter().for_each(|key| writer.bulk(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursors::Cursors;
    use resp::Protocol;

    fn rendered(render: Render<'_>, replies: &[Reply<'_>]) -> String {
        let cursors = Cursors::new(10, 1000);
        let context = RenderContext {
            command: "expire",
            cursors: &cursors,
            time_ms: 10_000,
        };
        let mut out = Vec::new();
        render.write(
            replies,
            &context,
            &mut Writer::new(&mut out, Protocol::Resp2),
        );
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn replies_become_resp() {
        use Render as R;
        assert_eq!(rendered(R::Plain, &[Reply::Bytes(b"ab")]), "$2\r\nab\r\n");
        assert_eq!(rendered(R::Plain, &[Reply::Nil]), "$-1\r\n");
        assert_eq!(rendered(R::Ok, &[Reply::Ok, Reply::Ok]), "+OK\r\n");
        assert_eq!(rendered(R::OneIfDone, &[Reply::Nil]), ":0\r\n");
        assert_eq!(
            rendered(R::Sum, &[Reply::Int(1), Reply::Int(0), Reply::Int(1)]),
            ":2\r\n"
        );
        let list = [Reply::Nil, Reply::Bytes(b"x")];
        assert_eq!(rendered(R::List, &list), "*2\r\n$-1\r\n$1\r\nx\r\n");
        assert_eq!(rendered(R::Kind, &[Reply::Nil]), "+none\r\n");
        let error = rendered(R::Plain, &[Reply::Error(OpError::BadExpiry)]);
        assert_eq!(error, "-ERR invalid expire time in 'expire' command\r\n");
    }

    #[test]
    fn deadlines_are_shown_in_four_ways() {
        let shown =
            |left, seconds, reply| rendered(Render::Deadline(Deadline { left, seconds }), &[reply]);
        let at = || Reply::Deadline(Some(12_600));
        assert_eq!(shown(true, true, at()), ":3\r\n");
        assert_eq!(shown(true, false, at()), ":2600\r\n");
        assert_eq!(shown(false, true, at()), ":13\r\n");
        assert_eq!(shown(false, false, at()), ":12600\r\n");
        assert_eq!(shown(true, true, Reply::Deadline(None)), ":-1\r\n");
        assert_eq!(shown(true, true, Reply::Nil), ":-2\r\n");
    }

    #[test]
    fn a_page_ends_early_when_its_pattern_takes_many_steps() {
        let key = "a".repeat(8 << 10);
        let pattern = "*".to_owned() + &"a".repeat(4 << 10) + "b*";
        let pairs: Vec<(&[u8], &[u8])> = vec![(key.as_bytes(), b""); 10];
        let page = Render::ScanPage(ScanPage {
            pattern: Some(pattern.as_bytes()),
            count: 10,
            kind: None,
        });
        let reply = rendered(page, &[Reply::Pairs(pairs)]);
        assert!(!reply.contains("$1\r\n0\r\n"), "{reply}");
    }

    #[test]
    fn a_page_ends_before_the_key_that_begins_the_next() {
        let pairs: Vec<(&[u8], &[u8])> = vec![(b"a", b""), (b"b", b""), (b"c", b"")];
        let page = |count| {
            Render::ScanPage(ScanPage {
                pattern: Some(b"[^a]"),
                count,
                kind: None,
            })
        };
        assert_eq!(
            rendered(page(3), &[Reply::Pairs(pairs.clone())]),
            "*2\r\n$1\r\n0\r\n*2\r\n$1\r\nb\r\n$1\r\nc\r\n"
        );
        let of_kind = Render::ScanPage(ScanPage {
            pattern: None,
            count: 3,
            kind: Some(b"ZSET"),
        });
        let kinds = [Kind::SortedSet, Kind::Set, Kind::SortedSet].map(Kind::number_bytes);
        let keys = pairs.iter().zip(kinds);
        let of_kinds = keys.map(|((key, _), kind)| (*key, kind)).collect();
        assert_eq!(
            rendered(of_kind, &[Reply::Pairs(of_kinds)]),
            "*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\nc\r\n"
        );
        let first = rendered(page(2), &[Reply::Pairs(pairs)]);
        assert!(
            first.ends_with("*1\r\n$1\r\nb\r\n") && !first.contains("$1\r\n0\r\n"),
            "{first}"
        );
    }
}
