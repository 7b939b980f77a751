//! Replaces `kumiki sql` in a binary that was built without it.

use std::sync::Arc;

use clap::Args;

use crate::logging::LogControl;

/// Options that are not understood here.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct SqlOptions {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    options: Vec<String>,
}

/// Explains how to get a binary with SQL.
pub(crate) fn run(options: &SqlOptions, _: &Arc<LogControl>) -> Result<(), String> {
    let options = quoted(&options.options);
    Err(format!(
        "this binary was built without SQL, which takes minutes to compile. To build one with it and \
         do what was asked for: cargo run --release --features sql -- sql {options}"
    ))
}

/// Quotes words for a shell.
pub(crate) fn quoted(words: &[String]) -> String {
    let words = words.iter().map(String::as_str);
    // No argument has a zero byte in it.
    shlex::try_join(words).unwrap_or_default()
}
