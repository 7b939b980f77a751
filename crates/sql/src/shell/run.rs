//! One statement: its result, its time, its end by Ctrl-C.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::explain::explain;
use crate::meter::PageFigures;
use crate::session::{Session, Shared, runtime};
use crate::shell::command::{self, MetaCommand};
use crate::shell::format::{OutputFormat, ResultWriter};
use crate::shell::progress::{Progress, Tell, figures};
use crate::shell::script::{ScriptPart, cut};
use crate::statement::shown_schema;

/// Why a statement, or a script, did not complete.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// It is invalid, or could not be computed; the text says why and what to do.
    #[error("{0}")]
    Query(String),
    /// The user pressed Ctrl-C.
    #[error("cancelled")]
    Cancelled,
    /// The output was closed.
    #[error("the output was closed")]
    Closed,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Query(error.to_string())
    }
}

impl Failed {
    /// Returns the exit code of a process that ends for this reason: 1, 130 after Ctrl-C, and 0 if
    /// the output was closed.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Failed::Query(_) => 1,
            Failed::Cancelled => 130,
            Failed::Closed => 0,
        }
    }
}

/// The settings of a shell.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShellSettings {
    /// How results are written.
    pub format: OutputFormat,
    /// `true` if the time of statements is shown.
    pub timing: bool,
    /// When the progress of long queries is shown.
    pub progress: Tell,
}

/// Runs statements, and writes their results.
pub struct Shell<W> {
    session: Session,
    catalogue: Arc<Catalogue>,
    /// The runtime, until the shell ends.
    runtime: Option<tokio::runtime::Runtime>,
    settings: ShellSettings,
    out: W,
}

impl<W> Drop for Shell<W> {
    /// Does not wait for a query that was cancelled and still computes.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a shell does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It goes on.
    Go,
    /// It was asked to stop.
    Stop,
}

impl<W: Write> Shell<W> {
    /// Makes a shell with a session of its own, which writes to `out`.
    ///
    /// # Errors
    /// Returns an error if there are no threads for it.
    pub fn new(shared: &Shared, settings: ShellSettings, out: W) -> Result<Shell<W>, Failed> {
        let runtime = runtime(Some(NonZeroUsize::MIN))
            .map_err(|error| Failed::Query(format!("no threads for statements: {error}")))?;
        Ok(Shell {
            session: shared.session().map_err(|error| query_failed(&error))?,
            catalogue: Arc::clone(shared.catalogue()),
            runtime: Some(runtime),
            settings,
            out,
        })
    }

    /// Runs all statements of a text, up to the first error. A last statement needs no semicolon.
    ///
    /// # Errors
    /// Returns the error of the statement that failed.
    pub fn script(&mut self, text: &str) -> Result<Next, Failed> {
        let script = cut(text);
        let rest = script.rest.map(ScriptPart::Statement);
        for part in script.parts.into_iter().chain(rest) {
            if self.part(&part)? == Next::Stop {
                return Ok(Next::Stop);
            }
        }
        Ok(Next::Go)
    }

    /// Runs a part of a script.
    ///
    /// # Errors
    /// Returns an error if it fails.
    pub fn part(&mut self, part: &ScriptPart) -> Result<Next, Failed> {
        match part {
            ScriptPart::Statement(sql) => {
                self.statement(sql)?;
                Ok(Next::Go)
            }
            ScriptPart::Command(line) => self.command(line),
        }
    }

    fn command(&mut self, line: &str) -> Result<Next, Failed> {
        let text = match command::parse(line)? {
            MetaCommand::Quit => return Ok(Next::Stop),
            MetaCommand::Help => format!("{}\n", command::HELP),
            MetaCommand::Tables => command::tables(&self.catalogue)?,
            MetaCommand::Table(name) => command::table(&self.catalogue, &name)?,
            MetaCommand::Timing => {
                self.settings.timing = !self.settings.timing;
                let now = if self.settings.timing { "on" } else { "off" };
                format!("timing is {now}\n")
            }
            MetaCommand::Format(format) => {
                self.settings.format = format;
                return Ok(Next::Go);
            }
        };
        let written = self.out.write_all(text.as_bytes());
        written
            .and_then(|()| self.out.flush())
            .map_err(output_failed)?;
        Ok(Next::Go)
    }

