//! A session: a catalogue, DataFusion with our rules, and limits.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::DATAFUSION_VERSION;
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{
    ParamValues, Result, ScalarValue, TableReference, exec_datafusion_err, plan_err,
};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{
    ColumnarValue, DdlStatement, Deallocate, LogicalPlan, ResetVariable, ScalarUDF, SetVariable,
    Statement, Volatility, create_udf,
};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{DataFrame, SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use operators::Placement;
use tokio::runtime::{Handle, Runtime};
use tokio::time::timeout;

use crate::catalogue::Catalogue;
use crate::numbers::as_postgresql;
use crate::options::KumikiOptions;
use crate::plan_refresh::with_newest_tables;
use crate::pushdown::rules;
use crate::shell::script::operators;
use crate::sizes::{bounded, check_constants};
use crate::statement;
use crate::table::{PagesSchema, PagesTable};
use crate::zones;

/// The catalogue's and the schema's names in SQL.
pub const CATALOGUE: &str = "kumiki";
/// See [`CATALOGUE`].
pub const SCHEMA: &str = "public";

/// The release of PostgreSQL as which the server answers.
pub(crate) const POSTGRESQL_VERSION: &str = "16.6";

/// The most operators of a statement.
pub(crate) const MOST_OPERATORS: usize = 1_000;
/// Bytes of the stack of a thread that plans: enough for so many levels, even if nothing is optimised.
const STACK: usize = 64 << 20;
/// The error for a statement that has more operators.
pub(crate) const TOO_COMPLEX: &str = "the statement has more than 1000 operators: write lists of values as IN (…), or ask \
                                      in several statements";

/// The error for a setting that clients may not change.
pub(crate) const NOT_OWN: &str = "concerns the whole server, whose options say what it is: clients may set kumiki.*, \
                                  datafusion.explain.* and the time zone";

/// Makes a runtime for clients: its threads read statements, plan, and write results, while queries compute
/// on threads of their own. It has `threads` threads, or as many as there are processors. Their stacks are
/// large enough for every statement that a session accepts.
///
/// # Errors
/// Returns the error of the system.
pub fn runtime(threads: Option<NonZeroUsize>) -> std::io::Result<Runtime> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        runtime.worker_threads(threads.get());
    }
    runtime.thread_stack_size(STACK).enable_all().build()
}

/// Threads on which queries compute. An operator may compute for long before it yields: on the threads of
/// clients it would hold up all clients, and the messages that cancel queries.
#[derive(Debug)]
struct Workers(Option<Runtime>);

impl Workers {
    fn new(threads: usize) -> std::io::Result<Workers> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(threads).thread_name("queries");
        let runtime = runtime.thread_stack_size(STACK).enable_all().build()?;
        Ok(Workers(Some(runtime)))
    }

    fn handle(&self) -> &Handle {
        self.0.as_ref().expect("it has not ended").handle()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // Queries that were abandoned may compute on for a while.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The state that all sessions of a process share.
#[derive(Clone, Debug)]
pub struct Shared {
    catalogue: Arc<Catalogue>,
    runtime: Arc<RuntimeEnv>,
    workers: Arc<Workers>,
    settings: Settings,
}

/// The settings with which sessions begin.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Partitions of each scan, join and aggregate: the threads that a query keeps busy.
    pub partitions: NonZeroUsize,
    /// Queries that compute at once, including those that were cancelled and have not yielded yet: each has
    /// as many threads as partitions, which share the processors, so that no query waits for another one to
    /// end.
    pub at_once: NonZeroUsize,
    /// The requested placement.
    pub placement: Placement,
    /// `true` if work is pushed to the data.
    pub push_down: bool,
    /// Bytes that sorts, joins and aggregates may take, all together; beyond, they use temporary files or
    /// fail. `None`: no bound.
    pub memory: Option<u64>,
    /// The rights of statements.
    pub rights: Rights,
}

impl Default for Settings {
    /// Returns settings with as many partitions as processors, four queries, no bound on memory, and all
    /// rights.
    fn default() -> Settings {
        let processors = std::thread::available_parallelism();
        Settings {
            partitions: processors.unwrap_or(NonZeroUsize::MIN),
            at_once: const { NonZeroUsize::new(4).expect("it is four") },
            placement: Placement::Auto,
            push_down: true,
            memory: None,
            rights: Rights::All,
        }
    }
}

/// The rights of statements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Everything that DataFusion supports, including files of this machine (`CREATE EXTERNAL TABLE`,
    /// `COPY`): for users of this machine.
    All,
    /// Queries and settings: for clients over the network.
    Read,
}

