//! Random calls that read bits.

use super::{Args, Generator, b};

impl Generator {
    /// Returns a call that reads bits of a key.
    pub(super) fn bits(&mut self, key: Vec<u8>) -> Args {
        match self.rng.u32(..4) {
            0 => vec![b("GETBIT"), key, self.offset()],
            1 => {
                let mut args = vec![b("BITCOUNT"), key];
                if !self.one_in(3) {
                    args.extend([self.bit_position(), self.bit_position()]);
                    self.unit(&mut args);
                }
                args
            }
            2 => {
                let mut args = vec![b("BITPOS"), key, self.pick(&["0", "1", "0", "1", "2"])];
                if !self.one_in(3) {
                    args.push(self.bit_position());
                    if !self.one_in(3) {
                        args.push(self.bit_position());
                        self.unit(&mut args);
                    }
                }
                args
            }
            _ => {
                let mut args = vec![b("BITFIELD_RO"), key];
                for _ in 0..self.rng.usize(..4) {
                    let sign = self.pick(&["i", "u"]);
                    let bits = self.rng.u32(1..65).to_string().into_bytes();
                    let number = if self.one_in(3) { "#" } else { "" };
                    let place = [b(number), self.offset()].concat();
                    args.extend([b("GET"), [sign, bits].concat(), place]);
                }
                args
            }
        }
    }

    /// Returns the place of a byte or of a bit, from the start or from the end.
    fn bit_position(&mut self) -> Vec<u8> {
        match self.one_in(2) {
            true => self.position(),
            false => self.rng.i64(-200..200).to_string().into_bytes(),
        }
    }

    fn unit(&mut self, args: &mut Args) {
        if self.one_in(2) {
            args.push(self.pick(&["BIT", "bit", "BYTE", "QQ"]));
        }
    }
}