    fn statement(&mut self, sql: &str) -> Result<(), Failed> {
        let begun = Instant::now();
        let mut pages = None;
        let work = statement(&self.session, self.settings, sql, &mut self.out);
        let runtime = self.runtime.as_ref().expect("the shell has not ended");
        runtime.block_on(async {
            tokio::select! {
                done = work => {
                    pages = done?;
                    Ok(())
                }
                _ = tokio::signal::ctrl_c() => Err(Failed::Cancelled),
            }
        })?;
        if self.settings.timing {
            let time = begun.elapsed().as_secs_f64() * 1e3;
            let pages = pages.map_or_else(String::new, |pages| format!("; pages: {pages}"));
            eprintln!("Time: {time:.3} ms{pages}");
        }
        Ok(())
    }
}

/// Runs a statement, and returns the counts of its pages. Dropping the future ends the query.
async fn statement(
    session: &Session,
    settings: ShellSettings,
    sql: &str,
    out: impl Write,
) -> Result<Option<PageFigures>, Failed> {
    let failed = |error: DataFusionError| query_failed(&error);
    let written = |error: ArrowError| arrow_failed(&error);
    let planned = session.plan(sql).await.map_err(failed)?;
    let plan = planned.create_physical_plan().await.map_err(failed)?;
    let schema = shown_schema(&plan.schema());
    // A statement that changes settings has no columns, and no result.
    let mut writer = match schema.fields().is_empty() {
        true => None,
        false => {
            Some(ResultWriter::new(out, settings.format, Arc::clone(&schema)).map_err(written)?)
        }
    };
    let mut progress = Progress::new(Arc::clone(&plan), settings.progress);
    let stream = session.run(Arc::clone(&plan), session.context().task_ctx(), None);
    let mut stream = stream.map_err(failed)?;
    while let Some(batch) = next(&mut stream, &mut progress).await {
        if let Some(writer) = &mut writer {
            let batch = batch.map_err(failed)?;
            let batch = RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec())
                .map_err(written)?;
            writer.write(batch).map_err(written)?;
        }
    }
    if let Some(writer) = writer {
        writer.finish().map_err(written)?;
    }
    Ok(figures(&plan))
}

/// Returns the next batch. Progress is shown until it comes, and then cleared.
async fn next(
    stream: &mut SendableRecordBatchStream,
    progress: &mut Progress,
) -> Option<Result<RecordBatch, DataFusionError>> {
    let mut ticks = tokio::time::interval(progress.interval());
    loop {
        tokio::select! {
            batch = stream.next() => {
                progress.end();
                return batch;
            }
            _ = ticks.tick() => progress.tell(),
        }
    }
}

/// Converts an error of DataFusion to that for the shell's user.
fn query_failed(error: &DataFusionError) -> Failed {
    let hint = match error.find_root() {
        DataFusionError::Plan(what) if what.contains("not found") => "; \\d lists the tables",
        DataFusionError::SchemaError(..) => "; \\d TABLE lists a table's columns",
        _ => "",
    };
    Failed::Query(explain(error) + hint)
}

fn arrow_failed(error: &ArrowError) -> Failed {
    match error {
        ArrowError::IoError(_, error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Failed::Closed
        }
        // Arrow keeps only the words of the system's error.
        ArrowError::CsvError(what) if what.contains("Broken pipe") => Failed::Closed,
        other => Failed::Query(format!("the result cannot be written: {other}")),
    }
}

fn output_failed(error: io::Error) -> Failed {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failed::Closed,
        _ => Failed::Query(format!("the output cannot be written: {error}")),
    }
}
