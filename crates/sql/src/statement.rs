//! Checks and rewrites a statement between parsing and planning.
//!
//! | part | |
//! |---|---|
//! | relations | a statement that would read too many tables, with those of its common table expressions as often as these are named, is refused |
//! | samples | `TABLESAMPLE` is refused, which DataFusion would ignore |
//! | `expressions` | what means something else to DataFusion is written in its words, or refused |
//! | [`names`] | columns without a name get PostgreSQL's, and columns of one name can be told apart |

mod arrays;
mod bytes;
mod expressions;
mod formats;
mod names;
mod numbers;
mod patterns;

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::common::{Result, not_impl_err, plan_err};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, Query, Statement, TableFactor, Visit, Visitor,
};

pub(crate) use arrays::elements as array_elements;
pub(crate) use names::{named, shown, shown_schema};
pub(crate) use patterns::function as like_pattern;

/// The most tables that a statement may read. One that is named twice counts twice, and so do those of a common
/// table expression.
const MOST_RELATIONS: u64 = 1_000;
/// The error for a statement that reads more.
pub(crate) const TOO_MANY_RELATIONS: &str = "the statement reads more than 1000 tables, where those of a query in WITH \
                                             count as often as it is named: ask in several statements";

/// Checks a statement, and writes its expressions in DataFusion's form.
///
/// # Errors
/// Returns an error if the statement reads too many tables, or uses features that do not exist.
pub(crate) fn prepare(statement: &mut DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(statement) => {
            check(statement).and_then(|()| expressions::rewrite(statement))
        }
        DfStatement::Explain(explain) => prepare(&mut explain.statement),
        _ => Ok(()),
    }
}

fn check(statement: &Statement) -> Result<()> {
    let mut relations = Relations::default();
    if statement.visit(&mut relations).is_break() {
        return not_impl_err!("TABLESAMPLE is not supported: use WHERE random() < 0.1, or LIMIT");
    }
    if relations.most > MOST_RELATIONS {
        return plan_err!("{TOO_MANY_RELATIONS}");
    }
    Ok(())
}

/// Counts the tables that a statement reads.
#[derive(Default)]
struct Relations {
    /// The queries that are being visited, the outermost first.
    queries: Vec<Frame>,
    /// The most tables that a query reads.
    most: u64,
}

/// A query that is being visited.
#[derive(Default)]
struct Frame {
    /// Its common table expressions that were not visited yet, the last first.
    unvisited: Vec<String>,
    /// The number of tables that each visited one reads.
    visited: HashMap<String, u64>,
    /// The number of tables that the query reads so far.
    reads: u64,
}

fn name_of(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

impl Visitor for Relations {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| with.cte_tables.iter());
        let unvisited = tables.map(|table| name_of(&table.alias.name)).rev();
        self.queries.push(Frame {
            unvisited: unvisited.collect(),
            ..Frame::default()
        });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        let reads = self.queries.pop().map_or(0, |frame| frame.reads.max(1));
        self.most = self.most.max(reads);
        if let Some(outer) = self.queries.last_mut() {
            // The queries of WITH are visited before all others.
            match outer.unvisited.pop() {
                Some(name) => {
                    outer.visited.insert(name, reads);
                }
                None => outer.reads = outer.reads.saturating_add(reads),
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let reads = match &relation.0[..] {
            [part] => part.as_ident().and_then(|ident| {
                let name = name_of(ident);
                let mut frames = self.queries.iter().rev();
                frames.find_map(|frame| frame.visited.get(&name).copied())
            }),
            _ => None,
        };
        if let Some(query) = self.queries.last_mut() {
            query.reads = query.reads.saturating_add(reads.unwrap_or(1));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        match table {
            TableFactor::Table {
                sample: Some(_), ..
            }
            | TableFactor::Derived {
                sample: Some(_), ..
            } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    fn reads(sql: &str) -> u64 {
        let statements = DFParser::parse_sql(sql).unwrap();
        let Some(DfStatement::Statement(statement)) = statements.front() else {
            panic!("it is one statement");
        };
        let mut relations = Relations::default();
        assert!(statement.visit(&mut relations).is_continue());
        relations.most
    }

    #[test]
    fn tables_count_as_often_as_they_are_read() {
        assert_eq!(reads("select 1"), 1);
        assert_eq!(reads("select * from a, b join c using (x)"), 3);
        assert_eq!(reads("select * from a where x in (select y from b)"), 2);
        let doubled = "with a as (select 1), b as (select * from a, a a2), c as (select * from b union all \
                       select * from B) select * from c, c d";
        assert_eq!(reads(doubled), 8);
        // A name refers to the nearest definition.
        let inner = "with a as (select * from x, y, z) select * from (with a as (select 1) select * from a) b, a";
        assert_eq!(reads(inner), 4);
        let recursive = "with recursive n as (select 1 union all select * from n) select * from n";
        assert_eq!(reads(recursive), 1);
    }
}
