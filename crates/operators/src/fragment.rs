//! The part of a query that runs beside the data.

use arrow_schema::{DataType, Schema, SchemaRef};
use pages::{Layout, Table};

use crate::expr::{Expr, ExprError};
use crate::types;

/// The work on a table's rows that pass the filter.
#[derive(Clone, PartialEq, Debug)]
pub struct Fragment {
    /// The columns that expressions refer to, as places in the table's schema. The place after the
    /// last one is that of the whole record, as `Binary`, in tables in the layout of rows.
    pub columns: Vec<usize>,
    /// The condition that rows must meet to pass; `None` lets all pass.
    pub filter: Option<Expr>,
    /// The work on the rows that pass.
    pub work: FragmentWork,
    /// The names and types of the output's columns.
    pub output: SchemaRef,
}

/// The work on rows.
#[derive(Clone, PartialEq, Debug)]
pub enum FragmentWork {
    /// The rows come out.
    Rows {
        /// The expressions whose values come out.
        project: Vec<Expr>,
        /// The keys by which the first rows are chosen and ordered. Without keys any rows may be
        /// chosen. Without a limit nothing is put in order.
        order: Vec<SortKey>,
        /// The most rows that come out; of ordered rows at most [`ORDERED`].
        limit: Option<u64>,
    },
    /// Partial aggregates of groups come out: the groups' values, then each aggregate's state. A
    /// group may come out more than once; the reader adds its states up.
    Aggregate {
        /// The values that the rows of a group have in common. Without any there is a single group,
        /// which exists even if there are no rows.
        by: Vec<Expr>,
        /// The aggregates of each group.
        aggregates: Vec<Aggregate>,
    },
}

/// A key of an order.
#[derive(Clone, PartialEq, Debug)]
pub struct SortKey {
    /// The expression by which rows are ordered.
    pub expr: Expr,
    /// `true` for an order from the greatest to the least.
    pub descending: bool,
    /// `true` if nulls come first.
    pub nulls_first: bool,
}

/// An aggregate of a group's rows. Its state's types are in the fragment's output.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    /// The function.
    pub function: Function,
    /// The argument; for [`Function::Count`], `None` counts rows.
    pub of: Option<Expr>,
    /// The condition that the rows must meet; `None` takes all rows.
    pub filter: Option<Expr>,
}

/// Aggregate functions, and their states. States of no values are null, except that of
/// [`Function::Count`], which is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// The number of values that are not null. State: an `Int64`.
    Count,
    /// State: the sum, of the output's type.
    Sum,
    /// State: the least.
    Min,
    /// State: the greatest.
    Max,
    /// State: a count (`UInt64`), then the sum, of the output's types. Of no values both are null,
    /// because a merge of states would take a count of 0 for a value.
    Avg,
}

/// The most rows that are ordered.
pub const ORDERED: u64 = 1 << 20;
/// The most values by which rows are grouped, and the most keys of an order.
pub const KEYS: usize = 63;
/// The most columns that a fragment refers to, and the most that come out.
pub const COLUMNS: usize = 4096;

