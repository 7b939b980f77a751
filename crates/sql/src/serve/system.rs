//! PostgreSQL's system catalogue: what psql's `\d` and tools ask to find tables, columns and types.
//!
//! A statement is DataFusion's as it stands, unless it reads tables of the system catalogue, or names something
//! of it that DataFusion does not take. It is rewritten then into what DataFusion takes: functions and operators
//! without their schema, `'name'::regclass` as a look into the catalogue, and what
//! [`catalogue_queries`](super::catalogue_queries) lists.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{AsArray, Int32Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility, create_udf,
};
use datafusion::sql::sqlparser::ast::{Query, Statement};
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::setup_pg_catalog;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;

use crate::serve::activity::Own;
use crate::serve::catalogue_queries::{reads_catalogue, simplify};
use crate::serve::catalogue_tables::{Completed, SharedCatalogue};
use crate::serve::{setting_functions, types};
use crate::session::{CATALOGUE, MOST_OPERATORS, SCHEMA, Session};
use crate::shell::script::operators;

/// Functions whose values are not known, or of which there are none: null.
const NULLS: [(&str, DataType); 12] = [
    ("pg_advisory_unlock_all", DataType::Utf8),
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
pub(super) const SYSTEM_SCHEMA: &str = "pg_catalog";

/// What names something of the system catalogue, in lower case.
const NAMES: [&str; 18] = [
    "pg_",
    "::reg",
    "array_lower",
    "array_upper",
    "col_description",
    "current_setting",
    "format_type",
    "has_database_privilege",
    "has_schema_privilege",
    "has_table_privilege",
    "obj_description",
    "current_catalog",
    "current_database",
    "current_schema",
    "current_user",
    "session_user",
    "set_config",
    "to_regtype",
];

/// A session, to which the system catalogue comes when it is first asked for.
#[derive(Clone)]
pub(crate) struct System {
    session: Session,
    own: Arc<Own>,
    shared: SharedCatalogue,
    rewriter: Arc<OnceLock<PostgresCompatibilityParser>>,
}

impl System {
    pub(crate) fn new(session: Session, own: Arc<Own>, shared: SharedCatalogue) -> System {
        System {
            session,
            own,
            shared,
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
        if !names_system(sql) || operators(sql) > MOST_OPERATORS {
            return self.session.logical(sql).await;
        }
        let rewritten = self.rewriter().await?.parse(sql);
        match <[Statement; 1]>::try_from(rewritten.unwrap_or_default()) {
            Ok([statement]) => self.either(statement, self.session.logical(sql)).await,
            Err(_) => self.session.logical(sql).await,
        }
    }

    /// Does the same as [`System::logical`] for a query that was read already, and has no more operators than one may.
    ///
    /// # Errors
    /// The same.
    pub(crate) async fn logical_of(&self, query: Box<Query>) -> Result<LogicalPlan> {
        let statement = Statement::Query(query);
        if !names_system(&statement.to_string()) {
            return self.session.logical_of(statement).await;
        }
        let rewritten = self.rewriter().await?.rewrite(statement.clone());
        self.either(rewritten, self.session.logical_of(statement))
            .await
    }

    /// Plans a statement as it stands, or as it was rewritten. Of one that reads the system catalogue the rewritten
    /// one comes first: as it stands, DataFusion may refuse it only once it is planned further.
    async fn either(
        &self,
        mut rewritten: Statement,
        as_it_stands: impl Future<Output = Result<LogicalPlan>>,
    ) -> Result<LogicalPlan> {
        if reads_catalogue(&rewritten) {
            simplify(&mut rewritten);
            match self.session.logical_of(rewritten).await {
                Ok(plan) => Ok(plan),
                Err(refused) => as_it_stands.await.map_err(|_| refused),
            }
        } else if let Ok(plan) = as_it_stands.await {
            Ok(plan)
        } else {
            simplify(&mut rewritten);
            self.session.logical_of(rewritten).await
        }
    }

    async fn rewriter(&self) -> Result<&PostgresCompatibilityParser> {
        if let Some(rewriter) = self.rewriter.get() {
            return Ok(rewriter);
        }
        let context = self.session.context();
        setup_pg_catalog(context, CATALOGUE, EmptyContextProvider).map_err(|error| *error)?;
        if let Some(catalogue) = context.catalog(CATALOGUE)
            && let Some(schema) = catalogue.schema(SYSTEM_SCHEMA)
            && let Some(pages) = catalogue.schema(SCHEMA)
        {
            let schema = Completed::new(self.shared.or(schema), pages).await?;
            catalogue.register_schema(SYSTEM_SCHEMA, self.own.schema(Arc::new(schema)))?;
        }
        for function in self.own.functions() {
            context.register_udf(function);
        }
        for function in setting_functions::functions() {
            context.register_udf(function);
        }
        context.register_udf(to_regtype());
        for (name, gives) in NULLS {
            context.register_udf(constant(name, ScalarValue::try_from(&gives)?));
        }
        for name in VISIBLE {
            context.register_udf(constant(name, ScalarValue::Boolean(Some(true))));
        }
        Ok(self.rewriter.get_or_init(PostgresCompatibilityParser::new))
    }
}

/// Returns the function that gives the number of a type by its name; null if there is no such type.
fn to_regtype() -> ScalarUDF {
    let numbers = |arguments: &[ColumnarValue]| {
        let names = ColumnarValue::values_to_arrays(arguments)?;
        let names = names[0].as_string::<i32>().iter();
        let numbers: Int32Array = names.map(|name| types::number_of(name?)).collect();
        Ok(ColumnarValue::Array(Arc::new(numbers)))
    };
    let takes = vec![DataType::Utf8];
    let gives = DataType::Int32;
    create_udf(
        "to_regtype",
        takes,
        gives,
        Volatility::Stable,
        Arc::new(numbers),
    )
}

/// Returns a function that has the same value for all arguments.
fn constant(name: &'static str, value: ScalarValue) -> ScalarUDF {
    let arguments = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
    let signature = Signature::one_of(arguments, Volatility::Immutable);
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

fn names_system(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    NAMES.iter().any(|name| sql.contains(name))
}
