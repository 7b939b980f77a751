//! PostgreSQL's system catalogue: what psql's `\d` and tools ask to find tables, columns and types.
//!
//! A statement is DataFusion's as it stands. One that names something of the system catalogue, and that
//! DataFusion does not take, is rewritten into what it takes: functions and operators without their
//! schema, `'name'::regclass` as a look into the catalogue, and so on.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, LogicalPlan, ScalarUDF, Volatility, create_udf};
use datafusion::sql::sqlparser::ast::{Query, Statement};
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::setup_pg_catalog;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;

use crate::session::{CATALOGUE, MOST_OPERATORS, Session};
use crate::shell::script::operators;

/// Functions that tell the sizes of relations, which are not known by their numbers.
const UNKNOWN_SIZES: [&str; 3] = [
    "pg_table_size",
    "pg_relation_size",
    "pg_total_relation_size",
];

/// What names something of the system catalogue, in lower case.
const NAMES: [&str; 6] = [
    "pg_",
    "current_catalog",
    "current_database",
    "current_schema",
    "current_user",
    "session_user",
];

/// A session, to which the system catalogue comes when it is first asked for.
#[derive(Clone)]
pub(crate) struct System {
    session: Session,
    rewriter: Arc<OnceLock<PostgresCompatibilityParser>>,
}

impl System {
    pub(crate) fn new(session: Session) -> System {
        System {
            session,
            rewriter: Arc::default(),
        }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Plans one statement and does nothing of it.
    ///
    /// # Errors
    /// As [`Session::logical`].
    pub(crate) async fn logical(&self, sql: &str) -> Result<LogicalPlan> {
        let refused = match self.session.logical(sql).await {
            Ok(plan) => return Ok(plan),
            Err(refused) => refused,
        };
        if !names_system(sql) || operators(sql) > MOST_OPERATORS {
            return Err(refused);
        }
        let rewritten = self.rewriter()?.parse(sql);
        match <[Statement; 1]>::try_from(rewritten.unwrap_or_default()) {
            Ok([statement]) => self.session.logical_of(statement).await,
            Err(_) => Err(refused),
        }
    }

    /// [`System::logical`] of a query that was read already, and has no more operators than one may.
    ///
    /// # Errors
    /// The same.
    pub(crate) async fn logical_of(&self, query: Box<Query>) -> Result<LogicalPlan> {
        let statement = Statement::Query(query);
        let refused = match self.session.logical_of(statement.clone()).await {
            Ok(plan) => return Ok(plan),
            Err(refused) => refused,
        };
        if !names_system(&statement.to_string()) {
            return Err(refused);
        }
        let rewritten = self.rewriter()?.rewrite(statement);
        self.session.logical_of(rewritten).await
    }

    fn rewriter(&self) -> Result<&PostgresCompatibilityParser> {
        if let Some(rewriter) = self.rewriter.get() {
            return Ok(rewriter);
        }
        let context = self.session.context();
        setup_pg_catalog(context, CATALOGUE, EmptyContextProvider).map_err(|error| *error)?;
        for name in UNKNOWN_SIZES {
            context.register_udf(unknown(name, DataType::Int64, DataType::Int64));
        }
        context.register_udf(unknown("pg_size_pretty", DataType::Int64, DataType::Utf8));
        Ok(self.rewriter.get_or_init(PostgresCompatibilityParser::new))
    }
}

/// Returns a function whose value is not known: null.
fn unknown(name: &str, of: DataType, gives: DataType) -> ScalarUDF {
    let null = ScalarValue::try_from(&gives).unwrap_or(ScalarValue::Null);
    let function = Arc::new(move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(null.clone())));
    create_udf(name, vec![of], gives, Volatility::Immutable, function)
}

fn names_system(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    NAMES.iter().any(|name| sql.contains(name))
}
