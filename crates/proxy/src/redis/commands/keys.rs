//! The positions of a command's keys.

use base::number::parse_int;
use resp::Args;

/// The positions of a command's keys among its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keys {
    None,
    /// `first`, `last` (negative: from the end), and the step between them.
    Range {
        first: usize,
        last: i64,
        step: usize,
    },
    /// Their number is at `count`, and they follow it; one more key is at `also`, if it is not 0.
    Counted {
        count: usize,
        also: usize,
    },
    /// In the first half of the arguments after the option `STREAMS`.
    Streams,
    /// One at 1, and one after the last option `STORE` or `STOREDIST`; options begin at `options`.
    Stored {
        options: usize,
    },
}

impl Keys {
    /// Returns the index of the key, if there is exactly one, at any position.
    pub(super) fn only(self, args: usize) -> Option<usize> {
        match self {
            Keys::Range { first, last, .. } if last == first as i64 && first < args => Some(first),
            _ => None,
        }
    }

    /// Returns the indexes of the keys among the arguments.
    pub(super) fn among(self, args: Args<'_>) -> Vec<usize> {
        let count = args.len();
        match self {
            Keys::None => Vec::new(),
            Keys::Range { first, last, step } => {
                let last = if last < 0 { count as i64 + last } else { last };
                let end = usize::try_from(last + 1).unwrap_or(0).min(count);
                (first..end).step_by(step.max(1)).collect()
            }
            Keys::Counted { count: at, also } => {
                let number = args.get(at).and_then(parse_int);
                let number = number.and_then(|number| usize::try_from(number).ok());
                let end = at.saturating_add(1).saturating_add(number.unwrap_or(0));
                let also = (also > 0 && also < count).then_some(also);
                also.into_iter().chain(at + 1..end.min(count)).collect()
            }
            Keys::Streams => {
                let word = options(args, 1).find(|&at| is(args, at, b"streams"));
                let Some(word) = word else {
                    return Vec::new();
                };
                let keys = (count - word - 1) / 2;
                (word + 1..word + 1 + keys).collect()
            }
            Keys::Stored { options: first } => {
                let stores = options(args, first)
                    .filter(|&at| is(args, at, b"store") || is(args, at, b"storedist"))
                    .map(|at| at + 1);
                let stored = stores.filter(|&at| at < count).last();
                (1..count.min(2)).chain(stored).collect()
            }
        }
    }
}

/// Returns the positions of the keys of a command with movable keys.
pub(super) fn moving_keys(name: &str) -> Option<Keys> {
    let counted = |count, also| Some(Keys::Counted { count, also });
    match name {
        "eval" | "evalsha" | "eval_ro" | "evalsha_ro" | "fcall" | "fcall_ro" => counted(2, 0),
        "zunion" | "zinter" | "zdiff" | "sintercard" | "zintercard" | "lmpop" | "zmpop" => {
            counted(1, 0)
        }
        "blmpop" | "bzmpop" => counted(2, 0),
        "zunionstore" | "zinterstore" | "zdiffstore" => counted(2, 1),
        "xread" | "xreadgroup" => Some(Keys::Streams),
        "sort" => Some(Keys::Stored { options: 2 }),
        "georadius" | "georadiusbymember" => Some(Keys::Stored { options: 5 }),
        _ => None,
    }
}

/// Returns `true` if an argument is this word, in upper or lower case.
fn is(args: Args<'_>, at: usize, word: &[u8]) -> bool {
    args.get(at)
        .is_some_and(|arg| arg.eq_ignore_ascii_case(word))
}

/// Returns the indexes of the arguments from `first` on that are options. Words that belong to an
/// option are skipped: they may be any word.
fn options(args: Args<'_>, first: usize) -> impl Iterator<Item = usize> {
    let next = move |&at: &usize| {
        let behind = OPTIONS
            .iter()
            .find(|(word, _)| is(args, at, word))
            .map_or(0, |option| option.1);
        Some(at + 1 + behind).filter(|&at| at < args.len())
    };
    std::iter::successors(Some(first).filter(|&at| at < args.len()), next)
}

/// Options, and how many words belong to each.
const OPTIONS: &[(&[u8], usize)] = &[
    (b"count", 1),
    (b"block", 1),
    (b"group", 2),
    (b"by", 1),
    (b"get", 1),
    (b"limit", 2),
    (b"store", 1),
    (b"storedist", 1),
];