impl Shared {
    /// Makes the shared state of sessions over a catalogue.
    ///
    /// # Errors
    /// Returns an error if there is no place for temporary files, or there are no threads.
    pub fn new(catalogue: Catalogue, settings: Settings) -> Result<Shared> {
        let threads = settings.partitions.saturating_mul(settings.at_once);
        let workers = Workers::new(threads.get())?;
        let mut runtime = RuntimeEnvBuilder::new();
        if let Some(memory) = settings.memory {
            let memory = usize::try_from(memory).unwrap_or(usize::MAX);
            runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(memory)));
        }
        Ok(Shared {
            catalogue: Arc::new(catalogue),
            runtime: runtime.build_arc()?,
            workers: Arc::new(workers),
            settings,
        })
    }

    /// Returns the catalogue.
    #[must_use]
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// Makes a new session.
    ///
    /// # Errors
    /// Returns an error if DataFusion refuses it.
    pub fn session(&self) -> Result<Session> {
        let options = KumikiOptions {
            placement: self.settings.placement.to_string(),
            push_down: self.settings.push_down,
            ..KumikiOptions::default()
        };
        let mut config = SessionConfig::new()
            .with_target_partitions(self.settings.partitions.get())
            .with_default_catalog_and_schema(CATALOGUE, SCHEMA)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true)
            .with_option_extension(options);
        // Points in time have a zone so, as `now()` and `x::timestamptz` of PostgreSQL.
        config.options_mut().execution.time_zone = Some("UTC".to_owned());
        let parser = &mut config.options_mut().sql_parser;
        // Pages have texts as one run of bytes; views of them would be made anew for each cast.
        parser.map_string_types_to_utf8view = false;
        // 0.06 is exactly that, as in PostgreSQL: a comparison with decimals does not convert them to floats.
        parser.parse_float_as_decimal = true;
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::clone(&self.runtime))
            .with_default_features()
            .with_physical_optimizer_rules(rules())
            .build();
        let context = SessionContext::new_with_state(state);
        context.register_udf(version());
        context.register_udf(zones::function());
        context.register_udf(statement::like_pattern());
        let catalogue = MemoryCatalogProvider::new();
        let schema = PagesSchema::new(Arc::clone(&self.catalogue));
        catalogue.register_schema(SCHEMA, Arc::new(schema))?;
        context.register_catalog(CATALOGUE, Arc::new(catalogue));
        Ok(Session {
            catalogue: Arc::clone(&self.catalogue),
            initial: Arc::new(settings(&context)),
            context,
            workers: Arc::clone(&self.workers),
            rights: self.settings.rights,
        })
    }
}

/// Returns the function `version()`, in PostgreSQL's words: clients use it to find out what the server
/// supports.
fn version() -> ScalarUDF {
    let words = format!(
        "PostgreSQL {POSTGRESQL_VERSION} (Kumiki {}, DataFusion {DATAFUSION_VERSION}) on {}-{}, 64-bit",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        std::env::consts::OS,
    );
    let words = ColumnarValue::Scalar(ScalarValue::Utf8(Some(words)));
    let function = Arc::new(move |_: &[ColumnarValue]| Ok(words.clone()));
    create_udf(
        "version",
        Vec::new(),
        DataType::Utf8,
        Volatility::Immutable,
        function,
    )
}

/// A client's session.
#[derive(Clone)]
pub struct Session {
    context: SessionContext,
    catalogue: Arc<Catalogue>,
    /// The values of its own settings at the beginning.
    initial: Arc<Vec<ConfigEntry>>,
    workers: Arc<Workers>,
    rights: Rights,
}

impl Session {
    /// Returns DataFusion's part of the session.
    #[must_use]
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Plans one statement.
    ///
    /// # Errors
    /// Returns an error if it is invalid, names an object that does not exist, or is not allowed; the text
    /// says which.
    pub async fn plan(&self, sql: &str) -> Result<DataFrame> {
        let plan = self.logical(sql).await?;
        self.begin(plan).await
    }

    /// Begins a statement that [`Session::logical`] has planned: a statement that changes settings changes
    /// them; for a query, the frame that is to be run is returned.
    ///
    /// # Errors
    /// Returns the errors of [`Session::plan`].
    pub async fn begin(&self, plan: LogicalPlan) -> Result<DataFrame> {
        let begun = Instant::now();
        let is_prepared = matches!(plan, LogicalPlan::Statement(Statement::Execute(_)));
        let frame = self.context.execute_logical_plan(plan).await?;
        if !is_prepared {
            return Ok(frame);
        }
        let (state, plan) = frame.into_parts();
        let plan = with_newest_tables(as_postgresql(plan)?, &self.catalogue, begun).await?;
        Ok(DataFrame::new(state, plan))
    }

