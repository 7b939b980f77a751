//! The part of a query that runs beside the data.

use arrow_schema::{DataType, Schema, SchemaRef};
use pages::{Layout, Table};

use crate::aggregate;
use crate::expr::{Expr, ExprError};
use crate::topk::ORDERED;

/// What is done with a table's rows: those that pass the filter are worked on.
#[derive(Clone, PartialEq, Debug)]
pub struct Fragment {
    /// The columns that expressions refer to, as places in the table's schema. The place behind the
    /// last one is that of the record as it lies, as `Binary`, in tables in the layout of rows.
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
        /// The first ones by these keys, if any; without them, which ones is open. Without a limit
        /// nothing is put in order.
        order: Vec<SortKey>,
        /// At most so many; of ordered rows at most [`ORDERED`].
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

/// Aggregates, and their states. Those of no values are null, but for [`Function::Count`], which is
/// 0.
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
    /// State: a count (`UInt64`), then the sum, of the output's types. Of no values both are null:
    /// whoever merges states would take a count of 0 for a value that was seen.
    Avg,
}

/// The most values that groups have in common, and the most keys of an order.
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
        /// Which one.
        column: usize,
        /// How many there are.
        columns: usize,
    },
    /// A column that comes out has another type than the output's schema says.
    #[error("column {column} that comes out has type {found}, and not {expected}")]
    Output {
        /// Which one.
        column: usize,
        /// What the schema says.
        expected: DataType,
        /// The type it has.
        found: DataType,
    },
    /// What comes out has not as many columns as the output's schema says.
    #[error("{found} columns come out, and not {expected}")]
    Width {
        /// What the schema says.
        expected: usize,
        /// How many there are.
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
    /// The types of its columns in a table.
    ///
    /// # Errors
    /// If the table does not have one of them.
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

    /// Whether it can be executed over a table: all columns are there, all expressions have types,
    /// and what comes out is what the output's schema says.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, table: &Schema) -> Result<(), FragmentError> {
        if self.columns.len() > COLUMNS {
            return Err(FragmentError::TooMany(
                "a fragment refers to too many columns",
            ));
        }
        self.check_types(&self.column_types(table)?)
    }

    /// As [`Fragment::check`], for a table whose layout is known.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_table(&self, table: &Table) -> Result<(), FragmentError> {
        let columns = table.schema.fields().len();
        if table.layout == Layout::Columns && self.columns.contains(&columns) {
            return Err(FragmentError::NoRecords);
        }
        self.check(&table.schema)
    }

    /// As [`Fragment::check`], with the types of the columns that it refers to.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_types(&self, columns: &[DataType]) -> Result<(), FragmentError> {
        if let Some(filter) = &self.filter
            && filter.data_type(columns)? != DataType::Boolean
        {
            return Err(ExprError::Argument("a filter is a condition").into());
        }
        let mut found = Vec::new();
        match &self.work {
            Work::Rows {
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
            Work::Aggregate { by, aggregates } => {
                if by.len() > KEYS || aggregates.len() > COLUMNS {
                    return Err(FragmentError::TooMany(
                        "groups have too many keys or aggregates",
                    ));
                }
                for expr in by {
                    found.push(expr.data_type(columns)?);
                }
                for aggregate in aggregates {
                    found.extend(aggregate::state_types(aggregate, columns)?);
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
