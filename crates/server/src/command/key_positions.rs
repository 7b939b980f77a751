//! Where the keys of a command are.

use std::ops::Range;

use base::number::parse_int;
use resp::Args;

/// Where a command's keys stand among its arguments: `first` (0: it has none), `last` (negative:
/// from the end) and the `step` between them. If some are counted, their number stands behind the last of these,
/// or at `first` if `last` is 0, and they follow it. If `step` is 0, they are the first half of what follows the word
/// `STREAMS`, which is looked for from `first` on.
#[derive(Clone, Copy)]
pub(crate) struct KeyPositions {
    pub(crate) first: usize,
    pub(crate) last: i32,
    pub(crate) step: usize,
    pub(crate) counted: bool,
    /// The options that a further key stands behind.
    pub(crate) options: Option<KeyOptions>,
    /// Where the options begin among which `STORE` names a key, and others may have the same names as values; 0: it
    /// is no option.
    pub(crate) stored: usize,
    /// The accesses to keys that the arguments do not show, or whose places are found by looking at all arguments.
    pub(crate) hidden: &'static [&'static str],
}

/// The options that a key stands behind, of which the last one counts.
#[derive(Clone, Copy)]
pub(crate) struct KeyOptions {
    /// Their names, in upper case.
    pub(crate) names: &'static [&'static str],
    /// Where the options begin.
    pub(crate) first: usize,
}

impl KeyPositions {
    pub(crate) const NONE: KeyPositions = KeyPositions {
        first: 0,
        last: 0,
        step: 0,
        counted: false,
        options: None,
        stored: 0,
        hidden: &[],
    };
    pub(crate) const ONE: KeyPositions = KeyPositions {
        first: 1,
        last: 1,
        step: 1,
        counted: false,
        ..KeyPositions::NONE
    };
    pub(crate) const SECOND: KeyPositions = KeyPositions {
        first: 2,
        last: 2,
        step: 1,
        counted: false,
        ..KeyPositions::NONE
    };
    pub(crate) const FIRST_TWO: KeyPositions = KeyPositions {
        first: 1,
        last: 2,
        step: 1,
        counted: false,
        ..KeyPositions::NONE
    };
    pub(crate) const ALL: KeyPositions = KeyPositions {
        first: 1,
        last: -1,
        step: 1,
        counted: false,
        ..KeyPositions::NONE
    };
    pub(crate) const PAIRS: KeyPositions = KeyPositions {
        first: 1,
        last: -1,
        step: 2,
        counted: false,
        ..KeyPositions::NONE
    };
    /// All arguments but the last one.
    pub(crate) const ALL_BUT_LAST: KeyPositions = KeyPositions {
        first: 1,
        last: -2,
        step: 1,
        counted: false,
        ..KeyPositions::NONE
    };
    /// All arguments behind the first one.
    pub(crate) const FROM_SECOND: KeyPositions = KeyPositions {
        first: 2,
        last: -1,
        step: 1,
        counted: false,
        ..KeyPositions::NONE
    };
    /// The first argument is the number of keys.
    pub(crate) const COUNTED_FIRST: KeyPositions = KeyPositions {
        first: 1,
        last: 0,
        step: 1,
        counted: true,
        ..KeyPositions::NONE
    };
    /// The first argument, and then so many as the second one says.
    pub(crate) const ONE_AND_COUNTED: KeyPositions = KeyPositions {
        first: 1,
        last: 1,
        step: 1,
        counted: true,
        ..KeyPositions::NONE
    };
    /// Of `GEORADIUS`: the first argument, and that behind an option.
    pub(crate) const GEO_RADIUS: KeyPositions = KeyPositions::with_store(6);
    /// Of `GEORADIUSBYMEMBER`, in the same way.
    pub(crate) const GEO_MEMBER_RADIUS: KeyPositions = KeyPositions::with_store(5);
    /// Of `XREAD`.
    pub(crate) const STREAMS: KeyPositions = KeyPositions {
        first: 1,
        last: -1,
        step: 0,
        counted: false,
        ..KeyPositions::NONE
    };
    /// Of `XREADGROUP`.
    pub(crate) const GROUP_STREAMS: KeyPositions = KeyPositions {
        first: 4,
        last: -1,
        step: 0,
        counted: false,
        ..KeyPositions::NONE
    };
    /// Of scripts: the second argument is the number of keys.
    pub(crate) const COUNTED: KeyPositions = KeyPositions {
        first: 2,
        last: 0,
        step: 1,
        counted: true,
        ..KeyPositions::NONE
    };

