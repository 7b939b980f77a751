//! CSV and Parquet files into tables of pages, by DataFusion's readers: batch by batch, in the order of the
//! files and of their rows.
//!
//! Columns are converted to types of pages: texts that are no views, decimals of 128 bits, no dictionaries.
//! Types that have no such form are refused. If rows are added to a table, it determines the columns, and so
//! does a list of columns; otherwise Parquet files contain their columns, and the types of a CSV file's
//! columns are guessed from its first rows.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::kernels::cmp::not_distinct;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, Schema, SchemaRef};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::common::Column;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use datafusion::prelude::{
    CsvReadOptions, DataFrame, ParquetReadOptions, SessionConfig, SessionContext,
};
use futures::StreamExt;
use pages::{LoadOptions, Mode, Sink, Table, TableStore, sort};

use crate::error::Error;
use crate::explain::explain;

/// The number of rows of a CSV file from which its columns' types are guessed.
const GUESSED_FROM: usize = 10_000;

/// The format of files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileFormat {
    /// Lines of values.
    Csv(Csv),
    /// Parquet.
    Parquet,
}

/// How lines of values are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Csv {
    /// `true` if the first line has the columns' names.
    pub header: bool,
    /// The character between values.
    pub delimiter: u8,
    /// The text that stands for null; `None`: an empty value, except in columns of texts, where it is an
    /// empty text.
    pub null: Option<String>,
}

impl Csv {
    /// Returns `true` if empty values of text columns are texts, which the reader takes for nulls.
    fn has_empty_texts(&self) -> bool {
        self.null.as_deref() != Some("")
    }

    /// Returns the pattern of the text that stands for null; `None`: an empty value.
    fn null_pattern(&self) -> Option<String> {
        let null = self.null.as_ref().filter(|null| !null.is_empty())?;
        let literal = null
            .chars()
            .map(|one| format!("\\x{{{:x}}}", u32::from(one)));
        Some(format!("^{}$", literal.collect::<String>()))
    }
}

impl Default for Csv {
    /// Returns a format with a header, and commas.
    fn default() -> Csv {
        Csv {
            header: true,
            delimiter: b',',
            null: None,
        }
    }
}

/// Columns and their types, in SQL: `id bigint not null, price decimal(15, 2)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadColumns(String);

impl FromStr for LoadColumns {
    type Err = Error;

    fn from_str(text: &str) -> Result<LoadColumns, Error> {
        if text.contains(';') {
            return Err("columns are written as in SQL: id bigint not null, name varchar".into());
        }
        Ok(LoadColumns(text.to_owned()))
    }
}

/// A load.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    /// The table's name.
    pub table: String,
    /// The files, in order.
    pub files: Vec<PathBuf>,
    /// The format of the files.
    pub format: FileFormat,
    /// The columns; `None` finds them out.
    pub columns: Option<LoadColumns>,
    /// The column by which rows are sorted, which must then fit into memory.
    pub sort_by: Option<String>,
    /// How a new table is stored in pages.
    pub options: LoadOptions,
    /// What happens to existing rows.
    pub mode: Mode,
}

/// Loads files into a table. An error leaves the table as it was. `progress` is called with the number of
/// rows that were read, batch by batch.
///
/// # Errors
/// Returns an error if a file cannot be read, has other columns than it should, or has values that do not
/// fit; if the mode does not allow the table to exist, or to be missing; or if the store does not take it.
/// The text says what, in which file, and what to do.
pub fn load(
    store: &dyn TableStore,
    request: &LoadRequest,
    progress: &mut dyn FnMut(u64),
) -> Result<Arc<Table>, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Error::System(format!("no threads for the load: {error}")))?;
    runtime.block_on(loaded(store, request, progress))
}

async fn loaded(
    store: &dyn TableStore,
    request: &LoadRequest,
    progress: &mut dyn FnMut(u64),
) -> Result<Arc<Table>, Error> {
    let context = context();
    let mut schema = wanted(&context, store, request).await?;
    let mut target: Option<Target> = None;
    for file in &request.files {
        let in_file = |error: Error| Error::File {
            file: file.display().to_string(),
            source: Box::new(error),
        };
        let read = read(&context, file, &request.format, schema.as_ref()).await;
        let (mut read, types) = read.map_err(in_file)?;
        unique(read.schema().as_arrow()).map_err(in_file)?;
        if let (Some(schema), Some(_), FileFormat::Parquet) =
            (&schema, &request.columns, &request.format)
        {
            read = chosen(read, schema).map_err(in_file)?;
        }
        let columns = match &schema {
            Some(schema) => Arc::clone(schema),
            None => schema.insert(with_pages_types(&types)).clone(),
        };
        let target = match &mut target {
            Some(target) => target,
            None => target.insert(Target::begin(store, request, &columns)?),
        };
        let about = |error: DataFusionError| {
            let what = explain(&error);
            let what = unread_value(&what, &columns, &request.format).unwrap_or(what);
            format!("{}: {what}", file.display())
        };
        let mut batches = read.execute_stream().await.map_err(about)?;
        while let Some(batch) = batches.next().await {
            let mut batch = batch.map_err(about)?;
            if let FileFormat::Csv(csv) = &request.format
                && csv.has_empty_texts()
            {
                batch = with_empty_texts(batch, csv.null.as_deref()).map_err(in_file)?;
            }
            let batch = fit(&batch, &columns).map_err(in_file)?;
            target.push(batch)?;
            progress(target.rows);
        }
    }
    target.ok_or("there is no file to load: name one")?.commit()
}

