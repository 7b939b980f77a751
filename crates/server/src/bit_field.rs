//! Numbers among the bits of a value. Bits are numbered from the highest one of the first byte.

/// A number among the bits of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BitField {
    pub(crate) signed: bool,
    /// Its length, at most 64, or 63 of a number without a sign.
    pub(crate) bits: u32,
    /// The place of its first bit.
    pub(crate) offset: u64,
}

/// What happens to a number that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OverflowMode {
    /// Its lowest bits are kept.
    Wrap,
    /// The nearest number that fits takes its place.
    Saturate,
    /// It is refused.
    Fail,
}

impl BitField {
    /// Returns the first and the last byte that it has bits in.
    pub(crate) fn bytes(self) -> (usize, usize) {
        let last = (self.offset + u64::from(self.bits) - 1) / 8;
        ((self.offset / 8) as usize, last as usize)
    }

    /// Returns the number, given the whole value; bytes that are missing are zeros.
    pub(crate) fn read(self, value: &[u8]) -> i64 {
        self.read_from(value.get(self.bytes().0..).unwrap_or_default())
    }

    /// Returns the number, given the value from its first byte on; bytes that are missing are zeros.
    pub(crate) fn read_from(self, bytes: &[u8]) -> i64 {
        self.kept((self.word(bytes) >> self.bits_behind()) as u64)
    }

    /// Writes the lowest bits of a number into a value that has all bytes of the field.
    pub(crate) fn write(self, value: &mut [u8], number: i64) {
        let (first, last) = self.bytes();
        let mask = (u128::MAX >> (128 - self.bits)) << self.bits_behind();
        let own = (number as u128) << self.bits_behind() & mask;
        let word = (self.word(&value[first..]) & !mask | own).to_be_bytes();
        let count = last - first + 1;
        value[first..=last].copy_from_slice(&word[word.len() - count..]);
    }

    /// Returns the number that is written for a result, as the mode says if it does not fit; `None`: it is
    /// refused.
    pub(crate) fn fitted(self, number: i128, mode: OverflowMode) -> Option<i64> {
        let (least, most) = self.bounds();
        let fits = (least..=most).contains(&number);
        match mode {
            OverflowMode::Wrap => Some(self.kept(number as u64)),
            OverflowMode::Saturate => Some(number.clamp(least, most) as i64),
            OverflowMode::Fail => fits.then_some(number as i64),
        }
    }

    /// Returns a number that a client gives for the field, as [`BitField::fitted`] takes it. Without a sign,
    /// negative ones are those of 64 bits that have the same bits. So are, in a field that is shorter, the
    /// negative ones from which no number of 64 bits leads to the highest of the field: as in Redis, they are too
    /// high.
    pub(crate) fn wide(self, number: i64) -> i128 {
        let wide = i128::from(number);
        let is_far = self.bits < 64 && self.bounds().1 - wide > i64::MAX.into();
        match is_far || !self.signed {
            true => i128::from(number as u64),
            false => wide,
        }
    }

    /// Returns the lowest and the highest number.
    fn bounds(self) -> (i128, i128) {
        match self.signed {
            true => (-1 << (self.bits - 1), (1 << (self.bits - 1)) - 1),
            false => (0, (1 << self.bits) - 1),
        }
    }

    /// Returns the number of the last bits, as many as the field has.
    fn kept(self, bits: u64) -> i64 {
        let unused = 64 - self.bits;
        match self.signed {
            true => (bits << unused) as i64 >> unused,
            false => (bits << unused >> unused) as i64,
        }
    }

    /// Returns the bytes of the field, at most nine, as one number, given the value from the first of them on.
    fn word(self, bytes: &[u8]) -> u128 {
        let (first, last) = self.bytes();
        let bytes = (0..=last - first).map(|at| bytes.get(at).copied().unwrap_or(0));
        bytes.fold(0, |word, byte| word << 8 | u128::from(byte))
    }

