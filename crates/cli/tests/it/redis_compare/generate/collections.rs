//! Calls on hashes and sets.

use super::{Args, Generator, b};

impl Generator {
    pub(super) fn of_hashes(&mut self) -> Args {
        let key = self.collection("hash");
        let mut args = match self.rng.u32(..16) {
            0..3 => vec![self.pick(&["HSET", "HMSET"]), key],
            3 => vec![b("HSETNX"), key, self.field(), self.value()],
            4 => vec![b("HMGET"), key, self.field()],
            5 => vec![b("HDEL"), key, self.field()],
            6 => vec![self.pick(&["HGETALL", "HKEYS", "HVALS"]), key],
            7 => vec![b("HLEN"), key],
            8..10 => {
                let name = self.pick(&["HGET", "HEXISTS", "HSTRLEN"]);
                vec![name, key, self.field()]
            }
            10..12 => vec![b("HINCRBY"), key, self.field(), self.integer()],
            12 => return vec![b("HINCRBY"), key, b("number"), self.integer()],
            13 => return vec![b("HSET"), key, b("fraction"), self.fraction()],
            _ => return vec![b("HINCRBYFLOAT"), key, b("fraction"), self.fraction()],
        };
        match &args[0][..] {
            b"HSET" | b"HMSET" => {
                for _ in 0..self.rng.usize(1..4) {
                    args.extend([self.field(), self.value()]);
                }
            }
            b"HMGET" | b"HDEL" => args.extend((0..self.rng.usize(..3)).map(|_| self.field())),
            _ => {}
        }
        args
    }

    pub(super) fn of_sets(&mut self) -> Args {
        let key = self.collection("set");
        let mut args = match self.rng.u32(..16) {
            0..5 => vec![b("SADD"), key, self.set_member()],
            5..7 => vec![b("SREM"), key, self.set_member()],
            7 => vec![b("SISMEMBER"), key, self.set_member()],
            8 => vec![b("SMISMEMBER"), key, self.set_member()],
            9 => vec![self.pick(&["SMEMBERS", "SCARD"]), key],
            10 => vec![b("SMOVE"), key, self.collection("set"), self.set_member()],
            11..13 => vec![self.pick(&["SINTER", "SUNION", "SDIFF"]), key],
            13 => return self.intersection_size(key),
            _ => {
                let name = self.pick(&["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"]);
                vec![name, key, self.collection("set")]
            }
        };
        let more = self.rng.usize(..4);
        match &args[0][..] {
            b"SADD" | b"SREM" | b"SMISMEMBER" => args.extend((0..more).map(|_| self.set_member())),
            b"SISMEMBER" | b"SMEMBERS" | b"SCARD" | b"SMOVE" => {}
            _ => args.extend((0..more).map(|_| self.collection("set"))),
        }
        args
    }

    fn intersection_size(&mut self, key: Vec<u8>) -> Args {
        let mut args = vec![b("SINTERCARD"), b("2"), key, self.collection("set")];
        if self.rng.bool() {
            args.extend([self.pick(&["LIMIT", "limit"]), self.integer()]);
        }
        args
    }

    /// Returns a key that mostly has a collection of this type.
    fn collection(&mut self, kind: &str) -> Vec<u8> {
        match self.rng.u32(..20) {
            0 => self.key(),
            n => b(&format!("{kind}{}", n % 4)),
        }
    }

    fn field(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0 => self.pick(&["", "f\0\r\n", "number"]),
            n => vec![b'a' + (n % 8) as u8],
        }
    }

    fn set_member(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0 => self.integer(),
            1 => self.pick(&["", "a", "b", "m\0\r\n", "01"]),
            _ => self.rng.i32(-9..9).to_string().into_bytes(),
        }
    }
}
