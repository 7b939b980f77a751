//! CSV and Parquet files into tables of pages, by DataFusion's readers: batch by batch, in the order of
//! the files and of their rows.
//!
//! Columns become what pages have: texts that are no views, decimals of 128 bits, no dictionaries. What
//! has no such form is refused. A table to which rows are added says what columns there are, and so
//! does a list of columns; otherwise Parquet files say it themselves, and the types of a CSV file's
//! columns are guessed from its first rows.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::prelude::{
    CsvReadOptions, DataFrame, ParquetReadOptions, SessionConfig, SessionContext,
};
use futures::StreamExt;
use pages::{Load, LoadOptions, Mode, Table, Tables};

use crate::shell::run::explain;

/// Rows of a CSV file from which its columns' types are guessed.
const GUESSED_FROM: usize = 10_000;

/// What kind of files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Format {
    /// Lines of values.
    Csv(Csv),
    /// Parquet.
    Parquet,
}

/// How lines of values are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Csv {
    /// Whether the first line has the columns' names.
    pub header: bool,
    /// What is between values.
    pub delimiter: u8,
}

impl Default for Csv {
    /// With a header, and commas.
    fn default() -> Csv {
        Csv {
            header: true,
            delimiter: b',',
        }
    }
}

/// Columns and their types, in SQL: `id bigint not null, price decimal(15, 2)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns(String);

impl FromStr for Columns {
    type Err = String;

    fn from_str(text: &str) -> Result<Columns, String> {
        if text.contains(';') {
            return Err(
                "columns are written as in SQL: id bigint not null, name varchar".to_owned(),
            );
        }
        Ok(Columns(text.to_owned()))
    }
}

/// What is to be loaded.
#[derive(Clone, Debug)]
pub struct Request {
    /// The table's name.
    pub table: String,
    /// The files, in order.
    pub files: Vec<PathBuf>,
    /// What kind of files.
    pub format: Format,
    /// The columns, if they are not to be found out.
    pub columns: Option<Columns>,
    /// How a new table lies in pages.
    pub options: LoadOptions,
    /// What becomes of rows that are there.
    pub mode: Mode,
}

/// How far a load is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Rows so far.
    pub rows: u64,
    /// Bytes of pages that were written so far.
    pub bytes: u64,
    /// Files that were read to their end.
    pub files: usize,
}

/// Loads files into a table. An error leaves the table as it was.
///
/// # Errors
/// If a file cannot be read, has other columns than it should, or holds what does not fit; if the table
/// is there or not against the mode. The text says what, in which file, and what to do.
pub fn load(
    tables: &Tables,
    request: &Request,
    progress: &mut dyn FnMut(Progress),
) -> Result<Arc<Table>, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| format!("no threads for the load: {error}"))?;
    runtime.block_on(loaded(tables, request, progress))
}

async fn loaded(
    tables: &Tables,
    request: &Request,
    progress: &mut dyn FnMut(Progress),
) -> Result<Arc<Table>, String> {
    let context = context();
    let mut schema = wanted(&context, tables, request).await?;
    let mut load: Option<Load> = None;
    let mut so_far = Progress::default();
    for file in &request.files {
        let about = |error: &DataFusionError| format!("{}: {}", file.display(), explain(error));
        let read = read(&context, file, &request.format, schema.as_ref()).await;
        let read = read.map_err(|error| about(&error))?;
        let target = match &schema {
            Some(schema) => Arc::clone(schema),
            None => schema
                .insert(with_pages_types(read.schema().as_arrow()))
                .clone(),
        };
        let load = match &mut load {
            Some(load) => load,
            None => {
                let (name, options) = (&request.table, &request.options);
                let begun = tables.load(name, &target, options, request.mode);
                load.insert(begun.map_err(|error| error.to_string())?)
            }
        };
        let mut batches = read.execute_stream().await.map_err(|error| about(&error))?;
        while let Some(batch) = batches.next().await {
            let batch = batch.map_err(|error| about(&error))?;
            let batch =
                fit(&batch, &target).map_err(|what| format!("{}: {what}", file.display()))?;
            load.push(&batch).map_err(|error| error.to_string())?;
            (so_far.rows, so_far.bytes) = (load.rows(), load.bytes());
            progress(so_far);
        }
        so_far.files += 1;
        progress(so_far);
    }
    let load = load.ok_or("there is no file to load: name one")?;
    load.commit().map_err(|error| error.to_string())
}