    /// Returns a query with values in the place of its parameters.
    ///
    /// # Errors
    /// Returns an error if they do not fit.
    pub(crate) fn with_values(&self, query: DataFrame, values: ParamValues) -> Result<DataFrame> {
        let (state, plan) = query.with_param_values(values)?.into_parts();
        Ok(DataFrame::new(state, as_postgresql(plan)?))
    }

    /// Plans one statement without any effect, even if it changes settings.
    ///
    /// # Errors
    /// Returns the errors of [`Session::plan`].
    pub async fn logical(&self, sql: &str) -> Result<LogicalPlan> {
        if operators(sql) > MOST_OPERATORS {
            return plan_err!("{TOO_COMPLEX}");
        }
        let begun = Instant::now();
        let ours = self.ours(sql);
        let sql = ours.as_deref().unwrap_or(sql);
        let state = self.context.state();
        let dialect = state.config_options().sql_parser.dialect;
        let mut statement = state.sql_to_statement(sql, &dialect)?;
        statement::prepare(&mut statement)?;
        self.planned(statement, begun).await
    }

    /// Returns the statement that shows or resets one of our settings, if `sql` asks for that: DataFusion
    /// supports this for its own settings only.
    fn ours(&self, sql: &str) -> Option<String> {
        // More than two words are another statement, and there may be very many.
        let words = sql.split_whitespace().take(3);
        let words: Vec<_> = words.map(str::to_ascii_lowercase).collect();
        let [verb, name] = &words[..] else {
            return None;
        };
        if !name.starts_with(KumikiOptions::PREFIX) {
            return None;
        }
        let of = |all: &[ConfigEntry]| {
            let found = all.iter().find(|entry| entry.key == *name)?;
            let value = found.value.as_deref().unwrap_or_default();
            Some(value.replace('\'', "''"))
        };
        match verb.as_str() {
            "show" => {
                let value = of(&settings(&self.context))?;
                Some(format!("SELECT '{name}' AS name, '{value}' AS value"))
            }
            "reset" => Some(format!("SET {name} = '{}'", of(&self.initial)?)),
            _ => None,
        }
    }

    /// Plans as [`Session::logical`], for a statement that was parsed already, and does not have too many
    /// operators.
    ///
    /// # Errors
    /// Returns the errors of [`Session::logical`].
    pub(crate) async fn logical_of(&self, statement: ast::Statement) -> Result<LogicalPlan> {
        let begun = Instant::now();
        let mut statement = DfStatement::Statement(Box::new(statement));
        statement::prepare(&mut statement)?;
        self.planned(statement, begun).await
    }

    /// Plans a statement, with PostgreSQL's names of columns if DataFusion accepts them.
    async fn planned(&self, statement: DfStatement, begun: Instant) -> Result<LogicalPlan> {
        let state = self.context.state();
        if let Some(named) = statement::named(&statement)
            && let Ok(plan) = state.statement_to_plan(named).await
        {
            return self.verified(plan, begun).await;
        }
        let plan = state.statement_to_plan(statement).await?;
        self.verified(plan, begun).await
    }

    /// Resets the session's own settings to their values at the beginning.
    ///
    /// # Errors
    /// No error is known.
    pub(crate) async fn reset(&self) -> Result<()> {
        let now = settings(&self.context);
        for (now, then) in now.iter().zip(self.initial.iter()) {
            if now.value == then.value {
                continue;
            }
            let name = then.key.clone();
            let statement = match then.value.clone() {
                Some(value) => Statement::SetVariable(SetVariable {
                    variable: name,
                    value,
                }),
                None => Statement::ResetVariable(ResetVariable { variable: name }),
            };
            let plan = LogicalPlan::Statement(statement);
            self.context.execute_logical_plan(plan).await?;
        }
        Ok(())
    }

    /// Forgets a statement that SQL has prepared, if there is one of that name.
    pub(crate) async fn deallocate(&self, name: &str) {
        let name = name.to_owned();
        let plan = LogicalPlan::Statement(Statement::Deallocate(Deallocate { name }));
        let _ = self.context.execute_logical_plan(plan).await;
    }