    /// Returns the number of bits behind the field in its last byte.
    fn bits_behind(self) -> u32 {
        7 - ((self.offset + u64::from(self.bits) - 1) % 8) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(signed: bool, bits: u32, offset: u64) -> BitField {
        BitField {
            signed,
            bits,
            offset,
        }
    }

    #[test]
    fn numbers_are_read_across_bytes() {
        let value = [0x6f, 0x68, 0x6d, 0x79, 0x74, 0x65, 0x78, 0x74, 0xff];
        assert_eq!(field(false, 4, 4).read(&value), 15);
        assert_eq!(field(true, 4, 4).read(&value), -1);
        assert_eq!(field(true, 1, 1).read(&value), -1);
        assert_eq!(field(true, 64, 8).read(&value), 0x686d_7974_6578_74ff);
        let across = i64::from_be_bytes([0xde, 0xd0, 0xda, 0xf2, 0xe8, 0xca, 0xf0, 0xe9]);
        assert_eq!(field(true, 64, 1).read(&value), across);
        // Zeros follow.
        assert_eq!(field(false, 16, 64).read(&value), 0xff00);
        assert_eq!(field(false, 8, 1000).read(&value), 0);
    }

    /// Bit by bit.
    #[test]
    fn numbers_are_written_to_their_bits_alone() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let signed = random.bool();
            let bits = random.u32(1..=if signed { 64 } else { 63 });
            let field = field(signed, bits, random.u64(0..=96 - u64::from(bits)));
            let before: [u8; 12] = random.u128(..).to_be_bytes()[..12].try_into().unwrap();
            let number = random.i64(..);
            let mut after = before;
            field.write(&mut after, number);
            for at in 0u64..96 {
                let own = at
                    .checked_sub(field.offset)
                    .filter(|at| *at < u64::from(bits));
                let bit = |value: &[u8; 12]| value[at as usize / 8] >> (7 - at % 8) & 1;
                let expected = match own {
                    Some(at) => (number >> (u64::from(bits) - 1 - at) & 1) as u8,
                    None => bit(&before),
                };
                assert_eq!(bit(&after), expected, "{field:?} {number} bit {at}");
            }
            let wrapped = field.fitted(i128::from(number), OverflowMode::Wrap);
            assert_eq!(Some(field.read(&after)), wrapped, "{field:?} {number}");
        }
    }

    #[test]
    fn numbers_that_do_not_fit_go_by_the_mode() {
        let fitted = |field: BitField, number| {
            let modes = [
                OverflowMode::Wrap,
                OverflowMode::Saturate,
                OverflowMode::Fail,
            ];
            modes.map(|mode| field.fitted(number, mode))
        };
        let (i8s, u8s) = (field(true, 8, 0), field(false, 8, 0));
        assert_eq!(fitted(i8s, 127), [Some(127); 3]);
        assert_eq!(fitted(i8s, 128), [Some(-128), Some(127), None]);
        assert_eq!(fitted(i8s, -129), [Some(127), Some(-128), None]);
        assert_eq!(fitted(u8s, 255), [Some(255); 3]);
        assert_eq!(fitted(u8s, 256), [Some(0), Some(255), None]);
        assert_eq!(fitted(u8s, -1), [Some(255), Some(0), None]);
        assert_eq!(fitted(u8s, u8s.wide(-1)), [Some(255), Some(255), None]);
        let far = i8s.wide(-i64::MAX + 127 - 1);
        assert_eq!(fitted(i8s, far), [Some(127), Some(127), None]);
        let lowest = i8s.wide(-i64::MAX + 127);
        assert_eq!(fitted(i8s, lowest), [Some(-128), Some(-128), None]);
        let widest = field(true, 64, 0);
        let (min, max) = (i64::MIN, i64::MAX);
        let over = [Some(min), Some(max), None];
        assert_eq!(fitted(widest, i128::from(max) + 1), over);
        let under = [Some(max), Some(min), None];
        assert_eq!(fitted(widest, i128::from(min) - 1), under);
        let widest = field(false, 63, 0);
        assert_eq!(fitted(widest, i128::from(max)), [Some(max); 3]);
        assert_eq!(fitted(widest, widest.wide(min)), [Some(0), Some(max), None]);
    }
}
