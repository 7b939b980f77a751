//! Messages as bytes: every message arrives as it was sent, and malformed bytes do no harm.

use std::path::Path;

use base::Op;
use fastrand::Rng;
use kumiki_cluster::codec::{
    self, MalformedKind, decode, decode_ops, decode_participant_list, encode, encode_ops,
    encode_participant_list,
};
use kumiki_cluster::fuzz::fuzz_messages;
use kumiki_cluster::message::{Answer, Message, Request};

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes
}

#[test]
fn messages_come_back_as_they_were() {
    for seed in 0..20_000 {
        let mut random = Rng::with_seed(seed);
        let pool = crate::support::bytes(&mut random, 4);
        let message = crate::support::message(&mut random, &pool);
        let bytes = encoded(&message);
        assert_eq!(decode(&bytes).as_ref(), Ok(&message), "seed {seed}");
    }
}

#[test]
fn a_message_that_is_cut_or_too_long_is_refused() {
    for seed in 0..2000 {
        let mut random = Rng::with_seed(seed);
        let pool = crate::support::bytes(&mut random, 3);
        let mut bytes = encoded(&crate::support::message(&mut random, &pool));
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "seed {seed}, {len} bytes");
        }
        bytes.push(0);
        assert!(decode(&bytes).is_err(), "seed {seed}: a byte more");
    }
}

#[test]
fn mutated_messages_do_no_harm() {
    for seed in 0..50_000 {
        let mut random = Rng::with_seed(seed);
        let pool = crate::support::bytes(&mut random, 3);
        let mut bytes = encoded(&crate::support::message(&mut random, &pool));
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            bytes[at] = match random.u8(..3) {
                0 => 0xFF,
                1 => bytes[at] ^ 1 << random.u32(..8),
                _ => random.u8(..),
            };
        }
        fuzz_messages(&bytes);
    }
}

#[test]
fn every_operation_comes_back_and_borrows() {
    let mut random = Rng::with_seed(5);
    for round in 0..200 {
        let pool = crate::support::bytes(&mut random, 3);
        let drawn =
            (0..crate::support::OPS).map(|which| crate::support::op(&mut random, which, &pool));
        let ops: Vec<Op<'_>> = drawn.collect();
        let mut bytes = Vec::new();
        encode_ops(&ops, &mut bytes);
        let back = decode_ops(&bytes).unwrap();
        assert_eq!(back, ops, "round {round}");
        let input = bytes.as_ptr_range();
        for key in back
            .iter()
            .filter_map(Op::key)
            .filter(|key| !key.is_empty())
        {
            assert!(
                input.contains(&key.as_ptr()),
                "keys are slices of the input"
            );
        }
    }
}

#[test]
fn rolls_come_back() {
    let mut random = Rng::with_seed(6);
    for _ in 0..1000 {
        let participant_list = crate::support::participant_list(&mut random);
        let mut bytes = Vec::new();
        encode_participant_list(&participant_list, &mut bytes);
        assert_eq!(
            decode_participant_list(&bytes).as_ref(),
            Ok(&participant_list)
        );
        assert!((0..bytes.len()).all(|len| decode_participant_list(&bytes[..len]).is_err()));
    }
    let homeless = [1, 9, 0, 1, 8, 0];
    assert_eq!(
        decode_participant_list(&homeless).unwrap_err().kind,
        MalformedKind::NoHome
    );
}

/// Checks the size of an encoding, so that it does not change by accident.
#[test]
fn a_small_request_takes_few_bytes() {
    let ops = vec![Op::Get { key: b"a" }, Op::put(b"b", b"12")];
    let request = Request::Execute { ops };
    let bytes = encoded(&Message::Request { number: 7, request });
    let head = [codec::VERSION, 1, 7, 0, 0, 0, 0, 0, 0, 0];
    let body = [2, 4, 1, b'a', 13, 0, 1, b'b', 2, b'1', b'2'];
    assert_eq!(bytes, [&head[..], &body].concat());
}

#[test]
fn another_version_is_named() {
    let mut bytes = encoded(&Message::Reply {
        number: 1,
        reply: Answer::Done,
    });
    bytes[0] = codec::VERSION + 1;
    let error = decode(&bytes).unwrap_err();
    assert_eq!(error.kind, MalformedKind::Version(codec::VERSION + 1));
    assert!(error.to_string().contains("same release"), "{error}");
}

#[test]
fn claims_of_many_things_are_refused_before_memory_is_asked_for() {
    // Replies, whose count is given as 2^62.
    let mut bytes = vec![codec::VERSION, 32, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend([0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40]);
    assert_eq!(decode(&bytes).unwrap_err().kind, MalformedKind::Cut);
    // A count in more bytes than it needs.
    let padded = [codec::VERSION, 37, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x00];
    assert_eq!(decode(&padded).unwrap_err().kind, MalformedKind::BadCount);
}

/// The corpus is what the encoder writes; it is written again when the encoding changes.
#[test]
fn the_corpus_is_of_this_encoding() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/messages");
    for seed in 0..24 {
        let mut random = Rng::with_seed(seed);
        let pool = crate::support::bytes(&mut random, 3);
        let bytes = encoded(&crate::support::message(&mut random, &pool));
        let path = corpus.join(format!("message{seed:02}"));
        let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join(path.file_name().unwrap());
        std::fs::write(&new, &bytes).unwrap();
        let there = std::fs::read(&path).unwrap_or_default();
        let (path, new) = (path.display(), new.display());
        assert!(
            there == bytes,
            "{path} is out of date; {new} is what it should be"
        );
    }
}