/// Returns the error for a value that is not of its column's type, with names instead of numbers.
fn unread_value(what: &str, columns: &Schema, format: &FileFormat) -> Option<String> {
    let (_, rest) = what.split_once("Error while parsing value '")?;
    let (value, rest) = rest.split_once("' as type '")?;
    let (data_type, rest) = rest.split_once("' for column ")?;
    let (column, rest) = rest.split_once(" at line ")?;
    let column = columns.fields().get(column.parse::<usize>().ok()?)?.name();
    let line = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    // The reader counts from 0, header included.
    let has_header = matches!(format, FileFormat::Csv(Csv { header: true, .. }));
    let row = line.parse::<u64>().ok()? + u64::from(!has_header);
    Some(format!(
        "column {column}, row {row}: '{value}' is no {data_type}"
    ))
}

/// Rows on their way into the table.
struct Target {
    sink: Box<dyn Sink>,
    /// The number of rows so far.
    rows: u64,
    /// The column by which rows are sorted at the end, and the rows so far.
    sorted: Option<(usize, Vec<RecordBatch>)>,
}

impl Target {
    fn begin(
        store: &dyn TableStore,
        request: &LoadRequest,
        schema: &SchemaRef,
    ) -> Result<Target, Error> {
        let by = request.sort_by.as_ref().map(|column| {
            let place = schema.index_of(column);
            place.map_err(|_| format!("there is no column {column:?} to sort by"))
        });
        let by = by.transpose()?;
        let sink = store.load(&request.table, schema, &request.options, request.mode);
        Ok(Target {
            sink: sink?,
            rows: 0,
            sorted: by.map(|column| (column, Vec::new())),
        })
    }

    fn push(&mut self, batch: RecordBatch) -> Result<(), Error> {
        self.rows += batch.num_rows() as u64;
        match &mut self.sorted {
            Some((_, all)) => {
                all.push(batch);
                Ok(())
            }
            None => Ok(self.sink.push(&batch)?),
        }
    }

    fn commit(mut self) -> Result<Arc<Table>, Error> {
        let (column, all) = self.sorted.unwrap_or_default();
        for batch in sort::sorted(all, column) {
            self.sink.push(&batch)?;
        }
        Ok(self.sink.commit()?)
    }
}

/// Makes a context with one partition, so that rows keep their order.
fn context() -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(1);
    let options = config.options_mut();
    options.sql_parser.map_string_types_to_utf8view = false;
    options.execution.parquet.schema_force_view_types = false;
    // Nanoseconds would only reach from 1677 to 2262.
    options.execution.parquet.coerce_int96 = Some("us".to_owned());
    SessionContext::new_with_config(config)
}

