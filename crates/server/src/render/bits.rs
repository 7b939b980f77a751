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

/// A number among the bits of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BitField {
    pub(crate) signed: bool,
    /// Its length, at most 64, or 63 of a number without a sign.
    pub(crate) bits: u32,
    /// The place of its first bit.
    pub(crate) offset: u64,
}

impl BitField {
    /// Returns the first and the last byte that it has bits in.
    pub(crate) fn bytes(self) -> (i64, i64) {
        let last = (self.offset + u64::from(self.bits) - 1) / 8;
        ((self.offset / 8) as i64, last as i64)
    }

    /// Returns the number, given its bytes; those that are missing are zeros.
    pub(super) fn of(self, bytes: &[u8]) -> i64 {
        let (first, last) = self.bytes();
        let count = (last - first + 1) as u32;
        let mut all: u128 = 0;
        for at in 0..count as usize {
            all = all << 8 | u128::from(bytes.get(at).copied().unwrap_or(0));
        }
        let behind = 8 * count - (self.offset % 8) as u32 - self.bits;
        let bits = (all >> behind) as u64;
        let unused = 64 - self.bits;
        match self.signed {
            true => (bits << unused) as i64 >> unused,
            false => (bits << unused >> unused) as i64,
        }
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

    #[test]
    fn numbers_are_read_across_bytes() {
        let field = |signed, bits, offset| BitField {
            signed,
            bits,
            offset,
        };
        let value = [0x6f, 0x68, 0x6d, 0x79, 0x74, 0x65, 0x78, 0x74, 0xff];
        let of = |field: BitField| {
            let (first, last) = field.bytes();
            let end = (last as usize + 1).min(value.len());
            field.of(value.get(first as usize..end).unwrap_or_default())
        };
        assert_eq!(of(field(false, 4, 4)), 15);
        assert_eq!(of(field(true, 4, 4)), -1);
        assert_eq!(of(field(true, 1, 1)), -1);
        assert_eq!(of(field(true, 64, 8)), 0x686d_7974_6578_74ff);
        assert_eq!(
            of(field(true, 64, 1)),
            i64::from_be_bytes([0xde, 0xd0, 0xda, 0xf2, 0xe8, 0xca, 0xf0, 0xe9])
        );
        // Zeros follow.
        assert_eq!(of(field(false, 16, 64)), 0xff00);
        assert_eq!(of(field(false, 8, 1000)), 0);
    }
}
