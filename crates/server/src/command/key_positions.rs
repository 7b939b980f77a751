//! Where the keys of a command are.

/// Where a command's keys stand among its arguments: `first` (0: it has none), `last` (negative:
/// from the end) and the `step` between them.
#[derive(Clone, Copy)]
pub(crate) struct KeyPositions {
    pub(crate) first: usize,
    pub(crate) last: i32,
    pub(crate) step: usize,
}

impl KeyPositions {
    pub(crate) const NONE: KeyPositions = KeyPositions {
        first: 0,
        last: 0,
        step: 0,
    };
    pub(crate) const ONE: KeyPositions = KeyPositions {
        first: 1,
        last: 1,
        step: 1,
    };
    pub(crate) const ALL: KeyPositions = KeyPositions {
        first: 1,
        last: -1,
        step: 1,
    };
    pub(crate) const PAIRS: KeyPositions = KeyPositions {
        first: 1,
        last: -1,
        step: 2,
    };

    /// Returns the indexes of the keys among `args` arguments.
    pub(crate) fn indexes(self, args: usize) -> impl Iterator<Item = usize> {
        let last = if self.last < 0 {
            args as i64 + i64::from(self.last)
        } else {
            self.last.into()
        };
        let end = if self.first == 0 {
            0
        } else {
            (last + 1).max(0) as usize
        };
        (self.first..end.min(args)).step_by(self.step.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_where_they_should_be() {
        let indexes = |keys: KeyPositions, args| keys.indexes(args).collect::<Vec<_>>();
        assert!(indexes(KeyPositions::NONE, 3).is_empty());
        assert_eq!(indexes(KeyPositions::ONE, 3), [1]);
        assert_eq!(indexes(KeyPositions::ALL, 4), [1, 2, 3]);
        assert_eq!(indexes(KeyPositions::PAIRS, 5), [1, 3]);
    }
}
