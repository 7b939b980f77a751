//! Fragments as bytes: an encoded fragment is decoded, and arbitrary bytes do no harm.

use std::path::Path;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use fastrand::Rng;
use kumiki_operators::codec::{self, CodecError};
use kumiki_operators::{
    Aggregate, Expr, Fragment, FragmentWork, Function, Operator, RowRange, Scalar, SortKey, Value,
    fuzz,
};

use crate::reference::generate;

fn exprs(random: &mut Rng, most: usize) -> Vec<Expr> {
    let types = generate::columns();
    let one = |random: &mut Rng| {
        let data_type = types[random.usize(0..types.len())].clone();
        generate::expr(random, &data_type, 4)
    };
    (0..random.usize(0..=most)).map(|_| one(random)).collect()
}

fn fragment(random: &mut Rng) -> Fragment {
    let work = if random.bool() {
        let keys = exprs(random, 3);
        let key = |expr| SortKey {
            expr,
            descending: random.bool(),
            nulls_first: random.bool(),
        };
        FragmentWork::Rows {
            order: keys.into_iter().map(key).collect(),
            project: exprs(random, 3),
            limit: random.bool().then(|| random.u64(..)),
        }
    } else {
        let functions = [
            Function::Count,
            Function::Sum,
            Function::Min,
            Function::Max,
            Function::Avg,
        ];
        let aggregate = |random: &mut Rng| Aggregate {
            function: functions[random.usize(0..functions.len())],
            of: exprs(random, 1).pop(),
            filter: exprs(random, 1).pop(),
        };
        FragmentWork::Aggregate {
            aggregates: (0..random.usize(0..4)).map(|_| aggregate(random)).collect(),
            by: exprs(random, 3),
        }
    };
    let mut types = generate::columns();
    types.push(DataType::Timestamp(
        TimeUnit::Microsecond,
        Some("UTC".into()),
    ));
    types.push(DataType::Timestamp(TimeUnit::Second, None));
    types.push(DataType::Decimal64(18, -2));
    types.push(DataType::Binary);
    let fields: Vec<Field> = types
        .iter()
        .map(|t| Field::new(format!("é{t}"), t.clone(), random.bool()))
        .collect();
    Fragment {
        columns: (0..random.usize(0..20))
            .map(|_| random.usize(0..1000))
            .collect(),
        filter: exprs(random, 1).pop(),
        work,
        output: Arc::new(Schema::new(fields)),
    }
}

/// Compares as text, so that NaN equals NaN.
fn same(a: &Fragment, b: &Fragment) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

#[test]
fn what_is_encoded_is_decoded() {
    for seed in 0..150 {
        let mut random = Rng::with_seed(seed);
        let fragment = fragment(&mut random);
        let bytes = codec::encode(&fragment).expect("bytes");
        let found = codec::decode(&bytes).expect("a fragment");
        assert!(same(&found, &fragment), "seed {seed}");
        for len in 0..bytes.len() {
            assert!(
                codec::decode(&bytes[..len]).is_err(),
                "seed {seed}: {len} bytes"
            );
        }
    }
}

#[test]
fn changed_bytes_are_no_danger() {
    for seed in 0..2000 {
        let mut random = Rng::with_seed(seed);
        let mut bytes = codec::encode(&fragment(&mut random)).expect("bytes");
        for _ in 0..random.usize(1..4) {
            let at = random.usize(5..bytes.len());
            match random.u8(0..4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, random.u8(..)),
                2 => _ = bytes.remove(at),
                _ => bytes[at] = random.u8(..),
            }
            if bytes.len() < 6 {
                break;
            }
        }
        fuzz::fuzz_fragments(&bytes);
        fuzz::fuzz_rows(&bytes);
    }
}

