//! PostgreSQL's system catalogue: what psql's `\d` and tools ask to find tables, columns and types.
//!
//! A statement is DataFusion's as it stands. One that names something of the system catalogue, and that
//! DataFusion does not take, is rewritten into what it takes: functions and operators without their
//! schema, `'name'::regclass` as a look into the catalogue, and so on.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    ObjectNamePart, Query, SelectItem, SetExpr, Statement, Value, visit_expressions_mut,
    visit_relations_mut,
};
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::setup_pg_catalog;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;

use crate::serve::activity::{Own, VIEW};
use crate::session::{CATALOGUE, MOST_OPERATORS, Session};
use crate::shell::script::operators;

/// Functions whose values are not known, or of which there are none: null.
const NULLS: [(&str, DataType); 11] = [
    ("pg_table_size", DataType::Int64),
    ("pg_relation_size", DataType::Int64),
    ("pg_total_relation_size", DataType::Int64),
    ("pg_database_size", DataType::Int64),
    ("pg_size_pretty", DataType::Utf8),
    ("obj_description", DataType::Utf8),
    ("col_description", DataType::Utf8),
    ("shobj_description", DataType::Utf8),
    ("pg_tablespace_location", DataType::Utf8),
    ("pg_get_function_result", DataType::Utf8),
    ("pg_get_function_arguments", DataType::Utf8),
];

/// Functions that say whether something can be named without its schema.
const VISIBLE: [&str; 6] = [
    "pg_function_is_visible",
    "pg_type_is_visible",
    "pg_operator_is_visible",
    "pg_opclass_is_visible",
    "pg_collation_is_visible",
    "pg_ts_config_is_visible",
];

/// The schema of the system catalogue.
const SYSTEM_SCHEMA: &str = "pg_catalog";

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
    own: Arc<Own>,
    rewriter: Arc<OnceLock<PostgresCompatibilityParser>>,
}

impl System {
    pub(crate) fn new(session: Session, own: Arc<Own>) -> System {
        System {
            session,
            own,
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
            Ok([mut statement]) => {
                simplified(&mut statement);
                self.session.logical_of(statement).await
            }
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
        let mut rewritten = self.rewriter()?.rewrite(statement);
        simplified(&mut rewritten);
        self.session.logical_of(rewritten).await
    }

    fn rewriter(&self) -> Result<&PostgresCompatibilityParser> {
        if let Some(rewriter) = self.rewriter.get() {
            return Ok(rewriter);
        }
        let context = self.session.context();
        setup_pg_catalog(context, CATALOGUE, EmptyContextProvider).map_err(|error| *error)?;
        if let Some(catalogue) = context.catalog(CATALOGUE)
            && let Some(schema) = catalogue.schema(SYSTEM_SCHEMA)
        {
            catalogue.register_schema(SYSTEM_SCHEMA, self.own.schema(schema))?;
        }
        for function in self.own.functions() {
            context.register_udf(function);
        }
        for (name, gives) in NULLS {
            context.register_udf(constant(name, ScalarValue::try_from(&gives)?));
        }
        for name in VISIBLE {
            context.register_udf(constant(name, ScalarValue::Boolean(Some(true))));
        }
        Ok(self.rewriter.get_or_init(PostgresCompatibilityParser::new))
    }
}

/// Returns a function that has the same value for all arguments.
fn constant(name: &'static str, value: ScalarValue) -> ScalarUDF {
    let signature = Signature::variadic_any(Volatility::Immutable);
    ScalarUDF::new_from_impl(Constant {
        name,
        value,
        signature,
    })
}

/// A function that has the same value for all arguments.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Constant {
    name: &'static str,
    value: ScalarValue,
    signature: Signature,
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.value.data_type())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.value.clone()))
    }
}

/// Writes what DataFusion does not understand in questions about the catalogue:
///
/// - `ARRAY(SELECT x …)` as `(SELECT array_agg(x) …)`, which differs where there are no rows;
/// - `array_to_string` of options and rights as null: no relation has any;
/// - the view of clients with its schema, which the library knows of its own tables alone.
fn simplified(statement: &mut Statement) {
    let _ = visit_relations_mut(statement, |name| {
        if let [ObjectNamePart::Identifier(only)] = &name.0[..]
            && only.value.eq_ignore_ascii_case(VIEW)
        {
            *name = ObjectName::from(vec![Ident::new(SYSTEM_SCHEMA), Ident::new(VIEW)]);
        }
        ControlFlow::<()>::Continue(())
    });
    let null = || Expr::Value(Value::Null.with_empty_span());
    let _ = visit_expressions_mut(statement, |expr| {
        if let Expr::Function(function) = expr
            && let name = function.name.to_string().to_lowercase()
            && name.ends_with("array_to_string")
            && let of = function.args.to_string().to_lowercase()
            && (of.contains("reloptions") || of.contains("acl"))
        {
            *expr = null();
            return ControlFlow::<()>::Continue(());
        }
        if let Expr::Function(function) = expr
            && function.name.to_string().eq_ignore_ascii_case("array")
            && let FunctionArguments::Subquery(mut query) = function.args.clone()
            && let SetExpr::Select(select) = query.body.as_mut()
            && let [SelectItem::UnnamedExpr(item)] = &mut select.projection[..]
        {
            let mut aggregate = function.clone();
            aggregate.name = ObjectName::from(vec![Ident::new("array_agg")]);
            let argument = std::mem::replace(item, null());
            aggregate.args = FunctionArguments::List(FunctionArgumentList {
                duplicate_treatment: None,
                args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))],
                clauses: Vec::new(),
            });
            *item = Expr::Function(aggregate);
            query.order_by = None;
            *expr = Expr::Subquery(query);
        }
        ControlFlow::<()>::Continue(())
    });
}

fn names_system(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    NAMES.iter().any(|name| sql.contains(name))
}
