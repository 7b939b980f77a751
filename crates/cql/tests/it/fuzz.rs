//! A bounded run of mutations of the corpus through the fuzzing entry points.

use kumiki_cql::fuzz::{fuzz_frames, fuzz_requests, fuzz_responses, fuzz_statements};
use testkit::files::corpus;

const ROUNDS: usize = 20_000;

/// Numbers at which lengths and counts often fail, in their form on the wire.
const NUMBERS: &[&[u8]] = &[
    &[0],
    &[0xff],
    &[0x7f],
    &[0, 0],
    &[0, 1],
    &[0xff, 0xff],
    &[0, 0, 0, 0],
    &[0, 0, 0, 1],
    &[0xff, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xfe],
    &[0x7f, 0xff, 0xff, 0xff],
    &[0x80, 0, 0, 0],
];

/// Words that turn a statement into another one.
const WORDS: &[&[u8]] = &[
    b" IF ",
    b" FROM ",
    b"?",
    b":a",
    b"'",
    b"\"",
    b"$$",
    b"/*",
    b"--",
    b";",
    b"(",
    b",",
    b" = ",
    b" AND ",
    b" WHERE k = 1 ",
    b"BEGIN BATCH ",
    b"INSERT INTO ",
    b" EXISTS ",
    b"-1",
    b".",
];

/// Changes an input in one to four places.
fn mutate(random: &mut fastrand::Rng, corpus: &[Vec<u8>], pieces: &[&[u8]]) -> Vec<u8> {
    let mut bytes = corpus[random.usize(..corpus.len())].clone();
    for _ in 0..random.usize(1..5) {
        let at = random.usize(..=bytes.len());
        let piece = pieces[random.usize(..pieces.len())];
        match random.u8(..7) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, piece.iter().copied())),
            2 if at < bytes.len() => bytes[at] = random.u8(..),
            3 => {
                let other = &corpus[random.usize(..corpus.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.usize(..=other.len())..]);
            }
            4 | 5 => {
                let end = (at + piece.len()).min(bytes.len());
                drop(bytes.splice(at..end, piece.iter().copied()));
            }
            _ => drop(bytes.drain(at..(at + random.usize(..8)).min(bytes.len()))),
        }
    }
    bytes
}

fn run(name: &str, seed: u64, pieces: &[&[u8]], entry: fn(&[u8])) {
    let corpus = corpus(env!("CARGO_MANIFEST_DIR"), name);
    corpus.iter().for_each(|bytes| entry(bytes));
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..ROUNDS {
        entry(&mutate(&mut random, &corpus, pieces));
    }
}

#[test]
fn mutated_frames_break_no_promise() {
    run("frames", 0x6672, NUMBERS, fuzz_frames);
}

#[test]
fn mutated_requests_break_no_promise() {
    run("requests", 0x7265, NUMBERS, fuzz_requests);
}

#[test]
fn mutated_responses_break_no_promise() {
    run("responses", 0x7370, NUMBERS, fuzz_responses);
}

#[test]
fn mutated_statements_break_no_promise() {
    run("statements", 0x7374, WORDS, fuzz_statements);
}
