//! Entry points for fuzzing the decoders of pages, tables, blocks and messages. They panic when a
//! promise is broken.

use std::sync::Arc;

use arrow_array::Array;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;

use base::codec::put_at;

use crate::block;
use crate::page::Page;
use crate::protocol::{ListedTable, LoadDefinition, NodeReply, NodeRequest, NodeStatus};
use crate::table::{Layout, PageAddress, PageNo, SegmentId, Table};

const ADDRESS: PageAddress = PageAddress {
    segment: SegmentId(7),
    page: PageNo(3),
};

/// Corrects the checksum, so that mutations get past it. It covers all bytes after it.
fn with_checksum(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(behind) = bytes.get(at + 4..) {
        let checksum = crc32c::crc32c(behind);
        put_at(&mut bytes, at, &checksum.to_le_bytes());
    }
    bytes
}

/// Reads `bytes` as a page, as they are and with corrected checksum, size and address.
///
/// # Panics
/// Panics if the reader panics, or accepts invalid arrays.
pub fn fuzz_page(bytes: &[u8]) {
    let mut right = bytes.to_vec();
    if right.len() >= 64 {
        let size = right.len() as u32;
        put_at(&mut right, 12, &size.to_le_bytes());
        put_at(&mut right, 16, &ADDRESS.segment.0.to_le_bytes());
        put_at(&mut right, 32, &ADDRESS.page.0.to_le_bytes());
    }
    for bytes in [bytes.to_vec(), with_checksum(&right, 0)] {
        for layout in [Layout::Columns, Layout::Rows] {
            if let Ok(page) = Page::new(Bytes::from(bytes.clone()), ADDRESS, layout) {
                columns(&page);
            }
        }
    }
}

fn columns(page: &Page) {
    for place in 0..page.columns() {
        if let Ok(array) = page.column(place) {
            assert_eq!(array.len(), page.rows());
            sound(&*array);
        }
    }
    if let Some(records) = page.records() {
        assert_eq!(records.iter().len(), page.rows());
    }
}

fn sound(array: &dyn Array) {
    let checked = array.to_data().validate_full();
    checked.expect("an array that was let through is one");
}

/// Reads `bytes` as a table, as they are and with corrected checksums of the manifest and, as if it
/// had one segment, of the bytes after it.
///
/// # Panics
/// Panics if the reader panics, or accepts a table that is not consistent.
pub fn fuzz_table(bytes: &[u8]) {
    let manifest = bytes
        .first_chunk()
        .map_or(0, |len| u32::from_le_bytes(*len) as usize);
    let mut right = bytes.to_vec();
    if let Some((manifest, directory)) = bytes.get(4..).and_then(|b| b.split_at_checked(manifest)) {
        let mut manifest = manifest.to_vec();
        if let Some(at) = manifest.len().checked_sub(12) {
            put_at(&mut manifest, at, &(directory.len() as u64).to_le_bytes());
            put_at(
                &mut manifest,
                at + 8,
                &crc32c::crc32c(directory).to_le_bytes(),
            );
        }
        put_at(&mut right, 4, &with_checksum(&manifest, 12));
    }
    for bytes in [bytes, &right] {
        if let Ok(table) = Table::decode(bytes) {
            consistent(&table);
            let again = Table::decode(&table.encode());
            assert_eq!(
                format!("{:?}", again),
                format!("{:?}", Ok::<_, crate::FormatError>(&table))
            );
        }
    }
}

fn consistent(table: &Table) {
    for column in 0..table.schema.fields().len() {
        let (group, place) = table.group_of(column);
        for segment in &table.segments {
            let mut next = 0;
            for entry in &segment.groups[group] {
                assert!(entry.first_row == next && entry.rows > 0 && entry.page.0 < segment.pages);
                assert!(entry.bounds[place].nulls <= entry.rows);
                next += u64::from(entry.rows);
            }
            assert_eq!(next, segment.rows);
        }
    }
    let _ = (table.rows(), table.pages());
}

