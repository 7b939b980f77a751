//! Calls on streams. Ids are given, because those of the time differ between two servers; what depends on the
//! time of a delivery is not asked for.

use super::{Args, Generator, b};

/// Keys that only these calls write.
const STREAMS: [&str; 2] = ["stream1", "stream2"];
const GROUPS: [&str; 3] = ["g", "h", "nogroup"];
const CONSUMERS: [&str; 3] = ["alice", "bob", "carol"];

impl Generator {
    pub(super) fn on_streams(&mut self) -> Args {
        let key = self.stream();
        let mut args = match self.rng.u32(..20) {
            0..7 => self.adding_entries(key),
            7..9 => self.range_of_entries(key),
            9 => self.entries_behind(),
            10 => vec![b("XLEN"), key],
            11 => vec![b("XINFO"), b("STREAM"), key],
            12 => {
                let mut args = vec![b("XTRIM"), key];
                self.trim(&mut args);
                args
            }
            13 => vec![b("XDEL"), key, self.some_id(), self.some_id()],
            14 => return self.of_groups(key),
            _ => return self.of_consumers(key),
        };
        if self.one_in(20) {
            args.push(self.pick(&["COUNT", "x", "MAXLEN", "*"]));
        }
        args
    }

    /// Returns a stream, or another key.
    fn stream(&mut self) -> Vec<u8> {
        self.pick(&STREAMS)
    }

    /// Returns an id near those of the last entries.
    fn some_id(&mut self) -> Vec<u8> {
        let ms = self.last_ms.saturating_sub(self.rng.u64(..30));
        match self.rng.u32(..12) {
            0 => self.pick(&["0", "0-0", "x", "5-x", "", "1-1-1", "18446744073709551616"]),
            1..4 => b(&format!("{ms}-{}", self.rng.u32(..3))),
            _ => b(&ms.to_string()),
        }
    }

    fn end_of_interval(&mut self) -> Vec<u8> {
        match self.rng.u32(..6) {
            0 => b("-"),
            1 => b("+"),
            2 => [b("("), self.some_id()].concat(),
            _ => self.some_id(),
        }
    }

    fn adding_entries(&mut self, key: Vec<u8>) -> Args {
        let mut args = vec![b("XADD"), key];
        if self.one_in(5) {
            args.push(b("NOMKSTREAM"));
        }
        if self.one_in(3) {
            self.trim(&mut args);
        }
        self.last_ms += self.rng.u64(..3);
        let ms = self.last_ms;
        args.push(match self.rng.u32(..8) {
            0 => self.some_id(),
            1..5 => b(&format!("{ms}-*")),
            _ => b(&format!("{ms}-{}", self.rng.u32(..4))),
        });
        for _ in 0..self.rng.usize(1..3) {
            let field = self.pick(&["f", "g", "", "a longer name"]);
            args.extend([field, b(&self.rng.u32(..2000).to_string())]);
        }
        // Two such entries make a large stream. Each is a node, in both servers.
        if ms.is_multiple_of(16) {
            args.extend([b("long"), b(&"v".repeat(4100))]);
        }
        args
    }

    fn trim(&mut self, args: &mut Args) {
        args.push(self.pick(&["MAXLEN", "MINID", "maxlen"]));
        if self.one_in(2) {
            args.push(self.pick(&["~", "=", "~"]));
        }
        args.push(match args.contains(&b("MINID")) {
            true => self.some_id(),
            false => b(&self.rng.u32(..60).to_string()),
        });
        if self.one_in(6) {
            args.extend([b("LIMIT"), self.pick(&["0", "1", "100", "-1", "x"])]);
        }
    }

    fn range_of_entries(&mut self, key: Vec<u8>) -> Args {
        let name = self.pick(&["XRANGE", "XREVRANGE"]);
        let mut args = vec![name, key, self.end_of_interval(), self.end_of_interval()];
        self.count(&mut args);
        args
    }

    fn count(&mut self, args: &mut Args) {
        if self.one_in(2) {
            args.extend([b("COUNT"), self.pick(&["0", "1", "3", "10", "-1"])]);
        }
    }

    fn entries_behind(&mut self) -> Args {
        let mut args = vec![b("XREAD")];
        self.count(&mut args);
        args.push(b("STREAMS"));
        let keys = self.rng.usize(1..3);
        args.extend((0..keys).map(|at| b(STREAMS[at])));
        for _ in 0..keys {
            let id = self.some_id();
            args.push(if self.one_in(10) { b("$") } else { id });
        }
        args
    }

    fn of_groups(&mut self, key: Vec<u8>) -> Args {
        let group = self.pick(&GROUPS[..2]);
        match self.rng.u32(..8) {
            0 => vec![b("XGROUP"), b("DESTROY"), key, group],
            1 => vec![b("XGROUP"), b("SETID"), key, group, self.some_id()],
            2 => vec![
                b("XGROUP"),
                b("DELCONSUMER"),
                key,
                group,
                self.pick(&CONSUMERS),
            ],
            _ => {
                let mut args = vec![b("XGROUP"), b("CREATE"), key, group];
                let id = self.some_id();
                args.push(if self.one_in(2) { b("$") } else { id });
                if self.one_in(2) {
                    args.push(b("MKSTREAM"));
                }
                args
            }
        }
    }

    fn of_consumers(&mut self, key: Vec<u8>) -> Args {
        let group = self.pick(&GROUPS);
        let consumer = self.pick(&CONSUMERS);
        match self.rng.u32(..10) {
            0..4 => {
                let mut args = vec![b("XREADGROUP"), b("GROUP"), group, consumer];
                self.count(&mut args);
                if self.one_in(6) {
                    args.push(b("NOACK"));
                }
                let id = self.some_id();
                let id = if self.one_in(3) { id } else { b(">") };
                args.extend([b("STREAMS"), key, id]);
                args
            }
            4..6 => vec![b("XACK"), key, group, self.some_id(), self.some_id()],
            6 => vec![b("XPENDING"), key, group],
            7 => {
                let start = self.end_of_interval();
                vec![
                    b("XAUTOCLAIM"),
                    key,
                    group,
                    consumer,
                    b("0"),
                    start,
                    b("COUNT"),
                    b("3"),
                ]
            }
            _ => {
                let (first, second) = (self.some_id(), self.some_id());
                let mut args = vec![b("XCLAIM"), key, group, consumer, b("0"), first, second];
                for _ in 0..self.rng.usize(..3) {
                    args.push(self.pick(&["FORCE", "JUSTID", "force", "justid", "junk"]));
                }
                args
            }
        }
    }
}

/// Returns calls that read every stream.
pub(super) fn state() -> Vec<Args> {
    let of_key = |key: &&str| {
        let of_group = GROUPS.map(|group| vec![b("XPENDING"), b(key), b(group)]);
        let range = vec![b("XRANGE"), b(key), b("-"), b("+")];
        let info = vec![b("XINFO"), b("STREAM"), b(key)];
        of_group.into_iter().chain([range, info])
    };
    STREAMS.iter().flat_map(of_key).collect()
}
