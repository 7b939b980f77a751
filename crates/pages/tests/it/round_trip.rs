//! Random tables through pages of every size, and back.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use fastrand::Rng;
use kumiki_pages::row::RowSchema;
use kumiki_pages::segment::RowsError;
use kumiki_pages::{
    Bounds, Groups, Memory, Page, PageAddress, PageSize, Range, Shape, Source, Table, block, widen,
};

/// Checks that the table has these rows.
fn assert_same(memory: &Memory, table: &Arc<Table>, segments: &[Vec<RecordBatch>]) {
    for (segment, batches) in table.segments.iter().zip(segments) {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(segment.rows, rows as u64);
        for (columns, entries) in table.groups.iter().zip(&segment.groups) {
            let addresses = entries.iter().map(|entry| PageAddress {
                segment: segment.id,
                page: entry.page,
            });
            let mut next = 0;
            for (page, entry) in memory.read(table, addresses.collect()).zip(entries) {
                let page = page.unwrap();
                assert_eq!((page.first_row(), next), (next, entry.first_row));
                assert_eq!(page.rows(), entry.rows as usize);
                for (place, &column) in columns.iter().enumerate() {
                    let array = page.column(place).unwrap();
                    let data_type = table.schema.field(column).data_type();
                    let array = widen(&array, data_type);
                    assert_bounds(&array, &entry.bounds[place]);
                    assert_rows(&array, batches, column, next as usize);
                }
                next += page.rows() as u64;
            }
            assert_eq!(next, segment.rows);
        }
    }
}

fn assert_rows(array: &ArrayRef, batches: &[RecordBatch], column: usize, first: usize) {
    let (mut from, mut done) = (first, 0);
    for batch in batches {
        let rows = (batch.num_rows().saturating_sub(from)).min(array.len() - done);
        if rows > 0 {
            let expected = batch.column(column).slice(from, rows);
            let found = array.slice(done, rows);
            assert_eq!(
                format!("{found:?}"),
                format!("{expected:?}"),
                "column {column}"
            );
            assert_eq!(
                found.to_data(),
                expected.to_data(),
                "column {column} at {first}"
            );
        }
        from = from.saturating_sub(batch.num_rows());
        done += rows;
    }
    assert_eq!(done, array.len());
}

fn assert_bounds(array: &ArrayRef, bounds: &Bounds) {
    assert_eq!(bounds.nulls as usize, array.null_count());
    assert_eq!(
        bounds.range == Range::Empty,
        array.null_count() == array.len()
    );
    match &bounds.range {
        Range::Bytes { min, max } => {
            assert!(min.len() <= 16 && max.as_ref().is_none_or(|max| max.len() <= 16));
            let check = |value: &[u8]| {
                assert!(value >= &min[..]);
                assert!(max.as_ref().is_none_or(|max| value <= &max[..]));
            };
            if let Some(texts) = array.as_string_opt::<i32>() {
                texts
                    .iter()
                    .flatten()
                    .for_each(|text| check(text.as_bytes()));
            } else {
                array.as_binary::<i32>().iter().flatten().for_each(check);
            }
        }
        Range::Int { min, max } if *array.data_type() == DataType::Int64 => {
            let array = array.as_primitive::<arrow_array::types::Int64Type>();
            let mut values: Vec<i128> = array.iter().flatten().map(i128::from).collect();
            values.sort_unstable();
            assert_eq!((values[0], values[values.len() - 1]), (*min, *max));
        }
        _ => {}
    }
}

#[test]
fn random_tables_come_back() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let columns = rng.usize(1..8);
        let schema = crate::support::schema(&mut rng, columns);
        let groups = match rng.u8(..3) {
            0 => Groups::OneEach,
            1 => Groups::Together,
            _ => Groups::Given(vec![vec![schema.field(columns - 1).name().clone()]]),
        };
        let groups = groups.resolve(&schema).unwrap();
        let size = PageSize::ALL[rng.usize(..6)];
        let segments: Vec<Vec<RecordBatch>> = (0..rng.usize(..3))
            .map(|_| {
                let batches = 0..rng.usize(..4);
                let rows = [0, 1, 9, 700, 5000];
                let batch = |_| {
                    let rows = rows[rng.usize(..rows.len())];
                    let skip = rng.usize(..=rows.min(3));
                    // Slices of arrays, whose bitmaps do not begin with a byte.
                    crate::support::batch(&mut rng, &schema, rows).slice(skip, rows - skip)
                };
                batches.map(batch).collect()
            })
            .collect();
        let shape = Shape::new(schema, size, groups, None).unwrap();
        let memory = Memory::new();
        let table = memory.table("t", &shape, segments.iter().map(Vec::as_slice));
        assert_same(&memory, &table.unwrap(), &segments);
    }
}

