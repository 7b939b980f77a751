//! Calls on sorted sets and on places. They have keys of their own: a dump of a sorted set depends on how it was
//! made. All scores are multiples of an eighth.

use super::{Args, Generator, RELATIVE_S, b};

/// The keys of sorted sets, and those of places.
pub(super) const KEYS: [&str; 5] = ["p", "q", "r", "places", "found"];

impl Generator {
    pub(super) fn sorted_sets(&mut self) -> Args {
        match self.rng.u32(..20) {
            0..6 => self.adding_members(),
            6..9 => self.removing_members(),
            9..12 => self.reading_members(),
            12..15 => self.member_range(),
            15..17 => self.several_sorted_sets(),
            17..19 => self.places(),
            _ => self.sorted_set_as_key(),
        }
    }

    /// Returns the key of a sorted set.
    fn sorted_key(&mut self) -> Vec<u8> {
        self.pick(&KEYS[..3])
    }

    /// Returns a key for calls that make none: also one of another type.
    fn any_key(&mut self) -> Vec<u8> {
        match self.one_in(8) {
            true => self.key(),
            false => self.sorted_key(),
        }
    }

    fn member(&mut self) -> Vec<u8> {
        match self.rng.u32(..30) {
            0 => vec![],
            1 => b"m\x00\xff".to_vec(),
            2 => vec![b'm'; 60],
            n => vec![b'a' + (n % 12) as u8],
        }
    }

    fn score(&mut self) -> Vec<u8> {
        match self.rng.u32(..24) {
            0 => self.pick(&["inf", "-inf", "+inf", "Infinity", "-0", "0x10", "1e3"]),
            1 => self.pick(&["nan", "x", "", "1e400", " 1"]),
            2..8 => self.rng.i32(-3..3).to_string().into_bytes(),
            _ => {
                let eighths = f64::from(self.rng.i32(-80..80));
                (eighths / 8.0).to_string().into_bytes()
            }
        }
    }

    fn adding_members(&mut self) -> Args {
        let key = self.sorted_key();
        if self.one_in(5) {
            return vec![b("ZINCRBY"), key, self.score(), self.member()];
        }
        let mut args = vec![b("ZADD"), key];
        for _ in 0..self.rng.usize(..3) {
            args.push(self.pick(&["NX", "XX", "GT", "LT", "CH", "ch", "INCR"]));
        }
        for _ in 0..self.rng.usize(1..5) {
            args.extend([self.score(), self.member()]);
        }
        if self.one_in(30) {
            args.pop();
        }
        args
    }

    fn removing_members(&mut self) -> Args {
        let key = self.any_key();
        let mut args = match self.rng.u32(..8) {
            0..3 => vec![b("ZREM"), key, self.member(), self.member()],
            3 => {
                let mut args = vec![self.pick(&["ZPOPMIN", "ZPOPMAX"]), key];
                if self.one_in(2) {
                    args.push(self.pick(&["0", "1", "2", "3", "-1", "x"]));
                }
                return args;
            }
            4 => {
                let mut args = vec![b("ZMPOP"), b("2"), key, self.any_key()];
                args.push(self.pick(&["MIN", "MAX", "min", "QQ"]));
                if self.one_in(2) {
                    args.extend([b("COUNT"), self.pick(&["1", "2", "3", "0", "x"])]);
                }
                return args;
            }
            5 => vec![b("ZREMRANGEBYRANK"), key, self.rank(), self.rank()],
            6 => vec![b("ZREMRANGEBYSCORE"), key, self.bound(), self.bound()],
            _ => return vec![b("ZREMRANGEBYLEX"), b("equal"), b("-"), b("+")],
        };
        if self.one_in(40) {
            args.pop();
        }
        args
    }

    fn reading_members(&mut self) -> Args {
        let key = self.any_key();
        match self.rng.u32(..10) {
            0 => vec![b("ZCARD"), key],
            1 => vec![b("ZSCORE"), key, self.member()],
            2 => vec![b("ZMSCORE"), key, self.member(), self.member()],
            3 => vec![self.pick(&["ZRANK", "ZREVRANK"]), key, self.member()],
            4 => vec![b("ZCOUNT"), key, self.bound(), self.bound()],
            5 => vec![b("ZRANDMEMBER"), key, b("100")],
            6 => vec![b("ZSCAN"), key, self.pick(&["0", "5", "x"])],
            7 => vec![b("ZSCAN"), key, b("0"), b("MATCH"), b("[a-f]")],
            _ => vec![b("ZRANGE"), key, b("0"), b("-1"), b("WITHSCORES")],
        }
    }

