//! Where the keys of a command are.

use base::number::parse_int;
use resp::Args;

/// Where a command's keys stand among its arguments: `first` (0: it has none), `last` (negative:
/// from the end) and the `step` between them. If they are counted, `first` is the place of their number, and
/// they follow it.
#[derive(Clone, Copy)]
pub(crate) struct KeyPositions {
    pub(crate) first: usize,
    pub(crate) last: i32,
    pub(crate) step: usize,
    pub(crate) counted: bool,
}

impl KeyPositions {
    pub(crate) const NONE: KeyPositions = KeyPositions {
        first: 0,
        last: 0,
        step: 0,
        counted: false,
    };
    pub(crate) const ONE: KeyPositions = KeyPositions {
        first: 1,
        last: 1,
        step: 1,
        counted: false,
    };
    pub(crate) const SECOND: KeyPositions = KeyPositions {
        first: 2,
        last: 2,
        step: 1,
        counted: false,
    };
    pub(crate) const FIRST_TWO: KeyPositions = KeyPositions {
        first: 1,
        last: 2,
        step: 1,
        counted: false,
    };
    pub(crate) const ALL: KeyPositions = KeyPositions {
        first: 1,
        last: -1,
        step: 1,
        counted: false,
    };
    pub(crate) const PAIRS: KeyPositions = KeyPositions {
        first: 1,
        last: -1,
        step: 2,
        counted: false,
    };
    /// All arguments but the last one.
    pub(crate) const ALL_BUT_LAST: KeyPositions = KeyPositions {
        first: 1,
        last: -2,
        step: 1,
        counted: false,
    };
    /// The first argument is the number of keys.
    pub(crate) const COUNTED_FIRST: KeyPositions = KeyPositions {
        first: 1,
        last: 0,
        step: 1,
        counted: true,
    };
    /// All arguments behind the first one.
    pub(crate) const FROM_SECOND: KeyPositions = KeyPositions {
        first: 2,
        last: -1,
        step: 1,
        counted: false,
    };
    /// Of scripts: the second argument is the number of keys.
    pub(crate) const COUNTED: KeyPositions = KeyPositions {
        first: 2,
        last: 0,
        step: 1,
        counted: true,
    };

    /// Returns the index of the first key, if a command with these arguments has one there.
    #[inline]
    pub(crate) fn first_key(self) -> Option<usize> {
        (self.first > 0 && !self.counted).then_some(self.first)
    }

    /// Returns the indexes of the keys among the arguments, the command's name included.
    pub(crate) fn indexes(self, args: Args<'_>) -> impl Iterator<Item = usize> + use<> {
        let count = args.len() as i64;
        let (first, end) = match (self.first, self.counted) {
            (0, _) => (0, 0),
            (at, true) => {
                let keys = args.get(at).and_then(parse_int).unwrap_or(0);
                let first = at as i64 + 1;
                (at + 1, first.saturating_add(keys.max(0)))
            }
            (first, false) if self.last < 0 => (first, count + i64::from(self.last) + 1),
            (first, false) => (first, i64::from(self.last) + 1),
        };
        (first..end.clamp(0, count) as usize).step_by(self.step.max(1))
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
        assert!(indexes(KeyPositions::COUNTED, 2).is_empty());
    }
}