/// Returns the schema of the corpus's blocks.
fn block_schema() -> SchemaRef {
    let keyed = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8));
    Arc::new(Schema::new(vec![
        Field::new("bit", DataType::Boolean, true),
        Field::new("decimal", DataType::Decimal128(15, 2), true),
        Field::new("text", DataType::Utf8, true),
        Field::new("keyed", keyed, true),
        Field::new(
            "time",
            DataType::Timestamp(TimeUnit::Second, Some("UTC".into())),
            false,
        ),
    ]))
}

/// Reads `bytes` as a block, as they are and with corrected checksum and length.
///
/// # Panics
/// Panics if the reader panics, or accepts invalid arrays.
pub fn fuzz_block(bytes: &[u8]) {
    let mut right = bytes.to_vec();
    if right.len() >= 32 {
        let length = right.len() as u64;
        put_at(&mut right, 16, &length.to_le_bytes());
    }
    let schema = block_schema();
    for bytes in [bytes.to_vec(), with_checksum(&right, 0)] {
        if let Ok(batch) = block::decode(bytes.into(), &schema) {
            batch.columns().iter().for_each(|array| sound(&**array));
            let mut again = Vec::new();
            block::encode(&batch, &mut again).expect("what was read can be written");
        }
    }
}

/// Reads `bytes` as a reader's message to a storage node, as a node's reply, and as the parts of both
/// that have forms of their own.
///
/// # Panics
/// Panics if a decoder panics, or accepts bytes that are encoded in another way.
pub fn fuzz_messages(bytes: &[u8]) {
    let mut again = Vec::new();
    if let Ok(request) = NodeRequest::decode(bytes) {
        request.encode(&mut again);
        assert_eq!(again, bytes, "{request:?}");
        match request {
            NodeRequest::Read { pages, .. } => {
                let wanted = pages.iter().flat_map(|wanted| wanted.encode());
                assert!(bytes.ends_with(&wanted.collect::<Vec<u8>>()));
            }
            NodeRequest::Load { definition, .. } => fuzz_definition(definition),
            _ => {}
        }
    }
    again.clear();
    if let Ok(reply) = NodeReply::decode(bytes) {
        reply.encode(&mut again);
        assert_eq!(again, bytes, "{reply:?}");
        if let NodeReply::Answer { answer, .. } = reply {
            fuzz_answer(answer);
        }
    }
    fuzz_definition(bytes);
    fuzz_answer(bytes);
}

fn fuzz_definition(bytes: &[u8]) {
    let Ok(definition) = LoadDefinition::decode(bytes) else {
        return;
    };
    let again = definition.encode().expect("it came as bytes");
    let again = LoadDefinition::decode(&again).expect("it was just encoded");
    let (a, b) = (&definition.options, &again.options);
    assert_eq!(
        (&definition.name, &definition.schema, definition.mode),
        (&again.name, &again.schema, again.mode)
    );
    assert_eq!(definition.identity, again.identity);
    assert_eq!(
        (a.page_size, a.layout, &a.groups, &a.text_widths, &a.forms),
        (b.page_size, b.layout, &b.groups, &b.text_widths, &b.forms)
    );
}

fn fuzz_answer(bytes: &[u8]) {
    if let Ok(listed) = ListedTable::decode(bytes) {
        assert_eq!(ListedTable::encode(&listed), bytes, "{listed:?}");
    }
    if let Ok(condition) = NodeStatus::decode(bytes) {
        assert_eq!(condition.encode(), bytes, "{condition:?}");
    }
}

