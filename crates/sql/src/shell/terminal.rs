//! Interactive input: a statement may take several lines, and earlier ones come back with the arrow
//! keys, in later shells, too.

use std::io::Write;
use std::path::Path;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Editor, Helper};

use crate::shell::run::{Failed, Next, Shell};
use crate::shell::script::cut;

/// The number of statements that are remembered.
const REMEMBERED: usize = 1_000;

/// Decides whether the input is a complete statement.
struct Whole;

impl Validator for Whole {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        if command(context.input()).is_some() {
            return Ok(ValidationResult::Valid(None));
        }
        Ok(match cut(context.input()).rest {
            Some(_) => ValidationResult::Incomplete,
            None => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Whole {
    type Candidate = String;
}

impl Hinter for Whole {
    type Hint = String;
}

impl Highlighter for Whole {}

impl Helper for Whole {}

/// Returns the command for a line that other shells understand: `exit`, `quit`, `help`.
fn command(line: &str) -> Option<&'static str> {
    match line.trim() {
        "exit" | "quit" => Some("\\q"),
        "help" => Some("\\?"),
        _ => None,
    }
}

/// Reads statements from the terminal and runs them until the user leaves. Errors are shown and do
/// not end the shell. Statements are remembered in a file, if `history` names one.
///
/// # Errors
/// Returns an error if the terminal cannot be read, or the output is closed.
pub fn interact<W: Write>(shell: &mut Shell<W>, history: Option<&Path>) -> Result<(), Failed> {
    let broken = |error: ReadlineError| Failed::Query(format!("the terminal: {error}"));
    let config = Config::builder()
        .auto_add_history(true)
        .max_history_size(REMEMBERED)
        .map_err(broken)?
        .build();
    let mut editor: Editor<Whole, FileHistory> = Editor::with_config(config).map_err(broken)?;
    editor.set_helper(Some(Whole));
    if let Some(history) = history {
        // The first time there is no file.
        let _ = editor.load_history(history);
    }
    let left = statements(shell, &mut editor);
    if let Some(history) = history
        && let Err(error) = editor.save_history(history)
    {
        tracing::warn!(
            "statements are not remembered in {}: {error}",
            history.display()
        );
    }
    left
}

fn statements<W: Write>(
    shell: &mut Shell<W>,
    editor: &mut Editor<Whole, FileHistory>,
) -> Result<(), Failed> {
    loop {
        let typed = match editor.readline("kumiki> ") {
            Ok(typed) => typed,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(Failed::Query(format!("the terminal: {error}"))),
        };
        match shell.script(command(&typed).unwrap_or(&typed)) {
            Ok(Next::Go) => {}
            Ok(Next::Stop) => return Ok(()),
            Err(Failed::Closed) => return Err(Failed::Closed),
            Err(failed) => eprintln!("error: {failed}"),
        }
    }
}