#[test]
fn random_tables_come_back_from_records() {
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let columns = rng.usize(1..6);
        let schema = crate::support::schema(&mut rng, columns);
        // Records drop zeros at the end of bytes; these bytes have none.
        let rows = RowSchema::of(&schema, |_| Some(150)).unwrap();
        let size = PageSize::ALL[rng.usize(..6)];
        let groups = Groups::Together.resolve(&schema).unwrap();
        let shape = Shape::new(schema.clone(), size, groups, Some(rows)).unwrap();
        let segments = [vec![
            crate::support::batch(&mut rng, &schema, 500),
            crate::support::batch(&mut rng, &schema, 3),
        ]];
        let memory = Memory::new();
        let table = memory.table("t", &shape, segments.iter().map(Vec::as_slice));
        assert_same(&memory, &table.unwrap(), &segments);
    }
}

#[test]
fn batches_are_divided_by_their_bytes() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let columns = rng.usize(1..8);
        let schema = crate::support::schema(&mut rng, columns);
        let rows = [0, 1, 63, 2000][rng.usize(..4)];
        let batch = crate::support::batch(&mut rng, &schema, rows);
        let most = [1, 5_000, 100_000][rng.usize(..3)];
        let mut at = 0;
        for part in block::parts(batch.clone(), most) {
            let rows = part.num_rows();
            assert_eq!(
                format!("{part:?}"),
                format!("{:?}", batch.slice(at, rows)),
                "seed {seed}"
            );
            at += rows;
            let mut bytes = Vec::new();
            block::encode(&part, &mut bytes).unwrap();
            // Its header and gaps contain no rows.
            let beside = 256 * (1 + columns);
            assert!(rows <= 1 || bytes.len() <= most + beside, "seed {seed}");
        }
        assert_eq!(at, rows, "seed {seed}");
    }
}

#[test]
fn random_batches_travel() {
    for seed in 0..100 {
        let mut rng = Rng::with_seed(seed);
        let columns = rng.usize(..8);
        let schema = crate::support::schema(&mut rng, columns);
        let rows = [0, 1, 63, 2000][rng.usize(..4)];
        let batch = crate::support::batch(&mut rng, &schema, rows);
        let before = rng.usize(..3);
        let mut bytes = vec![7; before];
        block::encode(&batch, &mut bytes).unwrap();
        let bytes = Bytes::from(bytes).slice(before..);
        let found = block::decode(bytes.clone(), &schema).unwrap();
        assert_eq!(format!("{found:?}"), format!("{batch:?}"));
        for _ in 0..20 {
            let mut wrong = bytes.to_vec();
            let at = rng.usize(..wrong.len());
            wrong[at] ^= 1 << rng.u8(..8);
            assert!(block::decode(wrong.into(), &schema).is_err());
        }
        assert!(block::decode(bytes.slice(..bytes.len() - 1), &schema).is_err());
    }
}

/// Batches travel, also in the narrower types of pages.
#[test]
fn narrow_batches_travel() {
    let texts: Vec<String> = (0..500).map(|n| format!("text {}", n % 300)).collect();
    let texts: ArrayRef = Arc::new(StringArray::from(texts));
    let memory = Memory::new();
    let schema = Arc::new(Schema::new(vec![Field::new("t", DataType::Utf8, true)]));
    let groups = Groups::OneEach.resolve(&schema).unwrap();
    let shape = Shape::new(schema.clone(), PageSize::default(), groups, None).unwrap();
    for take in [100, 500] {
        let batch = RecordBatch::try_new(schema.clone(), vec![texts.slice(0, take)]).unwrap();
        let batch = [batch.clone(), batch.clone(), batch.clone(), batch];
        let table = memory.table("t", &shape, [&batch[..]]).unwrap();
        let first = PageAddress {
            segment: table.segments[0].id,
            page: table.segments[0].groups[0][0].page,
        };
        let page = memory.read(&table, vec![first]).next().unwrap().unwrap();
        let array = page.column(0).unwrap();
        let keys = if take == 100 {
            DataType::UInt8
        } else {
            DataType::UInt16
        };
        let data_type = DataType::Dictionary(Box::new(keys), Box::new(DataType::Utf8));
        assert_eq!(array.data_type(), &data_type);
        let schema = Arc::new(Schema::new(vec![Field::new("t", data_type, true)]));
        for narrow in [array.clone(), array.slice(3, 50), array.slice(0, 0)] {
            let narrow = RecordBatch::try_new(schema.clone(), vec![narrow]).unwrap();
            let mut bytes = Vec::new();
            block::encode(&narrow, &mut bytes).unwrap();
            assert_eq!(block::decode(bytes.into(), &schema).unwrap(), narrow);
        }
    }
}

