//! The columns of `lineitem` that the queries read, as pages would hold them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal32Type, Int64Type, UInt8Type};
use arrow_array::{
    Array, ArrayRef, Date32Array, Decimal32Array, DictionaryArray, Int64Array, StringArray,
    UInt8Array,
};
use arrow_schema::{DataType, Field, Schema};
use kumiki_operators::{Chunk, ChunkColumn};
use pages::Range;
use tpchgen::generators::LineItemGenerator;

/// `lineitem`, in memory.
pub(crate) struct LineItem {
    columns: Vec<ArrayRef>,
}

/// Places of columns in the schema.
pub(crate) const SUPPKEY: usize = 0;
pub(crate) const QUANTITY: usize = 1;
pub(crate) const EXTENDEDPRICE: usize = 2;
pub(crate) const DISCOUNT: usize = 3;
pub(crate) const TAX: usize = 4;
pub(crate) const RETURNFLAG: usize = 5;
pub(crate) const LINESTATUS: usize = 6;
pub(crate) const SHIPDATE: usize = 7;

/// Returns the columns, as SQL sees them.
pub(crate) fn schema() -> Schema {
    let decimal = DataType::Decimal128(15, 2);
    let field = |name, data_type: &DataType| Field::new(name, data_type.clone(), true);
    Schema::new(vec![
        field("l_suppkey", &DataType::Int64),
        field("l_quantity", &decimal),
        field("l_extendedprice", &decimal),
        field("l_discount", &decimal),
        field("l_tax", &decimal),
        field("l_returnflag", &DataType::Utf8),
        field("l_linestatus", &DataType::Utf8),
        field("l_shipdate", &DataType::Date32),
    ])
}

/// Makes the table.
pub(crate) fn generate(scale: f64) -> LineItem {
    let mut suppkey = Vec::new();
    let mut decimals: [Vec<i32>; 4] = Default::default();
    let mut flags: [Vec<u8>; 2] = Default::default();
    let mut shipdate = Vec::new();
    for row in LineItemGenerator::new(scale, 1, 1).iter() {
        suppkey.push(row.l_suppkey);
        let prices = [
            row.l_quantity * 100,
            row.l_extendedprice.0,
            row.l_discount.0,
            row.l_tax.0,
        ];
        for (column, value) in decimals.iter_mut().zip(prices) {
            column.push(i32::try_from(value).expect("prices have 32 bits"));
        }
        let code = |flags: &[&str], flag| flags.iter().position(|f| *f == flag).expect("a flag");
        flags[0].push(code(&FLAGS, row.l_returnflag) as u8);
        flags[1].push(code(&STATES, row.l_linestatus) as u8);
        shipdate.push(row.l_shipdate.to_unix_epoch());
    }
    let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(suppkey))];
    for values in decimals {
        let array = Decimal32Array::from(values).with_precision_and_scale(9, 2);
        columns.push(Arc::new(array.expect("nine digits")));
    }
    let [returnflag, linestatus] = flags;
    for (keys, values) in [(returnflag, &FLAGS[..]), (linestatus, &STATES[..])] {
        let values = Arc::new(StringArray::from_iter_values(values));
        let array = DictionaryArray::<UInt8Type>::new(UInt8Array::from(keys), values);
        columns.push(Arc::new(array));
    }
    columns.push(Arc::new(Date32Array::from(shipdate)));
    LineItem { columns }
}

const FLAGS: [&str; 3] = ["A", "N", "R"];
const STATES: [&str; 2] = ["F", "O"];

impl LineItem {
    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.columns[0].len()
    }

    /// Returns some columns, in chunks of so many rows.
    pub(crate) fn chunks(&self, columns: &[usize], rows: usize) -> Vec<Chunk> {
        let chunk = |from: usize| {
            let rows = rows.min(self.rows() - from);
            let column = |&column: &usize| {
                let array = self.columns[column].slice(from, rows);
                ChunkColumn {
                    range: range(&array),
                    array,
                }
            };
            Chunk {
                rows,
                columns: columns.iter().map(column).collect(),
            }
        };
        (0..self.rows()).step_by(rows).map(chunk).collect()
    }
}

/// Returns the range in which an array's values lie.
fn range(array: &ArrayRef) -> Range {
    fn of<T: Into<i128> + Copy + Ord>(values: &[T]) -> Range {
        match (values.iter().min(), values.iter().max()) {
            (Some(&min), Some(&max)) => Range::Int {
                min: min.into(),
                max: max.into(),
            },
            _ => Range::Empty,
        }
    }
    match array.data_type() {
        DataType::Int64 => of(array.as_primitive::<Int64Type>().values()),
        DataType::Decimal32(..) => of(array.as_primitive::<Decimal32Type>().values()),
        DataType::Date32 => of(array.as_primitive::<Date32Type>().values()),
        _ => Range::Unknown,
    }
}