#[cfg(test)]
mod messages;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use arrow_array::builder::{BooleanBuilder, StringDictionaryBuilder};
    use arrow_array::types::UInt8Type;
    use arrow_array::{ArrayRef, Decimal128Array, RecordBatch, StringArray, TimestampSecondArray};

    use super::*;
    use crate::row::RowSchema;
    use crate::segment::{Groups, SegmentBuilder, Shape};
    use crate::table::{PageSize, TableId, Version};

    /// Inputs by the names of their files.
    type Inputs = BTreeMap<&'static str, Vec<u8>>;

    fn batch() -> RecordBatch {
        let rows = 40;
        let mut bits = BooleanBuilder::new();
        let mut keyed = StringDictionaryBuilder::<UInt8Type>::new();
        for row in 0..rows {
            bits.append_option((row % 3 > 0).then_some(row % 2 > 0));
            keyed.append_option((row % 4 > 0).then(|| ["a", "bc", ""][row % 3]));
        }
        let decimals = (0..rows).map(|row| (row % 5 > 0).then_some(row as i128 * 1000));
        let decimals = decimals
            .collect::<Decimal128Array>()
            .with_precision_and_scale(15, 2);
        let texts = (0..rows).map(|row| (row % 7 > 0).then(|| format!("text ä {}", row % 4)));
        let times = TimestampSecondArray::from_iter_values(0..rows as i64);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(bits.finish()),
            Arc::new(decimals.unwrap()),
            Arc::new(texts.collect::<StringArray>()),
            Arc::new(keyed.finish()),
            Arc::new(times.with_timezone("UTC")),
        ];
        RecordBatch::try_new(block_schema(), columns).unwrap()
    }

    /// Returns a page of each layout, and the table of the first.
    fn pages() -> Inputs {
        let batch = batch().project(&[0, 1, 2, 4]).unwrap();
        let schema = batch.schema();
        let groups = Groups::Together.resolve(&schema).unwrap();
        let rows = RowSchema::of(&schema, |_| Some(20)).unwrap();
        let mut inputs = Inputs::new();
        for (name, rows) in [("columns", None), ("rows", Some(rows))] {
            let size = PageSize::ALL[0];
            let shape = Shape::new(schema.clone(), size, groups.clone(), rows).unwrap();
            let mut builder = SegmentBuilder::new(shape.clone(), ADDRESS.segment);
            let mut pages = Vec::new();
            for _ in 0..20 {
                builder.push(&batch, &mut pages).unwrap();
            }
            let segment = builder.finish(&mut pages).unwrap();
            inputs.insert(name, pages.swap_remove(ADDRESS.page.0 as usize).1);
            if name == "columns" {
                let table = Table {
                    id: TableId(5),
                    name: "t".to_owned(),
                    version: Version(6),
                    schema: schema.clone(),
                    page_size: size,
                    layout: Layout::Columns,
                    groups: groups.clone(),
                    segments: vec![Arc::new(segment)],
                };
                inputs.insert("table", table.encode());
            }
        }
        inputs
    }

    /// The corpus equals the writers' output; it is written again when a format changes.
    #[test]
    fn the_corpus_is_of_this_format() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        let mut inputs = pages();
        let mut block = Vec::new();
        block::encode(&batch(), &mut block).unwrap();
        inputs.insert("block", block);
        for (name, bytes) in inputs {
            let (dir, entry): (_, fn(&[u8])) = match name {
                "table" => ("table", fuzz_table),
                "block" => ("block", fuzz_block),
                _ => ("page", fuzz_page),
            };
            entry(&bytes);
            let path = corpus.join(dir).join(name);
            let there = std::fs::read(&path).unwrap_or_default();
            assert!(there == bytes, "{} is out of date", path.display());
        }
    }

    /// Each input is also read by itself, without the fuzzer's corrections, so that it is a good
    /// beginning for mutations.
    #[test]
    fn blind_mutations_keep_the_promises() {
        let mut inputs = pages();
        let mut block = Vec::new();
        block::encode(&batch(), &mut block).unwrap();
        block::decode(block.clone().into(), &block_schema()).unwrap();
        Table::decode(&inputs["table"]).unwrap();
        Page::new(inputs["columns"].clone().into(), ADDRESS, Layout::Columns).unwrap();
        Page::new(inputs["rows"].clone().into(), ADDRESS, Layout::Rows).unwrap();
        inputs.insert("block", block);
        let mut rng = fastrand::Rng::with_seed(11);
        for bytes in inputs.values() {
            for _ in 0..1500 {
                let mut wrong = bytes.clone();
                for _ in 0..rng.usize(1..4) {
                    let near = [64, 300, wrong.len()][rng.usize(..3)].min(wrong.len());
                    wrong[rng.usize(..near)] = [0, 1, 255, rng.u8(..)][rng.usize(..4)];
                }
                fuzz_page(&wrong);
                fuzz_table(&wrong);
                fuzz_block(&wrong);
            }
        }
    }
}
