//! Helpers for tests of SQL over pages.

// The benchmark compiles this file as well, where its parts are found by their paths.
#[path = "support/answers.rs"]
pub(crate) mod answers;
#[path = "support/node.rs"]
pub(crate) mod node;
#[path = "support/tpch.rs"]
pub(crate) mod tpch;
#[path = "support/wire.rs"]
pub(crate) mod wire;

use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use kumiki_sql::catalogue::StoreLocation;
use kumiki_sql::error::Error;
use kumiki_sql::meter::{MeteredSource, PageMeter};
use kumiki_sql::{Catalogue, Placement, Session, Settings, Shared, Store};
use operators::placement::{LinkCosts, SideCosts};
use operators::{LocalSite, Site};
use pages::{Groups, Memory, PageSize, Shape, Table};

/// A store of tables in memory.
pub(crate) struct MemoryStore {
    pub(crate) name: String,
    pub(crate) remote: bool,
    pub(crate) pages: Arc<Memory>,
    pub(crate) tables: Vec<Arc<Table>>,
}

impl MemoryStore {
    pub(crate) fn new() -> MemoryStore {
        MemoryStore {
            name: "memory".to_owned(),
            remote: false,
            pages: Arc::new(Memory::new()),
            tables: Vec::new(),
        }
    }

    /// Makes a table of batches, each in a segment of its own if that is requested.
    pub(crate) fn add(
        &mut self,
        name: &str,
        batches: &[RecordBatch],
        size: PageSize,
        groups: &Groups,
    ) {
        let batches: Vec<_> = batches.iter().map(plain).collect();
        let schema = batches[0].schema();
        let groups = groups.resolve(&schema).unwrap();
        let shape = Shape::new(schema, size, groups, None).unwrap();
        let table = self.pages.table(name, &shape, [&batches[..]]).unwrap();
        self.tables.push(table);
    }
}

/// Returns a batch in the types that pages support: texts that are no views.
pub(crate) fn plain(batch: &RecordBatch) -> RecordBatch {
    let schema = batch.schema();
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(array, field)| {
        let to = match array.data_type() {
            DataType::Utf8View => DataType::Utf8,
            other => other.clone(),
        };
        let array: ArrayRef = cast(array, &to).unwrap();
        (Field::new(field.name(), to, field.is_nullable()), array)
    });
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// Returns the place of a store, with the costs of this machine or of a node.
pub(crate) fn location(is_remote: bool) -> StoreLocation {
    let link = LinkCosts {
        round_trip_s: 50e-6,
        page_s: 30e-6,
        byte_s: 1e-9,
    };
    let side = SideCosts {
        page_s: 10e-6,
        operation_s: 1e-9,
        load: 0.0,
        threads: 2.0,
    };
    match is_remote {
        true => StoreLocation::Remote(side, link),
        false => StoreLocation::Local { page_s: 10e-6 },
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Store for MemoryStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn location(&self, _: &Table) -> StoreLocation {
        location(self.is_remote())
    }

    fn is_remote(&self) -> bool {
        self.remote
    }

    fn tables(&self) -> Result<Vec<String>, Error> {
        Ok(self.tables.iter().map(|table| table.name.clone()).collect())
    }

    fn open(&self, name: &str) -> Result<Option<Arc<Table>>, Error> {
        Ok(self.tables.iter().find(|table| table.name == name).cloned())
    }

    fn site(
        &self,
        _: &Arc<Table>,
        placement: Placement,
        meter: &Arc<PageMeter>,
    ) -> Option<Arc<dyn Site>> {
        let local = placement == Placement::Local;
        if local == self.remote {
            return None;
        }
        let source = MeteredSource::new(Arc::clone(&self.pages) as _, meter);
        Some(Arc::new(LocalSite::new(Arc::new(source))))
    }
}

/// Returns a session over stores.
pub(crate) fn session(stores: Vec<Arc<dyn Store>>, partitions: usize, push_down: bool) -> Session {
    shared(stores, partitions, push_down).session().unwrap()
}

/// Returns the shared state of sessions over stores.
pub(crate) fn shared(stores: Vec<Arc<dyn Store>>, partitions: usize, push_down: bool) -> Shared {
    let settings = Settings {
        partitions: NonZeroUsize::new(partitions).unwrap(),
        placement: Placement::Auto,
        push_down,
        ..Settings::default()
    };
    Shared::new(Catalogue::new(stores), settings).unwrap()
}

/// Returns a statement's plan.
pub(crate) async fn plan(session: &Session, sql: &str) -> Arc<dyn ExecutionPlan> {
    let planned = session.plan(sql).await.unwrap();
    planned.create_physical_plan().await.unwrap()
}

/// Returns a plan as text, with its nodes' indentation.
pub(crate) fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}

/// A result as rows of texts; null as `None`.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// Returns the result of a statement.
pub(crate) async fn ask(session: &Session, sql: &str) -> Result<Rows, String> {
    let planned = session.plan(sql).await.map_err(|error| error.to_string())?;
    let batches = planned.collect().await.map_err(|error| error.to_string())?;
    Ok(batches.iter().flat_map(rows).collect())
}

/// Returns a batch as rows of texts.
pub(crate) fn rows(batch: &RecordBatch) -> Rows {
    let options = FormatOptions::default();
    let columns = batch.columns().iter();
    let columns: Vec<_> = columns
        .map(|array| (array, ArrayFormatter::try_new(array, &options).unwrap()))
        .collect();
    let row = |row: usize| {
        let cells = columns.iter().map(|(array, formatter)| {
            array
                .is_valid(row)
                .then(|| formatter.value(row).to_string())
        });
        cells.collect()
    };
    (0..batch.num_rows()).map(row).collect()
}