    fn rank(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0 => self.integer(),
            _ => self.rng.i32(-6..6).to_string().into_bytes(),
        }
    }

    fn bound(&mut self) -> Vec<u8> {
        let open = if self.one_in(3) { "(" } else { "" };
        match self.rng.u32(..12) {
            0 => self.pick(&["-inf", "+inf", "inf", "(-inf", "", "(", " 1", "1e999"]),
            1 => self.pick(&["nan", "x", "[1", "1 ", "(x"]),
            _ => [b(open), self.score()].concat(),
        }
    }

    fn member_range(&mut self) -> Args {
        let key = self.any_key();
        let mut args = match self.rng.u32(..6) {
            0 => vec![b("ZREVRANGE"), key, self.rank(), self.rank()],
            1 => {
                let name = self.pick(&["ZRANGEBYSCORE", "ZREVRANGEBYSCORE"]);
                vec![name, key, self.bound(), self.bound()]
            }
            2 => vec![b("ZRANGE"), key, self.bound(), self.bound(), b("BYSCORE")],
            3 => {
                let key = self.sorted_key();
                vec![
                    b("ZRANGESTORE"),
                    key,
                    self.any_key(),
                    self.rank(),
                    self.rank(),
                ]
            }
            _ => vec![b("ZRANGE"), key, self.rank(), self.rank()],
        };
        for _ in 0..self.rng.usize(..3) {
            match self.rng.u32(..8) {
                0..3 => args.extend([b("LIMIT"), self.rank(), self.rank()]),
                3..6 => args.push(b("WITHSCORES")),
                6 => args.push(b("REV")),
                _ => args.push(self.pick(&["BYSCORE", "withscores", "QQ", "LIMIT"])),
            }
        }
        args
    }

    fn several_sorted_sets(&mut self) -> Args {
        let count = self.rng.usize(1..4);
        let (name, stores) = [
            ("ZUNION", false),
            ("ZINTER", false),
            ("ZDIFF", false),
            ("ZINTERCARD", false),
            ("ZUNIONSTORE", true),
            ("ZINTERSTORE", true),
            ("ZDIFFSTORE", true),
        ][self.rng.usize(..7)];
        let mut args = vec![b(name)];
        if stores {
            args.push(self.sorted_key());
        }
        args.push(match self.one_in(20) {
            true => self.pick(&["0", "5", "x", "-1"]),
            false => b(&count.to_string()),
        });
        for _ in 0..count {
            args.push(match self.one_in(20) {
                true => self.key(),
                false => self.sorted_key(),
            });
        }
        for _ in 0..self.rng.usize(..3) {
            match self.rng.u32(..10) {
                0..3 => {
                    args.push(b("WEIGHTS"));
                    let weights = ["1", "2", "-1", "0.5", "0", "inf", "3"];
                    args.extend((0..count).map(|_| self.pick(&weights)));
                }
                3..6 => args.extend([b("AGGREGATE"), self.pick(&["SUM", "MIN", "max", "QQ"])]),
                6..9 => args.push(b("WITHSCORES")),
                _ => args.extend([b("LIMIT"), self.pick(&["0", "1", "2", "-1"])]),
            }
        }
        args
    }

    /// Calls that concern the key of a sorted set as a whole.
    fn sorted_set_as_key(&mut self) -> Args {
        let key = self.sorted_key();
        match self.rng.u32(..6) {
            0 => vec![b("TYPE"), key],
            1 => vec![b("DEL"), key],
            2 => {
                let seconds = RELATIVE_S + self.rng.u64(..RELATIVE_S * 10) * 10;
                vec![b("EXPIRE"), key, b(&seconds.to_string())]
            }
            3 => vec![b("COPY"), key, self.sorted_key(), b("REPLACE")],
            4 => vec![b("RENAME"), key, self.sorted_key()],
            _ => vec![self.pick(&["GET", "STRLEN", "INCR", "APPEND"]), key, b("x")],
        }
    }

    fn places(&mut self) -> Args {
        let key = b("places");
        match self.rng.u32(..12) {
            0..4 => {
                let mut args = vec![b("GEOADD"), key];
                for _ in 0..self.rng.usize(1..4) {
                    args.extend(self.place());
                    args.push(self.member());
                }
                args
            }
            4 => vec![b("GEODIST"), key, self.member(), self.member()],
            5 => vec![b("GEOPOS"), key, self.member(), self.member()],
            6 => vec![b("GEOHASH"), key, self.member()],
            7 => {
                let mut args = vec![b("GEOSEARCHSTORE"), b("found"), key];
                self.search_area(&mut args);
                if self.one_in(2) {
                    args.push(b("STOREDIST"));
                }
                args
            }
            8 => {
                let mut args = vec![b("GEORADIUS"), key];
                args.extend(self.place());
                args.extend([self.length(), b("km")]);
                if self.one_in(2) {
                    args.extend([self.pick(&["STORE", "STOREDIST"]), b("found")]);
                }
                args
            }
            _ => {
                let mut args = vec![b("GEOSEARCH"), key];
                self.search_area(&mut args);
                for _ in 0..self.rng.usize(..3) {
                    match self.rng.u32(..8) {
                        0..3 => {
                            args.push(self.pick(&["WITHDIST", "WITHCOORD", "WITHHASH", "ANY"]));
                        }
                        3..6 => args.push(self.pick(&["ASC", "DESC"])),
                        _ => args.extend([b("COUNT"), self.pick(&["1", "2", "5", "0"])]),
                    }
                }
                args
            }
        }
    }

    /// Returns a longitude and a latitude: near a point, or anywhere.
    fn place(&mut self) -> [Vec<u8>; 2] {
        let is_near = self.one_in(2);
        let (width, height) = if is_near { (2.0, 2.0) } else { (360.0, 170.0) };
        let [longitude, latitude] = [width, height].map(|size| (self.rng.f64() - 0.5) * size);
        match self.rng.u32(..40) {
            0 => ["181", "5"].map(b),
            1 => ["5", "x"].map(b),
            _ => [longitude, latitude].map(|degrees| format!("{degrees:.6}").into_bytes()),
        }
    }

    fn length(&mut self) -> Vec<u8> {
        let length = 10f64.powf(self.rng.f64() * 4.5);
        format!("{length:.2}").into_bytes()
    }

    fn search_area(&mut self, args: &mut Args) {
        match self.rng.u32(..3) {
            0 => args.extend([b("FROMMEMBER"), self.member()]),
            _ => {
                args.push(b("FROMLONLAT"));
                args.extend(self.place());
            }
        }
        match self.one_in(2) {
            true => args.extend([b("BYRADIUS"), self.length(), b("km")]),
            false => args.extend([b("BYBOX"), self.length(), self.length(), b("km")]),
        }
    }
}