#[test]
fn fragments_that_run_are_fuzzed_too() {
    let literal = |value| {
        Expr::Literal(Scalar {
            data_type: DataType::Int64,
            value: Value::Int(value),
        })
    };
    let sum = Expr::Binary(
        Box::new(Expr::Column(0)),
        Operator::Plus,
        Box::new(literal(1)),
    );
    let fragment = Fragment {
        columns: vec![0],
        filter: Some(Expr::IsNotNull(Box::new(Expr::Column(0)))),
        work: FragmentWork::Rows {
            project: vec![sum],
            order: vec![],
            limit: None,
        },
        output: Arc::new(Schema::new(vec![Field::new("c", DataType::Int64, true)])),
    };
    let bytes = codec::encode(&fragment).expect("bytes");
    fuzz::fuzz_fragments(&bytes);
    for at in 5..bytes.len() {
        for byte in 0..=255 {
            let mut changed = bytes.clone();
            changed[at] = byte;
            fuzz::fuzz_fragments(&changed);
        }
    }
}

#[test]
fn deep_nesting_and_absurd_counts_are_refused() {
    let header = [b"KFRG".as_slice(), &[1, 0, 1]].concat();
    // Not of not of not…
    let nested = [header.clone(), vec![3; 100_000]].concat();
    assert_eq!(
        codec::decode(&nested),
        Err(CodecError::TooLarge("an expression is nested too deeply"))
    );
    // A CASE of more branches than there are atoms.
    let many = [header.clone(), vec![10], vec![0xFF; 17], vec![3]].concat();
    assert!(codec::decode(&many).is_err());
    // A list of values that do not exist.
    let list = [header, vec![9, 0, 0, 0xFF, 0x1F, 0]].concat();
    assert!(codec::decode(&list).is_err());
    let other = [b"KFRG".as_slice(), &[2]].concat();
    assert_eq!(codec::decode(&other), Err(CodecError::Version(2)));
    assert!(codec::decode(&vec![0; codec::BYTES + 1]).is_err());
}

#[test]
fn fragments_that_are_too_deep_are_not_sent() {
    let mut expr = Expr::Column(0);
    for _ in 0..64 {
        expr = Expr::Not(Box::new(expr));
    }
    let fragment = Fragment {
        columns: vec![0],
        filter: Some(expr),
        work: FragmentWork::Aggregate {
            by: vec![],
            aggregates: vec![],
        },
        output: Arc::new(Schema::empty()),
    };
    assert!(matches!(
        codec::encode(&fragment),
        Err(CodecError::TooLarge(_))
    ));
}

#[test]
fn rows_are_bytes() {
    let rows = vec![
        RowRange {
            segment: pages::SegmentId(u128::MAX - 1),
            from: 0,
            to: u64::MAX,
        },
        RowRange {
            segment: pages::SegmentId(1),
            from: 77,
            to: 78,
        },
    ];
    let bytes = codec::encode_rows(&rows);
    assert_eq!(codec::decode_rows(&bytes), Ok(rows));
    assert!(codec::decode_rows(&bytes[1..]).is_err());
}

#[test]
fn mutations_of_the_corpus_are_no_danger() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/fragments");
    let mut random = Rng::with_seed(1);
    for entry in std::fs::read_dir(corpus).expect("a corpus") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("an input");
        for _ in 0..30_000 {
            let mut changed = bytes.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(5..changed.len());
                changed[at] = random.u8(..);
            }
            fuzz::fuzz_fragments(&changed);
        }
    }
}

/// The fuzzing corpus is in the current format, as its decoders know it.
#[test]
fn the_corpus_is_of_this_format() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let inputs = |dir: &str| {
        let files = std::fs::read_dir(corpus.join(dir)).expect("a corpus");
        let paths = files.map(|file| file.expect("a file").path());
        paths.map(|path| {
            let bytes = std::fs::read(&path).expect("a file");
            (path, bytes)
        })
    };
    let mut count = 0;
    for (path, bytes) in inputs("fragments") {
        let found = codec::decode(&bytes);
        assert!(found.is_ok(), "{}: {found:?}", path.display());
        fuzz::fuzz_fragments(&bytes);
        count += 1;
    }
    assert!(count > 0, "there are fragments");
    for (path, bytes) in inputs("rows") {
        let found = codec::decode_rows(&bytes);
        assert!(
            found.is_ok_and(|rows| !rows.is_empty()),
            "{}",
            path.display()
        );
    }
}
