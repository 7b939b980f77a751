//! The tables of TPC-H, at any scale factor.
//!
//! Rows are generated in parts, by threads of their own, and come in their order. Their types are
//! those of the generator's own arrays: keys `Int64`, other integers `Int32`, decimals
//! `Decimal128(15, 2)`, dates `Date32`, texts `Utf8`.

#![forbid(unsafe_code)]

mod columns;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use pages::row::Form;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};

/// Rows of a batch.
const BATCH: usize = 8192;
/// About the number of rows of a part.
const PART: u64 = 1 << 16;
/// The number of batches that a thread is ahead.
const AHEAD: usize = 16;

/// A table of TPC-H.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum TpchTable {
    Nation,
    Region,
    Part,
    Supplier,
    Partsupp,
    Customer,
    Orders,
    Lineitem,
}

impl TpchTable {
    /// All tables, the small ones first.
    pub const ALL: [TpchTable; 8] = [
        TpchTable::Nation,
        TpchTable::Region,
        TpchTable::Supplier,
        TpchTable::Customer,
        TpchTable::Part,
        TpchTable::Partsupp,
        TpchTable::Orders,
        TpchTable::Lineitem,
    ];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TpchTable::Nation => "nation",
            TpchTable::Region => "region",
            TpchTable::Part => "part",
            TpchTable::Supplier => "supplier",
            TpchTable::Partsupp => "partsupp",
            TpchTable::Customer => "customer",
            TpchTable::Orders => "orders",
            TpchTable::Lineitem => "lineitem",
        }
    }

    /// Returns the table of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<TpchTable> {
        TpchTable::ALL
            .into_iter()
            .find(|table| table.name() == name)
    }

    /// Returns the number of its rows; for `lineitem` about this number.
    #[must_use]
    pub fn rows(self, scale_factor: f64) -> u64 {
        let rows = |of_one: f64| (of_one * scale_factor) as u64;
        match self {
            TpchTable::Nation => 25,
            TpchTable::Region => 5,
            TpchTable::Part => rows(200_000.0),
            TpchTable::Supplier => rows(10_000.0),
            TpchTable::Partsupp => rows(800_000.0),
            TpchTable::Customer => rows(150_000.0),
            TpchTable::Orders => rows(1_500_000.0),
            TpchTable::Lineitem => rows(6_001_215.0),
        }
    }

    /// Returns its columns.
    #[must_use]
    pub fn schema(self) -> SchemaRef {
        let fields = self.columns().iter().map(|(name, of)| {
            let data_type = match of {
                Of::Key => DataType::Int64,
                Of::Int => DataType::Int32,
                Of::Money => DataType::Decimal128(15, 2),
                Of::Date => DataType::Date32,
                Of::Text(_) => DataType::Utf8,
            };
            Field::new(*name, data_type, false)
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// Returns the most bytes of the texts of a column; `None` if it has no texts.
    #[must_use]
    pub fn text_width(self, column: &str) -> Option<u16> {
        let found = self.columns().iter().find(|(name, _)| *name == column);
        match found?.1 {
            Of::Text(width) => Some(width),
            _ => None,
        }
    }

    /// Returns the forms of the columns in records: those of paper 4, table 4.3, for `lineitem`.
    /// For other tables they follow from the columns' types.
    #[must_use]
    pub fn forms(self) -> Option<Vec<Form>> {
        (self == TpchTable::Lineitem).then(|| LINEITEM_FORMS.to_vec())
    }

    fn columns(self) -> &'static [(&'static str, Of)] {
        use Of::{Date, Int, Key, Money, Text};
        match self {
            TpchTable::Nation => &[
                ("n_nationkey", Key),
                ("n_name", Text(25)),
                ("n_regionkey", Key),
                ("n_comment", Text(152)),
            ],
            TpchTable::Region => &[
                ("r_regionkey", Key),
                ("r_name", Text(25)),
                ("r_comment", Text(152)),
            ],
            TpchTable::Part => &[
                ("p_partkey", Key),
                ("p_name", Text(55)),
                ("p_mfgr", Text(25)),
                ("p_brand", Text(10)),
                ("p_type", Text(25)),
                ("p_size", Int),
                ("p_container", Text(10)),
                ("p_retailprice", Money),
                ("p_comment", Text(23)),
            ],
            TpchTable::Supplier => &[
                ("s_suppkey", Key),
                ("s_name", Text(25)),
                ("s_address", Text(40)),
                ("s_nationkey", Key),
                ("s_phone", Text(15)),
                ("s_acctbal", Money),
                ("s_comment", Text(101)),
            ],
            TpchTable::Partsupp => &[
                ("ps_partkey", Key),
                ("ps_suppkey", Key),
                ("ps_availqty", Int),
                ("ps_supplycost", Money),
                ("ps_comment", Text(199)),
            ],
            TpchTable::Customer => &[
                ("c_custkey", Key),
                ("c_name", Text(25)),
                ("c_address", Text(40)),
                ("c_nationkey", Key),
                ("c_phone", Text(15)),
                ("c_acctbal", Money),
                ("c_mktsegment", Text(10)),
                ("c_comment", Text(117)),
            ],
            TpchTable::Orders => &[
                ("o_orderkey", Key),
                ("o_custkey", Key),
                ("o_orderstatus", Text(1)),
                ("o_totalprice", Money),
                ("o_orderdate", Date),
                ("o_orderpriority", Text(15)),
                ("o_clerk", Text(15)),
                ("o_shippriority", Int),
                ("o_comment", Text(79)),
            ],
            TpchTable::Lineitem => &[
                ("l_orderkey", Key),
                ("l_partkey", Key),
                ("l_suppkey", Key),
                ("l_linenumber", Int),
                ("l_quantity", Money),
                ("l_extendedprice", Money),
                ("l_discount", Money),
                ("l_tax", Money),
                ("l_returnflag", Text(1)),
                ("l_linestatus", Text(1)),
                ("l_shipdate", Date),
                ("l_commitdate", Date),
                ("l_receiptdate", Date),
                ("l_shipinstruct", Text(25)),
                ("l_shipmode", Text(10)),
                ("l_comment", Text(44)),
            ],
        }
    }

    /// Returns its rows, in their order, generated by so many threads.
    ///
    /// # Panics
    /// Panics without threads.
    #[must_use]
    pub fn batches(self, scale_factor: f64, threads: usize) -> Batches {
        let parts = match self {
            // The generators of these do not divide them.
            TpchTable::Nation | TpchTable::Region => 1,
            _ => self.rows(scale_factor).div_ceil(PART).max(1),
        };
        let parts = i32::try_from(parts).expect("a sensible scale factor");
        let threads = threads.min(parts as usize);
        assert!(threads > 0, "someone generates the rows");
        let receivers = (0..threads).map(|thread| {
            let (sender, receiver) = sync_channel(AHEAD);
            let work = move || {
                for part in (1..=parts).skip(thread).step_by(threads) {
                    let scale = Scale {
                        scale_factor,
                        part,
                        parts,
                    };
                    if !self.generate(scale, &sender) || sender.send(None).is_err() {
                        return;
                    }
                }
            };
            let name = format!("tpch-{thread}");
            let spawned = thread::Builder::new().name(name).spawn(work);
            spawned.expect("a thread can be started");
            receiver
        });
        Batches {
            receivers: receivers.collect(),
            part: 0,
            parts: parts as usize,
        }
    }

    /// Generates a part. Returns `false` if the receiver is gone.
    fn generate(self, scale: Scale, to: &SyncSender<Option<RecordBatch>>) -> bool {
        let Scale {
            scale_factor: factor,
            part,
            parts,
        } = scale;
        let pour = Pour {
            schema: self.schema(),
            to,
        };
        match self {
            TpchTable::Nation => pour.all(
                NationGenerator::new(factor, part, parts).iter(),
                columns::nation,
            ),
            TpchTable::Region => pour.all(
                RegionGenerator::new(factor, part, parts).iter(),
                columns::region,
            ),
            TpchTable::Part => pour.all(
                PartGenerator::new(factor, part, parts).iter(),
                columns::part,
            ),
            TpchTable::Supplier => pour.all(
                SupplierGenerator::new(factor, part, parts).iter(),
                columns::supplier,
            ),
            TpchTable::Partsupp => pour.all(
                PartSuppGenerator::new(factor, part, parts).iter(),
                columns::partsupp,
            ),
            TpchTable::Customer => pour.all(
                CustomerGenerator::new(factor, part, parts).iter(),
                columns::customer,
            ),
            TpchTable::Orders => pour.all(
                OrderGenerator::new(factor, part, parts).iter(),
                columns::orders,
            ),
            TpchTable::Lineitem => pour.all(
                LineItemGenerator::new(factor, part, parts).iter(),
                columns::lineitem,
            ),
        }
    }
}

