//! Random calls from a seed.
//!
//! Few keys, values and numbers at their edges, options in any mixture and case, some calls
//! malformed. What a call answers must not depend on when exactly it comes, so that:
//! 1. A time to live that is relative is at least [`RELATIVE_S`]; absolute times are either long
//!    past or lie before every relative one: no two deadlines are close enough for `GT` and `LT`
//!    to depend on milliseconds.
//! 2. Fractions are multiples of an eighth, on keys of their own: sums of others depend on how a
//!    machine rounds.
//! 3. Nothing counts keys: Redis counts those that have expired until it meets them.

mod bits;
mod collections;
mod computed;
mod lists;
mod payloads;
mod read_bits;
mod sorted_sets;
mod streams;

use fastrand::Rng;

use super::rules::Rule;
use super::session::Call;

/// Relative times to live are multiples of ten seconds from here up to a hundred times as much.
const RELATIVE_S: u64 = 100_000;
/// Connections in use.
const CONNECTIONS: usize = 2;
/// Databases in use.
const DATABASES: [&str; 3] = ["0", "1", "2"];

type Args = Vec<Vec<u8>>;

/// A stream of calls.
pub(crate) struct Generator {
    rng: Rng,
    now_s: u64,
    connection: usize,
    in_multi: [bool; CONNECTIONS],
    /// Connections that may watch keys.
    watches: [bool; CONNECTIONS],
    /// The time in the last ids of entries of streams.
    last_ms: u64,
}

impl Generator {
    /// Calls of this seed, whose absolute times start from `now_s`.
    pub(crate) fn new(seed: u64, now_s: u64) -> Generator {
        Generator {
            rng: Rng::with_seed(seed),
            now_s,
            connection: 0,
            in_multi: [false; CONNECTIONS],
            watches: [false; CONNECTIONS],
            last_ms: 1,
        }
    }

    /// Returns so many calls.
    pub(crate) fn calls(&mut self, count: usize) -> Vec<Call> {
        (0..count).map(|_| self.call()).collect()
    }

    fn call(&mut self) -> Call {
        if self.one_in(40) {
            self.connection = self.rng.usize(..CONNECTIONS);
        }
        let in_multi = self.in_multi[self.connection];
        let mut args = match self.rng.u32(..100) {
            0..10 if in_multi => words("EXEC"),
            10 if in_multi => words("DISCARD"),
            11 if in_multi => words("MULTI"),
            12 if in_multi => self.watch(),
            0..2 if !in_multi => words("MULTI"),
            2..5 if !in_multi => self.watch(),
            5 if self.one_in(5) => words("UNWATCH"),
            5 if self.one_in(5) => words("EXEC"),
            5 if self.one_in(5) => words("DISCARD"),
            _ => self.command(),
        };
        // Options of later releases, and keys that only certain calls write, stay as they are.
        let is_kept = |args: &Args| {
            let mut args = args.iter();
            args.any(|arg| arg.starts_with(b"Z") || sorted_sets::KEYS.map(b).contains(arg))
        };
        if self.one_in(40) && !args[0].ends_with(b"INCRBYFLOAT") && !is_kept(&args) {
            self.malform(&mut args);
        }
        match (&args[0].to_ascii_uppercase()[..], args.len()) {
            (b"WATCH", _) => self.watches[self.connection] = true,
            (b"UNWATCH", 1) if !in_multi => self.watches[self.connection] = false,
            (b"EXEC" | b"DISCARD", 1) if in_multi => self.watches[self.connection] = false,
            _ => {}
        }
        match (&args[0].to_ascii_uppercase()[..], args.len()) {
            (b"MULTI", 1) => self.in_multi[self.connection] = true,
            (b"EXEC", _) | (b"DISCARD", 1) => self.in_multi[self.connection] = false,
            _ => {}
        }
        self.change_case(&mut args[0]);
        Call {
            connection: self.connection + 1,
            args,
        }
    }

    fn command(&mut self) -> Args {
        let args = self.plain_command();
        let asks_when = args[0].ends_with(b"TTL") || args[0].ends_with(b"EXPIRETIME");
        match self.rng.u32(..20) {
            // Only alone it is known to have no order, or to be near.
            _ if Rule::usual(&args) == Rule::Set || asks_when => args,
            // Not in a script.
            _ if args[0] == b"SWAPDB" || args[0].starts_with(b"BL") => args,
            _ if args[0].starts_with(b"BRPOP") => args,
            0 => [words("EVAL return(redis.call(unpack(ARGV))) 0"), args].concat(),
            1 => [words("EVAL return({redis.pcall(unpack(ARGV)),1}) 0"), args].concat(),
            _ => args,
        }
    }