/// One partition, so that rows keep their order.
fn context() -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(1);
    let options = config.options_mut();
    options.sql_parser.map_string_types_to_utf8view = false;
    options.execution.parquet.schema_force_view_types = false;
    SessionContext::new_with_config(config)
}

/// The columns that the table, or somebody, wants; `None` if the files are to say.
async fn wanted(
    context: &SessionContext,
    tables: &Tables,
    request: &Request,
) -> Result<Option<SchemaRef>, String> {
    if request.mode == Mode::Append {
        let table = tables.table(&request.table);
        return table
            .map(|table| Some(Arc::clone(&table.schema)))
            .map_err(|error| error.to_string());
    }
    let Some(Columns(columns)) = &request.columns else {
        return Ok(None);
    };
    let plan = context
        .state()
        .create_logical_plan(&format!("create table t ({columns})"))
        .await;
    let plan = plan.map_err(|error| format!("the columns: {}", explain(&error)))?;
    let inputs = plan.inputs();
    let input = inputs.first().ok_or("the columns make no table")?;
    Ok(Some(with_pages_types(input.schema().as_arrow())))
}

/// A file's rows.
async fn read(
    context: &SessionContext,
    file: &Path,
    format: &Format,
    schema: Option<&SchemaRef>,
) -> Result<DataFrame, DataFusionError> {
    let found = std::fs::canonicalize(file)?;
    let path = found.to_string_lossy().into_owned();
    let extension = found
        .extension()
        .map(|end| format!(".{}", end.to_string_lossy()));
    let extension = extension.unwrap_or_default();
    match format {
        Format::Csv(csv) => {
            let mut options = CsvReadOptions::new()
                .has_header(csv.header)
                .delimiter(csv.delimiter)
                .schema_infer_max_records(GUESSED_FROM)
                .file_extension(&extension);
            options.newlines_in_values = true;
            options.schema = schema.map(Arc::as_ref);
            context.read_csv(path, options).await
        }
        Format::Parquet => {
            let options = ParquetReadOptions::default().file_extension(&extension);
            context.read_parquet(path, options).await
        }
    }
}

/// The same columns in types that pages have.
fn with_pages_types(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let data_type = pages_type(field.data_type());
        Field::new(field.name(), data_type, field.is_nullable())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn pages_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Dictionary(_, values) => pages_type(values),
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Date64 => DataType::Date32,
        // A column of which no value was seen.
        DataType::Null => DataType::Utf8,
        other => other.clone(),
    }
}

/// A batch with the table's columns: by their names, in their types.
fn fit(batch: &RecordBatch, target: &SchemaRef) -> Result<RecordBatch, String> {
    let same_width = batch.num_columns() == target.fields().len();
    let columns = target.fields().iter().map(|field| {
        let found = batch.column_by_name(field.name()).filter(|_| same_width);
        let found = found.ok_or_else(|| {
            let schema = batch.schema();
            let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            let expected: Vec<_> = target.fields().iter().map(|f| f.name().as_str()).collect();
            format!(
                "it has columns {}, and not {}: cast or rename them, or load it into a table of its own",
                names.join(", "),
                expected.join(", ")
            )
        })?;
        cast(found, field.data_type()).map_err(|error| format!("column {}: {error}", field.name()))
    });
    let columns = columns.collect::<Result<Vec<_>, String>>()?;
    RecordBatch::try_new(Arc::clone(target), columns).map_err(|error| error.to_string())
}
