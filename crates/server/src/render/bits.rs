//! Bits of a value. They are numbered from the highest one of the first byte.

/// A range of bytes or bits of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BitRange {
    /// The first one; negative: counted from the end.
    pub(crate) start: i64,
    /// The last one, if it was given.
    pub(crate) end: Option<i64>,
    /// `true` if these are places of bits.
    pub(crate) in_bits: bool,
}

impl BitRange {
    /// The whole value.
    pub(crate) const WHOLE: BitRange = BitRange {
        start: 0,
        end: None,
        in_bits: false,
    };

    /// Returns `true` if both ends count from the end of the value, and are in the wrong order.
    pub(crate) fn is_reversed(self) -> bool {
        self.start < 0 && self.end.is_some_and(|end| end < self.start)
    }

    /// Returns the first bit of a value of so many bytes, and the bit behind the last one; `None`: the range
    /// is empty.
    fn bits(self, bytes: usize) -> Option<(usize, usize)> {
        let unit = if self.in_bits { 1 } else { 8 };
        let len = (bytes * 8 / unit) as i64;
        let place = |at: i64| if at < 0 { (at + len).max(0) } else { at };
        let start = place(self.start);
        let end = place(self.end.unwrap_or(-1)).min(len - 1);
        (start <= end).then(|| (start as usize * unit, (end as usize + 1) * unit))
    }
}

/// Returns the bit of this number.
fn bit_at(value: &[u8], at: usize) -> bool {
    value[at / 8] >> (7 - at % 8) & 1 == 1
}

/// Returns the number of ones in a range.
pub(super) fn count(value: &[u8], range: Option<BitRange>) -> i64 {
    let range = range.unwrap_or(BitRange::WHOLE);
    // Both may be beyond the start of the value.
    if range.is_reversed() {
        return 0;
    }
    let Some((start, end)) = range.bits(value.len()) else {
        return 0;
    };
    let ones: u32 = value[start / 8..end.div_ceil(8)]
        .iter()
        .map(|byte| byte.count_ones())
        .sum();
    let before = (start / 8 * 8..start).filter(|&at| bit_at(value, at));
    let behind = (end..end.next_multiple_of(8)).filter(|&at| bit_at(value, at));
    i64::from(ones) - before.count() as i64 - behind.count() as i64
}

/// Returns the place of the first bit that is `bit`; -1: there is none. Behind a value, whose end was not
/// given, zeros follow.
pub(super) fn position(value: &[u8], bit: bool, range: BitRange) -> i64 {
    let Some((start, end)) = range.bits(value.len()) else {
        return -1;
    };
    let other = if bit { 0 } else { 0xff };
    let mut at = start;
    while at < end {
        if at.is_multiple_of(8) && value[at / 8] == other {
            let same = value[at / 8..end.div_ceil(8)].iter();
            at += 8 * same.take_while(|&&byte| byte == other).count();
        } else if bit_at(value, at) == bit {
            return at as i64;
        } else {
            at += 1;
        }
    }
    match (bit, range.end) {
        (false, None) => end as i64,
        _ => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: i64, end: Option<i64>, in_bits: bool) -> BitRange {
        BitRange {
            start,
            end,
            in_bits,
        }
    }

    /// Bit by bit, with the same rules.
    #[test]
    fn counts_and_places_are_those_of_the_bits_one_by_one() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let value: Vec<u8> = (0..random.usize(..6))
                .map(|_| *random.choice(&[0, 0xff, 0x0f, 0x81]).unwrap())
                .collect();
            let end = random.bool().then(|| random.i64(-60..60));
            let range = range(random.i64(-60..60), end, random.bool());
            let bits = range.bits(value.len());
            let places = bits.map_or(0..0, |(start, end)| start..end);
            assert!(places.end <= 8 * value.len());
            let bit = random.bool();
            let first = places.clone().find(|&at| bit_at(&value, at) == bit);
            let first = match (first, bits) {
                (Some(at), _) => at as i64,
                (None, Some((_, end))) if !bit && range.end.is_none() => end as i64,
                _ => -1,
            };
            assert_eq!(position(&value, bit, range), first, "{value:?} {range:?}");
            if !range.is_reversed() {
                let ones = places.filter(|&at| bit_at(&value, at)).count() as i64;
                assert_eq!(count(&value, Some(range)), ones, "{value:?} {range:?}");
            }
        }
    }
}