    fn plain_command(&mut self) -> Args {
        match self.rng.u32(..155) {
            100..110 => self.of_hashes(),
            110..120 => self.of_sets(),
            120..140 => self.sorted_sets(),
            140.. => self.lists(),
            0..20 => self.reading(),
            20..39 => self.setting(),
            39..55 => self.changing(),
            55 => self.computing(),
            56..63 => self.writing_bits(),
            63..72 => self.several_keys(),
            72..84 => self.expiring(),
            84..92 => self.on_streams(),
            92..96 => self.asking_when(),
            96..98 => self.of_databases(),
            _ => self.connection_command(),
        }
    }

    fn reading(&mut self) -> Args {
        let key = self.key();
        match self.rng.u32(..10) {
            0..3 => vec![b("GET"), key],
            // Payloads of collections have an order that depends on the server.
            3 if self.rng.bool() => vec![b("DUMP"), self.pick(&["x", "y"])],
            3 => vec![b("STRLEN"), key],
            4 => vec![b("EXISTS"), key],
            5 => vec![b("TYPE"), key],
            6 => vec![
                self.pick(&["GETRANGE", "SUBSTR"]),
                key,
                self.position(),
                self.position(),
            ],
            7..9 => self.bits(key),
            _ => vec![
                b("KEYS"),
                self.pick(&["*", "?", "[a-c]", "[^a]", "k*", "*\\**", "", "[", "a\\"]),
            ],
        }
    }

    fn setting(&mut self) -> Args {
        let (key, value) = (self.key(), self.value());
        match self.rng.u32(..11) {
            10 => self.restoring(key),
            0..5 => {
                let mut args = vec![b("SET"), key, value];
                self.set_options(&mut args);
                args
            }
            5 => vec![b("SETNX"), key, value],
            6 => vec![b("SETEX"), key, self.relative(1), value],
            7 => vec![b("PSETEX"), key, self.relative(1000), value],
            _ => vec![b("GETSET"), key, value],
        }
    }

    fn changing(&mut self) -> Args {
        let key = self.key();
        match self.rng.u32(..14) {
            0..3 => vec![self.pick(&["INCR", "DECR"]), key],
            3..6 => vec![self.pick(&["INCRBY", "DECRBY"]), key, self.integer()],
            6 => self.adding_fractions(),
            7..9 => vec![b("APPEND"), key, self.value()],
            9..11 => vec![b("SETRANGE"), key, self.offset(), self.value()],
            11 => vec![b("GETDEL"), key],
            // Numbers are what the counters above want to find.
            _ => vec![b("SET"), key, self.integer()],
        }
    }

    /// Calls on keys that only these calls write: no other value becomes a fraction.
    fn adding_fractions(&mut self) -> Args {
        let key = self.pick(&["x", "y"]);
        match self.rng.u32(..10) {
            0 => vec![b("SET"), key, self.fraction()],
            1 => vec![b("GETSET"), key, self.fraction()],
            2 => vec![b("GETDEL"), key],
            3 => vec![b("INCR"), key],
            _ => vec![b("INCRBYFLOAT"), key, self.fraction()],
        }
    }

    fn several_keys(&mut self) -> Args {
        if self.one_in(4) {
            return self.two_keys();
        }
        let count = self.rng.usize(1..4);
        let name = self.pick(&["MGET", "MSET", "MSETNX", "DEL", "UNLINK", "EXISTS", "TOUCH"]);
        let pairs = name.starts_with(b"MSET");
        let mut args = vec![name];
        for _ in 0..count {
            args.push(self.key());
            if pairs {
                args.push(self.value());
            }
        }
        args
    }

    fn two_keys(&mut self) -> Args {
        let name = self.pick(&["RENAME", "RENAMENX", "COPY"]);
        let mut args = vec![name, self.key(), self.key()];
        if args[0] == b"COPY" {
            for _ in 0..self.rng.usize(..3) {
                args.push(self.pick(&["REPLACE", "replace", "DB", "0", "1", "2"]));
            }
        }
        args
    }

    fn expiring(&mut self) -> Args {
        let key = self.key();
        let mut args = match self.rng.u32(..10) {
            0..2 => vec![b("EXPIRE"), key, self.relative(1)],
            2..4 => vec![b("PEXPIRE"), key, self.relative(1000)],
            4..6 => vec![b("EXPIREAT"), key, self.absolute(1)],
            6..8 => vec![b("PEXPIREAT"), key, self.absolute(1000)],
            8 => return vec![b("PERSIST"), key],
            _ => {
                let mut args = vec![b("GETEX"), key];
                if self.one_in(4) {
                    args.push(self.pick(&["PERSIST", "persist", "KEEPTTL"]));
                }
                self.time_options(&mut args);
                return args;
            }
        };
        for _ in 0..self.rng.usize(..3) {
            args.push(self.pick(&["NX", "XX", "GT", "LT", "gt", "lt", "nx", "QQ"]));
        }
        args
    }

