//! Calls of `SORT`, and of HyperLogLogs.

use super::{Args, Generator, b};

/// Keys that only the calls on HyperLogLogs write: their payloads are compressed in more than one way.
const HYPER_LOG_LOGS: [&str; 3] = ["p", "q", "r"];

impl Generator {
    pub(super) fn computing(&mut self) -> Args {
        match self.rng.bool() {
            true => self.sorting(),
            false => self.estimating(),
        }
    }

    fn sorting(&mut self) -> Args {
        let mut args = vec![self.pick(&["SORT", "SORT", "SORT_RO"]), self.key()];
        // The order of elements with equal weights that are texts is not the same everywhere.
        match self.rng.u32(..4) {
            0 => args.push(b("ALPHA")),
            1 => args.extend([b("BY"), self.pick(&["*", "nosort", "k*", "*->f"])]),
            _ => {}
        }
        if self.one_in(3) {
            args.push(self.pick(&["DESC", "asc", "QQ"]));
        }
        if self.one_in(4) {
            args.extend([b("LIMIT"), self.position(), self.position()]);
        }
        match self.rng.u32(..4) {
            0 => args.extend([b("STORE"), self.key()]),
            1 => args.extend([b("GET"), self.pick(&["#", "*", "*->n", "none"])]),
            _ => {}
        }
        args
    }

    fn estimating(&mut self) -> Args {
        let key = self.pick(&HYPER_LOG_LOGS);
        match self.rng.u32(..16) {
            0 => vec![b("DEL"), key],
            1 => vec![b("GET"), key],
            2 => vec![b("PFMERGE"), key, self.pick(&HYPER_LOG_LOGS), self.key()],
            3..5 => vec![b("PFCOUNT"), key],
            5 => vec![b("PFCOUNT"), key, self.pick(&HYPER_LOG_LOGS)],
            6 => vec![
                b("PFDEBUG"),
                self.pick(&["DECODE", "ENCODING", "TODENSE"]),
                key,
            ],
            7 => vec![b("PFADD"), self.key(), self.value()],
            _ => {
                let mut args = vec![b("PFADD"), key];
                args.extend((0..self.rng.usize(..200)).map(|_| self.value()));
                args
            }
        }
    }
}