#[test]
fn what_does_not_fit_is_told() {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("text", DataType::Utf8, false),
    ]));
    let texts = vec!["short".to_owned(), "x".repeat(3000), "y".repeat(5000)];
    let texts: ArrayRef = Arc::new(StringArray::from(texts));
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_new(schema.clone(), vec![ids, texts]).unwrap();
    let groups = Groups::OneEach.resolve(&schema).unwrap();
    let small = Shape::new(schema.clone(), PageSize::ALL[0], groups.clone(), None).unwrap();
    let error = Memory::new().table("t", &small, [&[batch.clone()][..]]);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("row 2") && error.contains("\"text\""),
        "{error}"
    );
    assert!(
        error.contains("4096") && error.contains("larger pages"),
        "{error}"
    );
    let large = Shape::new(schema.clone(), PageSize::ALL[1], groups, None).unwrap();
    assert!(
        Memory::new()
            .table("t", &large, [&[batch.clone()][..]])
            .is_ok()
    );

    let rows = RowSchema::of(&schema, |_| Some(4)).unwrap();
    let groups = Groups::Together.resolve(&schema).unwrap();
    let shape = Shape::new(schema.clone(), PageSize::ALL[0], groups, Some(rows)).unwrap();
    let error = Memory::new()
        .table("t", &shape, [&[batch][..]])
        .unwrap_err();
    assert!(matches!(&error, RowsError::Misfit { row: 0, column, .. } if column == "text"));
    assert!(error.to_string().contains("declare more"), "{error}");

    let wrong = Arc::new(Schema::new(vec![Field::new(
        "a",
        DataType::LargeUtf8,
        true,
    )]));
    let groups = Groups::OneEach.resolve(&wrong).unwrap();
    let error = Shape::new(wrong, PageSize::default(), groups, None).unwrap_err();
    assert!(error.to_string().contains("\"a\"") && error.to_string().contains("Utf8"));
}

/// A page with changed bytes, also with a corrected checksum, gives an error, or arrays.
#[test]
fn hostile_pages_are_refused_or_read() {
    let mut rng = Rng::with_seed(7);
    let (mut refused, mut read) = (0, 0);
    for seed in 0..60 {
        let columns = 1 + seed % 5;
        let schema = crate::support::schema(&mut rng, columns);
        let rows = (seed % 3 == 0).then(|| RowSchema::of(&schema, |_| Some(150)).unwrap());
        let groups = Groups::Together.resolve(&schema).unwrap();
        let shape = Shape::new(schema.clone(), PageSize::ALL[seed % 2], groups, rows).unwrap();
        let batch = crate::support::batch(&mut rng, &schema, 40);
        let memory = Memory::new();
        let Ok(table) = memory.table("t", &shape, [&[batch][..]]) else {
            continue;
        };
        let address = PageAddress {
            segment: table.segments[0].id,
            page: kumiki_pages::PageNo(0),
        };
        let bytes = memory.bytes(address).unwrap();
        for _ in 0..400 {
            let mut wrong = bytes.to_vec();
            for _ in 0..rng.usize(1..4) {
                // Headers and entries are changed most often.
                let most = if rng.bool() {
                    wrong.len()
                } else {
                    64 + 32 * columns
                };
                let at = rng.usize(4..most);
                wrong[at] = match rng.u8(..3) {
                    0 => rng.u8(..),
                    1 => wrong[at] ^ 1 << rng.u8(..8),
                    _ => [0, 1, 255][rng.usize(..3)],
                };
            }
            if wrong != bytes {
                let page = Page::new(wrong.clone().into(), address, table.layout);
                assert!(page.is_err(), "the checksum is looked at");
            }
            let checksum = crc32c::crc32c(&wrong[4..]);
            wrong[..4].copy_from_slice(&checksum.to_le_bytes());
            match Page::new(wrong.into(), address, table.layout) {
                Err(_) => refused += 1,
                Ok(page) => {
                    read += 1;
                    for column in 0..page.columns() {
                        if let Ok(array) = page.column(column) {
                            assert_eq!(array.len(), page.rows());
                            array.to_data().validate_full().unwrap();
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 1000 && read > 1000, "{refused} {read}");
}