/// Returns the columns of the table, or of the request; `None` if the files determine them.
async fn wanted(
    context: &SessionContext,
    store: &dyn TableStore,
    request: &LoadRequest,
) -> Result<Option<SchemaRef>, Error> {
    if request.mode == Mode::Append {
        let name = &request.table;
        let table = store.table(name)?;
        let table = table.ok_or_else(|| format!("there is no table {name} to append to"))?;
        return Ok(Some(Arc::clone(&table.schema)));
    }
    let Some(LoadColumns(columns)) = &request.columns else {
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

/// Returns a file's rows, and the columns that they shall have. A CSV file is read with the columns `schema`,
/// if there are some.
async fn read(
    context: &SessionContext,
    file: &Path,
    format: &FileFormat,
    schema: Option<&SchemaRef>,
) -> Result<(DataFrame, Schema), Error> {
    let found = std::fs::canonicalize(file).map_err(|error| Error::System(error.to_string()))?;
    let about = std::fs::metadata(&found).map_err(|error| Error::System(error.to_string()))?;
    if !about.is_file() {
        return Err("it is no regular file, which can be read twice: write it to one first".into());
    }
    if about.len() == 0 {
        return Err("it is empty".into());
    }
    let path = found.to_string_lossy().into_owned();
    let extension = found
        .extension()
        .map(|end| format!(".{}", end.to_string_lossy()));
    let extension = extension.unwrap_or_default();
    let says = |error: DataFusionError| explain(&error);
    match format {
        FileFormat::Csv(csv) => {
            let mut options = CsvReadOptions::new()
                .has_header(csv.header)
                .delimiter(csv.delimiter)
                .schema_infer_max_records(GUESSED_FROM)
                .file_extension(&extension);
            options.newlines_in_values = true;
            options.file_compression_type = compression(&extension);
            options.null_regex = csv.null_pattern();
            let mut columns = schema.cloned();
            if let Some(schema) = schema.filter(|_| csv.header) {
                // The reader goes by places, and would not check the names.
                let named = context.read_csv(path.clone(), options.clone()).await;
                let named = named.map_err(says)?;
                columns = Some(in_order_of(named.schema().as_arrow(), schema)?);
            }
            if columns.is_none() && options.null_regex.is_some() {
                // The reader uses the text for null when it guesses, but not when it reads.
                let guessed = context.read_csv(path.clone(), options.clone()).await;
                columns = Some(Arc::new(guessed.map_err(says)?.schema().as_arrow().clone()));
            }
            let read = columns.as_ref().map(|columns| match &csv.null {
                None => Arc::new(with_nullable_texts(columns)),
                Some(null) if null.is_empty() => Arc::clone(columns),
                Some(_) => Arc::new(as_texts(columns)),
            });
            options.schema = read.as_deref();
            let read = context.read_csv(path, options).await.map_err(says)?;
            let found = read.schema().as_arrow().clone();
            Ok((
                read,
                columns.map_or(found, |columns| columns.as_ref().clone()),
            ))
        }
        FileFormat::Parquet => {
            let options = ParquetReadOptions::default().file_extension(&extension);
            let read = context.read_parquet(path, options).await.map_err(says)?;
            let found = read.schema().as_arrow().clone();
            Ok((read, found))
        }
    }
}

/// Returns the same columns, in which texts may be null until [`with_empty_texts`] makes them empty.
fn with_nullable_texts(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| {
        let is_text = *field.data_type() == DataType::Utf8;
        Field::new(
            field.name(),
            field.data_type().clone(),
            field.is_nullable() || is_text,
        )
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Returns the same columns as texts, which are cast after nulls are known.
fn as_texts(schema: &Schema) -> Schema {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| Field::new(field.name(), DataType::Utf8, true));
    Schema::new(fields.collect::<Vec<_>>())
}

/// Returns a batch in which null texts are empty, and texts that stand for null are null.
fn with_empty_texts(batch: RecordBatch, null: Option<&str>) -> Result<RecordBatch, Error> {
    let columns = batch.columns().iter().map(|column| {
        let Some(texts) = column.as_string_opt::<i32>() else {
            return Arc::clone(column);
        };
        let texts = texts.iter().map(|text| text.unwrap_or_default());
        let texts = texts.map(|text| (Some(text) != null).then_some(text));
        Arc::new(texts.collect::<StringArray>()) as ArrayRef
    });
    let columns = columns.collect();
    RecordBatch::try_new(batch.schema(), columns).map_err(|error| error.to_string().into())
}

/// Returns the requested columns of a file. The others, which may have types that pages do not support, are
/// not read.
fn chosen(read: DataFrame, wanted: &SchemaRef) -> Result<DataFrame, Error> {
    let found = read.schema().as_arrow().clone();
    let names = wanted.fields().iter().map(|field| field.name().as_str());
    let names: Vec<&str> = names.collect();
    let is_there = |name: &&str| found.column_with_name(name).is_some();
    if !names.iter().all(is_there) {
        return Err(other_columns(&found, wanted).into());
    }
    let columns = names
        .into_iter()
        .map(|name| Expr::Column(Column::from_name(name)));
    read.select(columns.collect::<Vec<_>>())
        .map_err(|error| explain(&error).into())
}

/// Checks that the names of columns are different, as columns are found by their names.
fn unique(schema: &Schema) -> Result<(), Error> {
    let mut names = HashSet::new();
    let mut fields = schema.fields().iter();
    match fields.find(|field| !names.insert(field.name())) {
        None => Ok(()),
        Some(twice) => Err(format!(
            "it has more than one column {}: give them names of their own",
            twice.name()
        )
        .into()),
    }
}

/// Returns how a file of lines is compressed, by the end of its name.
fn compression(extension: &str) -> FileCompressionType {
    match extension {
        ".gz" => FileCompressionType::GZIP,
        ".bz2" => FileCompressionType::BZIP2,
        ".xz" => FileCompressionType::XZ,
        ".zst" => FileCompressionType::ZSTD,
        _ => FileCompressionType::UNCOMPRESSED,
    }
}

/// Returns the requested columns in the order in which a file names them.
fn in_order_of(named: &Schema, wanted: &SchemaRef) -> Result<SchemaRef, Error> {
    let fields = named.fields().iter().map(|field| {
        let found = wanted.field_with_name(field.name()).ok();
        found.cloned().filter(|_| same_width(named, wanted))
    });
    let fields: Option<Vec<Field>> = fields.collect();
    let fields = fields.ok_or_else(|| other_columns(named, wanted))?;
    Ok(Arc::new(Schema::new(fields)))
}

fn same_width(one: &Schema, other: &Schema) -> bool {
    one.fields().len() == other.fields().len()
}

/// Returns the error for a file that has other columns than it should.
fn other_columns(found: &Schema, wanted: &Schema) -> String {
    let names = |schema: &Schema| {
        let names = schema.fields().iter().map(|field| field.name().as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    format!(
        "it has columns {}, and not {}: rename them, or load it into a table of its own",
        names(found),
        names(wanted)
    )
}

/// Returns the same columns in types that pages support.
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
        // A column without a value so far.
        DataType::Null => DataType::Utf8,
        other => other.clone(),
    }
}

/// Returns a batch with the table's columns: by their names, in their types.
fn fit(batch: &RecordBatch, target: &SchemaRef) -> Result<RecordBatch, Error> {
    // A value that does not fit is an error, not a null.
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let columns = target.fields().iter().map(|field| {
        let found = batch.column_by_name(field.name());
        let found = found.filter(|_| same_width(&batch.schema(), target));
        let found = found.ok_or_else(|| other_columns(&batch.schema(), target))?;
        let says = |what: String| format!("column {}: {what}", field.name());
        let fitted = cast_with_options(found, field.data_type(), &strict);
        let fitted = fitted.map_err(|error| says(error.to_string()))?;
        if let DataType::Decimal128(precision, _) = *fitted.data_type() {
            // A file may hold more digits than it declares.
            let decimals = fitted.as_primitive::<Decimal128Type>();
            let valid = decimals.validate_decimal_precision(precision);
            valid.map_err(|error| says(error.to_string()))?;
        }
        match lost(found, &fitted, &strict) {
            None => Ok(fitted),
            Some(value) => Err(says(format!(
                "{value} is not the same as {}: load it into a table of its own, or change it in the file",
                field.data_type()
            ))
            .into()),
        }
    });
    let columns = columns.collect::<Result<Vec<_>, Error>>()?;
    RecordBatch::try_new(Arc::clone(target), columns).map_err(|error| error.to_string().into())
}

/// Returns the first value that was changed by a cast. The time of day of a value that becomes a date does
/// not count, and texts are read or refused.
fn lost(found: &ArrayRef, fitted: &ArrayRef, strict: &CastOptions<'_>) -> Option<String> {
    let (from, to) = (found.data_type(), fitted.data_type());
    let is_day = *to == DataType::Date32 && from.is_temporal();
    let is_plain = from.is_numeric() || from.is_temporal();
    if from == to || !is_plain || is_day {
        return None;
    }
    let shown = |row| array_value_to_string(found, row).unwrap_or_default();
    let first = || (0..found.len()).find(|row| found.is_valid(*row)).map(shown);
    let Ok(back) = cast_with_options(fitted, from, strict) else {
        return first();
    };
    let Ok(same) = not_distinct(&found, &back) else {
        return first();
    };
    let changed = (0..found.len()).filter(|row| !same.value(*row));
    // Integers and decimals have only one zero.
    changed.map(shown).find(|value| value != "-0.0")
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Decimal128Array;

    use super::*;

    #[test]
    fn decimals_with_more_digits_than_declared_are_refused() {
        let wide = Decimal128Array::from(vec![1_234_567]);
        let wide = wide.with_precision_and_scale(4, 2).unwrap();
        let batch = RecordBatch::try_from_iter([("d", Arc::new(wide) as ArrayRef)]).unwrap();
        let error = fit(&batch, &batch.schema()).unwrap_err().to_string();
        assert!(error.starts_with("column d: "), "{error}");
        assert!(error.contains("too large"), "{error}");
    }

    #[test]
    fn columns_of_one_name_are_refused() {
        let field = |name: &str| Field::new(name, DataType::Int64, true);
        assert!(unique(&Schema::new(vec![field("a"), field("b")])).is_ok());
        let error = unique(&Schema::new(vec![field("a"), field("b"), field("a")]));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("more than one column a"), "{error}");
    }
}
