//! Batches of writes, and the meaning of answers to batches.

use cql::request::RequestMessage;
use cql::response::{Failures, INVALID, UNPREPARED};
use cql::{Bound, HEADER_LEN, Limits, ValueList};
use std::time::Duration;

use super::*;
use crate::runtime::query::{ClientId, ConnectionKey};

/// An EXECUTE of a write.
#[derive(Clone, Copy)]
struct Write {
    part: u32,
    consistency: Consistency,
    timestamp: Option<i64>,
    len: usize,
}

const ONE: Write = Write {
    part: 1 << KEY_BITS,
    consistency: Consistency::One,
    timestamp: None,
    len: 10,
};

fn query(number: u64, write: Write, version: Version) -> BackendQuery {
    let mut values = ValueList::new();
    let value = [number.to_be_bytes().to_vec(), vec![7; write.len]].concat();
    values.push(Bound::Bytes(&value));
    let mut parameters = Parameters::new(write.consistency, values.values(version));
    parameters.timestamp = write.timestamp;
    let execute = Execute {
        id: b"id",
        result_metadata_id: (version == Version::V5).then_some(b"columns"),
        parameters,
    };
    let mut bytes = Vec::new();
    let message = Request::Execute(execute).into_message();
    message.write(&mut bytes, version, StreamId(3), Flags::default());
    BackendQuery {
        client: ClientId {
            place: 0,
            thread: 0,
            number: 0,
        },
        sequence: number,
        part: write.part,
        node: NodeIndex(0),
        connection_key: ConnectionKey(0),
        bytes: bytes.into(),
        connection: None,
        replies: 1,
        waits: false,
        safe: false,
        route: 3,
        since: Duration::ZERO,
        retries: 0,
    }
}

/// Returns which writes are sent together.
fn together(writes: &[Write], version: Version) -> Vec<Vec<u64>> {
    let queries = writes.iter().zip(0..);
    let queries = queries.map(|(write, number)| query(number, *write, version));
    let mut all: Vec<Vec<u64>> = Vec::new();
    for parcel in parcels(queries.collect(), version) {
        let queries = match parcel {
            Outgoing::Alone(query) => vec![query],
            Outgoing::Together(queries, batch) => {
                check(&queries, &batch);
                queries
            }
        };
        all.push(queries.iter().map(|query| query.sequence).collect());
    }
    all.sort();
    all
}

/// Checks that a batch has what its writes have.
fn check(queries: &[BackendQuery], batch: &Bytes) {
    let whole = Envelope::split(batch, Direction::Request, &Limits::default());
    let whole = whole.expect("CQL").expect("an envelope");
    let message = RequestMessage::decode(whole).expect("CQL");
    let Request::Batch(batch) = message.request else {
        panic!("{message:?}");
    };
    assert_eq!(batch.kind, BatchKind::Unlogged);
    assert_eq!(batch.statements.len(), queries.len());
    for (statement, query) in batch.statements.iter().zip(queries) {
        let execute = execute_of(query).expect("CQL");
        assert_eq!(statement.statement, Part::Prepared(execute.id));
        assert_eq!(statement.values, execute.parameters.values);
        let (one, all) = (execute.parameters, batch.parameters);
        assert_eq!(one.consistency, all.consistency);
        assert_eq!(one.timestamp, all.timestamp);
    }
}

#[test]
fn writes_that_agree_are_sent_together() {
    let key = |key: u32| Write {
        part: 1 << KEY_BITS | key,
        ..ONE
    };
    for version in [Version::V4, Version::V5] {
        let expected = [vec![0, 1, 2]];
        assert_eq!(together(&[key(0), key(1), key(2)], version), expected);
        // A second write of the same key goes into the next batch.
        let twice = [key(0), key(0), key(1), key(1)];
        assert_eq!(together(&twice, version), [vec![0, 2], vec![1, 3]]);
        let others = [
            Write {
                part: 2 << KEY_BITS | 5,
                ..ONE
            },
            Write {
                consistency: Consistency::Quorum,
                ..key(6)
            },
            Write {
                timestamp: Some(7),
                ..key(7)
            },
            Write {
                timestamp: Some(8),
                ..key(8)
            },
            Write {
                timestamp: Some(8),
                ..key(9)
            },
            ONE,
        ];
        let expected = [vec![0], vec![1], vec![2], vec![3, 4], vec![5]];
        assert_eq!(together(&others, version), expected);
    }
}