    /// Of `SORT`: the first argument; keys that the patterns of `BY` and `GET` name; that of `STORE`.
    pub(crate) const SORT: KeyPositions = KeyPositions {
        stored: 2,
        hidden: &["RO access", "OW update"],
        ..KeyPositions::ONE
    };
    /// Of `SORT_RO`.
    pub(crate) const SORT_READ_ONLY: KeyPositions = KeyPositions {
        hidden: &["RO access"],
        ..KeyPositions::ONE
    };

    const fn with_store(first: usize) -> KeyPositions {
        KeyPositions {
            options: Some(KeyOptions {
                names: &["STORE", "STOREDIST"],
                first,
            }),
            ..KeyPositions::ONE
        }
    }

    /// Returns `true` if keys stand at fixed places.
    fn has_fixed(self) -> bool {
        self.first > 0 && self.step > 0 && (!self.counted || self.last > 0)
    }

    /// Returns `true` if they follow the word `STREAMS`.
    #[inline]
    pub(crate) fn follow_streams(self) -> bool {
        self.first > 0 && self.step == 0
    }

    /// Returns the index of the first key, if a command with these arguments has one there.
    #[inline]
    pub(crate) fn first_key(self) -> Option<usize> {
        self.has_fixed().then_some(self.first)
    }

    /// Returns the indexes of the keys among the arguments, the command's name included.
    pub(crate) fn indexes(self, args: Args<'_>) -> impl Iterator<Item = usize> + use<> {
        let count = args.len();
        let streams = match self.follow_streams() {
            true => behind_streams(args).map_or(0..0, |first| first..(first + count) / 2),
            false => 0..0,
        };
        let end = match self.last {
            _ if !self.has_fixed() => 0,
            last if last < 0 => (count as i64 + i64::from(last) + 1).max(0) as usize,
            last => last as usize + 1,
        };
        let fixed = (self.first..end.min(count)).step_by(self.step.max(1));
        let counted = match self.counted {
            true => counted_keys(args, self.number()),
            false => 0..0,
        };
        let optional = self.options.and_then(|options| options.key(args));
        let listed = fixed.chain(counted).chain(streams);
        listed.chain(optional).chain(self.stored_key(args))
    }

    /// Returns the index of the key that the last option `STORE` names.
    fn stored_key(self, args: Args<'_>) -> Option<usize> {
        if self.stored == 0 {
            return None;
        }
        let (mut at, mut found) = (self.stored, None);
        while let Some(option) = args.get(at) {
            let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
            at += match () {
                () if is("limit") => 3,
                () if is("by") || is("get") => 2,
                () if is("store") && at + 1 < args.len() => {
                    found = Some(at + 1);
                    2
                }
                () => 1,
            };
        }
        found
    }

    /// Returns the index of the number of keys, of a command that counts some.
    pub(crate) fn number(self) -> usize {
        match self.last {
            0 => self.first,
            last => last.unsigned_abs() as usize + 1,
        }
    }
}

/// Returns the indexes of the keys that follow their number, which is at an index.
fn counted_keys(args: Args<'_>, number: usize) -> Range<usize> {
    let keys = args.get(number).and_then(parse_int).unwrap_or(0);
    let keys = usize::try_from(keys).unwrap_or(0);
    let first = (number + 1).min(args.len());
    first..first.saturating_add(keys).min(args.len())
}

impl KeyOptions {
    /// Returns the index of the key behind the last of these options.
    fn key(self, args: Args<'_>) -> Option<usize> {
        let (mut key, mut at) = (None, self.first);
        while at + 1 < args.len() {
            let arg = args.at(at);
            let mut names = self.names.iter();
            if names.any(|name| arg.eq_ignore_ascii_case(name.as_bytes())) {
                at += 1;
                key = Some(at);
            }
            at += 1;
        }
        key
    }
}

