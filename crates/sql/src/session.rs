//! A session: a catalogue, DataFusion with our rules, and limits.

use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{DataFrame, SQLOptions, SessionConfig, SessionContext};
use operators::Placement;

use crate::catalogue::Catalogue;
use crate::options::KumikiOptions;
use crate::pushdown::rules;
use crate::table::PagesSchema;

/// The catalogue's and the schema's names in SQL.
pub const CATALOGUE: &str = "kumiki";
/// See [`CATALOGUE`].
pub const SCHEMA: &str = "public";

/// What all sessions of a process share.
#[derive(Clone, Debug)]
pub struct Shared {
    catalogue: Arc<Catalogue>,
    runtime: Arc<RuntimeEnv>,
    settings: Settings,
}

/// How sessions begin.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Partitions of each scan, join and aggregate: threads that a query keeps busy.
    pub partitions: NonZeroUsize,
    /// What is wanted of the placement.
    pub placement: Placement,
    /// Whether work is pushed to the data.
    pub push_down: bool,
    /// Bytes that sorts, joins and aggregates may take, all together; beyond, they use temporary files or fail.
    /// `None`: no bound.
    pub memory: Option<u64>,
    /// What SQL may do.
    pub rights: Rights,
}

impl Default for Settings {
    /// As many partitions as processors, no bound on memory, and all rights.
    fn default() -> Settings {
        let processors = std::thread::available_parallelism();
        Settings {
            partitions: processors.unwrap_or(NonZeroUsize::MIN),
            placement: Placement::Auto,
            push_down: true,
            memory: None,
            rights: Rights::All,
        }
    }
}

/// What SQL may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Everything that DataFusion can, with files of this machine, too (`CREATE EXTERNAL TABLE`, `COPY`):
    /// for those who sit at it.
    All,
    /// Queries and settings: for those who come over the network.
    Read,
}

impl Shared {
    /// Sessions over a catalogue.
    ///
    /// # Errors
    /// If there is no place for temporary files.
    pub fn new(catalogue: Catalogue, settings: Settings) -> Result<Shared> {
        let mut runtime = RuntimeEnvBuilder::new();
        if let Some(memory) = settings.memory {
            let memory = usize::try_from(memory).unwrap_or(usize::MAX);
            runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(memory)));
        }
        Ok(Shared {
            catalogue: Arc::new(catalogue),
            runtime: runtime.build_arc()?,
            settings,
        })
    }

    /// The tables.
    #[must_use]
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// A new session.
    ///
    /// # Errors
    /// If DataFusion refuses it.
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
        // Pages have texts as one run of bytes; views of them would be made anew for each cast.
        let parser = &mut config.options_mut().sql_parser;
        parser.map_string_types_to_utf8view = false;
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::clone(&self.runtime))
            .with_default_features()
            .with_physical_optimizer_rules(rules())
            .build();
        let context = SessionContext::new_with_state(state);
        let catalogue = MemoryCatalogProvider::new();
        let schema = PagesSchema::new(Arc::clone(&self.catalogue));
        catalogue.register_schema(SCHEMA, Arc::new(schema))?;
        context.register_catalog(CATALOGUE, Arc::new(catalogue));
        Ok(Session {
            context,
            rights: self.settings.rights,
        })
    }
}

/// Somebody's session.
#[derive(Clone)]
pub struct Session {
    context: SessionContext,
    rights: Rights,
}

impl Session {
    /// DataFusion's part of it.
    #[must_use]
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Plans one statement.
    ///
    /// # Errors
    /// If it makes no sense, names what does not exist, or is not allowed; the text says what.
    pub async fn plan(&self, sql: &str) -> Result<DataFrame> {
        let plan = self.logical(sql).await?;
        self.context.execute_logical_plan(plan).await
    }

    /// Plans one statement and does nothing of it, not even what sets something.
    ///
    /// # Errors
    /// As [`Session::plan`].
    pub async fn logical(&self, sql: &str) -> Result<LogicalPlan> {
        let plan = self.context.state().create_logical_plan(sql).await?;
        self.permitted().verify_plan(&plan).map_err(refused)?;
        Ok(plan)
    }

    /// What its statements may do.
    #[must_use]
    pub fn permitted(&self) -> SQLOptions {
        let all = self.rights == Rights::All;
        SQLOptions::new()
            .with_allow_ddl(all)
            .with_allow_dml(all)
            .with_allow_statements(true)
    }
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
