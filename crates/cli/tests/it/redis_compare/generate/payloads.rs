//! Calls of `RESTORE`.

use super::{Args, Generator, RELATIVE_S, b};

/// Values as `DUMP` answers them: texts, numbers of each size, compressed; collections; two are malformed.
const PAYLOADS: [&[u8]; 13] = [
    b"\x00\x00\x0a\x00]\x9b\x5c@\x0f\x7f\xa2\xda",
    b"\x00\x01x\x0a\x00\x22\x80\x86_\xbd\xe8H\xd0",
    b"\x00\xc0\xff\x0a\x00\x0c\x93~$\x85\x08\x9d\xc5",
    b"\x00\xc1\x00\x80\x0a\x00\xb5@\x06GS\xbb\x1a\xce",
    b"\x00\xc2\x00\x00\x00\x80\x0a\x00\xc7O\x87>3U\x81\x87",
    b"\x00\xc3\x04\x04\x00a \x00\x0a\x00,\xaf\x0e\xa3_\xc2#$",
    b"\x10\x12\x12\x00\x00\x00\x04\x00\x81f\x02\x81v\x02\x81n\x02\x05\x01\xff\x0a\x00\x84\x90\x93\x9fW\xb4\xf3\xc2",
    b"\x12\x01\x02\x0f\x0f\x00\x00\x00\x04\x00\x03\x01\x01\x01\x14\x01\x02\x01\xff\x0a\x00+\xcc\x88\xbc\xcep\x89\x7f",
    b"\x12\x01\x02\x10\x10\x00\x00\x00\x03\x00\x81b\x02\x81c\x02\x81a\x02\xff\x0a\x00\x1a\x916\x88t\x97\xfc\xaf",
    b"\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\x01\x00\x02\x00\x03\x00\x0a\x00\xa5\x02\x5c\xe2mnM\x1b",
    b"\x11\x19\x19\x00\x00\x00\x06\x00\x81c\x02\x01\x01\x81b\x02\x832.5\x04\x81a\x02\x03\x01\xff\x0a\x00\x91\xbc\x13\x9a\xaa\x94\xca\x1d",
    b"\xff\x0a\x00\xc9H\x85\x1cr'<\x17",
    b"\x00\xc4\x0a\x00\xac\xb0\xf0\xa3\xc8\xb0X[",
];

impl Generator {
    pub(super) fn restoring(&mut self, key: Vec<u8>) -> Args {
        let mut payload = PAYLOADS[self.rng.usize(..PAYLOADS.len())].to_vec();
        if self.one_in(8) {
            let at = self.rng.usize(..payload.len());
            payload[at] = self.rng.u8(..);
        }
        let mut args = vec![b("RESTORE"), key];
        if self.rng.bool() {
            args.extend([b("0"), payload]);
        } else if self.rng.bool() {
            let ms = (self.now_s + self.rng.u64(1..20) * 1000) * 1000;
            args.extend([b(&ms.to_string()), payload, b("ABSTTL")]);
        } else {
            let ms = (RELATIVE_S + self.rng.u64(..RELATIVE_S * 10) * 10) * 1000;
            args.extend([b(&ms.to_string()), payload]);
        }
        for _ in 0..self.rng.usize(..3) {
            args.push(self.pick(&["REPLACE", "replace", "REPLACE", "NX"]));
        }
        if self.one_in(10) {
            args.extend([self.pick(&["IDLETIME", "FREQ"]), self.integer()]);
        }
        args
    }
}