#[test]
fn batches_are_small() {
    let write = |key: u32, len| Write {
        part: 1 << KEY_BITS | key,
        len,
        ..ONE
    };
    let many: Vec<Write> = (0..25).map(|key| write(key, 10)).collect();
    let lens: Vec<usize> = together(&many, Version::V5).iter().map(Vec::len).collect();
    assert_eq!(lens, [MOST, MOST, 5]);
    let long: Vec<Write> = (0..5).map(|key| write(key, 1500)).collect();
    let lens: Vec<usize> = together(&long, Version::V5).iter().map(Vec::len).collect();
    assert_eq!(lens, [2, 2, 1]);
    let longer = [write(0, 9000), write(1, 9000)];
    assert_eq!(together(&longer, Version::V4), [[0], [1]]);
}

#[test]
fn random_writes_are_all_sent_once_and_agree() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let writes: Vec<Write> = (0..random.usize(..60))
            .map(|_| Write {
                part: random.u32(1..3) << KEY_BITS | random.u32(..20),
                consistency: random
                    .choice([Consistency::One, Consistency::All])
                    .expect("two"),
                timestamp: random.bool().then(|| random.i64(..2)),
                len: random.usize(..1000),
            })
            .collect();
        let all = together(&writes, Version::V4);
        let mut seen: Vec<u64> = all.iter().flatten().copied().collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..writes.len() as u64), "seed {seed}");
        for group in all {
            let of = |number: &u64| writes[*number as usize];
            let first = of(&group[0]);
            let mut keys = std::collections::BTreeSet::new();
            for write in group.iter().map(of) {
                assert_eq!(write.part >> KEY_BITS, first.part >> KEY_BITS);
                assert_eq!(
                    (write.consistency, write.timestamp),
                    (first.consistency, first.timestamp)
                );
                assert!(keys.insert(write.part), "a key twice, seed {seed}");
            }
        }
    }
}

fn meaning_of(response: Response<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let message = ResponseMessage {
        warnings: Some(vec!["the batch is large"]),
        ..response.into_message()
    };
    message.write(&mut bytes, Version::V5, StreamId(9));
    let bytes = Bytes::from(bytes);
    let header = header_of(&bytes, Direction::Response).expect("an envelope");
    let body = &bytes[HEADER_LEN..];
    match meaning(Envelope { header, body }, &bytes) {
        BatchOutcome::Each(bytes) => Some(bytes.to_vec()),
        BatchOutcome::Again => None,
    }
}

fn written(response: Response<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    response.write(&mut bytes, Version::V5, StreamId(0));
    Some(bytes)
}

#[test]
fn what_a_batch_is_answered_each_write_is_answered() {
    let void = || Response::Result(ResultBody::Void);
    assert_eq!(meaning_of(void()), written(void()), "no warnings");
    let consistency = Consistency::Quorum;
    let timeout = |write| ErrorKind::WriteTimeout {
        consistency,
        received: 1,
        required: 2,
        write,
        contentions: None,
    };
    let failure = |write| ErrorKind::WriteFailure {
        consistency,
        received: 1,
        required: 2,
        failures: Failures {
            count: 1,
            reasons: Vec::new(),
        },
        write,
    };
    let error = |kind| {
        Response::Error(ErrorBody {
            message: "no",
            kind,
        })
    };
    let told = meaning_of(error(timeout("UNLOGGED_BATCH")));
    assert_eq!(told, written(error(timeout("SIMPLE"))));
    let told = meaning_of(error(failure("UNLOGGED_BATCH")));
    assert_eq!(told, written(error(failure("SIMPLE"))));
    let unavailable = || ErrorKind::Unavailable {
        consistency,
        required: 2,
        alive: 1,
    };
    assert_eq!(
        meaning_of(error(unavailable())),
        written(error(unavailable()))
    );
    for code in [OVERLOADED, SERVER_ERROR] {
        let kind = || ErrorKind::Plain(code);
        assert_eq!(meaning_of(error(kind())), written(error(kind())));
    }
    // One of them was wrong, or is unknown: nothing has happened.
    assert_eq!(meaning_of(error(ErrorKind::Plain(INVALID))), None);
    let kind = ErrorKind::Unprepared { id: b"id" };
    assert_eq!(kind.code(), UNPREPARED);
    assert_eq!(meaning_of(error(kind)), None);
}
