//! The tables of the query, in pages, and an index.
//!
//! An index is a table of keys and rows in the order of keys. The table's statistics of pages serve
//! as its inner nodes, and as those of a table that lies in the order of its keys: the least and
//! the greatest key of each page.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int32Type, Int64Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use disk::RealDisk;
use pages::{
    Layout, LoadOptions, Local, LocalOptions, Mode, PageAddress, PageEntry, PageSize, Range,
    Source, Table, Tables, widen,
};
use tpch::TpchTable;

use super::shipping_priority::SEGMENT;
use crate::error::RunError;

/// Bytes of a page.
pub const PAGE: usize = 16 << 10;
/// Rows of a batch of the index.
const BATCH: usize = 8192;
/// Threads that generate rows.
const THREADS: usize = 2;

/// The tables, and the accesses to their pages.
pub(super) struct StoredTables {
    pub(super) customer: StoredTable,
    pub(super) index: StoredTable,
    pub(super) orders: StoredTable,
    pub(super) lineitem: StoredTable,
    /// Blocks that were requested.
    pub(super) accesses: Vec<u32>,
    /// Blocks of all tables.
    pub(super) blocks: u32,
}

/// A table.
pub(super) struct StoredTable {
    source: Local,
    table: Arc<Table>,
    /// Its columns that the query needs.
    columns: Vec<usize>,
    /// The first of its blocks.
    base: u32,
    /// Pages that were decoded before.
    decoded: HashMap<u32, Rc<DecodedPage>>,
}

/// The needed columns of a page's rows: numbers, and for texts whether they are the segment.
pub(super) struct DecodedPage {
    first: u64,
    columns: Vec<Vec<i64>>,
}

impl DecodedPage {
    pub(super) fn len(&self) -> usize {
        self.columns[0].len()
    }

    /// Returns the columns of a row, counted in the page.
    pub(super) fn row<const N: usize>(&self, row: usize) -> [i64; N] {
        std::array::from_fn(|column| self.columns[column][row])
    }
}

/// Loads the tables.
pub(super) fn load(dir: &Path, factor: f64) -> Result<StoredTables, RunError> {
    let tables = Tables::open(Arc::new(RealDisk), &[dir.to_owned()]);
    let tables = tables.map_err(RunError::of)?;
    let mut base = 0;
    let mut one = |table: Arc<Table>, wanted: &[&str]| {
        let column = |name: &&str| table.schema.index_of(name).expect("a column of the table");
        let one = StoredTable {
            source: Local::new(tables.clone(), LocalOptions::default()),
            columns: wanted.iter().map(column).collect(),
            base,
            decoded: HashMap::new(),
            table,
        };
        base += one.table.pages() as u32;
        one
    };
    let customer = tpch(&tables, TpchTable::Customer, factor, |_| {})?;
    let mut keys = Vec::new();
    let orders = tpch(&tables, TpchTable::Orders, factor, |batch| {
        let customers = batch
            .column_by_name("o_custkey")
            .expect("a column of orders");
        let customers = customers.as_primitive::<Int64Type>().values();
        let row = keys.len() as i64;
        keys.extend(customers.iter().copied().zip(row..));
    })?;
    let index = index(&tables, keys)?;
    let lineitem = tpch(&tables, TpchTable::Lineitem, factor, |_| {})?;
    Ok(StoredTables {
        customer: one(customer, &["c_custkey", "c_mktsegment"]),
        index: one(index, &["key", "row"]),
        orders: one(orders, &["o_orderkey", "o_orderdate", "o_shippriority"]),
        lineitem: one(
            lineitem,
            &["l_orderkey", "l_extendedprice", "l_discount", "l_shipdate"],
        ),
        accesses: Vec::new(),
        blocks: base,
    })
}

fn options(text_widths: HashMap<String, u16>) -> LoadOptions {
    LoadOptions {
        page_size: PageSize::new(PAGE).expect("a size of pages"),
        layout: Layout::Rows,
        text_widths,
        ..LoadOptions::default()
    }
}

fn tpch(
    tables: &Tables,
    table: TpchTable,
    factor: f64,
    mut seen: impl FnMut(&RecordBatch),
) -> Result<Arc<Table>, RunError> {
    let schema = table.schema();
    let fields = schema.fields().iter();
    let widths = fields.filter_map(|f| Some((f.name().clone(), table.text_width(f.name())?)));
    let batches = table.batches(factor, THREADS);
    let batches = batches.inspect(|batch| seen(batch));
    fill(
        tables,
        table.name(),
        &schema,
        &options(widths.collect()),
        batches,
    )
}

