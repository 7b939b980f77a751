//! A bounded run of mutations of the corpus through the fuzzing entry points.

use kumiki_resp::fuzz::{fuzz_replies, fuzz_requests, parse_in_pieces};
use kumiki_resp::{Limits, command};
use testkit::files::corpus;

const ROUNDS: usize = 20_000;

/// Changes an input in one to four places, often at boundaries of the grammar.
fn mutate(random: &mut fastrand::Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    const JOINTS: &[&[u8]] = &[
        b"\r\n",
        b"*",
        b"$",
        b"-1",
        b"0",
        b"9999999999",
        b"\"",
        b"'",
        b"\\x",
        b"%",
        b"\n",
        b" ",
    ];
    let mut bytes = corpus[random.usize(..corpus.len())].clone();
    for _ in 0..random.usize(1..5) {
        let at = random.usize(..=bytes.len());
        match random.u8(..5) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, JOINTS[random.usize(..JOINTS.len())].iter().copied())),
            2 if at < bytes.len() => bytes[at] = random.u8(..),
            3 => {
                let other = &corpus[random.usize(..corpus.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.usize(..=other.len())..]);
            }
            _ => drop(bytes.drain(at..(at + random.usize(..8)).min(bytes.len()))),
        }
    }
    bytes
}

#[test]
fn mutated_requests_break_no_promise() {
    let corpus = corpus(env!("CARGO_MANIFEST_DIR"), "requests");
    corpus.iter().for_each(|bytes| fuzz_requests(bytes));
    let mut random = fastrand::Rng::with_seed(0x6b75_6d69);
    for _ in 0..ROUNDS {
        fuzz_requests(&mutate(&mut random, &corpus));
    }
}

#[test]
fn mutated_replies_break_no_promise() {
    let corpus = corpus(env!("CARGO_MANIFEST_DIR"), "replies");
    corpus.iter().for_each(|bytes| fuzz_replies(bytes));
    let mut random = fastrand::Rng::with_seed(0x6b69);
    for _ in 0..ROUNDS {
        fuzz_replies(&mutate(&mut random, &corpus));
    }
}

#[test]
fn random_commands_survive_random_pieces() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..random.usize(1..20) {
            let args: Vec<Vec<u8>> = (0..random.usize(1..6))
                .map(|_| (0..random.usize(..200)).map(|_| random.u8(..)).collect())
                .collect();
            command::write_command(
                &mut bytes,
                &args.iter().map(Vec::as_slice).collect::<Vec<_>>(),
            );
            expected.push(args);
        }
        let cuts: Vec<usize> = (0..random.usize(..30))
            .map(|_| random.usize(..bytes.len()))
            .collect();
        let parsed = parse_in_pieces(&bytes, &cuts, &Limits::default());
        assert_eq!(parsed, (expected, None));
    }
}