/// The contents of a column.
#[derive(Clone, Copy)]
enum Of {
    Key,
    Int,
    Money,
    Date,
    /// Texts of at most so many bytes.
    Text(u16),
}

/// The forms of paper 4, table 4.3. Texts end with a zero, except single characters.
const LINEITEM_FORMS: [Form; 16] = [
    Form::U32,
    Form::U32,
    Form::U32,
    Form::U16,
    Form::U16,
    Form::F32,
    Form::F32,
    Form::F32,
    Form::Chars(1),
    Form::Chars(1),
    Form::Chars(11),
    Form::Chars(11),
    Form::Chars(11),
    Form::Chars(26),
    Form::Chars(11),
    Form::Chars(45),
];

#[derive(Clone, Copy)]
struct Scale {
    scale_factor: f64,
    part: i32,
    parts: i32,
}

struct Pour<'a> {
    schema: SchemaRef,
    to: &'a SyncSender<Option<RecordBatch>>,
}

impl Pour<'_> {
    fn all<R>(
        &self,
        mut rows: impl Iterator<Item = R>,
        columns: impl Fn(&[R]) -> Vec<ArrayRef>,
    ) -> bool {
        loop {
            let some: Vec<R> = rows.by_ref().take(BATCH).collect();
            if some.is_empty() {
                return true;
            }
            let batch = RecordBatch::try_new(self.schema.clone(), columns(&some));
            let batch = batch.expect("columns are those of the schema");
            if self.to.send(Some(batch)).is_err() {
                return false;
            }
        }
    }
}

/// A table's rows. Threads that generate them end when this is dropped.
pub struct Batches {
    /// Thread *n* sends the parts *n*, *n* + threads, …, each with an end.
    receivers: Vec<Receiver<Option<RecordBatch>>>,
    part: usize,
    parts: usize,
}

impl Iterator for Batches {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        while self.part < self.parts {
            let receiver = &self.receivers[self.part % self.receivers.len()];
            match receiver.recv().expect("threads end with their last part") {
                Some(batch) => return Some(batch),
                None => self.part += 1,
            }
        }
        None
    }
}