fn index(tables: &Tables, mut keys: Vec<(i64, i64)>) -> Result<Arc<Table>, RunError> {
    keys.sort_unstable();
    let field = |name: &str| Field::new(name, DataType::Int64, false);
    let schema = Arc::new(Schema::new(vec![field("key"), field("row")]));
    let batches = keys.chunks(BATCH).map(|keys| {
        let of = |part: fn(&(i64, i64)) -> i64| -> ArrayRef {
            Arc::new(keys.iter().map(part).collect::<Int64Array>())
        };
        let columns = vec![of(|key| key.0), of(|key| key.1)];
        RecordBatch::try_new(Arc::clone(&schema), columns).expect("columns of the schema")
    });
    fill(
        tables,
        "orders_by_customer",
        &schema,
        &options(HashMap::new()),
        batches,
    )
}

fn fill(
    tables: &Tables,
    name: &str,
    schema: &SchemaRef,
    options: &LoadOptions,
    batches: impl Iterator<Item = RecordBatch>,
) -> Result<Arc<Table>, RunError> {
    let failed = |error: pages::Error| RunError::of(error);
    let load = tables.load(name, schema, options, Mode::Create);
    let mut load = load.map_err(failed)?;
    for batch in batches {
        load.push(&batch).map_err(failed)?;
    }
    load.commit().map_err(failed)
}

impl StoredTable {
    fn entries(&self) -> &[PageEntry] {
        &self.table.segments[0].groups[0]
    }

    /// Returns the number of its pages.
    pub(super) fn pages(&self) -> usize {
        self.entries().len()
    }

    /// Returns the page that has a row.
    fn page_of(&self, row: u64) -> usize {
        let entries = self.entries();
        entries.partition_point(|entry| entry.first_row <= row) - 1
    }

    /// Returns the pages that may have a key, if the rows lie in the order of the first column.
    pub(super) fn pages_with(&self, key: i64) -> std::ops::Range<usize> {
        let (entries, key) = (self.entries(), i128::from(key));
        let ends = |entry: &PageEntry| match entry.bounds[self.columns[0]].range {
            Range::Int { min, max } => (min, max),
            _ => (i128::MIN, i128::MAX),
        };
        let first = entries.partition_point(|entry| ends(entry).1 < key);
        let behind = entries.partition_point(|entry| ends(entry).0 <= key);
        first..behind
    }

    /// Requests a page, which is an access.
    pub(super) fn page(
        &mut self,
        page: usize,
        accesses: &mut Vec<u32>,
    ) -> Result<Rc<DecodedPage>, RunError> {
        let segment = &self.table.segments[0];
        let entry = &segment.groups[0][page];
        accesses.push(self.base + entry.page.0);
        if let Some(rows) = self.decoded.get(&entry.page.0) {
            return Ok(Rc::clone(rows));
        }
        let address = PageAddress {
            segment: segment.id,
            page: entry.page,
        };
        let read = self.source.read(&self.table, vec![address]).next();
        let page = read.ok_or("a page that is not there")?;
        let page = page.map_err(RunError::of)?;
        let column = |&column: &usize| {
            let array = page.column(column).map_err(RunError::of)?;
            numbers(&widen(&array, self.table.schema.field(column).data_type()))
        };
        let rows = Rc::new(DecodedPage {
            first: entry.first_row,
            columns: self
                .columns
                .iter()
                .map(column)
                .collect::<Result<_, RunError>>()?,
        });
        self.decoded.insert(entry.page.0, Rc::clone(&rows));
        Ok(rows)
    }

    /// Returns the columns of a row. Its page is an access.
    pub(super) fn row<const N: usize>(
        &mut self,
        row: u64,
        accesses: &mut Vec<u32>,
    ) -> Result<[i64; N], RunError> {
        let rows = self.page(self.page_of(row), accesses)?;
        Ok(rows.row((row - rows.first) as usize))
    }
}

fn numbers(array: &ArrayRef) -> Result<Vec<i64>, RunError> {
    Ok(match array.data_type() {
        DataType::Int64 => array.as_primitive::<Int64Type>().values().to_vec(),
        DataType::Int32 => {
            let all = array.as_primitive::<Int32Type>().values();
            all.iter().map(|&one| one.into()).collect()
        }
        DataType::Date32 => {
            let all = array.as_primitive::<Date32Type>().values();
            all.iter().map(|&one| one.into()).collect()
        }
        DataType::Decimal128(..) => {
            let all = array.as_primitive::<Decimal128Type>().values();
            all.iter().map(|&one| one as i64).collect()
        }
        DataType::Utf8 => {
            let all = array.as_string::<i32>().iter();
            all.map(|one| i64::from(one == Some(SEGMENT))).collect()
        }
        other => {
            return Err(RunError::Failed(format!(
                "the query wants no column of {other}"
            )));
        }
    })
}
