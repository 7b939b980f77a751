//! The part of a query that runs beside the data.

use arrow_schema::SchemaRef;

use crate::expr::Expr;

/// What is done with a table's rows: those that pass the filter are worked on.
#[derive(Clone, PartialEq, Debug)]
pub struct Fragment {
    /// The columns that expressions refer to, as places in the table's schema.
    pub columns: Vec<usize>,
    /// Rows for which this is true pass; all, if there is none.
    pub filter: Option<Expr>,
    /// What is done with them.
    pub work: Work,
    /// Names and types of what comes out.
    pub output: SchemaRef,
}

/// What is done with rows.
#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    /// They come out.
    Rows {
        /// As values of these expressions.
        project: Vec<Expr>,
        /// The first ones by these keys, if any; without them, which ones is open.
        order: Vec<SortKey>,
        /// At most so many.
        limit: Option<u64>,
    },
    /// Partial aggregates of groups come out: the groups' values, then for each aggregate its
    /// state. A group may come out more than once; whoever merges these adds states up.
    Aggregate {
        /// What rows of a group have in common; none makes a single group, which is there even
        /// if there are no rows.
        by: Vec<Expr>,
        /// What is made of them.
        aggregates: Vec<Aggregate>,
    },
}

/// A key of an order.
#[derive(Clone, PartialEq, Debug)]
pub struct SortKey {
    /// Its value.
    pub expr: Expr,
    /// From the greatest to the least.
    pub descending: bool,
    /// Nulls come first.
    pub nulls_first: bool,
}

/// An aggregate of a group's rows. Its state's types are in the fragment's output.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    /// Which one.
    pub function: Function,
    /// Of what; for [`Function::Count`] none counts rows.
    pub of: Option<Expr>,
    /// Over the rows for which this is true; over all, if there is none.
    pub filter: Option<Expr>,
}

/// Aggregates, and their states. Those of no values are null, but for counts, which are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// How many are not null. State: an `Int64`.
    Count,
    /// State: the sum, of the output's type.
    Sum,
    /// State: the least.
    Min,
    /// State: the greatest.
    Max,
    /// State: a count (`UInt64`), then the sum, of the output's types.
    Avg,
}