    /// Returns the plan over the newest versions of tables, after it has checked that the session may execute
    /// it.
    async fn verified(&self, plan: LogicalPlan, begun: Instant) -> Result<LogicalPlan> {
        self.permitted().verify_plan(&plan).map_err(refused)?;
        if let Some(name) = setting(&plan)
            && self.rights == Rights::Read
            && !is_own(name)
        {
            return plan_err!("{name} {NOT_OWN}");
        }
        if let Some(name) = changed(&plan)
            && let Ok(table) = self.context.table_provider(name.clone()).await
            && table.downcast_ref::<PagesTable>().is_some()
        {
            let name = name.table();
            return plan_err!(
                "table {name} is made of pages, which SQL does not change: use 'kumiki pages load' to \
                 add rows or to replace them, and 'kumiki pages remove {name}' to remove it"
            );
        }
        let plan = bounded(as_postgresql(plan)?)?;
        with_newest_tables(plan, &self.catalogue, begun).await
    }

    /// Runs a plan on the threads of queries, in a task of its own, so that the caller that waits for its
    /// batches can stop waiting even while an operator computes for long without yielding. Dropping the
    /// stream ends the task when its operators next yield. It ends with an error, too, if no batch is taken
    /// for as long as `patience`, if it is given.
    ///
    /// # Errors
    /// Returns an error if an operator cannot begin, or a constant is too long for it.
    pub fn run(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        patience: Option<Duration>,
    ) -> Result<SendableRecordBatchStream> {
        check_constants(&plan)?;
        let workers = self.workers.handle();
        let mut batches = {
            // Operators that have tasks of their own begin some of them at once.
            let _entered = workers.enter();
            execute_stream(plan, Arc::clone(&context))?
        };
        let mut builder = RecordBatchReceiverStream::builder(batches.schema(), 2);
        let sender = builder.tx();
        let task = async move {
            // The context contains the resources that the query holds, and operators need not keep it.
            let _context = context;
            while let Some(batch) = batches.next().await {
                let taken = sender.send(batch);
                let taken = match patience {
                    None => taken.await,
                    Some(patience) => timeout(patience, taken).await.map_err(|_| {
                        let seconds = patience.as_secs_f64();
                        exec_datafusion_err!(
                            "the client has not taken the next rows for {seconds} s: ask again"
                        )
                    })?,
                };
                if taken.is_err() {
                    break;
                }
            }
            Ok(())
        };
        builder.spawn_on(task, workers);
        Ok(builder.build())
    }

    /// Returns the rights of its statements.
    #[must_use]
    pub fn permitted(&self) -> SQLOptions {
        let all = self.rights == Rights::All;
        SQLOptions::new()
            .with_allow_ddl(all)
            .with_allow_dml(all)
            .with_allow_statements(true)
    }
}

/// Returns the setting that a statement changes or resets, if there is one.
fn setting(plan: &LogicalPlan) -> Option<&str> {
    match plan {
        LogicalPlan::Statement(Statement::SetVariable(set)) => Some(&set.variable),
        LogicalPlan::Statement(Statement::ResetVariable(reset)) => Some(&reset.variable),
        LogicalPlan::Statement(Statement::Prepare(prepare)) => setting(&prepare.input),
        _ => None,
    }
}

/// Returns the settings that concern a session alone, always in the same order.
fn settings(context: &SessionContext) -> Vec<ConfigEntry> {
    let state = context.state();
    let options = state.config_options();
    let mut own: Vec<_> = options.entries().into_iter().collect();
    own.retain(|entry| is_own(&entry.key));
    // The settings of extensions are listed without their prefix.
    let ours = KumikiOptions::of(options).entries().into_iter();
    own.extend(ours.map(|entry| ConfigEntry {
        key: format!("{}.{}", KumikiOptions::PREFIX, entry.key),
        ..entry
    }));
    own.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    own
}

/// Returns the table that a statement changes, if there is one.
fn changed(plan: &LogicalPlan) -> Option<&TableReference> {
    match plan {
        LogicalPlan::Dml(change) => Some(&change.table_name),
        LogicalPlan::Ddl(DdlStatement::DropTable(drop)) => Some(&drop.name),
        _ => None,
    }
}

/// Returns `true` if a setting concerns its session alone: how plans are shown, the time zone, where
/// fragments run. Other settings determine the memory and threads of a query, or the place of its temporary
/// files.
fn is_own(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let prefixes = ["kumiki.", "datafusion.explain."];
    let names = ["datafusion.execution.time_zone", "timezone", "time.zone"];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) || names.contains(&name.as_str())
}

fn refused(error: DataFusionError) -> DataFusionError {
    match error {
        DataFusionError::Plan(what) => DataFusionError::Plan(format!(
            "{what}: this server answers queries and changes nothing; use 'kumiki pages load' on the \
             machine that has the pages"
        )),
        other => other,
    }
}
