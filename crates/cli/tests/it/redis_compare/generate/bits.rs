//! Calls that write bits.

use super::{Args, Generator, b};

impl Generator {
    pub(super) fn writing_bits(&mut self) -> Args {
        let key = self.key();
        match self.rng.u32(..8) {
            0..2 => vec![b("SETBIT"), key, self.bit_offset(), self.pick(&["0", "1"])],
            2 => {
                let operation = self.pick(&["AND", "OR", "XOR", "NOT", "xor", "DIFF"]);
                let mut args = vec![b("BITOP"), operation, key];
                args.extend((0..self.rng.usize(1..4)).map(|_| self.key()));
                args
            }
            _ => {
                let mut args = vec![b("BITFIELD"), key];
                for _ in 0..self.rng.usize(..5) {
                    self.bit_field(&mut args);
                }
                args
            }
        }
    }

    /// Adds a part of `BITFIELD`.
    fn bit_field(&mut self, args: &mut Args) {
        let action = self.pick(&["GET", "SET", "INCRBY", "OVERFLOW", "set", "incrby"]);
        args.push(action.clone());
        if action == b"OVERFLOW" {
            // `FAIL` may make a key of zeros, which Redis hides from watches.
            let modes = match self.watches.contains(&true) {
                true => ["WRAP", "SAT", "sat"].as_slice(),
                false => &["WRAP", "SAT", "FAIL", "sat", "fail"],
            };
            return args.push(self.pick(modes));
        }
        let (sign, bits) = (["u", "i"][self.rng.usize(..2)], self.rng.u32(1..=64));
        args.push(match self.rng.u32(..30) {
            0 => self.pick(&["u64", "i65", "u0", "U8", "x", ""]),
            1..8 => b(&format!("{sign}8")),
            _ => b(&format!(
                "{sign}{}",
                if sign == "u" { bits.min(63) } else { bits }
            )),
        });
        args.push(self.bit_offset());
        if action != b"GET" {
            args.push(self.integer());
        }
    }

    fn bit_offset(&mut self) -> Vec<u8> {
        match self.rng.u32(..30) {
            0 => self.pick(&["-1", "4294967296", "x", "#x", "#-1", "#4294967296", ""]),
            1..8 => b(&format!("#{}", self.rng.u32(..20))),
            8..12 => b(&self.rng.u32(..3000).to_string()),
            _ => b(&self.rng.u32(..100).to_string()),
        }
    }
}