/// Why a fragment cannot be executed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum FragmentError {
    /// One of its expressions cannot be evaluated.
    #[error(transparent)]
    Expr(#[from] ExprError),
    /// It refers to a column that the table does not have.
    #[error("there is no column {column} in the table: there are {columns}")]
    Column {
        /// The place of the missing column.
        column: usize,
        /// The number of columns.
        columns: usize,
    },
    /// An output column has another type than the output's schema says.
    #[error("column {column} that comes out has type {found}, and not {expected}")]
    Output {
        /// The place of the column.
        column: usize,
        /// The type in the schema.
        expected: DataType,
        /// The type of the column.
        found: DataType,
    },
    /// The output has another number of columns than its schema says.
    #[error("{found} columns come out, and not {expected}")]
    Width {
        /// The number in the schema.
        expected: usize,
        /// The number of output columns.
        found: usize,
    },
    /// It refers to records, and the table has none.
    #[error("records lie in tables in the layout of rows alone")]
    NoRecords,
    /// A limit is exceeded.
    #[error("{0}")]
    TooMany(&'static str),
}

impl Fragment {
    /// Returns the types of its columns in a table.
    ///
    /// # Errors
    /// Returns an error if the table does not have one of them.
    pub fn column_types(&self, table: &Schema) -> Result<Vec<DataType>, FragmentError> {
        let fields = table.fields();
        let of = |&column: &usize| match fields.get(column) {
            Some(field) => Ok(field.data_type().clone()),
            None if column == fields.len() => Ok(DataType::Binary),
            None => Err(FragmentError::Column {
                column,
                columns: fields.len(),
            }),
        };
        self.columns.iter().map(of).collect()
    }

    /// Checks that it can be executed over a table: all columns exist, all expressions have types,
    /// and the output is as its schema says.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn check(&self, table: &Schema) -> Result<(), FragmentError> {
        if self.columns.len() > COLUMNS {
            return Err(FragmentError::TooMany(
                "a fragment refers to too many columns",
            ));
        }
        self.check_types(&self.column_types(table)?)
    }

    /// Checks as [`Fragment::check`], for a table whose layout is known.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn check_table(&self, table: &Table) -> Result<(), FragmentError> {
        let columns = table.schema.fields().len();
        if table.layout == Layout::Columns && self.columns.contains(&columns) {
            return Err(FragmentError::NoRecords);
        }
        self.check(&table.schema)
    }

    /// Checks as [`Fragment::check`], with the types of the columns that it refers to.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn check_types(&self, columns: &[DataType]) -> Result<(), FragmentError> {
        if let Some(filter) = &self.filter
            && filter.data_type(columns)? != DataType::Boolean
        {
            return Err(ExprError::Argument("a filter is a condition").into());
        }
        let mut found = Vec::new();
        match &self.work {
            FragmentWork::Rows {
                project,
                order,
                limit,
            } => {
                if order.len() > KEYS || project.len() > COLUMNS {
                    return Err(FragmentError::TooMany("rows have too many keys or values"));
                }
                if !order.is_empty() && limit.is_some_and(|limit| limit > ORDERED) {
                    return Err(FragmentError::TooMany("too many rows are to be ordered"));
                }
                for key in order {
                    key.expr.data_type(columns)?;
                }
                for expr in project {
                    found.push(expr.data_type(columns)?);
                }
            }
            FragmentWork::Aggregate { by, aggregates } => {
                if by.len() > KEYS || aggregates.len() > COLUMNS {
                    return Err(FragmentError::TooMany(
                        "groups have too many keys or aggregates",
                    ));
                }
                for expr in by {
                    found.push(expr.data_type(columns)?);
                }
                for aggregate in aggregates {
                    found.extend(aggregate.state_types(columns)?);
                }
            }
        }
        self.check_output(&found)
    }

    fn check_output(&self, found: &[DataType]) -> Result<(), FragmentError> {
        let fields = self.output.fields();
        if fields.len() != found.len() {
            return Err(FragmentError::Width {
                expected: fields.len(),
                found: found.len(),
            });
        }
        for (column, (field, found)) in fields.iter().zip(found).enumerate() {
            if field.data_type() != found {
                let (expected, found) = (field.data_type().clone(), found.clone());
                return Err(FragmentError::Output {
                    column,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }
}

impl Aggregate {
    /// Returns the types of its state, if columns have these types.
    fn state_types(&self, columns: &[DataType]) -> Result<Vec<DataType>, ExprError> {
        if let Some(filter) = &self.filter
            && filter.data_type(columns)? != DataType::Boolean
        {
            return Err(ExprError::Argument("an aggregate's filter is a condition"));
        }
        let of = self.of.as_ref();
        let of = of.map(|of| of.data_type(columns)).transpose()?;
        let of = match (self.function, of) {
            (Function::Count, _) => return Ok(vec![DataType::Int64]),
            (_, None) => return Err(ExprError::Argument("only a count is of no value")),
            (_, Some(of)) => of,
        };
        let known = |found: Option<DataType>| found.ok_or_else(|| ExprError::Type(of.clone()));
        Ok(match self.function {
            Function::Sum => vec![known(types::sum_type(&of))?],
            Function::Avg => vec![DataType::UInt64, known(types::average_sum_type(&of))?],
            _ => vec![of],
        })
    }
}
