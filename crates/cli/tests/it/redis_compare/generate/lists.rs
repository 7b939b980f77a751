//! Random calls on lists.
//!
//! Lists have keys of their own, which calls on strings meet as well; those that carry values between
//! servers do not.

use super::{Args, Generator, b};

/// The keys of lists.
pub(super) const LISTS: [&str; 4] = ["la", "lb", "lc", "ld"];

impl Generator {
    /// Returns a call on lists.
    pub(super) fn lists(&mut self) -> Args {
        let key = self.pick(&LISTS);
        match self.rng.u32(..30) {
            0..8 => {
                let name = self.pick(&["LPUSH", "RPUSH", "LPUSH", "RPUSH", "LPUSHX", "RPUSHX"]);
                let count = self.rng.usize(1..6);
                let elements = (0..count).map(|_| self.list_element());
                [name, key]
                    .into_iter()
                    .chain(elements.collect::<Args>())
                    .collect()
            }
            8..10 => {
                let mut args = vec![self.pick(&["LPOP", "RPOP"]), self.list_or_other(key)];
                if self.one_in(2) {
                    args.push(self.pop_count());
                }
                args
            }
            10..13 => vec![
                b("LRANGE"),
                self.list_or_other(key),
                self.position(),
                self.position(),
            ],
            13 => vec![b("LLEN"), self.list_or_other(key)],
            14..16 => vec![b("LINDEX"), self.list_or_other(key), self.position()],
            16..18 => vec![b("LSET"), key, self.position(), self.list_element()],
            18..20 => {
                let place = self.pick(&["BEFORE", "after", "AFTER", "NEAR"]);
                vec![
                    b("LINSERT"),
                    key,
                    place,
                    self.list_element(),
                    self.list_element(),
                ]
            }
            20 => vec![b("LREM"), key, self.position(), self.list_element()],
            21 => vec![b("LTRIM"), key, self.position(), self.position()],
            22..24 => self.positions_of(key),
            24..27 => self.moving(key),
            27 => self.popping_many(),
            28 => vec![
                self.pick(&["RENAME", "RENAMENX", "COPY"]),
                key,
                self.pick(&LISTS),
            ],
            _ => match self.rng.u32(..4) {
                0 => vec![b("SET"), key, self.list_element()],
                1 => vec![self.pick(&["GET", "STRLEN", "TYPE", "DEL", "INCR"]), key],
                2 => vec![b("APPEND"), key, self.list_element()],
                _ => vec![b("EXPIRE"), key, self.relative(1)],
            },
        }
    }

    fn list_element(&mut self) -> Vec<u8> {
        match self.one_in(3) {
            true => self.value(),
            false => self.pick(&["a", "b", "c", "1", "2"]),
        }
    }

    /// Returns the key of a list, or another one.
    fn list_or_other(&mut self, key: Vec<u8>) -> Vec<u8> {
        match self.one_in(8) {
            true => self.key(),
            false => key,
        }
    }

    fn pop_count(&mut self) -> Vec<u8> {
        match self.one_in(6) {
            true => self.integer(),
            false => self.rng.u32(..6).to_string().into_bytes(),
        }
    }

    fn positions_of(&mut self, key: Vec<u8>) -> Args {
        let mut args = vec![b("LPOS"), self.list_or_other(key), self.list_element()];
        for _ in 0..self.rng.usize(..3) {
            let option = self.pick(&["RANK", "COUNT", "MAXLEN", "count", "QQ"]);
            let number = self.rng.i64(-4..8).to_string().into_bytes();
            args.extend([option, number]);
        }
        args
    }

    /// Returns a call that moves an element; one that waits is given in blocks alone, where it does not.
    fn moving(&mut self, key: Vec<u8>) -> Args {
        let to = self.pick(&LISTS);
        let sides = |own: &mut Generator| own.pick(&["LEFT", "RIGHT", "left", "UP"]);
        let waits = self.in_multi[self.connection];
        match (self.rng.u32(..6), waits) {
            (0, true) => vec![self.pick(&["BLPOP", "BRPOP"]), key, to, b("0")],
            (1, true) => vec![b("BLMOVE"), key, to, sides(self), sides(self), b("0")],
            (2, true) => vec![b("BRPOPLPUSH"), key, to, b("0")],
            (..4, _) => vec![b("LMOVE"), key, to, sides(self), sides(self)],
            _ => vec![b("RPOPLPUSH"), key, to],
        }
    }

    fn popping_many(&mut self) -> Args {
        let count = self.rng.usize(1..4);
        let given = if self.one_in(8) { count + 1 } else { count };
        let mut args = vec![b("LMPOP"), given.to_string().into_bytes()];
        args.extend((0..count).map(|_| self.pick(&LISTS)));
        args.push(self.pick(&["LEFT", "RIGHT", "right", "UP"]));
        if self.one_in(2) {
            args.extend([b("COUNT"), self.pop_count()]);
        }
        args
    }
}
