//! The tables of TPC-H.

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use kumiki_tpch::TpchTable;
use pages::row::RowSchema;
use pages::{Groups, Memory, PageAddress, PageNo, PageSize, Shape, Source};

/// The rows do not depend on the number of threads.
#[test]
fn tables_have_their_rows() {
    for table in TpchTable::ALL {
        let all: Vec<RecordBatch> = table.batches(0.05, 3).collect();
        let rows: usize = all.iter().map(RecordBatch::num_rows).sum();
        if table == TpchTable::Lineitem {
            assert_eq!(rows, 299_814, "as the other generators of TPC-H have it");
        } else {
            assert_eq!(rows as u64, table.rows(0.05), "{}", table.name());
        }
        assert!(table.batches(0.05, 1).eq(all), "{}", table.name());
        assert_eq!(TpchTable::named(table.name()), Some(table));
    }
}

/// TPC-H's sixth query, computed by hand.
#[test]
fn lineitem_answers_its_sixth_query() {
    let mut sum = 0_i128;
    for batch in TpchTable::Lineitem.batches(0.1, 2) {
        let column = |name| batch.column_by_name(name).unwrap();
        let decimals = |name| column(name).as_primitive::<Decimal128Type>().values();
        let dates = column("l_shipdate").as_primitive::<Date32Type>().values();
        let (quantity, discount) = (decimals("l_quantity"), decimals("l_discount"));
        let price = decimals("l_extendedprice");
        for row in 0..batch.num_rows() {
            let in_1994 = (8766..9131).contains(&dates[row]);
            if in_1994 && (5..=7).contains(&discount[row]) && quantity[row] < 2400 {
                sum += price[row] * discount[row];
            }
        }
    }
    assert_eq!(sum, 118_034_202_534, "11803420.2534, as DuckDB has it");
}

/// Records as in paper 4, table 4.3.
#[test]
fn lineitem_lies_in_the_records_of_the_paper() {
    let table = TpchTable::Lineitem;
    let schema = table.schema();
    let rows = RowSchema::new(&schema, &table.forms().unwrap()).unwrap();
    let places: Vec<usize> = rows.attributes().iter().map(|one| one.at).collect();
    let expected = [0, 4, 8, 12, 14, 16, 20, 24, 28, 29, 30, 41, 52, 63, 89, 100];
    assert_eq!((places.as_slice(), rows.record()), (&expected[..], 148));
    let groups = Groups::Together.resolve(&schema).unwrap();
    let shape = Shape::new(schema.clone(), PageSize::default(), groups, Some(rows)).unwrap();
    let batches: Vec<RecordBatch> = table.batches(0.001, 1).collect();
    let memory = Memory::new();
    let loaded = memory.table("lineitem", &shape, [&batches[..]]).unwrap();
    let address = PageAddress {
        segment: loaded.segments[0].id,
        page: PageNo(0),
    };
    let page = memory.read(&loaded, vec![address]).next().unwrap().unwrap();
    for column in 0..schema.fields().len() {
        let expected = batches[0].column(column).slice(0, page.rows());
        assert_eq!(page.column(column).unwrap().to_data(), expected.to_data());
    }
    let records = page.records().unwrap();
    assert_eq!(records.len(), page.rows());
    let key = batches[0].column(0).as_primitive::<Int64Type>().value(5) as u32;
    assert_eq!(records.record(5)[..4], key.to_le_bytes());
    assert_eq!(&records.record(0)[30..41], b"1996-03-13\0");
}
