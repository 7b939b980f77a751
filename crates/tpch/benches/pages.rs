//! The costs of making pages, of verifying them, and of taking arrays from them.
//!
//! `cargo bench -p kumiki-tpch --bench pages [-- FACTOR]`; `lineitem` of TPC-H at that scale factor
//! (default 0.1), each column its own group. One thread. Rates are of rows, with all their sixteen
//! columns, and of pages' bytes.

use std::time::{Duration, Instant};

use arrow_array::{Array, RecordBatch};
use kumiki_tpch::TpchTable;
use pages::{Groups, Layout, Memory, Page, PageAddress, PageSize, Shape, Table, block, widen};

const ROUNDS: usize = 5;

/// Returns the time of the fastest of some runs, and the result of the last one.
fn best<T>(mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut timed = || {
        let begun = Instant::now();
        let result = run();
        (begun.elapsed(), result)
    };
    let mut best = timed();
    for _ in 1..ROUNDS {
        let next = timed();
        if next.0 < best.0 {
            best = next;
        }
    }
    best
}

fn addresses(table: &Table) -> Vec<(PageAddress, usize)> {
    let segment = &table.segments[0];
    let groups = segment.groups.iter().enumerate();
    groups
        .flat_map(|(group, entries)| {
            entries.iter().map(move |entry| {
                let address = PageAddress {
                    segment: segment.id,
                    page: entry.page,
                };
                (address, group)
            })
        })
        .collect()
}

fn main() {
    let factor = std::env::args()
        .skip(1)
        .find_map(|word| word.parse().ok())
        .unwrap_or(0.1);
    let lineitem = TpchTable::Lineitem;
    let (generated, batches) = best(|| lineitem.batches(factor, 1).collect::<Vec<RecordBatch>>());
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let millions = |time: Duration| rows as f64 / 1e6 / time.as_secs_f64();
    println!(
        "{rows} rows of lineitem, generated at {:.2} M rows/s",
        millions(generated)
    );
    println!();
    println!(
        "| page | layout | pages | bytes a row | encode | verify a page | verify | arrays of a page | widen |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for size in PageSize::ALL {
        for layout in [Layout::Columns, Layout::Rows] {
            measure(&batches, size, layout, rows);
        }
    }
    blocks(&batches, rows);
}

fn measure(batches: &[RecordBatch], size: PageSize, layout: Layout, rows: usize) {
    let lineitem = TpchTable::Lineitem;
    let schema = lineitem.schema();
    let (groups, records) = match layout {
        Layout::Columns => (Groups::OneEach, None),
        Layout::Rows => {
            let forms = lineitem.forms().expect("lineitem has forms");
            let records = pages::row::RowSchema::new(&schema, &forms);
            (Groups::Together, Some(records.expect("forms suit")))
        }
    };
    let groups = groups.resolve(&schema).expect("groups of all columns");
    let shape = Shape::new(schema.clone(), size, groups, records).expect("types of pages");
    let (encode, (memory, table)) = best(|| {
        let memory = Memory::new();
        let table = memory
            .table("lineitem", &shape, [batches])
            .expect("rows fit");
        (memory, table)
    });
    let addresses = addresses(&table);
    let bytes = |address| memory.bytes(address).expect("the page is there");
    let verified = |(address, _): &(PageAddress, usize)| {
        Page::of(&table, bytes(*address), *address).expect("a right page")
    };
    let (verify, pages) = best(|| addresses.iter().map(verified).collect::<Vec<Page>>());
    let columns = pages.iter().map(Page::columns).sum::<usize>();
    let (take, arrays) = best(|| {
        let arrays = pages.iter().flat_map(|page| {
            (0..page.columns()).map(move |place| page.column(place).expect("a right column"))
        });
        arrays.collect::<Vec<_>>()
    });
    assert_eq!(arrays.len(), columns);
    let types = addresses.iter().flat_map(|&(_, group)| {
        let columns = &table.groups[group];
        columns
            .iter()
            .map(|&column| table.schema.field(column).data_type())
    });
    let types: Vec<_> = types.collect();
    let (widened, wide) = best(|| {
        let pairs = arrays.iter().zip(&types);
        pairs
            .map(|(array, data_type)| widen(array, data_type).len())
            .sum::<usize>()
    });
    assert_eq!(wide, rows * 16);
    let total = addresses.len() * size.bytes();
    let each = |time: Duration| time.as_secs_f64() * 1e6 / addresses.len() as f64;
    println!(
        "| {} KiB | {layout:?} | {} | {:.1} | {:.2} M rows/s | {:.2} µs | {:.2} GB/s | {:.2} µs | {:.2} M rows/s |",
        size.bytes() >> 10,
        addresses.len(),
        total as f64 / rows as f64,
        rows as f64 / 1e6 / encode.as_secs_f64(),
        each(verify),
        total as f64 / 1e9 / verify.as_secs_f64(),
        each(take),
        rows as f64 / 1e6 / widened.as_secs_f64(),
    );
}

fn blocks(batches: &[RecordBatch], rows: usize) {
    let schema = batches[0].schema();
    let (encode, blocks) = best(|| {
        let blocks = batches.iter().map(|batch| {
            let mut out = Vec::new();
            block::encode(batch, &mut out).expect("types of blocks");
            bytes::Bytes::from(out)
        });
        blocks.collect::<Vec<_>>()
    });
    let (decode, found) = best(|| {
        let batches = blocks.iter().map(|bytes| {
            let batch = block::decode(bytes.clone(), &schema).expect("a right block");
            batch.num_rows()
        });
        batches.sum::<usize>()
    });
    assert_eq!(found, rows);
    let total: usize = blocks.iter().map(bytes::Bytes::len).sum();
    let rate = |time: Duration| total as f64 / 1e9 / time.as_secs_f64();
    println!();
    println!(
        "blocks of {} rows: encoded at {:.2} GB/s, decoded at {:.2} GB/s",
        batches[0].num_rows(),
        rate(encode),
        rate(decode)
    );
}