/// Returns the index behind the word `STREAMS` of `XREAD` and `XREADGROUP`, before which only options are.
fn behind_streams(args: Args<'_>) -> Option<usize> {
    let mut at = 1;
    loop {
        let is = |word: &str| {
            args.get(at)
                .is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
        };
        at += match () {
            () if is("streams") => return Some(at + 1),
            () if is("count") || is("block") => 2,
            () if is("group") => 3,
            () if is("noack") => 1,
            () => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::Span;

    #[test]
    fn keys_are_where_they_should_be() {
        let spans = [0, 1, 2, 3, 4].map(|at| Span::new(at, 1));
        let indexes = |keys: KeyPositions, args: usize| {
            let args = Args::new(b"cs2kk", &spans[..args]);
            keys.indexes(args).collect::<Vec<_>>()
        };
        assert!(indexes(KeyPositions::NONE, 3).is_empty());
        assert_eq!(indexes(KeyPositions::ONE, 3), [1]);
        assert_eq!(indexes(KeyPositions::ALL, 4), [1, 2, 3]);
        assert_eq!(indexes(KeyPositions::ALL_BUT_LAST, 4), [1, 2]);
        assert_eq!(indexes(KeyPositions::PAIRS, 5), [1, 3]);
        assert_eq!(indexes(KeyPositions::FIRST_TWO, 3), [1, 2]);
        assert_eq!(indexes(KeyPositions::FROM_SECOND, 5), [2, 3, 4]);
        assert_eq!(indexes(KeyPositions::COUNTED, 5), [3, 4]);
        assert_eq!(indexes(KeyPositions::COUNTED, 4), [3]);
        let first = Args::new(b"c2kkx", &spans);
        let first = KeyPositions::COUNTED_FIRST.indexes(first);
        assert_eq!(first.collect::<Vec<_>>(), [2, 3]);
        assert!(indexes(KeyPositions::COUNTED, 2).is_empty());
        assert_eq!(indexes(KeyPositions::ONE_AND_COUNTED, 5), [1, 3, 4]);
        assert_eq!(indexes(KeyPositions::ONE_AND_COUNTED, 2), [1]);
        assert_eq!(KeyPositions::ONE_AND_COUNTED.first_key(), Some(1));
        assert_eq!(KeyPositions::COUNTED.first_key(), None);
        let first = Args::new(b"c2kkx", &spans);
        let first = KeyPositions::COUNTED_FIRST.indexes(first);
        assert_eq!(first.collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn a_key_may_stand_behind_an_option() {
        let indexes = |text: &str| {
            let words: Vec<&str> = text.split(' ').collect();
            let place = |word: &&str| word.as_ptr() as usize - text.as_ptr() as usize;
            let spans = words.iter().map(|word| Span::new(place(word), word.len()));
            let spans: Vec<Span> = spans.collect();
            let args = Args::new(text.as_bytes(), &spans);
            KeyPositions::GEO_MEMBER_RADIUS
                .indexes(args)
                .collect::<Vec<_>>()
        };
        assert_eq!(indexes("c k store 1 m"), [1]);
        assert_eq!(indexes("c k m 1 m STORE a"), [1, 6]);
        assert_eq!(indexes("c k m 1 m asc store store"), [1, 7]);
        assert_eq!(indexes("c k m 1 m store a storedist b"), [1, 8]);
        assert_eq!(indexes("c k m 1 m store"), [1]);
    }

    #[test]
    fn streams_follow_their_word() {
        for (line, keys) in [
            ("xread streams a 0", &[2][..]),
            ("xread count 2 block 5 STREAMS a b 0 0", &[6, 7]),
            ("xreadgroup group streams streams noack streams a >", &[6]),
            ("xread count streams a 0", &[]),
            ("xread streams", &[]),
            ("xread streams a b 0", &[2]),
            ("xread junk streams a 0", &[]),
        ] {
            let mut spans = Vec::new();
            for word in line.split(' ') {
                let start = word.as_ptr() as usize - line.as_ptr() as usize;
                spans.push(Span::new(start, word.len()));
            }
            let args = Args::new(line.as_bytes(), &spans);
            let indexes: Vec<usize> = KeyPositions::STREAMS.indexes(args).collect();
            assert_eq!(indexes, keys, "{line}");
        }
    }

    #[test]
    fn the_key_of_the_last_store_is_found() {
        let found = |text: &str| {
            let starts = text.split(' ').scan(0, |at, word| {
                let span = Span::new(*at, word.len());
                *at += word.len() + 1;
                Some(span)
            });
            let spans: Vec<Span> = starts.collect();
            let args = Args::new(text.as_bytes(), &spans);
            KeyPositions::SORT.indexes(args).collect::<Vec<_>>()
        };
        assert_eq!(found("sort k"), [1]);
        assert_eq!(found("sort k desc STORE a"), [1, 4]);
        assert_eq!(found("sort k store a store b alpha"), [1, 5]);
        assert_eq!(
            found("sort k get store by store limit store x store b"),
            [1, 10]
        );
        assert_eq!(found("sort k store"), [1]);
    }
}