    fn of_databases(&mut self) -> Args {
        let database = self.pick(&DATABASES);
        match self.rng.u32(..20) {
            0..8 => vec![b("SELECT"), database],
            8..13 => vec![b("MOVE"), self.key(), database],
            13..18 => {
                let mut args = vec![b("COPY"), self.key(), self.key(), b("DB"), database];
                if self.one_in(2) {
                    args.push(b("REPLACE"));
                }
                args
            }
            18 if self.one_in(2) => self.swap_databases(),
            18 => words("FLUSHDB"),
            _ => vec![b("SELECT"), self.pick(&["16", "-1", "x", "4294967296", ""])],
        }
    }

    /// Returns an exchange of databases, if no watches can be there: an absent key that was deleted in one
    /// of two databases counts as changed by their exchange.
    fn swap_databases(&mut self) -> Args {
        match self.watches.contains(&true) || self.in_multi[self.connection] {
            true => words("FLUSHALL"),
            false => vec![b("SWAPDB"), self.pick(&DATABASES), self.pick(&DATABASES)],
        }
    }

    fn asking_when(&mut self) -> Args {
        let name = self.pick(&["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"]);
        vec![name, self.key()]
    }

    fn connection_command(&mut self) -> Args {
        match self.rng.u32(..6) {
            0 => words("PING"),
            1 => vec![b("ECHO"), self.value()],
            2 => vec![b("SELECT"), self.pick(&DATABASES)],
            3 => vec![b("PING"), self.value()],
            4 => vec![b("NOSUCH"), self.value(), self.key()],
            _ => words(["CLIENT GETNAME", "CLIENT NOSUCH", "GET", "SET a"][self.rng.usize(..4)]),
        }
    }

    fn watch(&mut self) -> Args {
        let mut args = words("WATCH");
        for _ in 0..self.rng.usize(1..4) {
            args.push(self.key());
        }
        args
    }

    fn set_options(&mut self, args: &mut Args) {
        for _ in 0..self.rng.usize(..3) {
            args.push(self.pick(&["NX", "XX", "GET", "KEEPTTL", "nx", "Xx", "get", "keepttl"]));
        }
        self.time_options(args);
        if self.one_in(10) {
            args.push(self.pick(&["NX", "XX", "GET", "KEEPTTL", "PERSIST", "QQ"]));
        }
    }

    fn time_options(&mut self, args: &mut Args) {
        match self.rng.u32(..12) {
            0 => args.extend([self.pick(&["EX", "ex"]), self.relative(1)]),
            1 => args.extend([self.pick(&["PX", "px"]), self.relative(1000)]),
            2 => args.extend([self.pick(&["EXAT", "exat"]), self.absolute(1)]),
            3 => args.extend([self.pick(&["PXAT", "pxat"]), self.absolute(1000)]),
            4 if self.one_in(4) => args.push(self.pick(&["EX", "PX", "EXAT", "PXAT"])),
            _ => {}
        }
    }

    fn key(&mut self) -> Vec<u8> {
        match self.rng.u32(..24) {
            0 => vec![],
            1 => b"k\x00\xff\r\n".to_vec(),
            2 => vec![b'k'; 300],
            3 => b("key with blanks"),
            4 => self.pick(&["hash0", "set1"]),
            n => vec![b'a' + (n % 8) as u8],
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.rng.u32(..16) {
            0 => vec![],
            1..4 => self.integer(),
            4 => self.fraction(),
            5 => self.pick(&[
                " 1", "1 ", "+1", "01", "-0", "1e2", "abc", "\0", "0x1f", "nan", "inf",
            ]),
            6 => (0..self.rng.usize(..60)).map(|_| self.rng.u8(..)).collect(),
            7 => vec![self.rng.u8(..); self.rng.usize(..3000)],
            _ => self.rng.u32(..1000).to_string().into_bytes(),
        }
    }

    fn integer(&mut self) -> Vec<u8> {
        match self.rng.u32(..16) {
            0 => b("9223372036854775807"),
            1 => b("-9223372036854775808"),
            2 => b("9223372036854775808"),
            3 => (i64::MAX - self.rng.i64(0..20)).to_string().into_bytes(),
            4 => (i64::MIN + self.rng.i64(0..20)).to_string().into_bytes(),
            5 => self.rng.i64(..).to_string().into_bytes(),
            6 => self.pick(&["0", "-1", "1", "-0", "+5", " 7", "1.5", "", "ten", "007"]),
            _ => self.rng.i64(-1000..1000).to_string().into_bytes(),
        }
    }

    /// Returns a fraction that is exact in binary, so that its sums are, too.
    fn fraction(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0 => self.pick(&[
                "1e3", "-1.5e2", "0.0", "-0.0", "3.0", ".5", "5.", "+2.5", "007",
            ]),
            1 => self.pick(&[
                "nan", "inf", "-inf", "1e5000", "abc", "", " 1.5", "1.5 ", "1,5",
            ]),
            _ => (f64::from(self.rng.i32(-5000..5000)) / 8.0)
                .to_string()
                .into_bytes(),
        }
    }

