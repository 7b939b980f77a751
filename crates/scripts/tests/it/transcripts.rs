//! Transcripts of Redis 7.0.15: a line `> ` with a script, and a line `< ` with its reply, escaped.
//! Each script had an interpreter of its own, the keys `k1` and `k2`, and the argument `a1`.

use resp::Protocol;

use crate::host::{interpreter, outcome};

fn check(transcript: &str) {
    let lines: Vec<&str> = transcript.lines().collect();
    for pair in lines.chunks(2) {
        let [script, reply] = pair else {
            panic!("a script without a reply: {pair:?}");
        };
        let script = script.strip_prefix("> ").expect("a script");
        let expected = reply.strip_prefix("< ").expect("a reply");
        let reply = outcome(&mut interpreter(64 << 20), script, Protocol::Resp2).reply;
        assert_eq!(reply.escape_ascii().to_string(), expected, "{script}");
    }
}

#[test]
fn base() {
    check(include_str!("transcripts/base.txt"));
}

#[test]
fn bit() {
    check(include_str!("transcripts/bit.txt"));
}

#[test]
fn cjson() {
    check(include_str!("transcripts/cjson.txt"));
}

#[test]
fn cmsgpack() {
    check(include_str!("transcripts/cmsgpack.txt"));
}

#[test]
fn structs() {
    check(include_str!("transcripts/struct.txt"));
}

#[test]
fn string() {
    check(include_str!("transcripts/string.txt"));
}
