//! Results as tables, CSV and JSON.

use std::io::{self, Write};
use std::str::FromStr;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::arrow::util::pretty::pretty_format_batches_with_options;

use crate::error::Error;

/// How results are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OutputFormat {
    /// Columns below each other, written after the last row is known.
    #[default]
    Table,
    /// A header and a line for each row; null is an empty value.
    Csv,
    /// An object for each row, one on each line.
    Json,
}

impl FromStr for OutputFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<OutputFormat, Error> {
        match text {
            "table" => Ok(OutputFormat::Table),
            "csv" => Ok(OutputFormat::Csv),
            "json" => Ok(OutputFormat::Json),
            other => Err(format!("'{other}' is no format: table, csv and json are").into()),
        }
    }
}

/// Writes a result, batch by batch.
pub struct ResultWriter<W: Write> {
    schema: SchemaRef,
    rows: usize,
    kind: Kind<W>,
}

enum Kind<W: Write> {
    Table { out: W, kept: Vec<RecordBatch> },
    Csv(Box<csv::Writer<W>>),
    Json(LineDelimitedWriter<W>),
}

impl<W: Write> ResultWriter<W> {
    /// Begins a result with these columns.
    ///
    /// # Errors
    /// Returns an error if the header cannot be written.
    pub fn new(
        out: W,
        format: OutputFormat,
        schema: SchemaRef,
    ) -> Result<ResultWriter<W>, ArrowError> {
        let kind = match format {
            OutputFormat::Table => Kind::Table {
                out,
                kept: Vec::new(),
            },
            OutputFormat::Csv => {
                let mut writer = csv::WriterBuilder::new().with_header(true).build(out);
                // The header is written even if there are no rows.
                writer.write(&RecordBatch::new_empty(SchemaRef::clone(&schema)))?;
                Kind::Csv(Box::new(writer))
            }
            OutputFormat::Json => Kind::Json(LineDelimitedWriter::new(out)),
        };
        Ok(ResultWriter {
            schema,
            rows: 0,
            kind,
        })
    }

    /// Writes some rows.
    ///
    /// # Errors
    /// Returns an error if they cannot be written, or have no form in this format.
    pub fn write(&mut self, batch: RecordBatch) -> Result<(), ArrowError> {
        self.rows += batch.num_rows();
        match &mut self.kind {
            Kind::Table { kept, .. } => kept.push(batch),
            Kind::Csv(writer) => writer.write(&batch)?,
            Kind::Json(writer) => writer.write(&batch)?,
        }
        Ok(())
    }

    /// Writes the rest, and returns the number of rows.
    ///
    /// # Errors
    /// Returns the errors of [`ResultWriter::write`].
    pub fn finish(self) -> Result<usize, ArrowError> {
        match self.kind {
            Kind::Table { mut out, kept } if is_plan(&self.schema) => {
                write_plan(&mut out, &kept)?;
                out.flush()?;
            }
            Kind::Table { mut out, kept } => {
                let options = FormatOptions::default().with_null("NULL");
                let kept = if kept.is_empty() {
                    vec![RecordBatch::new_empty(self.schema)]
                } else {
                    kept
                };
                let table = pretty_format_batches_with_options(&kept, &options)?;
                writeln!(out, "{table}")?;
                let rows = self.rows;
                let word = if rows == 1 { "row" } else { "rows" };
                writeln!(out, "({rows} {word})")?;
                out.flush()?;
            }
            Kind::Csv(writer) => flush(writer.into_inner())?,
            Kind::Json(mut writer) => {
                writer.finish()?;
                flush(writer.into_inner())?;
            }
        }
        Ok(self.rows)
    }
}

/// Returns `true` for the output of `EXPLAIN`: the name of a plan, and the plan, on many lines.
fn is_plan(schema: &SchemaRef) -> bool {
    let names: Vec<_> = schema.fields().iter().map(|field| field.name()).collect();
    names == ["plan_type", "plan"]
}

/// Writes plans without a box, which would be of no use around such long lines.
fn write_plan(out: &mut impl Write, batches: &[RecordBatch]) -> Result<(), ArrowError> {
    for batch in batches {
        let options = FormatOptions::default();
        let column = |place: usize| ArrayFormatter::try_new(batch.column(place), &options);
        let (kinds, plans) = (column(0)?, column(1)?);
        for row in 0..batch.num_rows() {
            let plan = plans.value(row).to_string();
            writeln!(out, "{}:\n{}", kinds.value(row), plan.trim_end())?;
        }
    }
    Ok(())
}

fn flush(mut out: impl Write) -> io::Result<()> {
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Decimal128Array, Int32Array, StringArray};

    use super::*;

    fn written(format: OutputFormat, rows: usize) -> String {
        let amount = Decimal128Array::from(vec![Some(1250), None]);
        let amount = amount.with_precision_and_scale(15, 2).unwrap();
        let columns: [(&str, ArrayRef); 3] = [
            ("n", Arc::new(Int32Array::from(vec![1, 2]))),
            ("text", Arc::new(StringArray::from(vec!["a,\"b\"", "ü"]))),
            ("amount", Arc::new(amount)),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.map(|(name, array)| (name, array, true)),
        );
        let batch = batch.unwrap().slice(0, rows);
        let mut out = Vec::new();
        let mut writer = ResultWriter::new(&mut out, format, batch.schema()).unwrap();
        if rows > 0 {
            writer.write(batch).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), rows);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_has_a_header_and_quotes_what_needs_it() {
        let lines = "n,text,amount\n1,\"a,\"\"b\"\"\",12.50\n2,ü,\n";
        assert_eq!(written(OutputFormat::Csv, 2), lines);
        assert_eq!(written(OutputFormat::Csv, 0), "n,text,amount\n");
    }

    #[test]
    fn json_has_an_object_for_each_row() {
        let json = written(OutputFormat::Json, 2);
        let lines: Vec<_> = json.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains(r#""text":"a,\"b\"""#), "{json}");
        assert_eq!(written(OutputFormat::Json, 0), "");
    }

    #[test]
    fn tables_say_how_many_rows_they_have() {
        let table = written(OutputFormat::Table, 2);
        assert!(table.contains("| 2 | ü     | NULL   |"), "{table}");
        assert!(table.ends_with("(2 rows)\n"), "{table}");
        assert!(written(OutputFormat::Table, 0).ends_with("(0 rows)\n"));
        assert!(written(OutputFormat::Table, 1).ends_with("(1 row)\n"));
    }

    #[test]
    fn plans_have_no_box() {
        let columns: [(&str, ArrayRef); 2] = [
            (
                "plan_type",
                Arc::new(StringArray::from(vec!["physical_plan"])),
            ),
            ("plan", Arc::new(StringArray::from(vec!["A\n  B\n"]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut out = Vec::new();
        let mut writer = ResultWriter::new(&mut out, OutputFormat::Table, batch.schema()).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "physical_plan:\nA\n  B\n");
    }
}