    fn position(&mut self) -> Vec<u8> {
        match self.rng.u32(..8) {
            0 => self.integer(),
            _ => self.rng.i64(-20..20).to_string().into_bytes(),
        }
    }

    fn offset(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0 => self.pick(&[
                "-1",
                "536870912",
                "9223372036854775807",
                "x",
                "1.0",
                "-0",
                "",
            ]),
            _ => self.rng.u32(..300).to_string().into_bytes(),
        }
    }

    fn relative(&mut self, unit: u64) -> Vec<u8> {
        match self.rng.u32(..12) {
            0 => self.pick(&[
                "0",
                "-1",
                "-5000",
                "9223372036854775807",
                "-9223372036854775808",
            ]),
            1 => self.pick(&["x", "", "1.5", " 10", "9223372036854775808"]),
            _ => {
                let s = RELATIVE_S + self.rng.u64(..RELATIVE_S * 10) * 10;
                (s * unit).to_string().into_bytes()
            }
        }
    }

    fn absolute(&mut self, unit: u64) -> Vec<u8> {
        match self.rng.u32(..12) {
            0 => self.pick(&[
                "0",
                "-1",
                "1",
                "9223372036854775807",
                "x",
                "9223372036854775",
            ]),
            _ => {
                let s = self.now_s + 1000 + self.rng.u64(..20) * 1000;
                (s * unit).to_string().into_bytes()
            }
        }
    }

    /// Drops, doubles, adds or replaces an argument; never with a number that could become a
    /// short time to live.
    fn malform(&mut self, args: &mut Args) {
        let at = self.rng.usize(..args.len());
        match self.rng.u32(..4) {
            0 if at > 0 => drop(args.remove(at)),
            1 => args.push(args[at.min(1)].clone()),
            2 => args.push(self.pick(&["junk", "-1", "", "NX", "1.5"])),
            _ if at > 0 => args[at] = self.pick(&["junk", "-1", "", "-0"]),
            _ => args.truncate(1),
        }
    }

    fn change_case(&mut self, name: &mut [u8]) {
        match self.rng.u32(..4) {
            0 => name.make_ascii_lowercase(),
            1 => name[0].make_ascii_lowercase(),
            _ => {}
        }
    }

    fn pick(&mut self, choices: &[&str]) -> Vec<u8> {
        b(choices[self.rng.usize(..choices.len())])
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }
}

/// Returns calls that read every key after the generated calls: the whole state, as far as it can
/// be observed.
pub(crate) fn state() -> Vec<Call> {
    let mut generator = Generator::new(0, 0);
    let mut keys: Vec<Vec<u8>> = (0..500).map(|_| generator.key()).collect();
    keys.extend(sorted_sets::KEYS.map(b));
    let collections = ["hash", "set"].iter();
    keys.extend(collections.flat_map(|kind| (0..4).map(move |n| b(&format!("{kind}{n}")))));
    keys.extend(["x", "y", "p", "q", "r"].map(b));
    // Malformed calls write these.
    keys.extend(["junk", "-1", "-0"].map(b));
    keys.sort();
    keys.dedup();
    keys.extend(lists::LISTS.map(b));
    let asked = ["GET", "TYPE", "PTTL", "STRLEN", "HGETALL", "SMEMBERS"];
    let each = keys.iter().flat_map(|key| {
        let members = vec![b("ZRANGE"), key.clone(), b("0"), b("-1"), b("WITHSCORES")];
        let elements = vec![b("LRANGE"), key.clone(), b("0"), b("-1")];
        let values = asked.map(|name| vec![b(name), key.clone()]);
        values.into_iter().chain([members, elements])
    });
    let each = each.chain(streams::state());
    let all = [vec![b("KEYS"), b("*")], vec![b("DBSIZE")]];
    // Every key has been accessed by now, so that Redis counts none that has expired.
    let of_one: Vec<Args> = each.chain(all).collect();
    let of_all = DATABASES.iter().flat_map(|database| {
        let select = vec![b("SELECT"), b(database)];
        std::iter::once(select).chain(of_one.clone())
    });
    of_all
        .map(|args| Call {
            connection: CONNECTIONS + 1,
            args,
        })
        .collect()
}

fn words(text: &str) -> Args {
    text.split(' ').map(b).collect()
}

fn b(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}
