//! The tables: their names, columns and sizes.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use pages::row::Form;

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
                ColumnKind::Key => DataType::Int64,
                ColumnKind::Int => DataType::Int32,
                ColumnKind::Money => DataType::Decimal128(15, 2),
                ColumnKind::Date => DataType::Date32,
                ColumnKind::Text(_) => DataType::Utf8,
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
            ColumnKind::Text(width) => Some(width),
            _ => None,
        }
    }

    /// Returns the forms of the columns in records: those of paper 4, table 4.3, for `lineitem`.
    /// For other tables they follow from the columns' types.
    #[must_use]
    pub fn forms(self) -> Option<Vec<Form>> {
        (self == TpchTable::Lineitem).then(|| LINEITEM_FORMS.to_vec())
    }

    fn columns(self) -> &'static [(&'static str, ColumnKind)] {
        use ColumnKind::{Date, Int, Key, Money, Text};
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
}

/// The contents of a column.
#[derive(Clone, Copy)]
enum ColumnKind {
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
